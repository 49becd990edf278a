//! Queries for stored events and transactions, and their results. Depends on neither column
//! families nor keys.

use std::cell::Cell;

use orrery_ledger::decode::{EventType, Placement};
use orrery_ledger::domain::{CloseTime, ContractId, EventId, LedgerRange, LedgerSeq, Page};

use super::Totals;

/// Selects events. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only events of these ledgers.
    pub ledgers: Option<LedgerRange>,
    /// Only events of these contracts; all contracts when empty.
    pub contracts: Vec<ContractId>,
    /// Only events whose topics satisfy this.
    pub topics: TopicFilter,
    /// Part of the result to return.
    pub page: Page<EventId>,
}

/// Conditions on an event's topics. A value is the XDR of an `ScVal`; the default matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicFilter {
    /// Values that may stand at any position; no condition when empty.
    pub anywhere: Vec<Vec<u8>>,
    /// Whether all of `anywhere` must occur; otherwise any one suffices.
    pub all: bool,
    /// Required values of the first four topics; `None` admits any.
    pub positional: [Option<Vec<u8>>; 4],
}

impl TopicFilter {
    /// Returns whether no condition is set.
    pub fn is_empty(&self) -> bool {
        self.anywhere.is_empty() && self.positional.iter().all(Option::is_none)
    }

    /// Returns whether an event with these topics satisfies every condition.
    pub fn matches(&self, topics: &[&[u8]]) -> bool {
        let occurs = |value: &Vec<u8>| topics.contains(&value.as_slice());
        let anywhere = self.anywhere.is_empty()
            || if self.all {
                self.anywhere.iter().all(occurs)
            } else {
                self.anywhere.iter().any(occurs)
            };
        anywhere
            && self
                .positional
                .iter()
                .enumerate()
                .all(|(i, value)| value.as_deref().is_none_or(|v| topics.get(i) == Some(&v)))
    }
}

/// A stored event, borrowed from its decompressed block while it is visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRecord<'a> {
    /// Row id.
    pub id: EventId,
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// When that ledger closed.
    pub closed_at: CloseTime,
    /// Hash of its transaction (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// 1-based position of its transaction in apply order.
    pub application_order: u32,
    /// Where in its transaction it was emitted.
    pub placement: Placement,
    /// Index in its transaction of the first event of its operation. `None` for fee events and when
    /// it does not follow from the events that were read together.
    pub operation_begins: Option<u32>,
    /// Emitting contract, if any.
    pub contract: Option<&'a [u8; 32]>,
    /// Kind of event.
    pub event_type: EventType,
    /// Topics, each the XDR of an `ScVal`.
    pub topics: &'a [&'a [u8]],
    /// Data, the XDR of an `ScVal`.
    pub data: &'a [u8],
}

impl EventRecord<'_> {
    /// Returns the 0-based index of its operation; `None` for fee events.
    pub fn op_index(&self) -> Option<u32> {
        match self.placement {
            Placement::Operation { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// Returns its 0-based index in its transaction; `None` for fee events.
    pub fn event_index(&self) -> Option<u32> {
        match self.placement {
            Placement::Operation { event_index, .. } => Some(event_index),
            _ => None,
        }
    }
}

/// Selects smart-contract transactions. The result is ordered by (ledger, application order).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionQuery {
    /// Only transactions of these ledgers.
    pub ledgers: Option<LedgerRange>,
    /// Only transactions that touch one of these contracts; all when empty.
    pub contracts: Vec<ContractId>,
    /// Part of the result to return.
    pub page: Page<TransactionPosition>,
}

/// Position of a transaction on the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionPosition {
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// Its 1-based position in apply order.
    pub application_order: u32,
}

