//! Programs on new ledgers: takes them off the queue, one program and one ledger at a turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::ProgramError;
use super::begun::Begun;
use super::feeder::Feeder;
use super::lanes::{SHORT_TURN, Turn, held_up};
use super::manifest::{Manifest, Part};
use super::records::RunSource;
use super::registry::{Entry, Registry, put_progress};
use super::runner::{Effects, RETRY, Runner, WrittenRuns, Wrote};
use super::trouble::Trouble;
use super::waiting::Due;
use crate::domain::ProgramId;
use crate::store::{Queued, TransactionPosition};

/// Queued ledgers that are looked at in one turn.
const LOOKED_AT: usize = 256;
/// Ledgers without runs after which it is written how far a program has got.
const UNWRITTEN: usize = 1000;
/// Ledgers with runs after which the queue is cleared of what all programs have seen.
const CLEARED_AFTER: u32 = 64;

/// Runs programs on new ledgers.
pub(super) struct Live {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    begun: Begun,
    trouble: Arc<Trouble>,
    /// Ledgers with runs so far.
    done: AtomicU32,
}

/// What comes next for a program.
enum Next {
    /// A ledger in which one of its contracts was touched.
    Ledger(Queued),
    /// There are more ledgers to look at, in another turn.
    More,
    /// It has seen all that is queued.
    Nothing,
}

impl Live {
    pub(super) fn new(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Self {
        if runner.questions.is_some() {
            // Whoever can be asked now may know what was missing.
            registry.all().iter().for_each(|entry| entry.cell.lock().waiting.are_all_due());
        }
        Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            begun: Begun::default(),
            trouble: Arc::clone(trouble),
            done: AtomicU32::new(0),
        }
    }

    /// One turn of a program.
    pub(super) fn turn(&self, program: ProgramId) -> Turn {
        let Some(entry) = self.registry.get(program) else {
            self.begun.forget(program);
            self.trouble.is_over(RunSource::Live, program);
            return Turn::Idle;
        };
        match self.next_ledger(&entry) {
            Ok(turn) => {
                self.trouble.is_over(RunSource::Live, program);
                turn
            }
            Err(error) => {
                self.trouble.has(RunSource::Live, program, &error);
                Turn::Failed(RETRY)
            }
        }
    }

    fn next_ledger(&self, entry: &Entry) -> Result<Turn, ProgramError> {
        let (manifest, progress) = {
            let mut cell = entry.cell.lock();
            cell.settle(&self.runner.store)?;
            if cell.deleted {
                // Of its delete it was said that it failed.
                self.registry.remove(entry.id);
                return Ok(Turn::Idle);
            }
            (cell.manifest.clone(), cell.progress)
        };
        if !manifest.running {
            return Ok(Turn::Idle);
        }
        if self.registry.make_ready(entry)?.is_some() {
            return Ok(Turn::Idle);
        }
        if self.runner.is_full(&self.registry, &manifest.owner) {
            return self.stop_full(entry, &manifest);
        }
        let goes_on = |effects: &Effects| {
            effects.queue > progress.queue && effects.contracts == manifest.contracts
        };
        let effects = match self.begun.take(entry.id, goes_on) {
            Some(begun) => begun,
            None => match self.next_with_transactions(entry, &manifest, progress.queue)? {
                Next::Ledger(Queued { number, ledger }) => {
                    let mut effects = Effects::none(&manifest, ledger, RunSource::Live);
                    effects.queue = number;
                    let part = progress.part.filter(|part| part.queue == number);
                    effects.rest = part
                        .map(|part| TransactionPosition { ledger, application_order: part.from });
                    effects
                }
                Next::More => return Ok(Turn::Worked { held_up: false }),
                Next::Nothing => return self.run_again(entry, &manifest),
            },
        };
        let begun = Instant::now();
        let effects =
            self.runner.run(entry, &manifest.contracts, effects, Some(begun + SHORT_TURN))?;
        let turn = Turn::Worked { held_up: held_up(begun) };
        let effects = match effects.rest {
            None => effects,
            Some(_) => match self.begun.keep(entry.id, effects) {
                None => return Ok(turn),
                Some(effects) => effects,
            },
        };
        let queue = effects.queue;
        let wrote = self.runner.write(entry, &effects, |progress, _, _| {
            progress.part = effects.rest.map(|rest| Part { queue, from: rest.application_order });
            if progress.part.is_none() {
                progress.queue = progress.queue.max(queue);
            }
            None
        })?;
        self.wrote(&wrote);
        if self.done.fetch_add(1, Ordering::Relaxed).is_multiple_of(CLEARED_AFTER) {
            self.registry.unqueue()?;
        }
        Ok(turn)
    }

