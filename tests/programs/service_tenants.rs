//! Isolation of owners: one owner's programs, rows and damaged tables do not affect the tables and
//! queries of another.

use std::path::Path;

use orrery::domain::ContractId;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built};
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use orrery_testkit::binary::{Service, token_with};
use orrery_testkit::client::HTTP;
use orrery_testkit::values::{fields, i128, list, map, string, symbol};

/// A deploy request for the program that emits what its callers pass.
fn emitter(project: &str, contract: ContractId, public: bool) -> Value {
    let contracts = [contract.to_string()];
    json!({
        "code": built("raw"), "project_name": project, "contracts": contracts, "public": public
    })
}

fn emit(value: ScVal) -> Vec<ScVal> {
    vec![symbol("t"), fields([("v", value)])]
}

fn health(service: &Service) -> Value {
    HTTP.get(format!("{}/rest/health", service.base)).send().unwrap().json().unwrap()
}

fn ready(service: &Service) -> u16 {
    HTTP.get(format!("{}/rest/health/ready", service.base)).send().unwrap().status().as_u16()
}

/// Waits until a table exists and has this many rows.
fn wait_for_rows(owner: &Owner, table: &str, rows: usize) {
    let query = json!({ "query": format!("select count(*) n from {table}") });
    owner.wait(&format!("{table} has {rows} rows"), |it| {
        let (status, body) = it.ask("POST", "query", Some(&query));
        status == 200 && body[0]["n"] == rows
    });
}

/// Subscribes to a project and asserts the status of the response.
fn subscribe(owner: &Owner, project: &str, expected: u16) -> Value {
    let (status, body) = owner.ask("POST", "subscribe", Some(&json!({ "project": project })));
    assert_eq!(status, expected, "{project}: {body}");
    body
}

#[test]
fn map_keys_that_collide_in_sql_affect_no_other_program() {
    let mut chain = Chain::new();
    let (one, other) =
        (chain.create_of(&silent(), Vec::new()), chain.create_of(&silent(), Vec::new()));
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    ana.post("deploy", &emitter("poison", one, true));
    ana.post("deploy", &emitter("sound", other, false));
    bob.post("deploy", &emitter("bobs", other, false));
    subscribe(&bob, "poison", 200);
    let keys = |of: fn(u32) -> ScVal| {
        map([(list([ScVal::U32(1)]), of(1)), (list([ScVal::U64(1)]), of(2))])
    };
    chain.call(one, "emit", emit(keys(|n| i128(n.into()))));
    chain.call(one, "emit", emit(keys(ScVal::U32)));
    chain.call(
        one,
        "emit",
        emit(map([(list([symbol("a")]), i128(1)), (list([string("a")]), i128(2))])),
    );
    chain.call(other, "emit", emit(ScVal::U32(7)));
    chain.import_into(&scene);
    wait_for_rows(&ana, "sound_t", 1);
    wait_for_rows(&bob, "bobs_t", 1);
    for owner in [&ana, &bob] {
        wait_for_rows(owner, "poison_t", 3);
        let rows = owner.query("select v from poison.t order by _ledger limit 1");
        let entry =
            |key: Value, val: &str| json!({ "key": { "vec": [key] }, "val": { "i128": val } });
        let entries = [entry(json!({ "u32": 1 }), "1"), entry(json!({ "u64": "1" }), "2")];
        assert_eq!(rows, [json!({ "v": { "map": entries } })]);
    }
    assert_eq!(health(&service)["components"]["tables"]["status"], "up");
}

