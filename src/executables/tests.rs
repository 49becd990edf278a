//! The index beside a model: what each contract ran around each transaction, replayed from the whole
//! metadata, against the index of stores that received the ledgers in any order and with gaps.

mod known;
mod told;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use orrery_testkit::fixtures::full_size;
use orrery_testkit::newest::Newest;
use orrery_testkit::pubnet;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use stellar_xdr::{
    ContractDataEntry, ContractExecutable, LedgerEntry, LedgerEntryChange, LedgerEntryData,
    LedgerKey, LedgerKeyContractData, Limits, ReadXdr, ScAddress, ScVal, TransactionMeta,
};

use super::interfaces::Wish;
use super::lookup::{Lookup, Ran, Side};
use super::{AskEntries, ExecutableIndex, Interfaces, News};
use orrery_ledger::decode::decode;
use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq, Network};
use orrery_store::{
    Durability, Extensions, IndexOptions, LedgerConsumer, RowBounds, Store, TransactionPosition,
};

/// Maximum number of answers that are compared for each order of the ledgers.
const MOST_COMPARED: usize = 20_000;
/// Tests advance the index themselves.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(1);

/// What an entry says, in the model: its executable; `None` when there is no entry.
type Said = Option<Option<ContractExecutable>>;

/// A change of an entry by a transaction: what it said before, if that is stated, and after.
struct Step {
    at: TransactionPosition,
    before: Said,
    after: Option<ContractExecutable>,
}

#[derive(Default)]
struct Model {
    entries: HashMap<LedgerKey, Vec<Step>>,
    /// All transactions.
    positions: Vec<TransactionPosition>,
    contracts: BTreeSet<ContractId>,
}

impl Model {
    fn of(network: &Network, ledgers: &[Vec<u8>]) -> Self {
        let mut model = Self::default();
        for raw in ledgers {
            let view = decode(raw, network.id()).unwrap();
            let emitters = view.events.iter().filter_map(|event| event.contract);
            model.contracts.extend(emitters.map(|contract| ContractId(*contract)));
            for transaction in &view.transactions {
                let at = TransactionPosition {
                    ledger: view.header.sequence,
                    application_order: transaction.application_order,
                };
                model.positions.push(at);
                let meta = TransactionMeta::from_xdr(transaction.meta, Limits::none()).unwrap();
                changes(&meta).for_each(|change| model.add(at, change));
            }
        }
        model
    }

    fn add(&mut self, at: TransactionPosition, change: &LedgerEntryChange) {
        let (key, entry, is_state, is_new) = match change {
            LedgerEntryChange::State(entry) => (entry.to_key(), Some(entry), true, false),
            LedgerEntryChange::Created(entry) => (entry.to_key(), Some(entry), false, true),
            LedgerEntryChange::Updated(entry) => (entry.to_key(), Some(entry), false, false),
            LedgerEntryChange::Restored(entry) => (entry.to_key(), Some(entry), true, false),
            LedgerEntryChange::Removed(key) => (key.clone(), None, false, false),
        };
        let is_wanted = matches!(
            &key,
            LedgerKey::ContractData(LedgerKeyContractData {
                key: ScVal::LedgerKeyContractInstance | ScVal::ExecutableTag(_),
                ..
            })
        );
        if !is_wanted {
            return;
        }
        if let LedgerKey::ContractData(LedgerKeyContractData {
            contract: ScAddress::Contract(contract),
            key: ScVal::LedgerKeyContractInstance,
            ..
        }) = &key
        {
            self.contracts.insert(ContractId(contract.0.0));
        }
        let executable = entry.and_then(executable);
        let steps = self.entries.entry(key).or_default();
        if steps.last().is_none_or(|step| step.at != at) {
            let before = match (is_new, is_state) {
                (true, _) => Some(None),
                (_, true) => Some(executable.clone()),
                _ => None,
            };
            steps.push(Step { at, before, after: None });
        }
        if !matches!(change, LedgerEntryChange::State(_)) {
            steps.last_mut().unwrap().after = executable;
        }
    }

    fn held(&self, key: &LedgerKey, at: TransactionPosition, side: Side) -> Said {
        let steps = self.entries.get(key)?;
        let next = steps.partition_point(|step| step.at <= at);
        let last = next.checked_sub(1).map(|last| &steps[last]);
        match last {
            Some(step) if step.at == at && side == Side::Before => step.before.clone(),
            Some(step) => Some(step.after.clone()),
            None => steps[next].before.clone(),
        }
    }

    /// Returns what a contract ran; `None` when the ledgers do not say.
    fn ran(&self, contract: ContractId, at: TransactionPosition, side: Side) -> Option<Ran> {
        let instance = data_key(contract, ScVal::LedgerKeyContractInstance);
        Some(match self.held(&instance, at, side)? {
            None => Ran::Nothing,
            Some(ContractExecutable::Wasm(hash)) => Ran::Code(Hash32(hash.0)),
            Some(ContractExecutable::StellarAsset) => Ran::Asset,
            Some(ContractExecutable::ExternalRef(reference)) => {
                let ScAddress::Contract(owner) = reference.executable_owner else { panic!() };
                let key = data_key(ContractId(owner.0.0), ScVal::ExecutableTag(reference.tag));
                match self.held(&key, at, side)? {
                    Some(ContractExecutable::Wasm(hash)) => Ran::Code(Hash32(hash.0)),
                    _ => Ran::Nothing,
                }
            }
        })
    }
}

