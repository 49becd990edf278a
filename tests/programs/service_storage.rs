//! Projects that record what their contracts hold, as their owners use them: the built binary, its HTTP API
//! and SQL. The table of changes has the changes of a model that decodes the ledgers a second time, and what
//! held at the end of a ledger is the same by SQL, by REST and by the model.

use std::collections::{BTreeMap, BTreeSet};

use orrery::domain::ContractId;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, LedgerEntryData, LedgerKey, Limits, ReadXdr, ScVal, WriteXdr,
};

use crate::exported::{Lake, both, export};
use crate::service::{Owner, PASSPHRASE, Recorded, Scene};
use crate::service_projects::{tables, wait_for_events, watch};
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::data;
use orrery_testkit::fixtures;
use orrery_testkit::holder::Holders;
use orrery_testkit::size;
use orrery_testkit::storage::{self, Row, StorageModel, contract_of};

/// Columns of the table, in the order in which queries see them.
const COLUMNS: [&str; 13] = [
    "key_name",
    "key_args",
    "key",
    "value",
    "change",
    "durability",
    "live_until",
    "key_hash",
    "contract_id",
    "transaction",
    "_ledger",
    "_ledger_closed_at",
    "_service_event_id",
];

pub fn model_of(ledgers: &[Vec<u8>]) -> StorageModel {
    let mut model = StorageModel::new(PASSPHRASE);
    for raw in ledgers {
        model.add(raw);
    }
    model
}

fn record(owner: &Owner, name: &str, contracts: &[ContractId], from: Option<u32>) -> u32 {
    let contracts: Vec<_> = contracts.iter().map(ToString::to_string).collect();
    let mut body = json!({ "project_name": name, "contracts": contracts, "storage": true });
    if let Some(from) = from {
        body["from"] = from.into();
    }
    owner.post("watch", &body)["id"].as_u64().unwrap() as u32
}

/// Waits until a project has all stored ledgers, up to this one, in its tables.
pub fn wait_for(owner: &Owner, id: u32, name: &str, newest: u32) {
    owner.wait("all ledgers are in the tables", |it| {
        let status = it.get(&format!("{id}/status"));
        status["rows_in_tables"] == true
            && it.query(&format!("select * from {name}.progress")) == [json!({ "ledger": newest })]
    });
}

/// Asks the API for something of contracts.
pub fn rest(owner: &Owner, path: &str) -> Value {
    let url = owner.base(&format!("/rest/contracts/{path}"));
    let answer = HTTP.get(url).bearer_auth(owner.token()).send().unwrap();
    let (status, body) = (answer.status(), answer.json::<Value>().unwrap());
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// All rows of a list of the API.
fn pages(owner: &Owner, path: &str, rows: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = rest(owner, &format!("{path}&limit=1000{cursor}"));
        all.extend_from_slice(page[rows].as_array().unwrap());
        match page["cursor"].as_str() {
            Some(text) => cursor = format!("&cursor={text}"),
            None => return all,
        }
    }
}

fn durability(row: &Row) -> &'static str {
    let LedgerKey::ContractData(key) = &row.key else { panic!("{row:?}") };
    match key.durability {
        ContractDataDurability::Temporary => "temporary",
        ContractDataDurability::Persistent => "persistent",
    }
}

/// Id of a row as the specification has it: a hash of project, ledger, transaction and key.
fn row_id(project: u32, row: &Row) -> String {
    let transaction = row.tx.map_or([0; 32], |tx| tx.hash);
    let parts: [&[u8]; 4] =
        [&project.to_be_bytes(), &row.ledger.to_be_bytes(), &transaction, &row.key_hash];
    hex::encode(Sha256::digest(parts.concat()))
}

