//! The index beside a naive model of what contracts hold, on generated histories: ledgers in any order,
//! with gaps, with and without their raw form, and retention between steps of the consumer.

mod found;
mod watched;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, Network};
use orrery_store::{Durability as Durable, Extensions, IndexOptions, Retention, RowBounds, Store};
use orrery_testkit::histories;
use orrery_testkit::storage::histories::StorageHistory;
use orrery_testkit::storage::{
    Answer, KeyHash, Row, StorageModel, Value, contract_of, is_recorded,
};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use stellar_xdr::{LedgerEntry, LedgerEntryData, LedgerKey, Limits, ReadXdr, ScVal};

use super::history::Past;
use super::lookup::{Held, Lookup};
use super::{ContractData, KeyTag};

/// Histories of the small and of the full size.
const SIZE: (u64, u64) = (150, 20_000);

struct World {
    store: Arc<Store>,
    network: Network,
    model: StorageModel,
    /// The contract to which storing is restricted.
    listed: Option<ContractId>,
    /// The contracts that are watched, where only those are recorded.
    watched: Option<BTreeSet<ContractId>>,
    directory: tempfile::TempDir,
}

impl World {
    fn new(history: &StorageHistory) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let network = history.network.clone();
        let store = opened(directory.path(), &network);
        let model = StorageModel::new(network.passphrase());
        Self { store, network, model, listed: None, watched: None, directory }
    }

    /// As after a kill and a new start: all that was written is there, and nothing else.
    fn reopened(self) -> Self {
        let Self { store, network, model, listed, watched, directory } = self;
        drop(Arc::into_inner(store).unwrap());
        let store = opened(directory.path(), &network);
        Self { store, network, model, listed, watched, directory }
    }

    /// With some contract of the history as the only one that is stored.
    fn restricted(self, history: &StorageHistory, rng: &mut StdRng) -> Self {
        let contracts: Vec<_> = history.contracts.keys().collect();
        Self { listed: contracts.choose(rng).map(|contract| ContractId(**contract)), ..self }
    }

    fn add(&mut self, raw: &[u8], raw_ledgers: bool) {
        let view = decode(raw, self.network.id()).unwrap();
        let contracts = self.listed.map(|listed| BTreeSet::from([listed]));
        let options = IndexOptions { raw_ledgers, contracts, ..IndexOptions::default() };
        let prepared = self.store.prepare(&view, None, &options).unwrap();
        self.store.commit(prepared, Durable::Synced).unwrap();
        self.model.add(raw);
    }

    fn step(&self) {
        while self.store.step(&ContractData).unwrap() {}
    }

    fn keys<'m>(
        &'m self,
        history: &'m StorageHistory,
    ) -> impl Iterator<Item = (&'m KeyHash, &'m LedgerKey)> {
        history.keys.iter().filter(move |(_, key)| {
            let contract = contract_of(key).map(ContractId).filter(|_| is_recorded(key));
            contract.is_some_and(|contract| self.is_recorded(&contract))
        })
    }

    /// Whether anything is known of a contract.
    fn is_recorded(&self, contract: &ContractId) -> bool {
        self.listed.is_none_or(|listed| listed == *contract)
            && self.watched.as_ref().is_none_or(|watched| watched.contains(contract))
    }

    /// Compares the changes of every key and of every contract in each range.
    fn compare_histories(&self, history: &StorageHistory, rng: &mut StdRng, case: &str) {
        for range in self.model.ranges() {
            let ledger = LedgerSeq(range.last);
            let lookup = Lookup::new(&self.store, ledger, RowBounds::none()).unwrap();
            let is_in = |row: &&Row| (range.first..=range.last).contains(&row.ledger);
            for (hash, key) in self.keys(history) {
                let of = (ContractId(contract_of(key).unwrap()), KeyTag::of(&Hash32(*hash)));
                let (mut told, mut after) = (Vec::new(), None);
                loop {
                    let page = lookup.history(of, after, rng.random_range(1..5)).unwrap();
                    told.extend(page.changes.iter().map(Told::of));
                    after = page.next.map(|(position, _)| position);
                    if after.is_none() {
                        break;
                    }
                }
                let rows = self.model.history(hash).changes;
                let expected: Vec<_> = rows.iter().filter(is_in).map(Told::of_model).collect();
                assert_eq!(told, expected, "{case}, {range:?}, {key:?}");
            }
            let contracts = history.contracts.keys();
            for contract in contracts.filter(|it| self.is_recorded(&ContractId(**it))) {
                let ledgers = LedgerRange::new(range.first, range.last);
                let (mut told, mut after) = (Vec::new(), None);
                loop {
                    let limit = rng.random_range(1..5);
                    let of = ContractId(*contract);
                    let page = lookup.changes(&of, ledgers, after, limit).unwrap();
                    told.extend(page.changes);
                    after = page.next.map(|(position, _)| position);
                    if after.is_none() {
                        break;
                    }
                }
                told.sort_by_key(|past| (past.position, past.tag));
                let told: Vec<_> = told.iter().map(Told::of).collect();
                let rows = self.model.changes(contract, range.first, range.last);
                let expected: Vec<_> = rows.iter().map(Told::of_model).collect();
                assert_eq!(told, expected, "{case}, {range:?}");
            }
        }
    }

    /// Reads keys at some ledgers with all limits that are too small: what is not cut is the whole answer.
    fn compare_bounded(&self, history: &StorageHistory, rng: &mut StdRng, case: &str) {
        let ledgers = self.model.ranges().into_iter().map(|range| range.last);
        for ledger in ledgers.map(LedgerSeq) {
            let unbounded = Lookup::new(&self.store, ledger, RowBounds::none()).unwrap();
            let keys: Vec<_> = self.keys(history).collect();
            let (hash, key) = keys[rng.random_range(0..keys.len())];
            let of = (ContractId(contract_of(key).unwrap()), KeyTag::of(&Hash32(*hash)));
            let whole = (unbounded.held(of).unwrap(), unbounded.history(of, None, 100).unwrap());
            let is_cut = |rows, bytes| {
                let of_both = |bounds| Lookup::new(&self.store, ledger, bounds).unwrap();
                let bounds = || RowBounds { rows, bytes, ..RowBounds::none() };
                let lookup = of_both(bounds());
                let held = lookup.held(of).unwrap();
                assert!(lookup.is_cut() || held == whole.0, "{case}, {rows} rows of {key:?}");
                let lookup = of_both(bounds());
                let past = lookup.history(of, None, 100).unwrap();
                assert!(lookup.is_cut() || past == whole.1, "{case}, {rows} rows of {key:?}");
                lookup.is_cut()
            };
            let is_large = !whole.1.changes.is_empty();
            assert!(!is_large || (is_cut(1, u64::MAX) && is_cut(u64::MAX, 1)), "{case}");
            assert!((2..).find(|rows| !is_cut(*rows, u64::MAX)).is_some_and(|rows| rows < 10_000));
            let sizes = (0..).map(|power| 1 << power);
            assert!(sizes.take(30).any(|bytes| !is_cut(u64::MAX, bytes)), "{case}");
        }
    }

    /// Compares every key at every ledger.
    fn compare(&self, history: &StorageHistory, floor: u32, case: &str) {
        for ledger in history.first()..=history.last() {
            if ledger < floor || self.model.range(ledger).is_none() {
                continue;
            }
            let lookup = Lookup::new(&self.store, LedgerSeq(ledger), RowBounds::none()).unwrap();
            for contract in history.contracts.keys().map(|contract| ContractId(*contract)) {
                let is_listed = self.is_recorded(&contract);
                assert_eq!(lookup.range(&contract).unwrap().is_some(), is_listed, "{case}");
            }
            for (hash, key) in self.keys(history) {
                let of = (ContractId(contract_of(key).unwrap()), KeyTag::of(&Hash32(*hash)));
                let held = lookup.held(of).unwrap();
                let expected = self.model.at(key, ledger);
                let case = || format!("{case}, ledger {ledger}, key {key:?}");
                assert_same(&held, &expected, &case);
            }
        }
    }
}

