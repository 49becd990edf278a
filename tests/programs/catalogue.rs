//! The catalogue of exported tables, as clients of Iceberg see it: what each owner finds, and that engines read
//! from it what the interfaces of the service answer.

use std::path::PathBuf;

use orrery::iceberg::layout;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built};
use crate::network_growth::silent;
use crate::service::{Owner, Scene};
use crate::service_projects::emitting;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::engines::{AskedTable, Engines};
use orrery_testkit::exported;
use orrery_testkit::values::{fields, list, symbol};

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

const TABLE: &str = "/v1/namespaces/raw/tables/t";

impl World {
    /// Without a token, and with one of nobody, there is nothing.
    fn assert_refuses_strangers(&self) {
        for path in ["/v1/config", "/v1/namespaces", "/v1/namespaces/chain/tables/events", "/x"] {
            for method in ["GET", "HEAD"] {
                assert_eq!(ask(&self.service, method, path, None, None).status, 401, "{path}");
            }
            let refused = ask(&self.service, "GET", path, None, None);
            assert_eq!(error(&refused).1, "NotAuthorizedException", "{path}");
            let wrong = ask(&self.service, "GET", path, Some("not.a.token"), None);
            assert_eq!((wrong.status, error(&wrong).1), (401, "NotAuthorizedException"), "{path}");
        }
    }

    fn namespaces(&self, owner: &Owner) -> Value {
        get(&self.service, owner, "/v1/namespaces").1["namespaces"].clone()
    }

    /// The metadata is that of the file, which is named by the pointer of the table.
    fn assert_serves_metadata(&self, owner: &Owner) {
        let ask = |method, tag| ask(&self.service, method, TABLE, Some(owner.token()), tag);
        let Answer { status, body, tag } = ask("GET", None);
        assert_eq!(status, 200, "{body}");
        let location = body["metadata-location"].as_str().unwrap();
        let text = std::fs::read(location).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), body["metadata"]);
        let uuid = body["metadata"]["table-uuid"].as_str().unwrap();
        let pointer = std::fs::read_to_string(self.lake().join(layout::pointer(uuid))).unwrap();
        assert!(location.ends_with(&format!("{pointer}.metadata.json")));
        assert_eq!(body["config"], json!({}), "it hands out no keys");
        let same = ask("GET", tag.as_deref());
        assert_eq!((same.status, same.body), (304, Value::Null));
        let head = ask("HEAD", None);
        assert_eq!((head.status, head.body), (204, Value::Null));
    }
}

