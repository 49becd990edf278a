//! Rows of one program as transactions of the tables: as many rows in each as pay, taken from the row log
//! while those before are written.

use std::cell::RefCell;
use std::iter;
use std::time::{Duration, Instant};

use super::ProgramError;
use super::row_log::RowsToFeed;
use orrery_ledger::domain::ProgramId;
use orrery_tables::Change;

/// Number of rows after which a transaction is committed. DuckDB compresses rows in groups of 122,880
/// of one table (`DEFAULT_ROW_GROUP_SIZE`): whole groups are written once, and straight into the file.
/// An event has a row in two tables.
const ROWS: usize = if cfg!(test) { 6 } else { 262_144 };
/// Maximum number of transactions before the owner's next program gets its turn.
const MAX_TRANSACTIONS: usize = 4;
/// Time for which a transaction may go on after the deadline of its turn until it has [`ROWS`], unless
/// somebody waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// When a turn ends.
pub(super) struct Until<'a> {
    pub deadline: Instant,
    /// Whether the owner has further rows to be written, which are not of a program that gets many.
    pub is_due: &'a dyn Fn() -> bool,
}

/// Reads the rows of the next runs after a number of the row log; `None` when they need other tables
/// than the declared ones.
type ReadNext<'a> = &'a dyn Fn(u64) -> Result<Option<RowsToFeed>, ProgramError>;

/// The rows of a program's next runs, in batches.
pub(super) struct Batches<'a> {
    program: ProgramId,
    first: Option<RowsToFeed>,
    /// Number of the last run that was taken.
    pub up_to: u64,
    /// Whether there are more runs.
    pub more: bool,
    pub failed: Option<ProgramError>,
    until: Option<Until<'a>>,
    read_next: ReadNext<'a>,
    /// Whether no further batch is taken.
    is_over: bool,
    transactions: usize,
    /// Rows of the transaction so far.
    rows: usize,
    /// Rows of all transactions.
    pub all_rows: usize,
}

impl<'a> Batches<'a> {
    /// Begins after a run, with these rows.
    pub fn new(
        program: ProgramId,
        after: u64,
        first: RowsToFeed,
        until: Option<Until<'a>>,
        read_next: ReadNext<'a>,
    ) -> Self {
        Self {
            program,
            first: Some(first),
            up_to: after,
            more: true,
            failed: None,
            until,
            read_next,
            is_over: false,
            transactions: 0,
            rows: 0,
            all_rows: 0,
        }
    }

    /// Begins a transaction. Returns whether there is to be one.
    fn begin(&mut self) -> bool {
        self.rows = 0;
        self.transactions += 1;
        self.first.is_some()
            || (!self.is_over
                && self.more
                && self.transactions <= MAX_TRANSACTIONS
                && self.until.as_ref().is_none_or(|it| Instant::now() <= it.deadline))
    }

    /// Returns the next batch of the transaction; `None` when it is to be committed.
    fn next(&mut self) -> Option<Change> {
        let batch = match self.first.take() {
            Some(first) => first,
            None if self.is_over || !self.more || self.is_enough() => return None,
            None => match (self.read_next)(self.up_to) {
                Ok(Some(next)) => next,
                other => {
                    self.is_over = true;
                    self.failed = other.err();
                    return None;
                }
            },
        };
        let RowsToFeed { rows, up_to, more, .. } = batch;
        self.rows += rows.len();
        self.all_rows += rows.len();
        self.more = more;
        let after = std::mem::replace(&mut self.up_to, up_to);
        Some(Change::Rows { program: self.program, after, up_to, rows })
    }

    /// Whether the transaction has as many rows as it is to have.
    fn is_enough(&self) -> bool {
        self.rows >= ROWS
            || self.until.as_ref().is_some_and(|Until { deadline, is_due }| {
                let now = Instant::now();
                now > *deadline && (now > *deadline + PATIENCE || is_due())
            })
    }
}

/// Returns the transactions for the tables. Each is taken to its end before the next one.
pub(super) fn transactions<'b>(
    batches: &'b RefCell<Batches<'_>>,
) -> impl Iterator<Item = impl Iterator<Item = Change> + 'b> + 'b {
    iter::from_fn(move || {
        let changes = || iter::from_fn(move || batches.borrow_mut().next());
        batches.borrow_mut().begin().then(changes)
    })
}
