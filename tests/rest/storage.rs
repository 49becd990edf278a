//! `/rest/contracts/{contract_id}/storage` and one entry of it: compared with a model that decodes the
//! ledgers a second time, and by their parameters and errors one by one.

use std::sync::{Arc, LazyLock};
use std::thread::JoinHandle;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jsonschema::Validator;
use orrery::domain::{ContractId, LedgerSeq};
use orrery::executables::Interfaces;
use orrery::store::Retention;
use orrery_testkit::holder::{BALANCES, Holders, balance_key};
use orrery_testkit::http::Answer;
use orrery_testkit::pubnet;
use orrery_testkit::sandbox::local;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::storage::{self, Entry, Present, StorageModel, Value as Held};
use orrery_testkit::values::{list, symbol};
use serde_json::{Value, json};
use stellar_xdr::{ContractDataDurability, LedgerKey, Limits, ScVal, WriteXdr};

/// Ledgers after the last request: those of temporary entries die meanwhile that were not extended.
const IDLE: u32 = 24;

static MADE: LazyLock<Holders> = LazyLock::new(|| Holders::made(IDLE));

/// A server on the first ledgers, and the model of them.
pub struct World {
    pub server: Server,
    pub store: TempStore,
    pub model: StorageModel,
    interfaces: Arc<Interfaces>,
    /// Reads interfaces into memory.
    reading: Option<JoinHandle<()>>,
}

impl World {
    pub fn of(ledgers: &[Vec<u8>]) -> Self {
        let store = TempStore::with_storage(&local());
        pubnet::commit(&store.store, ledgers);
        Self::on(store, ledgers)
    }

    fn on(store: TempStore, ledgers: &[Vec<u8>]) -> Self {
        let mut model = StorageModel::new(local().passphrase());
        for raw in ledgers {
            model.add(raw);
        }
        let interfaces = Interfaces::new(Arc::clone(&store.store), None);
        let reader = Arc::clone(&interfaces);
        let reading = Some(std::thread::spawn(move || reader.work()));
        let server = Server::start_with(&store, |deps| deps.interfaces = Arc::clone(&interfaces));
        Self { server, store, model, interfaces, reading }
    }

    /// Stores more ledgers.
    pub fn add(&mut self, ledgers: &[Vec<u8>]) {
        pubnet::commit(&self.store.store, ledgers);
        self.store.index();
        for raw in ledgers {
            self.model.add(raw);
        }
    }

    pub fn newest(&self) -> u32 {
        self.model.ranges().last().unwrap().last
    }

    /// The answer to a path.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let answer = self.server.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// All pages of a list, which has parameters: the first answer, and the rows of all of them.
    #[track_caller]
    pub fn pages(&self, path: &str, rows: &str) -> (Value, Vec<Value>) {
        let first = self.get(path);
        let mut all = first[rows].as_array().unwrap().clone();
        let mut cursor = first["cursor"].clone();
        while let Some(text) = cursor.as_str() {
            let page = self.get(&format!("{path}&cursor={text}"));
            assert!(page.get("instance").is_none_or(Value::is_null), "{page}");
            all.extend_from_slice(page[rows].as_array().unwrap());
            cursor = page["cursor"].clone();
        }
        (first, all)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.interfaces.stop();
        if let Some(reading) = self.reading.take() {
            // A test that has failed already is not to abort here.
            let _ = reading.join();
        }
    }
}

/// The world of all ledgers, for tests that do not change it.
fn world() -> World {
    World::of(&MADE.ledgers)
}

fn path(contract: ContractId) -> String {
    format!("/rest/contracts/{contract}/storage")
}

/// The schema of an answer in the description of the API.
pub fn schema(name: &str) -> Validator {
    let yaml = include_str!("../../schema/openapi.yaml");
    let root: Value =
        serde_json::to_value(serde_yaml_ng::from_str::<serde_yaml_ng::Value>(yaml).unwrap())
            .unwrap();
    let one = json!({ "$ref": format!("#/components/schemas/{name}") });
    let whole = json!({ "components": root["components"], "allOf": [one] });
    jsonschema::draft202012::new(&whole).unwrap()
}

pub fn xdr(value: &ScVal) -> String {
    STANDARD.encode(value.to_xdr(Limits::none()).unwrap())
}

