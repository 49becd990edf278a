//! What the store holds: its ranges and totals, and its ends.

use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, LedgerSet};

use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::{LedgerCounts, LedgerRow};
use crate::state::consumers::spec::Needs;
use crate::state::removed::{Removed, removed_at};
use crate::state::store::Store;
use crate::state::totals::Totals;

/// Summary of the store, kept in memory, as of the last committed ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStatus {
    /// Covered ranges in ascending order; no two are adjacent.
    pub ranges: Vec<LedgerRange>,
    /// Close time of the newest ledger, UNIX seconds; `None` before the first.
    pub latest_close_time: Option<u64>,
    /// Newest row id that was assigned; 0 when there is none.
    pub last_event_id: EventId,
    /// Counts of what is stored.
    pub totals: Totals,
    /// Ledgers whose records are no longer stored. Updated just after the removal: a reader that has
    /// to know whether what it read was complete asks [`Store::removed`].
    pub removed: Removed,
}

/// Newest and oldest ledger and newest event of the store: [`StoreStatus`] without the list of
/// ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreEnds {
    /// Newest stored ledger; `None` when there is none.
    pub latest: Option<LedgerSeq>,
    /// Oldest ledger whose events are stored; `None` when there is none.
    pub oldest: Option<LedgerSeq>,
    /// Close time of the newest ledger, UNIX seconds; `None` before the first.
    pub latest_close_time: Option<u64>,
    /// Newest row id that was assigned; 0 when there is none.
    pub last_event_id: EventId,
}

impl StoreStatus {
    /// Returns the newest stored ledger.
    pub fn latest(&self) -> Option<LedgerSeq> {
        self.ranges.last().map(|range| range.last)
    }

    /// Returns the oldest ledger whose events are stored.
    pub fn oldest(&self) -> Option<LedgerSeq> {
        self.ranges.iter().find_map(|range| first_outside(*range, &self.removed.events))
    }

    /// Returns the stored ledgers of which everything in `needs` is stored.
    pub fn ledgers_with(&self, needs: Needs) -> LedgerSet {
        let mut ledgers: LedgerSet = self.ranges.iter().copied().collect();
        ledgers.remove_all(&self.removed.of(needs));
        ledgers
    }
}

/// Returns the first ledger of a range that is not in `removed`.
fn first_outside(range: LedgerRange, removed: &LedgerSet) -> Option<LedgerSeq> {
    let at = removed.ranges().partition_point(|removed| removed.last < range.first);
    let covering = removed.ranges().get(at).filter(|removed| removed.contains(range.first));
    // Ranges of a set do not touch, so the ledger after one is in no other.
    let first = covering.map_or(Some(range.first), |removed| removed.last.next());
    first.filter(|first| *first <= range.last)
}

impl Store {
    /// Returns what the store holds.
    pub fn status(&self) -> StoreStatus {
        let coverage = self.coverage.read();
        let totals = *self.totals.read();
        StoreStatus {
            ranges: coverage.ranges().map(|range| range.ledgers).collect(),
            latest_close_time: (totals.latest_close_time > 0).then_some(totals.latest_close_time),
            last_event_id: coverage.last_event(),
            totals,
            removed: self.removed.read().clone(),
        }
    }

    /// Returns the newest and oldest ledger and the newest event of the store, without the list of
    /// ranges.
    pub fn ends(&self) -> StoreEnds {
        let coverage = self.coverage.read();
        let totals = *self.totals.read();
        let removed = self.removed.read();
        let mut ranges = coverage.ranges().map(|range| range.ledgers);
        StoreEnds {
            latest: coverage.latest(),
            oldest: ranges.find_map(|range| first_outside(range, &removed.events)),
            latest_close_time: (totals.latest_close_time > 0).then_some(totals.latest_close_time),
            last_event_id: coverage.last_event(),
        }
    }

    /// Returns whether retention has removed events or transactions of a stored ledger that had as
    /// many as `counts` says.
    pub fn lacks_records(&self, ledger: LedgerSeq, counts: &LedgerCounts) -> bool {
        let removed = self.removed.read();
        counts.events() > 0 && removed.events.contains(ledger)
            || counts.stored_transactions > 0 && removed.transactions.contains(ledger)
    }

    /// Returns the number of ledgers of a range that are stored without some of their events or
    /// transactions, because retention has removed them.
    pub fn ledgers_without_records(&self, ledgers: LedgerRange) -> Result<u64, StoreError> {
        let snapshot = self.database.snapshot();
        let removed = removed_at(&snapshot, Needs::RECORDS)?.within(ledgers);
        let mut rows = snapshot.rows(Family::Ledgers)?;
        let mut without = 0;
        for range in removed.ranges() {
            rows.seek(LedgerKey(range.first).encode());
            while let Some((key, row)) = rows.item() {
                let ledger = LedgerKey::decode(key).ok_or(Malformed);
                let ledger = ledger.map_err(corrupt(Family::Ledgers, key))?.0;
                if !range.contains(ledger) {
                    break;
                }
                let row = LedgerRow::decode(row).map_err(corrupt(Family::Ledgers, key))?;
                without += u64::from(self.lacks_records(ledger, &row.counts));
                rows.next();
            }
            rows.status()?;
        }
        Ok(without)
    }
}
