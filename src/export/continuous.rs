//! An export that continues while ledgers are stored. The manifest is the only record of what is
//! exported. Progress is reported to the store, so that retention waits for the export as for any
//! other consumer, and records the ledgers that it loses. Rows of programs are exported together
//! with the next ledgers, or alone after [`ROWS_MAX_WAIT`]; they stay in the store as long as their
//! program does, so retention need not wait for them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::Result;
use super::manifest::ExportedProgram;
use super::portions::{RangeEnds, due};
use super::{
    Added, AddedRows, Attestations, Destination, Export, ExportError, Interrupt, Listed, Manifest,
    Options, programs, views,
};
use orrery_executables::{self as executables, Interfaces};
use orrery_iceberg::layout as metadata;
use orrery_ledger::domain::{EventId, LedgerRange, LedgerSeq, LedgerSet};
use orrery_runtime::steady::Milliseconds;
use orrery_store::{ConsumerSpec, Needs, StartPosition, Store, StoreError};

/// Name of the export as a consumer of the feed, for which retention waits.
pub const CONSUMER: &str = "export";
/// Interval after which the store is examined even if nothing was stored, because gaps may have
/// settled.
const EXAMINE_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time that rows of programs wait to be exported together with ledgers.
const ROWS_MAX_WAIT: Duration = Duration::from_secs(600);

/// Returns the specification of the consumer that the store is opened with.
pub fn consumer() -> ConsumerSpec {
    ConsumerSpec {
        name: CONSUMER,
        families: &[],
        needs: Needs { raw_ledgers: false, events: true, transactions: true },
        start: StartPosition::FirstLedger,
    }
}

/// Progress of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Number of exported ledgers.
    pub ledgers: u64,
    /// Newest exported ledger; `None` when there is none.
    pub newest: Option<LedgerSeq>,
    /// Number of exported rows of programs.
    pub rows: u64,
    /// Number of programs whose rows cannot be exported.
    pub failed_programs: usize,
}

/// Counts of what one step has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddedNow {
    /// Ledgers and their rows.
    pub ledgers: Added,
    /// Rows of programs.
    pub programs: AddedRows,
}

/// Scope of a continuous export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportScope {
    /// Number of ledgers per portion.
    pub portion: u32,
    /// Whether the tables of programs are exported as well.
    pub programs: bool,
}

/// A continuous export of a store, which runs one step at a time.
pub struct Continuous {
    store: Arc<Store>,
    destination: Destination,
    scope: ExportScope,
    options: Options,
    listed: Listed,
    /// Ledgers in the manifest; `None` until it was read.
    exported: Option<LedgerSet>,
    /// Programs in the manifest, without their files.
    programs: Vec<ExportedProgram>,
    rows: u64,
    failed_programs: usize,
    /// Time since which rows of programs have been waiting; `None` when none are.
    rows_waiting_since: Option<Instant>,
    /// Whether a manifest has been seen.
    manifest_seen: bool,
    /// Whether the metadata of tables, or views, are not written for what the manifest has.
    is_unfinished: bool,
    ends: RangeEnds,
    last_examination: Option<Examination>,
}

/// Time of the last examination of the store, and its state at that time.
#[derive(Clone, Copy)]
struct Examination {
    place: u64,
    durable: EventId,
    at: Instant,
}

