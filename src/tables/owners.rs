//! Manages one worker per owner: starts it when it is needed, stops it when it is idle, restarts it
//! when it has died, and puts its file aside when the file is damaged.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use orrery_ledger::domain::{Owner, ProgramId};
use orrery_runtime::budget::{Budget, Holder, Limits, Share};
use parking_lot::Mutex;

use super::Confinement;
use super::chain::ChainTable;
use super::error::TablesError;
use super::files::{self, Directory};
use super::settings::TablesSettings;
use super::wire::{ChainOpening, Definition, Failure, Filling, Opening, Reply};
use super::worker_process::{Start, StartError, Worker};
use super::worker_slot::{Found, WorkerSlot};

/// Threads that DuckDB may use for one owner.
const THREADS: u32 = 1;
/// Maximum size of an owner's database file in bytes.
const FILE_BYTES: u64 = 64 << 30;
/// How long to wait for an earlier process to release the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay between two attempts to open a locked file.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(50);
/// Interval between two checks for idle workers while no caller waits for a permit.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two checks while a caller waits for a permit.
const CONTENDED_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a worker in use may run undisturbed while others wait for a permit.
const MIN_RUN_TIME: Duration = Duration::from_secs(2);

/// All owners whose tables were accessed.
pub(super) struct Owners {
    settings: Arc<TablesSettings>,
    by_owner: Mutex<HashMap<Owner, Arc<OwnerTables>>>,
    /// Permits for running workers. Each worker may use the memory limit of one owner.
    pub permits: Budget,
    pub confinement: Arc<Mutex<Option<Confinement>>>,
}

/// State of one owner.
pub(super) struct OwnerTables {
    pub owner: Owner,
    pub settings: Arc<TablesSettings>,
    pub directory: Directory,
    /// Held while the tables change.
    pub changing: Mutex<()>,
    pub slot: WorkerSlot,
    pub state: Mutex<State>,
    running_queries: AtomicUsize,
    last_used: Mutex<Instant>,
    permits: Budget,
    /// When the worker was started.
    started_at: Mutex<Instant>,
    /// Whether the worker has used up its time: it gets no further work, so that another owner can
    /// have the permit.
    draining: AtomicBool,
    confinement: Arc<Mutex<Option<Confinement>>>,
}

/// Contents of the owner's file.
#[derive(Clone, Default)]
pub(super) struct State {
    pub commit: u64,
    /// Programs with the tables that queries see.
    pub programs: Arc<BTreeMap<ProgramId, Definition>>,
    /// Number of the row log entry after which the rows of each program continue.
    pub watermarks: BTreeMap<ProgramId, u64>,
    /// Tables that are being filled to take the place of those that queries see.
    pub fillings: Arc<BTreeMap<ProgramId, Filling>>,
}

/// Counts as one of the owner's queries until it is dropped.
pub(super) struct QueryGuard<'a>(&'a OwnerTables);

impl Owners {
    pub fn open(settings: TablesSettings) -> Result<Arc<Self>, TablesError> {
        let path = settings.directory.clone();
        std::fs::create_dir_all(&path).map_err(|error| directory_error(&path, &error))?;
        let workers = u64::from(settings.queries.workers.get());
        let permits = Budget::new("sql_workers", Limits::with_any_waiting(workers, 1));
        let owners = Arc::new(Self {
            settings: Arc::new(settings),
            permits: permits.clone(),
            by_owner: Mutex::default(),
            confinement: Arc::default(),
        });
        let weak = Arc::downgrade(&owners);
        thread::spawn(move || reap_workers(&weak, &permits));
        Ok(owners)
    }

    pub fn tables(&self, owner: &Owner) -> Arc<OwnerTables> {
        let mut by_owner = self.by_owner.lock();
        if let Some(tables) = by_owner.get(owner) {
            return Arc::clone(tables);
        }
        let tables = Arc::new(OwnerTables {
            owner: owner.clone(),
            settings: Arc::clone(&self.settings),
            directory: Directory::of(&self.settings.directory, owner),
            changing: Mutex::default(),
            slot: WorkerSlot::default(),
            state: Mutex::default(),
            running_queries: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
            permits: self.permits.clone(),
            started_at: Mutex::new(Instant::now()),
            draining: AtomicBool::new(false),
            confinement: Arc::clone(&self.confinement),
        });
        by_owner.insert(owner.clone(), Arc::clone(&tables));
        tables
    }

