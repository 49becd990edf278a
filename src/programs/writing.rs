//! Writes the results of runs: those of one program on several ledgers in one batch, together with
//! the program's progress.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::backfill::{Backfill, put_backfill};
use super::effects::Effects;
use super::events::{self, Kinds, Merged, OfProject};
use super::manifest::{Manifest, Progress};
use super::records::{Execution, LedgerStats, LedgerSums, RunSource};
use super::registry::Entry;
use super::runner::Runner;
use super::storage::{WaitingRun, put_json};
use super::waiting::{MAX_WAITING, WaitingRuns};
use super::{ProgramError, records, storage};
use orrery_ledger::domain::{LedgerRange, ProgramId};
use orrery_store::{Arrival, KindChanges, StoreError, TransactionPosition};
use orrery_tables::schema::SchemaLimits;

/// Number of consecutive failures after which a program is no longer run, or a backfill is stopped.
pub(super) const MAX_ERRORS_IN_A_ROW: u32 = 100;

impl Runner {
    /// Writes the results of runs on some ledgers, and the progress and backfill that `update` sets
    /// after each of them, in one batch. State in memory changes only when the result is
    /// [`WriteOutcome::Runs`]; the caller must observe the same rule for state that `update` touches. A
    /// ledger whose rows do not fit the schema together with those before it is not written, nor is
    /// any after it: its runs have to be repeated on the tables as they are then.
    ///
    /// # Errors
    /// Fails when nothing was written, or when the outcome of the write is unknown.
    pub(super) fn write(
        &self,
        entry: &Entry,
        ledgers: &[Effects],
        mut update: impl FnMut(&mut Progress, &Effects, &WrittenRuns, &[Execution]) -> Option<Backfill>,
    ) -> Result<WriteOutcome, ProgramError> {
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.store)?;
        if cell.deleted {
            return Ok(WriteOutcome::Nothing);
        }
        if ledgers.iter().any(|effects| cell.manifest.contracts != effects.contracts) {
            return Ok(WriteOutcome::Nothing);
        }
        let holds = |effects: &Effects| {
            let is_new = effects.place > 0;
            effects.members.is_none_or(|read| entry.members.accept(read, is_new))
        };
        if !ledgers.iter().all(holds) {
            return Ok(WriteOutcome::Nothing);
        }
        let (mut manifest, mut progress) = (Manifest::clone(&cell.manifest), cell.progress);
        let mut waiting = cell.waiting.len();
        let (mut written, mut changed, mut backfill) = (WrittenRuns::default(), false, None);
        let mut drafts = Vec::with_capacity(ledgers.len());
        for effects in ledgers {
            let mut new = self.new_runs(&manifest, effects)?;
            let (log, executions) = (progress.log, progress.executions);
            match self.apply_runs(&mut manifest, &mut progress, effects, &new) {
                Ok(grew) => changed |= grew,
                Err(ProgramError::SchemaConflict(_)) if !drafts.is_empty() => break,
                Err(error) => return Err(error),
            }
            let (to_repeat, finished, given_up) =
                classify_waiting_runs(effects, &cell.waiting, &mut waiting);
            progress.given_up += given_up;
            new.written.ledgers = 1;
            new.written.waiting_changed =
                !to_repeat.is_empty() || !finished.is_empty() || given_up > 0;
            written.add(&new.written);
            backfill = update(&mut progress, effects, &new.written, &new.executions);
            drafts.push(Draft { effects, new, log, executions, to_repeat, finished });
        }
        let unnamed = drafts.iter().map(|draft| &draft.effects.summary.unnamed);
        let unnamed = self.events.unnamed_rows(entry.id, unnamed)?;
        let stored = Arc::clone(&cell.manifest);
        let outcome = cell.write(&self.store, |changes| {
            drafts.iter().try_for_each(|draft| draft.put(changes, entry.id))?;
            events::put_unnamed(changes, entry.id, &unnamed)?;
            if let Some(backfill) = &backfill {
                put_backfill(changes, &self.store, &progress, backfill)?;
            }
            if changed {
                manifest.put(changes, Some(&stored))?;
            }
            changes.put_cursor(entry.id, progress.place);
            put_json(changes, &storage::progress(entry.id), &progress)
        });
        // Also when it is not known whether this was written.
        if self.is_more_known_than(ledgers) {
            entry.members.note_late_names();
        }
        outcome?;
        written.stopped = !manifest.running && cell.manifest.running;
        if written.stopped {
            let because = manifest.stopped_because.as_deref();
            tracing::warn!(program = %entry.id, because, "a program is no longer run");
            self.store.set_active(&storage::consumer(entry.id), false);
        }
        if changed {
            cell.manifest = Arc::new(manifest);
        }
        cell.progress = progress;
        cell.merges += u64::from(drafts.iter().any(|draft| !draft.new.merged.is_empty()));
        drafts.iter().for_each(|draft| cell.waiting.apply_write(&draft.to_repeat, &draft.finished));
        Ok(WriteOutcome::Runs(written))
    }

    /// Whether more may have become known of interfaces since ledgers were read of which the names of some events
    /// were not.
    fn is_more_known_than(&self, ledgers: &[Effects]) -> bool {
        let known = self.events.interfaces().generation();
        ledgers.iter().any(|effects| !effects.summary.unnamed.is_empty() && effects.known != known)
    }

    /// Returns the results of the runs that are not stored yet.
    fn new_runs<'e>(
        &self,
        manifest: &Manifest,
        effects: &'e Effects,
    ) -> Result<NewRuns<'e>, ProgramError> {
        let program = manifest.id;
        let mut new = NewRuns::default();
        for run in &effects.runs {
            let mut execution = run.execution.clone();
            if !run.encoded.is_empty() {
                // A backfill and live ledgers may overlap.
                match self.store.shared_row(&storage::rows_of_run(program, run.position))? {
                    Some(stored) if manifest.events.is_some() => {
                        // Contracts may have been registered since.
                        let merged = events::merged(&stored, &run.encoded)?;
                        let Some(merged) = merged else { continue };
                        execution.rows = merged.count;
                        new.merged.push((run.position, merged));
                    }
                    Some(_) => execution.rows = 0,
                    None => new.rows.push((run.position, &run.encoded)),
                }
            }
            // Events that may turn out to belong to a project are none so far.
            let has_rows = manifest.events.is_none() || run.execution.rows > 0;
            if run.is_of_no_transaction() || !has_rows {
                new.written.rows += u64::from(execution.rows);
                continue;
            }
            new.written.executions += 1;
            new.written.errors += u64::from(execution.error.is_some());
            new.written.rows += u64::from(execution.rows);
            new.executions.push(execution);
        }
        if !new.executions.is_empty() {
            let (ledger, source) = (effects.ledger, effects.source);
            let mut sums: LedgerSums = records::sums_of(&self.store, program, ledger, source)?;
            new.executions.iter().for_each(|execution| sums.add(execution));
            new.stats = Some(LedgerStats { ledger, source, sums });
        }
        Ok(new)
    }

    /// Adds new runs to the manifest and the progress, and returns whether the manifest changed.
    /// Changes nothing on failure.
    fn apply_runs(
        &self,
        manifest: &mut Manifest,
        progress: &mut Progress,
        effects: &Effects,
        new: &NewRuns<'_>,
    ) -> Result<bool, ProgramError> {
        let mut changed = false;
        if manifest.events.is_some() {
            changed = self.apply_events(manifest, progress, effects, new)?;
        } else if !new.rows.is_empty() {
            // A backfill and live ledgers may have extended the tables differently in the meantime.
            let emits = effects.runs.iter().flat_map(|run| run.rows.emits.iter().cloned());
            let grown = manifest
                .schema
                .admit(&emits.collect::<Vec<_>>(), SchemaLimits::from(&self.settings));
            let grown = grown.map_err(|error| ProgramError::SchemaConflict(error.to_string()))?;
            if let Some(grown) = grown {
                manifest.schema = grown;
                changed = true;
            }
        }
        progress.log += new.rows.len() as u64;
        progress.executions += new.executions.len() as u64;
        progress.row_bytes += new.rows.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        progress.row_bytes += new.merged.iter().map(|(_, merged)| merged.grown).sum::<u64>();
        if effects.source == RunSource::Live && effects.arrival == Arrival::Live {
            progress.errors_in_a_row = errors_in_a_row(progress.errors_in_a_row, &new.executions);
            if manifest.running && progress.errors_in_a_row >= MAX_ERRORS_IN_A_ROW {
                manifest.running = false;
                manifest.stopped_because = Some(stopped_because(&new.executions));
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Adds new events to the summary and the numbers of a project, and returns whether the manifest
    /// changed.
    fn apply_events(
        &self,
        manifest: &mut Manifest,
        progress: &mut Progress,
        effects: &Effects,
        new: &NewRuns<'_>,
    ) -> Result<bool, ProgramError> {
        let Some(project) = &mut manifest.events else { return Ok(false) };
        let undeclared = progress.events.undeclared;
        let mut changed = project.add(&effects.summary.shapes, undeclared, (self.clock)());
        if changed {
            manifest.schema = project.schema();
        }
        let must_derive = !new.merged.is_empty();
        changed |= self.events.add_unsure(project, &effects.summary.unsure)?;
        changed |= self.events.add_apart(project, &effects.summary.apart)?;
        changed |= project.open.join(effects.summary.open);
        if let Some(nameless) = &mut project.nameless {
            changed |= nameless.join(&effects.summary.nameless);
        }
        changed |= must_derive && !project.must_derive;
        project.must_derive |= must_derive;
        let of = &OfProject::new(manifest.id, &manifest.owner);
        let positions: BTreeSet<_> = new.rows.iter().map(|(position, _)| *position).collect();
        let mut kinds = Kinds::default();
        for run in effects.runs.iter().filter(|run| positions.contains(&run.position)) {
            kinds.add_all(&run.kinds);
        }
        for (position, merged) in &new.merged {
            self.count_events(of, *position, &merged.added, &mut kinds)?;
        }
        progress.events.add(&kinds.counts(project.layout()));
        Ok(changed)
    }
}

/// Returns the number of failed runs since the last successful one. Runs without the state they
/// need do not count.
pub(super) fn errors_in_a_row<'e>(
    before: u32,
    executions: impl IntoIterator<Item = &'e Execution>,
) -> u32 {
    executions.into_iter().fold(before, |count, execution| match &execution.error {
        None => 0,
        Some(_) if execution.state_unavailable => count,
        Some(_) => count.saturating_add(1),
    })
}

/// Returns the message for a program or backfill that is stopped after these runs.
pub(super) fn stopped_because(executions: &[Execution]) -> String {
    let last = executions.iter().rev().filter(|it| !it.state_unavailable);
    let last = last.filter_map(|it| it.error.as_deref()).next();
    format!(
        "stopped after {MAX_ERRORS_IN_A_ROW} failures in a row, the last one being: {}",
        last.unwrap_or("unknown")
    )
}

/// Returns the runs that have to be repeated, the waiting runs that no longer have to be, and the
/// number of runs given up because `count` has reached [`MAX_WAITING`].
fn classify_waiting_runs(
    effects: &Effects,
    waiting: &WaitingRuns,
    count: &mut usize,
) -> (Vec<WaitingRun>, Vec<TransactionPosition>, u64) {
    let from = effects.stored_from.unwrap_or(effects.ledger);
    let (mut to_repeat, mut finished, mut given_up) = (Vec::new(), Vec::new(), 0);
    for run in &effects.runs {
        let (position, known) = (run.position, waiting.contains(run.position));
        match run.execution.state_unavailable {
            true if known => to_repeat.push(WaitingRun { position, from }),
            true if *count >= MAX_WAITING => given_up += 1,
            true => {
                *count += 1;
                to_repeat.push(WaitingRun { position, from });
            }
            false if known => finished.push(position),
            false => {}
        }
    }
    // Waiting runs that were not made: their transactions are no longer stored, or call none of the
    // contracts.
    if let Some(repeated) = effects.repeated.as_ref() {
        let made: BTreeSet<_> = effects.runs.iter().map(|run| run.position).collect();
        let left =
            |position: &&TransactionPosition| effects.rest.is_none_or(|rest| **position < rest);
        let gone = repeated.iter().filter(left).filter(|position| !made.contains(position));
        finished.extend(gone.filter(|position| waiting.contains(**position)));
    }
    *count = count.saturating_sub(finished.len());
    (to_repeat, finished, given_up)
}

/// Results of runs of one ledger that are to be written.
#[derive(Default)]
struct NewRuns<'e> {
    rows: Vec<(TransactionPosition, &'e Vec<u8>)>,
    /// Rows that are added to those of runs that are stored.
    merged: Vec<(TransactionPosition, Merged)>,
    executions: Vec<Execution>,
    stats: Option<LedgerStats>,
    written: WrittenRuns,
}

/// Everything that is to be written for one ledger.
struct Draft<'e> {
    effects: &'e Effects,
    new: NewRuns<'e>,
    /// Number of the last row log entry before this ledger; `executions` likewise for records of
    /// runs.
    log: u64,
    executions: u64,
    to_repeat: Vec<WaitingRun>,
    finished: Vec<TransactionPosition>,
}