fn opened(directory: &Path, network: &Network) -> Arc<Store> {
    let extensions = Extensions::for_consumers(&[Arc::new(ContractData)]);
    Arc::new(Store::open_with(directory, Some(network), extensions).unwrap())
}

/// A change as both sides tell it.
#[derive(Debug, PartialEq)]
struct Told {
    ledger: u32,
    tx: Option<[u8; 32]>,
    key: KeyTag,
    kind: &'static str,
    value: Option<ScVal>,
    previous: Option<ScVal>,
    live_until: Option<u32>,
}

impl Told {
    fn of(past: &Past) -> Self {
        let val = |entry: &Option<Vec<u8>>| entry.as_deref().map(value);
        Self {
            ledger: past.position.ledger.0,
            tx: past.tx.map(|tx| tx.0),
            key: past.tag,
            kind: past.event.name(),
            value: val(&past.after),
            previous: val(&past.before),
            live_until: past.live_until.map(|it| it.0),
        }
    }

    fn of_model(row: &Row) -> Self {
        let val = |value: &Option<Value>| value.as_ref().map(|it| it.data().unwrap().clone());
        Self {
            ledger: row.ledger,
            tx: row.tx.map(|tx| tx.hash),
            key: KeyTag::of(&Hash32(row.key_hash)),
            kind: row.kind.name(),
            value: val(&row.value),
            previous: val(&row.previous),
            live_until: row.live_until,
        }
    }
}

