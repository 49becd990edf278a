//! Programs that are replaced while their tables are queried, and while the service is killed: each
//! answer is wholly of one version, and no query by the project's name is refused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use orrery::domain::ContractId;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::Chain;
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use orrery_testkit::binary::{Ran, Service, orrery};
use orrery_testkit::engine_world::module;
use orrery_testkit::size;
use orrery_testkit::values::{fields, symbol};
use orrery_testkit::wasm_text::{env_call, imports, map_of, sym, u32v, void};

/// Every column of both tables of a version, as one row: which versions the rows are of, and how
/// many there are.
const ALL: &str = "select min(a.v) a, max(a.v) b, min(c.v) c, max(c.v) d, \
                   count(distinct a._service_event_id) n, count(distinct c._service_event_id) m \
                   from vault_t a, vault.u c";

/// A version of a program that emits its number into two tables.
fn version(number: u32) -> Vec<u8> {
    let row = map_of(&[("v", u32v(number))]);
    let emits = ["t", "u"].map(|table| env_call("emit", &[sym(table), row.clone()]));
    program(&emits.map(|emit| format!("(drop {emit})")).concat())
}

fn program(body: &str) -> Vec<u8> {
    module(&format!(
        "{} (memory (export \"memory\") 1)
         (func (export \"emit\") (param i64 i64) (result i64) {body} {})",
        imports(),
        void()
    ))
}

/// A version whose runs take long.
fn slow() -> Vec<u8> {
    program("(loop (br 0))")
}

/// A network with one contract, a data directory, and calls that the data directory has.
struct World {
    chain: Chain,
    contract: ContractId,
    scene: Scene,
    calls: u64,
}

impl World {
    fn new() -> Self {
        let mut chain = Chain::new();
        let contract = chain.create_of(&silent(), Vec::new());
        let mut world = Self { chain, contract, scene: Scene::new(), calls: 0 };
        world.calls(1);
        world
    }

    /// Stores ledgers with this number of calls.
    fn calls(&mut self, calls: u64) {
        for _ in 0..calls {
            let arguments = vec![symbol("t"), fields([("v", ScVal::U32(0))])];
            self.chain.call(self.contract, "emit", arguments);
        }
        self.chain.import_into(&self.scene);
        self.calls += calls;
    }

    fn deploy(&self, code: &[u8]) -> Value {
        let contracts = [self.contract.to_string()];
        json!({ "code": code, "project_name": "vault", "contracts": contracts, "public": true })
    }

    fn owner(&self, service: &Service, name: &str) -> Owner {
        self.scene.owner(service, name)
    }
}

/// Asks for the project to be replaced, without naming its contracts; returns the new id.
fn replace(owner: &Owner, code: &[u8]) -> u64 {
    let body = json!({ "code": code, "project_name": "vault", "replace": true });
    let deployed = owner.post("deploy", &body);
    assert_eq!((&deployed["replaces"], &deployed["project_name"]), (&json!("vault"), &json!("")));
    deployed["id"].as_u64().unwrap()
}

/// The programs of an owner: the id of the one with the name, and of the one that is to replace it.
fn listed(owner: &Owner) -> (u64, Option<u64>) {
    let list = owner.get("list");
    let list = list.as_array().unwrap();
    let id = |it: &Value| it["id"].as_u64().unwrap();
    let named: Vec<u64> = list.iter().filter(|it| it["project_name"] == "vault").map(id).collect();
    let new: Vec<u64> = list.iter().filter(|it| it["replaces"] == "vault").map(id).collect();
    assert_eq!((named.len(), named.len() + new.len()), (1, list.len()), "{list:?}");
    (named[0], new.first().copied())
}

fn wait_replaced(owner: &Owner, id: u64) {
    owner.wait("it is replaced", |it| listed(it) == (id, None));
}

/// The version that all rows of an answer are of, and their number.
fn read(answer: &Value) -> (u64, u64) {
    let row = &answer[0];
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| row[name].as_u64());
    assert!(a == b && b == c && c == d && row["n"] == row["m"], "it is mixed: {answer}");
    (a.unwrap_or(0), row["n"].as_u64().unwrap())
}

/// Queries until `over`, and counts. Versions and rows never go back.
fn ask(owner: &Owner, over: &AtomicBool, asked: &AtomicU64) {
    let mut last = (0, 0);
    while !over.load(Ordering::Relaxed) {
        let (status, answer) = owner.ask("POST", "query", Some(&json!({ "query": ALL })));
        assert_eq!(status, 200, "after {last:?}: {answer}");
        let now = read(&answer);
        assert!(now.0 >= last.0 && now.1 >= last.1, "{last:?}, then {now:?}");
        last = now;
        asked.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lists programs until `over`: one has the name at any moment.
fn list(owner: &Owner, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        listed(owner);
    }
}

/// Sets a flag when it is dropped, also by a failed assertion.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn queries_are_answered_from_one_version_while_programs_are_replaced() {
    let mut world = World::new();
    let service = Service::start(world.scene.path());
    let (ana, bob) = (world.owner(&service, "ana"), world.owner(&service, "bob"));
    let mut id = ana.post("deploy", &world.deploy(&version(1)))["id"].as_u64().unwrap();
    ana.post("1/backfill", &json!({ "from": 2 }));
    bob.post("subscribe", &json!({ "project": "vault" }));
    world.calls(5);
    for owner in [&ana, &bob] {
        owner.wait_for_rows("vault_u", world.calls as usize);
    }
    let most = size::choose(400, 10_000);
    let (over, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut number = 1;
    thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        let asking = [&ana, &ana, &bob, &bob];
        let mut clients = Vec::from(asking.map(|owner| scope.spawn(|| ask(owner, &over, &asked))));
        clients.push(scope.spawn(|| list(&ana, &over)));
        while number < 5 || asked.load(Ordering::Relaxed) < most {
            number += 1;
            id = replace(&ana, &version(number));
            // The contract lives for a limited number of ledgers.
            if world.chain.latest() < 100 {
                world.calls(2);
            }
            ana.wait("it is replaced", |it| {
                assert!(!clients.iter().any(thread::ScopedJoinHandle::is_finished));
                listed(it) == (id, None)
            });
        }
    });
    println!("{} queries during {} replacements", asked.load(Ordering::Relaxed), number - 1);
    for owner in [&ana, &bob] {
        owner.wait("the last version is read", |it| {
            let answer = Value::from(it.query(ALL));
            read(&answer) == (u64::from(number), world.calls)
        });
        let tables = Value::from(owner.query("show tables")).to_string();
        assert!(!tables.contains(&format!("program_{}_", id - 1)), "{tables}");
    }
    let entries = bob.get("tables");
    let names: Vec<_> =
        entries.as_array().unwrap().iter().map(|it| it["table_name"].clone()).collect();
    assert_eq!(names, [json!(format!("program_{id}_t")), json!(format!("program_{id}_u"))]);
}

