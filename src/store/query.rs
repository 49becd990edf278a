//! The questions that others may ask of stored events and transactions, and what they get back.
//! Knows no families and no keys.

use std::cell::Cell;

use super::Totals;
use crate::decode::{EventType, Placement};
use crate::domain::{CloseTime, ContractId, EventId, LedgerRange, LedgerSeq, Page};

/// Which events are wanted. Every condition that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Only events of these ledgers.
    pub ledgers: Option<LedgerRange>,
    /// Only events of these contracts; all contracts when empty.
    pub contracts: Vec<ContractId>,
    /// Only events whose topics satisfy this.
    pub topics: TopicFilter,
    /// Which part of the answer.
    pub page: Page<EventId>,
}

/// Conditions on an event's topics. A value is the XDR of an `ScVal`; the default matches all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicFilter {
    /// Values that may stand at any position; no condition when empty.
    pub anywhere: Vec<Vec<u8>>,
    /// Whether all of `anywhere` must occur, or any one suffices.
    pub all: bool,
    /// Values for the first four topics.
    pub positional: [Option<Vec<u8>>; 4],
}

impl TopicFilter {
    /// Whether no condition is set.
    pub fn is_empty(&self) -> bool {
        self.anywhere.is_empty() && self.positional.iter().all(Option::is_none)
    }

    /// Whether an event with these topics satisfies every condition.
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

/// A stored event, borrowed from the store's block for the time of the visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRecord<'a> {
    /// Row id.
    pub id: EventId,
    /// Ledger that it belongs to.
    pub ledger: LedgerSeq,
    /// When that ledger closed.
    pub closed_at: CloseTime,
    /// Hash of its transaction (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// 1-based position of its transaction in apply order.
    pub application_order: u32,
    /// Where in its transaction it was emitted.
    pub placement: Placement,
    /// Index in its transaction of the first event of its operation, as far as the events that were read with it tell.
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
    /// 0-based position of its operation; none for fee events.
    pub fn op_index(&self) -> Option<u32> {
        match self.placement {
            Placement::Operation { operation, .. } => Some(operation),
            _ => None,
        }
    }

    /// 0-based position in its transaction; none for fee events.
    pub fn event_index(&self) -> Option<u32> {
        match self.placement {
            Placement::Operation { event_index, .. } => Some(event_index),
            _ => None,
        }
    }
}

/// Which smart-contract transactions are wanted. Ordered by (ledger, application order).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionQuery {
    /// Only transactions of these ledgers.
    pub ledgers: Option<LedgerRange>,
    /// Only transactions that touch one of these contracts; all when empty.
    pub contracts: Vec<ContractId>,
    /// Which part of the answer.
    pub page: Page<TransactionPosition>,
}

/// Where a transaction stands on the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionPosition {
    /// Its ledger.
    pub ledger: LedgerSeq,
    /// Its 1-based position in apply order.
    pub application_order: u32,
}

/// A stored smart-contract transaction, borrowed for the time of the visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionRecord<'a> {
    /// Hash (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<&'a [u8; 32]>,
    /// Where it stands.
    pub position: TransactionPosition,
    /// When its ledger closed.
    pub closed_at: CloseTime,
    /// Whether it succeeded.
    pub successful: bool,
    /// Source account of the inner transaction as a strkey, `G…` or `M…`.
    pub source_account: &'a str,
    /// Who paid the fee, as a strkey.
    pub fee_account: &'a str,
    /// Fee charged, stroops.
    pub fee_charged: i64,
    /// Contracts that it touched.
    pub contracts: &'a [ContractId],
    /// How many of its events are stored.
    pub event_count: u32,
    /// XDR `TransactionEnvelope`.
    pub envelope: &'a [u8],
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
}

/// What an answer took, for showing that work is proportional to the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueryCost {
    /// Rows of indexes that were looked at.
    pub index_rows: u64,
    /// Event blocks or transaction records that were read.
    pub records: u64,
}