/// Compares the table of changes with the model, cell by cell; keys and values as the API decodes them, and
/// where no interface says how, as the test does.
pub fn compare_changes(
    owner: &Owner,
    id: u32,
    contracts: &[ContractId],
    model: &StorageModel,
) -> usize {
    let sql = format!(
        "select key_name, key_args::varchar key_args, key::varchar \"key\", value::varchar \"value\", change, \
         durability, live_until, key_hash, contract_id, transaction, _ledger, _service_event_id \
         from program_{id}_storage_changes"
    );
    let found = owner.query(&sql);
    let mut rows: BTreeMap<String, Value> = BTreeMap::new();
    for row in &found {
        rows.insert(row["_service_event_id"].as_str().unwrap().to_owned(), row.clone());
    }
    assert_eq!(rows.len(), found.len());
    let mut count = 0;
    for contract in contracts {
        let changes = pages(owner, &format!("{contract}/storage/changes?decoded=true"), "changes");
        let expected = model.rows(|row| contract_of(&row.key) == Some(contract.0));
        // The items of an instance's map are changes of their own there.
        for row in &expected {
            let told = rows.remove(&row_id(id, row)).unwrap_or_else(|| panic!("{row:?}"));
            let hash = hex::encode(row.key_hash);
            let tx = row.tx.map(|tx| hex::encode(tx.hash));
            let zeros = || "0".repeat(64);
            assert_eq!(told["key_hash"], hash);
            assert_eq!(told["contract_id"], contract.to_string());
            assert_eq!(told["transaction"], tx.clone().unwrap_or_else(zeros));
            assert_eq!(told["_ledger"], row.ledger);
            assert_eq!(told["change"], row.kind.name());
            assert_eq!(told["durability"], durability(row));
            assert_eq!(told["live_until"], json!(row.live_until), "{row:?}");
            let LedgerKey::ContractData(key) = &row.key else { panic!() };
            let is_instance = key.key == ScVal::LedgerKeyContractInstance;
            let value = row.value.as_ref().and_then(storage::Value::data);
            assert_eq!(told["value"].is_null(), value.is_none(), "{row:?}");
            let parsed = |cell: &str| -> Value {
                told[cell].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
            };
            if is_instance {
                assert_eq!((parsed("key"), &told["key_name"]), (json!("instance"), &Value::Null));
                if value.is_some() {
                    assert!(parsed("value")["executable"].is_object());
                }
            } else {
                let same = changes.iter().find(|it| {
                    it["key_hash"] == hash && it["ledger"] == row.ledger && it["tx"] == json!(tx)
                });
                let same = same.unwrap_or_else(|| panic!("{row:?}"));
                assert_eq!(parsed("key"), same["key"]);
                assert_eq!(told["key_name"], same["name"]);
                assert_eq!(parsed("key_args"), same["args"]);
                assert_eq!(parsed("value"), same["value"]);
            }
            count += 1;
        }
    }
    assert!(rows.is_empty(), "{rows:?}");
    count
}

/// Compares what held at the end of a ledger by SQL with what the API and the model say.
pub fn compare_at(
    owner: &Owner,
    from: &str,
    contract: ContractId,
    (begin, ledger): (u32, u32),
    model: &StorageModel,
) -> usize {
    let sql = format!(
        "select key_hash, key::varchar \"key\", value::varchar \"value\", durability, live_until, archived, \
         _ledger, transaction from {from} where contract_id = '{contract}' order by key_hash"
    );
    let rows = owner.query(&sql);
    let listed = pages(owner, &format!("{contract}/storage?at={ledger}&decoded=true"), "entries");
    let listed: BTreeMap<_, _> =
        listed.iter().map(|it| (it["key_hash"].as_str().unwrap(), it)).collect();
    let expected = model.list(&contract.0, ledger).unwrap().entries;
    let hashes: Vec<_> = expected.iter().map(|it| json!(hex::encode(it.key_hash))).collect();
    assert_eq!(rows.iter().map(|it| it["key_hash"].clone()).collect::<Vec<_>>(), hashes, "{from}");
    for (row, entry) in rows.iter().zip(&expected) {
        let present = &entry.present;
        assert_eq!(row["live_until"], json!(present.live_until), "{from}");
        assert_eq!(row["archived"], json!(present.archived), "{from}");
        // What was there before is found at the first ledger.
        let is_found = present.updated_ledger < begin;
        assert_eq!(row["_ledger"], present.updated_ledger.max(begin), "{from}");
        let tx = present.updated_tx.filter(|_| !is_found).map_or([0; 32], |tx| tx.hash);
        assert_eq!(row["transaction"], hex::encode(tx));
        if let Some(listed) = listed.get(row["key_hash"].as_str().unwrap()) {
            let parsed = |cell: &str| -> Value {
                serde_json::from_str(row[cell].as_str().unwrap()).unwrap()
            };
            assert_eq!(
                (parsed("key"), parsed("value")),
                (listed["key"].clone(), listed["value"].clone())
            );
        }
    }
    rows.len()
}

