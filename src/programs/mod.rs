//! Custom indexing programs: the registry of programs, their execution on the state before each
//! transaction, and the rows that they emit. Does not depend on HTTP or SQL.
//!
//! Each program is a consumer of the store's feed ([`crate::store`]). Threads for new ledgers give
//! the programs turns ([`lanes`]) and run each on its next ledgers ([`runner`]); the results are
//! committed together with the program's progress. Other threads copy rows into the tables
//! ([`feeder`]), and others run programs on ledgers that were stored before the program was
//! deployed ([`backfills`]). None of them delays ingestion.

pub mod backfill;
mod backfill_turn;
mod backfills;
mod concurrent_runs;
mod error;
mod failures;
mod feed_queue;
mod feeder;
mod incomplete_results;
mod lanes;
mod live;
pub mod manifest;
mod names;
mod reading;
pub mod records;
mod registry;
pub mod row_log;
mod rows;
mod runner;
pub mod state;
mod status;
#[cfg(test)]
mod tests;
pub mod transaction;
mod trial;
mod upstream_limiter;
mod waiting;
mod writing;

pub use orrery_engine as engine;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

pub use error::ProgramError;
pub use names::check_project;
pub use reading::ReadTable;
pub use registry::Deploy;
pub use status::ProgramStatus;
pub use trial::{Trial, TrialResult, TrialRun, TrialSelection, TrialTransaction};

use backfill::Backfill;
use backfills::Backfills;
use engine::{
    BACKGROUND_RUNS, CacheSettings, CheckRules, Engine, EngineSettings, Limits, THREAD_STACK,
};
use failures::Trouble;
use feeder::Feeder;
use lanes::{Lane, Lanes};
use live::Live;
use manifest::Manifest;
use reading::report;
use records::{Execution, LedgerStats, RunSource, StatsQuery};
use registry::Registry;
use runner::Runner;
use state::{LookupLimits, Upstream};
use upstream_limiter::UpstreamLimiter;

use crate::budget::{self, Budget, Holder, Share, Usage};
use crate::domain::{ContractId, LedgerRange, LedgerSeq, Owner, ProgramId};
use crate::observe::health::Health;
use crate::priority::Priority;
use crate::store::Store;
use crate::tables::Tables;
use crate::tables::query::Interrupted;
use crate::tables::schema::SchemaLimits;

/// Directory of compiled modules, within the data directory.
const COMPILED: &str = "compiled";
/// Threads that run programs on new ledgers, with the lane that each serves.
const LIVE_THREADS: [(&str, Lane); 2] = [("programs-1", Lane::Fast), ("programs-2", Lane::Fast)];
/// Such threads that have low priority.
const BACKGROUND_LIVE_THREADS: [(&str, Lane); 4] = [
    ("programs-new", Lane::New),
    ("programs-asking-1", Lane::Upstream),
    ("programs-asking-2", Lane::Upstream),
    ("programs-slow", Lane::Slow),
];
/// Low-priority threads that run programs on stored ledgers.
const BACKFILL_THREADS: [(&str, Lane); 3] = [
    ("programs-backfill-new", Lane::New),
    ("programs-backfill", Lane::Fast),
    ("programs-backfill-slow", Lane::Slow),
];
/// Maximum number of concurrent deploys (checking and compiling a module), at most one per owner.
const DEPLOYS_AT_ONCE: u64 = 2;
/// Maximum number of concurrent trials, at most one per owner.
const TRIALS_AT_ONCE: u64 = 2;
/// Threads that copy rows into tables, each for a different owner.
const FEEDER_THREADS: [&str; 4] = ["tables-1", "tables-2", "tables-3", "tables-4"];

/// Settings that the operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits of a run.
    pub limits: Limits,
    /// Limits of a run's lookups on the upstream server for ledger entries.
    pub lookups: LookupLimits,
    /// Maximum size of one owner's rows, in bytes.
    pub owner_bytes: u64,
    /// Maximum number of programs per owner.
    pub owner_programs: usize,
    /// Maximum number of subscriptions to other owners' programs, per owner.
    pub owner_subscriptions: usize,
    /// The only contracts that are indexed; `None` when all are.
    pub indexed: Option<BTreeSet<ContractId>>,
}

impl Settings {
    /// Returns the rules that a module must meet before it runs.
    fn check_rules(&self) -> CheckRules {
        CheckRules { memory: self.limits.memory, ..CheckRules::default() }
    }