fn data_key(contract: ContractId, key: ScVal) -> LedgerKey {
    LedgerKey::ContractData(LedgerKeyContractData {
        contract: ScAddress::Contract(stellar_xdr::ContractId(stellar_xdr::Hash(contract.0))),
        key,
        durability: stellar_xdr::ContractDataDurability::Persistent,
    })
}

/// Returns what an entry runs or, for one that references name, as if it ran that.
fn executable(entry: &LedgerEntry) -> Option<ContractExecutable> {
    let LedgerEntryData::ContractData(ContractDataEntry { val, .. }) = &entry.data else {
        return None;
    };
    match val {
        ScVal::ContractInstance(instance) => Some(instance.executable.clone()),
        ScVal::Bytes(hash) => {
            Some(ContractExecutable::Wasm(stellar_xdr::Hash(hash.as_slice().try_into().unwrap())))
        }
        _ => None,
    }
}

fn changes(meta: &TransactionMeta) -> Box<dyn Iterator<Item = &LedgerEntryChange> + '_> {
    match meta {
        TransactionMeta::V3(meta) => Box::new(
            meta.tx_changes_before
                .iter()
                .chain(meta.operations.iter().flat_map(|one| one.changes.iter()))
                .chain(meta.tx_changes_after.iter()),
        ),
        TransactionMeta::V4(meta) => Box::new(
            meta.tx_changes_before
                .iter()
                .chain(meta.operations.iter().flat_map(|one| one.changes.iter()))
                .chain(meta.tx_changes_after.iter()),
        ),
        _ => Box::new(std::iter::empty()),
    }
}

struct World {
    store: Arc<Store>,
    network: Network,
    _directory: tempfile::TempDir,
}

impl World {
    fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let extensions = Extensions::for_consumers(&[Arc::new(ExecutableIndex)]);
        let store = Store::open_with(directory.path(), Some(network), extensions).unwrap();
        Self { store: Arc::new(store), network: network.clone(), _directory: directory }
    }

    /// Stores a ledger, with or without its raw form, which decides how the index learns of it.
    fn commit(&self, raw: &[u8], raw_ledgers: bool) {
        let view = decode(raw, self.network.id()).unwrap();
        let options = IndexOptions { raw_ledgers, ..IndexOptions::default() };
        let prepared = self.store.prepare(&view, None, &options).unwrap();
        self.store.commit(prepared, Durability::Deferred).unwrap();
    }

    fn step(&self) {
        while self.store.step(&ExecutableIndex as &dyn LedgerConsumer).unwrap() {}
    }

    /// Compares all answers with the model, and returns how many are known and not known.
    fn compare(&self, model: &Model) -> (usize, usize) {
        self.compare_every(model, 1)
    }

    /// As [`Self::compare`], for one of `every` transactions.
    fn compare_every(&self, model: &Model, every: usize) -> (usize, usize) {
        let lookup = Lookup::new(&self.store, RowBounds::none()).unwrap();
        let (mut known, mut unknown) = (0, 0);
        for at in model.positions.iter().step_by(every) {
            if self.store.range_of(at.ledger).is_none() {
                continue;
            }
            for contract in &model.contracts {
                for side in [Side::Before, Side::After] {
                    let expected = model.ran(*contract, *at, side);
                    match lookup.ran(contract, *at, side).unwrap() {
                        Ran::Unknown(_) => unknown += 1,
                        found => {
                            assert_eq!(Some(found), expected, "{contract} {at:?} {side:?}");
                            known += 1;
                        }
                    }
                }
            }
        }
        (known, unknown)
    }
}

/// Networks with their ledgers.
fn networks() -> Vec<(Network, Vec<Vec<u8>>)> {
    let newest = Newest::made(Network::from_passphrase("executables"), 6);
    let newest = (newest.network.clone(), newest.ledgers);
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    [Some(newest), Some(pubnet::made()), public].into_iter().flatten().collect()
}

