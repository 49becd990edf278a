//! Replaces programs: lets each one that is to replace another process the same ledgers, and take
//! the other one's place when it has caught up. Does not depend on what the runs of a program are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::ProgramError;
use super::backfill::State;
use super::backfills::Backfills;
use super::failures::Trouble;
use super::feed_served::Copied;
use super::feeder::Feeder;
use super::lanes::Lanes;
use super::manifest::{Manifest, Replaced};
use super::records::RunSource;
use super::registry::{Entry, Registry, TakeOver};
use super::runner::RETRY_DELAY;
use orrery_ledger::domain::{LedgerSet, ProgramId};
use orrery_store::Store;

/// Interval between two checks whether a program has caught up.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The programs that are to replace others.
pub(super) struct Replacements {
    store: Arc<Store>,
    registry: Arc<Registry>,
    lanes: Arc<Lanes>,
    backfills: Arc<Backfills>,
    feeder: Arc<Feeder>,
    trouble: Arc<Trouble>,
    /// Number of ledgers that the backfills of programs that are to replace others could not read,
    /// when it was last looked whether rows would be lost.
    compared: Mutex<BTreeMap<ProgramId, u64>>,
    state: Mutex<Wakeup>,
    changed: Condvar,
}

#[derive(Default)]
struct Wakeup {
    woken: bool,
    stopped: bool,
}