#[test]
fn a_public_program_is_readable_only_after_subscribing() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    ana.post("deploy", &emitter("Deposits", contract, true));
    ana.post("deploy", &emitter("secret", contract, false));
    (1..=3).for_each(|n| drop(chain.call(contract, "emit", emit(ScVal::U32(n)))));
    chain.import_into(&scene);
    wait_for_rows(&ana, "deposits_t", 3);
    for table in ["deposits_t", "deposits.t", "retroshade.deposits_t", "program_1_t"] {
        let query = json!({ "query": format!("select * from {table}") });
        let (status, refused) = bob.ask("POST", "query", Some(&query));
        let sentence = refused["error"].as_str().unwrap();
        assert_eq!(status, 422, "{sentence}");
        assert!(sentence.contains("POST /rest/retroshade/subscribe"), "{table}: {sentence}");
    }
    let query = json!({ "query": "select * from secret_t" });
    let (_, refused) = bob.ask("POST", "query", Some(&query));
    assert!(!refused.to_string().contains("subscribe"), "{refused}");
    assert_eq!(bob.get("tables"), json!([]));

    let made = subscribe(&bob, "deposits", 200);
    assert_eq!(made, json!({ "project": "Deposits", "tables": ["program_1_t"] }));
    assert_eq!(subscribe(&bob, "DEPOSITS", 200), made);
    wait_for_rows(&bob, "deposits_t", 3);
    assert_eq!(bob.query("select max(v) m from deposits.t"), [json!({ "m": 3 })]);
    let entry =
        json!({ "table_name": "program_1_t", "project_name_plain": "Deposits", "own": false });
    assert_eq!(bob.get("tables"), json!([entry]));
    for project in ["secret", "nothing"] {
        let refused = subscribe(&bob, project, 404);
        assert!(refused["error"].as_str().unwrap().contains(project), "{refused}");
    }
    subscribe(&ana, "deposits", 400);
    assert_eq!(bob.ask("POST", "subscribe", Some(&json!({}))).0, 400);

    // The subscription is stored before the request is answered.
    drop(service);
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    wait_for_rows(&bob, "deposits_t", 3);
    let ended = bob.post("unsubscribe", &json!({ "project": "deposits" }));
    assert_eq!(ended, json!({ "unsubscribed": "Deposits" }));
    assert_eq!(bob.post("unsubscribe", &json!({ "project": "deposits" })), ended);
    assert!(bob.query("show tables").is_empty());
    // The subscription ends when the program is deleted.
    subscribe(&bob, "deposits", 200);
    wait_for_rows(&bob, "deposits_t", 3);
    assert_eq!(ana.ask("DELETE", "1", None).0, 200);
    bob.wait("the tables go", |it| it.query("show tables").is_empty());
    ana.post("deploy", &emitter("deposits", contract, true));
    assert_eq!(bob.get("tables"), json!([]));
}

#[test]
fn a_subscribed_program_over_the_readers_size_limit_is_left_out() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let settings = [("ORRERY_PROGRAMS_OWNER_MIB", "1")];
    let service = Service::start_with(scene.path(), &settings);
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    ana.post("deploy", &emitter("large", contract, true));
    bob.post("deploy", &emitter("own", contract, false));
    subscribe(&bob, "large", 200);
    let long = "x".repeat(30_000);
    (0..12).for_each(|_| drop(chain.call(contract, "emit", emit(string(&long)))));
    chain.import_into(&scene);
    wait_for_rows(&bob, "own_t", 12);
    wait_for_rows(&bob, "large_t", 12);
    // From here on both programs together exceed 1 MiB; the owner's own rows take precedence.
    (0..12).for_each(|_| drop(chain.call(contract, "emit", emit(string(&long)))));
    chain.import_into(&scene);
    bob.wait("it is left out", |it| {
        it.get("tables").as_array().unwrap().iter().any(|table| table["problem"].is_string())
    });
    wait_for_rows(&bob, "own_t", 24);
    wait_for_rows(&ana, "large_t", 24);
    let gone = json!({ "query": "from large_t" });
    bob.wait("its rows are not there", |it| it.ask("POST", "query", Some(&gone)).0 == 422);
    assert_eq!(bob.get("2/status")["running"], true);
}

