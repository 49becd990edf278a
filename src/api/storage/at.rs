//! Lookups at the end of a ledger, and for which ledgers there are any.

use orrery_contract_data::{CONSUMER, Held, Key, Lookup};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};
use orrery_store::{ConsumerStatus, Needs, RowBounds, Store};

use super::super::allowance::Allowance;
use super::super::call::CurrentCall;
use super::super::{ApiError, Deps};
use super::error::StorageError;

/// Maximum size of the rows and transactions that a request reads, in bytes.
const MAX_READ: u64 = 256 << 20;

/// Lookups at the end of a ledger.
pub(super) struct At<'a> {
    pub lookup: Lookup<'a>,
    pub ledger: LedgerSeq,
    /// Consecutive ledgers around it for which there are lookups.
    answered: LedgerRange,
}

/// Since when an answer about a contract is of its kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Whether the list has all entries of the contract.
    pub complete: bool,
    /// The first ledger of which the answer is as complete; `None` when not even this ledger has all
    /// transactions of the contract.
    pub known_since: Option<LedgerSeq>,
}

impl<'a> At<'a> {
    /// Takes a snapshot for lookups at the end of a ledger, of the newest one by default.
    ///
    /// # Errors
    /// [`StorageError::LedgerNotStored`] when there are no lookups for it; errors of the store.
    pub fn open(
        deps: &'a Deps,
        call: &'a CurrentCall<'_>,
        ledger: Option<LedgerSeq>,
    ) -> Result<Self, ApiError> {
        let index = index(&deps.store)?;
        let Some(newest) = call.as_of else {
            return Err(StorageError::LedgerNotStored { ledger, nearest: None }.into());
        };
        let wanted = ledger.unwrap_or(newest);
        let place = index.place;
        let lookup = Lookup::new(&deps.store, wanted, bounds(call.allowance))?;
        // After the snapshot: what was removed from it is among this.
        let all = answered(&deps.store, newest)?;
        let Some(answered) = all.iter().find(|range| range.contains(wanted)).copied() else {
            return Err(
                StorageError::LedgerNotStored { ledger, nearest: nearest(&all, wanted) }.into()
            );
        };
        // Ledgers that were stored since the request arrived may not be in the rows yet.
        let earlier = LedgerRange { first: answered.first, last: wanted };
        if !deps.store.ledgers_after(place).within(earlier).is_empty() {
            return Err(ApiError::Busy { retry_after: 1 });
        }
        Ok(Self { lookup, ledger: wanted, answered })
    }

    /// Returns what a key held.
    ///
    /// # Errors
    /// [`ApiError::Busy`] when more would have to be read than a request may.
    pub fn held(&self, of: Key) -> Result<Held, ApiError> {
        let held = self.lookup.held(of)?;
        if self.lookup.is_cut() { Err(ApiError::Busy { retry_after: 1 }) } else { Ok(held) }
    }

    /// Returns the first of the ledgers around this one of which all changes of a contract are stored.
    pub fn first_known(&self, contract: &ContractId) -> Result<Option<LedgerSeq>, ApiError> {
        let range = self.lookup.range(contract)?;
        Ok(range.map(|range| range.first.max(self.answered.first)))
    }

    /// Returns since when the answer about a contract is of its kind.
    pub fn extent(&self, contract: &ContractId) -> Result<Extent, ApiError> {
        let Some(range) = self.lookup.range(contract)? else {
            return Ok(Extent { complete: false, known_since: None });
        };
        let first = range.first.max(self.answered.first);
        if self.lookup.begins_empty(range)? {
            return Ok(Extent { complete: true, known_since: Some(first) });
        }
        let created = self.lookup.created(contract, range)?.filter(|it| *it <= self.ledger);
        let checked = self.lookup.checked(contract, range)?;
        Ok(match created.into_iter().chain(checked).min() {
            Some(since) => Extent { complete: true, known_since: Some(since.max(first)) },
            None => Extent { complete: false, known_since: Some(first) },
        })
    }
}

/// Returns the state of the index.
///
/// # Errors
/// [`StorageError::Off`] when nothing is recorded.
pub(super) fn index(store: &Store) -> Result<ConsumerStatus, StorageError> {
    store.consumer(CONSUMER).ok_or(StorageError::Off)
}

/// Returns the limits of what one request reads of the index.
fn bounds<'a>(allowance: &'a Allowance<'_>) -> RowBounds<'a> {
    let rows = allowance.limits.scan_index_rows.get().into();
    RowBounds { rows, ..allowance.row_bounds(MAX_READ) }
}

/// Returns the ledgers up to the newest one of which there are lookups, ascending: stored ones of which
/// no transaction is removed, nor of a later one in the same range.
pub(super) fn answered(store: &Store, newest: LedgerSeq) -> Result<Vec<LedgerRange>, ApiError> {
    let ranges = store.status().ranges;
    let removed = store.removed(Needs::TRANSACTIONS)?;
    let kept = |range: LedgerRange| {
        let floor = removed.within(range).ranges().last().map(|removed| removed.last);
        let first = match floor {
            Some(floor) => floor.next()?,
            None => range.first,
        };
        let last = range.last.min(newest);
        (first <= last).then_some(LedgerRange { first, last })
    };
    Ok(ranges.into_iter().filter_map(kept).collect())
}

/// Returns those ledgers of which a contract's changes are all stored and processed, ascending.
pub(super) fn with_changes(store: &Store, newest: LedgerSeq) -> Result<LedgerSet, ApiError> {
    let index = index(store)?;
    let mut ledgers = LedgerSet::from(answered(store, newest)?);
    ledgers.remove_all(&index.lost);
    Ok(ledgers)
}

/// Returns the range that is the nearest to a ledger.
pub(super) fn nearest(ranges: &[LedgerRange], ledger: LedgerSeq) -> Option<LedgerRange> {
    let distance = |range: &&LedgerRange| {
        let below = range.first.0.saturating_sub(ledger.0);
        below.max(ledger.0.saturating_sub(range.last.0))
    };
    ranges.iter().min_by_key(distance).copied()
}
