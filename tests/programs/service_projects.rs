//! Projects of events as their owners use them: the built binary, its HTTP API, SQL, exports and
//! SIGKILL. Whatever happens, the rows of all tables together with those of `undeclared` are the
//! events of the contracts, and the tables are those of a project that is made anew.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::sync::LazyLock;
use std::time::Duration;

use orrery::domain::{ContractId, asset_contract_id};
use orrery::sandbox::network::Request;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    Asset, Int256Parts, MuxedEd25519Account, ScAddress, ScVal, UInt256Parts, Uint256,
};

use crate::exported::{Lake, both, export};
use crate::network::{Chain, call};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::engine_world::module;
use orrery_testkit::event_counts::by_contract;
use orrery_testkit::exported::{DECODED, assert_no_strays, columns_of_events};
use orrery_testkit::provider::{Provider, Reply};
use orrery_testkit::sandbox::local;
use orrery_testkit::size;
use orrery_testkit::specs::{Map, SingleValue, Type, event, option};
use orrery_testkit::upgraded::{Upgraded, version, with_interface};
use orrery_testkit::values::{bytes, fields, list, map, string, symbol};
use orrery_testkit::wait::wait_until;
use orrery_testkit::wasm_text::{Data, env_call, env_imports};

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

/// Number of events of some contracts in these ledgers.
pub fn count<'l>(ledgers: impl IntoIterator<Item = &'l Vec<u8>>, contracts: &[ContractId]) -> u64 {
    let counts = ledgers.into_iter().map(|raw| by_contract(raw, &local()).1);
    counts.map(|it| contracts.iter().filter_map(|id| it.get(id)).sum::<usize>() as u64).sum()
}

pub fn watch(owner: &Owner, name: &str, contracts: &[ContractId]) -> u32 {
    let contracts: Vec<_> = contracts.iter().map(ToString::to_string).collect();
    let watched = owner.post("watch", &json!({ "project_name": name, "contracts": contracts }));
    watched["id"].as_u64().unwrap() as u32
}

/// Waits until a project has read this number of events.
pub fn wait_for_events(owner: &Owner, id: u32, events: u64) {
    owner.wait("all events are read", |it| it.get(&format!("{id}/status"))["events"] == events);
}

/// Names of the tables of a project, without `program_ID_`.
pub fn tables(owner: &Owner, id: u32) -> Vec<String> {
    let prefix = format!("program_{id}_");
    let list = owner.get("list");
    let own = list.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    let tables = own["tables"].as_array().unwrap().iter();
    tables.map(|it| it.as_str().unwrap().strip_prefix(&prefix).unwrap().to_owned()).collect()
}

/// Columns and sorted rows.
pub type Table = (Vec<String>, Vec<String>);
pub type Content = BTreeMap<String, Table>;

/// The tables of a project as SQL has them: columns and sorted rows, without ids that differ between
/// projects.
pub fn content(owner: &Owner, id: u32) -> Content {
    let one = |table: String| {
        let name = format!("program_{id}_{table}");
        let columns = match owner.try_query(&format!("describe {name}")) {
            Ok(columns) => columns,
            // The table will be there with the next rows.
            Err((status, body)) => return (table, (vec![format!("{status} {body}")], Vec::new())),
        };
        let columns =
            columns.iter().map(|it| format!("{} {}", it["column_name"], it["column_type"]));
        let sql = format!("select * exclude (_service_event_id) from {name}");
        let mut rows: Vec<_> = owner.query(&sql).iter().map(Value::to_string).collect();
        rows.sort_unstable();
        (table, (columns.collect(), rows))
    };
    tables(owner, id).into_iter().map(one).collect()
}

