//! Derives the rows of a project anew when something has become known that changes them: the code
//! that a contract had, or further events of transactions that were stored before.

use std::sync::Arc;

use super::looking::{Found, LOOK_AGAIN, Looked};
use super::raw::RawEvent;
use super::reading::Declaring;
use super::{EventCounts, EventInterfaces, EventProject, OfProject, Summary, Unsure};
use crate::domain::ProgramId;
use crate::programs::backfill::State;
use crate::programs::backfills::stored_backfill;
use crate::programs::manifest::{Manifest, Progress};
use crate::programs::registry::{Entry, Registry};
use crate::programs::rows::RunRows;
use crate::programs::runner::Runner;
use crate::programs::storage::put_json;
use crate::programs::{ProgramError, storage};
use crate::store::{StoreError, TransactionPosition};
use crate::tables::event_tables::{Layout, Summarised};

/// Number of runs whose rows are written at once.
const RUNS_PER_WRITE: usize = 512;

impl EventInterfaces {
    /// Adds transactions with events of contracts whose code is not known. Returns whether that changes
    /// anything.
    pub(in crate::programs) fn add_unsure(
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
    /// Derives the rows of a project anew if something has become known that changes them, unless a
    /// backfill still reads its events, which looks when it has ended: what it is about to write was
    /// read before a look now.
    pub(in crate::programs) fn derive_if_more_is_known(
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
        if is_reading {
            return Ok(Looked::Nothing);
        }
        if !project.must_derive() {
            match self.look(entry.id, project, &mut looks)? {
                Found::More => {}
                Found::Nothing => return Ok(Looked::Nothing),
                Found::NothingSoFar(wait) => return Ok(Looked::Again(wait)),
            }
        }
        if !(project.must_derive && project.is_deriving) {
            // A derivation that does not end is begun again, because rows may have changed.
            let mut cell = entry.lock();
            registry.change_manifest(&mut cell, |manifest| {
                if let Some(project) = &mut manifest.events {
                    (project.must_derive, project.is_deriving) = (true, true);
                }
            })?;
        }
        Ok(match self.derive_again(entry)? {
            true => Looked::Derived,
            false => Looked::Again(LOOK_AGAIN),
        })
    }

    /// Derives the rows of a project anew. May take long for many events; the project's tables stay
    /// as they were meanwhile. Returns false when events were added to earlier entries in the
    /// meantime, so that it has to be done again.
    fn derive_again(&self, entry: &Entry) -> Result<bool, ProgramError> {
        let (begun, merges) = {
            let mut cell = entry.lock();
            cell.reload_if_in_doubt(&self.store)?;
            (Arc::clone(&cell.manifest), cell.merges)
        };
        let mut summary = Summary::default();
        let mut done = 0;
        let declaring = self.declaring(&begun)?;
        // Each part under the lock, because others may add events to an entry.
        loop {
            let Some(_cell) = entry.lock_if_same(&self.store, merges)? else { return Ok(false) };
            // After the next start it is begun again.
            if self.events.is_stopping() {
                return Ok(false);
            }
            if !self.derive_some(entry.id, &declaring, &mut summary, &mut done)? {
                break;
            }
        }
        declaring.names.finish()?;
        let most = Summarised::from(summary.shapes.clone());
        let most = most.layout();
        let of = OfProject::of(&begun);
        let counted = self.count(&of, most, 0, done)?;
        let Some((mut counts, mut bytes)) = counted else { return Ok(false) };
        // What was written meanwhile, in ledgers that the names did not have.
        let declaring = self.declaring(&begun)?;
        let Some(mut cell) = entry.lock_if_same(&self.store, merges)? else { return Ok(false) };
        let counted = done;
        while self.derive_some(entry.id, &declaring, &mut summary, &mut done)? {}
        declaring.names.finish()?;
        let mut manifest = Manifest::clone(&cell.manifest);
        let Some(project) = &mut manifest.events else { return Ok(false) };
        project.set_derived(summary, (self.clock)());
        // What was counted with other tables is counted again.
        project.must_derive = !most.grows_into(project.layout());
        manifest.schema = project.schema();
        let rest = self.count(&of, project.layout(), counted, done)?;
        let Some((more, more_bytes)) = rest else { return Ok(false) };
        counts.add(&more);
        bytes += more_bytes;
        let progress = Progress { events: counts, row_bytes: bytes, ..cell.progress };
        let stored = Arc::clone(&cell.manifest);
        cell.write(&self.store, |changes| {
            manifest.put(changes, Some(&stored))?;
            put_json(changes, &storage::progress(entry.id), &progress)
        })?;
        cell.manifest = Arc::new(manifest);
        cell.progress = progress;
        Ok(true)
    }

    fn declaring<'a>(&'a self, manifest: &'a Manifest) -> Result<Declaring<'a>, ProgramError> {
        Declaring::new(&self.events, manifest, *self.store.network().id())
    }

    /// Derives the next entries of the row log. Returns whether there may be more.
    fn derive_some(
        &self,
        program: ProgramId,
        declaring: &Declaring<'_>,
        summary: &mut Summary,
        done: &mut u64,
    ) -> Result<bool, ProgramError> {
        let runs = self.runs_after(program, *done)?;
        let Some((last, ..)) = runs.last() else { return Ok(false) };
        *done = *last;
        let mut changed = Vec::new();
        for (_, position, mut rows) in runs {
            let mut is_changed = false;
            for emit in &mut rows.emits {
                let mut event =
                    RawEvent::from_emit(emit).ok_or(ProgramError::Damaged("an event"))?;
                if declaring.examine(&mut event, position, summary)? {
                    *emit = event.to_emit().ok_or(ProgramError::Damaged("an event"))?;
                    is_changed = true;
                }
            }
            if is_changed {
                changed.push((position, rows));
            }
        }
        if !changed.is_empty() {
            storage::change(&self.store, |changes| {
                changed.iter().try_for_each(|(position, rows)| {
                    let encoded = rows.encode().map_err(|_| damaged(program))?;
                    changes.put(&storage::rows_of_run(program, *position), encoded)
                })
            })?;
        }
        Ok(true)
    }

    /// Counts the events of a project in entries of the row log after `after` and up to `last`, those
    /// of them that are in none of these tables, and the bytes of the entries. `None` when the service
    /// stops, because a part of the numbers must not be taken for all.
    fn count(
        &self,
        of: &OfProject<'_>,
        layout: &Layout,
        after: u64,
        last: u64,
    ) -> Result<Option<(EventCounts, u64)>, ProgramError> {
        let (mut counts, mut bytes, mut done) = (EventCounts::default(), 0, after);
        while done < last {
            if self.events.is_stopping() {
                return Ok(None);
            }
            let runs = self.runs_after(of.program, done)?;
            let before = done;
            for (number, position, rows) in runs.into_iter().filter(|(number, ..)| *number <= last)
            {
                bytes += rows.encode().map_err(|_| damaged(of.program))?.len() as u64;
                counts.add(&self.count_events(of, layout, position, &rows)?);
                done = number;
            }
            if done == before {
                break;
            }
        }
        Ok(Some((counts, bytes)))
    }

    fn runs_after(
        &self,
        program: ProgramId,
        after: u64,
    ) -> Result<Vec<(u64, TransactionPosition, RunRows)>, ProgramError> {
        let mut runs = Vec::new();
        storage::row_log_after(&self.store, program, after, |number, position, value| {
            let rows = RunRows::decode(value).map_err(|_| damaged(program))?;
            runs.push((number, position, rows));
            Ok(storage::more_if(runs.len() < RUNS_PER_WRITE))
        })?;
        Ok(runs)
    }
}

fn damaged(program: ProgramId) -> StoreError {
    StoreError::Corrupt { family: "rows", key: format!("program {program}") }
}
