//! Projects that record what their members hold, as their owners use them: the built binary, its HTTP API and
//! SQL, on ledgers in which a factory opens pools that nobody knows before, and that get other code.

use std::collections::{BTreeMap, BTreeSet};

use orrery::domain::{ContractId, LedgerSeq};
use serde_json::{Value, json};
use stellar_xdr::{
    ContractEventBody, ContractExecutable, LedgerCloseMeta, LedgerKey, Limits, ReadXdr, ScAddress,
    ScVal, TransactionMeta,
};

use crate::service::{Owner, Scene};
use crate::service_storage::{compare_at, compare_changes, model_of, rest, wait_for};
use orrery_testkit::binary::Service;
use orrery_testkit::sandbox::{ledgers, sandbox};
use orrery_testkit::storage::{Row, StorageModel, contract_of};

/// Number of ledgers: within them all pools are opened, and two of them get other code.
const LEDGERS: u32 = 100;

/// A network with an exchange.
struct Exchange {
    ledgers: Vec<Vec<u8>>,
    model: StorageModel,
    factory: ContractId,
    pools: Vec<ContractId>,
}

fn contract(address: &ScAddress) -> ContractId {
    let ScAddress::Contract(contract) = address else { panic!("{address:?}") };
    ContractId(contract.0.0)
}

/// The factory and the pools that the events of a ledger name.
fn opened(raw: &[u8]) -> Vec<(ContractId, ContractId)> {
    let LedgerCloseMeta::V2(ledger) = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap()
    else {
        panic!("a sandbox makes ledgers of the newest version")
    };
    let mut opened = Vec::new();
    for transaction in ledger.tx_processing.iter() {
        let TransactionMeta::V4(meta) = &transaction.tx_apply_processing else { continue };
        for event in meta.operations.iter().flat_map(|operation| operation.events.iter()) {
            let ContractEventBody::V0(body) = &event.body;
            if let (Some(ScVal::Symbol(name)), ScVal::Address(pool)) =
                (body.topics.first(), &body.data)
                && name.as_slice() == b"pool_created"
            {
                let factory = ContractId(event.contract_id.as_ref().unwrap().0.0);
                opened.push((factory, contract(pool)));
            }
        }
    }
    opened
}

impl Exchange {
    fn made(seed: u64) -> Self {
        let ledgers = ledgers(sandbox(seed, 1..=2).with_exchange(LedgerSeq(0)), LEDGERS);
        let opened: Vec<_> = ledgers.iter().flat_map(|raw| opened(raw)).collect();
        let factory = opened[0].0;
        let pools = opened.into_iter().map(|(_, pool)| pool).collect();
        let model = model_of(&ledgers);
        Self { ledgers, model, factory, pools }
    }

    fn newest(&self) -> u32 {
        self.model.ranges()[0].last
    }

    /// The code that a pool has after each change of its instance.
    fn codes(&self, pool: ContractId) -> Vec<((u32, u32), [u8; 32])> {
        let rows = self.model.rows(|row| contract_of(&row.key) == Some(pool.0));
        let of = |row: &Row| {
            let LedgerKey::ContractData(key) = &row.key else { return None };
            let value = row.value.as_ref()?.data()?;
            let (ScVal::LedgerKeyContractInstance, ScVal::ContractInstance(instance)) =
                (&key.key, value)
            else {
                return None;
            };
            let ContractExecutable::Wasm(hash) = &instance.executable else { return None };
            Some((place(row), hash.0))
        };
        rows.iter().filter_map(of).collect()
    }
}

fn place(row: &Row) -> (u32, u32) {
    (row.ledger, row.tx.map_or(u32::MAX, |tx| tx.order))
}

/// Whether a pool with these codes ran one before or after a place.
fn ran(codes: &[((u32, u32), [u8; 32])], code: [u8; 32], at: (u32, u32)) -> bool {
    let before = codes.iter().rev().find(|(changed, _)| *changed < at);
    let after = codes.iter().rev().find(|(changed, _)| *changed <= at);
    [before, after].into_iter().flatten().any(|(_, it)| *it == code)
}

/// The place with which a pool ceased to run a code last.
fn left(codes: &[((u32, u32), [u8; 32])], code: [u8; 32]) -> Option<(u32, u32)> {
    let ends = codes.windows(2).filter(|pair| pair[0].1 == code && pair[1].1 != code);
    ends.map(|pair| pair[1].0).next_back()
}

fn record(owner: &Owner, name: &str, selectors: &Value) -> u32 {
    let mut body = selectors.clone();
    (body["project_name"], body["storage"]) = (name.into(), true.into());
    owner.post("watch", &body)["id"].as_u64().unwrap() as u32
}

/// What a project has of the members' changes: the key and the ledger of each, with what happened.
fn changes(owner: &Owner, name: &str) -> BTreeSet<(String, u64, String)> {
    let sql = format!("select key_hash, _ledger, change from {name}.storage_changes");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = owner.query(&sql);
    let found: BTreeSet<_> = rows
        .iter()
        .map(|row| (text(&row["key_hash"]), row["_ledger"].as_u64().unwrap(), text(&row["change"])))
        .collect();
    assert_eq!(found.len(), rows.len());
    found
}

