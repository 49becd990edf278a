//! Writes stored events, transactions and the tables of programs as Parquet files for other query
//! engines. Defines where an export is and when a file becomes part of it; `docs/export.md`
//! describes the format for readers. Does not depend on HTTP or on the service.
//!
//! Ledgers are exported in portions whose bounds depend on their sequence numbers alone. The files
//! of a portion are written first ([`files`]); then one replacement of the manifest makes the
//! portion part of the export; then metadata of tables ([`lake`], [`steps`]) and the [`views`] follow the
//! manifest, and small files are merged ([`merge`]). An export that was killed continues with the first portion
//! that is missing from the manifest, writes what it has not written any more, and removes files that the
//! manifest does not name. The destination is a [`directory`] or a [`bucket`]; both exclude a second export.
//! [`continuous`] exports complete portions while ledgers are being stored; [`portions`] decides which portions
//! are complete. [`listed`] tells a catalogue which tables there are.

mod bucket;
mod columns;
mod continuous;
mod destination;
mod digest;
mod directory;
mod error;
mod files;
mod interrupt;
mod lake;
mod layout;
mod listed;
mod live;
mod live_chain;
mod manifest;
mod merge;
mod merged_rows;
mod portions;
mod programs;
mod replaced;
mod rows;
mod spool;
mod steps;
mod tail;
mod views;
#[cfg(test)]
mod year;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

pub use bucket::ExporterIdentity;
pub use continuous::{AddedNow, CONSUMER, Continuous, ExportScope, Progress, consumer};
pub use destination::Destination;
use destination::LockedDestination;
pub use error::{ExportError, Result};
use files::{TableWriter, Target};
pub use interrupt::Interrupt;
pub use layout::{EVENTS, PROGRAMS, TRANSACTIONS};
pub use listed::{Listed, ListedNow};
pub use live_chain::LiveChain;
pub use manifest::{
    AttestedLedgers, ChainTable, ChainTables, DataFile, ExportedProgram, ExportedTable, Manifest,
    Tables, Writer,
};
use orrery_executables::Interfaces;
use orrery_iceberg::{Change, Columns as TableColumns, Commit};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Page};
use orrery_pipeline::attestation::Attestation;
use orrery_runtime::steady::{Milliseconds, unix_now_ms};
use orrery_store::{Bounds, EventQuery, Needs, Store, TransactionQuery};
pub use programs::AddedRows;
use rows::{Columns, EventColumns, Rows, TransactionColumns};
pub use spool::Spool;

/// Ledgers and rows that one run of an export has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Added {
    /// Number of ledgers that were not in the export before.
    pub ledgers: u64,
    /// Number of event rows.
    pub events: u64,
    /// Number of transaction rows.
    pub transactions: u64,
}

/// An opened export, with exclusive write access to its destination.
pub struct Export {
    destination: LockedDestination,
    manifest: Manifest,
    options: Options,
    /// UUIDs of tables whose files cannot be merged.
    unmerged: BTreeSet<String>,
    /// Whether files may have been written that the manifest does not name, because something failed.
    has_strays: bool,
}

/// What an export does beside adding rows, and how. The default is an export by hand.
#[derive(Clone)]
pub(crate) struct Options {
    interrupt: Interrupt,
    /// Whether retention may remove ledgers while they are being read; it then records them as lost
    /// to [`CONSUMER`].
    beside_retention: bool,
    /// Interfaces by which events are named.
    names: Option<Arc<Interfaces>>,
    /// What the manifest says to be attested.
    attested: Attestations,
    /// The current UNIX time.
    clock: Milliseconds,
    /// Where a catalogue looks for the tables.
    listed: Option<Listed>,
    /// Size in bytes at which a file is finished, and above which none is merged.
    file_bytes: usize,
}

impl Options {
    fn new(interrupt: Interrupt) -> Self {
        Self {
            interrupt,
            beside_retention: false,
            names: None,
            attested: Attestations::Unknown,
            clock: Arc::new(unix_now_ms),
            listed: None,
            file_bytes: layout::MAX_BYTES,
        }
    }