    /// Returns the tables of the chain.
    pub fn chain_tables(&self) -> &[ChainTable] {
        self.settings.chain.as_ref().map_or(&[], |chain| chain.tables())
    }

    /// Determines how this kernel can confine workers, without opening an owner's file.
    pub fn probe_confinement(&self) -> Result<Confinement, TablesError> {
        let start = start_parameters(&self.settings, &self.settings.directory);
        let confinement = Worker::probe_confinement(start).map_err(|error| match error {
            StartError::Unavailable(message)
            | StartError::Damaged(message)
            | StartError::Locked(message) => TablesError::Unavailable(message),
        })?;
        let confinement = Confinement { files: confinement.files, calls: confinement.calls };
        *self.confinement.lock() = Some(confinement);
        Ok(confinement)
    }

    /// Stops all workers in parallel. A change that does not end within the timeout is not waited
    /// for.
    pub fn stop_all(&self) {
        let all: Vec<Arc<OwnerTables>> = self.by_owner.lock().values().cloned().collect();
        thread::scope(|scope| {
            for tables in &all {
                scope.spawn(|| {
                    let deadline = Instant::now() + self.settings.tunables.timeouts.end;
                    let _changing = tables.changing.try_lock_until(deadline);
                    tables.slot.wait_until_settled(deadline);
                    if let Some((worker, _change)) = tables.slot.remove_if(|_| true) {
                        worker.stop();
                    }
                });
            }
        });
    }

    /// Stops workers that have been idle for too long. While callers wait for a permit, also stops
    /// the least recently used workers; where all are in use, marks those that have used up their
    /// time as draining.
    fn stop_unused_workers(&self) {
        let all: Vec<Arc<OwnerTables>> = self.by_owner.lock().values().cloned().collect();
        let mut running: Vec<(Instant, &Arc<OwnerTables>)> = all
            .iter()
            .filter(|tables| tables.slot.is_occupied())
            .map(|tables| (*tables.last_used.lock(), tables))
            .collect();
        running.sort_by_key(|(last_used, _)| *last_used);
        let mut wanted = self.permits.missing();
        let mut in_use = Vec::new();
        for (last_used, tables) in running {
            let may_stay = wanted == 0 && last_used.elapsed() <= self.settings.tunables.idle;
            if may_stay && !tables.draining.load(Ordering::Acquire) {
                continue;
            }
            if tables.stop_if_unused() {
                wanted = wanted.saturating_sub(1);
            } else {
                in_use.push((*tables.started_at.lock(), tables));
            }
        }
        in_use.sort_by_key(|(started_at, _)| *started_at);
        for (started_at, tables) in
            in_use.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX))
        {
            if started_at.elapsed() > MIN_RUN_TIME {
                tables.draining.store(true, Ordering::Release);
            }
        }
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.stop_all();
    }
}

fn reap_workers(owners: &Weak<Owners>, permits: &Budget) {
    loop {
        permits.wait_until_missing(Instant::now() + IDLE_CHECK_INTERVAL);
        match owners.upgrade() {
            Some(owners) => owners.stop_unused_workers(),
            None => return,
        }
        if permits.missing() > 0 {
            thread::sleep(CONTENDED_CHECK_INTERVAL);
        }
    }
}

fn start_parameters<'a>(settings: &'a TablesSettings, directory: &'a Path) -> Start<'a> {
    let TablesSettings { queries, tunables, chain, .. } = settings;
    let directories = chain.as_ref().map(|chain| chain.directories()).unwrap_or_default();
    let chain = chain.as_ref().map(|chain| ChainOpening {
        directories: directories.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
        tables: chain.tables().to_vec(),
    });
    let opening = Opening {
        file: files::DATABASE.to_owned(),
        memory: queries.memory_mib.bytes(),
        threads: THREADS,
        queries: queries.at_a_time.get() as usize,
        file_bytes: FILE_BYTES,
        process_wall: tunables.protections.process,
        gate: tunables.protections.gate,
        lock: tunables.protections.lock,
        chain,
    };
    Start {
        program: &settings.worker,
        directory,
        opening,
        directories,
        longest_answer: queries.answer_mib.bytes() as usize,
        timeouts: tunables.timeouts,
    }
}