/// The first rows by which two contents differ.
pub fn difference(found: &Content, expected: &Content) -> String {
    for table in found.keys().chain(expected.keys()) {
        let (found, expected) = (found.get(table), expected.get(table));
        if found != expected {
            let only = |one: Option<&Table>, other: Option<&Table>| {
                let of =
                    |it: Option<&Table>| it.map(|(columns, rows)| [&columns[..], rows].concat());
                let (one, other) = (of(one).unwrap_or_default(), of(other).unwrap_or_default());
                one.into_iter().filter(|it| !other.contains(it)).take(3).collect::<Vec<_>>()
            };
            let (found, expected) = (only(found, expected), only(expected, found));
            return format!("{table}: {found:?}, expected {expected:?}");
        }
    }
    String::new()
}

/// Rows of all tables of a project, the rows of `undeclared` among them, and the rows of the view of
/// all events.
fn rows(owner: &Owner, id: u32, project: &str) -> (u64, u64) {
    let counts = tables(owner, id).into_iter().map(|table| {
        let found = owner.query(&format!("select count(*) n from program_{id}_{table}"));
        found[0]["n"].as_u64().unwrap()
    });
    let events = owner.query(&format!("select count(*) n from {project}.events"));
    (counts.sum(), events[0]["n"].as_u64().unwrap())
}

/// Exports until an export has all events of a project, each in the table in which SQL has it: rows
/// that are derived anew meanwhile are in other tables afterwards.
fn assert_exported(scene: &Scene, lake: &Lake, owner: &Owner, id: u32, events: u64) {
    wait_until("an export has what SQL has", || {
        export(scene, lake, &[]);
        let mut count = 0;
        for table in tables(owner, id) {
            let (exported, sql) = both(owner, &lake.directory, id, &table);
            if exported != sql {
                return Err(format!("{table}: {exported:?}, {sql:?}"));
            }
            count += sql.len() as u64;
        }
        if count == events { Ok(()) } else { Err(format!("{count} of {events}")) }
    });
}

#[test]
fn exports_hold_the_tables_of_projects() {
    let all = &*UPGRADED;
    let (first, rest) = all.ledgers.split_at(all.ledgers.len() / 2);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let id = watch(&ana, "said", &all.contracts[..1]);
    let lake = Lake::directory(scene.path().join("lake"));
    let exported = |events: u64| {
        wait_for_events(&ana, id, events);
        assert_exported(&scene, &lake, &ana, id, events);
        assert_no_strays(&lake.directory);
        assert_eq!(export(&scene, &lake, &[])["new_rows"], 0);
    };
    // The later ledgers first: the code of the contracts is not known yet.
    scene.import_ledgers(rest);
    exported(count(rest, &all.contracts[..1]));
    scene.import_ledgers(first);
    exported(count(&all.ledgers, &all.contracts[..1]));
    let others: Vec<_> = all.contracts[1..].iter().map(ToString::to_string).collect();
    ana.post("append-contracts", &json!({ "program_id": id, "contracts": others }));
    exported(count(&all.ledgers, &all.contracts));
}

/// Small: 6 kills; full: 60.
#[test]
fn projects_are_whole_after_kills() {
    let all = &*UPGRADED;
    let scene = Scene::new();
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut service = Service::start(scene.path());
    let events = count(&all.ledgers, &all.contracts);
    for round in 0..size::choose(2, 20) {
        let (name, id) = (format!("p{round}"), {
            let ana = scene.owner(&service, "ana");
            watch(&ana, &format!("p{round}"), &all.contracts[..2])
        });
        if round == 0 {
            let mut parts: Vec<_> = all.ledgers.chunks(all.ledgers.len().div_ceil(6)).collect();
            parts.shuffle(&mut rng);
            for part in parts {
                scene.import_ledgers(part);
                std::thread::sleep(Duration::from_millis(rng.random_range(0..300)));
                drop(service);
                service = Service::start(scene.path());
            }
        } else {
            for _ in 0..3 {
                // The process is killed at a random moment; there is no condition to wait for.
                std::thread::sleep(Duration::from_millis(rng.random_range(0..300)));
                drop(service);
                service = Service::start(scene.path());
            }
        }
        let ana = scene.owner(&service, "ana");
        let third = [all.contracts[2].to_string()];
        ana.post("append-contracts", &json!({ "program_id": id, "contracts": third }));
        std::thread::sleep(Duration::from_millis(rng.random_range(0..200)));
        drop(service);
        service = Service::start(scene.path());
        let ana = scene.owner(&service, "ana");
        wait_for_events(&ana, id, events);
        let fresh = watch(&ana, "fresh", &all.contracts);
        wait_for_events(&ana, fresh, events);
        ana.wait_for_rows("fresh_events", events as usize);
        ana.wait_for_rows(&format!("{name}_events"), events as usize);
        // Both may still be derived anew, and their tables filled again.
        wait_until("the tables are those of a new project", || {
            let (found, expected) = (content(&ana, id), content(&ana, fresh));
            let count: usize = found.values().map(|(_, rows)| rows.len()).sum();
            let is_whole = count as u64 == events;
            if found == expected && is_whole { Ok(()) } else { Err(difference(&found, &expected)) }
        });
        ana.wait("each event is in a table", |it| rows(it, id, &name) == (events, events));
        ana.ask("DELETE", &fresh.to_string(), None);
        if round > 0 {
            ana.ask("DELETE", &id.to_string(), None);
        }
    }
}