/// Percent-encodes a value of a query.
pub fn encoded(text: &str) -> String {
    text.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
}

fn key_of(present: &Present) -> &ScVal {
    let LedgerKey::ContractData(data) = &present.key else { panic!("{present:?}") };
    &data.key
}

/// The symbol of a key, and what follows it.
pub fn named(key: &ScVal) -> (Value, Value) {
    let text = |symbol: &stellar_xdr::ScSymbol| json!(symbol.to_utf8_string_lossy());
    match key {
        ScVal::Symbol(name) => (text(name), json!([])),
        ScVal::Vec(Some(items)) => match items.as_slice() {
            [ScVal::Symbol(name), args @ ..] => {
                (text(name), args.iter().map(|arg| json!(xdr(arg))).collect())
            }
            _ => (Value::Null, Value::Null),
        },
        _ => (Value::Null, Value::Null),
    }
}

/// An entry as the API lists it, as the model has it.
fn expected(world: &World, entry: &Entry) -> Value {
    let present = &entry.present;
    let Held::Data(value) = &present.value else { panic!("{present:?}") };
    let (name, args) = named(key_of(present));
    let closed = world.store.store.ledger(LedgerSeq(present.updated_ledger)).unwrap();
    json!({
        "key_hash": hex::encode(entry.key_hash),
        "key": xdr(key_of(present)),
        "name": name,
        "args": args,
        "durability": match present.durability {
            ContractDataDurability::Temporary => "temporary",
            ContractDataDurability::Persistent => "persistent",
        },
        "value": xdr(value),
        "live_until_ledger": present.live_until,
        "archived": present.archived,
        "updated_ledger": present.updated_ledger,
        "updated_at": closed.map(|row| row.close_time.to_string()),
        "modified_ledger": present.modified_ledger,
        "tx": present.updated_tx.map(|tx| hex::encode(tx.hash)),
    })
}

fn is_instance(entry: &Entry) -> bool {
    *key_of(&entry.present) == ScVal::LedgerKeyContractInstance
}

/// Items of the instance's map as the API lists them, as the model has them.
fn expected_items(world: &World, entry: &Entry) -> Vec<Value> {
    let Held::Data(ScVal::ContractInstance(instance)) = &entry.present.value else { panic!() };
    let whole = expected(world, entry);
    let items = instance.storage.iter().flat_map(|map| map.0.iter());
    let item = |item: &stellar_xdr::ScMapEntry| {
        let mut row = whole.clone();
        let (name, args) = named(&item.key);
        (row["key"], row["value"]) = (json!(xdr(&item.key)), json!(xdr(&item.val)));
        (row["name"], row["args"], row["durability"]) = (name, args, json!("instance"));
        row
    };
    items.map(item).collect()
}

fn column<'v>(rows: &'v [Value], name: &str) -> Vec<&'v Value> {
    rows.iter().map(|row| &row[name]).collect()
}

#[test]
fn lists_and_entries_of_every_ledger_are_those_of_the_model() {
    let world = world();
    let (list_schema, entry_schema) = (schema("Storage"), schema("StorageEntry"));
    let first = world.model.ranges()[0].first;
    let (mut listed, mut archived) = (0, 0);
    for contract in [MADE.contract, MADE.other] {
        for ledger in first..=world.newest() {
            let model = world.model.list(&contract.0, ledger).unwrap();
            let (answer, entries) =
                world.pages(&format!("{}?at={ledger}&limit=5", path(contract)), "entries");
            assert!(list_schema.is_valid(&answer), "{answer}");
            assert_eq!(answer["contract_id"], contract.to_string());
            assert_eq!(answer["ledger"], ledger);
            assert_eq!(answer["complete"], model.complete, "{ledger}");
            assert_eq!(answer["known_since"], model.known_since, "{ledger}");
            let others = model.entries.iter().filter(|entry| !is_instance(entry));
            let others: Vec<Value> = others.map(|entry| expected(&world, entry)).collect();
            assert_eq!(entries, others, "{ledger}");
            listed += entries.len();
            archived += entries.iter().filter(|entry| entry["archived"] == true).count();
            match model.entries.iter().find(|entry| is_instance(entry)) {
                None => assert_eq!(answer["instance"], Value::Null, "{ledger}"),
                Some(instance) => {
                    let items = expected_items(&world, instance);
                    assert_eq!(answer["instance"]["storage"], json!(items), "{ledger}");
                    let whole = expected(&world, instance);
                    for name in
                        ["key_hash", "live_until_ledger", "archived", "updated_ledger", "tx"]
                    {
                        assert_eq!(answer["instance"][name], whole[name], "{name}");
                    }
                }
            }
            for entry in model.entries.iter().step_by(3) {
                let hash = hex::encode(entry.key_hash).to_uppercase();
                let one = world.get(&format!("{}/{hash}?at={ledger}", path(contract)));
                assert!(entry_schema.is_valid(&one), "{one}");
                assert_eq!(one, expected(&world, entry), "{ledger}");
            }
        }
    }
    assert!(listed > 300, "{listed}");
    assert_eq!(archived, 0, "nothing is old enough");
}