impl OwnerTables {
    /// Returns the worker. If none runs, starts one once there is a permit for it.
    pub fn running_worker(&self) -> Result<Arc<Worker>, TablesError> {
        *self.last_used.lock() = Instant::now();
        let deadline = Instant::now() + self.settings.queries.wait_ms.duration();
        let all_taken =
            || TablesError::AllWorkersBusy(self.settings.queries.workers.get() as usize);
        loop {
            let opening =
                || TablesError::Unavailable("The tables are being opened or closed".to_owned());
            match self.slot.find(deadline).ok_or_else(opening)? {
                Found::Worker(worker) if !self.directory.has_database() => self.end_orphan(&worker),
                Found::Worker(worker) if self.accepts_work() => return Ok(worker),
                Found::Worker(_) if Instant::now() >= deadline => return Err(all_taken()),
                Found::Worker(worker) => {
                    drop(worker);
                    // Waits until the worker is stopped, and then queues for a permit like other
                    // owners.
                    self.slot.wait(deadline.min(Instant::now() + CONTENDED_CHECK_INTERVAL));
                }
                Found::Free(change) => {
                    let permit =
                        self.permits.take_blocking(Holder::of(&self.owner), 1, Some(deadline));
                    let started = Arc::new(self.start(permit.map_err(|_| all_taken())?)?);
                    self.draining.store(false, Ordering::Release);
                    *self.started_at.lock() = Instant::now();
                    change.install(Arc::clone(&started));
                    return Ok(started);
                }
            }
        }
    }

    /// Returns a worker as [`Self::running_worker`] does, which reads the directories that `reads` accepts. One that
    /// was started before they existed is stopped when it has no work.
    pub fn worker_that(&self, reads: impl Fn(&Worker) -> bool) -> Result<Arc<Worker>, TablesError> {
        let deadline = Instant::now() + self.settings.queries.wait_ms.duration();
        loop {
            let worker = self.running_worker()?;
            if reads(&worker) {
                return Ok(worker);
            }
            drop(worker);
            if Instant::now() >= deadline {
                let message = "The files of chain.* have only just got their directory".to_owned();
                return Err(TablesError::Unavailable(message));
            }
            if !self.stop_if_unused() {
                thread::sleep(CONTENDED_CHECK_INTERVAL);
            }
        }
    }

    /// Ends a worker whose file was removed, so that the next one makes another. The rows are filled in
    /// again.
    fn end_orphan(&self, worker: &Arc<Worker>) {
        if let Some((worker, _change)) = self.slot.remove_if(|it| Arc::ptr_eq(it, worker)) {
            tracing::warn!(owner = %self.owner, "a file of tables was removed; it is rebuilt");
            worker.kill();
            *self.state.lock() = State::default();
        }
    }

    /// Whether the worker may be used: it has not used up its time, or no caller waits for a permit
    /// any more.
    fn accepts_work(&self) -> bool {
        if self.draining.load(Ordering::Acquire) && self.permits.missing() == 0 {
            self.draining.store(false, Ordering::Release);
        }
        !self.draining.load(Ordering::Acquire)
    }

    fn start(&self, permit: Share) -> Result<Worker, TablesError> {
        let begun = Instant::now();
        let mut damaged_before = false;
        let mut permit = Some(permit);
        loop {
            self.directory.prepare(&self.owner).map_err(|error| self.directory_error(error))?;
            let worker_directory = self.directory.worker_directory();
            let started =
                Worker::start(start_parameters(&self.settings, &worker_directory), &mut permit);
            let reason = match started {
                Ok(worker) => match self.load_contents(&worker) {
                    Ok(()) => return Ok(worker),
                    Err(reason) => {
                        permit = worker.into_permit();
                        reason
                    }
                },
                Err(StartError::Locked(_)) if begun.elapsed() < LOCK_TIMEOUT => {
                    thread::sleep(LOCK_RETRY_DELAY);
                    continue;
                }
                Err(StartError::Unavailable(message) | StartError::Locked(message)) => {
                    return Err(TablesError::Unavailable(message));
                }
                Err(StartError::Damaged(message)) => message,
            };
            if damaged_before {
                // A file that was just created cannot be damaged, so the cause is another one.
                return Err(TablesError::Unavailable(format!(
                    "A new file of tables cannot be opened: {reason}"
                )));
            }
            damaged_before = true;
            self.put_aside(&reason)?;
        }
    }

    /// Reads the contents of the file from the worker. Fails when the file lacks acknowledged
    /// changes.
    fn load_contents(&self, worker: &Worker) -> Result<(), String> {
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
        let fillings = contents.fillings.iter().map(|it| (it.program, it.clone()));
        let fillings = Arc::new(fillings.collect());
        *self.state.lock() = State { commit: contents.commit, programs, watermarks, fillings };
        self.report(worker);
        Ok(())
    }

