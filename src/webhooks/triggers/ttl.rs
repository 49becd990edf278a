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
use super::{Sources, Told};
use crate::rows::{LIVES, Life, in_subscriptions};
use crate::subscription::Subscription;
use crate::trigger::Trigger;
use orrery_contract_data::{CONSUMER as CONTRACT_DATA, CodeLives, Key, KeyTag, are_recorded};
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{ConsumerEffects, Mark, RowCodec, StoreError, Table};

/// Takes what is to be told. Breaks when no more fits the step.
pub(super) type Tell<'t> =
    &'t mut dyn FnMut(&mut ConsumerEffects<'_>, Told) -> Result<ControlFlow<()>, StoreError>;

/// Number of keys that are read at once.
const PAGE: usize = 64;

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
}

impl RowCodec for Watched {
    fn write(&self, to: &mut Vec<u8>) {
        (self.first, (self.at, self.to)).write(to);
        if let Some(tag) = self.after {
            tag.write(to);
        }
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (first, (at, to)) = RowCodec::read(bytes)?;
        let after = if bytes.is_empty() { None } else { Some(KeyTag::read(bytes)?) };
        Some(Self { first, at, to, after })
    }
}

impl Watched {
    fn next_ledger(&mut self) {
        self.at = LedgerSeq(self.at.0.saturating_add(1));
        self.after = None;
    }
}

/// What came of looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All ledgers were looked at.
    Done,
    /// There is more to look at.
    More,
    /// The index of contract data has not processed the next ledger.
    Behind,
}

/// Looks at ledgers for the subscriptions that are told of expiring entries.
pub(crate) struct TtlLooks<'a> {
    pub sources: Sources<'a>,
    /// When no more is to be begun.
    pub until: Instant,
    /// How long one subscription may take while others wait.
    pub most: Duration,
    pub lives: CodeLives,
    moment: Option<Moment<'a>>,
}

impl<'a> TtlLooks<'a> {
    pub fn new(sources: Sources<'a>, until: Instant, most: Duration, lives: CodeLives) -> Self {
        Self { sources, until, most, lives, moment: None }
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
                Watched { at: ledger, to: ledger, after: None, ..before }
            }
            Some(before) => Watched { to: ledger, ..before },
            None => Watched { first: ledger, at: ledger, to: ledger, after: None },
        };
        WATCHED.put(effects, &key, &watched)
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
            let is_stopped = self.look_on(subscription, &mut watched, effects, is_told, tell)?;
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
        watched: &mut Watched,
        effects: &mut ConsumerEffects<'_>,
        is_told: bool,
        tell: Tell<'_>,
    ) -> Result<bool, StoreError> {
        let Trigger::Ttl { within, entries, keys } = &subscription.definition.trigger else {
            watched.next_ledger();
            return Ok(false);
        };
        let Some(contract) = subscription.contracts.one() else {
            watched.next_ledger();
            return Ok(false);
        };
        if !is_told && !entries.data {
            watched.next_ledger();
            return Ok(false);
        }
        let moment = self.moment(watched.at)?;
        let sources = self.sources;
        let looking = Looking {
            sources: &sources,
            moment: &moment,
            subscription,
            within: *within,
            first: watched.first,
        };
        let mut found = Vec::new();
        if watched.after.is_none() && is_told {
            found = looking.vital(&contract, *entries, &mut self.lives)?;
        }
        let is_first = watched.at == watched.first;
        let page = match entries.data {
            true if is_first => moment.now().keys_after(&contract, watched.after, PAGE)?,
            true => candidates(&moment, effects, &contract, (*within, watched.after))?,
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
        let mut is_stopped = false;
        for told in found {
            is_stopped |= tell(effects, told)?.is_break();
        }
        Ok(is_stopped)
    }

    /// Looks at a ledger for a replay, and returns what a subscription is told in it; `None` when it has not
    /// looked at it by itself yet.
    pub fn replayed(
        &mut self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        rows: &dyn orrery_store::Rows,
    ) -> Result<Option<Vec<Told>>, StoreError> {
        let Some(watched) = WATCHED.get(rows, &(Mark, subscription.id))? else { return Ok(None) };
        let Trigger::Ttl { within, entries, keys } = &subscription.definition.trigger else {
            return Ok(Some(Vec::new()));
        };
        let Some(contract) = subscription.contracts.one() else { return Ok(Some(Vec::new())) };
        if ledger >= watched.at {
            return Ok(None);
        }
        if ledger < watched.first {
            return Ok(Some(Vec::new()));
        }
        let moment = self.moment(ledger)?;
        let sources = self.sources;
        let looking = Looking {
            sources: &sources,
            moment: &moment,
            subscription,
            within: *within,
            first: watched.first,
        };
        let mut found = looking.vital(&contract, *entries, &mut self.lives)?;
        let mut after = None;
        let mut is_left = entries.data;
        while is_left {
            let page = match ledger == watched.first {
                true => moment.now().keys_after(&contract, after, PAGE)?,
                false => candidates(&moment, rows, &contract, (*within, after))?,
            };
            for tag in &page {
                found.extend(looking.data((contract, *tag), keys)?);
            }
            after = page.last().copied();
            is_left = page.len() == PAGE;
        }
        self.moment = Some(moment);
        Ok(Some(found))
    }

    fn moment(&mut self, ledger: LedgerSeq) -> Result<Moment<'a>, StoreError> {
        match self.moment.take().filter(|moment| moment.ledger == ledger) {
            Some(moment) => Ok(moment),
            None => Moment::of(&self.sources, ledger),
        }
    }
}

/// Returns the keys of a contract that may be told of in a ledger, after one, at most a page: those of which the
/// ledger changed something, and those that come near their end now.
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
