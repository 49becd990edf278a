//! Programs on new ledgers: takes them off the queue, one program and one ledger at a turn.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::ProgramError;
use super::feeder::Feeder;
use super::lanes::{SHORT_TURN, Turn, held_up};
use super::manifest::Manifest;
use super::records::RunSource;
use super::registry::{Entry, Registry, put_manifest, put_progress};
use super::runner::{Effects, RETRY, Runner};
use crate::domain::ProgramId;
use crate::observe::health::Health;
use crate::store::Queued;

/// Name under which trouble is reported.
const COMPONENT: &str = "programs";
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
    health: Arc<Health>,
    /// Ledgers that are done in part. Nothing of them is written yet.
    begun: Mutex<HashMap<ProgramId, (Queued, Effects)>>,
    trouble: Mutex<BTreeMap<ProgramId, String>>,
    /// Ledgers with runs so far.
    done: AtomicU32,
}

impl Live {
    pub(super) fn new(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        health: Arc<Health>,
    ) -> Self {
        Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            health,
            begun: Mutex::default(),
            trouble: Mutex::default(),
            done: AtomicU32::new(0),
        }
    }

    /// One turn of a program.
    pub(super) fn turn(&self, program: ProgramId) -> Turn {
        let Some(entry) = self.registry.get(program) else {
            self.begun.lock().remove(&program);
            self.trouble.lock().remove(&program);
            return Turn::Idle;
        };
        match self.next_ledger(&entry) {
            Ok(turn) => {
                if self.trouble.lock().remove(&program).is_some() {
                    self.report();
                }
                turn
            }
            Err(error) => {
                tracing::error!(%program, "a program cannot be run: {error}");
                self.trouble.lock().insert(program, error.to_string());
                self.report();
                Turn::Failed(RETRY)
            }
        }
    }

    fn report(&self) {
        match self.trouble.lock().first_key_value() {
            None => self.health.up(COMPONENT),
            Some((program, reason)) => {
                self.health.down(COMPONENT, format!("program {program}: {reason}"));
            }
        }
    }

    fn next_ledger(&self, entry: &Entry) -> Result<Turn, ProgramError> {
        let (manifest, after) = {
            let cell = entry.cell.lock();
            (cell.manifest.clone(), cell.progress.queue)
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
        let begun = self.begun.lock().remove(&entry.id);
        let (queued, effects) = match begun {
            Some(begun) => begun,
            None => match self.next_with_transactions(entry, &manifest, after)? {
                Some(queued) => {
                    let effects = Effects::none(&manifest, queued.ledger, RunSource::Live);
                    (queued, effects)
                }
                None => return Ok(Turn::Idle),
            },
        };
        let begun = Instant::now();
        let effects =
            self.runner.run(entry, &manifest.contracts, effects, Some(begun + SHORT_TURN))?;
        let held_up = held_up(begun);
        if effects.rest.is_some() {
            self.begun.lock().insert(entry.id, (queued, effects));
            return Ok(Turn::Worked { held_up });
        }
        let written = self.runner.write(entry, &effects, |progress, _| {
            progress.queue = progress.queue.max(queued.number);
            None
        })?;
        if written.is_some_and(|written| written.rows > 0) {
            self.feeder.wake();
        }
        if self.done.fetch_add(1, Ordering::Relaxed).is_multiple_of(CLEARED_AFTER) {
            self.unqueue()?;
        }
        Ok(Turn::Worked { held_up })
    }

    /// The next ledger on the queue in which one of the contracts was touched. Those before it are
    /// done with.
    fn next_with_transactions(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        mut after: u64,
    ) -> Result<Option<Queued>, ProgramError> {
        let store = &self.runner.store;
        loop {
            let queued = store.queued_after(after, LOOKED_AT)?;
            let Some(last) = queued.last().copied() else { return Ok(None) };
            let queued_len = queued.len();
            for next in queued {
                if store.touches(next.ledger, &manifest.contracts)? {
                    return Ok(Some(next));
                }
            }
            after = last.number;
            self.passed(entry, after, queued_len)?;
        }
    }

    /// A program has seen the queue up to a number, and there was nothing for it to do.
    fn passed(&self, entry: &Entry, number: u64, ledgers: usize) -> Result<(), ProgramError> {
        let mut cell = entry.cell.lock();
        if cell.deleted {
            return Ok(());
        }
        cell.progress.queue = cell.progress.queue.max(number);
        cell.unwritten += ledgers;
        if cell.unwritten >= UNWRITTEN {
            let progress = cell.progress;
            self.runner
                .store
                .change_programs(|changes| put_progress(changes, entry.id, &progress))?;
            cell.unwritten = 0;
            drop(cell);
            self.unqueue()?;
        }
        Ok(())
    }

    /// Takes off the queue what all programs have seen.
    fn unqueue(&self) -> Result<(), ProgramError> {
        let all = self.registry.all();
        let seen = all.iter().map(|entry| entry.cell.lock().progress.queue).min();
        let Some(seen) = seen else { return Ok(()) };
        let store = &self.runner.store;
        let Some(oldest) = store.queued_after(0, 1)?.first().copied() else { return Ok(()) };
        if oldest.number <= seen {
            store.change_programs(|changes| changes.unqueue(seen))?;
        }
        Ok(())
    }

    fn stop_full(&self, entry: &Entry, manifest: &Manifest) -> Result<Turn, ProgramError> {
        let because = ProgramError::Full(manifest.owner.to_string()).to_string();
        let mut cell = entry.cell.lock();
        if !cell.deleted {
            let mut manifest = cell.manifest.clone();
            manifest.running = false;
            manifest.stopped_because = Some(because);
            self.runner.store.change_programs(|changes| put_manifest(changes, &manifest))?;
            cell.manifest = manifest;
        }
        Ok(Turn::Idle)
    }
}