#[test]
fn programs_and_subscriptions_per_owner_are_limited() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let settings =
        [("ORRERY_PROGRAMS_OWNER_PROGRAMS", "3"), ("ORRERY_PROGRAMS_OWNER_SUBSCRIPTIONS", "2")];
    let service = Service::start_with(scene.path(), &settings);
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    for number in 1..=3 {
        ana.post("deploy", &emitter(&format!("p{number}"), contract, true));
    }
    let (status, refused) = ana.ask("POST", "deploy", Some(&emitter("p4", contract, true)));
    assert_eq!((status, &refused["code"]), (409, &json!("too_many_programs")), "{refused}");
    bob.post("deploy", &emitter("bobs", contract, false));
    for project in ["p1", "p2", "p1"] {
        subscribe(&bob, project, 200);
    }
    let refused = subscribe(&bob, "p3", 409);
    assert_eq!(refused["code"], "too_many_subscriptions", "{refused}");
    bob.post("unsubscribe", &json!({ "project": "p1" }));
    subscribe(&bob, "p3", 200);
    assert_eq!(ana.ask("DELETE", "1", None).0, 200);
    ana.post("deploy", &emitter("p4", contract, true));
}

#[test]
fn the_read_scope_does_not_allow_subscribing() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    scene.owner(&service, "ana").post("deploy", &emitter("p", contract, true));
    let token = token_with(scene.path(), "bob", &["--scope", "read"]);
    let asked = HTTP
        .post(format!("{}/rest/retroshade/subscribe", service.base))
        .bearer_auth(token)
        .json(&json!({ "project": "p" }));
    assert_eq!(asked.send().unwrap().status(), 403);
}

#[test]
fn querying_without_a_subscription_returns_no_rows_of_others() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    for number in 1..=5 {
        ana.post("deploy", &emitter(&format!("p{number}"), contract, true));
    }
    assert_eq!(bob.query("select 1 as one"), [json!({ "one": 1 })]);
    chain.call(contract, "emit", emit(ScVal::U32(1)));
    chain.import_into(&scene);
    wait_for_rows(&ana, "p5_t", 1);
    let seen = "select table_name from information_schema.tables where table_schema = 'retroshade'";
    assert!(bob.query(seen).is_empty());
    assert_eq!(bob.get("tables"), json!([]));
    let component = health(&service)["components"]["tables"].clone();
    assert_eq!(component["status"], "up", "{component}");
}

/// Changes the stored manifest of a program. The service must not be running.
fn with_manifest(scene: &Scene, id: u32, change: impl Fn(String) -> String) {
    use orrery::domain::{Network, ProgramId};
    use orrery::programs::storage;
    use orrery::store::Store;
    let network = Network::from_passphrase(crate::service::PASSPHRASE);
    let store = Store::open_with(scene.path(), Some(&network), storage::extensions()).unwrap();
    let manifests = storage::manifests(&store).unwrap();
    let (_, manifest) = manifests.into_iter().find(|(it, _)| it.0 == id).unwrap();
    let manifest = change(String::from_utf8(manifest).unwrap());
    storage::change(&store, |it| it.put(&storage::manifest(ProgramId(id)), manifest)).unwrap();
}

/// The directory of an owner's tables.
fn tables_of(scene: &Scene, owner: &str) -> std::path::PathBuf {
    let found = std::fs::read_dir(scene.path().join("tables")).unwrap();
    let mut directories = found.map(|entry| entry.unwrap().path());
    let is = |path: &Path| std::fs::read_to_string(path.join("owner")).unwrap() == owner;
    directories.find(|path| is(path)).unwrap()
}

#[test]
fn tables_ahead_of_the_store_are_rebuilt() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &emitter("p", contract, false));
    (1..=3).for_each(|n| drop(chain.call(contract, "emit", emit(ScVal::U32(n)))));
    chain.import_into(&scene);
    wait_for_rows(&ana, "p_t", 3);
    drop(service);
    // A backup of the store without the tables, which are derived.
    let copy = |from: &Path, to: &Path| {
        let done = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status();
        assert!(done.unwrap().success());
    };
    let backup = tempfile::tempdir().unwrap();
    for name in ["raw", "acknowledged"] {
        copy(&scene.path().join(name), backup.path());
    }
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    (10..=15).for_each(|n| drop(chain.call(contract, "emit", emit(ScVal::U32(n)))));
    chain.import_into(&scene);
    wait_for_rows(&ana, "p_t", 9);
    drop(service);
    std::fs::remove_dir_all(scene.path().join("raw")).unwrap();
    for name in ["raw", "acknowledged"] {
        copy(&backup.path().join(name), scene.path());
    }
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    wait_for_rows(&ana, "p_t", 3);
    assert_eq!(ana.query("select sum(v) s from p_t"), [json!({ "s": 6 })]);
    assert!(tables_of(&scene, "ana").join("db").exists());
}

