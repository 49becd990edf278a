//! A data directory from a snapshot is a reader: it follows its writer, and tells nobody anything, until it is promoted.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::net::UnixDatagram;

use orrery::control::{Client, Ledgers, STORE};
use orrery_testkit::binary::{Service, run, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::provider::{Provider, Reply};
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::world::{PASSPHRASE_FILE, PLACE, World, content};

/// Deliveries to this machine are allowed.
const SETTINGS: [(&str, &str); 1] = [("ORRERY_WEBHOOKS_ALLOW_SUBNETS", "127.0.0.1/32")];
const ENCRYPT: [&str; 3] = ["--encrypt", "--passphrase-file", PASSPHRASE_FILE];

fn store(world: &World, data_dir: &str, ledgers: std::ops::RangeInclusive<u32>) {
    let mut client = Client::connect(&world.at().join(data_dir)).unwrap().unwrap();
    for sequence in ledgers {
        let ledger = Ledgers(vec![world.chain.xdr(sequence).to_vec()]);
        client.ask(STORE, &ledger).unwrap().unwrap();
    }
}

fn ask(service: &Service, token: &str, method: &str, path: &str, body: &Value) -> Value {
    let url = format!("{}/rest/{path}", service.base);
    let request = HTTP.request(method.parse().unwrap(), url).bearer_auth(token);
    let request = if body.is_null() { request } else { request.json(body) };
    let answer = request.send().unwrap();
    let (status, body) = (answer.status(), answer.json().unwrap());
    assert_eq!(status, 200, "{method} {path}: {body}");
    body
}

/// Number of events of a contract in these ledgers, by ledger.
fn events(
    service: &Service,
    token: &str,
    contract: &str,
    ledgers: std::ops::RangeInclusive<u32>,
) -> BTreeMap<u32, usize> {
    let (from, to) = (ledgers.start(), ledgers.end());
    let path = format!("events/by-contract/{contract}?from={from}&to={to}&limit=1000");
    let events = ask(service, token, "GET", &path, &Value::Null);
    let mut counts = BTreeMap::new();
    for event in events.as_array().unwrap() {
        *counts.entry(event["ledger"].as_u64().unwrap() as u32).or_default() += 1;
    }
    counts
}

/// Number of deliveries that have arrived, by ledger.
fn arrived(receiver: &Provider) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for request in receiver.requests() {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        *counts.entry(body["event"]["ledger"].as_u64().unwrap() as u32).or_default() += 1;
    }
    counts
}

