//! Extracts the changes of each ledger entry, step by step, from the metadata of one transaction or
//! of a whole ledger. Does not depend on the store; bytes of entries are shared, not decoded.

use std::collections::HashMap;
use std::rc::Rc;

use super::StateError;
use orrery_ledger::decode::{ChangeKind, EntryChange, LedgerChanges, TransactionChanges};

/// A moment within a ledger. Moments sort in the order in which a ledger is closed: fees of all
/// transactions, their application, refunds of all (from protocol 23), upgrades.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    stage: Stage,
    order: u32,
    part: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Fees,
    /// Transactions that are applied one after the other.
    Apply,
    /// The changes that precede the operations of transactions applied in parallel, for all of
    /// them.
    BeforeParallel,
    /// Transactions applied in parallel. Transactions that touch the same entries are applied one
    /// after the other, in apply order.
    Parallel,
    Refunds,
    Upgrades,
}

/// Assigns a [`Moment`] to each part of a transaction in a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Clock {
    /// Application order of the first transaction that is applied in parallel, if any: from
    /// protocol 23 on (CAP-63) the network first takes the sequence numbers of all smart-contract
    /// transactions, then runs them.
    pub parallel_from: Option<u32>,
}

impl Clock {
    /// The clock of a single transaction, whose parts follow one another however others are
    /// applied.
    pub const ALONE: Self = Self { parallel_from: None };

    fn fee(order: u32) -> Moment {
        Moment { stage: Stage::Fees, order, part: 0 }
    }

    fn refund(order: u32) -> Moment {
        Moment { stage: Stage::Refunds, order, part: 0 }
    }

    fn upgrades() -> Moment {
        Moment { stage: Stage::Upgrades, order: 0, part: 0 }
    }

    /// Returns the moment of the changes that precede a transaction's operations: sequence numbers,
    /// used-up signers.
    fn before(self, order: u32) -> Moment {
        let stage = if self.is_parallel(order) { Stage::BeforeParallel } else { Stage::Apply };
        Moment { stage, order, part: 0 }
    }

    /// Returns the moment of a transaction's operations.
    pub fn operations(self, order: u32) -> Moment {
        let stage = if self.is_parallel(order) { Stage::Parallel } else { Stage::Apply };
        Moment { stage, order, part: 1 }
    }

    fn after(self, order: u32) -> Moment {
        Moment { part: 2, ..self.operations(order) }
    }

    /// Converts a moment of a transaction that was examined [`ALONE`](Self::ALONE) to its moment
    /// among the other transactions of its ledger.
    fn among_others(self, alone: Moment, order: u32) -> Moment {
        match alone.part {
            0 => self.before(order),
            part => Moment { part, ..self.operations(order) },
        }
    }

    /// Returns the clock of a ledger whose changes are completely known.
    pub fn of_ledger(ledger: &LedgerChanges<'_>) -> Self {
        // Smart-contract transactions come last. The metadata of one that failed before it could
        // run lacks the smart-contract part, but it has no operations to which too early a moment
        // could be assigned.
        let first = ledger.transactions.iter().position(|one| one.smart_contract);
        let first = first.and_then(|index| u32::try_from(index + 1).ok());
        Self { parallel_from: first.filter(|_| ledger.version >= 2) }
    }

    /// Whether a transaction is applied in parallel with others.
    pub fn is_parallel(self, order: u32) -> bool {
        self.parallel_from.is_some_and(|first| first <= order)
    }
}

/// XDR of a `LedgerEntry`.
pub(super) type EntryXdr = Rc<[u8]>;

/// The value of an entry before a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueBefore {
    /// The metadata does not state the value.
    Unknown,
    /// The entry did not exist.
    Absent,
    /// The entry had this value.
    Present(EntryXdr),
    /// The entry had this value but was archived or past its TTL, and was restored before any other
    /// change.
    Restored(EntryXdr),
}

/// All changes of an entry at one moment, combined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub at: Moment,
    /// The entry before the step.
    pub before: ValueBefore,
    /// The entry after the step; `None` when it no longer exists.
    pub after: Option<EntryXdr>,
}

/// Steps of one entry, in the order in which they happened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EntrySteps(Vec<Step>);

/// Steps of many entries, keyed by XDR `LedgerKey`.
#[derive(Debug, Default)]
pub(super) struct Steps {
    of: HashMap<Vec<u8>, EntrySteps>,
}

