//! States at checkpoints beside the naive model: recorded at any time, before and after other ledgers, for
//! all contracts or for some; and states that are not as the stored ledgers say.

use std::collections::{BTreeMap, BTreeSet};

use orrery_checkpoint::{CheckpointError, Found, FoundData, FoundSetting};
use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerSeq};
use orrery_store::RowBounds;
use orrery_testkit::histories;
use orrery_testkit::storage::histories::{Shape, Start, StorageHistory, TrueEntry};
use orrery_testkit::storage::{CheckpointState, HeldThere, contract_of, is_temporary};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use stellar_xdr::{
    ConfigSettingEntry, ContractDataEntry, ExtensionPoint, LedgerEntry, LedgerEntryData, LedgerKey,
    Limits, ScVal, WriteXdr,
};

use super::super::listing::{Filter, Order, Wanted};
use super::super::lookup::Lookup;
use super::super::recording::{RecordError, Recorded, Recording};
use super::super::{Checkpoint, checkpoints, name};
use super::{SIZE, World};

/// The true state of contracts at the end of a ledger.
pub(super) fn state_of(
    history: &StorageHistory,
    ledger: u32,
    contracts: Option<&BTreeSet<[u8; 32]>>,
) -> CheckpointState {
    let made = history.ledger(ledger);
    let held = |(hash, held): (&[u8; 32], &TrueEntry)| {
        let key = history.keys.get(hash)?;
        let contract = contract_of(key)?;
        contracts.is_none_or(|wanted| wanted.contains(&contract)).then(|| {
            let there = HeldThere {
                key: key.clone(),
                value: held.value.clone(),
                modified: held.modified_ledger,
                live_until: Some(held.live_until).filter(|_| !held.evicted),
                is_evicted: held.evicted,
            };
            (*hash, there)
        })
    };
    let entries = made.state.iter().chain(&made.dead).filter_map(held).collect();
    CheckpointState { contracts: contracts.cloned(), entries }
}

/// What a history archive has of a state.
pub(super) fn found(state: &CheckpointState) -> Vec<Result<Found, CheckpointError>> {
    let by_contract: BTreeMap<_, _> =
        state.entries.iter().map(|(hash, it)| ((contract_of(&it.key), *hash), it)).collect();
    let found = |((contract, hash), held): ((Option<[u8; 32]>, [u8; 32]), &HeldThere)| {
        let LedgerKey::ContractData(key) = held.key.clone() else { panic!("{held:?}") };
        let data = LedgerEntryData::ContractData(ContractDataEntry {
            ext: ExtensionPoint::V0,
            contract: key.contract,
            key: key.key,
            durability: key.durability,
            val: held.value.data().unwrap().clone(),
        });
        let entry =
            LedgerEntry { last_modified_ledger_seq: held.modified, data, ..Default::default() };
        Ok(Found::Data(FoundData {
            contract: ContractId(contract.unwrap()),
            key_hash: Hash32(hash),
            entry: entry.to_xdr(Limits::none()).unwrap(),
            live_until: held.live_until.map(LedgerSeq),
            is_evicted: held.is_evicted,
        }))
    };
    by_contract.into_iter().map(found).collect()
}

impl World {
    fn record(&self, ledger: u32, state: &CheckpointState) -> Result<Recorded, RecordError> {
        let contracts = state.contracts.as_ref();
        let contracts = contracts.map(|all| all.iter().copied().map(ContractId).collect());
        let recording = Recording {
            store: &self.store,
            ledger: LedgerSeq(ledger),
            contracts: contracts.as_ref(),
            is_attested: true,
            observe: &|_| true,
        };
        recording.record(found(state).into_iter())
    }

