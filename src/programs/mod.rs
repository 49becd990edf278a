//! Custom indexing programs: which there are, how they are run again on what a transaction began
//! with, and what becomes of what they emit. Knows no HTTP and no SQL.
//!
//! Each program is a consumer of the store's feed ([`crate::store`]). Threads for new ledgers take programs by turns
//! ([`lanes`]) and run each on its next ledger ([`runner`]); what the runs leave is written at once, with how far the
//! program has got. Other threads bring rows into the tables ([`feeder`]), and others run programs on ledgers that were
//! stored before they were deployed ([`backfills`]). None of them holds up ingestion.

mod abreast;
pub mod backfill;
mod backfill_turn;
mod backfills;
mod begun;
pub mod emit;
pub mod engine;
mod error;
mod feeder;
mod lanes;
mod live;
pub mod manifest;
mod names;
mod questions;
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
mod trouble;
mod turns;
mod waiting;
mod writing;

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
pub use trial::{Trial, TrialOn, Tried, TriedRun, TriedTransaction};

use backfill::Backfill;
use backfills::Backfills;
use engine::{
    BACKGROUND_RUNS, CacheSettings, CheckRules, Engine, EngineSettings, Limits, THREAD_STACK,
};
use feeder::Feeder;
use lanes::{Lane, Lanes};
use live::Live;
use manifest::Manifest;
use questions::Questions;
use reading::report;
use records::{Execution, LedgerStats, RunSource, StatsQuery};
use registry::Registry;
use runner::Runner;
use state::{LookupLimits, Upstream};
use trouble::Trouble;

use crate::budget::{self, Budget, Holder, Share, Usage};
use crate::domain::{ContractId, LedgerRange, LedgerSeq, Owner, ProgramId};
use crate::observe::health::Health;
use crate::priority::Priority;
use crate::store::Store;
use crate::tables::Tables;
use crate::tables::query::Interrupted;
use crate::tables::schema::SchemaLimits;

/// Directory of compiled modules in the data directory.
const COMPILED: &str = "compiled";
/// Threads that run programs on new ledgers, and whose turn each of them gives.
const LIVE: [(&str, Lane); 2] = [("programs-1", Lane::Fast), ("programs-2", Lane::Fast)];
/// The same, of low priority.
const LIVE_IN_BACKGROUND: [(&str, Lane); 4] = [
    ("programs-new", Lane::New),
    ("programs-asking-1", Lane::Asking),
    ("programs-asking-2", Lane::Asking),
    ("programs-slow", Lane::Slow),
];
/// Threads that run programs on ledgers that were stored before, of low priority.
const BACKFILLING: [(&str, Lane); 3] = [
    ("programs-backfill-new", Lane::New),
    ("programs-backfill", Lane::Fast),
    ("programs-backfill-slow", Lane::Slow),
];
/// Modules that are checked and compiled at a time, to be deployed, of different owners.
const DEPLOYS_AT_ONCE: u64 = 2;
/// Trials at a time, of different owners.
const TRIALS_AT_ONCE: u64 = 2;
/// Threads that bring rows into tables, of different owners.
const FEEDERS: [&str; 4] = ["tables-1", "tables-2", "tables-3", "tables-4"];

/// What the operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What a run may use.
    pub limits: Limits,
    /// What a run may ask of the server that knows entries.
    pub lookups: LookupLimits,
    /// Bytes of rows that one owner may have.
    pub owner_bytes: u64,
    /// Programs that one owner may have.
    pub owner_programs: usize,
    /// Other owners' programs that one owner may have subscribed to.
    pub owner_subscriptions: usize,
    /// The only contracts that are indexed; none when all are.
    pub indexed: Option<BTreeSet<ContractId>>,
}

impl Settings {
    /// What a module may ask for before it runs.
    fn check_rules(&self) -> CheckRules {
        CheckRules { memory: self.limits.memory, ..CheckRules::default() }
    }

    /// Whether all these contracts are indexed: a program for one that is not would never run.
    fn check_indexed(&self, contracts: &[ContractId]) -> Result<(), ProgramError> {
        let Some(indexed) = &self.indexed else { return Ok(()) };
        match contracts.iter().find(|id| !indexed.contains(id)) {
            Some(id) => Err(ProgramError::NotIndexed(*id)),
            None => Ok(()),
        }
    }

