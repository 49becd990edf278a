//! Expiring entries of the members of a project.
//!
//! In each ledger only those members are looked at of which something may be told: whose entries the ledger
//! changed, or entries by which they live; whose entries come near their end now, as was noted when they
//! were given their time to live ([`Noted`]); and those at which the subscription has not looked before.

use std::rc::Rc;
use std::sync::Arc;

use super::ttl_entries::{Looking, Moment};
use super::ttl_notes::{Noted, put_life, put_shared};
use super::watching::ProjectMembers;
use super::{Sources, Told};
use crate::subscription::Subscription;
use crate::trigger::{Entries, Keys, Trigger};
use orrery_contract_data::{AllChanged, CodeLives, Key, KeyTag};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_membership::{AT_THE_END, Belongs, MembersInLedger};
use orrery_store::{ConsumerEffects, StoreError};

/// Number of keys that are read at once.
const PAGE: usize = 64;

/// The members of a project in one ledger, as a subscription looks at them.
pub(super) struct MembersLook<'m, 's> {
    sources: &'m Sources<'s>,
    moment: &'m Moment<'s>,
    subscription: &'m Arc<Subscription>,
    first: LedgerSeq,
    within: u32,
    entries: Entries,
    keys: &'m Keys,
    changed: &'m AllChanged,
    now: Option<Rc<dyn MembersInLedger + 's>>,
    before: Option<Rc<dyn MembersInLedger + 's>>,
}

/// What was seen of a member.
#[derive(Default)]
pub(super) struct Seen {
    pub told: Vec<Told>,
    /// Until when entries live.
    pub lives: Vec<(LedgerSeq, Key)>,
    /// Entries by which it lives, and that are not its own.
    pub shared: Vec<KeyTag>,
    /// The last key; `None` when there are no more.
    pub after: Option<KeyTag>,
    /// Whether it is a member in the ledger, as far as that is known.
    pub may_belong: bool,
}

impl Seen {
    /// Notes what is to be remembered of the member.
    pub fn note(
        &self,
        contract: ContractId,
        subscription: u32,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        self.lives.iter().try_for_each(|life| put_life(effects, subscription, *life))?;
        let mut shared = self.shared.iter().map(|entry| (*entry, contract));
        shared.try_for_each(|it| put_shared(effects, subscription, it))
    }
}