    /// Checks that all these contracts are indexed: a program for a contract that is not would
    /// never run.
    fn check_indexed(&self, contracts: &[ContractId]) -> Result<(), ProgramError> {
        let Some(indexed) = &self.indexed else { return Ok(()) };
        match contracts.iter().find(|id| !indexed.contains(id)) {
            Some(id) => Err(ProgramError::NotIndexed(*id)),
            None => Ok(()),
        }
    }

    /// Returns the limits for the growth of a table.
    fn schema_limits(&self) -> SchemaLimits {
        SchemaLimits {
            columns: self.limits.columns,
            depth: self.limits.depth,
            ..SchemaLimits::default()
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            lookups: LookupLimits::default(),
            owner_bytes: 10 << 30,
            owner_programs: 20,
            owner_subscriptions: 20,
            indexed: None,
        }
    }
}

/// Dependencies of the programs.
pub struct ProgramDeps {
    /// Store of the ledgers and of the programs' results.
    pub store: Arc<Store>,
    /// Tables into which rows are copied for queries.
    pub tables: Tables,
    /// Health to which failures are reported.
    pub health: Arc<Health>,
    /// Settings chosen by the operator.
    pub settings: Settings,
    /// Server that is asked for entries that the store cannot determine; `None` without one.
    pub upstream: Option<Arc<dyn Upstream + Send + Sync>>,
    /// Returns the current time in UNIX milliseconds.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Executable that is started as the compiler process: this program.
    pub compiler: PathBuf,
    /// Secret key that authenticates compiled modules.
    pub code_key: [u8; 32],
}

