//! Which worker runs for which owner: started when it is needed, ended when it is not, started anew when it
//! is gone, and its file put aside when it is damaged.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::files::{self, Directory};
use super::process::{Start, StartError, Worker};
use super::seat::{Found, Seat};
use super::wire::{Definition, Failure, Opening, Reply};
use super::{Confinement, TablesError, TablesSettings};
use crate::budget::{Budget, Holder, Limits, Share};
use crate::domain::{Owner, ProgramId};

/// How long to wait for a process of an earlier time to let go of the file.
const LOCKED_FOR: Duration = Duration::from_secs(20);
/// Between two attempts to open it.
const AGAIN: Duration = Duration::from_millis(50);
/// Between two looks for workers that nobody needs, when nobody waits for a place.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between two looks when somebody does.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a worker that is in use is left to its owner while others wait for a place.
const LEAST_TIME: Duration = Duration::from_secs(2);

/// All owners that were asked for.
pub(super) struct Owners {
    settings: Arc<TablesSettings>,
    slots: Mutex<HashMap<Owner, Arc<Slot>>>,
    /// Places for workers, each with the memory that one may use.
    pub places: Budget,
    pub confinement: Arc<Mutex<Option<Confinement>>>,
}

/// One owner.
pub(super) struct Slot {
    pub owner: Owner,
    pub settings: Arc<TablesSettings>,
    pub directory: Directory,
    /// Held while the tables change.
    pub changing: Mutex<()>,
    pub seat: Seat,
    pub state: Mutex<State>,
    asking: AtomicUsize,
    used: Mutex<Instant>,
    places: Budget,
    /// When its worker was started.
    since: Mutex<Instant>,
    /// Whether its worker has had its time, and is used no more.
    leaving: AtomicBool,
    confinement: Arc<Mutex<Option<Confinement>>>,
}

/// What is in the owner's file.
#[derive(Default)]
pub(super) struct State {
    pub commit: u64,
    pub programs: Arc<BTreeMap<ProgramId, Definition>>,
    pub watermarks: BTreeMap<ProgramId, u64>,
}

/// A query that runs, until this is dropped.
pub(super) struct Asking<'a>(&'a Slot);

impl Owners {
    pub fn open(settings: TablesSettings) -> Result<Arc<Self>, TablesError> {
        let path = settings.directory.clone();
        std::fs::create_dir_all(&path).map_err(|error| TablesError::Directory { path, error })?;
        let workers = u64::try_from(settings.limits.workers).unwrap_or(u64::MAX);
        let places = Budget::new("sql_workers", Limits::with_any_waiting(workers, 1));
        let owners = Arc::new(Self {
            settings: Arc::new(settings),
            places: places.clone(),
            slots: Mutex::default(),
            confinement: Arc::default(),
        });
        let weak = Arc::downgrade(&owners);
        thread::spawn(move || look_after(&weak, &places));
        Ok(owners)
    }

    pub fn slot(&self, owner: &Owner) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.get(owner) {
            return Arc::clone(slot);
        }
        let slot = Arc::new(Slot {
            owner: owner.clone(),
            settings: Arc::clone(&self.settings),
            directory: Directory::of(&self.settings.directory, owner),
            changing: Mutex::default(),
            seat: Seat::default(),
            state: Mutex::default(),
            asking: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            places: self.places.clone(),
            since: Mutex::new(Instant::now()),
            leaving: AtomicBool::new(false),
            confinement: Arc::clone(&self.confinement),
        });
        slots.insert(owner.clone(), Arc::clone(&slot));
        slot
    }

    /// What workers can give up on this kernel, without opening a file of an owner.
    pub fn try_out(&self) -> Result<Confinement, TablesError> {
        let start = start_of(&self.settings, &self.settings.directory);
        let confinement = Worker::try_out(start).map_err(|error| match error {
            StartError::Unavailable(message)
            | StartError::Damaged(message)
            | StartError::Locked(message) => TablesError::Unavailable(message),
        })?;
        let confinement = Confinement { files: confinement.files, calls: confinement.calls };
        *self.confinement.lock() = Some(confinement);
        Ok(confinement)
    }

    /// Ends all workers, side by side. A change that does not end is not waited for.
    pub fn stop_all(&self) {
        let slots: Vec<Arc<Slot>> = self.slots.lock().values().cloned().collect();
        thread::scope(|scope| {
            for slot in &slots {
                scope.spawn(|| {
                    let deadline = Instant::now() + self.settings.timeouts.end;
                    let _changing = slot.changing.try_lock_until(deadline);
                    slot.seat.settle(deadline);
                    if let Some((worker, _change)) = slot.seat.remove_if(|_| true) {
                        worker.stop();
                    }
                });
            }
        });
    }

    /// Ends workers that nobody has needed for a while and, for those who wait for a place, the longest
    /// unused; where all are in use, those that have had their time.
    fn end_unused(&self) {
        let slots: Vec<Arc<Slot>> = self.slots.lock().values().cloned().collect();
        let mut running: Vec<(Instant, &Arc<Slot>)> = slots
            .iter()
            .filter(|slot| slot.seat.is_taken())
            .map(|slot| (*slot.used.lock(), slot))
            .collect();
        running.sort_by_key(|(used, _)| *used);
        let mut wanted = self.places.missing();
        let mut in_use = Vec::new();
        for (used, slot) in running {
            let may_stay = wanted == 0 && used.elapsed() <= self.settings.limits.idle;
            if may_stay && !slot.leaving.load(Ordering::Acquire) {
                continue;
            }
            match slot.stop_if_unused() {
                true => wanted = wanted.saturating_sub(1),
                false => in_use.push((*slot.since.lock(), slot)),
            }
        }
        in_use.sort_by_key(|(since, _)| *since);
        for (since, slot) in in_use.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX))
        {
            if since.elapsed() > LEAST_TIME {
                slot.leaving.store(true, Ordering::Release);
            }
        }
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.stop_all();
    }
}

