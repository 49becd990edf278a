//! Names of events, by readers that are answered once: what is stored of a contract's code is in the
//! first answer, or the answer says that it is not. Contracts that were quiet for many ledgers, ledgers
//! that were imported while no service ran, and code that another server supplies later.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use orrery::domain::{ContractId, Network};
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::exported::{Lake, export};
use crate::network::{Chain, call};
use crate::service::{Owner, PASSPHRASE, Scene};
use crate::service_projects::{emitting, watch};
use crate::state::timeline;
use crate::state_sections::Section;
use crate::state_upstream::rpc_answer;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::exported::columns_of_events;
use orrery_testkit::provider::{Provider, Reply};
use orrery_testkit::specs::{SingleValue, Type, event};
use orrery_testkit::upgraded::with_interface;
use orrery_testkit::values::{list, symbol};
use orrery_testkit::wait::wait_until;

/// Number of contracts, each with code of its own.
const CONTRACTS: u32 = 8;
/// Number of ledgers without events: more than a service looks through after its start.
const QUIET: u32 = 80;

/// A network with contracts that declare their events.
struct Quiet {
    chain: Chain,
    contracts: Vec<ContractId>,
}

impl Quiet {
    /// Creates the contracts. Each emits an event; then nothing happens for many ledgers.
    fn new() -> Self {
        let mut chain = Chain::new();
        let contracts = (0..CONTRACTS).map(|number| {
            let declared = event(
                &format!("said_{number}"),
                &["said"],
                &[],
                SingleValue,
                &[("value", Type::U32)],
            );
            chain.create_of(&with_interface(emitting(), &[declared]), Vec::new())
        });
        let contracts = contracts.collect();
        let mut quiet = Self { chain, contracts };
        quiet.speak();
        (0..QUIET).for_each(|_| drop(quiet.chain.close(&[])));
        quiet
    }

    /// Closes a ledger in which each contract emits an event.
    fn speak(&mut self) {
        let arguments = vec![list([symbol("said")]), ScVal::U32(7)];
        let calls =
            self.contracts.iter().map(|contract| call(*contract, "emit", arguments.clone()));
        let calls: Vec<_> = calls.collect();
        self.chain.close(&calls);
    }

    /// The name of a contract's events.
    fn name(&self, contract: &str) -> String {
        let position = self.contracts.iter().position(|it| it.to_string() == contract);
        format!("said_{}", position.unwrap())
    }

    /// Asserts that an event has its name; returns false if it says that the name is yet to come.
    fn has_name(&self, event: &Value) -> bool {
        let decoded = &event["decoded"];
        if decoded["names_pending"] == true {
            return false;
        }
        let name = self.name(event["contract_id"].as_str().unwrap());
        assert_eq!(decoded["name"], name, "{event}");
        assert_eq!(decoded["params"], json!({ "value": 7 }), "{event}");
        true
    }

    /// Asserts that events have their names, or say that they are yet to come. Returns whether most have
    /// them: a machine that is very busy may owe some.
    fn most_have_names(&self, events: &[Value]) -> bool {
        assert_eq!(events.len(), self.contracts.len());
        let named = events.iter().filter(|event| self.has_name(event)).count();
        2 * named > events.len()
    }
}

fn get(owner: &Owner, path: &str) -> Value {
    let answer = HTTP.get(owner.base(path)).bearer_auth(owner.token()).send().unwrap();
    assert_eq!(answer.status(), 200, "{path}");
    answer.json().unwrap()
}

/// The events of a stream; the first message has been received when this returns.
fn stream(owner: &Owner, from: Option<&str>) -> impl Iterator<Item = Value> + use<> {
    let mut request = HTTP.get(owner.base("/rest/events/stream?decoded=true"));
    request = request.bearer_auth(owner.token());
    if let Some(from) = from {
        request = request.header("Last-Event-ID", from);
    }
    let mut lines = BufReader::new(request.send().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("id: ")));
    lines.filter_map(|line| Some(serde_json::from_str(line.strip_prefix("data: ")?).unwrap()))
}

#[test]
fn readers_that_are_answered_once_have_the_names_of_quiet_contracts() {
    // Other tests may take the processors for the second in which an answer waits for names.
    assert!((0..3).any(|_| most_readers_have_names()));
}

/// Returns whether most events had their names in each of the answers.
fn most_readers_have_names() -> bool {
    let mut quiet = Quiet::new();
    let scene = Scene::new();
    quiet.chain.import_into(&scene);
    let count = quiet.contracts.len();
    // From the beginning, while the index processes the imported ledgers.
    {
        let service = Service::start(scene.path());
        let ana = scene.owner(&service, "ana");
        let streamed: Vec<Value> = stream(&ana, Some("0")).take(count).collect();
        if !quiet.most_have_names(&streamed) {
            return false;
        }
    }
    // Lists: nothing is in memory after a start.
    {
        let service = Service::start(scene.path());
        let ana = scene.owner(&service, "ana");
        let listed = get(&ana, "/rest/events/by-ledger?decoded=true");
        let most_are_named = quiet.most_have_names(listed.as_array().unwrap());
        let path = |contract| format!("/rest/events/by-contract/{contract}?decoded=true");
        for contract in &quiet.contracts {
            // What was owed is there when it is asked for again.
            wait_until("it has a name", || quiet.has_name(&get(&ana, &path(contract))[0]));
        }
        if !most_are_named {
            return false;
        }
    }
    // New events of contracts that were quiet.
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let live = stream(&ana, None);
    quiet.speak();
    quiet.chain.import_into(&scene);
    let streamed: Vec<Value> = live.take(count).collect();
    quiet.most_have_names(&streamed)
}

