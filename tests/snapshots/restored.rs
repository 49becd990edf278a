//! What is restored is what was there, and only what is new is uploaded.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use orrery::config::Config;
use orrery::control::{Client, Ledgers, STORE};
use orrery::service::Node;
use orrery_testkit::binary::{Service, run, token, token_with};
use orrery_testkit::client::HTTP;
use orrery_testkit::s3::SECRET;
use orrery_testkit::wait::wait_until;
use serde_json::{Value, json};

use super::world::{PLACE, World, content};

/// Digests of the rows of all consumers that are derived from ledgers.
fn digests(world: &World, data_dir: &str) -> Vec<String> {
    let config = Config { data_dir: world.at().join(data_dir), ..Config::default() };
    let node = Node::open(&config, None).unwrap();
    let digest = |name: String| {
        // What a service has processed and not written is processed again.
        while node.rebuild_step(&name).unwrap() || node.store().consumer(&name).unwrap().lag > 0 {}
        format!("{name}: {}", node.store().consumer_digest(&name).unwrap())
    };
    let known = node.store().consumers().into_iter().map(|consumer| consumer.name);
    let derived = known.filter(|name| name != "webhooks" && !name.starts_with("programs/"));
    let found: Vec<_> = derived.map(digest).collect();
    assert!(found.len() > 3, "{found:?}");
    found
}

fn post(service: &Service, token: &str, path: &str, body: &Value) -> Value {
    let request = HTTP.post(format!("{}/rest/{path}", service.base)).bearer_auth(token);
    let answer = request.json(body).send().unwrap();
    let (status, body) = (answer.status(), answer.json().unwrap());
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn query(service: &Service, token: &str, sql: &str) -> Value {
    post(service, token, "retroshade/query", &json!({ "query": sql }))
}

/// A snapshot of a running service has its ledgers, programs and subscriptions; a service on what was restored
/// answers as the other, and no key or token is in any object.
#[test]
fn what_is_restored_is_what_was_there() {
    let world = World::new(3, 50);
    let alice = token(&world.at().join("d"), "alice");
    let service = world.serve("d", &["--no-source"], &[]);
    // Portable ones are accepted by the writer at once, and by the reader unless they were revoked.
    let portable = token_with(&world.at().join("d"), "alice", &["--portable"]);
    let revoked = token_with(&world.at().join("d"), "bob", &["--portable"]);
    let accepts =
        |service: &Service, token: &str| service.ask("/rest/txs/by-ledger", Some(token)).0;
    assert_eq!((accepts(&service, &portable), accepts(&service, &revoked)), (200, 200));
    let list = run(world.at(), &["token", "list", "--quiet", "--data-dir", "d"]);
    let id = list.succeeded().lines().last().unwrap().to_owned();
    run(world.at(), &["token", "revoke", &id, "--data-dir", "d"]).succeeded();
    assert_eq!(accepts(&service, &revoked), 401);
    let events = service.get("/rest/events/by-ledger?limit=1000");
    let contract = events[0]["contract_id"].as_str().unwrap().to_owned();
    let body = json!({ "project_name": "mine", "contracts": [&contract] });
    let id = post(&service, &alice, "retroshade/watch", &body)["id"].as_u64().unwrap();
    wait_until("the project is ready", || {
        let status = service.ask(&format!("/rest/retroshade/{id}/status"), Some(&alice)).1;
        (status["events"].as_u64() > Some(0)).then_some(())
    });
    let secret = "whsec_that-nobody-may-see-in-a-bucket";
    let body = json!({
        "webhook_endpoint": "https://receiver.example/path", "contract_ids": [&contract],
        "webhook_secret": secret,
    });
    post(&service, &alice, "webhooks/new", &body);
    let sql = format!("select count(*) as n from program_{id}_events");
    let made = world.backup(&[]);
    assert_eq!((made["encrypted"].as_bool(), made["removed"].as_u64()), (Some(false), Some(0)));
    let before = query(&service, &alice, &sql);
    let listed = service.get("/rest/txs/by-ledger?limit=100");
    service.stop();
    let original = content(world.at(), "d");
    assert_eq!(made["digest"], original["covered"][0]["digest"]);

    let restored = world.restore("r", &["--trusted", made["key"].as_str().unwrap()]);
    restored.succeeded();
    for words in ["is a reader of", "the tokens that its writer has issued are void here"] {
        assert!(restored.stderr.contains(words), "{}", restored.stderr);
    }
    assert!(!restored.stderr.contains("detect accidents"), "{}", restored.stderr);
    assert_eq!(content(world.at(), "r"), original);
    assert_eq!(digests(&world, "r"), digests(&world, "d"));
    assert_eq!(run(world.at(), &["verify", "--data-dir", "r"]).code, 0);
    // The database writes its files as it likes, in a directory that nobody else enters.
    for (path, expected) in [("r", 0o700), ("r/raw", 0o700), ("r/reader.json", 0o600)] {
        let mode = fs::metadata(world.at().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, expected, "{path}");
    }
    let files: Vec<_> = fs::read_dir(world.at().join("r/secrets")).unwrap().collect();
    assert_eq!(files.len(), 1, "the list of revoked tokens alone");

    // A reader answers REST and SQL.
    let reader = world.serve("r", &["--no-source"], &[]);
    let (status, refused) = reader.ask("/rest/txs/by-ledger?limit=100", Some(&alice));
    assert_eq!(status, 401, "{refused}");
    assert_eq!((accepts(&reader, &portable), accepts(&reader, &revoked)), (200, 401));
    assert_eq!(reader.get("/rest/txs/by-ledger?limit=100"), listed);
    let alice = token(&world.at().join("r"), "alice");
    let found = wait_until("the tables are made again", || {
        let found = HTTP
            .post(format!("{}/rest/retroshade/query", reader.base))
            .bearer_auth(&alice)
            .json(&json!({ "query": sql }))
            .send()
            .unwrap();
        (found.status() == 200).then(|| found.json::<Value>().unwrap()).filter(|it| *it == before)
    });
    assert_eq!(found, before);
    let health = reader.health();
    let detail = health["components"]["reader"]["detail"].as_str().unwrap();
    assert!(detail.contains("orrery promote"), "{health}");
    assert_eq!(health["components"]["webhooks"]["status"], "up");
    reader.stop();
    run(world.at(), &["promote", "--data-dir", "r"]).succeeded();
    let promoted = world.serve("r", &["--no-source"], &[]);
    assert_eq!((accepts(&promoted, &portable), accepts(&promoted, &revoked)), (200, 401));
    promoted.stop();

    let (key, tokens) = (read(&world, "token-signing-key"), read(&world, "tokens.jsonl"));
    let webhooks = read(&world, "webhook-secrets-key");
    let signing = read(&world, "directory-key");
    let words =
        [&key[..64], &webhooks[..64], &signing[..64], secret, SECRET, tokens.trim(), &*portable];
    for (name, bytes) in world.objects() {
        for word in words {
            let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!found, "{word} is in {name}");
        }
        let raw = hex::decode(&key[..64]).unwrap();
        assert!(!bytes.windows(raw.len()).any(|window| window == raw), "{name}");
    }
}

