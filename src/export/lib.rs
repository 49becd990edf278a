//! Writes stored events, transactions and the tables of programs as Parquet files for other query
//! engines. Defines where an export is and when a file becomes part of it; `docs/export.md`
//! describes the format for readers. Does not depend on HTTP or on the service.
//!
//! Ledgers are exported in portions whose bounds depend on their sequence numbers alone. The files
//! of a portion are written first ([`files`]); then one replacement of the manifest makes the
//! portion part of the export; then the [`views`] follow the manifest. An export that was killed continues with the first portion that is
//! missing from the manifest, and removes files that the manifest does not name. The destination is
//! a [`directory`] or a [`bucket`]; both exclude a second export. [`continuous`] exports complete
//! portions while ledgers are being stored; [`portions`] decides which portions are complete.

mod bucket;
mod columns;
mod continuous;
mod destination;
mod directory;
mod error;
mod files;
mod interrupt;
mod layout;
mod live;
mod live_chain;
mod manifest;
mod portions;
mod programs;
mod rows;
mod tail;
mod views;

use std::ops::ControlFlow;
use std::sync::Arc;

pub use bucket::ExporterIdentity;
pub use columns::{ExportedField, TableIdentity};
pub use continuous::{AddedNow, CONSUMER, Continuous, ExportScope, Progress, consumer};
pub use destination::Destination;
use destination::LockedDestination;
pub use error::{ExportError, Result};
use files::TableWriter;
pub use interrupt::Interrupt;
pub use layout::{EVENTS, PROGRAMS, TRANSACTIONS};
pub use live_chain::LiveChain;
pub use manifest::{
    AttestedLedgers, ChainTables, DataFile, ExportedProgram, ExportedTable, Manifest, Tables,
    Writer,
};
use orrery_executables::Interfaces;
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Page};
use orrery_pipeline::attestation::Attestation;
use orrery_store::{Bounds, EventQuery, Needs, Store, TransactionQuery};
pub use programs::AddedRows;
use rows::{Columns, EventColumns, Rows, TransactionColumns};

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
    interrupt: Interrupt,
    /// Whether retention may remove ledgers while they are being read; it then records them as lost
    /// to [`CONSUMER`].
    beside_retention: bool,
    /// Interfaces by which events are named.
    names: Option<Arc<Interfaces>>,
    /// What the manifest says to be attested.
    attested: Attestations,
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
    /// When the destination holds other files, an export of another network, or an export that is
    /// being written to.
    pub fn open(destination: &Destination, store: &Store, interrupt: Interrupt) -> Result<Self> {
        let (destination, manifest) = destination.acquire(store.network().passphrase(), false)?;
        Ok(Self {
            destination,
            manifest,
            interrupt,
            beside_retention: false,
            names: None,
            attested: Attestations::Unknown,
        })
    }

    /// Names events by these interfaces, and exports the tables of projects of events too.
    #[must_use]
    pub fn naming(self, names: Arc<Interfaces>) -> Self {
        Self { names: Some(names), ..self }
    }

    /// Records in the manifest which of the exported ledgers are attested.
    #[must_use]
    pub fn attested_by(self, attested: Attestations) -> Self {
        Self { attested, ..self }
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
                if report(&self.manifest, ledgers.last).is_break() {
                    return Ok(added);
                }
            }
        }
        Ok(added)
    }

    /// Closes the export, so that other exporters may write, and makes the views those of its files. One
    /// that is dropped instead counts as killed.
    ///
    /// # Errors
    /// When the views cannot be written, or the manifest in a bucket cannot be updated. What was added
    /// stays.
    pub fn finish(self) -> Result<Manifest> {
        let Self { mut destination, mut manifest, .. } = self;
        destination.write_views(&mut manifest)?;
        destination.release(&mut manifest)?;
        Ok(manifest)
    }

    fn add_portion(&mut self, store: &Store, ledgers: LedgerRange) -> Result<(u64, u64)> {
        let events = self.write_events(store, ledgers)?;
        let transactions = self.write_transactions(store, ledgers)?;
        // Other ledgers were complete when they were read.
        if let Some(removed) = store.removed(Needs::RECORDS)?.within(ledgers).ranges().first() {
            return Err(ExportError::Lost(*removed));
        }
        // What is lost to the export must not be in it, even if it is not removed yet.
        if self.beside_retention
            && let Some(lost) = store.lost_among(CONSUMER, ledgers).ranges().first()
        {
            return Err(ExportError::Lost(*lost));
        }
        let rows = |files: &[DataFile]| files.iter().map(|file| file.rows).sum();
        let counts = (rows(&events.0), rows(&transactions.0));
        let mut manifest = self.manifest.clone();
        manifest.chain = ChainTables { events: events.1, transactions: transactions.1 };
        manifest.add(ledgers, events.0, transactions.0);
        manifest.attest(&self.attested.ledgers(store));
        self.destination.write_manifest(&mut manifest)?;
        self.manifest = manifest;
        Ok(counts)
    }

    fn write_events(&self, store: &Store, ledgers: LedgerRange) -> Result<Written> {
        let names = self.names.as_ref().map(|names| names.loading_reader()).transpose()?;
        let network = store.network().id();
        let identity = &self.manifest.chain.events;
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

    fn write_transactions(&self, store: &Store, ledgers: LedgerRange) -> Result<Written> {
        let identity = &self.manifest.chain.transactions;
        let mut portion = PortionWriter::new(self, TRANSACTIONS, identity, ledgers)?;
        let (ledgers, contracts, page) = (Some(ledgers), Vec::new(), Page::all());
        let query = TransactionQuery { ledgers, contracts, page };
        let walked = store.transactions_within(&query, Bounds::NONE, |transaction| {
            portion.push(|columns: &mut TransactionColumns| columns.push(transaction))
        })?;
        portion.finish(walked.broken_off)
    }

    fn check_interrupt(&self) -> Result<()> {
        if self.interrupt.is_raised() { Err(ExportError::Interrupted) } else { Ok(()) }
    }
}

/// Files of a portion, and the columns of their table.
type Written = (Vec<DataFile>, TableIdentity);

/// Writes the rows of a portion to a table.
struct PortionWriter<'e, C> {
    export: &'e Export,
    ledgers: LedgerRange,
    identity: TableIdentity,
    rows: Rows<C>,
    writer: TableWriter<'e>,
}

impl<'e, C: Columns> PortionWriter<'e, C> {
    /// `identity` is that of the table before.
    fn new(
        export: &'e Export,
        table: &'static str,
        identity: &TableIdentity,
        ledgers: LedgerRange,
    ) -> Result<Self> {
        let mut rows = Rows::new();
        // The columns are the same with and without rows.
        let schema = rows.take()?.schema();
        let mut identity = identity.clone();
        if identity.uuid.is_empty() {
            identity = TableIdentity::new(&[&export.manifest.network_passphrase, table]);
        }
        identity.set(&schema, |_| None);
        let schema = identity.numbered(&schema);
        let writer = TableWriter::new(&export.destination, table, schema);
        Ok(Self { export, ledgers, identity, rows, writer })
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
    fn finish(mut self, failed: Option<ExportError>) -> Result<Written> {
        failed.map_or(Ok(()), Err)?;
        self.write()?;
        Ok((self.writer.finish()?, self.identity))
    }
}
