//! How what runs left is written: of one program and several ledgers at once, with how far it has got.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::backfill::Backfill;
use super::backfills::put_backfill;
use super::manifest::{Manifest, Progress};
use super::records::{Execution, LedgerStats, LedgerSums, RunSource};
use super::registry::{Entry, put_manifest, put_progress};
use super::runner::{Effects, Runner};
use super::waiting::{MOST_WAITING, Waiting};
use super::{ProgramError, records};
use crate::domain::{LedgerRange, ProgramId};
use crate::store::{ProgramChanges, StoreError, TransactionPosition, WaitingRun, program_consumer};

/// Failures in a row after which a program is no longer run, or a backfill stopped.
pub(super) const MOST_ERRORS_IN_A_ROW: u32 = 100;

impl Runner {
    /// Writes what runs on some ledgers left, and what `also` says about the program after each of them, at
    /// once. Nothing in memory changes unless it is [`Wrote::Runs`]: that is also the rule for what `also`
    /// has a hand in. A ledger whose rows do not go together with those of the ledgers before it is not written, nor
    /// is any after it: its runs are to be made again, on the tables as they are then.
    ///
    /// # Errors
    /// When nothing was written, or nobody knows.
    pub(super) fn write(
        &self,
        entry: &Entry,
        ledgers: &[Effects],
        mut also: impl FnMut(&mut Progress, &Effects, &WrittenRuns, &[Execution]) -> Option<Backfill>,
    ) -> Result<Wrote, ProgramError> {
        let mut cell = entry.lock();
        cell.settle(&self.store)?;
        if cell.deleted {
            return Ok(Wrote::Nothing);
        }
        if ledgers.iter().any(|effects| cell.manifest.contracts != effects.contracts) {
            return Ok(Wrote::Nothing);
        }
        let (mut manifest, mut progress) = (Manifest::clone(&cell.manifest), cell.progress);
        let mut waiting = cell.waiting.len();
        let (mut written, mut changed, mut backfill) = (WrittenRuns::default(), false, None);
        let mut drafts = Vec::with_capacity(ledgers.len());
        for effects in ledgers {
            let mut new = self.new_runs(entry.id, effects)?;
            let (log, executions) = (progress.log, progress.executions);
            match self.account(&mut manifest, &mut progress, effects, &new) {
                Ok(grew) => changed |= grew,
                Err(ProgramError::Outgrown(_)) if !drafts.is_empty() => break,
                Err(error) => return Err(error),
            }
            let (waits, over, given_up) = again(effects, &cell.waiting, &mut waiting);
            progress.given_up += given_up;
            new.written.ledgers = 1;
            new.written.waiting_changed = !waits.is_empty() || !over.is_empty() || given_up > 0;
            written.add(&new.written);
            backfill = also(&mut progress, effects, &new.written, &new.executions);
            drafts.push(Draft { effects, new, log, executions, waits, over });
        }
        cell.write(&self.store, |changes| {
            drafts.iter().try_for_each(|draft| draft.put(changes, entry.id))?;
            if let Some(backfill) = &backfill {
                put_backfill(changes, backfill)?;
            }
            if changed {
                put_manifest(changes, &manifest)?;
            }
            changes.put_cursor(entry.id, progress.place);
            put_progress(changes, entry.id, &progress)
        })?;
        written.stopped = !manifest.running && cell.manifest.running;
        if written.stopped {
            let because = manifest.stopped_because.as_deref();
            tracing::warn!(program = %entry.id, because, "a program is no longer run");
            self.store.set_active(&program_consumer(entry.id), false);
        }
        if changed {
            cell.manifest = Arc::new(manifest);
        }
        cell.progress = progress;
        drafts.iter().for_each(|draft| cell.waiting.written(&draft.waits, &draft.over));
        Ok(Wrote::Runs(written))
    }

