//! Random histories of the index: ledgers in any order, an index that lags behind, retention, rebuilds,
//! restarts, and kills at any write. What is known of the code that a contract ran is true at any moment,
//! and stays known; what a kill takes back was not on disk yet.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use orrery_testkit::crash::{Kill, copied};
use orrery_testkit::histories;
use orrery_testkit::newest::Newest;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::upgraded::Upgraded;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::*;
use crate::{CODE_EVENTS, CONSUMER, CodeEvents};
use orrery_store::{Losses, Retention, StoreError};

const STEPS: usize = 24;

/// A network, its ledgers by sequence, and what they say.
struct Told {
    network: Network,
    ledgers: BTreeMap<u32, Vec<u8>>,
    model: Model,
}

static NETWORKS: LazyLock<[Told; 2]> = LazyLock::new(|| {
    let newest = Newest::made(Network::from_passphrase("executables"), 3);
    [(newest.network.clone(), newest.ledgers), (local(), Upgraded::made().ledgers)].map(
        |(network, raw)| {
            let model = Model::of(&network, &raw);
            let numbered =
                |raw: Vec<u8>| (decode(&raw, network.id()).unwrap().header.sequence.0, raw);
            Told { ledgers: raw.into_iter().map(numbered).collect(), model, network }
        },
    )
});

type Asked = (ContractId, TransactionPosition, bool);

struct History {
    told: &'static Told,
    rng: ChaCha8Rng,
    directory: TempDir,
    store: Option<Arc<Store>>,
    /// What was known after the last step, and what certainly is on disk.
    known: BTreeMap<Asked, Ran>,
    durable: BTreeMap<Asked, Ran>,
    /// Whether retention may have removed what the index had not read yet.
    may_lack: bool,
}

