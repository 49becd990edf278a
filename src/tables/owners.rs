//! Which worker runs for which owner: started when it is needed, ended when it is not, started anew when it
//! is gone, and its file put aside when it is damaged.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::files::{self, Directory};
use super::process::{StartError, Worker};
use super::wire::{Definition, Failure, Opening, Reply};
use super::{Confinement, TablesError, TablesSettings};
use crate::domain::{Owner, ProgramId};

/// How long to wait for a process of an earlier time to let go of the file.
const LOCKED_FOR: Duration = Duration::from_secs(20);
/// Between two attempts to open it.
const AGAIN: Duration = Duration::from_millis(50);
/// Between two looks for workers that nobody needs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// All owners that were asked for.
pub(super) struct Owners {
    settings: Arc<TablesSettings>,
    slots: Mutex<HashMap<Owner, Arc<Slot>>>,
    pub confinement: Arc<Mutex<Option<Confinement>>>,
}

/// One owner.
pub(super) struct Slot {
    pub owner: Owner,
    pub settings: Arc<TablesSettings>,
    pub directory: Directory,
    /// Held while the tables change.
    pub changing: Mutex<()>,
    pub worker: Mutex<Option<Arc<Worker>>>,
    pub state: Mutex<State>,
    asking: AtomicUsize,
    used: Mutex<Instant>,
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
        let owners = Arc::new(Self {
            settings: Arc::new(settings),
            slots: Mutex::default(),
            confinement: Arc::default(),
        });
        let weak = Arc::downgrade(&owners);
        thread::spawn(move || look_after(&weak));
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
            worker: Mutex::default(),
            state: Mutex::default(),
            asking: AtomicUsize::new(0),
            used: Mutex::new(Instant::now()),
            confinement: Arc::clone(&self.confinement),
        });
        slots.insert(owner.clone(), Arc::clone(&slot));
        slot
    }

    pub fn stop_all(&self) {
        let slots: Vec<Arc<Slot>> = self.slots.lock().values().cloned().collect();
        for slot in slots {
            let _changing = slot.changing.lock();
            let worker = slot.worker.lock().take();
            if let Some(worker) = worker {
                worker.stop();
            }
        }
    }

    /// Ends workers that nobody has needed for a while, and the longest unused of too many.
    fn end_unused(&self) {
        let slots: Vec<Arc<Slot>> = self.slots.lock().values().cloned().collect();
        let mut unused: Vec<(Instant, &Arc<Slot>)> = slots
            .iter()
            .filter(|slot| slot.worker.lock().is_some())
            .map(|slot| (*slot.used.lock(), slot))
            .collect();
        unused.sort_by_key(|(used, _)| *used);
        let limits = &self.settings.limits;
        let mut too_many = unused.len().saturating_sub(limits.workers);
        for (used, slot) in unused {
            if too_many > 0 || used.elapsed() > limits.idle {
                too_many = too_many.saturating_sub(usize::from(slot.stop_if_unused()));
            }
        }
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.stop_all();
    }
}

fn look_after(owners: &Weak<Owners>) {
    loop {
        thread::sleep(LOOK_EVERY);
        match owners.upgrade() {
            Some(owners) => owners.end_unused(),
            None => return,
        }
    }
}

impl Slot {
    /// The worker, started if none runs.
    pub fn running(&self) -> Result<Arc<Worker>, TablesError> {
        *self.used.lock() = Instant::now();
        let mut worker = self.worker.lock();
        if let Some(worker) = worker.as_ref().filter(|worker| worker.is_alive()) {
            return Ok(Arc::clone(worker));
        }
        // The old one lets go of the file before the next one asks for it.
        drop(worker.take());
        let started = Arc::new(self.start()?);
        *worker = Some(Arc::clone(&started));
        Ok(started)
    }

    fn start(&self) -> Result<Worker, TablesError> {
        let begun = Instant::now();
        let mut damaged_before = false;
        loop {
            self.directory.prepare(&self.owner).map_err(|error| self.unusable(error))?;
            let opening = self.opening();
            let started =
                Worker::start(&self.settings.worker, &self.directory.workplace(), opening);
            let reason = match started {
                Ok(worker) => match self.take_over(&worker) {
                    Ok(()) => return Ok(worker),
                    Err(reason) => {
                        worker.kill();
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

    fn opening(&self) -> Opening {
        let limits = &self.settings.limits;
        Opening {
            file: files::DATABASE.to_owned(),
            memory: limits.memory,
            threads: limits.threads,
            queries: limits.at_a_time,
            file_bytes: limits.file_bytes,
            process_wall: self.settings.walls.process,
            sql_wall: self.settings.walls.sql,
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
        let confinement =
            Confinement { files: worker.confinement.files, calls: worker.confinement.calls };
        let before = self.confinement.lock().replace(confinement);
        let whole = confinement.files && confinement.calls;
        if before.is_none() && !whole && self.settings.walls.process {
            tracing::warn!(
                landlock = confinement.files,
                seccomp = confinement.calls,
                "this kernel cannot hold SQL workers back as it should; DuckDB's own lock remains"
            );
        }
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
        let mut running = self.worker.lock();
        // Another caller may have been here before.
        if running.as_ref().is_some_and(|running| Arc::ptr_eq(running, worker)) {
            worker.kill();
            *running = None;
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
        // While this is held, no query can come to have the worker.
        let mut running = self.worker.lock();
        if self.asking.load(Ordering::Acquire) > 0 {
            return false;
        }
        match running.take() {
            Some(worker) => {
                worker.stop();
                true
            }
            None => false,
        }
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