/// Persistent entries are archived after their time to live, and listed with their value.
#[test]
fn archived_entries_are_listed_and_can_be_selected() {
    let made = Holders::made(140);
    let world = World::of(&made.ledgers);
    let list = path(made.contract);
    let model = world.model.list(&made.contract.0, world.newest()).unwrap();
    let entries = world.get(&list)["entries"].as_array().unwrap().clone();
    let expected: Vec<Value> = model
        .entries
        .iter()
        .filter(|entry| !is_instance(entry))
        .map(|entry| expected(&world, entry))
        .collect();
    assert_eq!(entries, expected);
    for (word, wanted) in [("true", true), ("false", false)] {
        let selected = world.get(&format!("{list}?archived={word}"))["entries"].clone();
        let of_all: Vec<&Value> =
            entries.iter().filter(|entry| entry["archived"] == wanted).collect();
        assert!(!of_all.is_empty(), "{word}");
        assert_eq!(selected, json!(of_all), "{word}");
    }
    // Absent: a temporary entry is gone when it is dead, and one that was removed is gone.
    let dead = list_key("Lease", symbol("short"));
    for (key, durability) in [
        (dead, ContractDataDurability::Temporary),
        (balance_key(2), ContractDataDurability::Persistent),
    ] {
        let key = storage::data_key(&made.contract.0, key, durability);
        let hash = hex::encode(storage::key_hash(&key));
        let refused = world.server.get(&format!("{list}/{hash}"));
        assert!(refused.error(404, "entry_absent").contains(&hash));
    }
}

fn list_key(name: &str, arg: ScVal) -> ScVal {
    list([symbol(name), arg])
}

#[test]
fn orders_are_by_what_they_name_in_both_directions() {
    let world = world();
    let list = path(MADE.contract);
    for (order, member, descends) in [
        ("key_hash", "key_hash", false),
        ("updated", "updated_ledger", true),
        ("live_until", "live_until_ledger", true),
    ] {
        let of = |row: &Value| (row[member].clone().to_string(), row["key_hash"].to_string());
        let sorted = |rows: &[Value]| {
            let number = |row: &Value| row[member].as_u64().unwrap_or_default();
            rows.is_sorted_by(|a, b| {
                (number(a), a["key_hash"].as_str()) < (number(b), b["key_hash"].as_str())
            })
        };
        let rows = |direction: &str| {
            let query = format!("{list}?order_by={order}&limit=4{direction}");
            world.pages(&query, "entries").1
        };
        let (mut ascending, mut descending) = (rows("&order=asc"), rows("&order=desc"));
        let by_default = rows("");
        assert_eq!(by_default, if descends { descending.clone() } else { ascending.clone() });
        assert!(sorted(&ascending), "{order}: {:?}", ascending.iter().map(of).collect::<Vec<_>>());
        descending.reverse();
        assert_eq!(ascending, descending, "{order}");
        ascending.sort_by_key(|row| row["key_hash"].to_string());
        assert_eq!(json!(ascending), world.get(&list)["entries"], "{order}");
    }
}