#[test]
fn a_kill_during_a_replacement_leaves_the_old_or_the_new_version() {
    let mut world = World::new();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut service = Service::start(world.scene.path());
    {
        let ana = world.owner(&service, "ana");
        ana.post("deploy", &world.deploy(&version(1)));
        ana.post("1/backfill", &json!({ "from": 2 }));
        world.owner(&service, "bob").post("subscribe", &json!({ "project": "vault" }));
        world.calls(20);
        ana.wait_for_rows("vault_u", world.calls as usize);
    }
    // How long a replacement takes.
    let begun = Instant::now();
    wait_replaced(
        &world.owner(&service, "ana"),
        replace(&world.owner(&service, "ana"), &version(2)),
    );
    let whole = begun.elapsed();
    let mut number = 2;
    let (mut old, mut new) = (0, 0);
    for _ in 0..size::choose(6, 100) {
        let ana = world.owner(&service, "ana");
        let (named, replacement) = listed(&ana);
        let asked = replacement.unwrap_or_else(|| {
            number += 1;
            replace(&ana, &version(number))
        });
        thread::sleep(whole.mul_f64(rng.random_range(0.0..1.5)));
        drop(service);
        service = Service::start(world.scene.path());
        let (ana, bob) = (world.owner(&service, "ana"), world.owner(&service, "bob"));
        let (after, replacement) = listed(&ana);
        assert!(
            after == named && replacement == Some(asked) || (after, replacement) == (asked, None)
        );
        *(if after == named { &mut old } else { &mut new }) += 1;
        for owner in [&ana, &bob] {
            let (version, rows) = read(&Value::from(owner.query(ALL)));
            // The replacement goes on, so that the version may be the new one by now.
            assert!([number - 1, number].contains(&(version as u32)), "{version}");
            assert_eq!(rows, world.calls);
        }
    }
    println!("killed: the old version {old} times, the new one {new} times");
    let ana = world.owner(&service, "ana");
    ana.wait("the last is replaced", |it| listed(it).1.is_none());
    world.calls(1);
    ana.wait("the last version is read", |it| {
        read(&Value::from(it.query(ALL))) == (u64::from(number), world.calls)
    });
}

