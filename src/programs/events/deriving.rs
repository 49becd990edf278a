//! Derives the rows of a project anew when something has become known that changes them: the code
//! that a contract had, or further events of transactions that were stored before.

use std::sync::Arc;

use super::raw::RawEvent;
use super::reading::{Declaring, Summary};
use super::{EventCounts, EventInterfaces};
use crate::domain::{ContractId, LedgerSeq};
use crate::programs::backfill::State;
use crate::programs::backfills::stored_backfill;
use crate::programs::manifest::Manifest;
use crate::programs::registry::{Entry, Registry};
use crate::programs::rows::RunRows;
use crate::programs::runner::Runner;
use crate::programs::storage::put_json;
use crate::programs::{ProgramError, storage};
use crate::store::{StoreError, TransactionPosition};

/// Number of runs whose rows are written at once.
const RUNS_PER_WRITE: usize = 512;

impl EventInterfaces {
    /// Whether the code of a contract has become known of which events were read while it was not.
    pub(in crate::programs) fn knows_more(
        &self,
        manifest: &Manifest,
    ) -> Result<bool, ProgramError> {
        let Some(project) = manifest.events.as_ref().filter(|it| !it.unsure.is_empty()) else {
            return Ok(false);
        };
        let names = self.interfaces.loading_reader()?;
        for (contract, spans) in &project.unsure {
            let Ok(contract) = contract.parse::<ContractId>() else { continue };
            for (ledger, application_order) in spans {
                let at = TransactionPosition {
                    ledger: LedgerSeq(*ledger),
                    application_order: *application_order,
                };
                let (_, is_sure) = names.tried_surely(&contract, at);
                if is_sure {
                    return Ok(true);
                }
            }
        }
        names.finish()?;
        Ok(false)
    }
}

impl Runner {
    /// Derives the rows of a project anew if something has become known that changes them, unless a
    /// backfill still reads its events. Returns whether it did.
    pub(in crate::programs) fn derive_if_more_is_known(
        &self,
        entry: &Entry,
        registry: &Registry,
    ) -> Result<bool, ProgramError> {
        let manifest = entry.snapshot().manifest;
        let Some(project) = &manifest.events else { return Ok(false) };
        if !(project.must_derive || self.events.knows_more(&manifest)?) {
            return Ok(false);
        }
        let is_reading =
            stored_backfill(self, entry.id)?.is_some_and(|it| it.state == State::Running);
        if is_reading {
            return Ok(false);
        }
        if !project.must_derive {
            // A derivation that does not end is begun again, because rows may have changed.
            let mut cell = entry.lock();
            registry.change_manifest(&mut cell, |manifest| {
                if let Some(project) = &mut manifest.events {
                    project.must_derive = true;
                }
            })?;
        }
        self.derive_again(entry)?;
        Ok(true)
    }

    /// Derives the rows of a project anew. May take long for many events; the project's tables stay
    /// as they were meanwhile.
    fn derive_again(&self, entry: &Entry) -> Result<(), ProgramError> {
        let manifest = entry.snapshot().manifest;
        let declaring = Declaring::new(&self.events, &manifest, *self.store.network().id())?;
        let mut summary = Summary::default();
        let mut done = 0;
        // Most of the log without the lock; the rest, which others write meanwhile, with it.
        while self.derive_some(entry, &declaring, &mut summary, &mut done)? {}
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(());
        }
        while self.derive_some(entry, &declaring, &mut summary, &mut done)? {}
        declaring.names.finish()?;
        let mut manifest = Manifest::clone(&cell.manifest);
        let limits = self.settings.schema_limits();
        let Some(project) = &mut manifest.events else { return Ok(()) };
        project.shapes = summary.shapes;
        project.unsure = summary.unsure;
        project.must_derive = false;
        project.derivation += 1;
        manifest.schema = project.schema(limits);
        let counts = self.count(entry, &manifest)?;
        let mut progress = cell.progress;
        progress.events = counts;
        cell.write(&self.store, |changes| {
            put_json(changes, &storage::manifest(entry.id), &manifest)?;
            put_json(changes, &storage::progress(entry.id), &progress)
        })?;
        cell.manifest = Arc::new(manifest);
        cell.progress = progress;
        Ok(())
    }

    /// Derives the next entries of the row log. Returns whether there may be more.
    fn derive_some(
        &self,
        entry: &Entry,
        declaring: &Declaring<'_>,
        summary: &mut Summary,
        done: &mut u64,
    ) -> Result<bool, ProgramError> {
        let runs = self.runs_after(entry, *done)?;
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
                    let encoded = rows.encode().map_err(|_| damaged(entry))?;
                    changes.put(&storage::rows_of_run(entry.id, *position), encoded)
                })
            })?;
        }
        Ok(true)
    }

    /// Counts the events of a project, and those without a table.
    fn count(&self, entry: &Entry, manifest: &Manifest) -> Result<EventCounts, ProgramError> {
        let Some(project) = &manifest.events else { return Ok(EventCounts::default()) };
        let layout = project.layout(self.settings.schema_limits());
        let (mut counts, mut done) = (EventCounts::default(), 0);
        loop {
            let runs = self.runs_after(entry, done)?;
            let Some((last, ..)) = runs.last() else { return Ok(counts) };
            done = *last;
            for (_, position, rows) in runs {
                counts.add(&self.count_events(&layout, position, &rows)?);
            }
        }
    }

    fn runs_after(
        &self,
        entry: &Entry,
        after: u64,
    ) -> Result<Vec<(u64, TransactionPosition, RunRows)>, ProgramError> {
        let mut runs = Vec::new();
        storage::row_log_after(&self.store, entry.id, after, |number, position, value| {
            let rows = RunRows::decode(value).map_err(|_| damaged(entry))?;
            runs.push((number, position, rows));
            Ok(storage::more_if(runs.len() < RUNS_PER_WRITE))
        })?;
        Ok(runs)
    }
}

fn damaged(entry: &Entry) -> StoreError {
    StoreError::Corrupt { family: "rows", key: format!("program {}", entry.id) }
}
