//! Reads everything that is stored back from disk and recomputes what can be recomputed: `orrery
//! verify`.
//!
//! The directory is opened read-only by a process that holds its lock. (RocksDB could follow a
//! running service as a secondary instance, but where a table is missing a secondary silently
//! returns to an older state, and damage could not be told from progress.) Contents and indexes are
//! not taken from a cache, and RocksDB verifies the checksum of every block that is read. The
//! checks run in this order:
//!
//! - [`chain`]: ranges, runs and ledger rows agree; hashes link; event ids are dense; sums are
//!   right.
//! - [`contents`]: the events and transactions of each ledger match its row and digest, and
//!   ([`raw`]) what its raw form decodes to, if that is kept, which is verified as on its way in.
//! - [`indexes`]: every index row that follows from the contents exists, and no other.
//!
//! Memory use does not grow with the store: each thread reads one ledger at a time, and indexes are
//! compared as sums of hashes ([`tally`]); rows are compared one by one only where sums differ.

mod chain;
mod contents;
mod indexes;
pub(crate) mod problems;
mod raw;
mod stored_ledger;
pub(crate) mod subject;
mod tally;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use contents::{Contents, Counted};
use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, Network, SummedLedgers};
use orrery_ledger::verify::Policy;
use parking_lot::Mutex;
use problems::{Problem, Problems};
use subject::Subject;
use tally::Tally;

use super::extensions::Extensions;
use super::format;
use super::network::stored_network;
use crate::db::database::Database;
use crate::db::directory::{RAW_DIRECTORY, holds_database};
use crate::db::lock::DirectoryLock;
use crate::db::{acknowledged, log_files};
use crate::encoding::columns::{BlockKey, Family, Key, LedgerKey, SharedFamily};
use crate::encoding::error::StoreError;
use crate::indexes::index::Index;
use crate::state::consumers::spec::ConsumerKind;
use crate::state::coverage::Coverage;
use crate::state::marks::Marks;
use crate::state::removed::Removed;
use crate::state::totals::Totals;
use crate::upkeep::format::migrations;

/// Maximum number of ledgers in one unit of work.
const WINDOW: u64 = 256;

/// Result of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Network whose ledgers the store holds.
    pub network: Network,
    /// Covered ranges, restricted to the requested ledgers, in ascending order.
    pub ranges: Vec<SummedLedgers>,
    /// Problems found, without duplicates and sorted by place, at most 1000; empty when the store
    /// is sound.
    pub problems: Vec<Problem>,
    /// Whether there are more problems than `problems` lists.
    pub more_problems: bool,
    /// Number of ledgers whose raw form is kept and was decoded and verified again.
    pub raw_ledgers: u64,
    /// Number of ledgers of which retention removed some or all events, which could not be checked.
    pub without_events: u64,
    /// Number of ledgers of which retention removed some or all transactions.
    pub without_transactions: u64,
    /// Audited ledgers of which less is known than of others.
    pub marks: Marks,
}

/// Progress of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditProgress {
    /// Number of ledgers whose contents have been checked.
    pub done: u64,
    /// Number of ledgers to check.
    pub ledgers: u64,
}

/// Audits a whole data directory, or the given ledgers of it, and returns what is wrong.
///
/// # Errors
/// [`StoreError::InUse`] when another process has it open, and otherwise the error that prevents it
/// from being opened.
pub fn audit(
    directory: &Path,
    ledgers: Option<LedgerRange>,
    progress: &(dyn Fn(AuditProgress) + Sync),
) -> Result<Audit, StoreError> {
    audit_with(directory, &Extensions::default(), ledgers, Policy::default(), progress)
}

/// Does the same as [`audit`] for a directory with indexes beyond the built-in ones and with kinds
/// of consumers; an index that is not complete in the directory is skipped. `policy` is the one
/// under which the ledgers were stored.
///
/// # Errors
/// As [`audit`].
pub fn audit_with(
    directory: &Path,
    extensions: &Extensions,
    ledgers: Option<LedgerRange>,
    policy: Policy,
    progress: &(dyn Fn(AuditProgress) + Sync),
) -> Result<Audit, StoreError> {
    if !holds_database(directory)? {
        return Err(StoreError::Empty(directory.to_owned()));
    }
    let _lock = DirectoryLock::take_shared(directory)?;
    read_back(directory, extensions, ledgers, policy, progress)
        .map_err(|error| error.while_reading(directory))
}