/// All programs of a data directory, and the threads that run them.
pub struct Programs {
    store: Arc<Store>,
    registry: Arc<Registry>,
    runner: Arc<Runner>,
    feeder: Arc<Feeder>,
    lanes: Arc<Lanes>,
    live: Arc<Live>,
    backfills: Arc<Backfills>,
    trouble: Arc<Trouble>,
    deploys: Budget,
    trials: Budget,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl Programs {
    /// Opens the programs of a store and starts the threads that run them.
    ///
    /// # Errors
    /// When the engine cannot be set up, the store fails, or a stored record is damaged.
    pub fn start(deps: ProgramDeps) -> Result<Self, ProgramError> {
        let ProgramDeps { store, tables, health, settings, upstream, clock, compiler, code_key } =
            deps;
        let directory = store.directory().join(COMPILED);
        let engine = Engine::new(EngineSettings {
            cache: Some(CacheSettings { directory, key: code_key }),
            instance_memory: settings.limits.memory,
            ..EngineSettings::new(compiler)
        })?;
        let registry =
            Arc::new(Registry::open(Arc::clone(&store), engine.clone(), settings.clone())?);
        let upstream = upstream.map(UpstreamLimiter::new);
        let runner =
            Arc::new(Runner { store: Arc::clone(&store), engine, settings, upstream, clock });
        let feeder = Arc::new(Feeder::new(Arc::clone(&store), Arc::clone(&registry), tables));
        let lanes = Arc::new(Lanes::default());
        registry.all().iter().for_each(|entry| lanes.add(entry.id));
        let trouble = Arc::new(Trouble::new(Arc::clone(&health), &registry));
        let live = Arc::new(Live::new(&runner, &registry, &feeder, &trouble));
        let backfills = Arc::new(Backfills::open(&runner, &registry, &feeder, &trouble)?);
        trouble.report();
        let programs = Self {
            store,
            registry,
            runner,
            feeder,
            lanes,
            live,
            backfills,
            trouble,
            deploys: one_slot_per_owner("deploys", DEPLOYS_AT_ONCE),
            trials: one_slot_per_owner("trials", TRIALS_AT_ONCE),
            threads: Mutex::default(),
        };
        programs.start_threads(health);
        // Completes the work that a crash interrupted.
        programs.feeder.wake();
        Ok(programs)
    }

    /// Returns the usage of the budgets for deploys, trials, tables, upstream requests, runs and
    /// compilers.
    pub fn usages(&self) -> Vec<Usage> {
        let own = [self.deploys.usage(), self.trials.usage(), self.feeder.tables().usage()];
        let upstream = self.runner.upstream.as_ref().map(UpstreamLimiter::usage);
        own.into_iter().chain(self.runner.engine.usages()).chain(upstream).collect()
    }

    fn start_threads(&self, health: Arc<Health>) {
        // Each backfill thread may use a second one.
        const { assert!(BACKGROUND_LIVE_THREADS.len() + 2 * BACKFILL_THREADS.len() == BACKGROUND_RUNS) };
        let mut threads = Vec::new();
        let prompt = LIVE_THREADS.map(|(name, lane)| (name, lane, Priority::Prompt));
        let background =
            BACKGROUND_LIVE_THREADS.map(|(name, lane)| (name, lane, Priority::Background));
        for (name, lane, priority) in prompt.into_iter().chain(background) {
            let (lanes, live) = (Arc::clone(&self.lanes), Arc::clone(&self.live));
            threads.extend(spawn(name, priority, &health, move || {
                lanes.work(lane, |program| live.turn(program, lane));
            }));
        }
        for (name, lane) in BACKFILL_THREADS {
            let backfills = Arc::clone(&self.backfills);
            let work = move || backfills.work(lane);
            threads.extend(spawn(name, Priority::Background, &health, work));
        }
        for name in FEEDER_THREADS {
            let (feeder, reports) = (Arc::clone(&self.feeder), Arc::clone(&health));
            threads.extend(spawn(name, Priority::Prompt, &health, move || {
                feeder.work(|summary| report(summary, &reports));
            }));
        }
        *self.threads.lock() = threads;
    }

    /// Wakes all programs; to be called after ledgers were stored.
    pub fn notify_ledgers_stored(&self) {
        self.lanes.wake(None);
    }

    /// Stops all threads after their current work. The rest is done after the next start.
    pub fn stop(&self) {
        self.lanes.stop();
        self.backfills.stop();
        self.feeder.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the programs had panicked");
            }
        }
        // Saves the cursors, so that ledgers without runs are not examined again after the next
        // start.
        if let Err(error) = self.store.write_cursors() {
            tracing::warn!("the progress of programs could not be written: {error}");
        }
    }

    /// Checks a module, makes it ready to run, and registers the program, which is then run on all
    /// ledgers stored from now on.
    ///
    /// # Errors
    /// [`ProgramError`], with what the owner can do about it.
    pub fn deploy(&self, owner: &Owner, deploy: Deploy) -> Result<Manifest, ProgramError> {
        let _slot = take_slot(&self.deploys, owner)?;
        let now = (self.runner.clock)() / 1000;
        let manifest = self.registry.deploy(owner, deploy, now)?;
        self.lanes.add(manifest.id);
        self.feeder.wake();
        self.trouble.report();
        tracing::info!(program = %manifest.id, project = manifest.project_name, "deployed");
        Ok(manifest)
    }

    /// Registers further contracts for a program.
    ///
    /// # Errors
    /// [`ProgramError::Registered`] when one is already registered; none is added then.
    pub fn append(
        &self,
        owner: &Owner,
        id: ProgramId,
        contracts: Vec<ContractId>,
    ) -> Result<Manifest, ProgramError> {
        self.registry.append(owner, id, contracts)
    }

    /// Removes a program with its tables, rows and records.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn delete(&self, owner: &Owner, id: ProgramId) -> Result<(), ProgramError> {
        let manifest = self.registry.delete(owner, id)?;
        self.lanes.remove(id);
        self.backfills.forget(id);
        self.trouble.clear_waiting(RunSource::Live, id);
        self.trouble.report();
        // The program is gone now; tables that cannot be dropped yet are dropped later.
        if let Err(error) = self.feeder.feed(owner, Some(Instant::now())) {
            tracing::warn!(program = %id, "its tables will be dropped later: {error}");
        }
        self.feeder.wake();
        tracing::info!(program = %id, project = manifest.project_name, "deleted");
        Ok(())
    }

    /// Pauses a program, or resumes it where it stopped.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn set_running(
        &self,
        owner: &Owner,
        id: ProgramId,
        running: bool,
    ) -> Result<Manifest, ProgramError> {
        let manifest = self.registry.set_running(owner, id, running)?;
        self.lanes.wake(Some(id));
        self.trouble.report();
        Ok(manifest)
    }

    /// Returns an owner's programs, sorted by id.
    pub fn list(&self, owner: &Owner) -> Vec<Manifest> {
        self.registry.manifests(owner)
    }

    /// Returns the status of a program.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn status(&self, owner: &Owner, id: ProgramId) -> Result<ProgramStatus, ProgramError> {
        let entry = self.registry.owned(id, owner)?;
        let rows = || {
            let reason = self.feeder.skip_reason(owner, id)?;
            Some(format!("its rows cannot be written to its tables: {reason}"))
        };
        status::of(&self.store, &entry, self.trouble.reason(id).or_else(rows))
    }

    /// Returns the records of a program's runs on ledgers up to `last`, newest first, at most
    /// `limit`.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn executions(
        &self,
        owner: &Owner,
        id: ProgramId,
        last: Option<LedgerSeq>,
        limit: usize,
    ) -> Result<Vec<Execution>, ProgramError> {
        self.registry.owned(id, owner)?;
        records::executions(&self.store, id, last, limit)
    }

    /// Returns statistics of the runs per ledger, newest first.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn stats(
        &self,
        owner: &Owner,
        id: ProgramId,
        query: &StatsQuery,
    ) -> Result<Vec<LedgerStats>, ProgramError> {
        self.registry.owned(id, owner)?;
        records::stats(&self.store, id, query)
    }

    /// Runs a module that is not deployed on stored transactions. Stores nothing.
    ///
    /// # Errors
    /// [`ProgramError`], with what the owner can do about it.
    pub fn try_out(
        &self,
        owner: &Owner,
        trial: Trial,
        interrupted: Interrupted<'_>,
    ) -> Result<TrialResult, ProgramError> {
        let _slot = take_slot(&self.trials, owner)?;
        trial::run(&self.runner, owner, trial, interrupted)
    }

    /// Starts running a program on stored ledgers, in parallel with new ones.
    ///
    /// # Errors
    /// [`ProgramError::BackfillRunning`] when one is already running.
    pub fn begin_backfill(
        &self,
        owner: &Owner,
        id: ProgramId,
        ledgers: LedgerRange,
    ) -> Result<Backfill, ProgramError> {
        self.backfills.begin(&*self.registry.owned(id, owner)?, ledgers)
    }

    /// Returns the state of a program's backfill.
    ///
    /// # Errors
    /// [`ProgramError::NoBackfill`] when none was ever requested.
    pub fn backfill(&self, owner: &Owner, id: ProgramId) -> Result<Backfill, ProgramError> {
        self.registry.owned(id, owner)?;
        self.backfills.backfill(id)?.ok_or(ProgramError::NoBackfill(id))
    }

    /// Cancels a program's backfill. The rows it has stored remain.
    ///
    /// # Errors
    /// [`ProgramError::NoBackfill`] when none was ever requested.
    pub fn cancel_backfill(&self, owner: &Owner, id: ProgramId) -> Result<Backfill, ProgramError> {
        self.backfills.cancel(&*self.registry.owned(id, owner)?)
    }

    /// Deletes run statistics that are older than [`records::STATS_RETENTION`].
    ///
    /// # Errors
    /// When the store fails.
    pub fn prune(&self) -> Result<(), ProgramError> {
        let now = (self.runner.clock)();
        let limit = now.saturating_sub(records::STATS_RETENTION.as_millis() as u64);
        for entry in self.registry.all() {
            while records::prune_stats(&self.store, entry.id, limit, PRUNED_AT_ONCE)? > 0 {}
        }
        Ok(())
    }
}

/// Creates a budget of slots of which each owner may hold one.
fn one_slot_per_owner(name: &'static str, slots: u64) -> Budget {
    Budget::new(name, budget::Limits::without_waiting(slots, 1))
}

/// Takes a slot for an owner, or fails at once when none is free.
fn take_slot(slots: &Budget, owner: &Owner) -> Result<Share, ProgramError> {
    slots.take_now(Holder::of(owner), 1).map_err(|_| ProgramError::Busy)
}

/// Number of statistics records deleted per write.
const PRUNED_AT_ONCE: usize = 1000;

/// Starts a thread; returns `None` and reports to health when the system refuses.
fn spawn(
    name: &str,
    priority: Priority,
    health: &Health,
    work: impl FnOnce() + Send + 'static,
) -> Option<std::thread::JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(THREAD_STACK);
    let started = thread.spawn(move || {
        priority.apply_to_current_thread();
        work();
    });
    started
        .inspect_err(|error| {
            health.down("program threads", format!("a thread cannot start: {error}"))
        })
        .ok()
}