#[test]
fn filters_select_among_entries_and_the_instance() {
    let world = world();
    let list = path(MADE.contract);
    let all = world.get(&list);
    let entries = all["entries"].as_array().unwrap();
    let by_name = |name: &str| world.get(&format!("{list}?name={name}"));
    let balances = by_name("Balance");
    assert_eq!(balances["entries"].as_array().unwrap().len(), BALANCES as usize - 1);
    assert_eq!(balances["instance"]["storage"], json!([]));
    assert!(balances["instance"]["executable"]["wasm"].is_string());
    // A plain symbol and a vector of the same symbol, and items of the instance.
    let mode = by_name("Mode");
    assert_eq!(column(mode["entries"].as_array().unwrap(), "key"), [&json!(xdr(&list_of("Mode")))]);
    assert_eq!(mode["instance"]["storage"][0]["key"], xdr(&symbol("Mode")));
    assert_eq!(mode["instance"]["storage"].as_array().unwrap().len(), 1);
    assert_eq!(by_name("Nothing")["entries"], json!([]));

    for durability in ["persistent", "temporary"] {
        let answer = world.get(&format!("{list}?durability={durability}"));
        let of_all: Vec<&Value> =
            entries.iter().filter(|entry| entry["durability"] == durability).collect();
        assert!(!of_all.is_empty());
        assert_eq!(answer["entries"], json!(of_all), "{durability}");
        assert_eq!(answer["instance"]["storage"], json!([]), "{durability}");
    }
    let instance = world.get(&format!("{list}?durability=instance"));
    assert_eq!((&instance["entries"], &instance["cursor"]), (&json!([]), &Value::Null));
    assert_eq!(instance["instance"], all["instance"]);
    assert_eq!(all["instance"]["storage"].as_array().unwrap().len(), 2);

    // Both durabilities of one key, written in several ways.
    let plain = xdr(&symbol("Plain"));
    for key in ["Plain".to_owned(), "symbol:Plain".to_owned(), encoded(&plain)] {
        let ledger = first_with(&world, "temporary", &plain);
        let answer = world.get(&format!("{list}?key={key}&at={ledger}"));
        let found = answer["entries"].as_array().unwrap();
        let mut durabilities = column(found, "durability");
        durabilities.sort_by_key(|it| it.to_string());
        assert_eq!(durabilities, [&json!("persistent"), &json!("temporary")], "{key}");
        let (_, paged) = world.pages(&format!("{list}?key={key}&at={ledger}&limit=1"), "entries");
        assert_eq!(&paged, found);
        let one = world.get(&format!("{list}?key={key}&at={ledger}&durability=temporary"));
        assert_eq!(column(one["entries"].as_array().unwrap(), "durability"), [&json!("temporary")]);
    }
    let item = world.get(&format!("{list}?key=Mode"));
    assert_eq!(item["entries"], json!([]));
    assert_eq!(column(item["instance"]["storage"].as_array().unwrap(), "name"), [&json!("Mode")]);
    // The instance by its own key, as answers show it and as XDR.
    let by_key = xdr(&ScVal::LedgerKeyContractInstance);
    for key in ["instance".to_owned(), encoded(&by_key)] {
        let own = world.get(&format!("{list}?key={key}"));
        assert_eq!((&own["instance"], &own["entries"]), (&all["instance"], &json!([])), "{key}");
        assert_eq!(own["unknown"], json!([]), "{key}");
    }
    let word = world.get(&format!("{list}?key=symbol:instance"));
    assert_eq!(word["instance"]["storage"], json!([]));
    assert_eq!(all.get("unknown"), None);
    let none = world.get(&format!("{list}?key=Mode&name=Admin"));
    assert_eq!(none["instance"]["storage"], json!([]));
    let number = world.get(&format!("{list}?key=u32:9"));
    assert_eq!(number["entries"][0]["name"], Value::Null);
    assert_eq!(number["entries"][0]["args"], Value::Null);
}

fn list_of(name: &str) -> ScVal {
    list([symbol(name)])
}

/// The first ledger whose list has a key in this durability.
fn first_with(world: &World, durability: &str, key: &str) -> u32 {
    let first = world.model.ranges()[0].first;
    let has = |ledger: &u32| {
        let answer =
            world.get(&format!("{}?at={ledger}&durability={durability}", path(MADE.contract)));
        column(answer["entries"].as_array().unwrap(), "key").contains(&&json!(key))
    };
    (first..=world.newest()).find(has).unwrap()
}

