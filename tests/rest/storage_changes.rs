//! Histories of keys, changes of contracts and of transactions: compared with a model that decodes the
//! ledgers a second time.

use std::collections::BTreeSet;

use orrery::domain::LedgerSeq;
use orrery::store::Retention;
use orrery_testkit::holder::{Holders, balance_key};
use orrery_testkit::pubnet;
use orrery_testkit::sandbox::local;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::storage::{self, Kind, Row, Value as Held};
use orrery_testkit::values::{list, symbol};
use serde_json::{Value, json};
use stellar_xdr::{ContractDataDurability, LedgerKey, ScVal};

use super::storage::{World, encoded, named, schema, xdr};

const IDLE: u32 = 20;

fn made() -> (Holders, World) {
    let made = Holders::made(IDLE);
    let world = World::of(&made.ledgers);
    (made, world)
}

fn data(value: Option<&Held>) -> Value {
    match value {
        Some(Held::Data(value)) => json!(xdr(value)),
        _ => Value::Null,
    }
}

/// A change as the API lists it, as the model has it.
fn expected(world: &World, row: &Row) -> Value {
    let LedgerKey::ContractData(key) = &row.key else { panic!("{row:?}") };
    let (name, args) = named(&key.key);
    let closed = world.store.store.ledger(LedgerSeq(row.ledger)).unwrap().unwrap().close_time;
    json!({
        "kind": row.kind.name(),
        "key_hash": hex::encode(row.key_hash),
        "key": xdr(&key.key),
        "name": name,
        "args": args,
        "durability": match key.durability {
            ContractDataDurability::Temporary => "temporary",
            ContractDataDurability::Persistent => "persistent",
        },
        "value": data(row.value.as_ref()),
        "previous": data(row.previous.as_ref()),
        "live_until_ledger": row.live_until,
        "ledger": row.ledger,
        "ledger_closed_at": closed.to_string(),
        "tx": row.tx.map(|tx| hex::encode(tx.hash)),
    })
}

