//! Derives the rows of a project anew when something has become known that changes them: the code
//! that a contract had, or further events of transactions that were stored before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::data_reading::DataReader;
use super::derivation::{Derivation, Derived};
use super::examining::Declaring;
use super::logged::{EventsWriter, LoggedEvents, in_this_form};
use super::looking::{Found, Looked};
use super::looks::Looks;
use super::members::Updates;
use super::pause::LOOK_AGAIN;
use super::{EventInterfaces, EventProject, Kinds, OfProject, Unnamed, Unsure, put_unnamed};
use crate::backfill::State;
use crate::backfills::stored_backfill;
use crate::lanes::SHORT_TURN;
use crate::manifest::{Manifest, Progress};
use crate::registry::{Cell, Entry, Registry};
use crate::rows::LoggedRun;
use crate::runner::Runner;
use crate::storage::put_json;
use crate::{ProgramError, storage};
use orrery_ledger::domain::ProgramId;
use orrery_store::TransactionPosition;

/// Maximum number of runs that are read, and whose rows are written, at once.
const RUNS_AT_ONCE: usize = if cfg!(test) { 4 } else { 512 };
/// Number of bytes of runs after which no further ones are read with them.
const BYTES_AT_ONCE: usize = 1 << 20;
/// How long a turn derives rows.
///
/// Unit tests: one run a turn, so that whatever may happen between two turns does.
const PART: Duration = if cfg!(test) { Duration::ZERO } else { SHORT_TURN };

/// What a project looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LookAt {
    /// The code of contracts, by which their events are declared.
    Code,
    /// Events of which it was not known whether they belong to the project.
    Apart,
    /// Changes of contract data of which something was not known.
    Data,
}

impl EventInterfaces {
    /// Adds transactions with events of contracts of which it is not known whether they belong to the
    /// project. Returns whether that changes anything.
    pub(crate) fn add_apart(
        &self,
        project: &mut EventProject,
        more: &Unsure,
    ) -> Result<bool, ProgramError> {
        if more.is_empty() {
            return Ok(false);
        }
        let names = self.interfaces.loading_reader()?;
        let is_same = |contract: &_, from, to| names.is_same_between(contract, from, to);
        Ok(project.apart.join(more, is_same)?)
    }

    /// Adds transactions with events of contracts whose code is not known. Returns whether that changes
    /// anything.
    pub(crate) fn add_unsure(
        &self,
        project: &mut EventProject,
        more: &Unsure,
    ) -> Result<bool, ProgramError> {
        if more.is_empty() {
            return Ok(false);
        }
        let names = self.interfaces.loading_reader()?;
        let is_same = |contract: &_, from, to| names.is_same_between(contract, from, to);
        Ok(project.unsure.join(more, is_same)?)
    }
}

impl Runner {
    /// Derives rows of a project anew if something has become known that changes them, for the time of a
    /// turn; unless a backfill still reads its events, which looks when it has ended: what it is about to
    /// write was read before a look now.
    pub(crate) fn derive_if_more_is_known(
        &self,
        entry: &Entry,
        registry: &Registry,
    ) -> Result<Looked, ProgramError> {
        if entry.snapshot().manifest.events.is_none() {
            return Ok(Looked::Nothing);
        }
        // Another thread may be at it, a turn for new ledgers or one of a backfill, and may have looked
        // before that became known for which this turn was woken.
        let Some(mut looks) = entry.looks.try_lock() else { return Ok(Looked::Again(LOOK_AGAIN)) };
        let manifest = entry.snapshot().manifest;
        let Some(project) = &manifest.events else { return Ok(Looked::Nothing) };
        let is_reading =
            stored_backfill(&self.store, entry.id)?.is_some_and(|it| it.state == State::Running);
        let declared = self.declare_tables(entry, registry, &mut looks, SHORT_TURN)?;
        if declared.changed {
            return Ok(Looked::Derived);
        }
        // A derivation that has begun goes on: until it is done, no rows are copied to tables.
        if is_reading && looks.derivation.is_none() {
            return Ok(declared.again.map_or(Looked::Nothing, Looked::Again));
        }
        let mut again = declared.again;
        if !project.must_derive() {
            match self.look_at_names(entry, &manifest, PART)? {
                // Earlier events are read in the next turn.
                Found::More => return Ok(Looked::Again(Duration::ZERO)),
                Found::Nothing => {}
                Found::NothingSoFar(wait) => again = again.into_iter().chain([wait]).min(),
            }
        }
        if !project.must_derive() {
            match self.find_data(entry, &manifest, &mut looks.finds, SHORT_TURN)? {
                Found::More => return Ok(Looked::Derived),
                Found::Nothing => {}
                Found::NothingSoFar(wait) => again = again.into_iter().chain([wait]).min(),
            }
        }
        if !project.must_derive()
            && let Some(look_again) = self.look_for_more(entry.id, project, &mut looks)?
        {
            let again = again.into_iter().chain(look_again).min();
            return Ok(again.map_or(Looked::Nothing, Looked::Again));
        }
        if !(project.must_derive && project.is_deriving) {
            // One that has not ended in this process is begun again, because rows may have changed.
            looks.derivation = None;
            let mut cell = entry.lock();
            registry.change_manifest(&mut cell, |manifest| {
                if let Some(project) = &mut manifest.events {
                    (project.must_derive, project.is_deriving) = (true, true);
                }
            })?;
        }
        let looked = self.derive_part(entry, &mut looks.derivation)?;
        if looked == Looked::Derived {
            looks.forget_consulted();
            looks.data.end(Instant::now());
        }
        Ok(looked)
    }

