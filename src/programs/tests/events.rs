//! Random histories of projects of events: ledgers in any order, with gaps that are filled later or
//! stay, an index of code that lags behind, contracts that are appended, retention of raw ledgers, writes
//! that fail, restarts, and kills at any write. In the end each project has exactly the events of its
//! contracts, and the tables of a project that read the same ledgers in the order of the chain.

use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::ScVal;

use super::events_world::{WORLDS, World};
use super::project_history::{ProjectHistory, arriving};
use super::*;
use crate::events::{LoggedEvents, OfProject, begin_reading, table_rows};
use crate::registry::Watch;
use crate::row_log::runs_after;
use crate::rows::LoggedRun;
use orrery_tables::Row;
use orrery_testkit::histories;
use orrery_testkit::upgraded::version;

/// Number of steps of a history, not counting turns.
const STEPS: usize = 30;
/// Maximum number of projects at a time.
const PROJECTS: usize = 3;

/// What the tables of a project have, apart from ids: their schema, and all rows, sorted.
pub(super) type Content = (orrery_tables::schema::ProgramSchema, Vec<String>);

/// What a project is of: the world, the contracts, and whether an interface is supplied.
type Told = (usize, Vec<ContractId>, bool);

/// Contents of projects that read all ledgers in their order.
static FRESH: Mutex<BTreeMap<Told, Arc<Content>>> = Mutex::new(BTreeMap::new());

pub(super) fn owner() -> Owner {
    Owner("ana".to_owned())
}

struct History {
    world: &'static World,
    number: usize,
    scene: Scene,
    rng: ChaCha8Rng,
    missing: Vec<u32>,
    projects: u32,
}

impl ProjectHistory for History {
    fn parts(&mut self) -> (&mut Scene, &mut ChaCha8Rng) {
        (&mut self.scene, &mut self.rng)
    }

    fn store(&mut self, most: usize) {
        for _ in 0..most {
            let Some(ledger) = self.missing.pop() else { return };
            let raw_ledgers = self.rng.random();
            self.scene.commit(&self.world.ledgers[&ledger], raw_ledgers);
        }
    }
}

