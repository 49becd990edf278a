//! Rows of one program as transactions of the tables: as many rows in each as pay, taken from the row log
//! while those before are written.

use std::cell::RefCell;
use std::iter;
use std::time::{Duration, Instant};

use super::ProgramError;
use super::row_log::RowsToFeed;
use orrery_ledger::domain::ProgramId;
use orrery_tables::Change;

/// Number of rows after which a transaction is committed; an event has a row in two tables. DuckDB
/// compresses rows in groups of 122,880 of one table (`DEFAULT_ROW_GROUP_SIZE`), and writes the last
/// group of a table again with each checkpoint until it is full. Somewhat less than a group in each
/// transaction fills them one after the other. A few more would leave a small group behind each whole
/// one, which the next checkpoint merges by writing both again: half as much time and file on top.
const ROWS: usize = if cfg!(test) { 6 } else { 200_000 };
/// Maximum number of transactions before the owner's next program gets its turn.
const MAX_TRANSACTIONS: usize = 4;
/// Time for which a transaction may go on after the deadline of its turn until it has [`ROWS`], unless
/// somebody waits.
const PATIENCE: Duration = Duration::from_secs(2);

/// When a turn ends.
pub(super) struct Until<'a> {
    pub deadline: Instant,
    /// Whether somebody waits for its end.
    pub is_awaited: &'a dyn Fn() -> bool,
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
            || self.until.as_ref().is_some_and(|Until { deadline, is_awaited }| {
                let now = Instant::now();
                now > *deadline && (now > *deadline + PATIENCE || is_awaited())
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use orrery_ledger::domain::{CloseTime, ContractId, Emit, Hash32, LedgerSeq, Owner};
    use orrery_tables::Row;
    use stellar_xdr::ScMap;

    use super::*;
    use crate::manifest::Manifest;

    /// Runs of two rows each.
    const RUNS: u64 = 30;

    fn batch(up_to: u64) -> RowsToFeed {
        let emit = Emit {
            contract: ContractId([1; 32]),
            target: "t".to_owned(),
            fields: ScMap::default(),
        };
        let (transaction, event_id) = (Hash32([1; 32]), Hash32([2; 32]));
        let (ledger, closed_at) = (LedgerSeq(1), CloseTime::Seconds(1));
        let row = Row { emit, transaction, event_id, ledger, closed_at };
        let manifest = Manifest {
            id: ProgramId(1),
            owner: Owner("ana".to_owned()),
            project_name: String::new(),
            replaces: None,
            contracts: Vec::new(),
            module: Hash32([3; 32]),
            public: false,
            running: true,
            stopped_because: None,
            deployed_at: 0,
            schema: orrery_tables::schema::ProgramSchema::default(),
            events: None,
        };
        let (more, manifest) = (up_to < RUNS, Arc::new(manifest));
        RowsToFeed { rows: vec![row.clone(), row].into(), up_to, more, manifest }
    }

    /// Returns the last run of each batch of each transaction, and what was said at the end.
    fn taken(
        first: u64,
        until: Option<Until<'_>>,
        read_next: ReadNext<'_>,
    ) -> (Vec<Vec<u64>>, u64, bool) {
        let batches =
            RefCell::new(Batches::new(ProgramId(1), first - 1, batch(first), until, read_next));
        let last = |change| match change {
            Change::Rows { up_to, .. } => up_to,
            _ => panic!("these are rows"),
        };
        let taken = transactions(&batches).map(|changes| changes.map(last).collect()).collect();
        let Batches { up_to, more, .. } = batches.into_inner();
        (taken, up_to, more)
    }

    fn next(after: u64) -> Result<Option<RowsToFeed>, ProgramError> {
        Ok(Some(batch(after + 1)))
    }

    #[test]
    fn a_transaction_ends_when_it_has_enough_rows_or_there_are_no_more() {
        assert_eq!(taken(RUNS, None, &next), (vec![vec![30]], RUNS, false));
        let (all, up_to, more) = taken(26, None, &next);
        assert_eq!((all, up_to, more), (vec![vec![26, 27, 28], vec![29, 30]], RUNS, false));
        // Others get their turn.
        let (all, up_to, more) = taken(1, None, &next);
        assert_eq!((all.len(), up_to, more), (MAX_TRANSACTIONS, 12, true));
    }

    #[test]
    fn a_turn_that_is_over_goes_on_only_while_nobody_waits() {
        let past = || Instant::now() - Duration::from_millis(1);
        let nobody = || false;
        let until = Until { deadline: past(), is_awaited: &nobody };
        assert_eq!(taken(1, Some(until), &next), (vec![vec![1, 2, 3]], 3, true));
        let asked = Cell::new(0);
        let second = || asked.replace(asked.get() + 1) > 0;
        let until = Until { deadline: past(), is_awaited: &second };
        assert_eq!(taken(1, Some(until), &next), (vec![vec![1, 2]], 2, true));
        let until = Until { deadline: past() - PATIENCE, is_awaited: &nobody };
        assert_eq!(taken(1, Some(until), &next), (vec![vec![1]], 1, true));
    }

    #[test]
    fn what_was_taken_before_a_failure_is_written() {
        let fails = |after| match after {
            2.. => Err(ProgramError::Damaged("a row")),
            _ => next(after),
        };
        let batches = RefCell::new(Batches::new(ProgramId(1), 0, batch(1), None, &fails));
        let count = transactions(&batches).map(Iterator::count).collect::<Vec<_>>();
        let Batches { up_to, failed, .. } = batches.into_inner();
        assert_eq!((count, up_to), (vec![2], 2));
        assert!(matches!(failed, Some(ProgramError::Damaged("a row"))));
        // Rows that need other tables.
        let (all, up_to, more) = taken(1, None, &|_| Ok(None));
        assert_eq!((all, up_to, more), (vec![vec![1]], 1, true));
    }
}
