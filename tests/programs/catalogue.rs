//! The catalogue of exported tables, as clients of Iceberg see it: what each owner finds, and that engines read
//! from it what the interfaces of the service answer.

use std::path::{Path, PathBuf};
use std::process::Command;

use orrery::iceberg::layout;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::ScVal;

use crate::network::{Chain, built};
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::exported;
use orrery_testkit::values::{fields, symbol};

/// A response of the catalogue.
struct Answer {
    status: u16,
    body: Value,
    tag: Option<String>,
}

fn ask(
    service: &Service,
    method: &str,
    path: &str,
    token: Option<&str>,
    tag: Option<&str>,
) -> Answer {
    let url = format!("{}/iceberg{path}", service.base);
    let mut request = HTTP.request(method.parse().unwrap(), url);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    if let Some(tag) = tag {
        request = request.header("if-none-match", tag);
    }
    let response = request.send().unwrap();
    let status = response.status().as_u16();
    let tag = response.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
    let text = response.text().unwrap();
    let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() };
    Answer { status, body, tag }
}

fn get(service: &Service, owner: &Owner, path: &str) -> (u16, Value) {
    let Answer { status, body, .. } = ask(service, "GET", path, Some(owner.token()), None);
    (status, body)
}

/// The kind and the sentence of an error.
fn error(answer: &Answer) -> (u16, &str, &str) {
    let error = &answer.body["error"];
    assert_eq!(error["code"], answer.status, "{}", answer.body);
    (answer.status, error["type"].as_str().unwrap(), error["message"].as_str().unwrap())
}

/// A service with a project of `ana` that has rows, and its export.
struct World {
    scene: Scene,
    service: Service,
    chain: Chain,
    contract: orrery::domain::ContractId,
    rows: usize,
}

impl World {
    fn new() -> Self {
        let mut chain = Chain::new();
        let contract = chain.create_of(&silent(), Vec::new());
        let scene = Scene::new();
        let lake = scene.path().join("lake");
        let settings =
            [("ORRERY_EXPORT_TO", lake.to_str().unwrap()), ("ORRERY_EXPORT_LEDGERS_PER_FILE", "2")];
        let service = Service::start_with(scene.path(), &settings);
        let owner = scene.owner(&service, "ana");
        let contracts = [contract.to_string()];
        let deploy = json!({ "code": built("raw"), "project_name": "raw", "contracts": contracts, "public": true });
        owner.post("deploy", &deploy);
        Self { scene, service, chain, contract, rows: 0 }
    }

    fn lake(&self) -> PathBuf {
        self.scene.path().join("lake")
    }

    fn ana(&self) -> Owner {
        self.scene.owner(&self.service, "ana")
    }

    /// Adds rows to the table, and ledgers until they are exported.
    fn emit(&mut self, rows: &[ScVal]) {
        for row in rows {
            self.chain.call(self.contract, "emit", vec![symbol("t"), row.clone()]);
        }
        self.rows += rows.len();
        self.chain.import_into(&self.scene);
        let ana = self.ana();
        ana.wait_for_rows("raw_t", self.rows);
        for _ in 0..4 {
            self.chain.close(&[]);
        }
        self.chain.import_into(&self.scene);
        let rows = self.rows as u64;
        ana.wait("the rows are exported", |_| {
            let manifest = exported::manifest(&self.lake());
            manifest.is_some_and(|it| it.programs.iter().map(|it| it.rows()).sum::<u64>() == rows)
        });
        ana.wait("the catalogue has them", |ana| {
            let (status, table) = get(&self.service, ana, "/v1/namespaces/raw/tables/t");
            let total = &table["metadata"]["snapshots"]
                .as_array()
                .and_then(|it| it.last())
                .map(|newest| newest["summary"]["total-records"].clone());
            status == 200 && *total == Some(json!(rows.to_string()))
        });
    }
}

