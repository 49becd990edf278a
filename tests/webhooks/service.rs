//! Webhooks from their owners' side: the built binary, its HTTP API, and a receiver.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use orrery::control::{Client, Ledgers, STORE};
use orrery::webhooks::signature;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::receiver::{Receiver, answer};
use orrery_testkit::binary::{Service, run, token, token_with};
use orrery_testkit::client::HTTP;
use orrery_testkit::sandbox::{ledgers, sandbox};
use orrery_testkit::scratch::scratch;
use orrery_testkit::wait::wait_until;

/// Ledgers 2 to 61 of a sandbox network.
pub static CHAIN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| chain(60, 4));

/// Generates ledgers of a sandbox network, from ledger 2 on, with at most `transactions`
/// transactions each.
pub fn chain(count: u32, transactions: usize) -> Vec<Vec<u8>> {
    ledgers(sandbox(13, 1..=transactions), count)
}

/// Allows deliveries to this machine, and indexes all kinds of events.
pub const SETTINGS: [(&str, &str); 3] = [
    ("ORRERY_WEBHOOKS_ALLOW_SUBNETS", "127.0.0.1/32"),
    ("ORRERY_INDEX_CLASSIC_EVENTS", "true"),
    ("ORRERY_INDEX_FEE_EVENTS", "true"),
];

/// Creates a data directory of the network `local`.
pub fn directory() -> TempDir {
    let directory = scratch();
    let issue = ["token", "issue", "--network", "local", "--data-dir", ".", "--sub", "first"];
    run(directory.path(), &issue).succeeded();
    directory
}

/// Makes the running service store these ledgers of [`CHAIN`], by their index in it.
pub fn store(directory: &Path, ledgers: std::ops::Range<usize>) {
    let mut client = Client::connect(directory).unwrap().expect("the service runs");
    client.ask(STORE, &Ledgers(CHAIN[ledgers].to_vec())).unwrap().unwrap();
}

/// A client with an owner's token.
pub struct Owner {
    pub base: String,
    pub token: String,
}

impl Owner {
    pub fn new(directory: &Path, service: &Service, name: &str) -> Self {
        Self { base: service.base.clone(), token: token(directory, name) }
    }

    fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), reqwest::Error> {
        let url = format!("{}/rest/{path}", self.base);
        let mut request = HTTP.request(method.parse().unwrap(), url).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send()?;
        Ok((answer.status().as_u16(), answer.json()?))
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let answered = self.try_ask(method, path, body);
        answered.unwrap_or_else(|error| panic!("{method} {path} is not answered: {error:?}"))
    }

    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, None);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub fn post(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.ask("POST", path, Some(body));
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

/// Returns the contract with the most of the events on one page of 1,000.
pub fn busiest(owner: &Owner) -> String {
    let events = owner.get("events/by-ledger?limit=1000");
    let mut counts = BTreeMap::<String, usize>::new();
    for event in events.as_array().unwrap() {
        *counts.entry(event["contract_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).unwrap().0
}

/// Returns the ids of a contract's events, oldest first.
pub fn events_of(owner: &Owner, contract: &str) -> Vec<u64> {
    let page = owner.get(&format!("events/by-contract/{contract}?order=asc&limit=1000"));
    page.as_array().unwrap().iter().map(|event| event["id"].as_u64().unwrap()).collect()
}

/// Returns the ids of all events by contract, oldest first.
pub fn all_events(owner: &Owner) -> BTreeMap<String, Vec<u64>> {
    let (mut all, mut last) = (BTreeMap::<String, Vec<u64>>::new(), 0);
    loop {
        let page = owner.get(&format!("events/by-ledger?order=asc&limit=1000&cursor={last}"));
        let Some(newest) = page.as_array().unwrap().last() else { return all };
        last = newest["id"].as_u64().unwrap();
        for event in page.as_array().unwrap() {
            let contract = event["contract_id"].as_str().unwrap().to_owned();
            all.entry(contract).or_default().push(event["id"].as_u64().unwrap());
        }
    }
}

#[test]
fn events_are_delivered_signed_in_order_and_their_outcomes_listed() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..20);
    let contract = busiest(&ana);
    let before = events_of(&ana, &contract);
    let receiver = Receiver::start(|_| answer(200));
    let new = json!({ "webhook_endpoint": receiver.url("/hook"), "contract_ids": [contract] });
    let made = ana.post("webhooks/new", &new);
    let (id, secret) = (made["ids"][0].as_u64().unwrap(), made["secret"].as_str().unwrap());
    assert!(secret.len() == 70 && secret.starts_with("whsec_"), "{secret}");
    let (status, body) = ana.ask("POST", "webhooks/new", Some(&new));
    assert_eq!((status, &body["code"]), (409, &json!("webhook_exists")));

    store(directory.path(), 20..60);
    let events = events_of(&ana, &contract);
    let new_events = &events[before.len()..];
    assert!(new_events.len() > 20);
    wait_until("all events arrive", || receiver.count() >= new_events.len());
    let received = receiver.received();
    let ids: Vec<u64> =
        received.iter().map(|it| it.json()["event"]["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, new_events, "those of ledgers that came after it was made, in order");
    let schema: Value =
        serde_json::from_str(include_str!("../../schema/webhook-delivery.schema.json")).unwrap();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let now = orrery::steady::unix_now();
    for one in &received {
        signature::verify(secret, |name| one.header(name), &one.body, now).unwrap();
        assert_eq!(one.header("content-type"), Some("application/json"));
        assert_eq!(one.path, "/hook");
        assert!(!one.id().contains('.'));
        let body = one.json();
        assert!(schema.is_valid(&body), "{body}");
        assert_eq!(body["event"]["contract_id"], json!(contract));
    }
    wait_until("all are noted", || {
        let done = ana.get(&format!("webhooks/{id}/deliveries?status=delivered&limit=1000"));
        done.as_array().unwrap().len() == new_events.len()
    });
    let listed = &ana.get("webhooks/list")[0];
    assert_eq!(listed["contract_id"], json!(contract));
    assert!(listed["topic1"].is_null() && listed["enabled"] == true);
    assert!(listed.get("secret").is_none() && !listed.to_string().contains(&secret[6..]));
    let page = ana.get(&format!("webhooks/{id}/deliveries?limit=3"));
    assert_eq!(page.as_array().unwrap().len(), 3);
    assert_eq!(page[0]["event_id"], json!(new_events.last()));
    assert_eq!(page[0]["attempts"][0]["status"], 200);
    let cursor = page[2]["delivery_id"].as_str().unwrap();
    let next = ana.get(&format!("webhooks/{id}/deliveries?limit=1&cursor={cursor}"));
    assert_eq!(next[0]["event_id"], json!(new_events[new_events.len() - 4]));

    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    let sent: BTreeMap<String, String> =
        received.iter().map(|it| (it.id(), text(&it.body))).collect();
    let page = ana.get(&format!("webhooks/{id}/deliveries?body=true&limit=1000"));
    let page = page.as_array().unwrap();
    assert_eq!(page.len(), 20, "bodies are shown of twenty at the most");
    for row in page {
        assert_eq!(row["body"], sent[row["delivery_id"].as_str().unwrap()], "as it was sent");
    }
    let one = page[3]["delivery_id"].as_str().unwrap();
    let one = ana.get(&format!("webhooks/{id}/deliveries?body=true&delivery_id={one}"));
    assert_eq!(one, json!([page[3]]));
    for query in ["", "?body=false"] {
        let row = &ana.get(&format!("webhooks/{id}/deliveries{query}"))[0];
        assert!(row.get("body").is_none(), "{query}");
    }
    let (status, refused) = ana.ask("GET", &format!("webhooks/{id}/deliveries?body=yes"), None);
    assert_eq!((status, &refused["code"]), (400, &json!("bad_parameter")));

    // Replays older ledgers, and then one delivery, under its id.
    let count = receiver.count();
    let replayed = ana.post(&format!("webhooks/{id}/replay"), &json!({ "from": 0, "to": 21 }));
    assert_eq!(replayed["deliveries"], json!(before.len()));
    wait_until("older events arrive", || receiver.count() == count + before.len());
    let replays: Vec<u64> = receiver.received()[count..]
        .iter()
        .map(|it| it.json()["event"]["id"].as_u64().unwrap())
        .collect();
    assert_eq!(replays, before);
    let once_more = json!({ "delivery_id": received[0].id() });
    ana.post(&format!("webhooks/{id}/replay"), &once_more);
    wait_until("it arrives again", || receiver.count() == count + before.len() + 1);
    assert_eq!(receiver.received().last().unwrap().body, received[0].body);
    assert_eq!(receiver.received().last().unwrap().id(), received[0].id());

    let test = ana.post(&format!("webhooks/{id}/test"), &json!({}));
    wait_until("the test arrives", || {
        receiver.received().last().unwrap().id() == test["delivery_id"]
    });
    let body = receiver.received().last().unwrap().json();
    assert!(schema.is_valid(&body) && body["test"] == true, "{body}");

    let count = receiver.count();
    let (status, body) = ana.ask("DELETE", &format!("webhooks/{id}"), None);
    assert_eq!((status, body), (200, json!({ "deleted": id })));
    assert_eq!(ana.get("webhooks/list"), json!([]));
    assert_eq!(ana.ask("DELETE", &format!("webhooks/{id}"), None).0, 404);
    assert_eq!(receiver.count(), count);
}

#[test]
fn subscriptions_are_private_to_their_owner_and_errors_explained() {
    let directory = directory();
    let settings = [&SETTINGS[..], &[("ORRERY_WEBHOOKS_OWNER_SUBSCRIPTIONS", "2")]].concat();
    let service = Service::start_with(directory.path(), &settings);
    let ana = Owner::new(directory.path(), &service, "ana");
    let bob = Owner::new(directory.path(), &service, "bob");
    store(directory.path(), 0..5);
    let contract = busiest(&ana);
    let new = |endpoint: &str| json!({ "webhook_endpoint": endpoint, "contract_ids": [contract] });
    let id = ana.post("webhooks/new", &new("http://127.0.0.1:9/a"))["ids"][0].clone();
    assert_eq!(bob.get("webhooks/list"), json!([]));
    for (method, path) in [
        ("DELETE", format!("webhooks/{id}")),
        ("GET", format!("webhooks/{id}/deliveries")),
        ("POST", format!("webhooks/{id}/replay")),
        ("POST", format!("webhooks/{id}/test")),
        ("POST", format!("webhooks/{id}/enable")),
    ] {
        let body = path.ends_with("replay").then(|| json!({ "from": 1, "to": 2 }));
        let (status, others) = bob.ask(method, &path, body.as_ref());
        let nobodys = path.replace(&id.to_string(), "77");
        let (_, unknown) = bob.ask(method, &nobodys, body.as_ref());
        assert_eq!(status, 404, "{others}");
        let as_unknown = others["error"].as_str().unwrap().replace(&id.to_string(), "77");
        assert_eq!(as_unknown, unknown["error"], "it is as if it were not there");
    }
    for denied in ["http://10.0.0.1/", "http://169.254.169.254/latest", "http://[::1]:8484/"] {
        let (status, body) = ana.ask("POST", "webhooks/new", Some(&new(denied)));
        assert_eq!((status, &body["code"]), (400, &json!("bad_request")), "{denied}");
        assert!(body["error"].as_str().unwrap().contains("webhook_endpoint"));
    }
    // A name that does not resolve is accepted, because every connection resolves it again.
    ana.post("webhooks/new", &new("http://nobody.invalid/"));
    let (status, body) = ana.ask("POST", "webhooks/new", Some(&new("http://127.0.0.1:9/c")));
    assert_eq!((status, &body["code"]), (409, &json!("too_many_webhooks")), "{body}");
    let reader = token_with(directory.path(), "ana", &["--scope", "read"]);
    let reader = Owner { base: ana.base.clone(), token: reader };
    assert_eq!(reader.ask("GET", "webhooks/list", None).0, 403);
}

/// A secret that its owner chose appears in no file, metric or response but that of its creation.
#[test]
fn secrets_appear_nowhere_but_in_the_creation_response() {
    const SECRET: &str = "a-most-secret-word-5eb1c7";
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..20);
    let contract = busiest(&ana);
    let receiver = Receiver::start(|_| answer(500));
    let new = json!({
        "webhook_endpoint": receiver.url("/"),
        "contract_ids": [contract],
        "webhook_secret": SECRET,
    });
    let made = ana.post("webhooks/new", &new);
    assert_eq!(made["secret"], SECRET);
    let twice = ana.ask("POST", "webhooks/new", Some(&new)).1.to_string();
    store(directory.path(), 20..40);
    wait_until("events arrive", || receiver.count() > 3);
    let id = &made["ids"][0];
    let shown = [
        twice,
        ana.get("webhooks/list").to_string(),
        ana.get(&format!("webhooks/{id}/deliveries")).to_string(),
        HTTP.get(format!("{}/metrics", ana.base)).send().unwrap().text().unwrap(),
        HTTP.get(format!("{}/rest/health", ana.base)).send().unwrap().text().unwrap(),
    ];
    assert!(shown[3].contains("orrery_webhook_subscriptions 1"), "{}", shown[3]);
    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
    drop(service);
    let mut files = vec![directory.path().to_owned()];
    let mut looked_at = 0;
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if let Ok(bytes) = std::fs::read(&path) {
            looked_at += 1;
            let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    assert!(looked_at > 5);
    // With another key the secret cannot be decrypted, and the subscription is disabled for that
    // reason.
    std::fs::remove_file(directory.path().join("secrets/webhook-secrets-key")).unwrap();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    ana.post(&format!("webhooks/{id}/test"), &json!({}));
    wait_until("it is disabled", || ana.get("webhooks/list")[0]["enabled"] == false);
    let reason = ana.get("webhooks/list")[0]["disabled_reason"].to_string();
    assert!(reason.contains("secret cannot be read"), "{reason}");
}

/// The list says since when a subscription fails and why, also after a restart, until a delivery arrives.
#[test]
fn the_list_says_since_when_a_subscription_fails_and_why() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..20);
    let contract = busiest(&ana);
    let is_well = Arc::new(AtomicBool::new(false));
    let now_well = Arc::clone(&is_well);
    let receiver =
        Receiver::start(move |_| answer(if now_well.load(Ordering::SeqCst) { 200 } else { 500 }));
    // Nothing listens at the second endpoint.
    for endpoint in [receiver.url("/"), "http://127.0.0.1:9/".to_owned()] {
        let new = json!({ "webhook_endpoint": endpoint, "contract_ids": [contract] });
        ana.post("webhooks/new", &new);
    }
    let failing = |ana: &Owner, at: usize| {
        let listed = ana.get("webhooks/list")[at].clone();
        [listed["failing_since"].clone(), listed["failing_reason"].clone()]
    };
    assert_eq!(failing(&ana, 0), [Value::Null, Value::Null]);
    store(directory.path(), 20..40);
    wait_until("both fail", || [0, 1].iter().all(|at| !failing(&ana, *at)[0].is_null()));
    let [since, reason] = failing(&ana, 0);
    assert_eq!(reason, "the endpoint answered 500");
    assert!(since.as_str().unwrap().ends_with('Z'));
    let unreachable = failing(&ana, 1)[1].clone();
    assert!(unreachable.as_str().unwrap().to_lowercase().contains("refused"), "{unreachable}");
    drop(service);
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    assert_eq!(failing(&ana, 0), [since, reason]);
    is_well.store(true, Ordering::SeqCst);
    wait_until("a delivery arrives", || failing(&ana, 0) == [Value::Null, Value::Null]);
    assert_eq!(failing(&ana, 1)[1], unreachable);
}

#[test]
fn the_cli_does_what_the_routes_do() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..20);
    let contract = busiest(&ana);
    let receiver = Receiver::start(|_| answer(200));
    let base = format!("{}/rest", ana.base);
    let webhooks = |arguments: &[&str]| {
        let common = ["--base", &base, "--jwt", &ana.token, "webhooks"];
        run(directory.path(), &[&common[..], arguments].concat())
    };
    let json_of = |arguments: &[&str]| webhooks(arguments).json();
    let made = json_of(&["new", "--contract", &contract, "--endpoint", &receiver.url("/cli")]);
    let id = made["ids"][0].to_string();
    assert_eq!(json_of(&["list"])[0]["id"], made["ids"][0]);
    assert_eq!(webhooks(&["list", "--quiet"]).succeeded(), format!("{id}\n"));
    assert_eq!(json_of(&["test", &id])["status"], "delivered");
    let replayed = json_of(&["replay", &id, "--from", "2", "--to", "21"]);
    let count = replayed["deliveries"].as_u64().unwrap() as usize;
    assert_eq!(count, events_of(&ana, &contract).len());
    wait_until("they arrive", || receiver.count() == count + 1);
    let replayed = json_of(&["replay", &id, "--from", "2"]);
    assert_eq!(replayed["deliveries"], count, "up to the newest ledger");
    assert_eq!(json_of(&["deliveries", &id, "--limit", "2"]).as_array().unwrap().len(), 2);
    assert_eq!(json_of(&["enable", &id])["enabled"], true);
    assert_eq!(json_of(&["delete", &id])["deleted"], made["ids"][0]);
    let deleted = webhooks(&["delete", &id]);
    assert_eq!(deleted.code, 1);
    assert!(deleted.stderr.contains("there is no webhook subscription"), "{}", deleted.stderr);
    let replayed = webhooks(&["replay", &id]);
    assert_eq!(replayed.code, 2, "{}", replayed.stderr);
    let rebuilt = run(directory.path(), &["rebuild", "webhooks", "--data-dir", "."]).stderr;
    assert!(rebuilt.contains("consumer 'webhooks' cannot be rebuilt"), "{rebuilt}");
}
