//! What an entry held at a transaction, as one change or answer says it.

use super::rows::Change;
use super::value::{self, Before, Executable};
use orrery_ledger::domain::{LedgerRange, LedgerSeq};
use orrery_store::{KnownEntry, Store, StoreError, TransactionPosition};

/// The side of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Just before it.
    Before,
    /// Just after it.
    After,
}

/// What an entry held between two changes.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    /// Where it held this.
    pub steady: Steady,
    /// The value; `None` when there was no entry.
    pub value: Option<Executable>,
}

/// Transactions among which an entry did not change.
#[derive(Debug, Clone, Copy)]
pub struct Steady {
    /// The changes around; what holds between them holds at no other side of them.
    pub(super) after: Option<TransactionPosition>,
    pub(super) before: Option<TransactionPosition>,
    /// Ledgers for which it is known.
    pub(super) ledgers: LedgerRange,
}

impl Steady {
    /// Whether a transaction is one of these.
    pub fn has(&self, at: TransactionPosition) -> bool {
        self.ledgers.contains(at.ledger)
            && self.after.is_none_or(|after| after < at)
            && self.before.is_none_or(|before| at < before)
    }
}

/// The ledgers for which something is known, and what an entry held there; `None` when there was no entry.
pub(super) type Known = Option<(LedgerRange, Option<Executable>)>;

/// Returns the position that precedes all others that are before this one.
pub(super) fn just_before(at: TransactionPosition) -> TransactionPosition {
    match at.application_order.checked_sub(1) {
        Some(application_order) => TransactionPosition { application_order, ..at },
        None => {
            let ledger = at.ledger.previous().unwrap_or(at.ledger);
            TransactionPosition { ledger, application_order: u32::MAX }
        }
    }
}

/// Returns what the last change before a position has left, if it still held.
pub(super) fn from_last(
    last: Option<&(TransactionPosition, Change)>,
    at: TransactionPosition,
    is_complete: impl Fn(LedgerSeq, LedgerSeq) -> Option<LedgerRange>,
) -> Known {
    let (changed, change) = last?;
    Some((is_complete(changed.ledger, at.ledger)?, change.after.clone()))
}

/// Returns what the first change after a position has found, if it held already.
pub(super) fn from_next(
    next: Option<&(TransactionPosition, Change)>,
    at: TransactionPosition,
    is_complete: impl Fn(LedgerSeq, LedgerSeq) -> Option<LedgerRange>,
) -> Known {
    let (changed, change) = next?;
    let (value, since) = match &change.before {
        Before::Unknown => return None,
        Before::Absent => (None, None),
        Before::Held { executable, since } => (Some(executable.clone()), Some(*since)),
    };
    let since = since.map(LedgerSeq).filter(|since| *since < at.ledger);
    let ledgers = match since {
        Some(since) => LedgerRange { first: since.next()?, last: changed.ledger },
        None => is_complete(at.ledger, changed.ledger)?,
    };
    Some((ledgers, value))
}

/// Returns what other servers' answers say about an entry in a ledger: one for an earlier ledger
/// still holds if no ledger is missing since, and the last change before `at` came before it.
pub(super) fn answered(
    store: &Store,
    ledger_key: &[u8],
    (at, last): (TransactionPosition, Option<TransactionPosition>),
    is_complete: impl Fn(LedgerSeq, LedgerSeq) -> Option<LedgerRange>,
) -> Result<Known, StoreError> {
    let answers = store.known_entries(ledger_key)?;
    Ok(answers.into_iter().rev().find_map(|KnownEntry { from, to, entry, .. }| {
        // In the ledger `from` itself, the entry was changed by one of the transactions.
        let since = from.next()?;
        let holds = since <= at.ledger
            && (at.ledger <= to
                || last.is_none_or(|changed| changed.ledger <= to)
                    && is_complete(to, at.ledger).is_some());
        let held = holds.then_some(entry?)?;
        let held = value::entry(&held).as_ref().and_then(Executable::in_entry)?;
        Some((LedgerRange { first: since, last: to.max(at.ledger) }, Some(held)))
    }))
}
