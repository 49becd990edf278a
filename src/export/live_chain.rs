//! Events and transactions for SQL on this machine: the files of a local export that runs, and in memory the rows of
//! stored ledgers that are in none of them: the newest, those before gaps, and backfills. Both have the columns of
//! the export, made by the same code.
//!
//! What a query finds is complete and has each row once: the stored ledgers are looked at first, then, under one
//! lock, the manifest, which says what is exported and in which files; the rest is read from the store. What retention
//! removed before was in the manifest by then, and of what it removes meanwhile the query looks again.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parking_lot::Mutex;

use super::directory;
use super::error::{ExportError, Result};
use super::layout::{EVENTS, TRANSACTIONS};
use super::live::{LiveFiles, directories};
use super::rows::{Columns, EventColumns, Rows, TransactionColumns};
use super::tail::{Making, NoTail, Tail};
use orrery_executables::{self as executables, Interfaces, Lacking};
use orrery_ledger::domain::{LedgerRange, LedgerSet, Page};
use orrery_store::{Bounds, EventQuery, Needs, Store, StoreError, TransactionQuery};
use orrery_tables::chain::{Chain, ChainContent, ChainSnapshot, ChainTable, MAX_BATCH_ROWS};
use orrery_tables::query::{Interrupted, QueryError};

/// Value of [`LiveChain::most`].
const MOST: (u64, usize) = (20_000, 64 << 20);
/// What the rows of each table are made of.
const NEEDS: [Needs; 2] = [
    Needs { raw_ledgers: false, events: true, transactions: false },
    Needs { raw_ledgers: false, events: false, transactions: true },
];
/// Size in memory up to which rows are made whatever is wanted, in bytes.
const LEAST_BYTES: usize = 16 << 20;
/// How often a query looks again when retention removes ledgers at the same time.
const ATTEMPTS: usize = 4;

/// Events and transactions for SQL.
pub struct LiveChain {
    store: Arc<Store>,
    /// Interfaces by which events are named, as in the export.
    names: Option<Arc<Interfaces>>,
    /// Directory of the export, an absolute path.
    root: PathBuf,
    /// Number of ledgers per portion of the export.
    portion: u32,
    tables: [ChainTable; 2],
    /// Maximum number of ledgers that are in no file and are read nevertheless, and the maximum size of their rows in a
    /// table in bytes.
    most: (u64, usize),
    manifest: Mutex<Read>,
    tails: [Mutex<Tail>; 2],
}

/// The manifest as it was read last.
#[derive(Default)]
struct Read {
    /// Inode, size and time of change of its file: every manifest is another file.
    file: Option<(u64, u64, i64, i64)>,
    files: Option<LiveFiles>,
}

/// Why rows of a ledger are not there.
enum NoRows {
    Interrupted,
    TooLarge,
    Store(String),
}