/// The contract with the most events.
fn busiest(service: &Service, token: &str) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    let events = ask(service, token, "GET", "events/by-ledger?limit=1000", &Value::Null);
    for event in events.as_array().unwrap() {
        *counts.entry(event["contract_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).unwrap().0
}

fn promote(world: &World, more: &[&str]) -> Value {
    run(world.at(), &[&["promote", "--data-dir", "r"], more].concat()).json()
}

/// Webhooks of a reader deliver nothing. Once it is promoted they deliver what comes next, or from a ledger on; what lies
/// between is replayed.
#[test]
fn webhooks_deliver_after_the_promotion() {
    let world = World::new(21, 20);
    let alice = token(&world.at().join("d"), "alice");
    let receiver = Provider::start(|_| Reply::status(200));
    let writer = world.serve("d", &["--no-source"], &SETTINGS);
    let contract = busiest(&writer, &alice);
    let new = json!({ "webhook_endpoint": receiver.url("/hook"), "contract_ids": [&contract] });
    let id = ask(&writer, &alice, "POST", "webhooks/new", &new)["ids"][0].as_u64().unwrap();
    store(&world, "d", 21..=30);
    let known = events(&writer, &alice, &contract, 21..=30);
    assert!(!known.is_empty());
    wait_until("everything is delivered", || arrived(&receiver) == known);
    wait_until("the outcomes are recorded", || {
        let list = ask(&writer, &alice, "GET", "webhooks/list", &Value::Null);
        list[0]["deliveries_waiting"] == 0
    });
    world.backup(&ENCRYPT);
    writer.stop();

    let lake = world.at().join("lake");
    let exports = [SETTINGS[0], ("ORRERY_EXPORT_TO", lake.to_str().unwrap())];
    for (number, from) in [(0, None), (1, Some(36))] {
        let before = receiver.requests().len();
        world.restore("r", &ENCRYPT[1..]).succeeded();
        let reader = world.serve("r", &["--no-source"], &exports);
        store(&world, "r", 31..=40);
        let health = reader.health();
        for part in ["webhooks", "export"] {
            let detail = &health["components"][part]["detail"];
            assert!(detail.as_str().unwrap().contains("until `orrery promote`"), "{health}");
        }
        let status = run(world.at(), &["status", "--json", "--data-dir", "r"]).json();
        let consumers = status["consumers"].as_array().unwrap();
        let webhooks = consumers.iter().find(|it| it["name"] == "webhooks").unwrap();
        assert_eq!((&webhooks["active"], &webhooks["lag"]), (&json!(false), &json!(10)));
        assert!(status["reader"].as_str().unwrap().contains("orrery promote"), "{status}");
        run(world.at(), &["promote", "--data-dir", "r"])
            .refuses(75, &["stop the service, promote, and start it again"]);
        assert_eq!(receiver.requests().len(), before, "nobody is told anything");
        assert!(!lake.exists());
        reader.stop();

        for wrong in ["30", "99"] {
            let arguments = ["promote", "--data-dir", "r", "--webhooks-from", wrong];
            run(world.at(), &arguments).refuses(1, &["give"]);
        }
        let from = from.map(|from: u32| from.to_string());
        let given: Vec<&str> =
            from.iter().flat_map(|from| ["--webhooks-from", from.as_str()]).collect();
        let promoted = promote(&world, &given);
        let first = from.as_ref().map_or(41, |from| from.parse().unwrap());
        assert_eq!(promoted["webhooks_known"], 30, "{promoted}");
        assert_eq!(promoted["webhooks_from"], first, "{promoted}");
        assert_eq!(promoted["passed_over"], first - 31, "{promoted}");
        run(world.at(), &["promote", "--data-dir", "r"]).refuses(1, &["is not a reader"]);

        let promoted = world.serve("r", &["--no-source"], &SETTINGS);
        assert!(promoted.health()["components"]["reader"].is_null());
        store(&world, "r", 41..=50);
        let mut expected = known.clone();
        let add = |expected: &mut BTreeMap<u32, usize>, more: BTreeMap<u32, usize>| {
            more.into_iter()
                .for_each(|(ledger, count)| *expected.entry(ledger).or_default() += count);
        };
        if number > 0 {
            // What the first promotion has delivered.
            add(&mut expected, events(&promoted, &alice, &contract, 31..=50));
        }
        add(&mut expected, events(&promoted, &alice, &contract, first..=50));
        wait_until("everything after it is delivered", || {
            let arrived = arrived(&receiver);
            if arrived == expected { Ok(()) } else { Err(format!("{arrived:?}, not {expected:?}")) }
        });
        let missing = events(&promoted, &alice, &contract, 31..=first - 1);
        let replay = json!({ "from": 31, "to": first - 1 });
        ask(&promoted, &alice, "POST", &format!("webhooks/{id}/replay"), &replay);
        add(&mut expected, missing);
        wait_until("a replay delivers what lies between", || arrived(&receiver) == expected);
        promoted.stop();
        fs::remove_dir_all(world.at().join("r")).unwrap();
    }
}

/// The JSON-RPC of a service whose newest ledger was closed just now, as that of a network that goes on: the ledgers here
/// are old, and a service that stores no new ones says that it is not healthy.
fn in_present(service: &Service) -> Provider {
    let url = format!("{}/rpc", service.base);
    let ask = move |body: &[u8]| -> Value {
        let request = HTTP.post(&url).header("content-type", "application/json");
        request.body(body.to_vec()).send().unwrap().json().unwrap()
    };
    Provider::start(move |request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        if asked["method"] != "getHealth" {
            return Reply::json(&ask(&request.body));
        }
        let latest = json!({ "jsonrpc": "2.0", "id": asked["id"], "method": "getLatestLedger" });
        let mut answer = ask(latest.to_string().as_bytes());
        answer["result"] = json!({
            "status": "healthy", "oldestLedger": 2, "latestLedger": answer["result"]["sequence"],
        });
        Reply::json(&answer)
    })
}

/// A service with an empty directory restores the newest snapshot and follows its writer; started again, it does not look at
/// the bucket.
#[test]
fn a_second_machine_follows_its_writer() {
    let world = World::new(22, 30);
    let made = world.backup(&[]);
    let writer = world.serve("d", &["--no-source"], &[]);
    store(&world, "d", 31..=40);
    let front = in_present(&writer);
    let source = format!("rpc:{}", front.url("/"));
    let key = made["key"].as_str().unwrap();
    let from = ["--from-snapshot", PLACE, "--source", &source, "--trusted", key];
    let supervisor = UnixDatagram::bind(world.at().join("notify")).unwrap();
    let socket = world.at().join("notify");
    let reader = world.serve("r", &from, &[("NOTIFY_SOCKET", socket.to_str().unwrap())]);
    reader.wait_until_stored(40);
    // The supervisor's limit for a start does not end a restoration that goes on.
    let mut message = [0; 4096];
    let length = supervisor.recv(&mut message).unwrap();
    let first = String::from_utf8_lossy(&message[..length]);
    assert!(first.contains("EXTEND_TIMEOUT_USEC=300000000"), "{first}");
    assert!(first.contains("STATUS=restoring a snapshot: "), "{first}");
    let asked = world.server.requests().len();
    store(&world, "d", 41..=45);
    reader.wait_until_stored(45);
    reader.stop();
    let reader = world.serve("r", &from, &[]);
    store(&world, "d", 46..=50);
    reader.wait_until_stored(50);
    assert_eq!(world.server.requests().len(), asked, "the bucket is not asked again");
    let latest = reader.get("/rest/events/by-ledger?limit=5");
    let of_writer = writer.get("/rest/events/by-ledger?limit=5");
    let without_ids = |events: &Value| {
        let mut events = events.as_array().unwrap().clone();
        events.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("id")));
        events
    };
    assert_eq!(without_ids(&latest), without_ids(&of_writer));
    // Its ids are its own, and no number is used for two events.
    assert!(latest[0]["id"].as_u64() > of_writer[0]["id"].as_u64());
    reader.stop();
    writer.stop();
    assert_eq!(content(world.at(), "r")["covered"], content(world.at(), "d")["covered"]);

    let wrong = ["--from-snapshot", PLACE, "--no-source", "--trusted", &"ab".repeat(32)];
    let log = world.try_serve("x", &wrong, &[]).err().unwrap();
    assert!(log.contains("are signed by") && !world.at().join("x").exists(), "{log}");
    fs::create_dir(world.at().join("full")).unwrap();
    fs::write(world.at().join("full/file"), "").unwrap();
    let log = world.try_serve("full", &["--from-snapshot", PLACE, "--no-source"], &[]);
    let log = log.err().unwrap();
    assert!(log.contains("full is not empty"), "{log}");
}

