//! Writes stored events, transactions and the tables of programs as Parquet files that other engines read. Knows where an export is and when a
//! file counts; `docs/export.md` describes it for readers.
//!
//! Ledgers are exported in portions whose bounds depend on their sequence numbers alone. The files of a
//! portion are written first ([`files`]); then one replacement of the manifest makes the portion part of the export.
//! An export that was killed goes on with the first portion that the manifest does not have, and removes files that it
//! does not name. A place is a [`directory`] or a [`bucket`]; both exclude a second export. [`continuous`] exports what
//! is complete while ledgers are stored, and [`due`] says what that is.

mod bucket;
mod continuous;
mod directory;
mod due;
mod error;
mod files;
mod manifest;
mod place;
mod programs;
mod rows;

use std::ops::ControlFlow;

use crate::domain::{Direction, LedgerRange, LedgerSeq, LedgerSet, Page};
use crate::store::{Bounds, EventQuery, Store, TopicFilter, TransactionQuery};
pub use continuous::{AddedNow, CONSUMER, Continuous, Progress, Taken, consumer};
pub use error::ExportError;
use files::{Numbers, TableWriter};
pub use manifest::{DataFile, ExportedProgram, ExportedTable, Manifest, Tables, Writer};
use place::Held;
pub use place::{Interrupt, Place, Who};
pub use programs::AddedRows;
use rows::{EventRows, TransactionRows};

/// Name of the directory with files of events.
pub const EVENTS: &str = "events";
/// Name of the directory with files of transactions.
pub const TRANSACTIONS: &str = "transactions";
/// Name of the directory with directories of programs.
pub const PROGRAMS: &str = "programs";
/// Directories with files that belong to portions of ledgers.
const TABLES: [&str; 2] = [EVENTS, TRANSACTIONS];

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

/// A place with an export, to which nobody else writes meanwhile.
pub struct Export {
    held: Held,
    manifest: Manifest,
    interrupt: Interrupt,
    /// Whether retention may remove what is read, which it then notes as lost to [`CONSUMER`].
    beside_retention: bool,
}

impl Export {
    /// Opens the export in a place, or begins one in a place that is new or empty. It ends early at an interruption.
    ///
    /// # Errors
    /// When there is something else, an export of another network, or one that is being written to.
    pub fn open(place: &Place, store: &Store, interrupt: Interrupt) -> Result<Self, ExportError> {
        let (held, manifest) = place.take(store.network().passphrase(), false)?;
        Ok(Self { held, manifest, interrupt, beside_retention: false })
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
        mut report: impl FnMut(&Manifest, LedgerSeq) -> ControlFlow<()>,
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
            for ledgers in due::portions(*range, portion) {
                let (events, transactions) = self.add_portion(store, ledgers)?;
                added.ledgers += ledgers.len();
                added.events += events;
                added.transactions += transactions;
                if report(&self.manifest, ledgers.last).is_break() {
                    return Ok(added);
                }
            }
        }
        Ok(added)
    }

    /// Ends it, so that others may write. One that is dropped instead counts as killed.
    ///
    /// # Errors
    /// When a bucket cannot be told. What was added stays.
    pub fn finish(self) -> Result<Manifest, ExportError> {
        let Self { held, mut manifest, .. } = self;
        held.release(&mut manifest)?;
        Ok(manifest)
    }

    fn add_portion(
        &mut self,
        store: &Store,
        ledgers: LedgerRange,
    ) -> Result<(u64, u64), ExportError> {
        let events = self.write_events(store, ledgers)?;
        let transactions = self.write_transactions(store, ledgers)?;
        // What was read of ledgers that are not lost now was all there.
        if self.beside_retention
            && let Some(lost) = store.lost_among(CONSUMER, ledgers).ranges().first()
        {
            return Err(ExportError::Lost(*lost));
        }
        let rows = |files: &[DataFile]| files.iter().map(|file| file.rows).sum();
        let counts = (rows(&events), rows(&transactions));
        let mut manifest = self.manifest.clone();
        manifest.add(ledgers, events, transactions);
        self.held.write_manifest(&mut manifest)?;
        self.manifest = manifest;
        Ok(counts)
    }

    fn write_events(
        &self,
        store: &Store,
        ledgers: LedgerRange,
    ) -> Result<Vec<DataFile>, ExportError> {
        let mut rows = EventRows::new();
        let mut writer = TableWriter::new(&self.held, EVENTS, Numbers::OfPortion, rows.schema());
        let page = Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
        let topics = TopicFilter::default();
        let query = EventQuery { ledgers: Some(ledgers), contracts: Vec::new(), topics, page };
        let mut written = Ok(());
        store.events_within(&query, Bounds::NONE, |event| {
            rows.push(event);
            if rows.is_full() {
                let batch = self.unless_interrupted().and_then(|()| Ok(rows.take()?));
                written = batch.and_then(|batch| writer.write(&batch, ledgers));
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        written?;
        writer.write(&rows.take()?, ledgers)?;
        writer.finish()
    }

    fn write_transactions(
        &self,
        store: &Store,
        ledgers: LedgerRange,
    ) -> Result<Vec<DataFile>, ExportError> {
        let mut rows = TransactionRows::new();
        let mut writer =
            TableWriter::new(&self.held, TRANSACTIONS, Numbers::OfPortion, rows.schema());
        let page = Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) };
        let query = TransactionQuery { ledgers: Some(ledgers), contracts: Vec::new(), page };
        let mut written = Ok(());
        store.transactions_within(&query, Bounds::NONE, |transaction| {
            rows.push(transaction);
            if rows.is_full() {
                let batch = self.unless_interrupted().and_then(|()| Ok(rows.take()?));
                written = batch.and_then(|batch| writer.write(&batch, ledgers));
            }
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        written?;
        writer.write(&rows.take()?, ledgers)?;
        writer.finish()
    }

    fn unless_interrupted(&self) -> Result<(), ExportError> {
        if self.interrupt.is_raised() { Err(ExportError::Interrupted) } else { Ok(()) }
    }
}