#[test]
fn sql_has_what_contracts_hold_as_the_model_and_the_api_do() {
    let made = Holders::made(140);
    let contracts = [made.contract, made.other];
    let scene = Scene::new();
    // Before the project is made, and after.
    let half = made.ledgers.len() / 3;
    scene.import_ledgers(&made.ledgers[..half]);
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let id = record(&ana, "held", &contracts, None);
    scene.import_ledgers(&made.ledgers[half..]);
    let model = model_of(&made.ledgers);
    let (first, newest) = (model.ranges()[0].first, model.ranges()[0].last);
    wait_for(&ana, id, "held", newest);
    let described = ana.query("describe held.storage_changes");
    assert_eq!(described.iter().map(|it| it["column_name"].clone()).collect::<Vec<_>>(), COLUMNS);
    // Some thirty requests change something.
    assert!(compare_changes(&ana, id, &contracts, &model) > 30);
    let mut present = 0;
    for ledger in (first..=newest).step_by(3).chain([newest]) {
        for contract in contracts {
            let from = format!("held.storage_at({ledger})");
            present += compare_at(&ana, &from, contract, (0, ledger), &model);
        }
    }
    assert!(present > 300, "{present}");
    for contract in contracts {
        compare_at(&ana, "held.storage", contract, (0, newest), &model);
    }
    // Outside of what is stored nothing is known.
    for ledger in [first - 1, newest + 1] {
        assert!(ana.query(&format!("select * from held_storage_at({ledger})")).is_empty());
    }
    let balances = "select key_args->>0 as number, value->>'amount' as amount from held.storage \
                    where key_name = 'Balance' order by number::int limit 2";
    assert_eq!(
        ana.query(balances),
        [json!({ "number": "0", "amount": "1000" }), json!({ "number": "1", "amount": "2000" })]
    );
    // Rows of changes are no events.
    let status = ana.get(&format!("{id}/status"));
    let (events, rows) = (&status["events"], &status["rows"]);
    assert_eq!((events.as_u64(), rows.as_u64()), (Some(0), Some(0)), "{status}");
    // The same from a later start, and as it was before the service started again.
    drop(service);
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    wait_for(&ana, id, "held", newest);
    compare_changes(&ana, id, &contracts, &model);
}

#[test]
fn sql_has_what_the_contracts_of_the_recorded_network_hold() {
    let Some(recorded) = Recorded::find() else { return };
    let folder = data::location().join("local-network");
    let ledgers = fixtures::load(&folder, "local-vault.xdr.zst").ledgers;
    let model = model_of(&ledgers);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let contracts: Vec<ContractId> = model.contracts().into_iter().map(ContractId).collect();
    let id = record(&ana, "all", &contracts, None);
    scene.import(&recorded.ledgers());
    let newest = model.ranges().last().unwrap().last;
    owner_reads(&ana, id, newest);
    assert!(compare_changes(&ana, id, &contracts, &model) > 40);
}

fn owner_reads(owner: &Owner, id: u32, newest: u32) {
    owner.wait("all ledgers are in the tables", |it| {
        let status = it.get(&format!("{id}/status"));
        status["rows_in_tables"] == true && status["last_ledger"] == newest
    });
}