fn look_after(owners: &Weak<Owners>, places: &Budget) {
    loop {
        places.wait_until_missing(Instant::now() + LOOK_EVERY);
        match owners.upgrade() {
            Some(owners) => owners.end_unused(),
            None => return,
        }
        if places.missing() > 0 {
            thread::sleep(LOOK_AGAIN);
        }
    }
}

fn start_of<'a>(settings: &'a TablesSettings, directory: &'a Path) -> Start<'a> {
    let limits = &settings.limits;
    let opening = Opening {
        file: files::DATABASE.to_owned(),
        memory: limits.memory,
        threads: limits.threads,
        queries: limits.at_a_time,
        file_bytes: limits.file_bytes,
        process_wall: settings.walls.process,
        gate: settings.walls.gate,
        lock: settings.walls.lock,
    };
    Start {
        program: &settings.worker,
        directory,
        opening,
        longest_answer: limits.bytes,
        timeouts: settings.timeouts,
    }
}

impl Slot {
    /// The worker, started if none runs and there is a place for it.
    pub fn running(&self) -> Result<Arc<Worker>, TablesError> {
        *self.used.lock() = Instant::now();
        let deadline = Instant::now() + self.settings.limits.wait;
        let all_taken = || TablesError::AllPlacesTaken(self.settings.limits.workers);
        loop {
            let opening =
                || TablesError::Unavailable("The tables are being opened or closed".to_owned());
            match self.seat.find(deadline).ok_or_else(opening)? {
                Found::Worker(worker) if self.may_stay() => return Ok(worker),
                Found::Worker(_) if Instant::now() >= deadline => return Err(all_taken()),
                Found::Worker(worker) => {
                    drop(worker);
                    // Until it is ended, and then in line with the others.
                    self.seat.wait(deadline.min(Instant::now() + LOOK_AGAIN));
                }
                Found::Free(change) => {
                    let place =
                        self.places.take_blocking(Holder::of(&self.owner), 1, Some(deadline));
                    let started = Arc::new(self.start(place.map_err(|_| all_taken())?)?);
                    self.leaving.store(false, Ordering::Release);
                    *self.since.lock() = Instant::now();
                    change.seat(Arc::clone(&started));
                    return Ok(started);
                }
            }
        }
    }

    /// Whether the worker may be used: it has not had its time, or nobody waits any more.
    fn may_stay(&self) -> bool {
        if self.leaving.load(Ordering::Acquire) && self.places.missing() == 0 {
            self.leaving.store(false, Ordering::Release);
        }
        !self.leaving.load(Ordering::Acquire)
    }

    fn start(&self, place: Share) -> Result<Worker, TablesError> {
        let begun = Instant::now();
        let mut damaged_before = false;
        let mut place = Some(place);
        loop {
            self.directory.prepare(&self.owner).map_err(|error| self.unusable(error))?;
            let workplace = self.directory.workplace();
            let started = Worker::start(start_of(&self.settings, &workplace), &mut place);
            let reason = match started {
                Ok(worker) => match self.take_over(&worker) {
                    Ok(()) => return Ok(worker),
                    Err(reason) => {
                        place = worker.end();
                        reason
                    }
                },
                Err(StartError::Locked(_)) if begun.elapsed() < LOCKED_FOR => {
                    thread::sleep(AGAIN);
                    continue;
                }
                Err(StartError::Unavailable(message) | StartError::Locked(message)) => {
                    return Err(TablesError::Unavailable(message));
                }
                Err(StartError::Damaged(message)) => message,
            };
            if damaged_before {
                // A file that was just begun is not damaged: something else is.
                return Err(TablesError::Unavailable(format!(
                    "A new file of tables cannot be opened: {reason}"
                )));
            }
            damaged_before = true;
            self.put_aside(&reason)?;
        }
    }