/// The cursor holds the ledger: later pages are of the ledger of the first one.
#[test]
fn pages_are_of_one_ledger_although_more_are_stored() {
    let split = MADE.ledgers.len() - IDLE as usize - 10;
    for query in ["limit=3", "limit=3&order_by=updated", "limit=3&order_by=live_until&order=asc"] {
        let mut world = World::of(&MADE.ledgers[..split]);
        let path = format!("{}?{query}", path(MADE.contract));
        let whole = world.pages(&path, "entries").1;
        let first = world.get(&path);
        let ledger = world.newest();
        world.add(&MADE.ledgers[split..]);
        let mut rows = first["entries"].as_array().unwrap().clone();
        let mut cursor = first["cursor"].as_str().map(str::to_owned);
        while let Some(text) = cursor {
            let page = world.get(&format!("{path}&cursor={text}"));
            assert_eq!(page["ledger"], ledger);
            rows.extend_from_slice(page["entries"].as_array().unwrap());
            cursor = page["cursor"].as_str().map(str::to_owned);
        }
        assert_eq!(rows, whole, "{query}");
        assert_ne!(json!(world.pages(&path, "entries").1), json!(whole), "{query}");
    }
}

/// What retention removes is not guessed: earlier ledgers are not answered, and a list that began there
/// is gone.
#[test]
fn ledgers_of_removed_transactions_are_not_answered() {
    let world = world();
    let list = path(MADE.contract);
    let newest = world.newest();
    let early = newest - IDLE - 12;
    let page = world.get(&format!("{list}?at={early}&limit=2"));
    let before = world.get(&list);
    let floor = newest - IDLE - 4;
    let kept = Retention { transactions: Some(newest - floor + 1), ..Retention::default() };
    while !world.store.store.prune(&kept).unwrap().is_nothing() {}
    assert_eq!(world.get(&list)["entries"], before["entries"], "what it kept says the same");
    let after = world.get(&list);
    assert_eq!((&after["complete"], &after["known_since"]), (&json!(true), &json!(floor)));
    let cursor = page["cursor"].as_str().unwrap();
    let gone = world.server.get(&format!("{list}?limit=2&cursor={cursor}"));
    assert!(gone.error(410, "ledger_removed").contains(&early.to_string()));
    for at in [early, floor - 1] {
        let refused = world.server.get(&format!("{list}?at={at}"));
        let nearest = json!([floor, newest]);
        assert!(refused.error(404, "ledger_not_stored").contains(&floor.to_string()));
        assert_eq!(refused.json()["nearest"], nearest);
        assert!(schema("StorageError").is_valid(&refused.json()));
    }
    assert_eq!(world.get(&format!("{list}?at={floor}"))["ledger"], floor);
}

/// What is not in the ledgers around is not known, and the answer names where it may be.
#[test]
fn gaps_leave_things_unknown() {
    let made = &MADE.ledgers;
    let (head, tail) = (12, made.len() - 10);
    let store = TempStore::with_storage(&local());
    pubnet::commit(&store.store, &made[..head]);
    pubnet::commit(&store.store, &made[tail..]);
    let world = World::on(store, &[&made[..head], &made[tail..]].concat());
    let list = path(MADE.contract);
    let ranges = world.model.ranges();
    assert_eq!(ranges.len(), 2);
    let answer = world.get(&list);
    assert_eq!((&answer["complete"], &answer["instance"]), (&json!(false), &Value::Null));
    assert_eq!(answer["known_since"], ranges[1].first);
    let known_in = json!([ranges[0].first, ranges[0].last]);
    assert_eq!(answer["known_in"], known_in);
    assert!(schema("Storage").is_valid(&answer), "{answer}");
    let key = storage::instance_key(&MADE.contract.0);
    let hash = hex::encode(storage::key_hash(&key));
    let unknown = world.server.get(&format!("{list}/{hash}"));
    unknown.error(404, "entry_unknown");
    assert_eq!(unknown.json()["known_in"], known_in);
    assert!(schema("StorageError").is_valid(&unknown.json()));
    let there = world.get(&format!("{list}?at={}", ranges[0].last));
    assert_eq!((&there["complete"], there.get("known_in")), (&json!(true), None));
    // The three answers for one key: what is not listed does not exist, or is not known.
    let by_key = |query: &str| world.get(&format!("{list}?{query}"));
    let nothing = by_key("key=Nothing");
    assert_eq!(nothing["unknown"], json!(["instance", "temporary", "persistent"]), "{nothing}");
    assert_eq!(by_key("key=Nothing&durability=temporary")["unknown"], json!(["temporary"]));
    assert_eq!(by_key("key=instance")["unknown"], json!(["instance"]));
    let absent = by_key(&format!("key=Nothing&at={}", ranges[0].last));
    assert_eq!((&absent["unknown"], &absent["entries"]), (&json!([]), &json!([])));
    let nonce = xdr(&ScVal::LedgerKeyNonce(stellar_xdr::ScNonceKey { nonce: 7 }));
    let nonce = by_key(&format!("key={}&at={}", encoded(&nonce), ranges[0].last));
    assert_eq!(nonce["unknown"], json!(["temporary", "persistent"]), "nonces are never known");
    for answer in [&nothing, &absent, &nonce] {
        assert!(schema("Storage").is_valid(answer), "{answer}");
    }
    let between = world.server.get(&format!("{list}?at={}", ranges[0].last + 2));
    between.error(404, "ledger_not_stored");
    assert_eq!(between.json()["nearest"], known_in);
}

