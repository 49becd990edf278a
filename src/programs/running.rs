//! All programs of a data directory: the parts that run them, and the operations of their owners.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::backfill::Backfill;
use super::backfills::Backfills;
use super::engine::{CacheSettings, Engine, EngineSettings};
use super::events::{EventInterfaces, MembersStatus, begin_reading, look_when_more_is_known};
use super::failures::Trouble;
use super::feed_served::Copied;
use super::feeder::Feeder;
use super::lanes::{Lanes, SHORT_TURN};
use super::live::Live;
use super::manifest::Manifest;
use super::records::{Execution, LedgerStats, RunSource, StatsQuery};
use super::registry::{Deploy, Registry, Watch};
use super::replacing::Replacements;
use super::runner::Runner;
use super::state::Upstream;
use super::status::ProgramStatus;
use super::threads::Threads;
use super::trial::{Trial, TrialResult};
use super::upstream_limiter::UpstreamLimiter;
use super::{ProgramError, fit, records, status, trial};
use orrery_executables::Interfaces;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, Owner, ProgramId};
use orrery_runtime::budget::{self, Budget, Holder, Share, Usage};
use orrery_runtime::observe::health::Health;
use orrery_settings as settings;
use orrery_store::Store;
use orrery_tables::Tables;
use orrery_tables::query::Interrupted;

/// Directory of compiled modules, within the data directory.
const COMPILED: &str = "compiled";
/// Maximum number of concurrent deploys (checking and compiling a module), at most one per owner.
const DEPLOYS_AT_ONCE: u64 = 2;
/// Maximum number of concurrent trials, at most one per owner.
const TRIALS_AT_ONCE: u64 = 2;
/// Number of statistics records deleted per write.
const PRUNED_AT_ONCE: usize = 1000;

/// Dependencies of the programs.
pub struct ProgramDeps {
    /// Store of the ledgers and of the programs' results.
    pub store: Arc<Store>,
    /// Tables into which rows are copied for queries.
    pub tables: Tables,
    /// Interfaces of contracts, by which their events are declared.
    pub interfaces: Arc<Interfaces>,
    /// Health to which failures are reported.
    pub health: Arc<Health>,
    /// Limits of runs and owners.
    pub settings: settings::Programs,
    /// What is indexed: a program for a contract that is not would never run.
    pub index: settings::Index,
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
    pub(super) registry: Arc<Registry>,
    pub(super) runner: Arc<Runner>,
    pub(super) feeder: Arc<Feeder>,
    lanes: Arc<Lanes>,
    live: Arc<Live>,
    backfills: Arc<Backfills>,
    replacements: Arc<Replacements>,
    trouble: Arc<Trouble>,
    deploys: Budget,
    trials: Budget,
    threads: Mutex<Threads>,
}