impl Draft<'_> {
    fn put(&self, changes: &mut KindChanges<'_>, id: ProgramId) -> Result<(), StoreError> {
        let Self { effects, new, to_repeat, finished, .. } = self;
        for (number, (position, bytes)) in (self.log + 1..).zip(&new.rows) {
            storage::put_rows(changes, id, *position, number, bytes)?;
        }
        for (position, merged) in &new.merged {
            changes.put(&storage::rows_of_run(id, *position), &merged.encoded)?;
        }
        for (number, execution) in (self.executions + 1..).zip(&new.executions) {
            records::put_execution(changes, id, number, execution)?;
        }
        if let Some(stats) = &new.stats {
            records::put_sums(changes, id, stats)?;
        }
        if effects.place > 0 && effects.rest.is_none() {
            let ledger = LedgerRange { first: effects.ledger, last: effects.ledger };
            changes.put_seen(id, &ledger.into(), effects.complete);
        }
        to_repeat.iter().try_for_each(|run| storage::put_waiting_run(changes, id, *run))?;
        finished.iter().try_for_each(|position| changes.delete(&storage::waiting(id, *position)))
    }
}

/// Outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// The results of the runs are on disk.
    Runs(WrittenRuns),
    /// Nothing was written: the program is deleted, or contracts were registered or have become members
    /// since, which the runs did not take into account.
    Nothing,
}

/// Summary of what was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WrittenRuns {
    /// Number of ledgers written, out of those requested.
    pub ledgers: usize,
    pub executions: u64,
    pub errors: u64,
    pub rows: u64,
    /// Whether the set of waiting runs has changed.
    pub waiting_changed: bool,
    /// Whether this write stopped the program.
    pub stopped: bool,
}

impl WrittenRuns {
    fn add(&mut self, more: &Self) {
        self.ledgers += more.ledgers;
        self.executions += more.executions;
        self.errors += more.errors;
        self.rows += more.rows;
        self.waiting_changed |= more.waiting_changed;
    }
}