impl<'m, 's> MembersLook<'m, 's> {
    /// Looks at the members in the ledger of `moment`; `first` is the first ledger of the subscription.
    pub fn new(
        sources: &'m Sources<'s>,
        moment: &'m Moment<'s>,
        (subscription, first): (&'m Arc<Subscription>, LedgerSeq),
        changed: &'m AllChanged,
    ) -> Result<Option<Self>, StoreError> {
        let Trigger::Ttl { within, entries, keys } = &subscription.definition.trigger else {
            return Ok(None);
        };
        let Some(project) = subscription.contracts.project() else { return Ok(None) };
        let ledger = moment.ledger;
        let now = ProjectMembers::default().of(sources, project, ledger)?;
        let before = match ledger.previous().filter(|before| *before >= first) {
            Some(before) => ProjectMembers::default().of(sources, project, before)?,
            None => None,
        };
        let (within, entries) = (*within, *entries);
        Ok(Some(Self {
            sources,
            moment,
            subscription,
            first,
            within,
            entries,
            keys,
            changed,
            now,
            before,
        }))
    }

    /// Whether a contract may be a member in the ledger.
    pub fn may_have(&self, contract: &ContractId) -> bool {
        self.now.as_ref().is_some_and(|members| members.may_have(contract))
    }

    /// The time to live with which an entry comes near its end in this ledger.
    fn until(&self) -> LedgerSeq {
        LedgerSeq(self.moment.ledger.0.saturating_add(self.within - 1))
    }

    /// Returns the next contract after one, by id, of which something may be told; `new` is the next one at
    /// which the subscription has not looked.
    pub fn next(
        &self,
        noted: &dyn Noted,
        after: Option<ContractId>,
        new: Option<ContractId>,
    ) -> Result<Option<ContractId>, StoreError> {
        let Some(members) = &self.now else { return Ok(None) };
        let mut changed = match after {
            Some(after) => {
                let behind = std::ops::Bound::Excluded(after);
                self.changed.keys.range((behind, std::ops::Bound::Unbounded))
            }
            None => self.changed.keys.range(..),
        };
        let changed = changed.find(|(contract, _)| members.may_have(contract));
        let mut next: Option<ContractId> = new;
        let mut add = |found: Option<ContractId>| {
            next = next.into_iter().chain(found).min();
        };
        add(changed.map(|(contract, _)| *contract));
        add(noted.next_with_life(self.until(), after)?);
        for entry in &self.changed.shared {
            add(noted.next_sharing(*entry, after)?);
        }
        Ok(next)
    }

    /// Returns the contract to go on with: that at which a look has stopped, if there are keys of it behind a
    /// last one, or else the next one. `new` finds the next one at which the subscription has not looked.
    pub fn go_on(
        &self,
        noted: &dyn Noted,
        stopped: (Option<ContractId>, Option<KeyTag>),
        new: impl FnOnce(Option<ContractId>) -> Result<Option<ContractId>, StoreError>,
    ) -> Result<Option<ContractId>, StoreError> {
        match stopped {
            (Some(contract), Some(_)) => Ok(Some(contract)),
            (after, _) => self.next(noted, after, new(after)?),
        }
    }

    /// Looks at a page of what a contract has, after a key: at all of it, or at what may be told. All of it may be
    /// told in the ledger in which it becomes a member, also if it has been one before.
    pub fn page(
        &self,
        noted: &dyn Noted,
        (contract, after): (ContractId, Option<KeyTag>),
        all: bool,
        codes: &mut CodeLives,
    ) -> Result<Seen, StoreError> {
        let belongs = match &self.now {
            Some(members) => members.has(&contract, AT_THE_END)?,
            None => Belongs::No,
        };
        let before = self.before.as_ref().map(|members| members.has(&contract, AT_THE_END));
        let before = before.transpose()?;
        let was_one = before == Some(Belongs::Yes);
        let all = all || belongs != Belongs::No && before == Some(Belongs::No);
        let looking = Looking {
            sources: self.sources,
            moment: self.moment,
            subscription: self.subscription,
            within: self.within,
            first: if was_one { self.first } else { self.moment.ledger },
            is_sure: belongs == Belongs::Yes,
        };
        let mut seen = Seen { may_belong: belongs != Belongs::No, ..Seen::default() };
        if after.is_none() {
            let mut vital = Vec::new();
            seen.told = looking.vital(&contract, self.entries, codes, &mut vital)?;
            for (tag, until, is_own) in vital {
                seen.lives.extend(until.map(|until| (until, (contract, tag))));
                seen.shared.extend((!is_own).then_some(tag));
            }
        }
        if self.entries.data {
            let page = match all {
                true => self.moment.now().keys_after(&contract, after, PAGE)?,
                false => self.concerned(noted, (contract, after))?,
            };
            for tag in &page {
                let of = (contract, *tag);
                let given = self.moment.now().given(of)?;
                seen.lives.extend(given.map(|given| (given.live_until, of)));
                seen.told.extend(looking.data(of, self.keys)?);
            }
            seen.after = page.last().copied().filter(|_| page.len() >= PAGE);
        }
        if !seen.may_belong {
            seen.told.clear();
        }
        Ok(seen)
    }

    /// Returns the keys of a contract that may be told of, after one, at most a page.
    fn concerned(
        &self,
        noted: &dyn Noted,
        (contract, after): (ContractId, Option<KeyTag>),
    ) -> Result<Vec<KeyTag>, StoreError> {
        let mut found = noted.lives(self.until(), (contract, after), PAGE)?;
        let changed = self.changed.keys.get(&contract).into_iter().flatten();
        let changed = changed.filter(|tag| after.is_none_or(|after| **tag > after));
        found.extend(changed.take(PAGE));
        found.sort_unstable();
        found.dedup();
        found.truncate(PAGE);
        Ok(found)
    }
}