    /// Compares the list of every contract at every ledger.
    fn compare_lists(&self, history: &StorageHistory, case: &str) {
        let newest = self.model.ranges().last().map(|range| range.last);
        for ledger in history.first()..=history.last() {
            let Some(range) = self.model.range(ledger) else { continue };
            let lookup = Lookup::new(&self.store, LedgerSeq(ledger), RowBounds::none()).unwrap();
            for contract in history.contracts.keys() {
                let id = ContractId(*contract);
                let expected = self.model.list(contract, ledger).unwrap();
                let case = format!("{case}, ledger {ledger}, {id}");
                let hashes: BTreeSet<_> = expected.entries.iter().map(|it| it.key_hash).collect();
                for order in [Order::KeyHash, Order::LiveUntil, Order::Updated, Order::Modified] {
                    let filter = Filter::default();
                    let direction = Direction::OldestFirst;
                    let wanted = Wanted { filter, order, direction, after: None, limit: 1000 };
                    let page = lookup.page(&id, &wanted).unwrap();
                    let told: BTreeSet<_> = page.entries.iter().map(|it| it.key_hash.0).collect();
                    assert_eq!(told, hashes, "{case}, {order:?}");
                    let places = page.entries.iter().map(|it| match order {
                        Order::LiveUntil => it.entry.live_until.map_or(u32::MAX, |it| it.0),
                        Order::Updated => it.entry.updated_ledger.0,
                        Order::Modified => it.entry.modified.0,
                        _ => 0,
                    });
                    assert!(places.is_sorted(), "{case}, {order:?}");
                }
                let ledgers = lookup.range(&id).unwrap().unwrap();
                let is_complete = lookup.begins_empty(ledgers).unwrap()
                    || lookup.created(&id, ledgers).unwrap().is_some_and(|it| it.0 <= ledger)
                    || lookup.checked(&id, ledgers).unwrap().is_some();
                assert_eq!(is_complete, expected.complete, "{case}");
                if newest == Some(ledger) && range.first == history.first() {
                    let (_, names) = lookup.names(&id).unwrap();
                    for entry in &expected.entries {
                        let LedgerKey::ContractData(key) = &entry.present.key else { continue };
                        let xdr = key.key.to_xdr(Limits::none()).unwrap();
                        let leads = matches!(key.key, ScVal::Vec(_));
                        let is_listed = name(&xdr).is_none_or(|it| names.iter().any(|n| n == it));
                        assert!(!leads || is_listed, "{case}, {:?}", entry.present.key);
                    }
                }
            }
        }
    }
}

/// Some of the contracts, or all.
fn some_contracts(history: &StorageHistory, rng: &mut StdRng) -> Option<BTreeSet<[u8; 32]>> {
    rng.random_bool(0.4).then(|| {
        let all = history.contracts.keys().copied();
        all.filter(|_| rng.random_bool(0.5)).collect()
    })
}

#[test]
fn states_at_checkpoints_are_told_as_the_model_says() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let history = StorageHistory::small(seed);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0xf0d);
        let share = *[1.0, 0.9, 0.6].choose(rng).unwrap();
        let mut order: Vec<u32> = (history.first()..=history.last()).collect();
        order.retain(|_| rng.random_bool(share));
        if rng.random_bool(0.6) {
            order.shuffle(rng);
        }
        let mut world = World::new(&history);
        let mut recorded = Vec::new();
        for (at, sequence) in order.iter().enumerate() {
            let is_raw = rng.random_bool(0.7) || history.origin == Some(*sequence);
            world.add(&history.ledger(*sequence).xdr, is_raw);
            let is_last = at + 1 == order.len();
            if rng.random_bool(if is_last { 0.7 } else { 0.1 }) {
                world.step();
                let ledger = *order[..=at].choose(rng).unwrap();
                let contracts = some_contracts(&history, rng);
                let state = state_of(&history, ledger, contracts.as_ref());
                for _ in 0..rng.random_range(1..3) {
                    let case = || format!("seed {seed}, {order:?} up to {at}, state at {ledger}");
                    world
                        .record(ledger, &state)
                        .unwrap_or_else(|error| panic!("{error}: {}", case()));
                }
                world.model.add_checkpoint(ledger, state);
                recorded.push((at, ledger));
            }
            if is_last || rng.random_bool(0.05) {
                world.step();
                let case = format!("seed {seed}, {order:?} up to {at}, states {recorded:?}");
                world.compare(&history, 0, &case);
                world.compare_histories(&history, rng, &case);
                world.compare_lists(&history, &case);
            }
        }
    });
}