#[test]
fn a_replacement_is_refused_cancelled_or_fails_without_a_trace() {
    let mut world = World::new();
    let settings = [("ORRERY_PROGRAMS_OWNER_PROGRAMS", "1")];
    let service = Service::start_with(world.scene.path(), &settings);
    let (ana, bob) = (world.owner(&service, "ana"), world.owner(&service, "bob"));
    ana.post("deploy", &world.deploy(&version(1)));
    ana.post("1/backfill", &json!({ "from": 2 }));
    ana.wait_for_rows("vault_u", world.calls as usize);
    let body =
        |project: &str| json!({ "code": version(2), "project_name": project, "replace": true });
    let refused = |owner: &Owner, path: &str, body: &Value, status: u16, code: &str, part: &str| {
        let (got, refusal) = owner.ask("POST", path, Some(body));
        let sentence = refusal["error"].as_str().unwrap_or_default();
        assert_eq!((got, &refusal["code"]), (status, &json!(code)), "{refusal}");
        assert!(sentence.contains(part), "{refusal}");
    };
    refused(&ana, "deploy", &body("nothing"), 404, "not_found", "no project 'nothing'");
    refused(&bob, "deploy", &body("vault"), 409, "not_your_project", "belongs to another owner");
    world.calls(20);
    let id = replace(&ana, &slow());
    let (named, replacement) = listed(&ana);
    assert_eq!(replacement, Some(id));
    let by = format!("program {id} is about to replace the project 'vault'");
    refused(&ana, "deploy", &body("vault"), 409, "replacement_running", &by);
    let again = world.deploy(&version(3));
    refused(&ana, "deploy", &again, 409, "project_exists", "give 'replace' to replace it");
    refused(&bob, "deploy", &again, 409, "project_exists", "is taken on this network");
    for program in [named, id] {
        let append = json!({ "program_id": program, "contracts": [world.contract.to_string()] });
        refused(&ana, "append-contracts", &append, 409, "replacement_running", &by);
        let path = format!("{program}/backfill");
        refused(&ana, &path, &json!({ "from": 2 }), 409, "replacement_running", &by);
    }
    assert_eq!(ana.get(&format!("{id}/status"))["replaces"], "vault");
    assert_eq!(ana.ask("DELETE", &format!("{id}/backfill"), None).0, 409);
    assert_eq!(ana.post(&format!("{id}/pause"), &json!({}))["replaces"], "vault");
    assert_eq!(ana.post(&format!("{named}/pause"), &json!({}))["running"], false);
    assert_eq!(ana.post(&format!("{named}/resume"), &json!({}))["running"], true);
    assert_eq!(ana.ask("DELETE", &id.to_string(), None), (200, json!({ "deleted": id })));
    assert_eq!(listed(&ana), (named, None));
    ana.wait_for_rows("vault_u", world.calls as usize);
    assert_eq!(read(&Value::from(ana.query(ALL))), (1, world.calls));
    // One that always fails is stopped, and goes.
    world.calls(85);
    let before = ana.query(ALL);
    let id = replace(&ana, &program("unreachable"));
    ana.wait("it is given up", |it| it.ask("GET", &format!("{id}/status"), None).0 == 404);
    assert_eq!(listed(&ana), (named, None));
    let status = ana.get(&format!("{named}/status"));
    let because = status["replacement_failed"].as_str().unwrap();
    let expected = format!("program {id} did not replace it: stopped after 100 failures in a row");
    assert!(because.starts_with(&expected), "{because}");
    assert_eq!(status["running"], true);
    ana.wait_for_rows("vault_u", world.calls as usize);
    assert_eq!(read(&Value::from(ana.query(ALL))).0, read(&Value::from(before)).0);
}

