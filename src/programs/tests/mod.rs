//! Runs programs on ledgers that arrive in any order, while owners change their settings, writes
//! fail and the process restarts. What is reported must always be true, and in the end every
//! program must have exactly the rows that it should.

mod asking;
mod costs;
mod data;
mod declared;
mod deriving;
mod events;
mod events_wakes;
mod events_world;
mod exported;
mod histories;
mod lacking;
mod members;
mod missing;
mod panics;
mod project_history;
mod relayouts;
mod removed_events;
mod replacing;
mod stops;
mod together;
mod told_changes;
mod trials;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use orrery_testkit::program::example;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use soroban_env_host::{SymbolSmall, Val};
use tempfile::TempDir;

use super::backfill::Backfill;
use super::backfills::Backfills;
use super::engine::{EMIT, Engine, EngineSettings, env_functions};
use super::failures::Trouble;
use super::feeder::Feeder;
use super::lanes::{Lane, Lanes, Turn};
use super::live::Live;
use super::manifest::Manifest;
use super::registry::{Deploy, Registry, Replace};
use super::replacing::Replacements;
use super::runner::Runner;
use super::state::Upstream;
use super::upstream_limiter::UpstreamLimiter;
use super::{ProgramError, status, storage};
use crate::events::EventInterfaces;
use orrery_executables::Interfaces;
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{
    ContractId, Hash32, LedgerRange, LedgerSeq, LedgerSet, Network, Owner, ProgramId,
};
use orrery_runtime::observe::health::{Component, Health};
use orrery_sandbox::network::Sandbox;
use orrery_settings::{self as settings, Queries, nonzero};
use orrery_store::{
    Durability, Extensions, Fault, IndexOptions, LedgerConsumer, PreparedLedger, Store,
    TransactionPosition,
};
use orrery_tables::{Tables, TablesSettings, Tunables};

/// First and last ledger of the test chain.
const FIRST: u32 = 2;
const LAST: u32 = 101;
/// Upper bound on turns: more than any test needs.
const MANY_TURNS: usize = 10_000;

/// Returns the contract that the transactions of the chain call.
fn market() -> ContractId {
    Sandbox::market_contract(&local()).unwrap()
}

/// A contract that is never called.
const NOBODYS: ContractId = ContractId([9; 32]);

/// The XDR of the ledgers of the chain, in which traders call a market.
static CHAIN: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| ledgers(sandbox(7, 1..=2).with_market(LedgerSeq(0)), LAST - FIRST + 1));

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let settings =
        EngineSettings { concurrent_runs: 4, ..EngineSettings::new(example("compiler")) };
    Engine::new(settings).unwrap()
});

/// Returns the code of a program for the market: each call looks up an entry that is never written,
/// executes `body`, and emits a row into the table `seen`. `$now` is the ledger sequence.
fn module(body: &str) -> Vec<u8> {
    text_module(body, "(call $get_ledger_sequence)")
}

/// Returns the code of a program whose rows hold this value.
fn module_emitting(value: &str) -> Vec<u8> {
    text_module("", value)
}

fn text_module(body: &str, value: &str) -> Vec<u8> {
    let (emit, name) = EMIT;
    let mut text =
        format!("(import \"{emit}\" \"{name}\" (func $emit (param i64 i64) (result i64)))\n");
    let wanted = [
        "has_contract_data",
        "get_ledger_sequence",
        "get_ledger_version",
        "map_new",
        "map_put",
        "bytes_new_from_linear_memory",
    ];
    for function in env_functions().iter().filter(|it| wanted.contains(&it.name)) {
        text += &format!(
            "(import \"{}\" \"{}\" (func ${} (param{}) (result i64)))\n",
            function.module,
            function.import,
            function.name,
            " i64".repeat(function.parameters)
        );
    }
    let word = |val: Val| format!("(i64.const {})", val.get_payload().cast_signed());
    let symbol = |text| word(SymbolSmall::try_from_str(text).unwrap().into());
    let calls = format!(
        "(local $now i32) (local $i i64)
         (local.set $now (i32.wrap_i64 (i64.shr_u (call $get_ledger_sequence) (i64.const 32))))
         (drop (call $has_contract_data {ghost} (i64.const 1)))
         {body}
         (drop (call $emit {seen} (call $map_put (call $map_new) {seen} {value})))
         {void}",
        ghost = symbol("ghost"),
        seen = symbol("seen"),
        void = word(Val::VOID.to_val()),
    );
    text += "(memory (export \"memory\") 32)\n";
    for function in ["fund", "place", "fill"] {
        text +=
            &format!("(func (export \"{function}\") (param i64 i64 i64) (result i64) {calls})\n");
    }
    let meta =
        "(@custom \"contractenvmetav0\" \"\\00\\00\\00\\00\\00\\00\\00\\1e\\00\\00\\00\\00\")";
    wat::parse_str(format!("(module {text} {meta})")).unwrap()
}