    /// Makes runs again for which there was not enough stored when they were made first.
    fn run_again(&self, entry: &Entry, manifest: &Manifest) -> Result<Turn, ProgramError> {
        let begun = Instant::now();
        let due = entry.cell.lock().waiting.due(&self.runner.store, begun);
        let (ledger, due) = match due {
            Due::Nothing => return Ok(Turn::Idle),
            Due::Later(wait) => return Ok(Turn::Later(wait)),
            Due::Now(ledger, due) => (ledger, due),
        };
        let mut effects = Effects::none(manifest, ledger, RunSource::Backfill);
        effects.again = Some(due);
        let effects =
            self.runner.run(entry, &manifest.contracts, effects, Some(begun + SHORT_TURN))?;
        self.wrote(&self.runner.write(entry, &effects, |_, _, _| None)?);
        Ok(Turn::Worked { held_up: held_up(begun) })
    }

    fn wrote(&self, wrote: &Wrote) {
        let Wrote::Runs(WrittenRuns { rows, waiting_changed, stopped, .. }) = wrote else { return };
        if *rows > 0 {
            self.feeder.wake();
        }
        if *waiting_changed || *stopped {
            self.trouble.report();
        }
    }

    /// The next ledger on the queue in which one of the contracts was touched. Those before it are
    /// done with.
    fn next_with_transactions(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        mut after: u64,
    ) -> Result<Next, ProgramError> {
        let store = &self.runner.store;
        let begun = Instant::now();
        loop {
            let queued = store.queued_after(after, LOOKED_AT)?;
            let Some(last) = queued.last().copied() else { return Ok(Next::Nothing) };
            let queued_len = queued.len();
            for next in queued {
                if store.touches(next.ledger, &manifest.contracts)? {
                    return Ok(Next::Ledger(next));
                }
            }
            after = last.number;
            if !self.passed(entry, manifest, after, queued_len)? || begun.elapsed() > SHORT_TURN {
                return Ok(Next::More);
            }
        }
    }

    /// A program has seen the queue up to a number, and there was nothing for it to do. Says whether that
    /// is so: contracts may have been registered since.
    pub(super) fn passed(
        &self,
        entry: &Entry,
        seen_with: &Manifest,
        number: u64,
        ledgers: usize,
    ) -> Result<bool, ProgramError> {
        let mut cell = entry.cell.lock();
        cell.settle(&self.runner.store)?;
        if cell.deleted || cell.manifest.contracts != seen_with.contracts {
            return Ok(false);
        }
        cell.progress.queue = cell.progress.queue.max(number);
        cell.unwritten += ledgers;
        if cell.unwritten >= UNWRITTEN {
            let progress = cell.progress;
            cell.write(&self.runner.store, |changes| put_progress(changes, entry.id, &progress))?;
            cell.unwritten = 0;
            drop(cell);
            self.registry.unqueue()?;
        }
        Ok(true)
    }

    fn stop_full(&self, entry: &Entry, manifest: &Manifest) -> Result<Turn, ProgramError> {
        let because = ProgramError::Full(manifest.owner.to_string()).to_string();
        let mut cell = entry.cell.lock();
        if !cell.deleted {
            self.registry.change_manifest(&mut cell, |manifest| {
                manifest.running = false;
                manifest.stopped_because = Some(because);
            })?;
        }
        drop(cell);
        self.trouble.report();
        Ok(Turn::Idle)
    }
}