#[test]
fn exports_and_replaced_projects_have_the_changes() {
    let made = Holders::made(2);
    let scene = Scene::new();
    scene.import_ledgers(&made.ledgers);
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let contracts = [made.contract];
    let model = model_of(&made.ledgers);
    let newest = model.ranges()[0].last;
    let plain = watch(&ana, "held", &contracts);
    wait_for_events(&ana, plain, 0);
    assert!(!tables(&ana, plain).contains(&"storage_changes".to_owned()));
    let without = ana.ask("POST", "query", Some(&json!({ "query": "select * from held.storage" })));
    assert_eq!(without.0, 422, "{without:?}");
    // The new version has them, and what it takes the place of has not.
    let names: Vec<_> = contracts.iter().map(ToString::to_string).collect();
    let body = json!({
        "project_name": "held", "contracts": names, "storage": true, "replace": true,
    });
    let id = ana.post("watch", &body)["id"].as_u64().unwrap() as u32;
    ana.wait("it has taken the name", |it| {
        it.get("list")
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["id"] == id && it["project_name"] == "held")
    });
    wait_for(&ana, id, "held", newest);
    compare_changes(&ana, id, &contracts, &model);
    compare_at(&ana, "held.storage", made.contract, (0, newest), &model);
    let lake = Lake::directory(scene.path().join("lake"));
    export(&scene, &lake, &[]);
    let (exported, sql) = both(&ana, &lake.directory, id, "storage_changes");
    assert_eq!(exported, sql);
    assert!(exported.len() > 25);
    // A further version keeps them without being told.
    let body = json!({ "project_name": "held", "replace": true });
    let next = ana.post("watch", &body)["id"].as_u64().unwrap() as u32;
    ana.wait("it has taken the name", |it| {
        it.get("list")
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["id"] == next && it["project_name"] == "held")
    });
    wait_for(&ana, next, "held", newest);
    compare_changes(&ana, next, &contracts, &model);
    let kinds = ana.query("select distinct change from held.storage_changes");
    let kinds: BTreeSet<_> =
        kinds.iter().filter_map(|it| it["change"].as_str().map(str::to_owned)).collect();
    assert!(kinds.len() >= 4, "{kinds:?}");
}

#[test]
fn a_project_that_begins_later_has_what_was_there() {
    let made = Holders::made(24);
    let contracts = [made.contract, made.other];
    let scene = Scene::new();
    scene.import_ledgers(&made.ledgers);
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let model = model_of(&made.ledgers);
    let (first, newest) = (model.ranges()[0].first, model.ranges()[0].last);
    let begin = first + (newest - first) / 2;
    let id = record(&ana, "late", &contracts, Some(begin));
    wait_for(&ana, id, "late", newest);
    let listed = |contract: &ContractId| model.list(&contract.0, begin - 1).unwrap().entries;
    let there: Vec<_> = contracts.iter().flat_map(listed).collect();
    assert!(there.len() > 10);
    let found = "select count(*) as n, min(_ledger) as first, max(_ledger) as last from late.storage_changes \
                 where change = 'found'";
    let expected = json!({ "n": there.len(), "first": begin, "last": begin });
    ana.wait("it is found", |it| it.query(found) == [expected.clone()]);
    for ledger in (begin..=newest).step_by(3).chain([newest]) {
        for contract in contracts {
            let from = format!("late.storage_at({ledger})");
            compare_at(&ana, &from, contract, (begin, ledger), &model);
        }
    }
    let earlier = format!("select * from late.storage_at({})", begin - 1);
    assert!(ana.query(&earlier).is_empty());
}

/// An entry as all three interfaces tell it: until when it lives, 0 when it is archived, and its value where
/// the interface has it as XDR.
type Told = BTreeMap<String, (u32, Option<String>)>;

fn told_by_sql(owner: &Owner, contract: ContractId, ledger: u32) -> Told {
    let rows = owner.query(&format!(
        "select key_hash, live_until, archived from held.storage_at({ledger}) where contract_id = '{contract}'"
    ));
    let life = |row: &Value| match row["archived"] == true {
        true => 0,
        false => row["live_until"].as_u64().unwrap() as u32,
    };
    rows.iter().map(|row| (text(row, "key_hash"), (life(row), None))).collect()
}

fn text(row: &Value, name: &str) -> String {
    row[name].as_str().unwrap().to_owned()
}