/// A source of the steps of an entry.
pub(super) trait StepsByKey {
    /// Returns the steps of the entry under an XDR `LedgerKey`.
    ///
    /// # Errors
    /// Fails when the steps have to be read from the store and cannot be.
    fn steps_of_entry(&self, ledger_key: &[u8]) -> Result<EntrySteps, StateError>;
}

impl StepsByKey for Steps {
    fn steps_of_entry(&self, ledger_key: &[u8]) -> Result<EntrySteps, StateError> {
        Ok(self.of(ledger_key).clone())
    }
}

impl EntrySteps {
    /// Returns the step at a moment.
    pub fn at(&self, moment: Moment) -> Option<&Step> {
        self.0.iter().find(|step| step.at == moment)
    }

    /// Returns the last step before a moment.
    pub fn last_before(&self, moment: Moment) -> Option<&Step> {
        self.0.iter().rev().find(|step| step.at < moment)
    }

    /// Returns the first step after a moment.
    pub fn first_after(&self, moment: Moment) -> Option<&Step> {
        self.0.iter().find(|step| step.at > moment)
    }

    /// Returns the first step.
    pub fn first(&self) -> Option<&Step> {
        self.0.first()
    }

    /// Returns the last step.
    pub fn last(&self) -> Option<&Step> {
        self.0.last()
    }

    /// Converts the steps of a transaction that was examined [`ALONE`](Clock::ALONE) to moments
    /// among the other transactions of its ledger.
    pub fn of_order(&self, clock: Clock, order: u32) -> Self {
        let among = |step: &Step| Step { at: clock.among_others(step.at, order), ..step.clone() };
        Self(self.0.iter().map(among).collect())
    }

    /// Sorts the steps by moment: steps of transactions applied in parallel are added in another
    /// order.
    fn sort(&mut self) {
        self.0.sort_by_key(|step| step.at);
    }
}

impl Steps {
    /// Adds the changes of one transaction of a ledger, with its application order.
    pub fn add_transaction(&mut self, clock: Clock, order: u32, changes: &TransactionChanges<'_>) {
        for (at, changes) in [
            (clock.before(order), &changes.before),
            (clock.operations(order), &changes.operations),
            (clock.after(order), &changes.after),
        ] {
            changes.iter().for_each(|change| self.add_change(at, change));
        }
    }

    /// Sorts the steps of every entry. Call it after all transactions are added.
    pub fn sort(&mut self) {
        self.of.values_mut().for_each(EntrySteps::sort);
    }

    /// Returns the changes of a whole ledger.
    pub fn of_ledger(ledger: &LedgerChanges<'_>) -> Self {
        let clock = Clock::of_ledger(ledger);
        let mut steps = Self::default();
        let mut add = |at, changes: &[EntryChange<'_>]| {
            changes.iter().for_each(|change| steps.add_change(at, change));
        };
        for (order, changes) in (1..).zip(&ledger.fees) {
            add(Clock::fee(order), changes);
        }
        for (order, changes) in (1..).zip(&ledger.transactions) {
            add(clock.before(order), &changes.before);
            add(clock.operations(order), &changes.operations);
            add(clock.after(order), &changes.after);
        }
        for (order, changes) in (1..).zip(&ledger.refunds) {
            add(Clock::refund(order), changes);
        }
        add(Clock::upgrades(), &ledger.upgrades);
        steps.sort();
        steps
    }

    fn add_change(&mut self, at: Moment, change: &EntryChange<'_>) {
        let entry = change.entry.map(EntryXdr::from);
        let steps = &mut self.of.entry(change.key.to_ledger_key()).or_default().0;
        if let Some(last) = steps.last_mut().filter(|last| last.at == at) {
            last.after = entry;
            return;
        }
        let before = match (change.kind, &entry) {
            (ChangeKind::Created, _) => ValueBefore::Absent,
            (ChangeKind::State, Some(entry)) => ValueBefore::Present(Rc::clone(entry)),
            (ChangeKind::Restored, Some(entry)) => ValueBefore::Restored(Rc::clone(entry)),
            _ => ValueBefore::Unknown,
        };
        steps.push(Step { at, before, after: entry });
    }

    /// Returns the steps of one entry.
    pub fn of(&self, ledger_key: &[u8]) -> &EntrySteps {
        self.of.get(ledger_key).unwrap_or(const { &EntrySteps(Vec::new()) })
    }
}