impl Continuous {
    /// Creates an export of a store that was opened with [`consumer`].
    pub fn new(
        store: Arc<Store>,
        destination: Destination,
        scope: ExportScope,
        interrupt: Interrupt,
    ) -> Self {
        let listed = Listed::default();
        Self {
            store,
            destination,
            scope,
            options: Options {
                beside_retention: true,
                listed: Some(listed.clone()),
                ..Options::new(interrupt)
            },
            listed,
            exported: None,
            programs: Vec::new(),
            rows: 0,
            failed_programs: 0,
            rows_waiting_since: None,
            manifest_seen: false,
            is_unfinished: false,
            ends: RangeEnds::default(),
            last_examination: None,
        }
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

    /// Tells a catalogue in `listed` which tables there are.
    #[must_use]
    pub fn listed_in(mut self, listed: Listed) -> Self {
        self.options.listed = Some(listed.clone());
        self.listed = listed;
        self
    }

    /// Checks that the destination, if it is a local directory, holds nothing but an export of this
    /// network. A bucket is not contacted.
    ///
    /// # Errors
    /// When the directory holds something else. Errors that may be temporary are ignored, because a
    /// later step reports them.
    pub fn check(&self) -> Result<()> {
        if !self.destination.is_directory() {
            return Ok(());
        }
        match self.destination.peek() {
            Ok(Some(manifest)) => {
                self.check_network(&manifest)?;
                self.destination.check_root(&manifest)
            }
            Err(error) if error.is_wrong_place() => Err(error),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Returns the progress, as far as the manifest was read.
    pub fn progress(&self) -> Progress {
        let exported = self.exported.as_ref();
        Progress {
            ledgers: exported.map_or(0, LedgerSet::ledgers),
            newest: exported.and_then(|it| it.ranges().last()).map(|range| range.last),
            rows: self.rows,
            failed_programs: self.failed_programs,
        }
    }

    /// Exports the ledgers that are complete at the time `now`, and calls `portion` after each
    /// portion.
    ///
    /// # Errors
    /// When something cannot be read or written. The caller retries the step.
    pub fn step(&mut self, now: Instant, mut portion: impl FnMut(Progress)) -> Result<AddedNow> {
        if self.exported.is_none() {
            let manifest = self.destination.peek()?;
            self.is_unfinished = match &manifest {
                Some(manifest) => {
                    self.check_network(manifest)?;
                    self.list(manifest)?
                }
                None => false,
            };
            self.record_manifest(manifest.as_ref());
        }
        let examination = Examination {
            place: self.store.last_place(),
            durable: self.store.last_durable_event(),
            at: now,
        };
        let is_new = self.last_examination.is_none_or(|before| {
            (before.place, before.durable) != (examination.place, examination.durable)
                || now.saturating_duration_since(before.at) >= EXAMINE_INTERVAL
        });
        if !is_new {
            return Ok(AddedNow::default());
        }
        let wanted = self.due_ledgers(now)?;
        let rows_are_due = self.rows_are_due(now)?;
        let tables_are_due = self.is_unfinished || self.listed.is_behind(self.options.now_ms());
        if wanted.is_empty() && !rows_are_due && !tables_are_due {
            self.report_to_store();
            self.last_examination = Some(examination);
            return Ok(AddedNow::default());
        }
        // Until it has ended well, what follows the manifest may be missing.
        self.is_unfinished = true;
        match self.export(&wanted, &mut portion)? {
            Some(added) => {
                // Rows that could not be exported are not retried at once.
                self.rows_waiting_since = None;
                self.is_unfinished = false;
                self.last_examination = Some(examination);
                Ok(added)
            }
            // Retention removed ledgers meanwhile; the next step examines the store again.
            None => {
                self.last_examination = None;
                Ok(AddedNow::default())
            }
        }
    }

    /// Returns whether rows of programs have waited for [`ROWS_MAX_WAIT`].
    fn rows_are_due(&mut self, now: Instant) -> Result<bool, StoreError> {
        if !self.scope.programs
            || !programs::is_behind(&self.programs, &self.store, self.options.names.is_some())?
        {
            self.rows_waiting_since = None;
            return Ok(false);
        }
        let since = *self.rows_waiting_since.get_or_insert(now);
        Ok(now.saturating_duration_since(since) >= ROWS_MAX_WAIT)
    }

    /// Exports the `wanted` ledgers, and rows of programs. Returns `None` when retention removed
    /// some of the ledgers meanwhile.
    fn export(
        &mut self,
        wanted: &LedgerSet,
        portion: &mut dyn FnMut(Progress),
    ) -> Result<Option<AddedNow>> {
        let store = Arc::clone(&self.store);
        let passphrase = store.network().passphrase();
        let options = self.options.clone();
        let mut export =
            Export::open_with(&self.destination, passphrase, self.manifest_seen, options)?;
        // Another exporter may have exported some of the ledgers meanwhile.
        self.record_manifest(Some(export.manifest()));
        let interrupt = self.options.interrupt.clone();
        let added = export.add(&store, wanted, self.scope.portion, |manifest, _| {
            self.exported = Some(manifest.ledgers.clone());
            self.report_to_store();
            portion(self.progress());
            if interrupt.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let ledgers = match added {
            Err(ExportError::Lost(_) | ExportError::Pruned(_)) => return Ok(None),
            added => added?,
        };
        let mut rows = AddedRows::default();
        if self.scope.programs && !self.options.interrupt.is_raised() {
            rows = export.add_programs(&store)?;
            self.failed_programs = rows.failed;
            self.record_programs(export.manifest());
        }
        let manifest = export.finish()?;
        self.listed.set(&self.destination.root()?, &manifest);
        Ok(Some(AddedNow { ledgers, programs: rows }))
    }

    /// Tells the catalogue which tables the manifest has, if their metadata is written as it says. Returns
    /// whether that or the views are still to be written: after a kill, or when an earlier version has
    /// exported.
    fn list(&self, manifest: &Manifest) -> Result<bool> {
        let root = self.destination.root()?;
        for (uuid, state) in manifest.identified() {
            let pointer = self.destination.read(&metadata::pointer(uuid))?;
            let expected = state.metadata_path().map(metadata::pointed);
            if expected.is_none() || pointer.as_deref() != expected.as_deref().map(str::as_bytes) {
                return Ok(true);
            }
        }
        self.listed.set(&root, manifest);
        Ok(manifest.identified().next().is_none() || !self.has_views(manifest, &root)?)
    }

    /// Returns whether the views of all tables, which are written last, are those of this manifest.
    fn has_views(&self, manifest: &Manifest, root: &str) -> Result<bool> {
        let found = self.destination.read(views::NAME)?;
        let expected = views::texts(manifest, root).remove(views::NAME);
        Ok(found.as_deref() == expected.as_deref().map(str::as_bytes))
    }

    /// Records the content of the manifest; `None` when there is no export yet.
    fn record_manifest(&mut self, manifest: Option<&Manifest>) {
        self.manifest_seen |= manifest.is_some();
        if let Some(manifest) = manifest {
            self.record_programs(manifest);
        }
        self.exported = Some(manifest.map(|it| it.ledgers.clone()).unwrap_or_default());
        self.report_to_store();
    }

    fn record_programs(&mut self, manifest: &Manifest) {
        self.rows = manifest.programs.iter().map(ExportedProgram::rows).sum();
        self.programs.clone_from(&manifest.programs);
        let tables = self.programs.iter_mut().flat_map(|program| &mut program.tables);
        tables.for_each(|table| table.files = Vec::new());
    }

    fn check_network(&self, manifest: &Manifest) -> Result<()> {
        manifest.check_network(self.store.network().passphrase(), &self.destination.to_string())
    }

    fn report_to_store(&self) {
        if let Some(exported) = &self.exported {
            self.store.set_processed(CONSUMER, exported);
        }
    }

    /// Returns the ledgers that are complete, durable and not exported yet. Ledgers that retention
    /// removed before this consumer was registered are recorded as lost.
    fn due_ledgers(&mut self, now: Instant) -> Result<LedgerSet, StoreError> {
        let status = self.store.status();
        self.ends.update(&status.ranges, now);
        let mut settled = self.exported.clone().unwrap_or_default();
        let all = LedgerRange::new(0, u32::MAX);
        settled.insert_all(&self.store.lost_among(CONSUMER, all));
        let mut lost: LedgerSet = status.ranges.iter().copied().collect();
        lost.remove_all(&status.ledgers_with(Needs::RECORDS));
        lost.remove_all(&settled);
        if !lost.is_empty() {
            self.store.mark_passed(CONSUMER, 0, &lost);
        }
        settled.insert_all(&lost);
        // The events of ledgers that the index has not processed would have no names.
        let index =
            self.options.names.as_ref().and_then(|_| self.store.consumer(executables::CONSUMER));
        let unnamed = index.map(|index| self.store.ledgers_after(index.place)).unwrap_or_default();
        let mut wanted = LedgerSet::default();
        for ledgers in due(&status.ranges, &settled, self.scope.portion, &self.ends, now) {
            if unnamed.within(ledgers).is_empty() && self.store.are_durable(ledgers)? {
                wanted.insert(ledgers);
            }
        }
        Ok(wanted)
    }
}