fn open(directory: &Path, network: &Network) -> Arc<Store> {
    let consumers: [Arc<dyn LedgerConsumer>; 2] =
        [Arc::new(ExecutableIndex), Arc::new(CodeEvents::default())];
    let extensions = Extensions::for_consumers(&consumers);
    Arc::new(Store::open_with(directory, Some(network), extensions).unwrap())
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let told = NETWORKS.choose(&mut rng).unwrap();
        let directory = scratch();
        let store = Some(open(directory.path(), &told.network));
        let (known, durable) = (BTreeMap::new(), BTreeMap::new());
        Self { told, rng, directory, store, known, durable, may_lack: false }
    }

    fn store(&self) -> &Arc<Store> {
        self.store.as_ref().unwrap()
    }

    fn step(&mut self) {
        match self.rng.random_range(0..20) {
            0..7 => self.commit(),
            7..11 => self.index(),
            11 => self.flush(),
            12 => self.prune(),
            13 => self.rebuild(),
            14 => self.open_again(None),
            15 => self.open_again(Some(copied(self.directory.path()))),
            _ => self.kill_amid(),
        }
        self.check();
    }

    /// Stores some missing ledgers.
    fn commit(&mut self) {
        let is_missing = |it: &&u32| self.store().range_of(LedgerSeq(**it)).is_none();
        let missing: Vec<u32> = self.told.ledgers.keys().filter(is_missing).copied().collect();
        let Some(first) = missing.choose(&mut self.rng).copied() else { return };
        let count = self.rng.random_range(1..8);
        for ledger in missing.into_iter().filter(|it| *it >= first).take(count) {
            let view = decode(&self.told.ledgers[&ledger], self.told.network.id()).unwrap();
            let raw_ledgers = self.rng.random();
            let options = IndexOptions { raw_ledgers, ..IndexOptions::default() };
            let prepared = self.store().prepare(&view, None, &options).unwrap();
            let durability =
                *[Durability::Synced, Durability::Deferred].choose(&mut self.rng).unwrap();
            self.store().commit(prepared, durability).unwrap();
        }
    }

    fn index(&mut self) {
        let most = if self.rng.random() { usize::MAX } else { 1 };
        let consumer: &dyn LedgerConsumer =
            if self.rng.random_bool(0.7) { &ExecutableIndex } else { &CodeEvents::default() };
        for _ in 0..most {
            if !self.store().step(consumer).unwrap() {
                return;
            }
        }
    }

    fn flush(&mut self) {
        self.store().flush().unwrap();
        self.durable = self.all_known();
    }

    fn prune(&mut self) {
        let mut kept = || self.rng.random_bool(0.5).then(|| self.rng.random_range(0..40));
        let (raw_ledgers, events, transactions) = (kept(), kept(), kept());
        let wait_for_consumers = if self.rng.random() { u32::MAX } else { 0 };
        let retention = Retention { raw_ledgers, events, transactions, wait_for_consumers };
        while !self.store().prune(&retention).unwrap().is_nothing() {}
        self.may_lack |= wait_for_consumers == 0;
    }

    fn rebuild(&mut self) {
        let consumer = if self.rng.random() { CONSUMER } else { CODE_EVENTS };
        match self.store().begin_rebuild(consumer, Losses::Refused) {
            Ok(_) | Err(StoreError::RebuildLoses { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Opens the files again, or those that a kill has left.
    fn open_again(&mut self, files: Option<TempDir>) {
        self.store = None;
        match files {
            // Nothing is lost when a store is closed.
            None => self.durable.clone_from(&self.known),
            Some(files) => {
                self.directory = files;
                self.known.clone_from(&self.durable);
            }
        }
        self.store = Some(open(self.directory.path(), &self.told.network));
        // What it passed without writing anything it passes again, and knows no more until then.
        self.index_all();
    }

    fn index_all(&self) {
        for consumer in [&ExecutableIndex as &dyn LedgerConsumer, &CodeEvents::default()] {
            while self.store().step(consumer).unwrap() {}
        }
    }

    fn kill_amid(&mut self) {
        let at = (self.rng.random_range(0..6), self.rng.random());
        let kill = Kill::plan(self.store(), self.directory.path(), at, || ());
        let durable = self.durable.clone();
        match self.rng.random_range(0..10) {
            0..4 => self.commit(),
            4..8 => self.index(),
            8 => self.flush(),
            _ => self.prune(),
        }
        if let Some(files) = kill.files(self.store()) {
            self.durable = durable;
            self.open_again(Some(files));
        }
    }

    /// All that is known of the contracts and transactions of stored ledgers.
    fn all_known(&self) -> BTreeMap<Asked, Ran> {
        let lookup = Lookup::new(self.store(), RowBounds::none()).unwrap();
        let mut known = BTreeMap::new();
        for at in &self.told.model.positions {
            if self.store().range_of(at.ledger).is_none() {
                continue;
            }
            for contract in &self.told.model.contracts {
                for is_after in [false, true] {
                    let side = if is_after { Side::After } else { Side::Before };
                    match lookup.ran(contract, *at, side).unwrap() {
                        Ran::Unknown(_) => {}
                        found => drop(known.insert((*contract, *at, is_after), found)),
                    }
                }
            }
        }
        known
    }

    fn check(&mut self) {
        let known = self.all_known();
        for ((contract, at, is_after), found) in &known {
            let side = if *is_after { Side::After } else { Side::Before };
            let expected = self.told.model.ran(*contract, *at, side);
            assert_eq!(expected.as_ref(), Some(found), "{contract} {at:?} {side:?}");
        }
        for (asked, before) in &self.known {
            assert_eq!(known.get(asked), Some(before), "{asked:?} was known");
        }
        self.known = known;
    }

    /// In the end all that the ledgers say is known, if retention has waited for the index.
    fn end(mut self) {
        while self.told.ledgers.keys().any(|it| self.store().range_of(LedgerSeq(*it)).is_none()) {
            self.commit();
        }
        self.index_all();
        self.check();
        if !self.may_lack {
            let model = &self.told.model;
            let sides = model.positions.iter().flat_map(|at| {
                model.contracts.iter().flat_map(|contract| {
                    [Side::Before, Side::After].map(|side| model.ran(*contract, *at, side))
                })
            });
            assert_eq!(self.known.len(), sides.flatten().count());
        }
    }
}

/// Small: 40 histories; full: 20,000.
#[test]
fn what_is_known_of_code_is_true_and_stays_known() {
    LazyLock::force(&NETWORKS);
    histories::run(40, 20_000, |seed| {
        let mut history = History::new(seed);
        (0..STEPS).for_each(|_| history.step());
        history.end();
    });
}