#[test]
fn unreadable_rows_are_skipped_and_reported_by_their_program() {
    let mut chain = Chain::new();
    let (one, other) =
        (chain.create_of(&silent(), Vec::new()), chain.create_of(&silent(), Vec::new()));
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &emitter("bad", one, true));
    ana.post("deploy", &emitter("good", other, false));
    chain.call(one, "emit", emit(list([ScVal::U32(1)])));
    chain.call(other, "emit", emit(ScVal::U32(1)));
    chain.import_into(&scene);
    wait_for_rows(&ana, "bad_t", 1);
    wait_for_rows(&ana, "good_t", 1);
    drop(service);
    // The stored column type does not fit the rows, and the DuckDB file is lost.
    with_manifest(&scene, 1, |manifest| {
        let changed = manifest.replace(r#""kind":{"list":"u_int32"}"#, r#""kind":"boolean""#);
        assert_ne!(changed, manifest, "there is a column of this type");
        changed
    });
    std::fs::remove_dir_all(tables_of(&scene, "ana")).unwrap();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    bob.post("deploy", &emitter("bobs", other, false));
    subscribe(&bob, "bad", 200);
    wait_for_rows(&ana, "good_t", 1);
    chain.call(other, "emit", emit(ScVal::U32(2)));
    chain.import_into(&scene);
    wait_for_rows(&ana, "good_t", 2);
    wait_for_rows(&bob, "bobs_t", 1);
    let status = ana.get("1/status");
    let message = status["last_error_message"].as_str().unwrap();
    assert!(message.starts_with("its rows cannot be written to its tables"), "{message}");
    ana.wait("health reports it", |_| {
        health(&service)["components"]["tables"]["detail"].is_string()
    });
    let component = health(&service)["components"]["tables"].clone();
    assert_eq!(component["status"], "up", "{component}");
    let reason = component["detail"].as_str().unwrap();
    assert!(reason.starts_with("rows of 1 program cannot be written"), "{reason}");
    assert_eq!(ready(&service), 200);
    assert!(!scene.path().to_str().is_some_and(|path| message.contains(path)), "{message}");
    let tables = ana.get("tables");
    let problem = tables[0]["problem"].as_str().unwrap();
    assert!(problem.contains("status says why"), "{tables}");
}

/// Ids of the worker processes of an owner's tables.
fn workers(scene: &Scene, owner: &str) -> Vec<String> {
    let place = tables_of(scene, owner);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let its = processes.filter(|process| {
        std::fs::read_link(process.path().join("cwd")).is_ok_and(|at| at.starts_with(&place))
    });
    its.map(|process| process.file_name().into_string().unwrap()).collect()
}

#[test]
fn a_hanging_worker_delays_only_its_owner() {
    let mut chain = Chain::new();
    let contract = chain.create_of(&silent(), Vec::new());
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    ana.post("deploy", &emitter("anas", contract, false));
    bob.post("deploy", &emitter("bobs", contract, false));
    chain.call(contract, "emit", emit(ScVal::U32(1)));
    chain.import_into(&scene);
    wait_for_rows(&ana, "anas_t", 1);
    wait_for_rows(&bob, "bobs_t", 1);
    let stopped = workers(&scene, "ana");
    assert_eq!(stopped.len(), 1);
    let signal = |name: &str| {
        let done = std::process::Command::new("kill").args([name, &stopped[0]]).status();
        assert!(done.unwrap().success());
    };
    signal("-STOP");
    for number in 2..=5 {
        chain.call(contract, "emit", emit(ScVal::U32(number)));
        chain.import_into(&scene);
        wait_for_rows(&bob, "bobs_t", number as usize);
    }
    assert_eq!(ready(&service), 200);
    signal("-CONT");
    wait_for_rows(&ana, "anas_t", 5);
}