#[test]
fn states_that_contradict_the_ledgers_are_refused_and_marked() {
    histories::run(SIZE.0, SIZE.1, |seed| {
        let shape = Shape { start: Start::Genesis, ..Shape::small(seed) };
        let history = StorageHistory::made(seed, shape);
        let rng = &mut StdRng::seed_from_u64(seed ^ 0xd1f);
        let mut world = World::new(&history);
        for made in &history.ledgers {
            world.add(&made.xdr, true);
        }
        world.step();
        let ledger = rng.random_range(history.first()..=history.last());
        let state = state_of(&history, ledger, None);
        let Some((hash, wrong)) = changed(&state, ledger, rng) else { return };
        let case = format!(
            "seed {seed}, ledger {ledger}, {:?} of {:?}",
            wrong.entries.get(&hash),
            state.entries.get(&hash)
        );
        let Err(RecordError::Differs { ledger: at, difference }) = world.record(ledger, &wrong)
        else {
            panic!("it is recorded: {case}");
        };
        assert_eq!((at.0, difference.key_hash.0), (ledger, hash), "{case}");
        let marked = Checkpoint {
            ledger: at,
            is_attested: false,
            is_whole: false,
            difference: Some(difference),
        };
        assert_eq!(checkpoints(&world.store).unwrap(), [marked], "{case}");
        world.compare(&history, 0, &case);
        // The right one takes the mark away.
        world.record(ledger, &state).unwrap();
        assert_eq!(checkpoints(&world.store).unwrap()[0].difference, None);
        world.model.add_checkpoint(ledger, state);
        world.compare(&history, 0, &case);
    });
}

#[test]
fn settings_of_the_network_are_recorded_and_compared() {
    let history = StorageHistory::made(3, Shape { start: Start::Middle, ..Shape::small(3) });
    let mut world = World::new(&history);
    for made in &history.ledgers {
        world.add(&made.xdr, true);
    }
    world.step();
    let (ledger, last) = (LedgerSeq(history.first() + 1), LedgerSeq(history.last()));
    let setting = |bytes: u32| {
        let data =
            LedgerEntryData::ConfigSetting(ConfigSettingEntry::ContractDataKeySizeBytes(bytes));
        let entry = LedgerEntry { last_modified_ledger_seq: 20, data, ..Default::default() };
        entry.to_xdr(Limits::none()).unwrap()
    };
    let record = |entry: Vec<u8>| {
        let recording = Recording {
            store: &world.store,
            ledger,
            contracts: None,
            is_attested: true,
            observe: &|_| true,
        };
        let state = state_of(&history, ledger.0, None);
        let settings = [Ok(Found::Setting(FoundSetting { entry }))];
        recording.record(settings.into_iter().chain(found(&state)))
    };
    // `CONFIG_SETTING_CONTRACT_DATA_KEY_SIZE_BYTES`.
    let told = |at: LedgerSeq| world.store.setting(8, at).unwrap();
    assert_eq!(told(ledger), None);
    record(setting(300)).unwrap();
    assert_eq!((told(ledger), told(last)), (Some(setting(300)), Some(setting(300))));
    record(setting(300)).unwrap();
    let error = record(setting(301)).unwrap_err().to_string();
    assert!(error.contains("the network's setting 8 "), "{error}");
    assert_eq!(told(ledger), Some(setting(300)));
}

/// A state of which one entry is another one; `None` when there is no entry to change.
fn changed(
    state: &CheckpointState,
    ledger: u32,
    rng: &mut StdRng,
) -> Option<([u8; 32], CheckpointState)> {
    let is_alive = |held: &HeldThere| {
        !is_temporary(&held.key) || held.live_until.is_some_and(|until| until >= ledger)
    };
    let alive: Vec<_> = state.entries.iter().filter(|(_, held)| is_alive(held)).collect();
    let (hash, held) = alive.choose(rng)?;
    let (hash, mut held) = (**hash, (*held).clone());
    let mut wrong = state.clone();
    match rng.random_range(0..5) {
        0 => {
            wrong.entries.remove(&hash);
            return Some((hash, wrong));
        }
        1 if held.live_until.is_some() => held.live_until = held.live_until.map(|it| it + 1),
        2 if !held.is_evicted && held.live_until >= Some(ledger) && !is_temporary(&held.key) => {
            (held.is_evicted, held.live_until) = (true, None);
        }
        3 if held.modified > 2 => held.modified -= 1,
        _ => {
            let LedgerKey::ContractData(_) = &held.key else { return None };
            held.value = orrery_testkit::storage::Value::Data(ScVal::U32(rng.random()));
        }
    }
    wrong.entries.insert(hash, held);
    Some((hash, wrong))
}
