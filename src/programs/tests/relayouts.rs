//! Random histories of projects of events and of the tables that queries see of them, filled by real
//! workers: ledgers in any order, code that becomes known later, contracts that are appended, names by the
//! rule of an earlier version, restarts, and kills at any moment, also of a worker that fills tables. After
//! each step every answer counts all rows that an earlier one has counted, and all tables of a project
//! together are all of its events. In the end all cells are those of a fresh directory.

use orrery_testkit::crash::copied;
use orrery_testkit::histories;
use orrery_testkit::program::example;
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::wait::wait_until;
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::events::owner;
use super::events_world::{WORLDS, World};
use super::project_history::{ProjectHistory, arriving};
use super::*;
use crate::feeder::Reached;
use orrery_executables::ExecutableIndex;
use orrery_tables::event_tables::{Shapes, Summarised};
use orrery_tables::query::{QueryError, QueryRequest};

const STEPS: usize = 20;
/// Longest time after which a worker is killed that fills tables.
const LONGEST: Duration = Duration::from_millis(30);

static WORKER: LazyLock<PathBuf> = LazyLock::new(|| example("sql_worker"));

/// Columns and sorted rows by table, without ids, which differ between directories.
type Cells = BTreeMap<String, (Vec<String>, Vec<String>)>;

/// The contracts of a project, and whether an interface is supplied.
type Told = (Vec<ContractId>, bool);

/// Cells of projects in fresh directories.
static FRESH: Mutex<BTreeMap<Told, Arc<Cells>>> = Mutex::new(BTreeMap::new());

struct History {
    world: &'static World,
    rng: ChaCha8Rng,
    scene: Scene,
    missing: Vec<u32>,
    id: ProgramId,
    /// Number of events that the last answer counted.
    least: u64,
    answered: u64,
}

impl Scene {
    /// A scene whose tables are filled.
    fn with_tables(world: &World) -> Self {
        let consumers: Vec<Arc<dyn LedgerConsumer>> = vec![Arc::new(ExecutableIndex)];
        let (network, worker) = (world.network.clone(), Some(WORKER.clone()));
        let closed = Self::closed(settings::Programs::default(), None);
        let mut scene = Self { network, consumers, worker, ..closed };
        scene.restart();
        scene
    }
}

impl Parts {
    /// Stores a project as an earlier version did, whose rule gave other names to other shapes.
    pub(super) fn lay_out_as_before(&self, id: ProgramId) {
        let entry = self.registry.get(id).unwrap();
        entry.lock().reload_if_in_doubt(&self.store).unwrap();
        let manifest = self.manifest(id);
        let now = manifest.events.as_ref().unwrap().summary.shapes();
        let mut shapes = serde_json::to_value(now).unwrap();
        for pair in shapes["shapes"].as_array_mut().unwrap() {
            let name = pair[1]["name"].as_str().unwrap();
            pair[1]["name"] = format!("{name}_as_before").into();
            if let Some(name) = pair[0]["inferred"]["name"].as_str() {
                pair[0]["inferred"]["name"] = format!("{name}_as_before").into();
            }
        }
        let old: Shapes = serde_json::from_value(shapes.clone()).unwrap();
        let mut stored = serde_json::to_value(&manifest).unwrap();
        stored["schema"] = serde_json::to_value(Summarised::from(old).layout().schema()).unwrap();
        let project = stored["events"].as_object_mut().unwrap();
        project.remove("rule");
        project.insert("shapes".to_owned(), shapes);
        storage::change(&self.store, |changes| {
            for (part, _) in now.rows_since(&Shapes::default()) {
                changes.delete(&storage::summary(id, &part))?;
            }
            storage::put_json(changes, &storage::manifest(id), &stored)
        })
        .unwrap();
    }