#[test]
fn owners_find_the_chain_and_what_they_may_read() {
    let mut world = World::new();
    let refused = ask(&world.service, "GET", "/v1/config", None, None);
    let (status, kind, _) = error(&refused);
    assert_eq!((status, kind), (401, "NotAuthorizedException"));
    world.emit(&[fields([("v", ScVal::from(5i128))])]);
    let (ana, bob) = (world.ana(), world.scene.owner(&world.service, "bob"));
    let service = &world.service;
    for path in ["/v1/config", "/v1/namespaces", "/v1/namespaces/chain/tables/events", "/x"] {
        let refused = ask(service, "GET", path, None, None);
        assert_eq!(error(&refused).0, 401, "{path}");
        let wrong = ask(service, "GET", path, Some("not.a.token"), None);
        assert_eq!(error(&wrong).1, "NotAuthorizedException", "{path}");
    }
    let namespaces = |owner: &Owner| get(service, owner, "/v1/namespaces").1["namespaces"].clone();
    assert_eq!(namespaces(&ana), json!([["chain"], ["raw"]]));
    assert_eq!(namespaces(&bob), json!([["chain"]]));
    let table = "/v1/namespaces/raw/tables/t";
    let hidden = ask(service, "GET", table, Some(bob.token()), None);
    assert_eq!(error(&hidden).1, "NoSuchTableException");
    bob.post("subscribe", &json!({ "project": "raw" }));
    assert_eq!(namespaces(&bob), json!([["chain"], ["raw"]]));
    bob.post("unsubscribe", &json!({ "project": "raw" }));
    assert_eq!(namespaces(&bob), json!([["chain"]]));
    assert_eq!(
        get(service, &ana, "/v1/namespaces?parent=chain&unknown=1").1["namespaces"],
        json!([])
    );
    let tables = get(service, &ana, "/v1/namespaces/chain/tables?pageToken=&pageSize=1").1;
    assert_eq!(tables["identifiers"], json!([{ "namespace": ["chain"], "name": "events" }]));
    assert!(tables["next-page-token"].is_string());

    // The metadata is that of the file, which is named by the pointer of the table.
    let Answer { status, body, tag } = ask(service, "GET", table, Some(ana.token()), None);
    assert_eq!(status, 200, "{body}");
    let location = body["metadata-location"].as_str().unwrap();
    let text = std::fs::read(location).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), body["metadata"]);
    let uuid = body["metadata"]["table-uuid"].as_str().unwrap();
    let pointer = std::fs::read_to_string(world.lake().join(layout::pointer(uuid))).unwrap();
    assert!(location.ends_with(&format!("{pointer}.metadata.json")));
    assert_eq!(body["config"], json!({}), "it hands out no keys");
    let tag = tag.unwrap();
    let same = ask(service, "GET", table, Some(ana.token()), Some(&tag));
    assert_eq!((same.status, same.body), (304, Value::Null));
    let head = ask(service, "HEAD", table, Some(ana.token()), None);
    assert_eq!((head.status, head.body), (204, Value::Null));
    let missing = ask(service, "GET", "/v1/views", Some(ana.token()), None);
    assert_eq!(error(&missing).1, "NotFoundException");
    let written = ask(service, "POST", "/v1/namespaces", Some(ana.token()), None);
    assert_eq!(error(&written).0, 405);

    // A project that is deleted is nobody's.
    ana.ask("DELETE", "1", None);
    assert_eq!(namespaces(&ana), json!([["chain"]]));
    world.service.stop();
}

#[test]
fn without_an_export_there_is_no_catalogue() {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let answer = ask(&service, "GET", "/v1/config", Some(ana.token()), None);
    let (status, kind, message) = error(&answer);
    assert_eq!((status, kind), (404, "NotFoundException"));
    assert!(message.contains("set export.to"), "{message}");
    service.stop();
}

