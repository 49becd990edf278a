//! Random histories of projects that record what their contracts hold: generated ledgers in any order, with
//! gaps that are filled later or stay, an index that lags behind, contracts that are appended, writes that
//! fail, restarts, and kills at any write. In the end each project has exactly the changes that a naive
//! model of the stored ledgers has, with all that is known of each.

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::events::owner;
use super::project_history::{ProjectHistory, arriving};
use super::told_changes::{Told, forget_keys_of_evictions, told_of};
use super::*;
use crate::registry::Watch;
use orrery_contract_data::ContractData;
use orrery_executables::ExecutableIndex;
use orrery_testkit::histories;
use orrery_testkit::storage::histories::StorageHistory;
use orrery_testkit::storage::{self as naive, StorageModel};

/// Number of steps of a history, not counting turns.
const STEPS: usize = 24;
/// Maximum number of projects at a time.
const PROJECTS: usize = 2;

struct History {
    made: StorageHistory,
    model: StorageModel,
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
            let made = self.made.ledger(ledger);
            let raw_ledgers = self.rng.random() || self.made.origin == Some(ledger);
            self.scene.commit(&made.xdr, raw_ledgers);
            self.model.add(&made.xdr);
        }
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let made = StorageHistory::small(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let missing = arriving((made.first()..=made.last()).collect(), 0.6, &mut rng);
        let consumers: Vec<Arc<dyn LedgerConsumer>> =
            vec![Arc::new(ExecutableIndex), Arc::new(ContractData)];
        let mut scene = Scene {
            network: made.network.clone(),
            consumers,
            ..Scene::closed(settings::Programs::default(), None)
        };
        scene.restart();
        let model = StorageModel::new(made.network.passphrase());
        Self { made, model, scene, rng, missing, projects: 0 }
    }

    fn contracts(&self) -> Vec<ContractId> {
        self.made.contracts.keys().map(|id| ContractId(*id)).collect()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..7 => {
                let most = self.rng.random_range(1..4);
                self.store(most);
            }
            7..11 => {
                let most = if self.rng.random() { usize::MAX } else { 1 };
                self.index(most);
            }
            11..14 => self.watch(),
            14..16 => self.append_one_of(&self.contracts()).unwrap(),
            16 => self.go_on(),
            _ => {}
        }
        if !self.rng.random_bool(0.1) {
            self.failing_turns();
        } else if self.kill_amid_turns() {
            self.take_up();
        }
    }

    fn index(&self, most: usize) {
        for consumer in &self.scene.consumers {
            for _ in 0..most {
                if !self.scene.store.step(consumer.as_ref()).unwrap() {
                    break;
                }
            }
        }
    }

    fn watch(&mut self) {
        if self.scene.registry.all().len() >= PROJECTS {
            return;
        }
        self.projects += 1;
        let all = self.contracts();
        let count = self.rng.random_range(1..=all.len());
        let from = self
            .rng
            .random_bool(0.2)
            .then(|| LedgerSeq(self.rng.random_range(self.made.first()..=self.made.last())));
        let watch = Watch {
            project_name: format!("p{}", self.projects),
            contracts: all.choose_multiple(&mut self.rng, count).copied().collect(),
            selectors: Default::default(),
            supplied: None,
            from,
            storage: Some(true),
            public: None,
            replace: Replace::No,
        };
        let id = self.scene.registry.watch(&owner(), watch, 1).unwrap().id;
        self.scene.begin_reading(id);
    }

    /// Takes up what is stored after a kill. What was stored and is lost comes again.
    fn take_up(&mut self) {
        let mut model = StorageModel::new(self.made.network.passphrase());
        self.missing.clear();
        for ledger in self.made.first()..=self.made.last() {
            match self.scene.is_stored(ledger) {
                true => {
                    model.add(&self.made.ledger(ledger).xdr);
                }
                false => self.missing.push(ledger),
            }
        }
        self.missing.shuffle(&mut self.rng);
        self.model = model;
    }

    fn end(&mut self) {
        // Some ledgers are never stored.
        let left = match self.rng.random_bool(0.4) {
            true => self.rng.random_range(0..=self.missing.len() / 2),
            false => 0,
        };
        while self.missing.len() > left {
            self.store(1);
            if self.rng.random_bool(0.3) {
                self.index(usize::MAX);
                self.scene.run_until_settled();
            }
        }
        if self.scene.registry.all().is_empty() {
            self.watch();
        }
        self.scene.begin_reading_all();
        self.index(usize::MAX);
        self.scene.run_until_settled();
        self.check();
        // What is in memory is what is on disk, but for places in the feed.
        self.go_on();
        self.index(usize::MAX);
        self.scene.run_until_settled();
        self.check();
    }

    /// What the contracts of a project held when its first ledger began, which the model knows if the ledger
    /// before it is stored.
    fn found(&self, manifest: &Manifest, from: u32) -> Vec<Told> {
        let mut found = Vec::new();
        if from < 2 || !self.scene.is_stored(from) || !self.scene.is_stored(from - 1) {
            return found;
        }
        for contract in &manifest.contracts {
            for entry in self.model.list(&contract.0, from - 1).unwrap().entries {
                found.push(Told::found(&entry, from));
            }
        }
        found
    }

    /// Compares the changes of every project with those of the model, and the rows of the tables with them.
    fn check(&self) {
        for entry in self.scene.registry.all() {
            let manifest = self.scene.manifest(entry.id);
            let project = manifest.events.as_ref().unwrap();
            let wanted = |row: &naive::Row| {
                naive::contract_of(&row.key)
                    .is_some_and(|it| manifest.contracts.contains(&ContractId(it)))
                    && row.ledger >= project.from
            };
            let rows = self.model.rows(wanted);
            let mut expected: Vec<Told> = rows.iter().map(Told::of_model).collect();
            expected.extend(self.found(&manifest, project.from));
            expected.sort_unstable();
            let told = told_of(&self.scene, entry.id);
            forget_keys_of_evictions(&told, &mut expected);
            assert_eq!(told, expected, "from {}, {:?}", project.from, self.model.ranges());
        }
    }
}

#[test]
fn changes_of_contract_data_do_not_depend_on_the_order_of_arrival() {
    histories::run(60, 20_000, |seed| {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|_| history.step());
        history.end();
    });
}
