//! The rows that the index has of one entry next to a ledger. An entry and its time to live share rows, and each is
//! asked about several times, before the ledger, in it and after it: so they are read once.

use super::super::StoreError;
use super::super::indexes::entries::Changed;
use super::super::query::TransactionPosition;
use crate::domain::{Direction, LedgerSeq};

/// A transaction, and what it changed.
pub(super) type Row = (TransactionPosition, Changed);

/// Rows that are read before a ledger, and from it on: one and the next, for an entry and for its time to live.
const MOST_BEFORE: usize = 2;
const MOST_FROM: usize = 4;

/// Rows without a gap on either side of the beginning of a ledger.
#[derive(Debug)]
pub(super) struct Nearby {
    start: TransactionPosition,
    before: Side,
    from: Side,
}

/// Rows on one side, the nearest first.
#[derive(Debug, Default)]
struct Side {
    is_read: bool,
    rows: Vec<Row>,
    /// Whether there are no others on this side.
    is_all: bool,
}

/// Visits rows from a position on, while it is wanted.
type Visitor<'v> = &'v mut dyn FnMut(Row) -> bool;

impl Nearby {
    /// Of which nothing is read.
    pub(super) fn new(ledger: LedgerSeq) -> Self {
        // Application orders begin with 1, so nothing stands at this position.
        let start = TransactionPosition { ledger, application_order: 0 };
        Self { start, before: Side::default(), from: Side::default() }
    }

    /// Reads one side, unless that was done already.
    pub(super) fn read(
        &mut self,
        direction: Direction,
        visit: impl FnOnce(TransactionPosition, Visitor<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (side, most) = match direction {
            Direction::NewestFirst => (&mut self.before, MOST_BEFORE),
            Direction::OldestFirst => (&mut self.from, MOST_FROM),
        };
        if side.is_read {
            return Ok(());
        }
        let (mut rows, mut is_all) = (Vec::new(), true);
        visit(self.start, &mut |row| {
            is_all = rows.len() < most;
            if is_all {
                rows.push(row);
            }
            is_all
        })?;
        *side = Side { is_read: true, rows, is_all };
        Ok(())
    }

    /// The nearest row of what is wanted on that side of a position, or that there is none; none when the rows that
    /// were read do not tell.
    pub(super) fn find(
        &self,
        wanted: Changed,
        position: TransactionPosition,
        direction: Direction,
    ) -> Option<Option<TransactionPosition>> {
        let Self { start, before, from } = self;
        let is_wanted = |(_, changed): &&Row| changed.has(wanted);
        if position < *start {
            return None;
        }
        match direction {
            Direction::OldestFirst => {
                let mut after = from.rows.iter().filter(|(at, _)| *at > position);
                let after = after.find(is_wanted).map(|(at, _)| *at);
                (after.is_some() || (from.is_read && from.is_all)).then_some(after)
            }
            Direction::NewestFirst => {
                let reaches = from.rows.last().is_some_and(|(at, _)| *at >= position);
                if position > *start && !(from.is_read && (from.is_all || reaches)) {
                    return None;
                }
                let within = from.rows.iter().rev().filter(|(at, _)| *at < position);
                let last = within.chain(&before.rows).find(is_wanted).map(|(at, _)| *at);
                (last.is_some() || (before.is_read && before.is_all)).then_some(last)
            }
        }
    }
}