/// A snapshot that ends before the writer's raw ledgers begin is refused before anything is fetched.
#[test]
fn a_snapshot_that_is_too_old_is_refused_with_both_numbers() {
    let world = World::new(23, 20);
    world.backup(&[]);
    let passphrase = world.chain.network.passphrase().to_owned();
    let writer = Provider::start(move |request| {
        let asked: Value = serde_json::from_slice(&request.body).unwrap();
        let answer = match asked["method"].as_str().unwrap() {
            "getNetwork" => json!({ "result": { "passphrase": passphrase } }),
            "getHealth" => json!({ "result": {
                "status": "healthy", "oldestLedger": 40, "latestLedger": 60,
            } }),
            _ => json!({ "error": { "code": -32600, "message":
                "start ledger must be between the oldest ledger: 40 and the latest ledger: 60 for this rpc instance"
            } }),
        };
        let mut whole = json!({ "jsonrpc": "2.0", "id": asked["id"] });
        whole.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        Reply::json(&whole)
    });
    let source = format!("rpc:{}", writer.url("/"));
    let from = ["--from-snapshot", PLACE, "--source", &source];
    let log = world.try_serve("r", &from, &[]).err().unwrap();
    assert!(log.contains("ends at ledger 20") && log.contains("begin at ledger 40"), "{log}");
    assert!(!world.at().join("r").exists() && !world.at().join("r.restoring").exists());
    let fetched = world.server.requests();
    assert!(!fetched.iter().any(|it| it.method == "GET" && it.target.contains("/objects/")));
}

#[test]
fn only_readers_are_promoted() {
    let world = World::new(24, 10);
    run(world.at(), &["promote", "--data-dir", "d"]).refuses(1, &["is not a reader"]);
    run(world.at(), &["promote", "--data-dir", "nothing"])
        .refuses(1, &["there is no data directory nothing"]);
    world.backup(&[]);
    world.restore("r", &[]).succeeded();
    // A copy of a reader is one.
    run(world.at(), &["backup", "--data-dir", "r", "backups"]).json();
    run(world.at(), &["restore", "backups", "--data-dir", "copy"]).succeeded();
    let status = run(world.at(), &["status", "--json", "--data-dir", "copy"]).json();
    assert!(status["reader"].as_str().unwrap().contains(PLACE), "{status}");
    // One that cannot be read is not taken for a writer.
    let good = fs::read(world.at().join("r/reader.json")).unwrap();
    fs::write(world.at().join("r/reader.json"), "{").unwrap();
    run(world.at(), &["status", "--data-dir", "r"])
        .refuses(1, &["reader.json", "restore the snapshot"]);
    fs::write(world.at().join("r/reader.json"), good).unwrap();
    let promoted = promote(&world, &[]);
    // No service has run on the writer's directory: its webhooks have seen no ledger.
    assert_eq!((&promoted["webhooks_from"], &promoted["passed_over"]), (&json!(11), &json!(9)));
    // It has a key of its own, and a place of its own.
    let to = |place: &str| world.run(&["backup", "--data-dir", "r", "--to", place]);
    to(PLACE).refuses(1, &["are of another data directory"]);
    to("s3://ledgers/another").succeeded();
}
