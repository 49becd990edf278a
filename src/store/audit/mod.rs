//! Reads everything that is stored back from disk and recomputes what can be recomputed: `orrery
//! verify`.
//!
//! The directory is opened to be read only, by a process that has it for itself. (RocksDB could follow
//! a running service as a secondary, but where a table is missing it would quietly go back to an older
//! state, and damage could not be told from progress.) Nothing is taken from a cache, and RocksDB
//! checks the checksum of every block that is read. Then, in this order:
//!
//! - [`chain`]: ranges, runs and rows of ledgers agree; hashes link; ids are dense; sums are sums.
//! - [`contents`]: the events and transactions of each ledger are those of its row and digest, and
//!   ([`raw`]) those that its raw form decodes to, where that is kept.
//! - [`indexes`]: every row of an index that follows from the contents is there, and no other.
//!
//! Memory does not grow with the store: ledgers are read one at a time by each thread, and indexes are
//! compared as sums of hashes ([`tally`]); only where sums differ are rows compared one by one.

mod chain;
mod contents;
mod indexes;
mod problems;
mod raw;
mod tally;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

pub use problems::Problem;

use super::columns::{BlockKey, Family, Key, LedgerKey};
use super::coverage::Coverage;
use super::database::{Database, corrupt};
use super::indexes::{Index, Indexes};
use super::lock::DirectoryLock;
use super::{
    Digest, LedgerRow, RAW_DIRECTORY, StoreError, Totals, acknowledged, format, load_coverage,
    log_files, stored_network,
};
use crate::domain::{EventId, LedgerRange, LedgerSeq, Network};
use contents::{Contents, Counted};
use problems::Problems;
use tally::Tally;

/// Ledgers that a thread takes at a time.
const WINDOW: u64 = 256;

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Whose ledgers they are.
    pub network: Network,
    /// The covered ranges, or what of them was asked for, in ascending order.
    pub ranges: Vec<AuditedRange>,
    /// What is wrong, of each kind of place the first; nothing when all is well.
    pub problems: Vec<Problem>,
    /// Whether more is wrong than `problems` says.
    pub more_problems: bool,
    /// Counters that do not agree with what is there. Nothing is lost with them, and
    /// [`super::Store::recount`] puts them right.
    pub drift: Vec<Problem>,
    /// Ledgers whose raw form is kept and was decoded again.
    pub raw_ledgers: u64,
    /// Ledgers whose events, or some of them, were removed by retention and could not be checked.
    pub without_events: u64,
    /// Ledgers whose transactions, or some of them, were removed by retention.
    pub without_transactions: u64,
}

/// Some consecutive ledgers, as they are on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedRange {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Events that were stored, including those that retention has removed since.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
}

/// How far an audit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditProgress {
    /// Ledgers whose contents have been checked.
    pub done: u64,
    /// All ledgers.
    pub ledgers: u64,
}

/// Reads back all of a data directory, or some ledgers of it, and says what is wrong.
///
/// # Errors
/// [`StoreError::InUse`] when another process has it open, and otherwise what keeps it from being
/// opened at all.
pub fn audit(
    directory: &Path,
    ledgers: Option<LedgerRange>,
    progress: &(dyn Fn(AuditProgress) + Sync),
) -> Result<Audit, StoreError> {
    audit_with(directory, &Indexes::default(), ledgers, progress)
}

/// The same for a directory with other indexes than those of every store; one that it has not is left out.
///
/// # Errors
/// As [`audit`].
pub fn audit_with(
    directory: &Path,
    indexes: &Indexes,
    ledgers: Option<LedgerRange>,
    progress: &(dyn Fn(AuditProgress) + Sync),
) -> Result<Audit, StoreError> {
    if !directory.join(RAW_DIRECTORY).exists() {
        return Err(StoreError::Empty(directory.to_owned()));
    }
    let _lock = DirectoryLock::take(directory)?;
    read_back(directory, indexes, ledgers, progress).map_err(|error| error.while_reading(directory))
}