#[test]
fn faults_are_named_in_one_sentence() {
    let world = world();
    let list = path(MADE.contract);
    let refused = |query: &str| world.server.get(&format!("{list}?{query}"));
    let cursor = world.get(&format!("{list}?limit=1"))["cursor"].as_str().unwrap().to_owned();
    for (query, name) in [
        ("at=-1", "at"),
        ("at=x", "at"),
        ("durability=lasting", "durability"),
        ("name=", "name"),
        ("name=a%20b", "name"),
        (&format!("name={}", "a".repeat(33)), "name"),
        ("key=", "key"),
        ("key=u32:x", "key"),
        ("archived=1", "archived"),
        ("order_by=ttl", "order_by"),
        ("order=up", "order"),
        ("limit=0", "limit"),
        ("limit=1e2", "limit"),
        ("decoded=yes", "decoded"),
        ("cursor=", "cursor"),
        ("cursor=7", "cursor"),
        (&format!("cursor={cursor}0"), "cursor"),
        (&format!("cursor=0{cursor}"), "cursor"),
        (&format!("cursor={cursor}&order=desc"), "cursor"),
        (&format!("cursor={cursor}&order_by=updated&order=asc"), "cursor"),
        (&format!("cursor={cursor}&at=3"), "cursor"),
    ] {
        let sentence = refused(query).error(400, "bad_parameter");
        assert!(sentence.contains(&format!("'{name}'")), "{query}: {sentence}");
    }
    refused("durabilty=x").error(400, "unknown_parameter");
    for at in ["0", "1", "99999999999"] {
        let answer = refused(&format!("at={at}"));
        assert!(answer.error(404, "ledger_not_stored").contains("nearest stored range"));
    }
    for wrong in ["x", &"a".repeat(63), &"a".repeat(65), &format!("0x{}", "a".repeat(64))] {
        let sentence = world.server.get(&format!("{list}/{wrong}")).error(400, "bad_parameter");
        assert!(sentence.contains("'key_hash'"), "{sentence}");
    }
    world.server.get("/rest/contracts/C/storage").error(400, "bad_parameter");
    world.server.get_public(&list).error(401, "unauthorized");
    // That of a key which nothing names may be that of a nonce.
    let nothing = world.server.get(&format!("{list}/{}", "a".repeat(64)));
    assert!(nothing.error(404, "entry_unknown").contains("'key'"));
    assert_eq!(nothing.json()["live_until_ledger"], Value::Null);
    // The same key of another contract.
    let only = storage::data_key(&MADE.other.0, symbol("Only"), ContractDataDurability::Persistent);
    let hash = hex::encode(storage::key_hash(&only));
    for path in [format!("{list}/{hash}"), format!("{list}/{hash}/history")] {
        let other = world.server.get(&path);
        assert!(other.error(404, "entry_absent").contains(&MADE.other.to_string()), "{path}");
        assert_eq!(other.json()["contract_id"], MADE.other.to_string());
    }
    let empty = TempStore::with_storage(&local());
    let server = Server::start(&empty);
    assert!(server.get(&list).error(404, "ledger_not_stored").contains("no ledger is stored yet"));
}

