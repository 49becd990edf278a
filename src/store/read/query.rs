//! Queries for stored events and transactions, the bounds of their cost, and the measure of it.
//! Depends on neither column families nor keys.

use std::cell::Cell;

use orrery_ledger::domain::{ContractId, EventId, LedgerRange, Page};

use crate::encoding::records::TransactionPosition;

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

impl EventQuery {
    /// Returns the query for all events of these ledgers, oldest first.
    pub fn of_ledgers(ledgers: LedgerRange) -> Self {
        let (contracts, topics) = (Vec::new(), TopicFilter::default());
        Self { ledgers: Some(ledgers), contracts, topics, page: Page::all() }
    }
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
    /// XDR of an `ScVal::Address` that must stand at some position.
    pub address: Option<Vec<u8>>,
}

impl TopicFilter {
    /// Returns whether no condition is set.
    pub fn is_empty(&self) -> bool {
        self.anywhere.is_empty()
            && self.positional.iter().all(Option::is_none)
            && self.address.is_none()
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
            && self.address.as_ref().is_none_or(occurs)
            && self
                .positional
                .iter()
                .enumerate()
                .all(|(i, value)| value.as_deref().is_none_or(|v| topics.get(i) == Some(&v)))
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
pub struct WalkOutcome<C, B = ()> {
    /// Work that it took.
    pub cost: QueryCost,
    /// What the visitor broke the walk off with.
    pub broken_off: Option<B>,
    /// Where it was interrupted; `None` when the page is complete.
    pub interrupted: Option<Interrupted<C>>,
}

impl<C, B> WalkOutcome<C, B> {
    /// Converts the cursor with `cursor`.
    pub fn map<D>(self, cursor: impl FnOnce(C) -> D) -> WalkOutcome<D, B> {
        let interrupted = self
            .interrupted
            .map(|at| Interrupted { cursor: cursor(at.cursor), skipped: at.skipped });
        WalkOutcome { cost: self.cost, broken_off: self.broken_off, interrupted }
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
pub(crate) struct Meter<'a> {
    bounds: Bounds<'a>,
    records: Cell<u64>,
    index_rows: Cell<u64>,
    work_at_last_check: Cell<u64>,
}

impl<'a> Meter<'a> {
    /// Number of index rows that cost about as much as one record.
    const ROWS_PER_RECORD: u64 = 64;

    pub(crate) fn new(bounds: Bounds<'a>) -> Self {
        Self {
            bounds,
            records: Cell::new(0),
            index_rows: Cell::new(0),
            work_at_last_check: Cell::new(0),
        }
    }

    pub(crate) fn record(&self) {
        self.records.set(self.records.get() + 1);
    }

    pub(crate) fn index_row(&self) {
        self.index_rows.set(self.index_rows.get() + 1);
    }

    pub(crate) fn cost(&self) -> QueryCost {
        QueryCost { index_rows: self.index_rows.get(), records: self.records.get() }
    }

    /// Returns whether the walk must end because its bounds are reached or it was interrupted.
    pub(crate) fn is_over_budget(&self) -> bool {
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
