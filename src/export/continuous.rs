//! An export that goes on while ledgers are stored. The manifest is the only record of what is exported; the store is
//! told, so that retention waits for the rest as it does for other consumers, and notes what is lost. Rows of programs
//! go with the ledgers that are exported next, or after a while alone; they stay as long as their program does, so
//! nothing has to wait for them.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::due::{Ends, due};
use super::manifest::ExportedProgram;
use super::{Added, AddedRows, Export, ExportError, Interrupt, Manifest, Place, programs};
use crate::domain::{EventId, LedgerRange, LedgerSeq, LedgerSet};
use crate::store::{Begins, ConsumerSpec, Needs, Store, StoreError};

/// The name under which retention waits for it.
pub const CONSUMER: &str = "export";
/// Although nothing has come, it is looked after gaps so often.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long rows of programs wait for ledgers with which they are exported.
const ROWS_WAIT: Duration = Duration::from_secs(600);

/// What the store is told of it when it is opened.
pub fn consumer() -> ConsumerSpec {
    ConsumerSpec {
        name: CONSUMER,
        families: &[],
        needs: Needs { raw_ledgers: false, events: true, transactions: true },
        begins: Begins::AtTheBeginning,
    }
}

/// How far an export is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Ledgers that it has.
    pub ledgers: u64,
    /// The newest of them.
    pub newest: Option<LedgerSeq>,
    /// Rows of programs that it has.
    pub rows: u64,
    /// Programs that have rows which cannot be exported.
    pub failed_programs: usize,
}

/// What a step has added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddedNow {
    /// Of ledgers.
    pub ledgers: Added,
    /// Of programs.
    pub programs: AddedRows,
}

/// What a continuous export takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Ledgers of a portion.
    pub portion: u32,
    /// Whether it takes the tables of programs as well.
    pub programs: bool,
}

/// An export of a store that ledgers are added to, one step at a time.
pub struct Continuous {
    store: Arc<Store>,
    place: Place,
    taken: Taken,
    interrupt: Interrupt,
    /// What the manifest has, once it was read.
    exported: Option<LedgerSet>,
    /// The same of programs, without their files.
    programs: Vec<ExportedProgram>,
    rows: u64,
    failed_programs: usize,
    /// Since when rows of programs wait.
    rows_wait: Option<Instant>,
    /// Whether there was a manifest.
    begun: bool,
    ends: Ends,
    looked: Option<Look>,
}

/// When it was looked last, and what could be read then.
#[derive(Clone, Copy)]
struct Look {
    place: u64,
    durable: EventId,
    at: Instant,
}

impl Continuous {
    /// Of a store that was opened with [`consumer`].
    pub fn new(store: Arc<Store>, place: Place, taken: Taken, interrupt: Interrupt) -> Self {
        Self {
            store,
            place,
            taken,
            interrupt,
            exported: None,
            programs: Vec::new(),
            rows: 0,
            failed_programs: 0,
            rows_wait: None,
            begun: false,
            ends: Ends::default(),
            looked: None,
        }
    }