/// Runs `orrery` as an owner.
fn command(owner: &Owner, arguments: &[&str]) -> Ran {
    let mut command = orrery();
    command.args(arguments).env("ORRERY_BASE", owner.base("/rest"));
    command.env("ORRERY_JWT", owner.token()).output().unwrap().into()
}

#[test]
fn the_command_line_waits_until_a_program_is_replaced() {
    let mut world = World::new();
    let service = Service::start(world.scene.path());
    let ana = world.owner(&service, "ana");
    ana.post("deploy", &world.deploy(&version(1)));
    world.calls(105);
    let file = |name: &str, code: Vec<u8>| {
        let path = world.scene.path().join(name);
        std::fs::write(&path, code).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let deploy = |path: &str, more: &[&str]| {
        let arguments = ["deploy", "--replace", "--project", "vault", "--code-path", path];
        command(&ana, &[&arguments[..], more].concat())
    };
    let next = file("next.wasm", version(2));
    let ran = deploy(&next, &[]);
    assert!(ran.stderr.contains("program 2 replaces program 1 of 'vault'"), "{}", ran.stderr);
    let replaced = ran.json();
    assert_eq!((&replaced["id"], &replaced["replaced"]), (&json!(2), &json!(1)));
    assert_eq!((&replaced["project_name"], &replaced["public"]), (&json!("vault"), &json!(true)));
    assert_eq!(listed(&ana), (2, None));
    assert_eq!(read(&Value::from(ana.query(ALL))), (2, 105));
    let failing = deploy(&file("failing.wasm", program("unreachable")), &[]);
    failing.refuses(1, &["'vault' is as before: program 3 did not replace it", "100 failures"]);
    let detached = deploy(&next, &["--no-wait"]).json();
    assert_eq!((&detached["id"], &detached["replaces"]), (&json!(4), &json!("vault")));
    wait_replaced(&ana, 4);
    let other = world.owner(&service, "bob");
    let arguments = ["deploy", "--replace", "--project", "vault", "--code-path", &next];
    command(&other, &arguments).refuses(1, &["the project 'vault' belongs to another owner"]);
    assert_eq!(command(&ana, &["deploy", "--project", "vault", "--code-path", &next]).code, 2);
}

#[test]
fn deleting_a_project_deletes_the_version_that_is_to_replace_it() {
    let mut world = World::new();
    let service = Service::start(world.scene.path());
    let ana = world.owner(&service, "ana");
    ana.post("deploy", &world.deploy(&version(1)));
    world.calls(20);
    ana.wait_for_rows("vault_u", 20);
    let id = replace(&ana, &slow());
    assert_eq!(listed(&ana), (1, Some(id)));
    assert_eq!(ana.ask("DELETE", "1", None).0, 200);
    assert_eq!(ana.get("list"), json!([]));
    ana.wait("the tables go", |it| it.query("show tables").is_empty());
    assert_eq!(ana.ask("GET", &format!("{id}/status"), None).0, 404);
}