/// Also returns the keys, as XDR `LedgerKey`.
fn told_by_rest(owner: &Owner, contract: ContractId, ledger: u32) -> (Told, Vec<String>) {
    let list = rest(owner, &format!("{contract}/storage?at={ledger}&limit=1000"));
    assert_eq!((&list["complete"], &list["cursor"]), (&json!(true), &Value::Null));
    let (mut told, mut keys) = (Told::new(), Vec::new());
    let mut add = |row: &Value, key: ScVal, durability, value| {
        let live_until = row["live_until_ledger"].as_u64().unwrap() as u32;
        let life = if row["archived"] == true { 0 } else { live_until };
        told.insert(text(row, "key_hash"), (life, value));
        let key = storage::data_key(&contract.0, key, durability);
        keys.push(key.to_xdr_base64(Limits::none()).unwrap());
    };
    let instance = &list["instance"];
    if !instance.is_null() {
        let persistent = ContractDataDurability::Persistent;
        add(instance, ScVal::LedgerKeyContractInstance, persistent, None);
    }
    for row in list["entries"].as_array().unwrap() {
        let durability = match row["durability"] == "temporary" {
            true => ContractDataDurability::Temporary,
            false => ContractDataDurability::Persistent,
        };
        let key = ScVal::from_xdr_base64(text(row, "key"), Limits::none()).unwrap();
        add(row, key, durability, Some(text(row, "value")));
    }
    (told, keys)
}

fn told_by_rpc(owner: &Owner, keys: &[String], ledger: u32) -> Told {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "getLedgerEntries",
        "params": { "keys": keys, "ledger": ledger },
    });
    let url = owner.base("/rpc");
    let answer = HTTP.post(url).bearer_auth(owner.token()).json(&call).send().unwrap();
    let answer: Value = answer.json().unwrap();
    let entries = answer["result"]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("{ledger}: {answer}"));
    let entry = |entry: &Value| {
        let key = LedgerKey::from_xdr_base64(text(entry, "key"), Limits::none()).unwrap();
        let data = LedgerEntryData::from_xdr_base64(text(entry, "xdr"), Limits::none()).unwrap();
        let LedgerEntryData::ContractData(data) = data else { panic!("{entry}") };
        let is_instance = data.key == ScVal::LedgerKeyContractInstance;
        let value = (!is_instance).then(|| data.val.to_xdr_base64(Limits::none()).unwrap());
        let life = entry["liveUntilLedgerSeq"].as_u64().unwrap() as u32;
        (hex::encode(storage::key_hash(&key)), (life, value))
    };
    entries.iter().map(entry).collect()
}

/// SQL, REST and JSON-RPC at random ledgers.
#[test]
fn three_interfaces_tell_the_same_of_random_ledgers() {
    let made = Holders::made(140);
    let contracts = [made.contract, made.other];
    let scene = Scene::new();
    scene.import_ledgers(&made.ledgers);
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let id = record(&ana, "held", &contracts, None);
    let first = model_of(&made.ledgers[..1]).ranges()[0].first;
    let newest = first + made.ledgers.len() as u32 - 1;
    wait_for(&ana, id, "held", newest);
    let mut rng = StdRng::seed_from_u64(56);
    let (mut present, mut archived) = (0, 0);
    for _ in 0..size::choose(60, 10_000) {
        let contract = contracts[rng.random_range(0..contracts.len())];
        let ledger = rng.random_range(first..=newest);
        let (by_rest, keys) = told_by_rest(&ana, contract, ledger);
        let by_rpc = told_by_rpc(&ana, &keys, ledger);
        assert_eq!(by_rpc, by_rest, "{contract}, {ledger}");
        let by_sql = told_by_sql(&ana, contract, ledger);
        let lives = |told: &Told| -> BTreeMap<String, u32> {
            told.iter().map(|(hash, (life, _))| (hash.clone(), *life)).collect()
        };
        assert_eq!(lives(&by_sql), lives(&by_rest), "{contract}, {ledger}");
        present += by_rest.len();
        archived += by_rest.values().filter(|(life, _)| *life == 0).count();
    }
    assert!(present > 300 && archived > 0, "{present}, {archived}");
}