    /// The rows of an answer, as the service gives it; `None` while it is refused because the tables are
    /// being filled.
    fn query(&self, sql: &str) -> Result<Option<Vec<Value>>, QueryError> {
        let request = QueryRequest { query: sql.to_owned(), ..QueryRequest::default() };
        let ready = || self.feeder.ensure_current(&owner());
        match self.feeder.tables().query_when(&owner(), request, ready, &|| false) {
            Ok(answer) => Ok(Some(serde_json::from_slice(&answer.bytes).unwrap())),
            Err(QueryError::Unavailable(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Names of the tables that queries see of a project.
    fn shown(&self, id: ProgramId) -> Vec<String> {
        self.feeder.tables().shown_tables(&owner()).remove(&id).unwrap_or_default()
    }

    /// Fills the tables until they have all rows.
    fn feed_all(&self) {
        wait_until("the tables have all rows", || {
            matches!(self.feeder.feed(&owner(), None), Ok(Reached::End))
        });
    }

    fn cells(&self, id: ProgramId) -> Cells {
        let of = |table: String| {
            let rows = |sql: &str| self.query(sql).unwrap().unwrap();
            let columns = rows(&format!("describe {table}")).into_iter();
            let columns = columns.map(|it| format!("{} {}", it["column_name"], it["column_type"]));
            let sql = format!("select * exclude (_service_event_id, _event_id) from {table}");
            let mut texts: Vec<_> = rows(&sql).iter().map(Value::to_string).collect();
            texts.sort_unstable();
            let name = table.strip_prefix(&format!("program_{id}_")).unwrap().to_owned();
            (name, (columns.collect(), texts))
        };
        self.shown(id).into_iter().map(of).collect()
    }
}

impl ProjectHistory for History {
    fn parts(&mut self) -> (&mut Scene, &mut ChaCha8Rng) {
        (&mut self.scene, &mut self.rng)
    }

    fn store(&mut self, most: usize) {
        for _ in 0..most {
            let Some(ledger) = self.missing.pop() else { return };
            self.scene.commit(&self.world.ledgers[&ledger], self.rng.random());
        }
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let world = &WORLDS[0];
        let missing = arriving(world.ledgers.keys().copied().collect(), 0.7, &mut rng);
        let scene = Scene::with_tables(world);
        let count = rng.random_range(1..=world.contracts.len());
        let contracts = world.contracts.choose_multiple(&mut rng, count).copied().collect();
        let id = scene.watch("p", contracts, rng.random_bool(0.2));
        scene.store.flush().unwrap();
        Self { world, rng, scene, missing, id, least: 0, answered: 0 }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..5 => {
                let most = self.rng.random_range(1..10);
                self.store(most);
            }
            5..8 => self.scene.index(if self.rng.random() { usize::MAX } else { 1 }),
            8 | 9 => self.append_one_of(&self.world.contracts).unwrap(),
            10 => self.restart(),
            11..14 => self.kill(),
            14..16 => self.kill_worker(),
            16 => self.prune(),
            _ => {}
        }
        for _ in 0..self.rng.random_range(0..6) {
            self.turn();
        }
        self.look();
        // A part of what is missing at most.
        let fed = self.scene.feeder.feed(&owner(), Some(Instant::now()));
        assert!(!matches!(fed, Ok(Reached::NotAll)) || self.is_deriving(), "{:?}", fed.is_ok());
        fed.unwrap();
        self.look();
    }

    fn is_deriving(&self) -> bool {
        let project = self.scene.manifest(self.id).events.unwrap();
        project.is_deriving || project.must_derive()
    }

    fn restart(&mut self) {
        if self.rng.random_bool(0.4) {
            self.scene.lay_out_as_before(self.id);
        }
        self.go_on();
    }

    /// The service is killed.
    fn kill(&mut self) {
        if self.kill_amid_writes() {
            self.add_lost();
        }
    }

    fn add_lost(&mut self) {
        self.scene.add_lost(self.world.ledgers.keys().copied(), &mut self.missing);
    }

    /// The worker is killed, mostly while it fills tables, and the service with it.
    fn kill_worker(&mut self) {
        let tables = self.scene.feeder.tables().clone();
        let after = LONGEST.mul_f64(self.rng.random());
        thread::scope(|scope| {
            if let Some(process) = tables.process(&owner()) {
                scope.spawn(move || {
                    // A random moment; there is no condition to wait for.
                    thread::sleep(after);
                    signal::send(process, Signal::KILL);
                });
            }
            let _ = self.scene.feeder.feed(&owner(), Some(Instant::now() + LONGEST));
        });
        if let Some(process) = tables.process(&owner()) {
            signal::send(process, Signal::KILL);
            wait_until("the worker is gone", || tables.process(&owner()).is_none());
        }
        let files = copied(self.scene.directory.path());
        self.go_on_with(files);
        self.add_lost();
    }

    /// Asks for all rows. Those that were counted before are counted again.
    fn look(&mut self) {
        match self.scene.query("select count(*) n from p.events") {
            Ok(None) => return,
            Ok(Some(rows)) => {
                let now = rows[0]["n"].as_u64().unwrap();
                assert!(now >= self.least, "{now} rows, after {}", self.least);
                self.least = now;
                self.answered += 1;
            }
            // There is no table before the first row.
            Err(error) => {
                let feeder = &self.scene.feeder;
                let (skipped, tables) = (feeder.skip_reason(&owner(), self.id), feeder.tables());
                let watermarks = tables.watermarks(&owner());
                let is_whole = !tables.is_incomplete(&owner());
                let log = self.scene.registry.get(self.id).unwrap().snapshot().log;
                let told = format!("{skipped:?}, {watermarks:?} of {log}, whole: {is_whole}");
                return assert_eq!(self.least, 0, "{error}: {told}");
            }
        }
        let tables = self.scene.shown(self.id);
        let counts: Vec<_> =
            tables.iter().map(|table| format!("(select count(*) from {table})")).collect();
        let sql = format!("select {} n, (select count(*) from p.events) e", counts.join(" + "));
        if let Some(rows) = self.scene.query(&sql).unwrap() {
            assert_eq!(rows[0]["n"], rows[0]["e"], "{sql}");
        }
    }

    fn end(mut self) {
        while !self.missing.is_empty() {
            self.store(10);
        }
        self.scene.index(usize::MAX);
        self.scene.begin_reading(self.id);
        self.scene.run_until_settled();
        self.scene.feed_all();
        self.look();
        let mut contracts = self.scene.manifest(self.id).contracts;
        contracts.sort_unstable();
        let of = |((_, contract), count): (&(u32, ContractId), &usize)| {
            if contracts.contains(contract) { *count as u64 } else { 0 }
        };
        assert_eq!(self.least, self.world.events.iter().map(of).sum::<u64>());
        let supplied = self.scene.manifest(self.id).events.unwrap().has_supplied;
        let found = self.scene.cells(self.id);
        assert_eq!(found, *fresh(self.world, contracts, supplied));
        assert!(self.answered > 0);
    }
}

/// The cells of a project that reads all ledgers in the order of the chain, when all code is known.
fn fresh(world: &World, contracts: Vec<ContractId>, supplied: bool) -> Arc<Cells> {
    let key = (contracts, supplied);
    if let Some(known) = FRESH.lock().get(&key) {
        return Arc::clone(known);
    }
    let scene = Scene::with_tables(world);
    for raw in world.ledgers.values() {
        scene.commit(raw, true);
        scene.index(usize::MAX);
    }
    let id = scene.watch("p", key.0.clone(), supplied);
    scene.run_until_settled();
    scene.feed_all();
    let cells = Arc::new(scene.cells(id));
    FRESH.lock().insert(key, Arc::clone(&cells));
    cells
}

/// Small: 6 histories; full: 20,000.
#[test]
fn queries_count_all_rows_whatever_is_laid_out_anew() {
    LazyLock::force(&WORLDS);
    LazyLock::force(&WORKER);
    histories::run(6, 20_000, |seed| {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|_| history.step());
        history.end();
    });
}

/// Also while it is paused, and before a reader of its tables gets any row by the new rule.
#[test]
fn projects_of_an_earlier_rule_are_laid_out_anew_when_they_are_opened() {
    let world = &WORLDS[0];
    let mut scene = Scene::indexing(world);
    let ids = ["running", "paused"].map(|it| scene.watch(it, world.contracts.clone(), false));
    scene.run_until_settled();
    scene.registry.set_running(&owner(), ids[1], false).unwrap();
    let fresh = ids.map(|id| scene.content(id).0);
    let derivations = |scene: &Scene| ids.map(|id| scene.manifest(id).events.unwrap().derivation);
    let before = derivations(&scene);
    ids.iter().for_each(|id| scene.lay_out_as_before(*id));
    scene.restart();
    for id in ids {
        let project = scene.manifest(id).events.unwrap();
        assert!(project.must_derive() && project.arrangement().is_none());
        assert_ne!(scene.manifest(id).schema.tables(), fresh[0].0.tables());
    }
    scene.run_until_settled();
    let after = derivations(&scene);
    assert!(after.iter().zip(before).all(|(after, before)| *after > before));
    for (id, fresh) in ids.into_iter().zip(fresh) {
        assert_eq!(scene.content(id).0, fresh);
        assert!(scene.manifest(id).events.unwrap().arrangement().is_some());
    }
    // Once is enough.
    scene.restart();
    scene.run_until_settled();
    assert_eq!(derivations(&scene), after);
}