impl From<ArrowError> for NoRows {
    fn from(error: ArrowError) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<StoreError> for NoRows {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

impl LiveChain {
    /// Creates the tables of an export to `directory`, which writes `portion` ledgers at a time.
    ///
    /// # Errors
    /// When the path of the directory cannot be made absolute, or columns have types that SQL does not show.
    pub fn open(
        store: Arc<Store>,
        names: Option<Arc<Interfaces>>,
        directory: &Path,
        portion: u32,
    ) -> Result<Self> {
        let root = std::path::absolute(directory).map_err(super::error::at(directory))?;
        let tables = [table::<EventColumns>(EVENTS)?, table::<TransactionColumns>(TRANSACTIONS)?];
        let (manifest, tails) = Default::default();
        Ok(Self { store, names, root, portion, tables, most: MOST, manifest, tails })
    }

    /// Reads at most so many ledgers that are in no file, and so many bytes of their rows in a table.
    #[must_use]
    pub fn reading_at_most(self, ledgers: u64, bytes: usize) -> Self {
        Self { most: (ledgers, bytes), ..self }
    }

    /// Returns what the manifest says now.
    fn files(&self) -> Result<LiveFiles, QueryError> {
        let mut read = self.manifest.lock();
        let metadata = match self.root.join(super::manifest::NAME).metadata() {
            Ok(metadata) => {
                Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unreadable(error)),
        };
        match (&read.files, metadata) {
            (Some(files), Some(_)) if read.file == metadata => return Ok(files.clone()),
            // A disk that is not mounted looks like a new directory.
            (Some(_), None) => return Err(unreadable("the manifest of the export is gone")),
            (None, None) => return Ok(LiveFiles::none()),
            (_, Some(_)) => {}
        }
        let manifest = directory::peek(&self.root).map_err(unreadable)?;
        let manifest = manifest.ok_or_else(|| unreadable("the manifest of the export is gone"))?;
        let passphrase = self.store.network().passphrase();
        manifest.check_network(passphrase, &self.root.to_string_lossy()).map_err(unreadable)?;
        let files = LiveFiles::of(&manifest, &self.root);
        *read = Read { file: metadata, files: Some(files.clone()) };
        Ok(files)
    }

    fn attempt(
        &self,
        is_wanted: &dyn Fn(&ChainTable) -> bool,
        interrupted: Interrupted<'_>,
    ) -> Result<Option<ChainSnapshot>, QueryError> {
        // Ledgers are exported before they are removed: what is not among these is in the files found below.
        let status = self.store.status();
        let files = self.files()?;
        if let Some(names) = &self.names {
            names.wait_until_has(&Lacking::up_to(self.store.last_place()), names.most_waited());
        }
        let index = self.names.as_ref().and_then(|_| self.store.consumer(executables::CONSUMER));
        let unsettled = index.map(|index| self.store.ledgers_after(index.place));
        let unsettled = unsettled.unwrap_or_default();
        let mut tables = Vec::new();
        for (at, table) in self.tables.iter().enumerate().filter(|(_, table)| is_wanted(table)) {
            let mut missing = status.ledgers_with(NEEDS[at]);
            missing.remove_all(&files.ledgers);
            if missing.ledgers() > self.most.0 {
                return Err(self.behind(&missing, &format!("{} ledgers", self.most.0)));
            }
            let rows = self.tail(at, &missing, &unsettled, interrupted)?;
            let removed = self.store.removed(NEEDS[at]).map_err(unreadable)?;
            if missing.ranges().iter().any(|range| !removed.within(*range).is_empty()) {
                return Ok(None);
            }
            let files = if at == 0 { &files.events } else { &files.transactions };
            tables.push(ChainContent { table: table.name.clone(), files: Arc::clone(files), rows });
        }
        // Ledgers may have been stored and exported between both looks.
        let exported = files.ledgers.ranges().last().map(|range| range.last);
        Ok(Some(ChainSnapshot { newest: status.latest().max(exported), tables }))
    }

    fn tail(
        &self,
        table: usize,
        missing: &LedgerSet,
        unsettled: &LedgerSet,
        interrupted: Interrupted<'_>,
    ) -> Result<Vec<Arc<orrery_tables::chain::ChainRows>>, QueryError> {
        let mut make = |ledgers: LedgerRange, bytes: usize| {
            if interrupted() {
                return Err(NoRows::Interrupted);
            }
            match table {
                0 => self.events(ledgers, bytes),
                _ => self.transactions(ledgers, bytes),
            }
        };
        let mut making =
            Making { portion: self.portion, bytes: self.most.1, unsettled, make: &mut make };
        let rows = self.tails[table].lock().rows(missing, &mut making);
        rows.map_err(|error| match error {
            NoTail::TooLarge | NoTail::Failed(NoRows::TooLarge) => {
                self.behind(missing, &format!("{} MiB of rows", self.most.1 >> 20))
            }
            NoTail::Failed(NoRows::Interrupted) => QueryError::Interrupted,
            NoTail::Failed(NoRows::Store(error)) => unreadable(error),
        })
    }

    /// Returns the error for more rows outside of files than a query takes.
    fn behind(&self, missing: &LedgerSet, most: &str) -> QueryError {
        let lag = self.store.consumer(super::CONSUMER).map_or(0, |consumer| consumer.lag);
        QueryError::Unavailable(format!(
            "Of {} stored ledgers, events and transactions are in no file of the export yet, and SQL reads at most \
             {most} beside the files: the export is {lag} ledgers behind (see 'export' in /rest/health; a lower \
             export.ledgers_per_file keeps it nearer)",
            missing.ledgers()
        ))
    }

    fn events(&self, ledgers: LedgerRange, bytes: usize) -> Result<Vec<RecordBatch>, NoRows> {
        let names = self.names.as_ref().map(|names| names.loading_reader()).transpose()?;
        let network = self.store.network().id();
        let mut rows = Batches::<EventColumns>::new(bytes);
        let query = EventQuery::of_ledgers(ledgers);
        let walked = self.store.events_within(&query, Bounds::NONE, |event| {
            rows.push(|columns| columns.push(event, network, names.as_ref()))
        })?;
        if let Some(names) = &names {
            names.finish()?;
        }
        rows.finish(walked.broken_off)
    }

    fn transactions(&self, ledgers: LedgerRange, bytes: usize) -> Result<Vec<RecordBatch>, NoRows> {
        let mut rows = Batches::<TransactionColumns>::new(bytes);
        let query =
            TransactionQuery { ledgers: Some(ledgers), contracts: Vec::new(), page: Page::all() };
        let walked = self.store.transactions_within(&query, Bounds::NONE, |transaction| {
            rows.push(|columns| columns.push(transaction))
        })?;
        rows.finish(walked.broken_off)
    }
}

impl Chain for LiveChain {
    fn tables(&self) -> &[ChainTable] {
        &self.tables
    }

    fn directories(&self) -> Vec<PathBuf> {
        directories(&self.root)
    }

    fn snapshot(
        &self,
        is_wanted: &dyn Fn(&ChainTable) -> bool,
        interrupted: Interrupted<'_>,
    ) -> Result<ChainSnapshot, QueryError> {
        for _ in 0..ATTEMPTS {
            if let Some(found) = self.attempt(is_wanted, interrupted)? {
                return Ok(found);
            }
        }
        let sentence = "Retention is removing ledgers that SQL would read";
        Err(QueryError::Unavailable(sentence.to_owned()))
    }
}

impl std::fmt::Debug for LiveChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveChain").field("tables", &self.tables).finish_non_exhaustive()
    }
}