#[test]
fn histories_are_those_of_the_model() {
    let (made, world) = made();
    let (known, change) = (schema("StorageHistory"), schema("StorageChange"));
    let mut kinds = BTreeSet::new();
    let keys: Vec<_> = world.model.keys().map(|(hash, key)| (*hash, key.clone())).collect();
    for contract in [made.contract, made.other] {
        for (hash, _) in
            keys.iter().filter(|(_, key)| storage::contract_of(key) == Some(contract.0))
        {
            let model = world.model.history(hash);
            let hash = hex::encode(hash);
            let path = format!("/rest/contracts/{contract}/storage/{hash}/history");
            let whole = world.get(&path);
            assert!(known.is_valid(&whole), "{whole}");
            assert_eq!(
                (&whole["contract_id"], &whole["key_hash"]),
                (&json!(contract), &json!(hash))
            );
            assert_eq!(whole["known_since"], json!(model.known_since));
            let rows: Vec<Value> = model.changes.iter().map(|row| expected(&world, row)).collect();
            assert_eq!(whole["changes"], json!(rows), "{path}");
            assert!(rows.iter().all(|row| change.is_valid(row)), "{rows:?}");
            for limit in [1, 2] {
                let (_, paged) = world.pages(&format!("{path}?limit={limit}"), "changes");
                assert_eq!(json!(paged), whole["changes"], "{path}, {limit}");
            }
            kinds.extend(model.changes.iter().map(|row| row.kind));
        }
    }
    let seen = [Kind::Created, Kind::Updated, Kind::Removed, Kind::Extended, Kind::Evicted];
    assert!(seen.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
}

#[test]
fn changes_of_a_contract_are_those_of_the_model() {
    let (made, world) = made();
    let path = format!("/rest/contracts/{}/storage/changes", made.contract);
    let range = world.model.ranges()[0];
    let rows = |from: u32, to: u32| {
        let mut rows = world.model.changes(&made.contract.0, from, to);
        // The newest first; those of one transaction ascend by the hash of the key.
        rows.sort_by_key(|row| {
            let order = row.tx.map_or(u32::MAX, |tx| tx.order);
            (std::cmp::Reverse((row.ledger, order)), row.key_hash)
        });
        rows.iter().map(|row| expected(&world, row)).collect::<Vec<_>>()
    };
    let whole = world.get(&format!("{path}?limit=1000"));
    assert!(schema("StorageChanges").is_valid(&whole), "{whole}");
    assert_eq!(whole["known_since"], range.first);
    assert_eq!(whole["changes"], json!(rows(0, u32::MAX)));
    assert!(whole["changes"].as_array().unwrap().len() > 30);
    for limit in [1, 4] {
        let (_, paged) = world.pages(&format!("{path}?limit={limit}"), "changes");
        assert_eq!(json!(paged), whole["changes"]);
    }
    for (from, to) in [(range.first + 9, range.first + 20), (range.last - IDLE, u32::MAX), (30, 20)]
    {
        let some = world.get(&format!("{path}?from={from}&to={to}"));
        let expected = if from > to { Vec::new() } else { rows(from, to) };
        assert_eq!(some["changes"], json!(expected), "{from} to {to}");
    }
    // By name: entries, and items of the instance.
    let balances = world.get(&format!("{path}?name=Balance"))["changes"].clone();
    let of_all = whole["changes"].as_array().unwrap().iter();
    let of_all: Vec<_> = of_all.filter(|row| row["name"] == "Balance").collect();
    assert_eq!(balances, json!(of_all));
    let modes = world.get(&format!("{path}?name=Mode"))["changes"].clone();
    let told: Vec<_> = modes
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["kind"].as_str().unwrap(), row["durability"].as_str().unwrap()))
        .collect();
    let expected = [
        ("created", "instance"),
        ("removed", "instance"),
        ("created", "persistent"),
        ("created", "instance"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn an_item_of_the_instance_has_a_history_of_its_own() {
    let (made, world) = made();
    let instance = hex::encode(storage::key_hash(&storage::instance_key(&made.contract.0)));
    let path = format!("/rest/contracts/{}/storage/{instance}/history", made.contract);
    let admin = list([symbol("Admin")]);
    let of =
        |key: &ScVal, more: &str| world.get(&format!("{path}?key={}{more}", encoded(&xdr(key))));
    let changes = of(&admin, "")["changes"].as_array().unwrap().clone();
    let value = |row: &Value, name: &str| row[name].clone();
    let told: Vec<_> = changes
        .iter()
        .map(|row| (value(row, "kind"), value(row, "previous"), value(row, "value")))
        .collect();
    let [alice, bob] = ["alice", "bob"].map(|name| json!(xdr(&symbol(name))));
    let expected = [(json!("updated"), alice.clone(), bob), (json!("created"), Value::Null, alice)];
    assert_eq!(told, expected);
    assert!(changes.iter().all(|row| row["durability"] == "instance" && row["name"] == "Admin"));
    assert!(changes.iter().all(|row| row["key_hash"] == instance));
    let modes = of(&symbol("Mode"), "&decoded=true")["changes"].clone();
    let told: Vec<_> =
        modes.as_array().unwrap().iter().map(|row| (&row["kind"], &row["value"])).collect();
    let (created, removed) = (json!("created"), json!("removed"));
    let (two, one) = (json!(2), json!(1));
    assert_eq!(told, [(&created, &one), (&removed, &Value::Null), (&created, &two)]);
    let (_, paged) = world.pages(&format!("{path}?key=Mode&limit=1&decoded=true"), "changes");
    assert_eq!(json!(paged), modes);
    assert_eq!(world.get(&format!("{path}?key=instance")), world.get(&path));
    // Other entries have no items.
    let balance =
        storage::data_key(&made.contract.0, balance_key(1), ContractDataDurability::Persistent);
    let hash = hex::encode(storage::key_hash(&balance));
    let other = format!("/rest/contracts/{}/storage/{hash}/history", made.contract);
    let refused = world.server.get(&format!("{other}?key=Mode")).error(400, "bad_parameter");
    assert!(refused.contains("'key'"), "{refused}");
    let decoded = world.get(&format!("{other}?decoded=true"))["changes"][0].clone();
    assert_eq!(decoded["key"], json!({ "tag": "Balance", "values": [1] }));
    assert_eq!(decoded["value"], json!({ "amount": "2000", "number": 1 }));
    assert_eq!(decoded["previous"], json!({ "amount": "1001", "number": 1 }));
}

#[test]
fn changes_of_transactions_are_those_of_the_model() {
    let (made, world) = made();
    let known = schema("StorageOfTransaction");
    let rows = world.model.changes(&made.contract.0, 0, u32::MAX);
    let hashes: BTreeSet<_> = rows.iter().filter_map(|row| Some(row.tx?.hash)).collect();
    assert!(hashes.len() > 25);
    for hash in hashes {
        let answer = world.get(&format!("/rest/txs/{}/storage", hex::encode(hash).to_uppercase()));
        assert!(known.is_valid(&answer), "{answer}");
        assert_eq!(answer["tx"], hex::encode(hash));
        let expected: Vec<Value> = world
            .model
            .transaction(&hash)
            .iter()
            .map(|row| {
                let mut expected = expected(&world, row);
                let contract = storage::contract_of(&row.key).unwrap();
                expected["contract_id"] = json!(orrery::domain::ContractId(contract));
                expected
            })
            .collect();
        assert_eq!(answer["changes"], json!(expected));
    }
    let get = |hash: &str| world.server.get(&format!("/rest/txs/{hash}/storage"));
    get(&"ab".repeat(32)).error(404, "no_transaction");
    assert!(get("x").error(400, "bad_parameter").contains("'tx_hex'"));
}

/// What retention removed is gone from histories, which say since when they are whole.
#[test]
fn histories_say_what_retention_removed() {
    let (made, world) = made();
    let newest = world.newest();
    let floor = newest - IDLE - 6;
    let path = format!("/rest/contracts/{}/storage/changes", made.contract);
    let old = world.get(&format!("{path}?to={}", floor - 1))["changes"][0].clone();
    let kept = Retention { transactions: Some(newest - floor + 1), ..Retention::default() };
    while !world.store.store.prune(&kept).unwrap().is_nothing() {}
    let left = world.get(&path);
    assert_eq!(left["known_since"], floor);
    let rows = left["changes"].as_array().unwrap();
    assert!(
        !rows.is_empty()
            && rows.iter().all(|row| row["ledger"].as_u64().unwrap() >= u64::from(floor))
    );
    let hash = old["key_hash"].as_str().unwrap();
    let history = world.get(&format!("/rest/contracts/{}/storage/{hash}/history", made.contract));
    assert_eq!(history["known_since"], floor);
    let removed = world.server.get(&format!("/rest/txs/{}/storage", old["tx"].as_str().unwrap()));
    // It had no events, by which its hash would still be known.
    removed.error(404, "no_transaction");
}

/// Changes on both sides of a gap are in one list.
#[test]
fn changes_go_on_beyond_a_gap() {
    let made = Holders::made(2);
    let (head, tail) = (made.ledgers.len() - 14, made.ledgers.len() - 9);
    let store = TempStore::with_storage(&local());
    pubnet::commit(&store.store, &made.ledgers[..head]);
    pubnet::commit(&store.store, &made.ledgers[tail..]);
    let server = Server::start(&store);
    let mut model = storage::StorageModel::new(local().passphrase());
    for raw in made.ledgers[..head].iter().chain(&made.ledgers[tail..]) {
        model.add(raw);
    }
    let path = format!("/rest/contracts/{}/storage/changes", made.contract);
    let expected = model.changes(&made.contract.0, 0, u32::MAX).len();
    for limit in [3, 1000] {
        let (mut count, mut cursor) = (0, String::new());
        loop {
            let page = server.get(&format!("{path}?limit={limit}{cursor}")).json();
            assert_eq!(page["known_since"], model.ranges()[1].first);
            count += page["changes"].as_array().unwrap().len();
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(count, expected, "{limit}");
    }
    for wrong in ["", "7", "1-2", "1-2-3-4", "01-2-3", "1-99999999-0", "-1-2-3"] {
        let refused = server.get(&format!("{path}?cursor={wrong}")).error(400, "bad_parameter");
        assert!(refused.contains("'cursor'"), "{wrong}");
    }
}
