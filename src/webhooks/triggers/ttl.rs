//! Entries that are about to expire.
//!
//! A subscription is told of an entry in the ledger in which it comes near its end, or gets a time to live that
//! is near. That follows from what is known at the end of this ledger and of the one before, so it does not
//! depend on what was told. Entries that may come near are found by an index of times to live ([`LIVES`]) that
//! has every one that an entry of a watched contract was given since the subscription looked at all of them,
//! in its first ledger. How far that and later ledgers were looked at is stored ([`WATCHED`]), because it may
//! take longer than the ledgers: others do not wait for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ttl_entries::{Looking, Moment};
use super::ttl_members::MembersLook;
use super::ttl_memory::TtlMemory;
use super::ttl_notes::{self, LOOKED, StoredNotes, next_new};
use super::{Sources, Told};
use crate::rows::{LIVES, Life, in_subscriptions};
use crate::subscription::Subscription;
use crate::trigger::Trigger;
use orrery_contract_data::{CONSUMER as CONTRACT_DATA, Key, KeyTag, are_recorded};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{ConsumerEffects, Mark, RowCodec, StoreError, Table};

/// Takes what is to be told. Breaks when no more fits the step.
pub(super) type Tell<'t> =
    &'t mut dyn FnMut(&mut ConsumerEffects<'_>, Told) -> Result<ControlFlow<()>, StoreError>;

/// Number of keys that are read at once.
pub(super) const PAGE: usize = 64;

/// How far each subscription has looked.
pub const WATCHED: Table<(Mark<b'w'>, u32), Watched> = in_subscriptions();

/// How far a subscription has looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The first ledger behind the making of the subscription, in which it looked at all keys.
    pub first: LedgerSeq,
    /// The ledger that is looked at, or will be next.
    pub at: LedgerSeq,
    /// The last ledger to look at so far.
    pub to: LedgerSeq,
    /// The last key of the ledger that was looked at; `None` before the first.
    pub after: Option<KeyTag>,
    /// Of a project: the last contract that was looked at. Its keys after `after` are left, if there is one.
    pub contract: Option<ContractId>,
}

impl RowCodec for Watched {
    fn write(&self, to: &mut Vec<u8>) {
        (self.first, (self.at, self.to)).write(to);
        if let Some(contract) = self.contract {
            contract.write(to);
        }
        if let Some(tag) = self.after {
            tag.write(to);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (first, (at, to)) = RowCodec::read(bytes)?;
        let has_contract = bytes.len() > KeyTag::LEN;
        let contract = if has_contract { Some(ContractId::read(bytes)?) } else { None };
        let after = if bytes.is_empty() { None } else { Some(KeyTag::read(bytes)?) };
        Some(Self { first, at, to, after, contract })
    }
}

impl Watched {
    fn next_ledger(&mut self) {
        self.at = LedgerSeq(self.at.0.saturating_add(1));
        (self.after, self.contract) = (None, None);
    }
}

/// What came of looking; of several, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// All ledgers were looked at.
    Done,
    /// The index of contract data has not processed the next ledger.
    Behind,
    /// There is more to look at.
    More,
}

/// Looks at ledgers for the subscriptions that are told of expiring entries.
pub(crate) struct TtlLooks<'a> {
    pub sources: Sources<'a>,
    /// When no more is to be begun.
    pub until: Instant,
    /// How long one subscription may take while others wait.
    pub most: Duration,
    pub memory: TtlMemory,
    pub(super) moment: Option<Moment<'a>>,
}

impl<'a> TtlLooks<'a> {
    pub fn new(sources: Sources<'a>, until: Instant, most: Duration, memory: TtlMemory) -> Self {
        Self { sources, until, most, memory, moment: None }
    }

    /// Notes a ledger that is newer than all before, if that is not done yet.
    pub fn note(
        &self,
        id: u32,
        ledger: LedgerSeq,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let key = (Mark, id);
        let watched = match WATCHED.get(effects, &key)? {
            Some(before) if before.to >= ledger => return Ok(()),
            // What is missing in between is left out, even if it is stored later.
            Some(before) if self.sources.store.place_of(before.at).is_none() => {
                Watched { at: ledger, to: ledger, after: None, contract: None, ..before }
            }
            Some(before) => Watched { to: ledger, ..before },
            None => {
                let (first, at, to) = (ledger, ledger, ledger);
                Watched { first, at, to, after: None, contract: None }
            }
        };
        WATCHED.put(effects, &key, &watched)
    }