    /// Looks whether more is known of what a project has. Returns when to look again, if that is not only
    /// when more is stored; `None` when more is known.
    fn look_for_more(
        &self,
        program: ProgramId,
        project: &EventProject,
        looks: &mut Looks,
    ) -> Result<Option<Option<Duration>>, ProgramError> {
        let mut again = None;
        for what in [LookAt::Code, LookAt::Apart, LookAt::Data] {
            let found = match what {
                LookAt::Code => self.look(program, project, looks, SHORT_TURN)?,
                LookAt::Apart => {
                    self.look_at_apart(program, project, &mut looks.apart, SHORT_TURN)?
                }
                LookAt::Data => self.look_at_data(program, project, &mut looks.data, SHORT_TURN)?,
            };
            match found {
                Found::More if what == LookAt::Data => {
                    looks.data.found = Some(Instant::now());
                    return Ok(None);
                }
                Found::More => return Ok(None),
                Found::Nothing => {}
                Found::NothingSoFar(wait) => again = again.into_iter().chain([wait]).min(),
            }
        }
        Ok(Some(again))
    }

    /// Derives further rows of a project anew, for the time of a turn; the project's tables stay as they
    /// were meanwhile. What is in progress is in `derivation`. It is begun again when events were added
    /// to earlier entries in the meantime, and after a failure.
    fn derive_part(
        &self,
        entry: &Entry,
        derivation: &mut Option<Derivation>,
    ) -> Result<Looked, ProgramError> {
        let until = Instant::now() + PART;
        let mut now = match derivation.take() {
            Some(begun) => begun,
            None => {
                let mut cell = entry.lock();
                cell.reload_if_in_doubt(&self.store)?;
                let mut new = Derivation::new(Arc::clone(&cell.manifest), cell.merges);
                drop(cell);
                if let Some(project) = &new.begun.events {
                    new.summary.shapes = project.summary_without_events();
                }
                self.consult_all(&new.begun, &mut new.summary.shapes)?;
                new
            }
        };
        let begun = Arc::clone(&now.begun);
        let (of, declaring) = (OfProject::of(&begun), self.declaring(&begun)?);
        loop {
            // Each batch under the lock, because others may add events to an entry.
            let Some(mut cell) = entry.lock_if_same(&self.store, now.merges)? else {
                return Ok(Looked::Again(LOOK_AGAIN));
            };
            if !self.derive_some(entry, &declaring, &mut now, until)? {
                if now.is_counted() {
                    declaring.names.finish()?;
                    self.end_derivation(&mut cell, now)?;
                    return Ok(Looked::Derived);
                }
                drop(cell);
                self.count_some(&of, &mut now, until)?;
            }
            if Instant::now() >= until {
                declaring.names.finish()?;
                *derivation = Some(now);
                return Ok(Looked::InPart);
            }
        }
    }

    /// Writes the tables that follow from a derivation in which nothing is left to be done.
    fn end_derivation(&self, cell: &mut Cell, ended: Derivation) -> Result<(), ProgramError> {
        let mut manifest = Manifest::clone(&cell.manifest);
        let Some(project) = &mut manifest.events else { return Ok(()) };
        let row_bytes = ended.bytes;
        let Derived { tables, counts, summary } = ended.end();
        project.set_derived(tables, summary, (self.clock)());
        manifest.schema = project.schema();
        let progress = Progress { events: counts, row_bytes, ..cell.progress };
        let stored = Arc::clone(&cell.manifest);
        cell.write(&self.store, |changes| {
            manifest.put(changes, Some(&stored))?;
            put_json(changes, &storage::progress(manifest.id), &progress)
        })?;
        cell.manifest = Arc::new(manifest);
        cell.progress = progress;
        Ok(())
    }