/// A contract that emits what it is called with.
pub fn emitting() -> Vec<u8> {
    emitting_each(1)
}

/// As [`emitting`], but emits each event so many times.
pub fn emitting_each(times: usize) -> Vec<u8> {
    let emit =
        env_call("contract_event", &["(local.get 0)".to_owned(), "(local.get 1)".to_owned()]);
    let others = format!("(drop {emit})").repeat(times - 1);
    let memory = Data::default().memory();
    module(&format!(
        "{} {memory} (func (export \"emit\") (param i64 i64) (result i64) {others} {emit})",
        env_imports()
    ))
}

/// Topics and data of events that are hard on tables.
fn hostile() -> Vec<(ScVal, ScVal)> {
    let mut events = Vec::new();
    // More names than a project may have tables.
    for name in 0..120 {
        events.push((list([symbol(&format!("name_{name}"))]), ScVal::U32(name)));
    }
    // Names that differ in case, in what SQL folds, and names of tables and columns that exist.
    for name in ["Name_1", "NAME_1", "events", "undeclared", "_event_id", "select", "a__b", "A_b_"]
    {
        events.push((
            list([symbol(name)]),
            fields([("_event_id", ScVal::U32(1)), ("rest", ScVal::Void)]),
        ));
    }
    // Texts with code, NUL, without UTF-8, and of some kilobytes.
    for text in ["'; drop table x; --", "a\0b", "\u{202e}x", ""] {
        events.push((list([string(text), string(text)]), string(text)));
    }
    events.push((list([string([0xff, 0xfe])]), map([(string([0xc3, 0x28]), bytes(&[0; 3000]))])));
    events.push((list([string("x".repeat(4000))]), bytes(&[7; 4000])));
    // Maps with more keys than a table has columns, and keys of any type.
    let keys = (0..150).map(|key| (symbol(&format!("key_{key}")), ScVal::U32(key)));
    events.push((list([symbol("wide")]), map(keys)));
    events.push((
        list([symbol("wide")]),
        map([(ScVal::Void, ScVal::U32(1)), (list([]), ScVal::U32(2)), (string("\0"), ScVal::Void)]),
    ));
    // Deep values, in data and in a topic.
    let deep = |levels: u32| (0..levels).fold(ScVal::Bool(true), |value, _| list([value]));
    events.push((list([symbol("deep")]), deep(60)));
    events.push((list([symbol("deep"), deep(30)]), deep(9)));
    // No topics, a first topic that is no text, and other values under one name.
    events.push((list([]), ScVal::Void));
    events.push((list([ScVal::U32(3)]), list([])));
    for value in [ScVal::U32(1), symbol("a"), ScVal::Void, list([ScVal::I32(-1)]), string("b")] {
        events.push((list([symbol("mixed")]), value));
    }
    events
}