impl Programs {
    /// Opens the programs of a store and starts the threads that run them.
    ///
    /// # Errors
    /// When the engine cannot be set up, the store fails, or a stored record is damaged.
    pub fn start(deps: ProgramDeps) -> Result<Self, ProgramError> {
        let ProgramDeps {
            store,
            tables,
            interfaces,
            health,
            settings,
            index,
            upstream,
            clock,
            compiler,
            code_key,
        } = deps;
        let directory = store.directory().join(COMPILED);
        let engine = Engine::new(EngineSettings {
            cache: Some(CacheSettings { directory, key: code_key }),
            instance_memory: settings.memory_mib.bytes() as usize,
            ..EngineSettings::new(compiler)
        })?;
        let registry =
            Arc::new(Registry::open(Arc::clone(&store), engine.clone(), settings.clone(), index)?);
        let upstream = upstream.map(UpstreamLimiter::new);
        let events = EventInterfaces::sharing(
            Arc::clone(&interfaces),
            Arc::clone(&registry.supplied),
            Arc::clone(&registry.members),
        );
        let runner = Arc::new(Runner {
            store: Arc::clone(&store),
            engine,
            settings,
            upstream,
            clock,
            events,
        });
        let feeder = Arc::new(Feeder::new(&runner, Arc::clone(&registry), tables));
        let lanes = Arc::new(Lanes::default());
        registry.all().iter().for_each(|entry| lanes.add(entry.id));
        let trouble = Arc::new(Trouble::new(Arc::clone(&health), &registry));
        let live = Arc::new(Live::new(&runner, &registry, &feeder, &trouble));
        let backfills = Arc::new(Backfills::open(&runner, &registry, &feeder, &trouble)?);
        let replacements =
            Replacements::new(&store, &registry, &lanes, &backfills, &feeder, &trouble);
        let replacements = Arc::new(replacements);
        trouble.report();
        let programs = Self {
            store,
            registry,
            runner,
            feeder,
            lanes,
            live,
            backfills,
            replacements,
            trouble,
            deploys: one_slot_per_owner("deploys", DEPLOYS_AT_ONCE),
            trials: one_slot_per_owner("trials", TRIALS_AT_ONCE),
            threads: Mutex::default(),
        };
        let Self { lanes, live, backfills, feeder, replacements, .. } = &programs;
        look_when_more_is_known(&interfaces, &programs.registry, &programs.lanes);
        *programs.threads.lock() =
            Threads::start(lanes, live, backfills, feeder, replacements, &health);
        // Completes the work that a crash interrupted.
        for entry in programs.registry.all() {
            begin_reading(&programs.store, &programs.registry, &programs.backfills, &entry)?;
        }
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

    /// Wakes all programs; to be called after ledgers were stored.
    pub fn notify_ledgers_stored(&self) {
        self.lanes.wake(None);
    }

    /// Stops all threads after their current work. The rest is done after the next start.
    pub fn stop(&self) {
        let mut threads = self.threads.lock();
        threads.begin_stop();
        self.lanes.stop();
        self.backfills.stop();
        self.replacements.stop();
        self.feeder.stop();
        threads.join();
        drop(threads);
        // Saves the cursors, so that ledgers without runs are not examined again after the next
        // start.
        if let Err(error) = self.store.write_cursors() {
            tracing::warn!("the progress of programs could not be written: {error}");
        }
    }

    /// Checks a module, makes it ready to run, and registers the program, which is then run on all
    /// ledgers stored from now on. One that is to replace another is also run on the stored ledgers
    /// that the other one has processed, and then takes its place.
    ///
    /// # Errors
    /// [`ProgramError`], with what the owner can do about it.
    pub fn deploy(&self, owner: &Owner, deploy: Deploy) -> Result<Manifest, ProgramError> {
        let _slot = take_slot(&self.deploys, owner)?;
        let now = (self.runner.clock)() / 1000;
        let is_fit = |module: &[String], contracts: &[ContractId]| {
            fit::check(self.runner.events.interfaces(), module, contracts)
        };
        let manifest = self.registry.deploy(owner, deploy, now, is_fit)?;
        Ok(self.deployed(manifest))
    }

    /// Registers a project of events, and begins to read the events of its contracts: those that are
    /// stored, and new ones.
    ///
    /// # Errors
    /// [`ProgramError`], with what the owner can do about it.
    pub fn watch(&self, owner: &Owner, watch: Watch) -> Result<Manifest, ProgramError> {
        let _slot = take_slot(&self.deploys, owner)?;
        let now = (self.runner.clock)() / 1000;
        self.registry.check_watch(owner, &watch)?;
        self.runner.check_factories(&watch.selectors, watch.supplied.as_deref())?;
        let manifest = self.registry.watch(owner, watch, now)?;
        Ok(self.deployed(self.with_declared_tables(manifest)))
    }

    /// Returns a project of events that was just registered, with the tables of what its contracts declare
    /// as far as that is known at once; the other tables follow.
    fn with_declared_tables(&self, manifest: Manifest) -> Manifest {
        let Some(entry) = self.registry.get(manifest.id) else { return manifest };
        let Some(mut looks) = entry.looks.try_lock() else { return manifest };
        let time = SHORT_TURN;
        match self.runner.declare_tables(&entry, &self.registry, &mut looks, time) {
            Ok(_) => Manifest::clone(&entry.snapshot().manifest),
            Err(error) => {
                tracing::warn!(program = %manifest.id, "its tables follow: {error}");
                manifest
            }
        }
    }

    /// Begins to run a program that was just registered.
    fn deployed(&self, manifest: Manifest) -> Manifest {
        self.lanes.add(manifest.id);
        self.feeder.wake();
        self.trouble.report();
        if let (Some(replaced), Some(entry)) = (&manifest.replaces, self.registry.get(manifest.id))
        {
            // If it cannot be begun now, it is begun later.
            if let Err(error) = self.replacements.step(&entry) {
                tracing::warn!(program = %manifest.id, "its backfill begins later: {error}");
            }
            self.replacements.wake();
            let project = &replaced.project_name;
            tracing::info!(program = %manifest.id, project, "deployed to replace another program");
            return manifest;
        }
        tracing::info!(program = %manifest.id, project = manifest.project_name, "deployed");
        self.read_stored_events(manifest.id);
        manifest
    }

    /// Begins to read the stored events of a project that is new or has further contracts.
    fn read_stored_events(&self, id: ProgramId) {
        let Some(entry) = self.registry.get(id) else { return };
        let begun = begin_reading(&self.store, &self.registry, &self.backfills, &entry);
        if let Err(error) = begun {
            tracing::warn!(program = %id, "its stored events are read after the next start: {error}");
        }
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
        let manifest = self.registry.append(owner, id, contracts)?;
        self.read_stored_events(id);
        Ok(manifest)
    }

    /// Removes a program with its tables, rows and records, and the one that is to replace it.
    ///
    /// # Errors
    /// [`ProgramError::Unknown`], [`ProgramError::NotYours`]
    pub fn delete(&self, owner: &Owner, id: ProgramId) -> Result<(), ProgramError> {
        for id in self.registry.delete(owner, id)? {
            self.lanes.remove(id);
            self.backfills.forget(id);
            self.trouble.clear_waiting(RunSource::Live, id);
            tracing::info!(program = %id, "deleted");
        }
        self.trouble.report();
        // The program is gone now; tables that cannot be dropped yet are dropped later.
        if let Err(error) = self.feeder.feed(owner, Some(Instant::now())) {
            tracing::warn!(program = %id, "its tables will be dropped later: {error}");
        }
        self.feeder.wake();
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

    /// Returns the contracts that projects of events name.
    pub fn watched_contracts(&self) -> BTreeSet<ContractId> {
        self.registry.watched_contracts()
    }

    /// Returns the members of all projects that record what their contracts hold.
    pub fn recorded_members(&self) -> BTreeSet<ContractId> {
        self.registry.recorded_members()
    }

    /// Returns a number that is another one once a project has other members.
    pub fn members_version(&self) -> u64 {
        self.registry.members_version()
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
        let are_known = || {
            let (manifest, place) = {
                let cell = entry.lock();
                (Arc::clone(&cell.manifest), cell.progress.place)
            };
            entry.members.are_known(&manifest, place)
        };
        let is_copied = |log| {
            self.feeder.copied(owner, id, log) == Copied::Yes
                && self.feeder.has_ledgers(owner, id)
                && are_known()
        };
        let reason = self.trouble.reason(id).or_else(rows);
        let status = status::of(&self.store, &entry, reason, is_copied)?;
        let manifest = entry.snapshot().manifest;
        let without_interface = self.runner.events.lacking(&manifest)?;
        let (index, is_listed) = (self.runner.events.members(), self.registry.lists_contracts());
        let of = (index, &entry.members);
        let members = MembersStatus::of(&self.store, of, &manifest, is_listed)?;
        let backfill = self.backfills.backfill(id)?.map(|backfill| backfill.state);
        Ok(ProgramStatus { without_interface, backfill, members, ..status })
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
    /// [`ProgramError::BackfillRunning`] when one is already running, and
    /// [`ProgramError::ReplacementRunning`] when the program is being replaced.
    pub fn begin_backfill(
        &self,
        owner: &Owner,
        id: ProgramId,
        ledgers: LedgerRange,
    ) -> Result<Backfill, ProgramError> {
        let entry = self.registry.owned(id, owner)?;
        // A program that is to replace this one would not process these ledgers.
        let _not_replaced = self.registry.block_replacing(&entry)?;
        self.backfills.begin(&entry, ledgers)
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
        let entry = self.registry.owned(id, owner)?;
        self.registry.check_not_replacing(&entry)?;
        self.backfills.cancel(&entry)
    }

    /// Deletes run statistics that are older than [`records::STATS_RETENTION`] at the UNIX time `now` in
    /// milliseconds.
    pub fn prune(&self, now: u64) -> Result<(), ProgramError> {
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