    pub(super) fn declaring<'a>(
        &'a self,
        manifest: &'a Manifest,
    ) -> Result<Declaring<'a>, ProgramError> {
        Declaring::new(&self.events, manifest, *self.store.network().id())
    }

    /// Derives the next entries of the row log, at least one. Returns whether there was one.
    fn derive_some(
        &self,
        entry: &Entry,
        declaring: &Declaring<'_>,
        now: &mut Derivation,
        until: Instant,
    ) -> Result<bool, ProgramError> {
        let program = now.begun.id;
        let runs = self.runs_after(program, now.done)?;
        if runs.is_empty() {
            return Ok(false);
        }
        let mut changed = Vec::new();
        let mut reader = DataReader::new(&self.store);
        for LoggedRun { number, position, stored } in runs {
            let read = in_this_form(&stored)?;
            let read = LoggedEvents::read(&read)?;
            if !read.members.is_empty() {
                (now.bytes, now.done) = (now.bytes + stored.len() as u64, number);
                continue;
            }
            let updates = Updates::of(&read)?;
            let (changes, mut is_changed) = match &now.begun.events {
                Some(project) => {
                    let (at, data) = ((position, &updates), (project, read.changes));
                    let summary = &mut now.summary;
                    self.examine_changes(declaring, &mut reader, at, data, summary)?
                }
                None => Default::default(),
            };
            let mut examined =
                EventsWriter::with_changes(&read.transaction, read.closed_at, &changes)?;
            for event in read.all_events() {
                let (event, at) = (event?, (position, &updates));
                let Some((found, kind)) =
                    declaring.examine_selected(&event, at, &mut now.summary)?
                else {
                    is_changed = true;
                    continue;
                };
                is_changed |= (event.declared_by, event.is_sure, event.is_apart)
                    != (found.declared_by, found.is_sure, found.is_apart);
                examined.push(&found)?;
                kind.into_iter().for_each(|kind| now.add_kind(kind));
            }
            let bytes = if is_changed {
                let examined = examined.finish();
                let length = examined.len();
                changed.push((position, examined));
                length
            } else {
                stored.len()
            };
            now.bytes += bytes as u64;
            now.done = number;
            if Instant::now() >= until {
                break;
            }
        }
        let unnamed = std::mem::take(&mut now.summary.unnamed);
        self.put_derived(entry, &changed, &unnamed)?;
        Ok(true)
    }

    /// Writes entries of the row log that have changed, and what is not known of the names of events that are rows
    /// no more.
    fn put_derived(
        &self,
        entry: &Entry,
        changed: &[(TransactionPosition, Vec<u8>)],
        unnamed: &Unnamed,
    ) -> Result<(), ProgramError> {
        let is_noted = !unnamed.is_empty();
        let unnamed = self.events.unnamed_rows(entry.id, [unnamed])?;
        if changed.is_empty() && unnamed.is_empty() {
            return Ok(());
        }
        let written = storage::change(&self.store, |changes| {
            put_unnamed(changes, entry.id, &unnamed)?;
            changed.iter().try_for_each(|(position, examined)| {
                changes.put(&storage::rows_of_run(entry.id, *position), examined)
            })
        });
        if is_noted {
            entry.members.note_late_names();
        }
        Ok(written?)
    }

    /// Counts the events of a project in the next entries of the row log that are derived, and those
    /// of them that are in none of the tables.
    fn count_some(
        &self,
        of: &OfProject<'_>,
        now: &mut Derivation,
        until: Instant,
    ) -> Result<(), ProgramError> {
        let derived = now.done;
        let counting = now.counting();
        let runs = self.runs_after(of.program, counting.done)?;
        if runs.is_empty() {
            counting.done = derived;
        }
        for run in runs.into_iter().filter(|run| run.number <= derived) {
            let mut kinds = Kinds::default();
            self.count_events(of, run.position, &run.stored, &mut kinds)?;
            counting.counts.add(&kinds.counts(counting.tables.layout()));
            counting.done = run.number;
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    /// Returns the next runs of the row log: at least one, if there is one, and not many at once.
    fn runs_after(&self, program: ProgramId, after: u64) -> Result<Vec<LoggedRun>, ProgramError> {
        let (mut runs, mut bytes) = (Vec::new(), 0);
        storage::row_log_after(&self.store, program, after, |number, position, stored| {
            bytes += stored.len();
            runs.push(LoggedRun { number, position, stored: stored.to_vec() });
            Ok(storage::more_if(runs.len() < RUNS_AT_ONCE && bytes < BYTES_AT_ONCE))
        })?;
        Ok(runs)
    }
}