#[test]
fn hostile_events_cost_their_own_project_alone() {
    let mut chain = Chain::new();
    let bad = chain.create_of(&emitting(), Vec::new());
    let good = chain.create_of(&emitting(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    let own = watch(&ana, "good", &[good]);
    let other = watch(&bob, "bad", &[bad]);
    let events = hostile();
    for part in events.chunks(10) {
        let mut calls: Vec<_> = part
            .iter()
            .map(|(topics, data)| call(bad, "emit", vec![topics.clone(), data.clone()]))
            .collect();
        calls.push(call(good, "emit", vec![list([symbol("said")]), ScVal::U32(part.len() as u32)]));
        chain.close(&calls);
    }
    chain.import_into(&scene);
    let (all, said) = (events.len() as u64, events.len().div_ceil(10) as u64);
    wait_for_events(&ana, own, said);
    wait_for_events(&bob, other, all);
    ana.wait_for_rows("good_said", said as usize);
    bob.wait_for_rows("bad_events", all as usize);
    assert_eq!(rows(&bob, other, "bad"), (all, all));
    let status = bob.get(&format!("{other}/status"));
    assert!(status["undeclared"].as_u64().unwrap() > 20, "{status}");
    assert_eq!(status["running"], true, "{status}");
    assert!(tables(&bob, other).len() <= 102, "{status}");
    // Every event is found under its own id, with its own contract.
    let ids = bob.query("select count(distinct _event_id) n from bad.events");
    assert_eq!(ids[0]["n"], all);
    let health: Value = HTTP.get(ana.base("/rest/health")).send().unwrap().json().unwrap();
    assert_eq!(health["service"], "up", "{health}");
    // What SQL has is what an export has.
    let lake = Lake::directory(scene.path().join("lake"));
    assert_exported(&scene, &lake, &bob, other, all);
    assert_exported(&scene, &lake, &ana, own, said);
}

#[test]
fn a_project_that_is_full_goes_on_where_it_stopped() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&emitting(), Vec::new());
    for ledger in 0..40 {
        let calls = (0..8).map(|number| {
            let data = bytes(&[number; 6000]);
            call(contract, "emit", vec![list([symbol("big"), ScVal::U32(ledger)]), data])
        });
        chain.close(&calls.collect::<Vec<_>>());
    }
    let scene = Scene::new();
    let little = [("ORRERY_PROGRAMS_OWNER_MIB", "1")];
    let id = {
        let service = Service::start_with(scene.path(), &little);
        let ana = scene.owner(&service, "ana");
        let id = watch(&ana, "big", &[contract]);
        chain.import_into(&scene);
        ana.wait("it is stopped", |it| it.get(&format!("{id}/status"))["running"] == false);
        let status = ana.get(&format!("{id}/status"));
        let because = status["last_error_message"].as_str().unwrap();
        assert!(because.contains("ana"), "{because}");
        let read = status["events"].as_u64().unwrap();
        assert!((100..320).contains(&read), "{status}");
        ana.wait_for_rows("big_events", read as usize);
        assert_eq!(rows(&ana, id, "big"), (read, read));
        id
    };
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post(&format!("{id}/resume"), &json!({}));
    wait_for_events(&ana, id, 320);
    ana.wait_for_rows("big_events", 320);
    assert_eq!(rows(&ana, id, "big"), (320, 320));
}

/// Waits until SQL has these tables of a project, and no others.
fn wait_for_tables(owner: &Owner, id: u32, expected: &[&str]) {
    owner.wait("SQL has the tables", |it| {
        let listed = it.get("tables");
        let prefix = format!("program_{id}_");
        let listed = listed.as_array().unwrap().iter().filter_map(|it| it["table_name"].as_str());
        let listed: Vec<_> = listed.filter_map(|it| it.strip_prefix(&prefix)).collect();
        let has_all = expected
            .iter()
            .all(|table| it.try_query(&format!("select * from program_{id}_{table}")).is_ok());
        has_all && tables(it, id) == expected && listed == expected
    });
}