/// Audits a directory whose lock the caller holds.
fn read_back(
    directory: &Path,
    extensions: &Extensions,
    ledgers: Option<LedgerRange>,
    policy: Policy,
    progress: &(dyn Fn(AuditProgress) + Sync),
) -> Result<Audit, StoreError> {
    let problems = Problems::default();
    let last_write = acknowledged::read(directory).unwrap_or_else(|error| {
        problems.add(acknowledged::FILE.to_owned(), error.to_string());
        None
    });
    let raw = directory.join(RAW_DIRECTORY);
    log_files::check(&raw, last_write)?;
    let database = Database::open_read_only(&raw, &[])?;
    acknowledged::check(directory, last_write, database.sequence())?;
    format::check(&database, migrations::ALL)?;
    database.check_families()?;
    extensions.kinds.iter().try_for_each(|kind| check_shared_families(&database, kind))?;
    let network = stored_network(&database)?.ok_or(StoreError::Empty(directory.to_owned()))?;
    let subject = Subject {
        network: &network,
        coverage: Coverage::load(&database)?,
        totals: Totals::load(&database)?,
        removed: Removed::load(&database)?,
        wanted: ledgers.unwrap_or(ALL),
        marks: Mutex::new(Marks::load(&database)?.within(ledgers.unwrap_or(ALL))),
        policy,
        indexes: extensions.indexes.complete_in(&database)?,
        database,
        problems: &problems,
    };
    let ranges = chain::check(&subject)?;
    let checked = subject.check_contents(progress)?;
    problems.check_read()?;
    let (problems, more_problems) = problems.sorted();
    Ok(Audit {
        ranges,
        problems,
        more_problems,
        raw_ledgers: checked.raw_ledgers,
        without_events: checked.without_events,
        without_transactions: checked.without_transactions,
        marks: std::mem::take(&mut *subject.marks.lock()),
        network: network.clone(),
    })
}

/// Returns an error when only some of a kind's families exist. A directory that was never opened
/// with the kind has none of them.
fn check_shared_families(database: &Database, kind: &ConsumerKind) -> Result<(), StoreError> {
    let (there, missing): (Vec<&SharedFamily>, Vec<_>) =
        kind.families.iter().partition(|family| database.has_family(family.name));
    match missing.first() {
        Some(family) if !there.is_empty() => Err(StoreError::MissingFamily(family.name)),
        _ => Ok(()),
    }
}

const ALL: LedgerRange = LedgerRange { first: LedgerSeq(0), last: LedgerSeq(u32::MAX) };

/// A unit of work for a thread.
enum Task {
    /// Ledger ranges in the order of ingestion.
    Ledgers(Vec<LedgerRange>),
    /// All rows of an index.
    Index(usize, Index),
}

/// Sums and counts of one thread.
struct Sums {
    indexes: Tally,
    counted: Counted,
}

impl Subject<'_> {
    /// Reads contents and indexes with one thread per processor, and compares them.
    fn check_contents(
        &self,
        progress: &(dyn Fn(AuditProgress) + Sync),
    ) -> Result<Counted, StoreError> {
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
        self.check_totals(&sums.counted)?;
        let different = sums.indexes.differences();
        // Unreadable rows are missing on one side, and are reported already.
        if !different.is_empty() && sums.counted.unreadable == 0 {
            indexes::compare(self, &self.windows(), &different)?;
        }
        Ok(sums.counted)
    }

    fn no_sums(&self) -> Sums {
        Sums { indexes: Tally::new(self.indexes.len()), counted: Counted::default() }
    }

    /// Processes tasks until none is left or there are too many problems.
    fn sum_up<'t>(
        &self,
        next_task: &dyn Fn() -> Option<&'t Task>,
        are_done: &dyn Fn(u64),
    ) -> Result<Sums, StoreError> {
        let mut sums = self.no_sums();
        while let Some(task) = next_task()
            && !self.problems.limit_exceeded()
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

    /// Checks the totals against what was counted. This is only possible when all ledgers were
    /// wanted; and another problem would explain a difference.
    fn check_totals(&self, counted: &Counted) -> Result<(), StoreError> {
        if !self.is_whole() || !self.problems.is_empty() {
            return Ok(());
        }
        let wrong = |what| self.problems.add("meta 'totals'".to_owned(), what);
        let compared = [
            ("events", self.totals.events, counted.events),
            ("transactions", self.totals.transactions, counted.transactions),
        ];
        for (what, total, found) in compared.into_iter().filter(|(_, total, found)| total != found)
        {
            wrong(format!("it counts {total} {what}, and {found} are there"));
        }
        let latest = self.coverage.latest().map_or(Ok(None), |latest| self.ledger(latest))?;
        if latest.is_some_and(|latest| !self.totals.is_of_latest(&latest)) {
            wrong("it does not hold the close time of the newest ledger".to_owned());
        }
        Ok(())
    }

    /// Splits the wanted ledgers, in the order of their event ids, into units of [`WINDOW`]
    /// ledgers.
    fn windows(&self) -> Vec<Vec<LedgerRange>> {
        let (mut windows, mut window, mut free) = (Vec::new(), Vec::new(), WINDOW);
        for run in self.coverage.runs() {
            let mut left = LedgerRange {
                first: run.ledgers.first.max(self.wanted.first),
                last: run.ledgers.last.min(self.wanted.last),
            };
            while !left.is_empty() {
                let taken = left.len().min(free);
                // Within the range, so the addition cannot overflow.
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

    /// Returns the key of an event block outside the assigned ids, if there is one.
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

    /// Returns the key of a row outside the covered ranges, if there is one. The keys of the family
    /// must begin with the ledger sequence.
    fn stray_row(&self, family: Family) -> Result<Option<Vec<u8>>, StoreError> {
        let mut rows = self.database.rows_on_disk(family)?;
        let mut first = Some(LedgerSeq(0));
        let mut next_range = self.coverage.ranges();
        while let Some(gap) = first {
            let range = next_range.next();
            // Transaction keys begin with the ledger sequence as well.
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