fn read(world: &World, secret: &str) -> String {
    fs::read_to_string(world.at().join("d/secrets").join(secret)).unwrap()
}

/// Only what is new is uploaded; a dry run says so before, and uploads nothing.
#[test]
fn a_second_snapshot_uploads_what_is_new() {
    let world = World::new(4, 40);
    let dry = world.backup(&["--dry-run"]);
    assert!(world.objects().is_empty());
    assert!(!world.at().join("d/secrets/directory-key").exists(), "nothing is made");
    let first = world.backup(&[]);
    assert_eq!(dry["new_bytes"], first["new_bytes"]);
    assert_eq!(dry["new_objects"], first["new_objects"]);
    assert_eq!(dry["requests"], first["requests"]);
    let count = world.objects().len();
    let same = world.backup(&["--dry-run"]);
    // Each start of a command writes a little.
    assert!(same["new_bytes"].as_u64() < first["new_bytes"].as_u64(), "{same} {first}");
    assert_eq!(world.objects().len(), count);

    let service = world.serve("d", &["--no-source"], &[]);
    let mut client = Client::connect(&world.at().join("d")).unwrap().unwrap();
    for sequence in 41..=60 {
        let ledgers = Ledgers(vec![world.chain.xdr(sequence).to_vec()]);
        client.ask(STORE, &ledgers).unwrap().unwrap();
    }
    let second = world.backup(&[]);
    service.stop();
    assert!(second["snapshot"].as_str() > first["snapshot"].as_str());
    world.restore("newest", &[]).succeeded();
    world.restore("older", &["--snapshot", first["snapshot"].as_str().unwrap()]).succeeded();
    let last = |data_dir: &str| content(world.at(), data_dir)["covered"][0]["last_ledger"].clone();
    assert_eq!((last("newest"), last("older")), (json!(60), json!(40)));
    let verified = world.run(&["backup", "--verify", PLACE, "--json"]);
    assert_eq!((verified.code, verified.stdout.lines().count()), (0, 2), "{}", verified.stderr);
    let verified = world.run(&["backup", "--verify", PLACE, "--sample", "1"]);
    assert_eq!((verified.code, verified.stdout.lines().count()), (0, 2), "{}", verified.stderr);
    world.restore("newest", &[]).refuses(1, &["newest", "is not empty"]);
    let nothing = ["--snapshot", "2020-01-01T00-00-00.000Z"];
    world.restore("other", &nothing).refuses(1, &["there is no snapshot 2020-01-01"]);
}