    /// Learns what is in the file, or why it is not what it should be.
    fn take_over(&self, worker: &Worker) -> Result<(), String> {
        let contents = &worker.contents;
        let acknowledged = self.directory.acknowledged();
        if contents.commit < acknowledged {
            return Err(format!(
                "the file has {} changes, and {acknowledged} were made",
                contents.commit
            ));
        }
        let programs = contents.programs.iter().map(|it| (it.program, it.clone()));
        let programs = Arc::new(programs.collect());
        let watermarks = contents.watermarks.clone();
        *self.state.lock() = State { commit: contents.commit, programs, watermarks };
        self.report(worker);
        Ok(())
    }

    fn report(&self, worker: &Worker) {
        let confinement = self.confinement_of(worker);
        let before = self.confinement.lock().replace(confinement);
        if before != Some(confinement)
            && let Some(lack) = confinement.lack()
        {
            let allowed = self.settings.allow_unconfined;
            tracing::warn!(lack, allowed, "SQL workers are not held back as they should be");
        }
    }

    /// What holds a worker back.
    pub fn confinement_of(&self, worker: &Worker) -> Confinement {
        Confinement { files: worker.confinement.files, calls: worker.confinement.calls }
    }

    fn put_aside(&self, reason: &str) -> Result<(), TablesError> {
        let aside = self.directory.put_aside().map_err(|error| self.unusable(error))?;
        tracing::error!(
            owner = %self.owner,
            directory = %self.directory.path().display(),
            aside,
            reason,
            "a file of tables is damaged; it was put aside and is built anew"
        );
        *self.state.lock() = State::default();
        Ok(())
    }

    /// What to say when a worker is gone.
    pub fn lost(&self, worker: &Arc<Worker>) -> TablesError {
        worker.kill();
        TablesError::Unavailable("The process that keeps the tables has ended".to_owned())
    }

    /// What to say of a reply that is a failure. A damaged file is put aside.
    pub fn failed(&self, worker: &Arc<Worker>, reply: Reply) -> TablesError {
        let reason = match reply {
            Reply::Failed(Failure::Damaged(reason)) => reason,
            Reply::Failed(Failure::TransactionEnded(message)) => {
                tracing::error!(
                    owner = %self.owner,
                    reason = message,
                    "a query has ended the transaction in which it may only read; its worker is killed"
                );
                worker.kill();
                return TablesError::Unavailable("A query did what no query may do".to_owned());
            }
            Reply::Failed(Failure::Refused(message)) => return TablesError::Refused(message),
            Reply::Failed(Failure::Unavailable(message)) => {
                // An instance of DuckDB that has failed does so until it is gone.
                worker.kill();
                return TablesError::Unavailable(message);
            }
            other => {
                worker.kill();
                return TablesError::Unavailable(format!("The SQL worker answers {other:?}"));
            }
        };
        // Another caller may have been here before.
        if let Some((worker, _change)) = self.seat.remove_if(|it| Arc::ptr_eq(it, worker)) {
            worker.kill();
            if let Err(error) = self.put_aside(&reason) {
                return error;
            }
        }
        TablesError::Unavailable("The tables were damaged and are being built anew".to_owned())
    }

    pub fn is_incomplete(&self) -> bool {
        self.directory.is_incomplete() || !self.directory.exists()
    }

    pub fn set_complete(&self) -> Result<(), TablesError> {
        if !self.is_incomplete() {
            return Ok(());
        }
        let _changing = self.changing.lock();
        let _running = self.running()?;
        self.directory.set_complete().map_err(|error| self.unusable(error))
    }

    /// Counts a query, unless there are too many.
    pub fn begin_asking(&self) -> Option<Asking<'_>> {
        let most = self.settings.limits.at_a_time;
        let more = |asking| (asking < most).then_some(asking + 1);
        self.asking.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Asking(self))
    }

    fn stop_if_unused(&self) -> bool {
        let Some(_changing) = self.changing.try_lock() else { return false };
        // Queries hold it while they run.
        let Some((worker, _change)) = self.seat.remove_if(|it| Arc::strong_count(it) == 1) else {
            return false;
        };
        worker.stop();
        true
    }

    pub fn unusable(&self, error: std::io::Error) -> TablesError {
        TablesError::Directory { path: self.directory.path().to_owned(), error }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        *self.0.used.lock() = Instant::now();
        self.0.asking.fetch_sub(1, Ordering::AcqRel);
    }
}
