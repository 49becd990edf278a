//! Writes stored events and transactions as Parquet files that other engines read. Knows the directory of
//! an export and when a file counts; `docs/export.md` describes it for readers.
//!
//! Ledgers are exported in portions whose bounds depend on their sequence numbers alone. The files of a
//! portion are written under other names, synced and renamed; then one replacement of the manifest makes
//! the portion part of the export. An export that was killed goes on with the first portion that the
//! manifest does not have, and removes files that it does not name.

mod files;
mod manifest;
mod rows;

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use arrow::error::ArrowError;
use parquet::errors::ParquetError;

use crate::domain::{Direction, LedgerRange, LedgerSeq, LedgerSet, Page};
use crate::store::{Bounds, EventQuery, Store, StoreError, TopicFilter, TransactionQuery};
use files::TableWriter;
pub use manifest::{DataFile, Manifest, Tables};
use rows::{EventRows, TransactionRows};

/// Name of the directory with files of events.
pub const EVENTS: &str = "events";
/// Name of the directory with files of transactions.
pub const TRANSACTIONS: &str = "transactions";
const LOCK: &str = "export.lock";

/// Why an export cannot go on. What the manifest names is whole in every case.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// Ledgers that are wanted are not stored.
    #[error("ledgers {} to {} are not stored, so they cannot be exported", .0.first, .0.last)]
    Missing(LedgerRange),
    /// Events of ledgers that are wanted have been pruned.
    #[error("events of ledgers before {0} have been pruned: export from {0}")]
    Pruned(LedgerSeq),
    /// The directory is not that of an export.
    #[error("{} is neither empty nor an export: name another directory", .0.display())]
    NotAnExport(PathBuf),
    /// The directory holds ledgers of another network.
    #[error("{} holds an export of the network '{exported}', not of '{stored}'", directory.display())]
    OtherNetwork {
        /// Directory of the export.
        directory: PathBuf,
        /// Passphrase that its manifest names.
        exported: String,
        /// Passphrase of the store.
        stored: String,
    },
    /// Another process writes there.
    #[error("another export is writing to {}", .0.display())]
    InUse(PathBuf),
    /// The manifest says something that this version does not write.
    #[error("{} is not a manifest that this version can go on with: {reason}", path.display())]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or directory cannot be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Rows cannot be made into columns.
    #[error("rows cannot be made into columns: {0}")]
    Columns(#[from] ArrowError),
    /// A Parquet file cannot be written.
    #[error("a Parquet file cannot be written: {0}")]
    Parquet(#[from] ParquetError),
    /// What the store says.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Adds the path to what the operating system says.
fn at(path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::File { path, source }
}

/// What one run has added to an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Added {
    /// Ledgers that were not in the export.
    pub ledgers: u64,
    /// Rows of events.
    pub events: u64,
    /// Rows of transactions.
    pub transactions: u64,
}

/// A directory with an export, which nobody else writes to meanwhile.
pub struct Export {
    directory: PathBuf,
    manifest: Manifest,
    /// Held, not read.
    _lock: File,
}

impl Export {
    /// Opens the export in a directory, or begins one in a directory that is new or empty.
    ///
    /// # Errors
    /// When the directory holds something else, an export of another network, or is being written to.
    pub fn open(directory: &Path, store: &Store) -> Result<Self, ExportError> {
        fs::create_dir_all(directory).map_err(at(directory))?;
        let begun = directory.join(manifest::NAME).exists();
        if !begun && !is_fresh(directory)? {
            return Err(ExportError::NotAnExport(directory.to_owned()));
        }
        let lock_path = directory.join(LOCK);
        let lock = File::create(&lock_path).map_err(at(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ExportError::InUse(directory.to_owned()),
            TryLockError::Error(source) => at(&lock_path)(source),
        })?;
        let stored = store.network().passphrase();
        // Read under the lock: another export may have begun it meanwhile.
        let manifest = match Manifest::read(directory)? {
            Some(manifest) => manifest,
            None => {
                let manifest = Manifest::new(stored);
                manifest.write(directory)?;
                manifest
            }
        };
        if manifest.network_passphrase != stored {
            return Err(ExportError::OtherNetwork {
                directory: directory.to_owned(),
                exported: manifest.network_passphrase,
                stored: stored.to_owned(),
            });
        }
        for table in [EVENTS, TRANSACTIONS] {
            let path = directory.join(table);
            fs::create_dir_all(&path).map_err(at(&path))?;
            files::remove_strays(&path, |name| manifest.names(&format!("{table}/{name}")))?;
        }
        File::open(directory).and_then(|opened| opened.sync_all()).map_err(at(directory))?;
        Ok(Self { directory: directory.to_owned(), manifest, _lock: lock })
    }

    /// What the export holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Adds those of the ledgers that are not in the export yet, in portions of `portion` ledgers that
    /// begin at its multiples, and calls `report` with the last ledger of each; it may break off.
    ///
    /// # Errors
    /// When ledgers are not stored, or something cannot be read or written. Portions before that stay.
    pub fn add(
        &mut self,
        store: &Store,
        wanted: &LedgerSet,
        portion: u32,
        mut report: impl FnMut(LedgerSeq) -> ControlFlow<()>,
    ) -> Result<Added, ExportError> {
        let mut left = wanted.clone();
        left.remove_all(&self.manifest.exported());
        let mut missing = left.clone();
        missing.remove_all(&store.status().ranges.into_iter().collect());
        if let Some(range) = missing.ranges().first() {
            return Err(ExportError::Missing(*range));
        }
        let events_from = store.ends().events_from;
        if left.ranges().first().is_some_and(|range| range.first < events_from) {
            return Err(ExportError::Pruned(events_from));
        }
        let mut added = Added::default();
        for range in left.ranges() {
            let mut first = Some(range.first);
            while let Some(begin) = first.filter(|begin| *begin <= range.last) {
                let end = portion_end(begin, portion).min(range.last);
                let ledgers = LedgerRange { first: begin, last: end };
                let (events, transactions) = self.add_portion(store, ledgers)?;
                added.ledgers += ledgers.len();
                added.events += events;
                added.transactions += transactions;
                if report(end).is_break() {
                    return Ok(added);
                }
                first = end.next();
            }
        }
        Ok(added)
    }

    fn add_portion(
        &mut self,
        store: &Store,
        ledgers: LedgerRange,
    ) -> Result<(u64, u64), ExportError> {
        let events = self.write_events(store, ledgers)?;
        let transactions = self.write_transactions(store, ledgers)?;
        let rows = |files: &[DataFile]| files.iter().map(|file| file.rows).sum();
        let counts = (rows(&events), rows(&transactions));
        let mut manifest = self.manifest.clone();
        manifest.add(ledgers, events, transactions);
        manifest.write(&self.directory)?;
        self.manifest = manifest;
        Ok(counts)
    }

    fn write_events(
        &self,
        store: &Store,
        ledgers: LedgerRange,
    ) -> Result<Vec<DataFile>, ExportError> {
        let mut rows = EventRows::new();
        let mut writer = TableWriter::new(&self.directory, EVENTS, rows.schema(), ledgers);
        let page = Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
        let topics = TopicFilter::default();
        let query = EventQuery { ledgers: Some(ledgers), contracts: Vec::new(), topics, page };
        let mut written = Ok(());
        store.events_within(&query, Bounds::NONE, |event| {
            rows.push(event);
            if rows.is_full() {
                written = rows.take().map_err(Into::into).and_then(|batch| writer.write(&batch));
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        written?;
        writer.write(&rows.take()?)?;
        writer.finish()
    }

    fn write_transactions(
        &self,
        store: &Store,
        ledgers: LedgerRange,
    ) -> Result<Vec<DataFile>, ExportError> {
        let mut rows = TransactionRows::new();
        let mut writer = TableWriter::new(&self.directory, TRANSACTIONS, rows.schema(), ledgers);
        let page = Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
        let query = TransactionQuery { ledgers: Some(ledgers), contracts: Vec::new(), page };
        let mut written = Ok(());
        store.transactions_within(&query, Bounds::NONE, |transaction| {
            rows.push(transaction);
            if rows.is_full() {
                written = rows.take().map_err(Into::into).and_then(|batch| writer.write(&batch));
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        written?;
        writer.write(&rows.take()?)?;
        writer.finish()
    }
}

/// The last ledger of the portion that a ledger belongs to.
fn portion_end(ledger: LedgerSeq, portion: u32) -> LedgerSeq {
    let portion = portion.max(1);
    LedgerSeq((ledger.0 - ledger.0 % portion).saturating_add(portion - 1))
}

/// Whether nothing is there but what an export leaves that was killed before it wrote a manifest.
fn is_fresh(directory: &Path) -> Result<bool, ExportError> {
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let name = entry.map_err(at(directory))?.file_name();
        if name != LOCK && name != manifest::DRAFT {
            return Ok(false);
        }
    }
    Ok(true)
}