/// Returns the table of this name with the columns of its rows.
fn table<C: Columns>(name: &str) -> Result<ChainTable> {
    let schema = Rows::<C>::new().take()?.schema();
    let unknown = || ExportError::Place(format!("the columns of {name} have types that SQL lacks"));
    ChainTable::of(name, &schema).ok_or_else(unknown)
}

fn unreadable(error: impl std::fmt::Display) -> QueryError {
    // The client does not receive the details, which may reveal file paths.
    tracing::warn!("rows for chain.events or chain.transactions cannot be read: {error}");
    QueryError::Unavailable(
        "The stored events and transactions cannot be read right now".to_owned(),
    )
}

/// Collects rows as batches of at most [`MAX_BATCH_ROWS`].
struct Batches<C> {
    rows: Rows<C>,
    count: usize,
    batches: Vec<RecordBatch>,
    /// Size in memory of more rows than are wanted, in bytes, and that of these.
    most: usize,
    bytes: usize,
}

impl<C: Columns> Batches<C> {
    /// Creates a collection of rows, of which more than so many bytes are not wanted.
    fn new(wanted: usize) -> Self {
        // Columns that are being built take more memory than they need.
        let most = wanted.saturating_mul(4).max(LEAST_BYTES);
        Self { rows: Rows::new(), count: 0, batches: Vec::new(), most, bytes: 0 }
    }

    /// Adds a row, until they are too many.
    fn push(&mut self, append: impl FnOnce(&mut C) -> usize) -> ControlFlow<Option<ArrowError>> {
        let is_full = self.rows.push(append);
        self.count += 1;
        if !is_full && self.count < MAX_BATCH_ROWS {
            return ControlFlow::Continue(());
        }
        match self.take() {
            Ok(()) if self.bytes <= self.most => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(None),
            Err(error) => ControlFlow::Break(Some(error)),
        }
    }

    fn take(&mut self) -> Result<(), ArrowError> {
        if self.count > 0 {
            let batch = self.rows.take()?;
            self.bytes += batch.get_array_memory_size();
            self.batches.push(batch);
            self.count = 0;
        }
        Ok(())
    }

    /// Returns the rows, unless one could not be added, or they were too many.
    fn finish(mut self, ended: Option<Option<ArrowError>>) -> Result<Vec<RecordBatch>, NoRows> {
        match ended {
            Some(Some(error)) => return Err(error.into()),
            Some(None) => return Err(NoRows::TooLarge),
            None => self.take()?,
        }
        Ok(self.batches)
    }
}