#[test]
fn a_replay_right_after_a_start_has_names() {
    let mut quiet = Quiet::new();
    (0..20).for_each(|_| quiet.speak());
    let newest = quiet.chain.latest();
    let scene = Scene::new();
    quiet.chain.import_into(&scene);
    let receiver = Provider::start(|_| Reply::status(200));
    let settings = [("ORRERY_WEBHOOKS_ALLOW_SUBNETS", "127.0.0.0/8")];
    let service = Service::start_with(scene.path(), &settings);
    let ana = scene.owner(&service, "ana");
    let post = |path: &str, body: &Value| {
        HTTP.post(ana.base(path)).bearer_auth(ana.token()).json(body).send().unwrap()
    };
    let contracts: Vec<_> = quiet.contracts.iter().map(ToString::to_string).collect();
    let subscription = json!({
        "contract_ids": contracts,
        "webhook_endpoint": receiver.url("/"),
        "webhook_secret": "a secret of the test",
    });
    let subscribed = post("/rest/webhooks/new", &subscription);
    assert_eq!(subscribed.status(), 200, "{}", subscribed.text().unwrap());
    for id in 1..=contracts.len() {
        let mut from = 2;
        loop {
            let range = json!({ "from": from, "to": newest });
            let answer = post(&format!("/rest/webhooks/{id}/replay"), &range);
            if answer.status() == 503 {
                assert!(answer.headers().contains_key("retry-after"));
                continue;
            }
            let answer: Value = answer.json().unwrap();
            match answer["next"].as_u64() {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    let expected = 21 * contracts.len();
    let bodies = wait_until("all are delivered", || {
        let bodies = receiver.requests().into_iter().map(|it| it.body);
        let bodies: Vec<Value> = bodies.map(|it| serde_json::from_slice(&it).unwrap()).collect();
        if bodies.len() >= expected { Ok(bodies) } else { Err(bodies.len()) }
    });
    for body in bodies {
        let event = &body["event"];
        let name = quiet.name(event["contract_id"].as_str().unwrap());
        assert_eq!((&event["name"], &event["params"]), (&json!(name), &json!({ "value": 7 })));
    }
}

#[test]
fn an_export_without_a_service_has_names() {
    let mut quiet = Quiet::new();
    let scene = Scene::new();
    quiet.chain.import_into(&scene);
    let lake = Lake::directory(scene.path().join("lake"));
    assert_eq!(export(&scene, &lake, &[])["new_events"], quiet.contracts.len());
    let rows = columns_of_events(&lake.directory, &["id", "ledger", "contract_id", "name"]);
    assert_eq!(rows.len(), quiet.contracts.len());
    for row in rows {
        assert_eq!(row["name"], quiet.name(row["contract_id"].as_str().unwrap()));
    }
    // Ledgers that were exported stay as they are.
    assert_eq!(export(&scene, &lake, &[])["new_ledgers"], 0);
}

/// An archive into which no ledger comes, of contracts that are older than its ledgers.
#[test]
fn the_answer_of_a_server_reaches_the_tables_of_an_archive() {
    let mut quiet = Quiet::new();
    quiet.speak();
    let all = quiet.chain.take_unsaved();
    let section = Section {
        name: "quiet".to_owned(),
        network: Network::from_passphrase(PASSPHRASE),
        from_genesis: true,
        ledgers: (2..).zip(all.iter().cloned()).collect::<BTreeMap<u32, _>>(),
    };
    assert_eq!(section.last(), quiet.chain.latest());
    let (model, latest) = (timeline(&section), section.last());
    let may_answer = Arc::new(AtomicBool::new(false));
    let server = Provider::start({
        let may_answer = Arc::clone(&may_answer);
        move |request| match may_answer.load(Ordering::Relaxed) {
            true => rpc_answer(&model, latest, request),
            false => Reply::status(503),
        }
    });
    let scene = Scene::new();
    scene.import_ledgers(&all[all.len() - 2..]);
    let address = format!("rpc:http://{}/", server.address());
    let service = Service::start_with(scene.path(), &[("ORRERY_PROGRAMS_RPC", &address)]);
    let ana = scene.owner(&service, "ana");
    let count = quiet.contracts.len();
    watch(&ana, "late", &quiet.contracts);
    ana.wait_for_rows("late_events", count);
    let declared = || -> BTreeSet<String> {
        let rows = ana.try_query("select distinct _declared d from late.said");
        let rows = rows.unwrap_or_default();
        rows.iter().map(|row| row["d"].as_str().unwrap().to_owned()).collect()
    };
    ana.wait("nothing is known of the contracts", |_| {
        declared() == BTreeSet::from(["inferred".to_owned()])
    });
    // A page says that more may come, and does not wait for the server.
    let begun = Instant::now();
    let listed = get(&ana, "/rest/events/by-ledger?decoded=true");
    assert!(listed.as_array().unwrap().iter().all(|it| it["decoded"]["names_pending"] == true));
    assert!(begun.elapsed() < Duration::from_secs(60));
    ana.wait("the server was asked", |_| !server.requests().is_empty());
    may_answer.store(true, Ordering::Relaxed);
    let named = (0..CONTRACTS).map(|number| format!("late.said_{number}"));
    for table in named {
        ana.wait_for_rows(&table, 1);
    }
    let rows = ana.query("select count(*) n, count(name) named from late.events");
    assert_eq!(rows, [json!({ "n": count, "named": count })]);
    wait_until("the list has names", || {
        let listed = get(&ana, "/rest/events/by-ledger?decoded=true");
        listed.as_array().unwrap().iter().all(|event| quiet.has_name(event))
    });
}