#[test]
fn owners_find_the_chain_and_what_they_may_read() {
    let mut world = World::new();
    let refused = ask(&world.service, "GET", "/v1/config", None, None);
    let (status, kind, _) = error(&refused);
    assert_eq!((status, kind), (401, "NotAuthorizedException"));
    world.emit(&[fields([("v", ScVal::from(5i128))])]);
    world.assert_refuses_strangers();
    let (ana, bob) = (world.ana(), world.scene.owner(&world.service, "bob"));
    let service = &world.service;
    assert_eq!(world.namespaces(&ana), json!([["chain"], ["raw"]]));
    assert_eq!(world.namespaces(&bob), json!([["chain"]]));
    let hidden = ask(service, "GET", TABLE, Some(bob.token()), None);
    assert_eq!(error(&hidden).1, "NoSuchTableException");
    bob.post("subscribe", &json!({ "project": "raw" }));
    assert_eq!(world.namespaces(&bob), json!([["chain"], ["raw"]]));
    bob.post("unsubscribe", &json!({ "project": "raw" }));
    assert_eq!(world.namespaces(&bob), json!([["chain"]]));
    assert_eq!(
        get(service, &ana, "/v1/namespaces?parent=chain&unknown=1").1["namespaces"],
        json!([])
    );
    let tables = get(service, &ana, "/v1/namespaces/chain/tables?pageToken=&pageSize=1").1;
    assert_eq!(tables["identifiers"], json!([{ "namespace": ["chain"], "name": "events" }]));
    assert!(tables["next-page-token"].is_string());
    world.assert_serves_metadata(&ana);
    let missing = ask(service, "GET", "/v1/views", Some(ana.token()), None);
    assert_eq!(error(&missing).1, "NotFoundException");
    let written = ask(service, "POST", "/v1/namespaces", Some(ana.token()), None);
    assert_eq!(error(&written).0, 405);

    // A project that is deleted is nobody's.
    ana.ask("DELETE", "1", None);
    assert_eq!(world.namespaces(&ana), json!([["chain"]]));
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

const OF_EVENTS: [&str; 5] = ["id", "ledger", "tx", "topic1", "data"];
const OF_TRANSACTIONS: [&str; 5] =
    ["tx", "ledger", "application_order", "event_count", "envelope_xdr"];
const OF_PROJECT: [&str; 4] = ["_service_event_id", "v", "v_exact", "n"];

impl World {
    /// The rows of the three tables, as far as their ledgers are exported, as the interfaces of the service answer
    /// them.
    fn served(&self, owner: &Owner) -> [Vec<Value>; 3] {
        let ledgers = exported::manifest(&self.lake()).unwrap().ledgers;
        let served = |route: &str, cursor: &str, columns: &[&str]| -> Vec<Value> {
            let rows = self.service.rows(&format!("/rest/{route}/by-ledger?limit=1000"), cursor);
            let is_in =
                |row: &&Value| ledgers.contains((row["ledger"].as_u64().unwrap() as u32).into());
            rows.iter().filter(is_in).map(|row| exported::comparable(row, columns)).collect()
        };
        let sql = "select _service_event_id, v::varchar v_exact, n::varchar n, \
                   case when abs(v::double) < 1e38 then v::varchar end v from raw_t";
        let events = served("events", "id", &OF_EVENTS);
        [events, served("txs", "tx", &OF_TRANSACTIONS), owner.query(sql)]
    }

    /// The three tables, as the catalogue knows them.
    fn asked(&self, owner: &Owner) -> [AskedTable; 3] {
        let asked = |name: [&'static str; 2], columns, sum| {
            let [namespace, table] = name;
            let path = format!("/v1/namespaces/{namespace}/tables/{table}");
            let (_, found) = get(&self.service, owner, &path);
            let metadata = found["metadata-location"].as_str().unwrap().to_owned();
            AskedTable { name, metadata, columns, sum }
        };
        [
            asked(["chain", "events"], &OF_EVENTS, "ledger"),
            asked(["chain", "transactions"], &OF_TRANSACTIONS, "event_count"),
            asked(["raw", "t"], &OF_PROJECT, "v"),
        ]
    }
}

/// `ORRERY_TEST_PYTHON` names a Python with the engines; the test asks those that are there.
#[test]
fn engines_read_what_the_service_answers() {
    let Some(mut engines) = Engines::start() else { return };
    let mut world = World::new();
    let emitting = world.chain.create_of(&emitting(), Vec::new());
    for round in 0..4i128 {
        for number in 0..3 {
            let topics = list([symbol("sent")]);
            world.chain.call(emitting, "emit", vec![topics, ScVal::U32(number)]);
        }
        let rows: Vec<_> = (0..3)
            .map(|at| fields([("v", ScVal::from(round * 10 + at)), ("n", ScVal::U64(u64::MAX))]))
            .collect();
        world.emit(&rows);
    }
    world.emit(&[fields([("v", ScVal::from(i128::MIN))])]);
    let ana = world.ana();
    let served = world.served(&ana);
    assert!(served.iter().all(|rows| rows.len() > 10));
    let tables = world.asked(&ana);
    let expected: Vec<_> =
        tables.iter().zip(&served).map(|(table, rows)| table.answer(rows)).collect();
    let at = json!({
        "ways": ["directory", "views", "catalogue"],
        "root": std::fs::canonicalize(world.lake()).unwrap(),
        "address": format!("{}/iceberg", world.service.base),
        "token": ana.token(),
    });
    engines.assert_read(at, &tables, &expected);
    engines.say();
    world.service.stop();
}