impl History {
    fn new(seed: u64, number: usize) -> Self {
        let world = &WORLDS[number];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let missing = arriving(world.ledgers.keys().copied().collect(), 0.7, &mut rng);
        let scene = Scene::of_network(world.network.clone());
        Self { world, number, scene, rng, missing, projects: 0 }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..7 => {
                let most = self.rng.random_range(1..8);
                self.store(most);
            }
            7..11 => self.index(),
            11..13 => self.watch(),
            13..15 => self.append_one_of(&self.world.contracts).unwrap(),
            15 => self.pause_or_resume(),
            16 => self.backfill(),
            17 => self.restart(),
            18 => self.prune(),
            _ => {}
        }
        if !self.rng.random_bool(0.15) {
            self.failing_turns();
        } else if self.kill_amid_turns() {
            self.scene.add_lost(self.world.ledgers.keys().copied(), &mut self.missing);
        }
        self.check();
    }

    /// Advances the index of code by some ledgers, or by all.
    fn index(&mut self) {
        let most = if self.rng.random() { usize::MAX } else { 1 };
        self.scene.index(most);
    }

    fn watch(&mut self) {
        if self.scene.registry.all().len() >= PROJECTS {
            return;
        }
        self.projects += 1;
        let count = self.rng.random_range(1..=self.world.contracts.len());
        let contracts: Vec<_> =
            self.world.contracts.choose_multiple(&mut self.rng, count).copied().collect();
        let supplied = self.rng.random_bool(0.2);
        self.scene.watch(&format!("p{}", self.projects), contracts, supplied);
    }

    fn pause_or_resume(&mut self) {
        let Some(id) = self.any_project() else { return };
        let running = self.rng.random();
        self.scene.registry.set_running(&owner(), id, running).unwrap();
    }

    fn backfill(&mut self) {
        let Some(id) = self.any_project() else { return };
        let ledgers: Vec<_> = self.world.ledgers.keys().copied().collect();
        let first = *ledgers.choose(&mut self.rng).unwrap();
        // One may be running.
        let _ = self.scene.begin(id, first, *ledgers.last().unwrap());
    }

    fn restart(&mut self) {
        if self.rng.random_bool(0.3) {
            self.scene.registry.all().iter().for_each(|it| self.scene.lay_out_as_before(it.id));
        }
        self.go_on();
    }

    /// Checks what holds at any moment: the numbers are those of the row log.
    fn check(&self) {
        for entry in self.scene.registry.all() {
            let rows = self.scene.rows(entry.id);
            let mut cell = entry.lock();
            cell.reload_if_in_doubt(&self.scene.store).unwrap();
            let progress = cell.progress;
            drop(cell);
            let events = self.scene.events(entry.id);
            assert_eq!(progress.events.events, events.len() as u64);
            assert_eq!(progress.log, rows.len() as u64);
            let is_derived = !self.scene.manifest(entry.id).events.unwrap().must_derive();
            if is_derived {
                let bytes: usize = rows.values().map(Vec::len).sum();
                assert_eq!(progress.row_bytes, bytes as u64);
                let (_, undeclared) = self.scene.content(entry.id);
                assert_eq!(progress.events.undeclared, undeclared);
            }
        }
    }

    fn end(&mut self) {
        // Some ledgers are never stored.
        let left = match self.rng.random_bool(0.3) {
            true => self.rng.random_range(0..=self.missing.len()),
            false => 0,
        };
        while self.missing.len() > left {
            self.store(1);
        }
        if self.scene.registry.all().is_empty() {
            self.watch();
        }
        for entry in self.scene.registry.all() {
            self.scene.begin_reading(entry.id);
            self.scene.registry.set_running(&owner(), entry.id, true).unwrap();
        }
        if self.rng.random() {
            self.scene.run_until_settled();
        }
        self.scene.index(usize::MAX);
        self.scene.run_until_settled();
        self.check();
        for entry in self.scene.registry.all() {
            self.check_project(entry.id);
        }
        // What is in memory is what is on disk.
        self.restart();
        self.scene.run_until_settled();
        self.check();
    }

    fn check_project(&self, id: ProgramId) {
        let manifest = self.scene.manifest(id);
        let mut contracts = manifest.contracts.clone();
        contracts.sort_unstable();
        let mut found: BTreeMap<(u32, ContractId), usize> = BTreeMap::new();
        for (ledger, contract) in self.scene.events(id) {
            *found.entry((ledger.0, contract)).or_default() += 1;
        }
        let of_contracts =
            |((_, contract), _): &(&(u32, ContractId), &usize)| contracts.contains(contract);
        let is_stored =
            |((ledger, _), _): &(&(u32, ContractId), &usize)| !self.missing.contains(ledger);
        let expected = self.world.events.iter().filter(of_contracts).filter(is_stored);
        assert_eq!(found, expected.map(|(at, count)| (*at, *count)).collect());
        let supplied = manifest.events.as_ref().unwrap().has_supplied;
        let fresh = match self.missing.is_empty() {
            true => fresh(self.number, contracts, supplied),
            false => Arc::new(read_in_order(self.world, &self.missing, contracts, supplied)),
        };
        let (content, _) = self.scene.content(id);
        assert_eq!(content.0, fresh.0, "the tables are the same");
        assert_eq!(content.1, fresh.1, "the rows are the same");
    }
}

/// What a project has that read all ledgers in the order of the chain, when all code was known.
pub(super) fn fresh(world: usize, contracts: Vec<ContractId>, supplied: bool) -> Arc<Content> {
    let key = (world, contracts, supplied);
    if let Some(known) = FRESH.lock().get(&key) {
        return Arc::clone(known);
    }
    let content = Arc::new(read_in_order(&WORLDS[world], &[], key.1.clone(), supplied));
    FRESH.lock().insert(key, Arc::clone(&content));
    content
}

/// What a project has that reads all ledgers but these in the order of the chain.
fn read_in_order(
    world: &World,
    missing: &[u32],
    contracts: Vec<ContractId>,
    supplied: bool,
) -> Content {
    let scene = Scene::of_network(world.network.clone());
    for (ledger, raw) in &world.ledgers {
        if !missing.contains(ledger) {
            scene.commit(raw, true);
            scene.index(usize::MAX);
        }
    }
    let id = scene.watch("fresh", contracts, supplied);
    scene.run_until_settled();
    scene.content(id).0
}