#[test]
fn what_contracts_ran_is_exact_or_not_known() {
    for (network, ledgers) in networks() {
        let model = Model::of(&network, &ledgers);
        let world = World::new(&network);
        for raw in &ledgers {
            world.commit(raw, true);
            world.step();
        }
        let (all_known, all_unknown) = world.compare(&model);
        let expected = model.positions.iter().map(|at| {
            let sides = model.contracts.iter().flat_map(|contract| {
                [Side::Before, Side::After].map(|side| model.ran(*contract, *at, side))
            });
            sides.filter(Option::is_some).count()
        });
        assert_eq!(all_known, expected.sum::<usize>(), "all that the ledgers say is known");
        assert!(all_known > 0);
        let every = 1 + (all_known + all_unknown) / MOST_COMPARED;
        let (all_known, all_unknown) = world.compare_every(&model, every);
        for seed in 0..if full_size() { 100 } else { 6 } {
            let mut random = StdRng::seed_from_u64(seed);
            let world = World::new(&network);
            let (mut order, mut left_out) = (ledgers.clone(), Vec::new());
            order.shuffle(&mut random);
            if seed % 2 == 0 {
                left_out = order.split_off(order.len() - random.random_range(1..4));
            }
            for raw in &order {
                world.commit(raw, random.random());
                if random.random_ratio(1, 3) {
                    world.step();
                }
            }
            world.step();
            let (known, unknown) = world.compare_every(&model, every);
            if left_out.is_empty() {
                assert_eq!((known, unknown), (all_known, all_unknown), "seed {seed}");
            } else {
                assert!(known <= all_known, "seed {seed}");
                for raw in &left_out {
                    world.commit(raw, random.random());
                }
                world.step();
                let all = world.compare_every(&model, every);
                assert_eq!(all, (all_known, all_unknown), "seed {seed}");
            }
        }
    }
}

/// Interfaces of modules that are stored are there for the second request at the latest.
#[test]
fn stored_interfaces_are_read_on_another_thread() {
    let newest = Newest::made(Network::from_passphrase("interfaces"), 6);
    let model = Model::of(&newest.network, &newest.ledgers);
    let world = World::new(&newest.network);
    newest.ledgers.iter().for_each(|raw| world.commit(raw, true));
    world.step();
    let interfaces = Interfaces::patient(Arc::clone(&world.store), None, MOMENT);
    let reader = std::thread::spawn({
        let interfaces = Arc::clone(&interfaces);
        move || interfaces.work()
    });
    let mut codes = BTreeMap::new();
    orrery_testkit::wait::wait_until("all interfaces are read", || {
        let reader = interfaces.reader(RowBounds::none()).unwrap();
        for at in &model.positions {
            for contract in &model.contracts {
                for tried in reader.tried(contract, *at).iter() {
                    if let super::Tried::Code(hash, interface) = tried {
                        codes.insert(*hash, interface.events().count());
                    }
                }
            }
        }
        reader.finish().unwrap()
    });
    interfaces.stop();
    reader.join().unwrap();
    let named: BTreeSet<Hash32> = model
        .positions
        .iter()
        .flat_map(|at| model.contracts.iter().map(|contract| (*contract, *at)))
        .filter_map(|(contract, at)| match model.ran(contract, at, Side::After)? {
            Ran::Code(hash) => Some(hash),
            _ => None,
        })
        .collect();
    let without = named.iter().filter(|hash| interfaces.reason(hash).is_some()).count();
    assert_eq!(codes.len() + without, named.len());
    assert_ne!(LedgerSeq(0), newest.repointed);
}

/// A question that is not answered delays nothing that is stored, and what is read is told.
#[test]
fn stored_interfaces_do_not_wait_for_another_server() {
    let newest = Newest::made(Network::from_passphrase("interfaces"), 6);
    let model = Model::of(&newest.network, &newest.ledgers);
    let world = World::new(&newest.network);
    newest.ledgers.iter().for_each(|raw| world.commit(raw, true));
    world.step();
    let (answer, answers) = std::sync::mpsc::channel::<()>();
    let answers = std::sync::Mutex::new(answers);
    // A server that does not answer before the test says so.
    let silent: AskEntries = Box::new(move |_| {
        // The test has ended when it fails.
        let _ = answers.lock().unwrap().recv();
        Err("it is too late".to_owned())
    });
    let interfaces = Interfaces::patient(Arc::clone(&world.store), Some(silent), MOMENT);
    let told = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let own = Arc::clone(&told);
    interfaces.listen(move |news| {
        own.fetch_add(usize::from(news == News::Read), std::sync::atomic::Ordering::Relaxed);
        true
    });
    std::thread::scope(|threads| {
        threads.spawn(|| interfaces.work());
        threads.spawn(|| interfaces.ask());
        let key = vec![1; 40];
        interfaces.wish(Wish::Entry(key.clone()));
        orrery_testkit::wait::wait_until("the server is asked", || {
            interfaces.asking.is_in_flight(&key)
        });
        let reader = interfaces.reader(RowBounds::none()).unwrap();
        for at in &model.positions {
            for contract in &model.contracts {
                reader.tried(contract, *at);
            }
        }
        let lacking = reader.lacking();
        assert!(!lacking.is_empty() && reader.lacked() > 0);
        orrery_testkit::wait::wait_until("all that is stored is read", || interfaces.has(&lacking));
        assert!(interfaces.asking.is_being_asked(&key), "the question is open");
        interfaces.stop();
        drop(answer);
    });
    assert!(told.load(std::sync::atomic::Ordering::Relaxed) > 0);
}