    /// Returns the current UNIX time in milliseconds.
    fn now_ms(&self) -> i64 {
        i64::try_from((self.clock)()).unwrap_or(i64::MAX)
    }
}

/// How an export learns which ledgers are attested.
#[derive(Debug, Clone, Default)]
pub enum Attestations {
    /// It does not.
    #[default]
    Unknown,
    /// These are, of those in the store.
    Ledgers(LedgerSet),
    /// By this, whenever the manifest is written.
    Live(Arc<Attestation>),
}

impl Attestations {
    fn ledgers(&self, store: &Store) -> LedgerSet {
        match self {
            Self::Unknown => LedgerSet::default(),
            Self::Ledgers(ledgers) => ledgers.clone(),
            Self::Live(attestation) => attestation.ledgers(store),
        }
    }
}

impl Export {
    /// Opens the export at `destination`, or creates one where that is new or empty. Adding to
    /// it ends early when `interrupt` is raised.
    ///
    /// # Errors
    /// When the destination holds other files, an export of another network or place, or an export that is
    /// being written to.
    pub fn open(destination: &Destination, store: &Store, interrupt: Interrupt) -> Result<Self> {
        let passphrase = store.network().passphrase();
        Self::open_with(destination, passphrase, false, Options::new(interrupt))
    }

    /// As [`Self::open`], for an export whose files were moved or copied to this destination. Its tables have
    /// the new place when this returns.
    ///
    /// # Errors
    /// As [`Self::open`], and when the new place cannot be written.
    pub fn rebase(destination: &Destination, store: &Store, interrupt: Interrupt) -> Result<Self> {
        let (passphrase, options) = (store.network().passphrase(), Options::new(interrupt));
        let (locked, manifest) = destination.acquire(passphrase, true, true)?;
        let mut export = Self::of(locked, manifest, options)?;
        let change = Change { rebase: true, ..Change::at(export.options.now_ms()) };
        let manifest = export.manifest.clone();
        export.put_with(manifest, Vec::new(), lake::Due { change, is_last: true })?;
        export.destination.write_views(&mut export.manifest)?;
        Ok(export)
    }

    fn open_with(
        destination: &Destination,
        passphrase: &str,
        must_exist: bool,
        options: Options,
    ) -> Result<Self> {
        let (destination, manifest) = destination.acquire(passphrase, must_exist, false)?;
        Self::of(destination, manifest, options)
    }

    /// The tables of events and transactions have the columns that rows have now.
    fn of(
        destination: LockedDestination,
        mut manifest: Manifest,
        options: Options,
    ) -> Result<Self> {
        let passphrase = manifest.network_passphrase.clone();
        let chain = &mut manifest.chain;
        for (name, identity, schema) in [
            (EVENTS, &mut chain.events.identity, Rows::<EventColumns>::new().take()?.schema()),
            (
                TRANSACTIONS,
                &mut chain.transactions.identity,
                Rows::<TransactionColumns>::new().take()?.schema(),
            ),
        ] {
            if identity.uuid.is_empty() {
                *identity = columns::of_table(&[&passphrase, name]);
            }
            identity.set(&columns::columns_of(&schema, |_| None));
        }
        let (unmerged, has_strays) = (BTreeSet::new(), false);
        Ok(Self { destination, manifest, options, unmerged, has_strays })
    }

    /// Names events by these interfaces, and exports the tables of projects of events too.
    #[must_use]
    pub fn naming(mut self, names: Arc<Interfaces>) -> Self {
        self.options.names = Some(names);
        self
    }

    /// Records in the manifest which of the exported ledgers are attested.
    #[must_use]
    pub fn attested_by(mut self, attested: Attestations) -> Self {
        self.options.attested = attested;
        self
    }

    /// Takes the UNIX time in milliseconds from this clock.
    #[must_use]
    pub fn timed_by(mut self, clock: Milliseconds) -> Self {
        self.options.clock = clock;
        self
    }