/// Compares what a project has of pools that ran a code with the model, and what its view shows with that.
fn compare_stays(owner: &Owner, name: &str, exchange: &Exchange, code: [u8; 32]) {
    let (mut expected, mut held) = (BTreeSet::new(), BTreeMap::new());
    for pool in &exchange.pools {
        let codes = exchange.codes(*pool);
        let left = left(&codes, code);
        let rows = exchange.model.rows(|row| contract_of(&row.key) == Some(pool.0));
        for row in rows.iter().filter(|row| ran(&codes, code, place(row))) {
            let (hash, kind) = (hex::encode(row.key_hash), row.kind.name().to_owned());
            expected.insert((hash.clone(), u64::from(row.ledger), kind));
            // What happens to it after it has left is not known.
            match left.is_none_or(|(ledger, _)| row.ledger > ledger) {
                true => drop(held.insert(hash, row.clone())),
                false => drop(held.remove(&hash)),
            }
        }
    }
    assert_eq!(changes(owner, name), expected);
    let newest = exchange.newest();
    let mut shown: Vec<String> = Vec::new();
    for (hash, row) in &held {
        let entry = exchange.model.at_hash(&row.key_hash, newest);
        shown.extend(entry.present().map(|_| hash.clone()));
    }
    let rows = owner.query(&format!("select key_hash from {name}.storage order by key_hash"));
    let found: Vec<&str> = rows.iter().map(|row| row["key_hash"].as_str().unwrap()).collect();
    assert_eq!(found, shown);
}

#[test]
fn sql_has_what_the_pools_of_a_factory_hold() {
    let exchange = Exchange::made(3);
    assert_eq!(exchange.pools.len(), 6);
    let scene = Scene::new();
    // Some pools are there before the project is made, the others become known.
    let (early, late) = exchange.ledgers.split_at(30);
    scene.import_ledgers(early);
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let factory = exchange.factory.to_string();
    let selectors =
        json!({ "factories": [{ "contract": factory, "event": "pool_created", "param": "pool" }] });
    let id = record(&ana, "pools", &selectors);
    let code = exchange.codes(exchange.pools[0])[0].1;
    record(&ana, "first", &json!({ "wasm": [hex::encode(code)] }));
    scene.import_ledgers(late);
    let newest = exchange.newest();
    wait_for(&ana, id, "pools", newest);
    assert!(compare_changes(&ana, id, &exchange.pools, &exchange.model) > 30);
    for ledger in (10..=newest).step_by(9).chain([newest]) {
        for pool in &exchange.pools {
            let from = format!("pools.storage_at({ledger})");
            compare_at(&ana, &from, *pool, (0, ledger), &exchange.model);
        }
    }
    for pool in &exchange.pools {
        compare_at(&ana, "pools.storage", *pool, (0, newest), &exchange.model);
    }
    // Some pools have left their first code.
    let is_upgraded = |pool: &&ContractId| left(&exchange.codes(**pool), code).is_some();
    assert!(exchange.pools.iter().filter(is_upgraded).count() > 0);
    wait_for_ledgers(&ana, "first", newest);
    compare_stays(&ana, "first", &exchange, code);
    // Of every contract nothing is recorded.
    let body = json!({ "project_name": "all", "all": ["swap"], "storage": true });
    let (status, refused) = ana.ask("POST", "watch", Some(&body));
    assert_eq!(status, 400, "{refused}");
    assert!(refused.to_string().contains("leave out 'storage' or 'all'"), "{refused}");
}

/// Waits until a project has all stored ledgers up to this one in its tables.
fn wait_for_ledgers(owner: &Owner, name: &str, newest: u32) {
    let list = owner.get("list");
    let own = list.as_array().unwrap().iter().find(|it| it["project_name"] == name).unwrap();
    wait_for(owner, own["id"].as_u64().unwrap() as u32, name, newest);
}

#[test]
fn members_are_watched_where_not_everything_is_recorded() {
    let exchange = Exchange::made(4);
    let scene = Scene::new();
    let (early, late) = exchange.ledgers.split_at(30);
    scene.import_ledgers(early);
    let service = Service::start_with(scene.path(), &[("ORRERY_INDEX_STORAGE", "watched")]);
    let ana = scene.owner(&service, "ana");
    let factory = exchange.factory.to_string();
    let selectors =
        json!({ "factories": [{ "contract": factory, "event": "pool_created", "param": "pool" }] });
    let id = record(&ana, "pools", &selectors);
    wait_for(&ana, id, "pools", exchange.model.ranges()[0].first + 29);
    scene.import_ledgers(late);
    wait_for(&ana, id, "pools", exchange.newest());
    compare_changes(&ana, id, &exchange.pools, &exchange.model);
    // The same where all is known before the project is made.
    let again = record(&ana, "again", &selectors);
    wait_for(&ana, again, "again", exchange.newest());
    compare_changes(&ana, again, &exchange.pools, &exchange.model);
    // They stay as long as one project records them, whatever else is watched, and leave with the last one.
    let is_known =
        |contract: &ContractId| rest(&ana, &format!("{contract}/storage"))["complete"] == true;
    assert!(exchange.pools.iter().all(is_known));
    assert_eq!(ana.ask("DELETE", &id.to_string(), None).0, 200);
    ana.post("watch", &json!({ "project_name": "other", "contracts": [factory] }));
    ana.wait("what the factory holds is known", |_| is_known(&exchange.factory));
    assert!(exchange.pools.iter().all(is_known));
    assert_eq!(ana.ask("DELETE", &again.to_string(), None).0, 200);
    ana.wait("the pools are not known", |_| !exchange.pools.iter().any(is_known));
    assert!(is_known(&exchange.factory));
}