/// The number of rows and the SHA-256 of their sorted lines, as the reader has them.
fn digest(rows: &[Value], columns: &[&str]) -> Value {
    let text = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = |row: &Value| columns.iter().map(|it| text(&row[*it])).collect::<Vec<_>>().join("|");
    let mut lines: Vec<_> = rows.iter().map(line).collect();
    lines.sort();
    json!([lines.len(), hex::encode(Sha256::digest(lines.join("\n")))])
}

fn python() -> Option<PathBuf> {
    let python = PathBuf::from(std::env::var_os("ORRERY_TEST_PYTHON")?);
    let ran = Command::new(&python).args(["-c", "import pyarrow"]).output();
    ran.is_ok_and(|ran| ran.status.success()).then_some(python)
}

/// `ORRERY_TEST_PYTHON` names a Python with the engines; the test asks those that are there.
#[test]
fn engines_read_what_the_service_answers() {
    let Some(python) = python() else {
        println!("skipped: ORRERY_TEST_PYTHON names no Python with pyarrow");
        return;
    };
    let mut world = World::new();
    for round in 0..4i128 {
        let rows: Vec<_> = (0..3)
            .map(|at| fields([("v", ScVal::from(round * 10 + at)), ("n", ScVal::U64(u64::MAX))]))
            .collect();
        world.emit(&rows);
    }
    world.emit(&[fields([("v", ScVal::from(i128::MIN))])]);
    let ana = world.ana();
    let service = &world.service;
    let ledgers = exported::manifest(&world.lake()).unwrap().ledgers;
    let served = |route: &str, cursor: &str, columns: &[&str]| -> Vec<Value> {
        let rows = service.rows(&format!("/rest/{route}/by-ledger?limit=1000"), cursor);
        let has = |row: &&Value| ledgers.contains((row["ledger"].as_u64().unwrap() as u32).into());
        rows.iter().filter(has).map(|row| exported::comparable(row, columns)).collect()
    };
    let of_events = ["id", "ledger", "tx", "topic1", "data"];
    let events = served("events", "id", &of_events);
    let of_transactions = ["tx", "ledger", "application_order", "event_count", "envelope_xdr"];
    let transactions = served("txs", "tx", &of_transactions);
    assert!(transactions.len() > 10);
    let of_project = ["_service_event_id", "v", "v_exact", "n"];
    let sql = "select _service_event_id, v::varchar v_exact, n::varchar n, \
               case when abs(v::double) < 1e38 then v::varchar end v from raw_t";
    let rows = ana.query(sql);
    let tables = ["chain/tables/events", "chain/tables/transactions", "raw/tables/t"];
    let locations = tables.map(|table| {
        let (_, found) = get(service, &ana, &format!("/v1/namespaces/{table}"));
        found["metadata-location"].clone()
    });
    let expected = json!([
        digest(&events, &of_events),
        digest(&transactions, &of_transactions),
        digest(&rows, &of_project),
    ]);
    let at = json!({
        "root": std::fs::canonicalize(world.lake()).unwrap(),
        "address": format!("{}/iceberg", service.base),
        "token": ana.token(),
        "tables": [
            { "name": ["chain", "events"], "metadata": locations[0], "columns": of_events },
            { "name": ["chain", "transactions"], "metadata": locations[1],
              "columns": of_transactions },
            { "name": ["raw", "t"], "metadata": locations[2], "columns": of_project },
        ],
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/catalogue_reader.py");
    let ran = Command::new(&python).arg(script).arg(at.to_string()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    let found: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let mut wrong = Vec::new();
    for (engine, answer) in found.as_object().unwrap() {
        match answer.as_str() {
            Some(reason) if reason.starts_with("absent") => {
                println!("skipped: {engine} is {reason}")
            }
            _ if *answer != expected => wrong.push((engine, answer)),
            _ => println!("{engine} reads the tables"),
        }
    }
    assert!(wrong.is_empty(), "{expected}\n{wrong:#?}");
    world.service.stop();
}