    /// Returns the manifest, which describes the content of the export.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Adds the `wanted` ledgers that are not in the export yet, in portions of `portion` ledgers
    /// that begin at its multiples, and calls `report` with the last ledger of each. `report` can
    /// stop the export by returning `Break`.
    ///
    /// # Errors
    /// When ledgers are not stored, or something cannot be read or written. Portions that were
    /// added before stay.
    pub fn add(
        &mut self,
        store: &Store,
        wanted: &LedgerSet,
        portion: u32,
        mut report: impl FnMut(&Manifest, LedgerSeq) -> ControlFlow<()>,
    ) -> Result<Added> {
        let mut left = wanted.clone();
        left.remove_all(&self.manifest.ledgers);
        let mut missing = left.clone();
        missing.remove_all(&store.status().ranges.into_iter().collect());
        if let Some(range) = missing.ranges().first() {
            return Err(ExportError::Missing(*range));
        }
        let mut complete = left.clone();
        complete.remove_all(&store.removed(Needs::RECORDS)?);
        let mut removed = left.clone();
        removed.remove_all(&complete);
        if let Some(range) = removed.ranges().first() {
            return Err(ExportError::Pruned(*range));
        }
        let mut added = Added::default();
        for range in left.ranges() {
            for ledgers in portions::portions(*range, portion) {
                let (events, transactions) = self.add_portion(store, ledgers)?;
                added.ledgers += ledgers.len();
                added.events += events;
                added.transactions += transactions;
                self.merge()?;
                if report(&self.manifest, ledgers.last).is_break() {
                    return Ok(added);
                }
            }
        }
        Ok(added)
    }

    /// Closes the export, so that other exporters may write, and makes tables and views those of its files.
    /// One that is dropped instead counts as killed.
    ///
    /// # Errors
    /// When the tables or views cannot be written, or the manifest in a bucket cannot be updated. What was
    /// added stays.
    pub fn finish(mut self) -> Result<Manifest> {
        let due = self.due(true);
        if self.is_behind(due) {
            self.put_with(self.manifest.clone(), Vec::new(), due)?;
        }
        match self.merge() {
            // They are merged another time.
            Ok(()) | Err(ExportError::Interrupted) => {}
            Err(error) => return Err(error),
        }
        let Self { mut destination, mut manifest, has_strays, .. } = self;
        destination.write_views(&mut manifest)?;
        if has_strays {
            destination.remove_strays(&manifest)?;
        }
        destination.release(&mut manifest)?;
        Ok(manifest)
    }