/// Audits a directory that nobody else has open.
fn read_back(
    directory: &Path,
    indexes: &Indexes,
    ledgers: Option<LedgerRange>,
    progress: &(dyn Fn(AuditProgress) + Sync),
) -> Result<Audit, StoreError> {
    let problems = Problems::default();
    let promise = acknowledged::read(directory).unwrap_or_else(|error| {
        problems.add(acknowledged::FILE.to_owned(), error.to_string());
        None
    });
    let raw = directory.join(RAW_DIRECTORY);
    log_files::check(&raw, promise)?;
    let registered: Vec<_> = indexes.registered().map(|(_, index)| index.family()).collect();
    let database = Database::open_read_only(&raw, &registered)?;
    acknowledged::check(directory, promise, database.sequence())?;
    format::check(&database)?;
    database.check_families()?;
    let network = stored_network(&database)?.ok_or(StoreError::Empty(directory.to_owned()))?;
    let subject = Subject {
        network: &network,
        coverage: load_coverage(&database)?,
        totals: Totals::load(&database)?,
        wanted: ledgers.unwrap_or(ALL),
        indexes: indexes.complete_in(&database)?,
        database,
        problems: &problems,
    };
    let ranges = chain::check(&subject)?;
    let (checked, drift) = subject.check_contents(progress)?;
    let (problems, more_problems) = problems.sorted();
    Ok(Audit {
        ranges,
        problems,
        more_problems,
        drift,
        raw_ledgers: checked.raw_ledgers,
        without_events: checked.without_events,
        without_transactions: checked.without_transactions,
        network: network.clone(),
    })
}

const ALL: LedgerRange = LedgerRange { first: LedgerSeq(0), last: LedgerSeq(u32::MAX) };

/// What is audited.
struct Subject<'a> {
    network: &'a Network,
    coverage: Coverage,
    totals: Totals,
    wanted: LedgerRange,
    indexes: Indexes,
    database: Database,
    problems: &'a Problems,
}

/// One of the parts that threads work on.
enum Task {
    /// Ledgers that were ingested one after the other.
    Ledgers(Vec<LedgerRange>),
    /// All rows of an index.
    Index(usize, Index),
}

/// What a thread has counted.
struct Sums {
    indexes: Tally,
    counted: Counted,
}