    /// How large a table may become.
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

/// What programs work with.
pub struct ProgramDeps {
    /// Where ledgers, and what programs leave, are.
    pub store: Arc<Store>,
    /// Where rows are asked for.
    pub tables: Tables,
    /// Where trouble is reported.
    pub health: Arc<Health>,
    /// What the operator may choose.
    pub settings: Settings,
    /// Who is asked for entries that nothing stored tells of.
    pub upstream: Option<Arc<dyn Upstream + Send + Sync>>,
    /// UNIX milliseconds now.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The program that becomes a compiler: this one.
    pub compiler: PathBuf,
    /// The secret under which compiled modules are authenticated.
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
    /// When what is stored is damaged.
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
        let questions = upstream.map(Questions::new);
        let runner =
            Arc::new(Runner { store: Arc::clone(&store), engine, settings, questions, clock });
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
            deploys: one_of_each_owner("deploys", DEPLOYS_AT_ONCE),
            trials: one_of_each_owner("trials", TRIALS_AT_ONCE),
            threads: Mutex::default(),
        };
        programs.start_threads(health);
        // What a crash left half done is done now.
        programs.feeder.wake();
        Ok(programs)
    }

    /// What is taken of the places for what programs do.
    pub fn usages(&self) -> Vec<Usage> {
        let own = [self.deploys.usage(), self.trials.usage(), self.feeder.tables().usage()];
        let questions = self.runner.questions.as_ref().map(Questions::usage);
        own.into_iter().chain(self.runner.engine.usages()).chain(questions).collect()
    }

    fn start_threads(&self, health: Arc<Health>) {
        // Each backfill may have a second thread.
        const { assert!(LIVE_IN_BACKGROUND.len() + 2 * BACKFILLING.len() == BACKGROUND_RUNS) };
        let mut threads = Vec::new();
        let prompt = LIVE.map(|(name, lane)| (name, lane, Priority::Prompt));
        let background = LIVE_IN_BACKGROUND.map(|(name, lane)| (name, lane, Priority::Background));
        for (name, lane, priority) in prompt.into_iter().chain(background) {
            let (lanes, live) = (Arc::clone(&self.lanes), Arc::clone(&self.live));
            threads.extend(spawn(name, priority, &health, move || {
                lanes.work(lane, |program| live.turn(program, lane));
            }));
        }
        for (name, lane) in BACKFILLING {
            let backfills = Arc::clone(&self.backfills);
            let work = move || backfills.work(lane);
            threads.extend(spawn(name, Priority::Background, &health, work));
        }
        for name in FEEDERS {
            let (feeder, reports) = (Arc::clone(&self.feeder), Arc::clone(&health));
            threads.extend(spawn(name, Priority::Prompt, &health, move || {
                feeder.work(|fed| report(fed, &reports));
            }));
        }
        *self.threads.lock() = threads;
    }

    /// To be called when ledgers have been stored.
    pub fn ledgers_came(&self) {
        self.lanes.wake(None);
    }

    /// Ends all threads after what they have at hand. What is left is done after the next start.
    pub fn stop(&self) {
        self.lanes.stop();
        self.backfills.stop();
        self.feeder.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the programs had panicked");
            }
        }
        // Ledgers in which there was nothing to do are not looked at again after the next start.
        if let Err(error) = self.store.write_cursors() {
            tracing::warn!("how far programs have got could not be written: {error}");
        }
    }

    /// Checks a module, makes it ready to run, and registers it. Ledgers stored from now on are for it.
    ///
    /// # Errors
    /// [`ProgramError`], with what to do about it.
    pub fn deploy(&self, owner: &Owner, deploy: Deploy) -> Result<Manifest, ProgramError> {
        let _place = place(&self.deploys, owner)?;
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
    /// [`ProgramError::Registered`] when one is registered already; then none is added.
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
        self.trouble.is_over(RunSource::Live, id);
        self.trouble.report();
        // From here on the program is gone; tables that cannot be dropped now are dropped later.
        if let Err(error) = self.feeder.feed(owner, Some(Instant::now())) {
            tracing::warn!(program = %id, "its tables will be dropped later: {error}");
        }
        self.feeder.wake();
        tracing::info!(program = %id, project = manifest.project_name, "deleted");
        Ok(())
    }

    /// Pauses a program, or lets it continue where it stopped.
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

    /// An owner's programs, by number.
    pub fn list(&self, owner: &Owner) -> Vec<Manifest> {
        self.registry.manifests(owner)
    }

    /// How a program is.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn status(&self, owner: &Owner, id: ProgramId) -> Result<ProgramStatus, ProgramError> {
        let entry = self.registry.owned(id, owner)?;
        let rows = || {
            let trouble = self.feeder.trouble(owner, id)?;
            Some(format!("its rows cannot be brought into its tables: {trouble}"))
        };
        status::of(&self.store, &entry, self.trouble.of(id).or_else(rows))
    }

    /// Records of a program's runs, newest first: at most `limit`, of ledgers up to `last`.
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

    /// Sums over the runs of each ledger, newest first.
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

    /// Runs a module that is not deployed, and stores nothing.
    ///
    /// # Errors
    /// [`ProgramError`], with what to do about it.
    pub fn try_out(
        &self,
        owner: &Owner,
        wanted: Trial,
        interrupted: Interrupted<'_>,
    ) -> Result<Tried, ProgramError> {
        let _place = place(&self.trials, owner)?;
        trial::run(&self.runner, owner, wanted, interrupted)
    }

    /// Runs a program on stored ledgers, beside the new ones.
    ///
    /// # Errors
    /// [`ProgramError::BackfillRuns`] when one is under way.
    pub fn begin_backfill(
        &self,
        owner: &Owner,
        id: ProgramId,
        ledgers: LedgerRange,
    ) -> Result<Backfill, ProgramError> {
        self.backfills.begin(&*self.registry.owned(id, owner)?, ledgers)
    }

    /// How far a program's backfill has got.
    ///
    /// # Errors
    /// [`ProgramError::NoBackfill`] when none was asked for.
    pub fn backfill(&self, owner: &Owner, id: ProgramId) -> Result<Backfill, ProgramError> {
        self.registry.owned(id, owner)?;
        self.backfills.backfill(id)?.ok_or(ProgramError::NoBackfill(id))
    }

    /// Ends a program's backfill; what it has stored stays.
    ///
    /// # Errors
    /// [`ProgramError::NoBackfill`] when none was asked for.
    pub fn cancel_backfill(&self, owner: &Owner, id: ProgramId) -> Result<Backfill, ProgramError> {
        self.backfills.cancel(&*self.registry.owned(id, owner)?)
    }

    /// Removes records that are older than they are kept.
    ///
    /// # Errors
    /// What the store says.
    pub fn prune(&self) -> Result<(), ProgramError> {
        let now = (self.runner.clock)();
        let limit = now.saturating_sub(records::STATS_KEPT.as_millis() as u64);
        for entry in self.registry.all() {
            while records::prune_stats(&self.store, entry.id, limit, PRUNED_AT_ONCE)? > 0 {}
        }
        Ok(())
    }
}

/// Places for something costly, one of each owner.
fn one_of_each_owner(name: &'static str, places: u64) -> Budget {
    Budget::new(name, budget::Limits::without_waiting(places, 1))
}

/// An owner's place, if there is one now.
fn place(places: &Budget, owner: &Owner) -> Result<Share, ProgramError> {
    places.take_now(Holder::of(owner), 1).map_err(|_| ProgramError::Busy)
}

/// Sums that are removed with one write.
const PRUNED_AT_ONCE: usize = 1000;

/// A thread, unless the system refuses one.
fn spawn(
    name: &str,
    priority: Priority,
    health: &Health,
    work: impl FnOnce() + Send + 'static,
) -> Option<std::thread::JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(THREAD_STACK);
    let started = thread.spawn(move || {
        priority.take();
        work();
    });
    started
        .inspect_err(|error| {
            health.down("program threads", format!("a thread cannot start: {error}"))
        })
        .ok()
}