    /// Returns what files are written for.
    fn target(&self) -> Target<'_> {
        let Self { destination, manifest, options, .. } = self;
        Target { destination, manifest, file_bytes: options.file_bytes }
    }

    /// Returns what commits are to do now. `is_last` says that nothing is added after them.
    fn due(&self, is_last: bool) -> lake::Due {
        lake::Due { change: Change::at(self.options.now_ms()), is_last }
    }

    fn is_behind(&mut self, due: lake::Due) -> bool {
        let root = self.destination.root();
        let place = lake::Place { root: &root, mark: self.destination.mark() };
        lake::is_behind(&mut self.manifest, place, due)
    }

    /// Makes this the manifest, and commits those tables that are due. `retired` are paths of files that it
    /// does not name any more, and that were never part of a snapshot.
    fn put(&mut self, manifest: Manifest, retired: Vec<String>) -> Result<()> {
        self.put_with(manifest, retired, self.due(false))
    }

    fn put_with(
        &mut self,
        mut manifest: Manifest,
        retired: Vec<String>,
        due: lake::Due,
    ) -> Result<()> {
        let root = self.destination.root();
        let place = lake::Place { root: &root, mark: self.destination.mark() };
        let commits = lake::commits(&mut manifest, place, due)?;
        self.write(manifest, commits, retired)
    }

    /// Writes a manifest with these commits of its tables.
    fn write(
        &mut self,
        mut manifest: Manifest,
        commits: Vec<Commit>,
        retired: Vec<String>,
    ) -> Result<()> {
        let has_commits = !commits.is_empty();
        self.destination.write(&mut manifest, commits, retired)?;
        self.manifest = manifest;
        if let Some(listed) = self.options.listed.as_ref().filter(|_| has_commits) {
            listed.set(&self.destination.root(), &self.manifest);
        }
        Ok(())
    }

    fn add_portion(&mut self, store: &Store, ledgers: LedgerRange) -> Result<(u64, u64)> {
        let events = self.write_events(store, ledgers)?;
        let transactions = self.write_transactions(store, ledgers)?;
        // Other ledgers were complete when they were read.
        if let Some(removed) = store.removed(Needs::RECORDS)?.within(ledgers).ranges().first() {
            return Err(ExportError::Lost(*removed));
        }
        // What is lost to the export must not be in it, even if it is not removed yet.
        if self.options.beside_retention
            && let Some(lost) = store.lost_among(CONSUMER, ledgers).ranges().first()
        {
            return Err(ExportError::Lost(*lost));
        }
        let rows = |files: &[DataFile]| files.iter().map(|file| file.rows).sum();
        let counts = (rows(&events), rows(&transactions));
        let mut manifest = self.manifest.clone();
        manifest.add(ledgers, events, transactions);
        manifest.attest(&self.options.attested.ledgers(store));
        self.put(manifest, Vec::new())?;
        Ok(counts)
    }

    fn write_events(&self, store: &Store, ledgers: LedgerRange) -> Result<Vec<DataFile>> {
        let names = self.options.names.as_ref().map(|names| names.loading_reader()).transpose()?;
        let network = store.network().id();
        let identity = &self.manifest.chain.events.identity;
        let mut portion = PortionWriter::new(self, EVENTS, identity, ledgers)?;
        let walked =
            store.events_within(&EventQuery::of_ledgers(ledgers), Bounds::NONE, |event| {
                portion
                    .push(|columns: &mut EventColumns| columns.push(event, network, names.as_ref()))
            })?;
        if let Some(names) = &names {
            names.finish()?;
        }
        portion.finish(walked.broken_off)
    }

    fn write_transactions(&self, store: &Store, ledgers: LedgerRange) -> Result<Vec<DataFile>> {
        let identity = &self.manifest.chain.transactions.identity;
        let mut portion = PortionWriter::new(self, TRANSACTIONS, identity, ledgers)?;
        let (ledgers, contracts, page) = (Some(ledgers), Vec::new(), Page::all());
        let query = TransactionQuery { ledgers, contracts, page };
        let walked = store.transactions_within(&query, Bounds::NONE, |transaction| {
            portion.push(|columns: &mut TransactionColumns| columns.push(transaction))
        })?;
        portion.finish(walked.broken_off)
    }

    fn check_interrupt(&self) -> Result<()> {
        if self.options.interrupt.is_raised() { Err(ExportError::Interrupted) } else { Ok(()) }
    }
}

/// Writes the rows of a portion to a table.
struct PortionWriter<'e, C> {
    export: &'e Export,
    ledgers: LedgerRange,
    rows: Rows<C>,
    writer: TableWriter<'e>,
}

impl<'e, C: Columns> PortionWriter<'e, C> {
    fn new(
        export: &'e Export,
        table: &'static str,
        identity: &TableColumns,
        ledgers: LedgerRange,
    ) -> Result<Self> {
        let mut rows = Rows::new();
        // The columns are the same with and without rows.
        let schema = columns::numbered(identity, &rows.take()?.schema());
        let writer = TableWriter::new(export.target(), table, schema);
        Ok(Self { export, ledgers, rows, writer })
    }

    /// Appends a row with `append`, as [`Rows::push`] does.
    fn push(&mut self, append: impl FnOnce(&mut C) -> usize) -> ControlFlow<ExportError> {
        if !self.rows.push(append) {
            return ControlFlow::Continue(());
        }
        match self.export.check_interrupt().and_then(|()| self.write()) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    fn write(&mut self) -> Result<()> {
        self.writer.write(&self.rows.take()?, self.ledgers)
    }

    /// Returns the files with all rows, unless a row could not be written.
    fn finish(mut self, failed: Option<ExportError>) -> Result<Vec<DataFile>> {
        failed.map_or(Ok(()), Err)?;
        self.write()?;
        self.writer.finish()
    }
}
