//! Custom indexing programs: which there are, how they are run again on what a transaction began
//! with, and what becomes of what they emit. Knows no HTTP and no SQL.
//!
//! A ledger that is stored is queued for programs in the same write ([`crate::store`]). Three threads take
//! programs by turns ([`lanes`]) and run each on its next ledger ([`runner`]); what the runs leave is
//! written at once, with how far the program has got. Another thread brings rows into the tables
//! ([`feeder`]), two work off backfills ([`older`]). None of them holds up ingestion.

pub mod backfill;
pub mod emit;
pub mod engine;
mod error;
mod feeder;
mod lanes;
mod live;
pub mod manifest;
mod names;
mod older;
pub mod records;
mod registry;
mod room;
mod rows;
mod runner;
pub mod state;
mod status;
pub mod transaction;
mod trial;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

pub use error::ProgramError;
pub use registry::Deploy;
pub use status::ProgramStatus;
pub use trial::{Trial, TrialOn, Tried, TriedRun, TriedTransaction};

use backfill::Order;
use engine::{CacheSettings, CheckRules, Engine, EngineSettings, Limits, THREAD_STACK};
use feeder::{Fed, Feeder};
use lanes::{Lane, Lanes};
use live::Live;
use manifest::Manifest;
use older::Older;
use records::{Execution, LedgerStats, StatsQuery};
use registry::Registry;
use room::Room;
use runner::Runner;
use state::Upstream;

use crate::domain::{ContractId, LedgerRange, LedgerSeq, Owner, ProgramId};
use crate::observe::health::Health;
use crate::priority::Priority;
use crate::store::Store;
use crate::tables::Tables;
use crate::tables::query::{QueryAnswer, QueryRequest};
use crate::tables::schema::SchemaLimits;

/// Directory of compiled modules in the data directory.
const COMPILED: &str = "compiled";
/// Modules that are checked and compiled at a time, to be deployed.
const DEPLOYS_AT_ONCE: usize = 2;
/// Trials at a time, of different owners.
const TRIALS_AT_ONCE: usize = 2;

/// What the operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What a run may use.
    pub limits: Limits,
    /// Bytes of rows that one owner may have.
    pub owner_bytes: u64,
}

impl Settings {
    /// What a module may ask for before it runs.
    fn check_rules(&self) -> CheckRules {
        CheckRules { memory: self.limits.memory, ..CheckRules::default() }
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
        Self { limits: Limits::default(), owner_bytes: 10 << 30 }
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
    older: Arc<Older>,
    deploys: Room,
    trials: Room,
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
        let runner =
            Arc::new(Runner { store: Arc::clone(&store), engine, settings, upstream, clock });
        let feeder = Arc::new(Feeder::new(Arc::clone(&store), Arc::clone(&registry), tables));
        let lanes = Arc::new(Lanes::default());
        registry.all().iter().for_each(|entry| lanes.add(entry.id));
        let live = Arc::new(Live::new(&runner, &registry, &feeder, Arc::clone(&health)));
        let older = Arc::new(Older::open(&runner, &registry, &feeder, Arc::clone(&health))?);
        let programs = Self {
            store,
            registry,
            runner,
            feeder,
            lanes,
            live,
            older,
            deploys: Room::new(DEPLOYS_AT_ONCE, DEPLOYS_AT_ONCE),
            trials: Room::new(TRIALS_AT_ONCE, 1),
            threads: Mutex::default(),
        };
        programs.start_threads(health);
        // What a crash left half done is done now.
        programs.feeder.wake();
        Ok(programs)
    }

    fn start_threads(&self, health: Arc<Health>) {
        let mut threads = Vec::new();
        for (name, lane, priority) in [
            ("programs-1", Lane::Fast, Priority::Prompt),
            ("programs-2", Lane::Fast, Priority::Prompt),
            ("programs-slow", Lane::Slow, Priority::Patient),
        ] {
            let (lanes, live) = (Arc::clone(&self.lanes), Arc::clone(&self.live));
            threads.extend(spawn(name, priority, &health, move || {
                lanes.work(lane, |program| live.turn(program));
            }));
        }
        for (name, lane) in [("programs-older", Lane::Fast), ("programs-older-slow", Lane::Slow)] {
            let older = Arc::clone(&self.older);
            let work = move || older.work(lane);
            threads.extend(spawn(name, Priority::Patient, &health, work));
        }
        let feeder = Arc::clone(&self.feeder);
        let reports = Arc::clone(&health);
        threads.extend(spawn("tables", Priority::Prompt, &health, move || {
            feeder.work(|fed| report(fed, &reports));
        }));
        *self.threads.lock() = threads;
    }