#[test]
fn declared_events_have_tables_before_the_first_one() {
    let said = || event("said", &["said"], &[], SingleValue, &[("value", Type::U32)]);
    let paused =
        event("paused", &["paused"], &[("until", Type::U64)], Map, &[("by", Type::Address)]);
    let first = with_interface(version(4), &[said()]);
    let second = with_interface(version(4), &[said(), paused]);
    let mut chain = Chain::new();
    let contract = chain.create_of(&first, Vec::new());
    chain.close(&[Request::Upload { code: second.clone() }]);
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    chain.import_into(&scene);
    let id = watch(&ana, "quiet", &[contract]);
    // One that is watched before anything of it is stored.
    let native = asset_contract_id(local().id(), &Asset::Native).to_string();
    let watched = ana.post("watch", &json!({ "project_name": "xlm", "contracts": [native] }));
    let at_once = watched["tables"].to_string();
    assert!(at_once.contains("_transfer") && at_once.contains("_mint"), "{at_once}");

    wait_for_tables(&ana, id, &["said", "undeclared"]);
    let columns = |table: &str| {
        let columns = ana.query(&format!("describe {table}"));
        let columns = columns.iter().map(|it| it["column_name"].as_str().unwrap().to_owned());
        columns.collect::<Vec<_>>()
    };
    let injected = [
        "contract_id",
        "transaction",
        "_ledger",
        "_ledger_closed_at",
        "_event_id",
        "_event_index",
        "_declared",
        "_rest",
        "_service_event_id",
    ];
    assert_eq!(columns("quiet.said"), [&["value"], &injected[..]].concat());
    assert!(ana.query("select value from quiet.said").is_empty());

    chain.call(contract, "say", vec![ScVal::U32(7)]);
    chain.import_into(&scene);
    ana.wait_for_rows("quiet_said", 1);
    assert_eq!(ana.query("select value from quiet.said"), [json!({ "value": 7 })]);

    let hash = bytes(&Sha256::digest(&second));
    chain.call(contract, "upgrade", vec![hash]);
    chain.import_into(&scene);
    wait_for_tables(&ana, id, &["said", "executable_update", "paused", "undeclared"]);
    assert_eq!(columns("quiet.paused"), [&["until", "by"], &injected[..]].concat());
    // A project that is made anew has the same tables.
    let again = watch(&ana, "again", &[contract]);
    wait_for_tables(&ana, again, &["said", "executable_update", "paused", "undeclared"]);
    wait_until("both are equal", || {
        let (found, expected) = (content(&ana, id), content(&ana, again));
        if found == expected { Ok(()) } else { Err(difference(&found, &expected)) }
    });
}