/// Returns the ledger in which an entry was last modified: the first field of its XDR.
pub(super) fn last_modified(entry: &[u8]) -> Option<u32> {
    entry.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Returns `liveUntilLedgerSeq` of a `LedgerEntry` of kind TTL: the field after the key hash.
pub(super) fn live_until(ttl: &[u8]) -> Option<u32> {
    const BEFORE: usize = 4 + 4 + 32;
    ttl.get(BEFORE..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::decode::{EntryKey, EntryKind};
    use stellar_xdr::{Hash, LedgerEntry, LedgerEntryData, Limits, TtlEntry, WriteXdr};

    const ONE_BY_ONE: Clock = Clock::ALONE;

    fn change<'a>(kind: ChangeKind, entry: &'a [u8]) -> EntryChange<'a> {
        let key = EntryKey { kind: EntryKind::Account, body: b"body" };
        EntryChange { kind, key, entry: Some(entry).filter(|_| kind != ChangeKind::Removed) }
    }

    #[test]
    fn changes_at_the_same_moment_form_one_step() {
        use ChangeKind::{Created, Removed, Restored, State, Updated};

        let mut steps = Steps::default();
        let transaction = TransactionChanges {
            before: vec![change(State, b"a"), change(Updated, b"b")],
            operations: vec![change(State, b"b"), change(Removed, b"")],
            after: vec![change(Created, b"c")],
            ..Default::default()
        };
        steps.add_transaction(ONE_BY_ONE, 3, &transaction);
        let again = TransactionChanges {
            operations: vec![change(Restored, b"d"), change(Updated, b"e")],
            ..Default::default()
        };
        steps.add_transaction(ONE_BY_ONE, 5, &again);
        let key = change(State, b"").key.to_ledger_key();
        let moment = |order| ONE_BY_ONE.operations(order);
        let step = steps.of(&key).at(moment(3)).unwrap();
        assert_eq!((&step.before, &step.after), (&ValueBefore::Present(b"b"[..].into()), &None));
        let before = steps.of(&key).last_before(moment(3)).unwrap();
        assert_eq!(before.after, Some(b"b"[..].into()));
        assert_eq!(steps.of(&key).last_before(moment(4)).unwrap().after, Some(b"c"[..].into()));
        let after = steps.of(&key).first_after(moment(4)).unwrap();
        assert_eq!(
            (&after.before, &after.after),
            (&ValueBefore::Restored(b"d"[..].into()), &Some(b"e"[..].into()))
        );
        assert_eq!(steps.of(&key).first().unwrap().before, ValueBefore::Present(b"a"[..].into()));
        assert_eq!(steps.of(&key).last().unwrap().at, moment(5));
        assert_eq!(steps.of(b"other").at(moment(3)), None);
        let without_state =
            TransactionChanges { after: vec![change(Updated, b"x")], ..Default::default() };
        steps.add_transaction(ONE_BY_ONE, 6, &without_state);
        assert_eq!(steps.of(&key).last().unwrap().before, ValueBefore::Unknown);
    }

    #[test]
    fn moments_are_ordered_as_the_ledger_was_closed() {
        let parallel = Clock { parallel_from: Some(2) };
        let order = [
            Clock::fee(1),
            Clock::fee(9),
            parallel.before(1),
            parallel.operations(1),
            parallel.after(1),
            parallel.before(2),
            parallel.before(3),
            parallel.operations(2),
            parallel.after(2),
            parallel.operations(3),
            Clock::refund(1),
            Clock::upgrades(),
        ];
        assert!(order.is_sorted());
        let one_by_one = [ONE_BY_ONE.operations(2), ONE_BY_ONE.before(3), ONE_BY_ONE.operations(3)];
        assert!(one_by_one.is_sorted());
    }

    #[test]
    fn last_modified_and_ttl_are_read_from_entry_xdr() {
        let ttl = TtlEntry { key_hash: Hash([7; 32]), live_until_ledger_seq: 99 };
        let entry = LedgerEntry {
            last_modified_ledger_seq: 12,
            data: LedgerEntryData::Ttl(ttl),
            ext: Default::default(),
        };
        let xdr = entry.to_xdr(Limits::none()).unwrap();
        assert_eq!((last_modified(&xdr), live_until(&xdr)), (Some(12), Some(99)));
        assert_eq!((last_modified(&xdr[..3]), live_until(&xdr[..42])), (None, None));
    }
}