    fn report(&self, worker: &Worker) {
        let confinement = self.confinement_of(worker);
        let before = self.confinement.lock().replace(confinement);
        if before != Some(confinement)
            && let Some(lack) = confinement.missing()
        {
            let allowed = self.settings.queries.allow_unconfined;
            tracing::warn!(lack, allowed, "SQL workers cannot be fully confined");
        }
    }

    /// Confinement of a worker.
    pub fn confinement_of(&self, worker: &Worker) -> Confinement {
        Confinement { files: worker.confinement.files, calls: worker.confinement.calls }
    }

    fn put_aside(&self, reason: &str) -> Result<(), TablesError> {
        let aside = self.directory.put_aside().map_err(|error| self.directory_error(error))?;
        tracing::error!(
            owner = %self.owner,
            directory = %self.directory.path().display(),
            aside,
            reason,
            "a file of tables is damaged; it was put aside and is rebuilt"
        );
        *self.state.lock() = State::default();
        Ok(())
    }

    /// Kills a worker that is gone or does not respond, and returns the error to report.
    pub fn lost(&self, worker: &Arc<Worker>) -> TablesError {
        worker.kill();
        TablesError::Unavailable("The process that keeps the tables has ended".to_owned())
    }

    /// Converts an unexpected reply to the error to report. Puts a damaged file aside, and kills
    /// the worker unless DuckDB merely refused the request.
    pub fn failed(&self, worker: &Arc<Worker>, reply: Reply) -> TablesError {
        let reason = match reply {
            Reply::Failed(Failure::Damaged(reason)) => reason,
            Reply::Failed(Failure::TransactionEnded(message)) => {
                tracing::error!(
                    owner = %self.owner,
                    reason = message,
                    "a query ended its read-only transaction; its worker is killed"
                );
                worker.kill();
                return TablesError::Unavailable("A query ended its transaction".to_owned());
            }
            Reply::Failed(Failure::Refused(message)) => {
                return TablesError::Refused(format!("DuckDB rejects the change: {message}"));
            }
            Reply::Failed(Failure::Unavailable(message)) => {
                // Once an instance of DuckDB has failed, it fails until the process ends.
                worker.kill();
                return TablesError::Unavailable(message);
            }
            other => {
                worker.kill();
                return TablesError::Unavailable(format!("The SQL worker answers {other:?}"));
            }
        };
        // Another caller may have put the file aside already.
        if let Some((worker, _change)) = self.slot.remove_if(|it| Arc::ptr_eq(it, worker)) {
            worker.kill();
            if let Err(error) = self.put_aside(&reason) {
                return error;
            }
        }
        TablesError::Unavailable("The tables were damaged and are being rebuilt".to_owned())
    }

    pub fn is_incomplete(&self) -> bool {
        self.directory.is_incomplete() || !self.directory.exists()
    }

    pub fn set_complete(&self) -> Result<(), TablesError> {
        if !self.is_incomplete() {
            return Ok(());
        }
        let _changing = self.changing.lock();
        let _running = self.running_worker()?;
        self.directory.set_complete().map_err(|error| self.directory_error(error))
    }

    /// Counts a query; `None` when the owner has too many.
    pub fn begin_query(&self) -> Option<QueryGuard<'_>> {
        let most = self.settings.queries.at_a_time.get() as usize;
        let more = |running_queries| (running_queries < most).then_some(running_queries + 1);
        self.running_queries.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(QueryGuard(self))
    }

    fn stop_if_unused(&self) -> bool {
        let Some(_changing) = self.changing.try_lock() else { return false };
        // Queries hold a reference to the worker while they run.
        let Some((worker, _change)) = self.slot.remove_if(|it| Arc::strong_count(it) == 1) else {
            return false;
        };
        worker.stop();
        true
    }

    pub fn directory_error(&self, error: std::io::Error) -> TablesError {
        directory_error(self.directory.path(), &error)
    }
}

fn directory_error(path: &Path, error: &std::io::Error) -> TablesError {
    let path = path.display();
    TablesError::Other(format!("the directory of tables {path} cannot be used: {error}"))
}

impl Drop for QueryGuard<'_> {
    fn drop(&mut self) {
        *self.0.last_used.lock() = Instant::now();
        self.0.running_queries.fetch_sub(1, Ordering::AcqRel);
    }
}
