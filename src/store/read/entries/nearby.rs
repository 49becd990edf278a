//! Cache of the index rows of one entry next to a ledger. An entry and its time to live share rows,
//! and each is looked up several times (before the ledger, in it and after it), so the rows are
//! read once.

use std::ops::ControlFlow;

use orrery_ledger::domain::{Direction, LedgerSeq};

use crate::encoding::error::StoreError;
use crate::encoding::records::TransactionPosition;
use crate::indexes::entries::Changed;

/// A transaction, and what of the entry it changed.
pub(super) type Row = (TransactionPosition, Changed);

/// Maximum number of rows read before a ledger (one each for the entry and its time to live), and
/// from it on (two each).
const MAX_ROWS_BEFORE: usize = 2;
const MAX_ROWS_FROM: usize = 4;

/// Consecutive rows on both sides of the start of a ledger.
#[derive(Debug)]
pub(super) struct Nearby {
    start: TransactionPosition,
    before: Side,
    from: Side,
}

/// Rows on one side, nearest first.
#[derive(Debug, Default)]
struct Side {
    is_read: bool,
    rows: Vec<Row>,
    /// Whether there are no more rows on this side.
    is_exhausted: bool,
}

/// Receives rows one by one until it breaks.
type Visitor<'v> = &'v mut dyn FnMut(Row) -> ControlFlow<()>;

impl Nearby {
    /// Creates the cache for a ledger without reading anything.
    pub(super) fn new(ledger: LedgerSeq) -> Self {
        // Application orders begin with 1, so no transaction has this position.
        let start = TransactionPosition { ledger, application_order: 0 };
        Self { start, before: Side::default(), from: Side::default() }
    }

    /// Reads one side, unless it was read already.
    pub(super) fn read(
        &mut self,
        direction: Direction,
        visit: impl FnOnce(TransactionPosition, Visitor<'_>) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let (side, most) = match direction {
            Direction::NewestFirst => (&mut self.before, MAX_ROWS_BEFORE),
            Direction::OldestFirst => (&mut self.from, MAX_ROWS_FROM),
        };
        if side.is_read {
            return Ok(());
        }
        let mut rows = Vec::new();
        let flow = visit(self.start, &mut |row| {
            if rows.len() == most {
                return ControlFlow::Break(());
            }
            rows.push(row);
            ControlFlow::Continue(())
        })?;
        *side = Side { is_read: true, rows, is_exhausted: flow.is_continue() };
        Ok(())
    }

    /// Returns the nearest row with the `wanted` change on one side of a position, where
    /// `Some(None)` means that there is none. Returns `None` when the rows read so far do not
    /// determine it.
    pub(super) fn find(
        &self,
        wanted: Changed,
        position: TransactionPosition,
        direction: Direction,
    ) -> Option<Option<TransactionPosition>> {
        let Self { start, before, from } = self;
        let is_wanted = |(_, changed): &&Row| changed.contains(wanted);
        if position < *start {
            return None;
        }
        match direction {
            Direction::OldestFirst => {
                let mut after = from.rows.iter().filter(|(at, _)| *at > position);
                let after = after.find(is_wanted).map(|(at, _)| *at);
                (after.is_some() || (from.is_read && from.is_exhausted)).then_some(after)
            }
            Direction::NewestFirst => {
                let reaches = from.rows.last().is_some_and(|(at, _)| *at >= position);
                if position > *start && !(from.is_read && (from.is_exhausted || reaches)) {
                    return None;
                }
                let within = from.rows.iter().rev().filter(|(at, _)| *at < position);
                let last = within.chain(&before.rows).find(is_wanted).map(|(at, _)| *at);
                (last.is_some() || (before.is_read && before.is_exhausted)).then_some(last)
            }
        }
    }
}