/// What one question may cost before its walk is interrupted.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// Event blocks or transaction records that may be read.
    pub records: u64,
    /// Rows of indexes that may be looked at.
    pub index_rows: u64,
    /// Whether the walk must end now, because of the time or because nobody waits for the answer. Asked
    /// once every [`Bounds::RECORDS_BETWEEN_LOOKS`] records; 64 index rows count as a record there.
    pub interrupted: &'a dyn Fn() -> bool,
}

impl Bounds<'_> {
    /// No bounds: for questions that the service asks of itself.
    pub const NONE: Bounds<'static> =
        Bounds { records: u64::MAX, index_rows: u64::MAX, interrupted: &|| false };

    /// Records that are read between two looks at [`Bounds::interrupted`].
    pub const RECORDS_BETWEEN_LOOKS: u64 = 64;
}

/// What came of a bounded question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walked<C> {
    /// What it took.
    pub cost: QueryCost,
    /// Where it was interrupted; none when the page is complete.
    pub interrupted: Option<Interrupted<C>>,
}

impl<C> Walked<C> {
    /// The same with its cursor as `cursor` spells it.
    pub fn map<D>(self, cursor: impl FnOnce(C) -> D) -> Walked<D> {
        let Self { cost, interrupted } = self;
        let interrupted =
            interrupted.map(|at| Interrupted { cursor: cursor(at.cursor), skipped: at.skipped });
        Walked { cost, interrupted }
    }
}

/// Where a walk was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted<C> {
    /// The cursor with which the same question goes on. Every row before it was looked at: it was
    /// visited, passed over because of `offset`, or does not match.
    pub cursor: C,
    /// Rows of `offset` that were passed over.
    pub skipped: u64,
}

/// Counts what a walk costs, against its bounds.
pub(super) struct Meter<'a> {
    bounds: Bounds<'a>,
    records: Cell<u64>,
    index_rows: Cell<u64>,
    looked_at: Cell<u64>,
}

impl<'a> Meter<'a> {
    /// Index rows that cost about as much as a record.
    const ROWS_PER_RECORD: u64 = 64;

    pub(super) fn new(bounds: Bounds<'a>) -> Self {
        Self { bounds, records: Cell::new(0), index_rows: Cell::new(0), looked_at: Cell::new(0) }
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

    /// Whether the walk has cost what it may.
    pub(super) fn is_spent(&self) -> bool {
        let (records, rows) = (self.records.get(), self.index_rows.get());
        if records >= self.bounds.records || rows >= self.bounds.index_rows {
            return true;
        }
        let work = records + rows / Self::ROWS_PER_RECORD;
        if work - self.looked_at.get() < Bounds::RECORDS_BETWEEN_LOOKS {
            return false;
        }
        self.looked_at.set(work);
        (self.bounds.interrupted)()
    }
}

/// What the store holds, kept in memory and true for the last committed ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreStatus {
    /// Covered ranges in ascending order; no two touch.
    pub ranges: Vec<LedgerRange>,
    /// Close time of the newest ledger, UNIX seconds.
    pub latest_close_time: Option<u64>,
    /// Newest row id given out; 0 when there is none.
    pub last_event_id: EventId,
    /// How much is stored.
    pub totals: Totals,
}

/// The ends of what the store holds: what [`StoreStatus`] says without a list of ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreEnds {
    /// Newest ledger stored.
    pub latest: Option<LedgerSeq>,
    /// Oldest ledger whose events are stored.
    pub oldest: Option<LedgerSeq>,
    /// Events of ledgers below this one have been pruned.
    pub events_from: LedgerSeq,
    /// Close time of the newest ledger, UNIX seconds.
    pub latest_close_time: Option<u64>,
    /// Newest row id given out; 0 when there is none.
    pub last_event_id: EventId,
}

impl StoreStatus {
    /// Newest ledger stored.
    pub fn latest(&self) -> Option<LedgerSeq> {
        self.ranges.last().map(|range| range.last)
    }

    /// Oldest ledger whose events are stored.
    pub fn oldest(&self) -> Option<LedgerSeq> {
        let kept = self.ranges.iter().find(|range| range.last >= self.totals.events_from)?;
        Some(kept.first.max(self.totals.events_from))
    }
}