/// A stored smart-contract transaction, borrowed while it is visited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRecord<'a> {
    /// Hash (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<&'a [u8; 32]>,
    /// Its ledger and application order.
    pub position: TransactionPosition,
    /// When its ledger closed.
    pub closed_at: CloseTime,
    /// Whether it succeeded.
    pub successful: bool,
    /// Source account of the inner transaction as a strkey, `G…` or `M…`.
    pub source_account: &'a str,
    /// Account that paid the fee, as a strkey.
    pub fee_account: &'a str,
    /// Fee charged, stroops.
    pub fee_charged: i64,
    /// Contracts that it touched.
    pub contracts: &'a [ContractId],
    /// Number of its events that are stored.
    pub event_count: u32,
    /// XDR `TransactionEnvelope`.
    pub envelope: &'a [u8],
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
}

/// Work that a query took, to verify that it is proportional to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryCost {
    /// Number of index rows read.
    pub index_rows: u64,
    /// Number of event blocks or transaction records read.
    pub records: u64,
}

/// Limits of a query's cost, at which its walk is interrupted.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// Maximum number of event blocks or transaction records read.
    pub records: u64,
    /// Maximum number of index rows read.
    pub index_rows: u64,
    /// Returns whether the walk must end now, because its time is over or the client has gone.
    /// Called once every [`Bounds::RECORDS_BETWEEN_CHECKS`] records; 64 index rows count as one
    /// record here.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl Bounds<'_> {
    /// No limits: for queries of the service itself.
    pub const NONE: Bounds<'static> =
        Bounds { records: u64::MAX, index_rows: u64::MAX, interrupted: &|| false };

    /// Number of records between two calls of [`Bounds::interrupted`].
    pub const RECORDS_BETWEEN_CHECKS: u64 = 64;
}

/// Result of a query with bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOutcome<C> {
    /// Work that it took.
    pub cost: QueryCost,
    /// Where it was interrupted; `None` when the page is complete.
    pub interrupted: Option<Interrupted<C>>,
}

impl<C> WalkOutcome<C> {
    /// Converts the cursor with `cursor`.
    pub fn map<D>(self, cursor: impl FnOnce(C) -> D) -> WalkOutcome<D> {
        let Self { cost, interrupted } = self;
        let interrupted =
            interrupted.map(|at| Interrupted { cursor: cursor(at.cursor), skipped: at.skipped });
        WalkOutcome { cost, interrupted }
    }
}

/// Position at which a walk was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted<C> {
    /// Cursor with which the same query continues. Every row before it was visited, skipped because
    /// of `offset`, or does not match.
    pub cursor: C,
    /// Rows of `offset` that were skipped.
    pub skipped: u64,
}

/// Counts the cost of a walk against its bounds.
pub(super) struct Meter<'a> {
    bounds: Bounds<'a>,
    records: Cell<u64>,
    index_rows: Cell<u64>,
    work_at_last_check: Cell<u64>,
}

impl<'a> Meter<'a> {
    /// Number of index rows that cost about as much as one record.
    const ROWS_PER_RECORD: u64 = 64;

    pub(super) fn new(bounds: Bounds<'a>) -> Self {
        Self {
            bounds,
            records: Cell::new(0),
            index_rows: Cell::new(0),
            work_at_last_check: Cell::new(0),
        }
    }

    pub(super) fn record(&self) {
        self.records.set(self.records.get() + 1);
    }

    pub(super) fn index_row(&self) {
        self.index_rows.set(self.index_rows.get() + 1);
    }

    pub(super) fn cost(&self) -> QueryCost {
        QueryCost { index_rows: self.index_rows.get(), records: self.records.get() }
    }

    /// Returns whether the walk must end because its bounds are reached or it was interrupted.
    pub(super) fn is_over_budget(&self) -> bool {
        let (records, rows) = (self.records.get(), self.index_rows.get());
        if records >= self.bounds.records || rows >= self.bounds.index_rows {
            return true;
        }
        let work = records + rows / Self::ROWS_PER_RECORD;
        if work - self.work_at_last_check.get() < Bounds::RECORDS_BETWEEN_CHECKS {
            return false;
        }
        self.work_at_last_check.set(work);
        (self.bounds.interrupted)()
    }
}

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