    /// Notes the times to live that a ledger gave to entries of members of a project that is older than others:
    /// newer ones may have left them.
    pub fn note_older(
        &mut self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        let changed = self.memory.changed(&self.sources, ledger)?;
        let moment = self.moment(ledger)?;
        let sources = self.sources;
        let of = (subscription, ledger);
        let Some(look) = MembersLook::new(&sources, &moment, of, &changed)? else {
            return Ok(());
        };
        let mut lives = Vec::new();
        for contract in changed.keys.keys().filter(|contract| look.may_have(contract)) {
            let mut key = None;
            loop {
                let notes = StoredNotes { rows: &*effects, subscription: subscription.id };
                let codes = &mut self.memory.codes;
                let seen = look.page(&notes, (*contract, key), false, codes)?;
                lives.extend(seen.lives);
                key = seen.after;
                if key.is_none() {
                    break;
                }
            }
        }
        lives.into_iter().try_for_each(|life| ttl_notes::put_life(effects, subscription.id, life))
    }

    /// Looks at the ledgers that a subscription has not looked at, and passes on what is to be told; until
    /// `tell` breaks, or time is over.
    pub fn look(
        &mut self,
        subscription: &Arc<Subscription>,
        effects: &mut ConsumerEffects<'_>,
        tell: Tell<'_>,
    ) -> Result<Progress, StoreError> {
        let key = (Mark, subscription.id);
        let Some(mut watched) = WATCHED.get(effects, &key)? else { return Ok(Progress::Done) };
        let before = watched;
        let end = self.until.min(Instant::now() + self.most);
        let after_place = subscription.state().after_place;
        let mut progress = Progress::Done;
        let contract = subscription.contracts.one();
        if self.sources.store.consumer(CONTRACT_DATA).is_none() {
            return Ok(Progress::Done);
        }
        let is_recorded = are_recorded(self.sources.store, &contract)?;
        while watched.at <= watched.to {
            let place = self.sources.store.place_of(watched.at);
            if place.is_none() {
                watched.next_ledger();
                continue;
            }
            // A ledger before the subscription was enabled is looked at for the index alone.
            let is_told = place.is_some_and(|place| place > after_place);
            if !is_recorded || self.sources.store.lacks(CONTRACT_DATA, watched.at) != Some(false) {
                progress = Progress::Behind;
                break;
            }
            let at = (&mut watched, is_told);
            let looked = match subscription.contracts.project() {
                Some(project) => self.look_at_members(subscription, project, at, effects, tell)?,
                None => Some(self.look_on(subscription, at, effects, tell)?),
            };
            let Some(is_stopped) = looked else {
                progress = Progress::Behind;
                break;
            };
            if watched.at <= watched.to && (is_stopped || Instant::now() >= end) {
                progress = Progress::More;
                break;
            }
        }
        if watched != before {
            WATCHED.put(effects, &key, &watched)?;
        }
        Ok(progress)
    }

    /// Looks at a page of keys of the ledger. Returns whether `tell` broke.
    fn look_on(
        &mut self,
        subscription: &Arc<Subscription>,
        (watched, is_told): (&mut Watched, bool),
        effects: &mut ConsumerEffects<'_>,
        tell: Tell<'_>,
    ) -> Result<bool, StoreError> {
        let definition = (&subscription.definition.trigger, subscription.contracts.one());
        let (Trigger::Ttl { within, entries, keys }, Some(contract)) = definition else {
            watched.next_ledger();
            return Ok(false);
        };
        if !is_told && !entries.data {
            watched.next_ledger();
            return Ok(false);
        }
        let moment = self.moment(watched.at)?;
        let sources = self.sources;
        let of = (*within, watched.first);
        let looking = Looking::of_one((&sources, &moment), subscription, of);
        let mut found = Vec::new();
        if watched.after.is_none() && is_told {
            let codes = &mut self.memory.codes;
            found = looking.vital(&contract, *entries, codes, &mut Vec::new())?;
        }
        let page = match entries.data {
            true => page(&looking, effects, (contract, watched.after))?,
            false => Vec::new(),
        };
        for tag in &page {
            let of = (contract, *tag);
            put_life(&moment, effects, of)?;
            if is_told {
                found.extend(looking.data(of, keys)?);
            }
        }
        self.moment = Some(moment);
        match page.last() {
            Some(last) if page.len() >= PAGE => watched.after = Some(*last),
            _ => watched.next_ledger(),
        }
        tell_all(found, effects, tell)
    }