#[test]
fn queries_that_newcomers_type_are_mended() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&declaring(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    chain.import_into(&scene);
    let id = watch(&ana, "demo", &[contract]);
    wait_for_tables(&ana, id, &["every", "undeclared"]);
    for (query, mend) in [
        ("select from, to, i from demo.every", r#"double quotes: "from", "to""#),
        ("select * from demo.evry", "did you mean 'demo.every'?"),
    ] {
        let (status, body) = ana.try_query(query).unwrap_err();
        assert_eq!(status, 422, "{body}");
        let said = body["error"].as_str().unwrap_or_default();
        assert!(said.contains(mend), "{query}: {body}");
    }
}

/// A contract that declares an event with values of many types, and emits what it is called with.
fn declaring() -> Vec<u8> {
    let params = [
        ("i", Type::I256),
        ("m", Type::MuxedAddress),
        ("n", Type::U256),
        ("o", option(Type::U128)),
        ("s", Type::String),
    ];
    with_interface(emitting(), &[event("every", &["every"], &[], Map, &params)])
}

#[test]
fn values_are_the_same_wherever_they_are_read() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&declaring(), Vec::new());
    let scene = Scene::new();
    let settings = [("ORRERY_WEBHOOKS_ALLOW_SUBNETS", "127.0.0.0/8")];
    let service = Service::start_with(scene.path(), &settings);
    let ana = scene.owner(&service, "ana");
    let receiver = Provider::start(|_| Reply::status(200));
    let subscription = json!({
        "contract_ids": [contract.to_string()],
        "webhook_endpoint": receiver.url("/"),
        "webhook_secret": "a secret of the test",
    });
    let ask = |path: &str| HTTP.get(ana.base(path)).bearer_auth(ana.token());
    let subscribed = HTTP.post(ana.base("/rest/webhooks/new")).bearer_auth(ana.token());
    let subscribed = subscribed.json(&subscription).send().unwrap();
    assert_eq!(subscribed.status(), 200, "{}", subscribed.text().unwrap());
    watch(&ana, "every", &[contract]);
    // The code is indexed before the event is there.
    chain.import_into(&scene);
    let indexed = "orrery_consumer_lag_ledgers{consumer=\"interfaces\"} 0";
    ana.wait("the code is indexed", |_| {
        let metrics = ask("/metrics").send().unwrap().text().unwrap();
        metrics.lines().any(|line| line == indexed)
    });

    let n = UInt256Parts { hi_hi: u64::MAX, hi_lo: u64::MAX, lo_hi: u64::MAX, lo_lo: u64::MAX };
    let i = Int256Parts { hi_hi: i64::MIN, hi_lo: 0, lo_hi: 0, lo_lo: 0 };
    let muxed = ScAddress::MuxedAccount(MuxedEd25519Account { id: 3, ed25519: Uint256([7; 32]) });
    let data = fields([
        ("i", ScVal::I256(i.clone())),
        ("m", ScVal::Address(muxed.clone())),
        ("more", map([(ScVal::U32(1), string(b"\0"))])),
        ("n", ScVal::U256(n.clone())),
        ("o", ScVal::Void),
        ("s", string(b"a\0b\xff")),
    ]);
    chain.call(contract, "emit", vec![list([symbol("every")]), data]);
    chain.import_into(&scene);
    let params = json!({
        "i": i.to_string(), "m": muxed.to_string(), "n": n.to_string(), "o": null, "s": "a\0b\\xff",
    });

    let path = format!("/rest/events/by-contract/{contract}?decoded=true");
    // A request does not wait for an interface that is being read.
    let listed = wait_until("the event has a name", || {
        let listed: Value = ask(&path).send().unwrap().json().unwrap();
        (!listed[0]["decoded"]["name"].is_null()).then_some(listed)
    });
    let decoded = &listed[0]["decoded"];
    assert_eq!((&decoded["name"], &decoded["params"]), (&json!("every"), &params));
    assert_eq!(decoded["rest"], json!({ "keys": { "more": [[1, "\0"]] } }));
    let typed = &decoded["data"];
    assert!(typed.to_string().contains(&n.to_string()), "{typed}");

    let stream = ask("/rest/events/stream?decoded=true").header("Last-Event-ID", "0");
    let stream = BufReader::new(stream.send().unwrap());
    let mut lines = stream.lines().map(Result::unwrap);
    let message = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&message).unwrap(), listed[0]);

    ana.wait_for_rows("every_events", 1);
    let sql = ana.query("select name, params from every.events");
    assert_eq!(sql, [json!({ "name": "every", "params": params })]);
    let sql = ana.query("select i, m, n, o, s from every.every");
    assert_eq!(sql, std::slice::from_ref(&params));

    let lake = Lake::directory(scene.path().join("lake"));
    export(&scene, &lake, &[]);
    let [row] = columns_of_events(&lake.directory, &DECODED).try_into().unwrap();
    let text = |name: &str| serde_json::from_str::<Value>(row[name].as_str().unwrap()).unwrap();
    assert_eq!((&row["name"], text("params")), (&json!("every"), params.clone()));
    assert_eq!(
        (text("data_json"), text("topics_json")),
        (typed.clone(), decoded["topics"].clone())
    );

    let delivered = wait_until("it is delivered", || receiver.requests().into_iter().next());
    let payload: Value = serde_json::from_slice(&delivered.body).unwrap();
    let sent = &payload["event"];
    assert_eq!((&sent["name"], &sent["params"]), (&json!("every"), &params));
    assert_eq!(&sent["body"]["v0"]["data"], typed);
}