impl Parts {
    pub(super) fn watch(
        &self,
        name: &str,
        contracts: Vec<ContractId>,
        supplied: bool,
    ) -> ProgramId {
        let watch = Watch {
            project_name: name.to_owned(),
            contracts,
            selectors: Default::default(),
            supplied: supplied.then(|| version(3)),
            from: None,
            storage: None,
            public: None,
            replace: Replace::No,
        };
        let id = self.registry.watch(&owner(), watch, 1).unwrap().id;
        self.begin_reading(id);
        id
    }

    pub(super) fn begin_reading(&self, id: ProgramId) {
        let entry = self.registry.get(id).unwrap();
        begin_reading(&self.store, &self.registry, &self.backfills, &entry).unwrap();
    }

    /// As [`Self::run_until_idle`], with projects that wait for the index.
    pub(super) fn run_until_settled(&self) {
        for _ in 0..MANY_TURNS {
            if !self.turn_all() {
                return;
            }
        }
        panic!("there is no end to it");
    }

    /// Returns the transactions in the row log of a project.
    pub(super) fn runs(&self, id: ProgramId) -> Vec<LoggedRun> {
        let (mut runs, mut after, mut more) = (Vec::new(), 0, true);
        while more {
            let batch = runs_after(&self.store, id, after, u64::MAX).unwrap();
            (after, more) = (batch.up_to, batch.more);
            runs.extend(batch.items);
        }
        runs
    }

    /// Returns the ledger and the contract of each event in the row log of a project.
    pub(super) fn events(&self, id: ProgramId) -> Vec<(LedgerSeq, ContractId)> {
        let of_run = |run: LoggedRun| {
            let events = LoggedEvents::read(&run.stored).unwrap().events();
            let events = events.map(|event| (run.position.ledger, event.unwrap().contract));
            events.collect::<Vec<_>>()
        };
        self.runs(id).into_iter().flat_map(of_run).collect()
    }

    /// Returns the tables of a project, and the number of rows of `undeclared`. Each event has one row
    /// in a table, and one in the view of all events.
    pub(super) fn content(&self, id: ProgramId) -> (Content, u64) {
        let manifest = self.manifest(id);
        let project = manifest.events.as_ref().unwrap();
        let of = OfProject::of(&manifest);
        let count = self.events(id).len();
        let mut rows = Vec::new();
        for run in self.runs(id) {
            let stored = (run.position, run.stored.as_slice());
            rows.extend(table_rows(&of, project, &self.runner.events, stored).unwrap());
        }
        let is_beside =
            |row: &&Row| ["member_changes", "storage_changes"].contains(&&*row.emit.target);
        let beside = rows.iter().filter(is_beside).count();
        assert_eq!(rows.len(), 2 * count + beside);
        let tables = manifest.schema.tables();
        let in_tables = |row: &&Row| tables.iter().any(|it| it.target == row.emit.target);
        let count = count + beside;
        assert_eq!(rows.iter().filter(in_tables).count(), count, "each is in one table");
        let undeclared = rows.iter().filter(|row| row.emit.target == "undeclared").count();
        let mut texts: Vec<_> = rows.into_iter().map(text_without_id).collect();
        texts.sort_unstable();
        ((manifest.schema.derived(0), texts), undeclared as u64)
    }
}

/// A row as text, without the ids, which differ between stores and projects.
fn text_without_id(row: Row) -> String {
    let is_id =
        |key: &ScVal| matches!(key, ScVal::Symbol(name) if name.0.as_slice() == b"_event_id");
    let fields = row.emit.fields.iter().filter(|field| !is_id(&field.key));
    let fields: Vec<_> = fields.map(|field| (&field.key, &field.val)).collect();
    let Row { transaction, ledger, closed_at, emit, .. } = &row;
    format!("{ledger} {transaction:?} {closed_at:?} {} {} {fields:?}", emit.contract, emit.target)
}

/// Which world a history is about: mostly the one with declared events, seldom the public network.
fn world_of(seed: u64) -> usize {
    match seed % 12 {
        11 => WORLDS.len() - 1,
        4 | 8 => 1,
        _ => 0,
    }
}

#[test]
fn projects_of_events_do_not_depend_on_the_order_of_arrival() {
    LazyLock::force(&WORLDS);
    assert!(WORLDS[0].contracts.len() > 2 && WORLDS[0].events.len() > 20);
    histories::run(36, 20_000, |seed| {
        let mut history = History::new(seed, world_of(seed));
        (0..STEPS).for_each(|_| history.step());
        history.end();
    });
}
