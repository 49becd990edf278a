//! Random histories of projects with selectors, on a network in which contracts create others: ledgers in
//! any order and with gaps, facts and an index of code that lag behind, writes that fail, restarts, and kills
//! at any write, new versions and backfills at any moment. In the end each project has exactly the events
//! of its members, and the changes of what they hold, as models say that replay the whole metadata, and the tables
//! of a project that read the same ledgers in the order of the chain. Where a project may have a few members only,
//! these are the ones that became members first.

use orrery_testkit::factories::Factories;
use orrery_testkit::histories;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::events::owner;
use super::project_history::{ProjectHistory, arriving};
use super::*;
use crate::events::{CreatorAddress, FactorySelector, Selectors};
use crate::registry::Watch;
use in_order::read_in_order;
use model::Model;
use orrery_contract_data::{ContractData, Scope, set_scope};
use orrery_executables::ExecutableIndex;
use orrery_membership::{Creator, Facts, Membership, code_events};
use orrery_testkit::storage::StorageModel;

mod by_events;
mod changes;
mod cut;
mod in_order;
mod indexing;
mod limits;
mod model;
mod names;
mod told;

/// Number of steps of a history, not counting turns.
const STEPS: usize = 30;
/// Maximum number of projects at a time.
const PROJECTS: usize = 3;
/// Number of networks.
const WORLDS: u64 = 3;

/// Networks of factories, each with its raw ledgers by number.
type Networks = Vec<(Factories, BTreeMap<u32, Vec<u8>>)>;

static FACTORIES: LazyLock<Networks> = LazyLock::new(|| {
    let world = |seed| {
        let factories = Factories::made(seed);
        let ledgers = factories.ledgers.iter().map(|raw| {
            let ledger = decode(raw, factories.network.id()).unwrap().header.sequence;
            (ledger.0, raw.clone())
        });
        let ledgers: BTreeMap<u32, Vec<u8>> = ledgers.collect();
        (factories, ledgers)
    };
    (0..WORLDS).map(|seed| world(40 + seed)).collect()
});

struct History {
    world: &'static Factories,
    ledgers: &'static BTreeMap<u32, Vec<u8>>,
    scene: Scene,
    rng: ChaCha8Rng,
    missing: Vec<u32>,
    /// What the stored ledgers say of contract data.
    naive: StorageModel,
    /// Maximum number of members of a project.
    most: usize,
    /// Whether projects select events by their names alone.
    by_name: bool,
    projects: u32,
}

fn scene(world: &Factories) -> Scene {
    let consumers: Vec<Arc<dyn LedgerConsumer>> = vec![
        Arc::new(ExecutableIndex),
        Arc::new(Membership),
        Arc::new(code_events()),
        Arc::new(ContractData),
    ];
    let network = world.network.clone();
    let mut scene =
        Scene { network, consumers, ..Scene::closed(settings::Programs::default(), None) };
    scene.restart();
    scene
}

impl Parts {
    fn select(
        &self,
        name: &str,
        (contracts, selectors): (Vec<ContractId>, Selectors),
        (storage, from): (Option<bool>, Option<LedgerSeq>),
        replace: Replace,
    ) -> bool {
        let watch = Watch {
            project_name: name.to_owned(),
            contracts,
            selectors,
            supplied: None,
            from,
            storage,
            public: None,
            replace,
        };
        match self.registry.watch(&owner(), watch, 1) {
            Ok(manifest) => {
                self.begin_reading(manifest.id);
                true
            }
            Err(error) => {
                assert!(replace != Replace::No, "{error}");
                false
            }
        }
    }
}

impl ProjectHistory for History {
    fn parts(&mut self) -> (&mut Scene, &mut ChaCha8Rng) {
        (&mut self.scene, &mut self.rng)
    }

    fn store(&mut self, most: usize) {
        for _ in 0..most {
            let Some(ledger) = self.missing.pop() else { return };
            // The first one says that there was nothing before.
            let is_first = self.ledgers.keys().next() == Some(&ledger);
            let raw_ledgers = self.rng.random() || is_first;
            self.scene.commit(&self.ledgers[&ledger], raw_ledgers);
            self.naive.add(&self.ledgers[&ledger]);
        }
    }

