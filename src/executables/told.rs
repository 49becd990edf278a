//! What a contract ran as events tell it, where transactions do not: they were removed, or never kept, before the
//! index had read them.
//!
//! Each change that a contract makes of its own executable has an event of the host. So what a contract ran holds
//! from one change to the next where each ledger in between was read by the index, or for its events; also across
//! ledgers of which only one of both was. What events do not say is when a contract was created: it was there from
//! its first event on, and nothing is known of what is before, unless a transaction says it.

use super::code_events::{CODE_EVENTS, EventRows};
use super::consumer::CONSUMER;
use super::held::{Side, Steady, answered, just_before};
use super::rows::Change;
use super::updates::Update;
use super::value::{Before, Executable, instance_key};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSet};
use orrery_store::{ConsumerView, Store, StoreError, TransactionPosition};

/// What is asked of an entry.
#[derive(Clone, Copy)]
pub(super) struct Asked<'k> {
    /// The contract to which it belongs.
    pub owner: &'k ContractId,
    /// Its XDR `LedgerKey`.
    pub key: &'k [u8],
    pub at: TransactionPosition,
    pub side: Side,
    /// Whether the entry counts as there.
    pub is_there: bool,
}

/// The changes around a position, as transactions say them.
pub(super) struct Around {
    pub last: Option<(TransactionPosition, Change)>,
    pub next: Option<(TransactionPosition, Change)>,
}

/// A change, with what it left or found, if it says that.
type Point = (TransactionPosition, Option<Executable>);

/// What is known of a contract around a position.
struct Known {
    last: Option<Point>,
    next: Option<Point>,
    /// The first transaction with an event of it.
    first: Option<TransactionPosition>,
    /// Whether there is a change of it before.
    has_changed: bool,
}

/// What is read to tell what a contract ran.
pub(super) struct Told<'l, 's> {
    pub store: &'s Store,
    /// The rows of the index, and the place in the feed up to which it has processed all ledgers.
    pub view: &'l ConsumerView<'s>,
    pub place: u64,
    pub events: &'l EventRows<'s>,
}

impl Told<'_, '_> {
    /// Returns what the instance of a contract held at one side of a transaction, by events and by what transactions
    /// say around it, and among which transactions it certainly did; `None` when they do not say it.
    pub fn held(
        &self,
        asked: Asked<'_>,
        around: &Around,
    ) -> Result<Option<(Executable, Option<Steady>)>, StoreError> {
        let Asked { owner, key, at, side, is_there } = asked;
        if instance_key(owner).as_deref() != Some(key) {
            return Ok(None);
        }
        let known = self.known_around(owner, at, around)?;
        let was_there = known.was_there(at, side);
        let here = self.counted(self.events.in_transaction(owner, at)?);
        if let Some(Update { before, after }) = here {
            let value = match side {
                Side::After => after,
                Side::Before => before.filter(|_| was_there || is_there),
            };
            return Ok(value.map(|value| (value, None)));
        }
        let Some((ledgers, value)) = self.held_around(asked, &known)? else { return Ok(None) };
        let after = known.last.map(|(at, _)| at).max(known.first.filter(|first| *first <= at));
        let before = known.next.map(|(at, _)| at);
        // Elsewhere it may not count as there.
        let steady = was_there.then_some(Steady { after, before, ledgers });
        Ok(Some((value, steady)))
    }

    /// Returns what a contract held between the changes around a position, and the ledgers for which that is known.
    fn held_around(
        &self,
        Asked { owner, key, at, side, is_there }: Asked<'_>,
        known: &Known,
    ) -> Result<Option<(LedgerRange, Executable)>, StoreError> {
        let covered = |first, last| self.covered(owner, LedgerRange { first, last });
        if let Some((changed, Some(value))) = &known.last
            && let Some(ledgers) = covered(changed.ledger, at.ledger)
        {
            return Ok(Some((ledgers, value.clone())));
        }
        if let Some((changed, Some(value))) = &known.next
            // The contract of an asset has events before it is there.
            && (is_there || known.was_there(at, side) && *value != Executable::Asset)
            && let Some(ledgers) = covered(at.ledger, changed.ledger)
        {
            return Ok(Some((ledgers, value.clone())));
        }
        let last = known.last.as_ref().map(|(changed, _)| *changed);
        let answered = answered(self.store, key, (at, last), covered)?;
        Ok(answered.and_then(|(ledgers, value)| Some((ledgers, value?))))
    }

    fn known_around(
        &self,
        contract: &ContractId,
        at: TransactionPosition,
        around: &Around,
    ) -> Result<Known, StoreError> {
        let told_last = self.counted(self.events.at_or_before(contract, just_before(at))?);
        let told_next = self.counted(self.events.after(contract, at)?);
        let first = self.counted(self.events.first_of(contract)?);
        let last = around.last.as_ref().map(|(at, change)| (*at, change.after.clone()));
        let next = around.next.as_ref().map(|(at, change)| match &change.before {
            Before::Held { executable, .. } => (*at, Some(executable.clone())),
            Before::Unknown | Before::Absent => (*at, None),
        });
        let is_held = last.as_ref().is_some_and(|(_, after)| after.is_some());
        let has_changed = told_last.is_some() || is_held;
        let told_last = told_last.map(|(at, update)| (at, update.after));
        let told_next = told_next.map(|(at, update)| (at, update.before));
        // Of the same transaction, either may say it.
        let both = |one: Point, other: Point| (one.0, one.1.or(other.1));
        let last = match (last, told_last) {
            (Some(one), Some(other)) if one.0 == other.0 => Some(both(one, other)),
            (one, other) => one.into_iter().chain(other).max_by_key(|(at, _)| *at),
        };
        let next = match (next, told_next) {
            (Some(one), Some(other)) if one.0 == other.0 => Some(both(one, other)),
            (one, other) => one.into_iter().chain(other).min_by_key(|(at, _)| *at),
        };
        Ok(Known { last, next, first, has_changed })
    }

    /// Counts a row that was read of what events say.
    fn counted<T>(&self, row: Option<T>) -> Option<T> {
        self.view.count(size_of::<T>());
        row
    }

    /// Returns these ledgers if none is missing, and each was read by the index or for its events.
    fn covered(&self, contract: &ContractId, ledgers: LedgerRange) -> Option<LedgerRange> {
        let store = self.store;
        if !store.has_stored_for(contract, ledgers) {
            return None;
        }
        let mut unread = store.unseen(CONSUMER, self.place, ledgers);
        if !unread.is_empty() {
            let mut with_events = LedgerSet::from(ledgers);
            with_events.remove_all(&store.unseen(CODE_EVENTS, self.events.place(), ledgers));
            unread.remove_all(&with_events);
        }
        unread.is_empty().then_some(ledgers)
    }
}

impl Known {
    /// Whether the contract was there at one side of a transaction, as far as events and changes before it say.
    fn was_there(&self, at: TransactionPosition, side: Side) -> bool {
        self.has_changed
            || self.first.is_some_and(|first| first < at || (first == at && side == Side::After))
    }
}