    /// Looks at a page of keys of one member of a project, or ends the ledger. Returns whether `tell` broke;
    /// `None` while the index of contract data has yet to record the member.
    fn look_at_members(
        &mut self,
        subscription: &Arc<Subscription>,
        project: &str,
        (watched, is_told): (&mut Watched, bool),
        effects: &mut ConsumerEffects<'_>,
        tell: Tell<'_>,
    ) -> Result<Option<bool>, StoreError> {
        let (id, ledger, of) = (subscription.id, watched.at, (subscription, watched.first));
        let changed = self.memory.changed(&self.sources, ledger)?;
        let (sources, moment) = (self.sources, self.moment(ledger)?);
        let Some(look) = MembersLook::new(&sources, &moment, of, &changed)? else {
            watched.next_ledger();
            return Ok(Some(false));
        };
        let contracts = sources.followed.members(project);
        let have_looked = self.memory.looked.get(&id).is_some_and(|it| Arc::ptr_eq(it, &contracts));
        let notes = StoredNotes { rows: &*effects, subscription: id };
        let new = |after| match have_looked {
            true => Ok(None),
            false => next_new(notes.rows, id, &contracts, after),
        };
        let contract = look.go_on(&notes, (watched.contract, watched.after), new)?;
        let Some(contract) = contract else {
            drop(look);
            // Some may have become known meanwhile, behind which this look was already.
            if !have_looked && next_new(notes.rows, id, &contracts, None)?.is_none() {
                self.memory.looked.insert(id, contracts);
            }
            self.moment = Some(moment);
            watched.next_ledger();
            return Ok(Some(false));
        };
        if !are_recorded(sources.store, [&contract])? {
            return Ok(None);
        }
        let is_new = !LOOKED.has(notes.rows, &((Mark, id), contract))?;
        let of = (contract, watched.after);
        let seen = look.page(&notes, of, is_new, &mut self.memory.codes)?;
        seen.note(contract, id, effects)?;
        // One that is not a member yet may become one in a ledger that is stored already.
        let is_newest = sources.store.ends().latest == Some(ledger);
        if seen.after.is_none() && is_new && (seen.may_belong || is_newest) {
            LOOKED.put(effects, &((Mark, id), contract), &ledger)?;
        }
        (watched.contract, watched.after) = (Some(contract), seen.after);
        drop(look);
        self.moment = Some(moment);
        tell_all(seen.told.into_iter().filter(|_| is_told), effects, tell).map(Some)
    }

    pub(super) fn moment(&mut self, ledger: LedgerSeq) -> Result<Moment<'a>, StoreError> {
        match self.moment.take().filter(|moment| moment.ledger == ledger) {
            Some(moment) => Ok(moment),
            None => Moment::of(&self.sources, ledger),
        }
    }
}

/// Tells all of it. Returns whether `tell` broke.
fn tell_all(
    all: impl IntoIterator<Item = Told>,
    effects: &mut ConsumerEffects<'_>,
    tell: Tell<'_>,
) -> Result<bool, StoreError> {
    let mut is_stopped = false;
    for told in all {
        is_stopped |= tell(effects, told)?.is_break();
    }
    Ok(is_stopped)
}

/// Returns the keys of a contract that may be told of in a ledger, after one, at most a page: in the first ledger
/// of a subscription all.
pub(super) fn page(
    looking: &Looking<'_, '_>,
    rows: &dyn orrery_store::Rows,
    (contract, after): (ContractId, Option<KeyTag>),
) -> Result<Vec<KeyTag>, StoreError> {
    let moment = looking.moment;
    match moment.ledger == looking.first {
        true => moment.now().keys_after(&contract, after, PAGE),
        false => candidates(moment, rows, &contract, (looking.within, after)),
    }
}

/// Returns the keys of which the ledger changed something, and those that come near their end now.
fn candidates(
    moment: &Moment<'_>,
    rows: &dyn orrery_store::Rows,
    contract: &ContractId,
    (within, after): (u32, Option<KeyTag>),
) -> Result<Vec<KeyTag>, StoreError> {
    let is_later = |tag: &KeyTag| after.is_none_or(|after| *tag > after);
    let mut found = moment.now().changed_keys(contract)?;
    found.retain(is_later);
    let until = LedgerSeq(moment.ledger.0.saturating_add(within - 1));
    let from = Life { contract: *contract, until, tag: after.unwrap_or(KeyTag([0; KeyTag::LEN])) };
    let mut count = 0;
    LIVES.scan(rows, &(*contract, until), Some(&from), |life, ()| {
        if is_later(&life.tag) {
            found.push(life.tag);
            count += 1;
        }
        Ok(if count < PAGE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    found.sort_unstable();
    found.dedup();
    found.truncate(PAGE);
    Ok(found)
}

/// Notes the time to live of an entry.
fn put_life(
    moment: &Moment<'_>,
    effects: &mut ConsumerEffects<'_>,
    (contract, tag): Key,
) -> Result<(), StoreError> {
    match moment.now().given((contract, tag))? {
        Some(given) => LIVES.put(effects, &Life { contract, until: given.live_until, tag }, &()),
        None => Ok(()),
    }
}