/// A store with programs, whose turns the test triggers.
struct Scene {
    directory: TempDir,
    upstream: Option<Arc<dyn Upstream + Send + Sync>>,
    settings: settings::Programs,
    index: settings::Index,
    network: Network,
    /// Consumers of the feed, which the test advances.
    consumers: Vec<Arc<dyn LedgerConsumer>>,
    /// The program of the SQL workers; `None` where no table is filled.
    worker: Option<PathBuf>,
    parts: Option<Parts>,
}

struct Parts {
    store: Arc<Store>,
    registry: Arc<Registry>,
    runner: Arc<Runner>,
    live: Live,
    feeder: Arc<Feeder>,
    backfills: Arc<Backfills>,
    replacements: Replacements,
    trouble: Arc<Trouble>,
    health: Arc<Health>,
}

impl std::ops::Deref for Scene {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        self.parts.as_ref().unwrap()
    }
}

impl Scene {
    fn new() -> Self {
        Self::with(settings::Programs::default(), None)
    }

    fn asking(upstream: impl Upstream + Send + Sync + 'static) -> Self {
        Self::with(settings::Programs::default(), Some(Arc::new(upstream)))
    }

    fn with(
        settings: settings::Programs,
        upstream: Option<Arc<dyn Upstream + Send + Sync>>,
    ) -> Self {
        let mut scene = Self::closed(settings, upstream);
        scene.restart();
        scene
    }

    /// A scene before its first start.
    fn closed(
        settings: settings::Programs,
        upstream: Option<Arc<dyn Upstream + Send + Sync>>,
    ) -> Self {
        // Use a memory file system where possible, because each write is synced.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let (network, consumers) = (local(), Vec::new());
        let index = settings::Index::default();
        let (worker, parts) = (None, None);
        Self { directory, upstream, settings, index, network, consumers, worker, parts }
    }

    /// Drops all parts and opens the store again, like a restart of the process.
    fn restart(&mut self) {
        self.parts = None;
        let path = self.directory.path();
        let extensions = Extensions::for_consumers(&self.consumers).with_kind(storage::KIND);
        let store = Arc::new(Store::open_with(path, Some(&self.network), extensions).unwrap());
        let settings = self.settings.clone();
        let registry = Registry::open(
            Arc::clone(&store),
            ENGINE.clone(),
            settings.clone(),
            self.index.clone(),
        );
        let registry = Arc::new(registry.unwrap());
        let clock = AtomicU64::new(1);
        let runner = Arc::new(Runner {
            store: Arc::clone(&store),
            engine: ENGINE.clone(),
            settings,
            upstream: self.upstream.clone().map(UpstreamLimiter::new),
            clock: Arc::new(move || clock.fetch_add(1, Ordering::Relaxed)),
            events: EventInterfaces::sharing(
                Interfaces::patient(Arc::clone(&store), None, std::time::Duration::from_millis(1)),
                Arc::clone(&registry.supplied),
                Arc::clone(&registry.members),
            ),
        });
        let tables = Tables::open(TablesSettings {
            directory: path.join("tables"),
            worker: self.worker.clone().unwrap_or_else(|| path.join("none")),
            queries: Queries { allow_unconfined: self.worker.is_some(), ..Queries::default() },
            chain: None,
            tunables: Tunables::default(),
        });
        let feeder = Arc::new(Feeder::new(&runner, Arc::clone(&registry), tables.unwrap()));
        let health = Arc::new(Health::default());
        let trouble = Arc::new(Trouble::new(Arc::clone(&health), &registry));
        let live = Live::new(&runner, &registry, &feeder, &trouble);
        let backfills = Backfills::open(&runner, &registry, &feeder, &trouble).unwrap();
        let (backfills, lanes) = (Arc::new(backfills), Arc::new(Lanes::default()));
        let replacements =
            Replacements::new(&store, &registry, &lanes, &backfills, &feeder, &trouble);
        trouble.report();
        self.parts = Some(Parts {
            store,
            registry,
            runner,
            live,
            feeder,
            backfills,
            replacements,
            trouble,
            health,
        });
    }
}

impl Parts {
    /// Stores a ledger with everything in it.
    fn add(&self, ledger: u32, durability: Durability) {
        self.add_listed(ledger, durability, None);
    }