/// Plain JSON, by the types that the contract's interface declares, if they fit exactly.
#[test]
fn decoded_keys_and_values_have_the_types_of_the_interface() {
    let world = world();
    let list = path(MADE.contract);
    let decoded = |query: &str| world.get(&format!("{list}?decoded=true&{query}"));
    let balances = decoded("name=Balance");
    let first = balances["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["args"] == json!([5]))
        .unwrap_or_else(|| panic!("{balances}"))
        .clone();
    assert_eq!(first["key"], json!({ "tag": "Balance", "values": [5] }));
    assert_eq!(first["value"], json!({ "amount": "1005", "number": 5 }));
    assert_eq!(first["name"], "Balance");
    let instance = &decoded("")["instance"];
    let item = |name: &str| {
        let items = instance["storage"].as_array().unwrap();
        items.iter().find(|it| it["name"] == name).unwrap().clone()
    };
    assert_eq!(item("Admin")["key"], json!({ "tag": "Admin", "values": [] }));
    assert_eq!((&item("Admin")["value"], &item("Admin")["args"]), (&json!("bob"), &json!([])));
    assert_eq!((&item("Mode")["key"], &item("Mode")["value"]), (&json!("Mode"), &json!(1)));
    // No union has these cases, and these values are not of the types of their names.
    let pair = decoded("name=Pair");
    let (of_key, of_struct) = (&pair["entries"][0], &pair["entries"].as_array().unwrap().len());
    assert_eq!((&of_key["key"], &of_key["value"]), (&json!(["Pair"]), &json!([4, "five"])));
    assert_eq!(*of_struct, 1);
    let mode = decoded("name=Mode");
    assert_eq!(
        (&mode["entries"][0]["key"], &mode["entries"][0]["value"]),
        (&json!(["Mode"]), &json!(7))
    );
    let number = decoded("key=u32:9");
    assert_eq!(
        (&number["entries"][0]["key"], &number["entries"][0]["value"]),
        (&json!(9), &json!(["Pair", 1]))
    );
    assert_eq!(number["entries"][0]["name"], Value::Null);
    let lease = decoded("name=Lease");
    assert_eq!(lease["entries"][0]["key"], json!({ "tag": "Lease", "values": ["long"] }));
    // One entry, and the instance as one.
    let hash = first["key_hash"].as_str().unwrap();
    assert_eq!(world.get(&format!("{list}/{hash}?decoded=true")), first);
    let hash = instance["key_hash"].as_str().unwrap();
    let whole = world.get(&format!("{list}/{hash}?decoded=true"));
    assert_eq!(whole["key"], "instance");
    assert_eq!(whole["value"]["executable"], instance["executable"]);
    let storage = json!([["Mode", 1], [{ "tag": "Admin", "values": [] }, "bob"]]);
    assert_eq!(whole["value"]["storage"], storage);
    assert!(schema("StorageEntry").is_valid(&whole), "{whole}");
}

/// Where an interface is stored and has not been read, each row says that its types may come.
#[test]
fn rows_without_their_types_say_so() {
    let store = TempStore::with_storage(&local());
    pubnet::commit(&store.store, &MADE.ledgers);
    // Nothing reads interfaces into memory.
    let server = Server::start(&store);
    let list = path(MADE.contract);
    let answer = server.get(&format!("{list}?decoded=true&name=Balance")).json();
    let entries = answer["entries"].as_array().unwrap();
    assert!(
        !entries.is_empty() && entries.iter().all(|it| it["names_pending"] == true),
        "{answer}"
    );
    assert!(schema("Storage").is_valid(&answer), "{answer}");
    let hash = entries[0]["key_hash"].as_str().unwrap();
    let one = server.get(&format!("{list}/{hash}?decoded=true")).json();
    assert_eq!(one["names_pending"], true, "{one}");
    let history = server.get(&format!("{list}/{hash}/history?decoded=true")).json();
    assert_eq!(history["changes"][0]["names_pending"], true, "{history}");
    assert!(schema("StorageHistory").is_valid(&history), "{history}");
    let xdr = server.get(&format!("{list}/{hash}")).json();
    assert_eq!(xdr.get("names_pending"), None);
}

/// The answer of a server on a store that does not have the index is that it is not ready.
#[test]
fn a_store_without_the_index_says_so() {
    let store = TempStore::with_names(&local());
    let answer: Answer = Server::start(&store).get(&path(MADE.contract));
    assert!(answer.error(409, "storage_off").contains("[index] storage"));
}