    /// Refuses a place that is on this machine and holds something else.
    ///
    /// # Errors
    /// When it does; what cannot be read now may be later.
    pub fn check(&self) -> Result<(), ExportError> {
        if !self.place.is_directory() {
            return Ok(());
        }
        match self.place.peek() {
            Ok(Some(manifest)) => self.check_network(&manifest),
            Err(error) if error.is_wrong_place() => Err(error),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// How far it is, as far as that is known.
    pub fn progress(&self) -> Progress {
        let exported = self.exported.as_ref();
        Progress {
            ledgers: exported.map_or(0, LedgerSet::ledgers),
            newest: exported.and_then(|it| it.ranges().last()).map(|range| range.last),
            rows: self.rows,
            failed_programs: self.failed_programs,
        }
    }

    /// Exports what is complete at this time, and calls `portion` after each portion.
    ///
    /// # Errors
    /// When something cannot be read or written; it is to be tried again.
    pub fn step(
        &mut self,
        now: Instant,
        mut portion: impl FnMut(Progress),
    ) -> Result<AddedNow, ExportError> {
        if self.exported.is_none() {
            let manifest = self.place.peek()?;
            self.knows(manifest.as_ref())?;
        }
        let look = Look {
            place: self.store.last_place(),
            durable: self.store.last_durable_event(),
            at: now,
        };
        let is_new = self.looked.is_none_or(|before| {
            (before.place, before.durable) != (look.place, look.durable)
                || now.saturating_duration_since(before.at) >= LOOK_EVERY
        });
        if !is_new {
            return Ok(AddedNow::default());
        }
        let wanted = self.wanted(now)?;
        let rows_are_due = self.rows_are_due(now)?;
        if wanted.is_empty() && !rows_are_due {
            self.tell_store();
            self.looked = Some(look);
            return Ok(AddedNow::default());
        }
        match self.export(&wanted, &mut portion)? {
            Some(added) => {
                // Rows that could not be exported are not tried again at once.
                self.rows_wait = None;
                self.looked = Some(look);
                Ok(added)
            }
            // Retention came in between: the next look knows what is left.
            None => {
                self.looked = None;
                Ok(AddedNow::default())
            }
        }
    }

    /// Whether rows of programs have waited long enough.
    fn rows_are_due(&mut self, now: Instant) -> Result<bool, StoreError> {
        if !self.taken.programs || !programs::is_behind(&self.programs, &self.store)? {
            self.rows_wait = None;
            return Ok(false);
        }
        let since = *self.rows_wait.get_or_insert(now);
        Ok(now.saturating_duration_since(since) >= ROWS_WAIT)
    }

    /// Exports these ledgers, and rows of programs; none when some of the ledgers went meanwhile.
    fn export(
        &mut self,
        wanted: &LedgerSet,
        portion: &mut dyn FnMut(Progress),
    ) -> Result<Option<AddedNow>, ExportError> {
        let store = Arc::clone(&self.store);
        let (held, manifest) = self.place.take(store.network().passphrase(), self.begun)?;
        let interrupt = self.interrupt.clone();
        let mut export = Export { held, manifest, interrupt, beside_retention: true };
        // Another one may have exported some of it meanwhile.
        self.knows(Some(export.manifest()))?;
        let interrupt = self.interrupt.clone();
        let added = export.add(&store, wanted, self.taken.portion, |manifest, _| {
            self.exported = Some(manifest.exported());
            self.tell_store();
            portion(self.progress());
            if interrupt.is_raised() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let ledgers = match added {
            Err(ExportError::Lost(_) | ExportError::Pruned(_)) => return Ok(None),
            added => added?,
        };
        let mut rows = AddedRows::default();
        if self.taken.programs && !self.interrupt.is_raised() {
            rows = export.add_programs(&store)?;
            self.failed_programs = rows.failed;
            self.knows_programs(export.manifest());
        }
        export.finish()?;
        Ok(Some(AddedNow { ledgers, programs: rows }))
    }

    /// Takes note of what the manifest has.
    fn knows(&mut self, manifest: Option<&Manifest>) -> Result<(), ExportError> {
        if let Some(manifest) = manifest {
            self.check_network(manifest)?;
        }
        self.begun |= manifest.is_some();
        if let Some(manifest) = manifest {
            self.knows_programs(manifest);
        }
        self.exported = Some(manifest.map(Manifest::exported).unwrap_or_default());
        self.tell_store();
        Ok(())
    }

    fn knows_programs(&mut self, manifest: &Manifest) {
        self.rows = manifest.programs.iter().map(ExportedProgram::rows).sum();
        let without_files = |program: &ExportedProgram| ExportedProgram {
            owner: program.owner.clone(),
            project: program.project.clone(),
            tables: Vec::new(),
            ..*program
        };
        self.programs = manifest.programs.iter().map(without_files).collect();
    }

    fn check_network(&self, manifest: &Manifest) -> Result<(), ExportError> {
        manifest.check_network(self.store.network().passphrase(), &self.place.to_string())
    }

    fn tell_store(&self) {
        if let Some(exported) = &self.exported {
            self.store.is_through_with(CONSUMER, exported);
        }
    }

    /// What is complete, durable and not exported. What was removed before retention knew of this is lost, too.
    fn wanted(&mut self, now: Instant) -> Result<LedgerSet, StoreError> {
        let status = self.store.status();
        self.ends.are_now(&status.ranges, now);
        let mut settled = self.exported.clone().unwrap_or_default();
        let all = LedgerRange::new(0, u32::MAX);
        settled.insert_all(&self.store.lost_among(CONSUMER, all));
        let kept_from = status.totals.events_from.max(status.totals.transactions_from);
        if let Some(last) = kept_from.previous() {
            let removed = LedgerRange { first: LedgerSeq(0), last };
            let stored: LedgerSet = status.ranges.iter().copied().collect();
            let mut lost = stored.within(removed);
            lost.remove_all(&settled);
            if !lost.is_empty() {
                self.store.passed(CONSUMER, 0, &lost);
            }
            settled.insert(removed);
        }
        let mut wanted = LedgerSet::default();
        for ledgers in due(&status.ranges, &settled, self.taken.portion, &self.ends, now) {
            if self.store.are_durable(ledgers)? {
                wanted.insert(ledgers);
            }
        }
        Ok(wanted)
    }
}