impl Subject<'_> {
    /// Whether all ledgers are wanted.
    fn is_whole(&self) -> bool {
        self.coverage.is_within(self.wanted)
    }

    /// Adds what went wrong while something was read. Whoever reads goes on with the next.
    fn add(&self, place: String, error: &StoreError) {
        self.problems.add(place, error.to_string());
    }

    fn ledger(&self, sequence: LedgerSeq) -> Result<Option<LedgerRow>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let row = self.database.get_on_disk(Family::Ledgers, key)?;
        let row = row.map(|bytes| LedgerRow::decode(&bytes));
        row.transpose().map_err(corrupt(Family::Ledgers, key))
    }

    /// Reads contents and indexes on as many threads as there are processors, and compares them.
    fn check_contents(
        &self,
        progress: &(dyn Fn(AuditProgress) + Sync),
    ) -> Result<(Counted, Vec<Problem>), StoreError> {
        let windows = self.windows();
        let ledgers = windows.iter().flatten().map(LedgerRange::len).sum();
        let indexes = self.indexes.iter().enumerate();
        let indexes = indexes.map(|(number, index)| Task::Index(number, *index));
        let tasks: Vec<Task> = indexes.chain(windows.into_iter().map(Task::Ledgers)).collect();
        let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
        let next_task = || tasks.get(next.fetch_add(1, Ordering::Relaxed));
        let are_done = |count| {
            let done = done.fetch_add(count, Ordering::Relaxed) + count;
            progress(AuditProgress { done, ledgers });
        };
        let threads = thread::available_parallelism().map_or(2, usize::from);
        let of_threads = thread::scope(|scope| {
            let work = || self.sum_up(&next_task, &are_done);
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, Result<Sums, StoreError>>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).collect::<Result<Vec<Sums>, StoreError>>()
        })?;
        let mut sums = self.no_sums();
        for of_thread in of_threads {
            sums.indexes.add(&of_thread.indexes);
            sums.counted.add(&of_thread.counted);
        }
        self.check_strays();
        let drift = self.drift(&sums.counted)?;
        let different = sums.indexes.differences();
        // What could not be read is missing on one side, and is said already.
        if !different.is_empty() && sums.counted.unreadable == 0 {
            indexes::compare(self, &self.windows(), &different)?;
        }
        Ok((sums.counted, drift))
    }

    fn no_sums(&self) -> Sums {
        Sums { indexes: Tally::new(self.indexes.len()), counted: Counted::default() }
    }

    /// Works on tasks until none is left.
    fn sum_up<'t>(
        &self,
        next_task: &dyn Fn() -> Option<&'t Task>,
        are_done: &dyn Fn(u64),
    ) -> Result<Sums, StoreError> {
        let mut sums = self.no_sums();
        while let Some(task) = next_task()
            && !self.problems.are_too_many()
        {
            match task {
                Task::Index(number, index) => {
                    let readable = indexes::scan(self, *number, index, &mut sums.indexes)?;
                    sums.counted.unreadable += u64::from(!readable);
                }
                Task::Ledgers(window) => {
                    let mut contents = Contents::new(self)?;
                    contents.check(window, &mut sums.indexes);
                    sums.counted.add(&contents.counted());
                    are_done(window.iter().map(LedgerRange::len).sum());
                }
            }
        }
        Ok(sums)
    }

    fn check_strays(&self) {
        let strays = [
            (Family::Events, self.stray_block()),
            (Family::Transactions, self.stray_row(Family::Transactions)),
            (Family::LedgerXdr, self.stray_row(Family::LedgerXdr)),
        ];
        for (family, stray) in strays {
            match stray {
                Ok(None) => {}
                Ok(Some(key)) => {
                    let what = "it belongs to no ledger that is stored";
                    self.problems.add(problems::row(family, &key), what.to_owned());
                }
                Err(error) => self.add(family.name().to_owned(), &error),
            }
        }
    }

    /// Totals that are not those of what is there. Where something could not be read, or not all was
    /// wanted, they cannot be compared.
    fn drift(&self, counted: &Counted) -> Result<Vec<Problem>, StoreError> {
        if !self.is_whole() || counted.unreadable > 0 {
            return Ok(Vec::new());
        }
        let compared = [
            ("events", self.totals.events, counted.events),
            ("transactions", self.totals.transactions, counted.transactions),
        ];
        let differing = compared.into_iter().filter(|(_, total, found)| total != found);
        let mut drift: Vec<String> = differing
            .map(|(what, total, found)| format!("it counts {total} {what}, and {found} are there"))
            .collect();
        let latest = self.coverage.latest().map_or(Ok(None), |latest| self.ledger(latest))?;
        if latest.is_some_and(|latest| !self.totals.is_of_latest(&latest)) {
            drift.push("it does not hold the close time of the newest ledger".to_owned());
        }
        let place = || "meta 'totals'".to_owned();
        Ok(drift.into_iter().map(|what| Problem { place: place(), what }).collect())
    }

    /// The wanted ledgers in the order of their ids, in portions.
    fn windows(&self) -> Vec<Vec<LedgerRange>> {
        let (mut windows, mut window, mut free) = (Vec::new(), Vec::new(), WINDOW);
        for run in self.coverage.runs() {
            let mut left = LedgerRange {
                first: run.ledgers.first.max(self.wanted.first),
                last: run.ledgers.last.min(self.wanted.last),
            };
            while !left.is_empty() {
                let taken = left.len().min(free);
                // Within the range, so it fits.
                let last = LedgerSeq(left.first.0 + (taken - 1) as u32);
                window.push(LedgerRange { first: left.first, last });
                free -= taken;
                if free == 0 {
                    windows.push(std::mem::take(&mut window));
                    free = WINDOW;
                }
                let Some(next) = last.next() else { break };
                left.first = next;
            }
        }
        if !window.is_empty() {
            windows.push(window);
        }
        windows
    }

    /// An event block outside the ids that were given out.
    fn stray_block(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut rows = self.database.rows_on_disk(Family::Events)?;
        for bound in [EventId(0), self.coverage.next_event()] {
            rows.seek(BlockKey(bound).encode());
            let stray = rows.key().filter(|key| {
                let id = BlockKey::decode(key).map(|key| key.0);
                id.is_none_or(|id| id.0 == 0 || id >= self.coverage.next_event())
            });
            if let Some(key) = stray {
                return Ok(Some(key.to_vec()));
            }
            rows.status()?;
        }
        Ok(None)
    }

    /// A row of a family in the order of ledgers that stands between the covered ranges.
    fn stray_row(&self, family: Family) -> Result<Option<Vec<u8>>, StoreError> {
        let mut rows = self.database.rows_on_disk(family)?;
        let mut first = Some(LedgerSeq(0));
        let mut next_range = self.coverage.ranges();
        while let Some(gap) = first {
            let range = next_range.next();
            // Keys of transactions begin with their ledger, too.
            rows.seek(LedgerKey(gap).encode());
            if let Some(key) = rows.key() {
                let ledger = key.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
                let is_stray =
                    |ledger| range.is_none_or(|range| LedgerSeq(ledger) < range.ledgers.first);
                if ledger.is_none_or(is_stray) {
                    return Ok(Some(key.to_vec()));
                }
            }
            rows.status()?;
            first = range.and_then(|range| range.ledgers.last.next());
        }
        Ok(None)
    }
}