    /// Stores a ledger, restricted to `contracts` if given.
    fn add_listed(
        &self,
        ledger: u32,
        durability: Durability,
        contracts: Option<BTreeSet<ContractId>>,
    ) {
        let options = IndexOptions { contracts, ..IndexOptions::default() };
        self.add_xdr(&CHAIN[(ledger - FIRST) as usize], durability, &options);
    }

    /// Stores a ledger given as XDR, which need not be part of the chain.
    fn add_xdr(&self, xdr: &[u8], durability: Durability, options: &IndexOptions) {
        let network = local();
        let view = decode(xdr, network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, options).unwrap();
        self.store.commit(prepared, durability).unwrap();
    }

    fn add_all(&self, ledgers: std::ops::RangeInclusive<u32>) {
        ledgers.for_each(|ledger| self.add(ledger, Durability::Synced));
    }

    fn deploy(
        &self,
        owner: &str,
        project: &str,
        code: &[u8],
        contract: ContractId,
    ) -> Result<Manifest, ProgramError> {
        let deploy = Deploy {
            code: code.to_vec(),
            project_name: project.to_owned(),
            contracts: vec![contract],
            public: None,
            replace: Replace::No,
            allow_unfit: false,
        };
        let deployed = self.registry.deploy(&Owner(owner.to_owned()), deploy, 1, |_, _| Ok(()));
        self.trouble.report();
        deployed
    }

    fn begin(&self, id: ProgramId, first: u32, last: u32) -> Result<Backfill, ProgramError> {
        let entry = self.registry.get(id).ok_or(ProgramError::Unknown(id))?;
        self.backfills.begin(&entry, LedgerRange::new(first, last))
    }

    fn delete(&self, owner: &str, id: ProgramId) -> Result<(), ProgramError> {
        self.registry.delete(&Owner(owner.to_owned()), id)?;
        self.backfills.forget(id);
        self.live.turn(id, Lane::Fast);
        self.trouble.report();
        Ok(())
    }

    /// Gives turns to all programs and backfills until all of them are idle.
    fn run_until_idle(&self) {
        for _ in 0..MANY_TURNS {
            let mut busy = false;
            for entry in self.registry.all() {
                entry.lock().waiting.skip_delay();
                busy |= !matches!(self.live.turn(entry.id, Lane::Fast), Turn::Idle);
                busy |= !matches!(self.backfills.turn(entry.id), Turn::Idle);
            }
            if !busy {
                return;
            }
        }
        panic!("there is no end to it");
    }

    /// Makes writes fail according to `plan`, which receives the number of the write, counted from
    /// 0.
    fn fail(&self, plan: impl Fn(u64) -> Option<Fault> + Send + 'static) {
        let mut count = 0;
        self.store.faults().plan(move |_| {
            count += 1;
            plan(count - 1)
        });
    }

    /// Returns the rows of a program by transaction, and checks the numbering of its row log.
    fn rows(&self, id: ProgramId) -> BTreeMap<TransactionPosition, Vec<u8>> {
        let mut rows = BTreeMap::new();
        let mut numbers = 0;
        storage::row_log_after(&self.store, id, 0, |number, position, bytes| {
            numbers += 1;
            assert_eq!(number, numbers, "the log has no gap");
            assert!(rows.insert(position, bytes.to_vec()).is_none(), "{position:?} comes twice");
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        rows
    }

    fn backfill(&self, id: ProgramId) -> Backfill {
        self.backfills.backfill(id).unwrap().unwrap()
    }

    fn manifest(&self, id: ProgramId) -> Manifest {
        Manifest::clone(&self.registry.get(id).unwrap().lock().manifest)
    }

    fn status(&self, id: ProgramId) -> status::ProgramStatus {
        let entry = self.registry.get(id).unwrap();
        status::of(&self.store, &entry, self.trouble.reason(id), |_| true).unwrap()
    }

    fn executions(&self, id: ProgramId) -> u64 {
        self.registry.get(id).unwrap().lock().progress.executions
    }

    fn health(&self, component: &str) -> Option<Component> {
        self.health.components().get(component).cloned()
    }

    fn is_down(&self) -> bool {
        self.health.first_down().is_some()
    }
}

/// Returns the rows of a program with this code that processed every ledger on arrival.
fn rows_of(code: &[u8]) -> BTreeMap<TransactionPosition, Vec<u8>> {
    let scene = Scene::new();
    let id = scene.deploy("ana", "seen", code, market()).unwrap().id;
    scene.add_all(FIRST..=LAST);
    scene.run_until_idle();
    scene.rows(id)
}