    /// What of the runs is not stored yet.
    fn new_runs<'e>(
        &self,
        program: ProgramId,
        effects: &'e Effects,
    ) -> Result<NewRuns<'e>, ProgramError> {
        let mut new = NewRuns::default();
        for run in &effects.runs {
            let mut execution = run.execution.clone();
            if !run.rows.emits.is_empty() {
                // A backfill and live ledgers may overlap.
                if self.store.rows_of_run(program, run.position)?.is_some() {
                    execution.rows = 0;
                } else {
                    new.rows.push((run.position, &run.encoded));
                }
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

    /// Counts new runs; says whether the manifest has changed. When this fails, nothing has.
    fn account(
        &self,
        manifest: &mut Manifest,
        progress: &mut Progress,
        effects: &Effects,
        new: &NewRuns<'_>,
    ) -> Result<bool, ProgramError> {
        let mut changed = false;
        if !new.rows.is_empty() {
            // A backfill and live ledgers may have made different tables grow meanwhile.
            let emits = effects.runs.iter().flat_map(|run| run.rows.emits.iter().cloned());
            let grown =
                manifest.schema.admit(&emits.collect::<Vec<_>>(), self.settings.schema_limits());
            let grown = grown.map_err(|error| ProgramError::Outgrown(error.to_string()))?;
            if let Some(grown) = grown {
                manifest.schema = grown;
                changed = true;
            }
        }
        progress.log += new.rows.len() as u64;
        progress.executions += new.executions.len() as u64;
        progress.row_bytes += new.rows.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        if effects.source == RunSource::Live {
            progress.errors_in_a_row = errors_in_a_row(progress.errors_in_a_row, &new.executions);
            if manifest.running && progress.errors_in_a_row >= MOST_ERRORS_IN_A_ROW {
                manifest.running = false;
                manifest.stopped_because = Some(stopped_because(&new.executions));
                changed = true;
            }
        }
        Ok(changed)
    }
}

/// How many runs have failed since the last that did not. One for which state was missing is neither.
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

/// Why something is no longer run after these.
pub(super) fn stopped_because(executions: &[Execution]) -> String {
    let last = executions.iter().rev().filter(|it| !it.state_unavailable);
    let last = last.filter_map(|it| it.error.as_deref()).next();
    format!(
        "stopped after {MOST_ERRORS_IN_A_ROW} failures in a row, the last one being: {}",
        last.unwrap_or("unknown")
    )
}

/// Which runs are to be made again, which of those that waited are not, and how many there is no room for
/// beside so many that wait.
fn again(
    effects: &Effects,
    waiting: &Waiting,
    count: &mut usize,
) -> (Vec<WaitingRun>, Vec<TransactionPosition>, u64) {
    let from = effects.stored_from.unwrap_or(effects.ledger);
    let (mut waits, mut over, mut given_up) = (Vec::new(), Vec::new(), 0);
    for run in &effects.runs {
        let (position, known) = (run.position, waiting.has(run.position));
        match run.execution.state_unavailable {
            true if known => waits.push(WaitingRun { position, from }),
            true if *count >= MOST_WAITING => given_up += 1,
            true => {
                *count += 1;
                waits.push(WaitingRun { position, from });
            }
            false if known => over.push(position),
            false => {}
        }
    }
    // Those of which nothing came: they are not stored any more, or call none of the contracts.
    if let Some(again) = effects.again.as_ref() {
        let made: BTreeSet<_> = effects.runs.iter().map(|run| run.position).collect();
        let left =
            |position: &&TransactionPosition| effects.rest.is_none_or(|rest| **position < rest);
        let gone = again.iter().filter(left).filter(|position| !made.contains(position));
        over.extend(gone.filter(|position| waiting.has(**position)));
    }
    *count = count.saturating_sub(over.len());
    (waits, over, given_up)
}

/// What is to be written.
#[derive(Default)]
struct NewRuns<'e> {
    rows: Vec<(TransactionPosition, &'e Vec<u8>)>,
    executions: Vec<Execution>,
    stats: Option<LedgerStats>,
    written: WrittenRuns,
}

/// What is to be written of one ledger.
struct Draft<'e> {
    effects: &'e Effects,
    new: NewRuns<'e>,
    /// Number of the last run with rows before it, and of the last record of a run.
    log: u64,
    executions: u64,
    waits: Vec<WaitingRun>,
    over: Vec<TransactionPosition>,
}

impl Draft<'_> {
    fn put(&self, changes: &mut ProgramChanges<'_>, id: ProgramId) -> Result<(), StoreError> {
        let Self { effects, new, waits, over, .. } = self;
        for (number, (position, bytes)) in (self.log + 1..).zip(&new.rows) {
            changes.put_rows(id, *position, number, bytes)?;
        }
        for (number, execution) in (self.executions + 1..).zip(&new.executions) {
            records::put_execution(changes, id, number, execution)?;
        }
        if let Some(stats) = &new.stats {
            records::put_sums(changes, id, stats)?;
        }
        if effects.place > 0 && effects.rest.is_none() {
            let ledger = LedgerRange { first: effects.ledger, last: effects.ledger };
            changes.put_seen(id, &ledger.into(), effects.whole);
        }
        waits.iter().try_for_each(|run| changes.put_waiting_run(id, *run))?;
        over.iter().try_for_each(|position| changes.delete_waiting_run(id, *position))
    }
}

/// What came of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrote {
    /// What the runs left is on disk.
    Runs(WrittenRuns),
    /// Nothing: the program is gone, or contracts were registered since, and what was run and passed over
    /// was so without them.
    Nothing,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WrittenRuns {
    /// Ledgers, of those that were to be written.
    pub ledgers: usize,
    pub executions: u64,
    pub errors: u64,
    pub rows: u64,
    /// There are others, more or fewer runs that wait for ledgers.
    pub waiting_changed: bool,
    /// The program is no longer run since.
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