fn assert_same(held: &Held, expected: &Answer, case: &dyn Fn() -> String) {
    match (held, expected) {
        (Held::Absent, Answer::Absent { .. }) => {}
        (Held::Unknown { live_until }, Answer::Unknown { live_until: expected }) => {
            assert_eq!(live_until.map(|it| it.0), *expected, "{}", case());
        }
        (Held::Present(entry), Answer::Present(expected)) => {
            assert_eq!(&value(&entry.entry), expected.value.data().unwrap(), "{}", case());
            assert_eq!(entry.live_until.map(|it| it.0), expected.live_until, "{}", case());
            assert_eq!(entry.archived, expected.archived, "{}", case());
            assert_eq!(entry.modified.0, expected.modified_ledger, "{}", case());
            let updated = (entry.updated_ledger.0, entry.updated.map(|it| it.tx.0));
            let of_model = (expected.updated_ledger, expected.updated_tx.map(|it| it.hash));
            assert_eq!(updated, of_model, "{}", case());
            let key = LedgerKey::from_xdr(entry.key.entry_key().to_ledger_key(), Limits::none());
            assert_eq!(key.unwrap(), expected.key, "{}", case());
        }
        _ => panic!("{held:?} and not {expected:?}: {}", case()),
    }
}

fn value(entry: &[u8]) -> ScVal {
    match LedgerEntry::from_xdr(entry, Limits::none()).unwrap().data {
        LedgerEntryData::ContractData(data) => data.val,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_key_at_every_ledger_is_as_the_model_says() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed);
        let share = *[1.0, 1.0, 0.9, 0.6].get(rng.random_range(0..4)).unwrap();
        let mut order: Vec<u32> = (history.first()..=history.last()).collect();
        order.retain(|_| rng.random_bool(share));
        if rng.random_bool(0.5) {
            order.shuffle(rng);
        }
        let mut world = World::new(&history);
        if rng.random_bool(0.2) {
            world = world.restricted(&history, rng);
        }
        for (at, sequence) in order.iter().enumerate() {
            let is_raw = rng.random_bool(0.7) || history.origin == Some(*sequence);
            world.add(&history.ledger(*sequence).xdr, is_raw);
            if rng.random_bool(0.3) {
                world.step();
            }
            if rng.random_bool(0.05) || at + 1 == order.len() {
                world.step();
                let case = format!("seed {seed}, {order:?} up to {at}");
                world.compare(&history, 0, &case);
                world.compare_histories(&history, rng, &case);
                world.compare_bounded(&history, rng, &case);
            }
        }
    });
}

#[test]
fn what_retention_removes_changes_no_answer_from_the_floor_on() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0x0f10);
        let mut order: Vec<u32> = (history.first()..=history.last()).collect();
        if rng.random_bool(0.5) {
            order.retain(|_| rng.random_bool(0.9));
            order.shuffle(rng);
        }
        let mut world = World::new(&history);
        let mut floor = 0;
        for sequence in &order {
            let is_raw = rng.random_bool(0.7) || history.origin == Some(*sequence);
            world.add(&history.ledger(*sequence).xdr, is_raw);
            world.step();
            if rng.random_bool(0.2) {
                let kept = rng.random_range(1..12);
                let retention = Retention { transactions: Some(kept), ..Retention::default() };
                while !world.store.prune(&retention).unwrap().is_nothing() {}
                let latest = order.iter().take_while(|it| *it != sequence).chain([sequence]).max();
                floor = floor.max((latest.unwrap() + 1).saturating_sub(kept));
            }
        }
        world.compare(&history, floor, &format!("seed {seed}, {order:?}, floor {floor}"));
    });
}