impl Replacements {
    pub(super) fn new(
        store: &Arc<Store>,
        registry: &Arc<Registry>,
        lanes: &Arc<Lanes>,
        backfills: &Arc<Backfills>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            registry: Arc::clone(registry),
            lanes: Arc::clone(lanes),
            backfills: Arc::clone(backfills),
            feeder: Arc::clone(feeder),
            trouble: Arc::clone(trouble),
            compared: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Advances all replacements until stopped; calls `before` each time that there may be any.
    pub(super) fn work(&self, before: impl Fn()) {
        let mut failed = false;
        while self.wait(failed) {
            failed = false;
            before();
            for new in self.registry.replacements() {
                if let Err(error) = self.step(&new) {
                    tracing::error!(program = %new.id, "it cannot replace another now: {error}");
                    failed = true;
                }
            }
        }
    }

    /// Waits until there is something to check. Returns false when stopped.
    fn wait(&self, failed: bool) -> bool {
        let mut state = self.state.lock();
        while !state.stopped && !std::mem::take(&mut state.woken) {
            if self.registry.replacements().is_empty() {
                self.changed.wait(&mut state);
            } else {
                let delay = if failed { RETRY_DELAY } else { CHECK_INTERVAL };
                self.changed.wait_for(&mut state, delay);
                break;
            }
        }
        !state.stopped
    }

    /// Wakes the thread after a program was deployed that is to replace another.
    pub(super) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_all();
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Does the next step of a replacement, if it can be done now: begins the backfill, replaces the
    /// other program, or gives up.
    pub(super) fn step(&self, new: &Entry) -> Result<(), ProgramError> {
        let manifest = new.snapshot().manifest;
        let Some(replaced) = &manifest.replaces else { return Ok(()) };
        let Some(old) = self.registry.get(replaced.program) else {
            return self.give_up(new, "the program that it was to replace is gone");
        };
        if let Some(because) = &manifest.stopped_because {
            return self.give_up(new, because);
        }
        match self.backfills.backfill(new.id)? {
            None => self.begin(new, &old),
            Some(backfill) => match backfill.state {
                State::Running => {
                    let unread = backfill.partial_ledgers.ledgers();
                    self.give_up_if_rows_are_lost(new, &old, replaced, unread)
                }
                State::Done | State::Incomplete => self.take_over(new, &manifest, replaced),
                State::Stopped | State::Cancelled => {
                    self.give_up(new, &backfill.message.unwrap_or_else(|| "cancelled".to_owned()))
                }
            },
        }
    }

    /// Begins a backfill of the stored ledgers that the old program has processed; for a project of
    /// events, of all that it reads.
    fn begin(&self, new: &Entry, old: &Entry) -> Result<(), ProgramError> {
        let stored: LedgerSet = self.store.status().ranges.into_iter().collect();
        let mut ledgers = match old.lock().progress.deployed_at_place {
            Some(place) => self.store.ledgers_after(place),
            // An earlier version deployed it: it may have processed any ledger.
            None => stored.clone(),
        };
        if let Some(backfill) = self.backfills.backfill(old.id)? {
            let covered = backfill.covered();
            stored.ranges().iter().for_each(|range| ledgers.insert_all(&covered.within(*range)));
        }
        if let Some(project) = &new.snapshot().manifest.events {
            ledgers = project.wanted(stored);
        }
        if let Some(place) = new.lock().progress.deployed_at_place {
            // It processes these ledgers as they come.
            ledgers.remove_all(&self.store.ledgers_after(place));
        }
        self.backfills.begin_only(new, ledgers).map(drop)
    }

    fn take_over(
        &self,
        new: &Entry,
        manifest: &Manifest,
        replaced: &Replaced,
    ) -> Result<(), ProgramError> {
        let is_copied = |log| {
            let readers = self.registry.readers_of(new);
            readers.iter().all(|reader| match self.feeder.copied(reader, new.id, log) {
                Copied::Yes => true,
                Copied::NotYet => false,
                // Nobody waits for the problems of another owner's tables.
                Copied::Failing => *reader != manifest.owner,
            })
        };
        match self.registry.take_over(new, is_copied)? {
            TakeOver::Done(old) => {
                self.forget(old);
                self.compared.lock().remove(&new.id);
                let project = &replaced.project_name;
                tracing::info!(program = %new.id, replaced = %old, project, "replaced");
                Ok(())
            }
            TakeOver::Loses(ledgers) => self.give_up(new, &loss(&ledgers)),
            TakeOver::NotYet | TakeOver::Nothing => Ok(()),
        }
    }

    /// Gives up while the backfill still runs if it is clear already that rows would be lost. Looks
    /// each time that the number of ledgers that could not be read has doubled.
    fn give_up_if_rows_are_lost(
        &self,
        new: &Entry,
        old: &Entry,
        replaced: &Replaced,
        unread: u64,
    ) -> Result<(), ProgramError> {
        {
            let mut compared = self.compared.lock();
            let before = compared.entry(new.id).or_insert(0);
            if replaced.allow_loss || unread == 0 || unread < *before * 2 {
                return Ok(());
            }
            *before = unread;
        }
        let lost = self.registry.rows_lost(new, old)?;
        if lost.is_empty() { Ok(()) } else { self.give_up(new, &loss(&lost)) }
    }

    fn give_up(&self, new: &Entry, because: &str) -> Result<(), ProgramError> {
        if let TakeOver::Done(id) = self.registry.give_up(new, because)? {
            self.forget(id);
            tracing::warn!(program = %id, because, "it did not replace another program");
        }
        Ok(())
    }

    /// Forgets a program that is deleted from the registry. Its tables are dropped soon.
    fn forget(&self, id: ProgramId) {
        self.compared.lock().remove(&id);
        self.lanes.remove(id);
        self.backfills.forget(id);
        self.trouble.clear_waiting(RunSource::Live, id);
        self.trouble.report();
        self.feeder.wake();
    }
}

/// Says which rows would be lost.
fn loss(ledgers: &LedgerSet) -> String {
    let ranges = ledgers.ranges();
    let first = ranges.first().map_or(0, |range| range.first.0);
    let last = ranges.last().map_or(0, |range| range.last.0);
    format!(
        "rows of at least {} ledgers, from {first} to {last}, would be lost, because data of these ledgers \
         is not stored any more: give --allow-loss (allow_loss) to replace it without them",
        ledgers.ledgers()
    )
}
