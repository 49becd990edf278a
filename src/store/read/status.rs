//! What the store holds: its ranges and totals, and its ends.

use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq};

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
}

/// Newest and oldest ledger and newest event of the store: [`StoreStatus`] without the list of
/// ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreEnds {
    /// Newest stored ledger; `None` when there is none.
    pub latest: Option<LedgerSeq>,
    /// Oldest ledger whose events are stored; `None` when there is none.
    pub oldest: Option<LedgerSeq>,
    /// Events of ledgers below this one have been pruned, or are being pruned.
    pub events_from: LedgerSeq,
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
        let kept = self.ranges.iter().find(|range| range.last >= self.totals.events_from)?;
        Some(kept.first.max(self.totals.events_from))
    }
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
        }
    }

    /// Returns the newest and oldest ledger and the newest event of the store, without the list of
    /// ranges.
    pub fn ends(&self) -> StoreEnds {
        let coverage = self.coverage.read();
        let totals = *self.totals.read();
        let kept = coverage.ranges().find(|range| range.ledgers.last >= totals.events_from);
        StoreEnds {
            latest: coverage.latest(),
            oldest: kept.map(|range| range.ledgers.first.max(totals.events_from)),
            events_from: totals.events_from,
            latest_close_time: (totals.latest_close_time > 0).then_some(totals.latest_close_time),
            last_event_id: coverage.last_event(),
        }
    }
}