    /// To be called when ledgers have been stored.
    pub fn ledgers_came(&self) {
        self.lanes.wake(None);
    }

    /// Ends all threads after what they have at hand. What is left is done after the next start.
    pub fn stop(&self) {
        self.lanes.stop();
        self.older.stop();
        self.feeder.stop();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the programs had panicked");
            }
        }
    }

    /// Checks a module, makes it ready to run, and registers it. Ledgers stored from now on are for it.
    ///
    /// # Errors
    /// [`ProgramError`], with what to do about it.
    pub fn deploy(&self, owner: &Owner, deploy: Deploy) -> Result<Manifest, ProgramError> {
        let _place = self.deploys.place(owner).ok_or(ProgramError::Busy)?;
        let now = (self.runner.clock)() / 1000;
        let manifest = self.registry.deploy(owner, deploy, now)?;
        self.lanes.add(manifest.id);
        self.feeder.wake();
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
        self.older.forget(id);
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
        Ok(manifest)
    }

    /// An owner's programs, by number.
    pub fn list(&self, owner: &Owner) -> Vec<Manifest> {
        self.registry.manifests(owner, false)
    }

    /// The tables that an owner may read, each with its project: its own, then public ones of others.
    pub fn tables(&self, owner: &Owner) -> Vec<(String, String)> {
        let mut manifests = self.registry.manifests(owner, true);
        manifests.sort_by_key(|manifest| (manifest.owner != *owner, manifest.id));
        let of = |manifest: &Manifest| {
            let project = manifest.project_name.clone();
            let names = manifest.table_names().into_iter();
            names.map(move |name| (name, project.clone())).collect::<Vec<_>>()
        };
        manifests.iter().flat_map(of).collect()
    }

    /// How a program is.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn status(&self, owner: &Owner, id: ProgramId) -> Result<ProgramStatus, ProgramError> {
        status::of(&self.store, &*self.registry.owned(id, owner)?)
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

    /// Answers a query over the tables that an owner may read.
    ///
    /// # Errors
    /// [`ProgramError::Query`] and what the tables say.
    pub fn query(&self, owner: &Owner, request: QueryRequest) -> Result<QueryAnswer, ProgramError> {
        let ready = || self.feeder.current(owner);
        Ok(self.feeder.tables().query_when(owner, request, ready)?)
    }

    /// Runs a module that is not deployed, and stores nothing.
    ///
    /// # Errors
    /// [`ProgramError`], with what to do about it.
    pub fn try_out(&self, owner: &Owner, wanted: Trial) -> Result<Tried, ProgramError> {
        let _place = self.trials.place(owner).ok_or(ProgramError::Busy)?;
        trial::run(&self.runner, owner, wanted)
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
    ) -> Result<Order, ProgramError> {
        self.older.begin(&*self.registry.owned(id, owner)?, ledgers)
    }

    /// How far a program's backfill has got.
    ///
    /// # Errors
    /// [`ProgramError::NoBackfill`] when none was asked for.
    pub fn backfill(&self, owner: &Owner, id: ProgramId) -> Result<Order, ProgramError> {
        self.registry.owned(id, owner)?;
        self.older.order(id).ok_or(ProgramError::NoBackfill(id))
    }

    /// Ends a program's backfill; what it has stored stays.
    ///
    /// # Errors
    /// [`ProgramError::NoBackfill`] when none was asked for.
    pub fn cancel_backfill(&self, owner: &Owner, id: ProgramId) -> Result<Order, ProgramError> {
        self.older.cancel(&*self.registry.owned(id, owner)?)
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

/// Sums that are removed with one write.
const PRUNED_AT_ONCE: usize = 1000;

/// Reports how the owners' tables are. What anybody may read does not say where files are.
fn report(fed: Fed, health: &Health) {
    match fed {
        Fed { failed: 1.., .. } => health.down(
            "tables",
            format!(
                "rows of {} of {} owners cannot be brought into their tables: the log says why",
                fed.failed, fed.owners
            ),
        ),
        Fed { owners: 0, .. } => health.forget("tables"),
        Fed { behind: 0, .. } => health.up("tables"),
        Fed { behind, .. } => {
            health.up_with("tables", format!("rows of {behind} owners are still being brought in"));
        }
    }
}

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
        .inspect_err(|error| health.down("programs", format!("a thread cannot start: {error}")))
        .ok()
}