    fn go_on(&mut self) {
        self.scene.restart();
        self.scene.registry.members.set_most(self.most, 1_000_000);
        self.scene.begin_reading_all();
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let (world, ledgers) = &FACTORIES[(seed % WORLDS) as usize];
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let missing = arriving(ledgers.keys().copied().collect(), 0.6, &mut rng);
        let scene = scene(world);
        if rng.random_bool(0.3) {
            set_scope(&scene.store, Scope::Watched).unwrap();
        }
        let naive = StorageModel::new(world.network.passphrase());
        let most = if rng.random_bool(0.4) { rng.random_range(1..=4) } else { 100_000 };
        scene.registry.members.set_most(most, 1_000_000);
        let (by_name, projects) = (false, 0);
        Self { world, ledgers, scene, rng, missing, naive, most, by_name, projects }
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..7 => {
                let most = self.rng.random_range(1..8);
                self.store(most);
            }
            7..10 => {
                let most = if self.rng.random() { usize::MAX } else { 1 };
                self.scene.index(most);
            }
            10..13 => {
                let most = if self.rng.random() { usize::MAX } else { 1 };
                self.scene.learn(most);
                self.scene.record(self.rng.random_range(0..8));
                self.scene.fill(self.rng.random_range(0..2));
            }
            13..15 => self.watch(),
            15 => self.append(),
            16 => self.replace(),
            17 => self.go_on(),
            18 => self.backfill(),
            _ => {}
        }
        if !self.rng.random_bool(0.15) {
            self.failing_turns();
        } else if self.kill_amid_turns() {
            self.take_up();
        }
    }

    /// Whether a project records what its contracts hold, and its first ledger.
    fn storage(&mut self, selectors: &Selectors) -> (Option<bool>, Option<LedgerSeq>) {
        let storage = selectors.all.is_empty() && self.rng.random_bool(0.6);
        let all: Vec<u32> = self.ledgers.keys().copied().collect();
        let from =
            self.rng.random_bool(0.2).then(|| LedgerSeq(*all.choose(&mut self.rng).unwrap()));
        (Some(storage), from)
    }

    fn selectors(&mut self) -> (Vec<ContractId>, Selectors) {
        let world = self.world;
        let factory = *world.factories.choose(&mut self.rng).unwrap();
        let mut selectors = Selectors::default();
        let mut contracts = Vec::new();
        while selectors.is_empty() {
            if !self.by_name && self.rng.random_bool(0.4) {
                // The first one declares its event, under another name than its topic has.
                let (event, param) = match factory == world.factories[0] {
                    true => ("pool_made", "pool"),
                    false => ("made", "value"),
                };
                let (event, param) = (event.to_owned(), param.to_owned());
                selectors.factories.push(FactorySelector { contract: factory, event, param });
            }
            if !self.by_name && self.rng.random_bool(0.4) {
                let creator = match self.rng.random_bool(0.8) {
                    true => factory,
                    false => {
                        let makers: Vec<ContractId> = world.made.values().copied().collect();
                        *makers.choose(&mut self.rng).unwrap()
                    }
                };
                selectors.created_by.push(CreatorAddress(Creator::Contract(creator)));
            }
            if self.by_name || self.rng.random_bool(0.15) {
                let name = *["said", "told", "pool_made", "made"].choose(&mut self.rng).unwrap();
                selectors.all.push(name.to_owned());
            }
            if !self.by_name && self.rng.random_bool(0.4) {
                let code = world.codes.choose(&mut self.rng).unwrap();
                selectors.wasm.push(Hash32(*code));
            }
        }
        if self.rng.random_bool(0.3) {
            contracts.push(*world.factories.choose(&mut self.rng).unwrap());
        }
        (contracts, selectors)
    }

    fn watch(&mut self) {
        if self.scene.registry.all().len() >= PROJECTS {
            return;
        }
        self.projects += 1;
        let watch = self.selectors();
        let storage = self.storage(&watch.1);
        self.scene.select(&format!("p{}", self.projects), watch, storage, Replace::No);
    }

    fn replace(&mut self) {
        let Some(id) = self.any_project() else { return };
        let name = self.scene.manifest(id).project_name;
        if name.is_empty() {
            return;
        }
        let watch = match self.rng.random() {
            true => self.selectors(),
            false => (Vec::new(), Selectors::default()),
        };
        let storage = match self.rng.random() {
            true => self.storage(&watch.1),
            false => (None, None),
        };
        let replaces = self.scene.select(&name, watch, storage, Replace::AllowingLoss);
        if replaces {
            for entry in self.scene.registry.replacements() {
                let _ = self.scene.replacements.step(&entry);
            }
        }
    }

    fn append(&mut self) {
        let all: Vec<_> = self.world.made.keys().copied().collect();
        // It is refused where a project may have no more members.
        let _ = self.append_one_of(&all);
    }

    fn backfill(&mut self) {
        let Some(id) = self.any_project() else { return };
        let ledgers: Vec<_> = self.ledgers.keys().copied().collect();
        let first = *ledgers.choose(&mut self.rng).unwrap();
        // One may be running.
        let _ = self.scene.begin(id, first, *ledgers.last().unwrap());
    }

    /// Takes up what is stored after a kill.
    fn take_up(&mut self) {
        self.scene.add_lost(self.ledgers.keys().copied(), &mut self.missing);
        self.naive = StorageModel::new(self.world.network.passphrase());
        for (ledger, raw) in self.ledgers {
            if !self.missing.contains(ledger) {
                self.naive.add(raw);
            }
        }
    }

    fn end(&mut self) {
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
        self.scene.begin_reading_all();
        self.settle();
        for entry in self.scene.registry.all() {
            self.check_project(entry.id);
        }
        // What is in memory is what is on disk.
        self.go_on();
        self.settle();
        for entry in self.scene.registry.all() {
            self.check_project(entry.id);
        }
    }

    fn settle(&mut self) {
        for _ in 0..2 {
            self.run_until_settled();
            for entry in self.scene.registry.replacements() {
                let _ = self.scene.replacements.step(&entry);
            }
        }
        self.run_until_settled();
    }

    /// Gives turns to all projects until they have nothing to do, with all that is known meanwhile.
    fn run_until_settled(&self) {
        let mut idle = 0;
        for _ in 0..MANY_TURNS {
            self.scene.index(usize::MAX);
            self.scene.learn(usize::MAX);
            self.scene.record(usize::MAX);
            self.scene.fill(usize::MAX);
            // What became a member in the last turns is watched before the next.
            idle = if self.scene.turn_all() { 0 } else { idle + 1 };
            if idle == 2 {
                return;
            }
        }
        panic!("there is no end to it");
    }

    fn check_project(&self, id: ProgramId) {
        let manifest = self.scene.manifest(id);
        let project = manifest.events.as_ref().unwrap();
        let stored = self.ledgers.iter().filter(|(ledger, _)| !self.missing.contains(ledger));
        let stored: Vec<&Vec<u8>> = stored.map(|(_, raw)| raw).collect();
        let model = Model::of(&self.ledgers.values().collect::<Vec<_>>());
        let mut selected = model.selected(&manifest.contracts, &project.selectors);
        selected.retain(|(ledger, _), _| !self.missing.contains(ledger) && *ledger >= project.from);
        let mut found: BTreeMap<(u32, ContractId), usize> = BTreeMap::new();
        for (ledger, contract) in self.scene.events(id) {
            *found.entry((ledger.0, contract)).or_default() += 1;
        }
        let of = (manifest.contracts.as_slice(), &project.selectors);
        let stays = |contract: &ContractId| model.stays(of, contract, self.most);
        // What events are called is not modelled.
        if !project.selectors.all.is_empty() {
            selected.retain(|(_, contract), _| {
                self.missing.is_empty() && stays(contract) == Some(true)
            });
            for (of, count) in &selected {
                let all = found.get(of).copied().unwrap_or(0);
                assert!(all >= *count, "{of:?} {all} {count} {:?}", project.selectors);
            }
        } else if self.missing.is_empty() {
            selected.retain(|(_, contract), _| stays(contract) == Some(true));
            let mut modelled = found.clone();
            modelled.retain(|(_, contract), _| stays(contract).is_some());
            assert_eq!(modelled, selected, "{of:?} {}", self.most);
        } else {
            // Less may be known, and nothing is guessed.
            for (of, count) in &found {
                let most = selected.get(of).copied().unwrap_or(0);
                assert!(*count <= most, "{of:?} {:?}", project.selectors);
            }
        }
        self.check_told(&manifest, &found);
        self.check_changes(&manifest, &model);
        let members = self.scene.runner.events.members().count(id);
        assert!(members <= self.most.max(manifest.contracts.len()));
        let fresh = read_in_order(self.world, &stored, &manifest, self.most);
        let (content, _) = self.scene.content(id);
        assert_eq!(content.0, fresh.0, "the tables are the same");
        assert_eq!(content.1, fresh.1, "the rows are the same");
    }
}

#[test]
fn random_histories_give_the_rows_of_all_members() {
    histories::run(60, 20_000, |seed| {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|_| history.step());
        history.end();
    });
}
