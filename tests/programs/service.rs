//! Programs as their owners use them: the built binary, its HTTP API, and SIGKILL.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use orrery_testkit::binary::{Service, run, token};
use orrery_testkit::client::HTTP;
use orrery_testkit::data;
use orrery_testkit::wait::wait_until;

pub const PASSPHRASE: &str = "Standalone Network ; February 2017";

/// The recorded network with its contracts, and the rows that the program must emit.
pub struct Recorded {
    folder: PathBuf,
    pub expected: Value,
}

impl Recorded {
    /// Returns `None`, after printing a message, when the recorded data are absent.
    pub fn find() -> Option<Self> {
        if data::missing() {
            return None;
        }
        let folder = data::folder()?.join("local-network");
        let expected = std::fs::read(folder.join("local-vault.expected.json")).ok()?;
        Some(Self { folder, expected: serde_json::from_slice(&expected).unwrap() })
    }

    pub fn ledgers(&self) -> PathBuf {
        self.folder.join("local-vault.xdr.zst")
    }

    pub fn deploy(&self, project: &str) -> Value {
        let code = std::fs::read(self.folder.join("vault/vault_program.wasm")).unwrap();
        json!({ "code": code, "project_name": project, "contracts": self.expected["vaults"] })
    }

    /// Expected rows of a table as text, sorted so that their order of arrival does not matter.
    pub fn rows(&self, target: &str) -> Vec<String> {
        let rows = self.expected["program_tables"][target].as_array().unwrap();
        sorted(rows.iter().map(canonical).collect())
    }
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// A row as text with every number as a string, whatever its size, and without the `_` columns.
fn canonical(row: &Value) -> String {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Number(number) => Value::String(number.to_string()),
            Value::Array(values) => values.iter().map(plain).collect(),
            other => other.clone(),
        }
    }
    let members = row.as_object().unwrap().iter();
    let own = members.filter(|(name, _)| !name.starts_with("_"));
    Value::Object(own.map(|(name, value)| (name.clone(), plain(value))).collect()).to_string()
}

/// A data directory for the network [`PASSPHRASE`].
pub struct Scene {
    directory: TempDir,
}

impl Scene {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let issue =
            ["token", "issue", "--network", PASSPHRASE, "--data-dir", ".", "--sub", "first"];
        run(directory.path(), &issue).succeeded();
        Self { directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Imports ledgers, framed as stellar-core writes them.
    pub fn import_ledgers<'l>(&self, ledgers: impl IntoIterator<Item = &'l Vec<u8>>) {
        let framed = ledgers.into_iter().flat_map(|xdr| {
            let mark = u32::try_from(xdr.len()).unwrap() | 1 << 31;
            [&mark.to_be_bytes()[..], xdr].concat()
        });
        let file = tempfile::NamedTempFile::new_in(self.path()).unwrap();
        std::fs::write(file.path(), framed.collect::<Vec<u8>>()).unwrap();
        self.import(file.path());
    }

    pub fn import(&self, file: &Path) {
        run(self.path(), &["import", "--data-dir", ".", file.to_str().unwrap()]).succeeded();
    }

    pub fn owner(&self, service: &Service, name: &str) -> Owner {
        Owner { base: service.base.clone(), token: token(self.path(), name) }
    }
}

/// A client with a token.
pub struct Owner {
    base: String,
    token: String,
}

impl Owner {
    /// Creates a client with an existing token.
    pub fn with_token(service: &Service, token: &str) -> Self {
        Self { base: service.base.clone(), token: token.to_owned() }
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.try_ask(method, path, body).expect("the service answers")
    }

    /// Returns `None` when the service ends before it has answered.
    pub fn try_ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let method = method.parse().unwrap();
        let mut request = HTTP.request(method, format!("{}/rest/retroshade/{path}", self.base));
        request = request.bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().ok()?;
        Some((answer.status().as_u16(), answer.json().ok()?))
    }

    /// Posts a body with any content type.
    pub fn send(&self, path: &str, content_type: &str, body: Vec<u8>) -> (u16, Value) {
        let url = self.base(&format!("/rest/retroshade/{path}"));
        let request = HTTP.post(url).bearer_auth(&self.token).body(body);
        let answer = request.header("Content-Type", content_type).send().unwrap();
        (answer.status().as_u16(), answer.json().unwrap())
    }

    /// URL of a path of the service.
    pub fn base(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub fn token(&self) -> &str {
        &self.token
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

    /// Runs a query, and retries while the service answers 503 because the tables are still being
    /// filled.
    pub fn query(&self, sql: &str) -> Vec<Value> {
        self.try_query(sql).unwrap_or_else(|(status, body)| panic!("{sql}: {status} {body}"))
    }

    /// As [`Self::query`]; returns the status and the body of a refusal.
    pub fn try_query(&self, sql: &str) -> Result<Vec<Value>, (u16, Value)> {
        wait_until("tables are filled", || {
            let (status, body) = self.ask("POST", "query", Some(&json!({ "query": sql })));
            match status {
                200 => Ok(Ok(body.as_array().unwrap().clone())),
                503 => Err(body),
                _ => Ok(Err((status, body))),
            }
        })
    }

    pub fn rows(&self, table: &str) -> Vec<String> {
        let rows = self.query(&format!("select * from {table}"));
        sorted(rows.iter().map(canonical).collect())
    }

    pub fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        wait_until(what, || condition(self));
    }

    /// Waits until the table has exactly `rows` rows. A table that the module does not declare is
    /// created with its first row.
    pub fn wait_for_rows(&self, table: &str, rows: usize) {
        self.wait(table, |it| match it.try_query(&format!("select count(*) n from {table}")) {
            Ok(count) => count[0]["n"] == rows,
            Err((422, body)) if is_missing(&body.to_string()) => false,
            Err((status, body)) => panic!("{table}: {status} {body}"),
        });
    }
}

/// Whether a query was refused because there is no such table.
fn is_missing(refusal: &str) -> bool {
    ["does not exist", "is not one of yours"].iter().any(|words| refusal.contains(words))
}

pub fn assert_rows(owner: &Owner, recorded: &Recorded, program: u64) {
    for target in ["balance_changed", "batch_done"] {
        let table = format!("program_{program}_{target}");
        owner.wait_for_rows(&table, recorded.rows(target).len());
        assert_eq!(owner.rows(&table), recorded.rows(target), "{table}");
    }
    let ids = format!(
        "select count(distinct _service_event_id) n from program_{program}_balance_changed"
    );
    assert_eq!(owner.query(&ids)[0]["n"], recorded.rows("balance_changed").len());
}

fn assert_exact(owner: &Owner, program: u64) {
    let executions = owner.get(&format!("{program}/executions?limit=200"));
    let executions = executions.as_array().unwrap();
    assert!(executions.len() > 40, "{}", executions.len());
    for execution in executions {
        assert_eq!(execution["status"], "success", "{execution}");
        assert_eq!(execution["fidelity"], "exact", "{execution}");
    }
}

#[test]
fn ledgers_after_a_deploy_give_the_rows_that_the_contract_computed() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let deployed = ana.post("deploy", &recorded.deploy("vault"));
    assert_eq!(deployed["id"], 1);
    assert_eq!(deployed["tables"], json!(["program_1_balance_changed", "program_1_batch_done"]));
    assert!(ana.query("select * from vault_balance_changed").is_empty());
    scene.import(&recorded.ledgers());
    assert_rows(&ana, &recorded, 1);
    assert_exact(&ana, 1);
    // The sum of some amounts overflows: the query is refused and nothing wraps.
    let sum = "select sum(amount)::varchar total from vault_balance_changed";
    let refused = ana.ask("POST", "query", Some(&json!({ "query": sum })));
    assert_eq!(refused.0, 422, "{refused:?}");
    let small = format!("{sum} where abs(amount) < 1000000000000");
    let total = ana.query(&small)[0]["total"].as_str().unwrap().parse::<i128>().unwrap();
    let rows = recorded.expected["program_tables"]["balance_changed"].as_array().unwrap();
    let amounts = rows.iter().map(|row| row["amount"].as_str().unwrap().parse::<i128>().unwrap());
    assert_eq!(total, amounts.filter(|amount| amount.abs() < 1_000_000_000_000).sum::<i128>());
    let status = ana.get("1/status");
    assert_eq!((&status["running"], &status["total_errors"]), (&json!(true), &json!(0)));
    assert_eq!(
        status["last_success_ledger"],
        ana.get("1/executions?limit=1")[0]["ledger_sequence"]
    );
    let stats = ana.get("1/stats?source=live");
    let written: u64 =
        stats.as_array().unwrap().iter().map(|it| it["rows_written"].as_u64().unwrap()).sum();
    assert_eq!(written, 54);
    assert_eq!(ana.get("1/stats?source=backfill"), json!([]));
}

#[test]
fn tables_can_be_queried_as_soon_as_the_deploy_returns() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    for number in 0..8 {
        let project = format!("vault{number}");
        let mut wanted = recorded.deploy(&project);
        wanted["public"] = json!(number % 2 == 1);
        ana.post("deploy", &wanted);
        let readers = if number % 2 == 1 { &[&ana, &bob][..] } else { &[&ana] };
        if number % 2 == 1 {
            bob.post("subscribe", &json!({ "project": project }));
        }
        for reader in readers {
            assert!(reader.query(&format!("select * from {project}_batch_done")).is_empty());
        }
    }
}

#[test]
fn projects_with_ambiguous_view_names_are_refused() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &recorded.deploy("vault"));
    for (project, expected) in
        [("VAULT", 409), ("program_3", 400), ("Program_3_batch", 400), ("vault2", 200)]
    {
        let (status, body) = ana.ask("POST", "deploy", Some(&recorded.deploy(project)));
        assert_eq!(status, expected, "{project}: {body}");
    }
}

#[test]
fn unusable_tables_affect_only_their_owner() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let tables = scene.path().join("tables");
    let anas = {
        let service = Service::start(scene.path());
        let ana = scene.owner(&service, "ana");
        ana.post("deploy", &recorded.deploy("vault"));
        assert!(ana.query("select * from vault_batch_done").is_empty());
        let mut directories = std::fs::read_dir(&tables).unwrap();
        let anas = directories.next().unwrap().unwrap().path();
        scene.owner(&service, "bob").post("deploy", &recorded.deploy("safe"));
        anas
    };
    std::fs::remove_dir_all(&anas).unwrap();
    std::fs::write(&anas, "in the way").unwrap();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    scene.import(&recorded.ledgers());
    assert_rows(&bob, &recorded, 2);
    let tables = || {
        let health = HTTP.get(format!("{}/rest/health", service.base)).send().unwrap();
        health.json::<Value>().unwrap()["components"]["tables"].clone()
    };
    let (status, refusal) = ana.ask("POST", "query", Some(&json!({ "query": "select 1" })));
    assert_eq!(status, 503, "{refusal}");
    ana.wait("it is reported", |_| tables()["detail"].is_string());
    let reported = tables();
    assert_eq!(reported["status"], "up", "it is one owner's trouble");
    let reason = reported["detail"].as_str().unwrap();
    assert!(reason.starts_with("rows of 1 of 2 owners"), "{reported}");
    for text in [refusal.to_string(), reported.to_string()] {
        assert!(!text.contains(scene.path().to_str().unwrap()), "it reveals a path: {text}");
    }
    std::fs::remove_file(&anas).unwrap();
    assert_rows(&ana, &recorded, 1);
    ana.wait("all is well", |_| tables()["detail"].is_null());
}

#[test]
fn a_backfill_gives_the_same_rows_and_a_repetition_adds_none() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    scene.import(&recorded.ledgers());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &recorded.deploy("vault"));
    assert_eq!(ana.ask("GET", "1/backfill", None).0, 404);
    for round in 0..2 {
        ana.post("1/backfill", &json!({ "from": 0, "to": 4_000_000_000u32 }));
        ana.wait("the backfill ends", |it| it.get("1/backfill")["state"] == "incomplete");
        let order = ana.get("1/backfill");
        assert_eq!(order["rows_written"], if round == 0 { 54 } else { 0 }, "{order}");
        assert_eq!(order["errors"], 0, "{order}");
        let missing = order["ledgers_missing"].as_u64().unwrap();
        assert!(missing > 3_999_990_000, "future ledgers are not stored: {order}");
        let ranges = order["missing_ledgers"].as_array().unwrap();
        assert_eq!(ranges.last().unwrap()[1], 4_000_000_000u32, "{order}");
        let message = format!("{missing} of the ledgers that were asked for are not stored");
        assert!(order["message"].as_str().unwrap().starts_with(&message), "{order}");
        assert_rows(&ana, &recorded, 1);
    }
    assert_exact(&ana, 1);
    let sources: Vec<_> =
        ana.get("1/stats").as_array().unwrap().iter().map(|it| it["source"].clone()).collect();
    assert!(sources.iter().all(|source| source == "backfill"), "{sources:?}");
}

/// Tries everything that an owner can try with the id and the tables of another owner's program;
/// returns the number of attempts.
fn crossings(thief: &Owner, victim: &Owner, recorded: &Recorded, id: u64, project: &str) -> usize {
    let mut tried = 0;
    let mut refused = |verb: &str, path: &str, body: Option<Value>, expected: u16| {
        let (status, answer) = thief.ask(verb, path, body.as_ref());
        assert_eq!(status, expected, "{verb} {path} {body:?}: {answer}");
        let text = answer.to_string().to_lowercase();
        let asked = body.unwrap_or_default().to_string().to_lowercase();
        for secret in [project, "balance_changed", "batch_done", "new_balance"] {
            assert!(
                !text.contains(secret) || asked.contains(secret),
                "{path} reveals a secret: {answer}"
            );
        }
        tried += 1;
    };
    for path in ["status", "executions", "executions?from_ledger=98", "stats", "stats?source=live"]
    {
        refused("GET", &format!("{id}/{path}"), None, 403);
    }
    refused("GET", &format!("{id}/backfill"), None, 403);
    for path in ["pause", "resume"] {
        refused("POST", &format!("{id}/{path}"), None, 403);
    }
    let body = json!({ "from": 98, "to": 99 });
    refused("POST", &format!("{id}/backfill"), Some(body), 403);
    for contract in [&recorded.expected["asset_contract"], &recorded.expected["vaults"][0]] {
        let body = json!({ "program_id": id, "contracts": [contract] });
        refused("POST", "append-contracts", Some(body), 403);
    }
    refused("DELETE", &id.to_string(), None, 403);
    for table in ["batch_done", "balance_changed"] {
        for name in [
            format!("program_{id}_{table}"),
            format!("{project}_{table}"),
            format!("retroshade.program_{id}_{table}"),
            format!("main.program_{id}_{table}"),
            format!("\"PROGRAM_{id}_{table}\""),
        ] {
            let query = json!({ "query": format!("select * from {name}") });
            refused("POST", "query", Some(query), 422);
        }
    }
    for sql in ["show tables", "select table_name, column_name from information_schema.columns"] {
        refused("POST", "query", Some(json!({ "query": sql })), 200);
    }
    for path in ["list", "tables"] {
        refused("GET", path, None, 200);
    }
    assert_rows(victim, recorded, id);
    assert_eq!(victim.get(&format!("{id}/status"))["running"], true);
    tried
}

#[test]
fn owners_cannot_access_programs_of_others() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    ana.post("deploy", &recorded.deploy("vault"));
    scene.import(&recorded.ledgers());
    assert_rows(&ana, &recorded, 1);
    // An owner without programs, then one with the same program of its own.
    let mut tried = crossings(&bob, &ana, &recorded, 1, "vault");
    let (status, refusal) = bob.ask("POST", "deploy", Some(&recorded.deploy("vault")));
    assert_eq!((status, &refusal["code"]), (409, &json!("project_exists")), "{refusal}");
    for path in ["status", "executions", "stats", "backfill"] {
        assert_eq!(bob.ask("GET", &format!("2/{path}"), None).0, 404, "{path}");
    }
    bob.post("deploy", &recorded.deploy("safe"));
    bob.post("2/backfill", &json!({ "from": 0, "to": 4_000_000_000u32 }));
    assert_rows(&bob, &recorded, 2);
    for (thief, id, project) in [(&bob, 1, "vault"), (&ana, 2, "safe")] {
        assert_eq!(thief.ask("GET", &format!("{id}/status"), None).0, 403);
        for name in [format!("program_{id}_batch_done"), format!("{project}_batch_done")] {
            let query = json!({ "query": format!("select * from {name}") });
            assert_eq!(thief.ask("POST", "query", Some(&query)).0, 422, "{name}");
            tried += 1;
        }
    }
    for (owner, id, project) in [(&ana, 1, "vault"), (&bob, 2, "safe")] {
        let tables = owner.get("tables").to_string() + &owner.get("list").to_string();
        assert!(tables.contains(project), "{tables}");
        let others = if id == 1 { ["safe", "program_2"] } else { ["vault_", "program_1"] };
        assert!(!others.iter().any(|other| tables.contains(other)), "{tables}");
    }
    println!("{tried} ways to another owner's program were tried");
    assert!(tried >= 30);
}

#[test]
fn a_public_program_is_read_by_subscribers_and_changed_by_its_owner() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let (ana, bob) = (scene.owner(&service, "ana"), scene.owner(&service, "bob"));
    let mut body = recorded.deploy("vault");
    body["public"] = true.into();
    ana.post("deploy", &body);
    scene.import(&recorded.ledgers());
    assert_rows(&ana, &recorded, 1);
    bob.post("subscribe", &json!({ "project": "vault" }));
    assert_rows(&bob, &recorded, 1);
    assert_eq!(bob.get("list"), json!([]));
    assert_eq!(bob.get("tables").as_array().unwrap().len(), 2);
    assert_eq!(bob.ask("DELETE", "1", None).0, 403);
    assert_eq!(ana.ask("DELETE", "1", None), (200, json!({ "deleted": 1 })));
    bob.wait("the tables go", |it| it.query("show tables").is_empty());
}

#[test]
fn a_program_can_be_paused_extended_resumed_and_deleted() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let mut one = recorded.deploy("vault");
    let vaults = recorded.expected["vaults"].as_array().unwrap().clone();
    one["contracts"] = json!([vaults[0]]);
    ana.post("deploy", &one);
    assert_eq!(ana.post("1/pause", &json!({}))["running"], false);
    scene.import(&recorded.ledgers());
    assert_eq!(ana.get("1/status")["running"], false);
    assert_eq!(ana.get("1/executions"), json!([]));
    let append = json!({ "program_id": 1, "contracts": [vaults[1]] });
    assert_eq!(ana.post("append-contracts", &append)["contracts"], json!(vaults));
    let (status, refusal) = ana.ask("POST", "append-contracts", Some(&append));
    assert_eq!((status, &refusal["code"]), (409, &json!("contract_registered")), "{refusal}");
    assert_eq!(ana.post("1/resume", &json!({}))["running"], true);
    assert_rows(&ana, &recorded, 1);
    assert_eq!(ana.ask("DELETE", "1", None), (200, json!({ "deleted": 1 })));
    assert_eq!(ana.ask("DELETE", "1", None).0, 404);
    assert_eq!(ana.get("list"), json!([]));
    assert!(ana.query("show tables").is_empty());
    // A program's id is not reused; its project name is.
    assert_eq!(ana.post("deploy", &one)["id"], 2);
}

#[test]
fn malformed_requests_get_one_line_errors() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    let good = recorded.deploy("vault");
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body[name] = value;
        body
    };
    let no_program = std::fs::read(recorded.folder.join("vault/vault.wasm")).unwrap();
    for (status, body) in [
        (400, json!([])),
        (400, json!({})),
        (400, with("code", json!("?"))),
        (400, with("code", json!([1, 256]))),
        (400, with("project_name", json!("a b"))),
        (400, with("project_name", json!(7))),
        (400, with("contracts", json!([]))),
        (400, with("contracts", json!(["CAAA"]))),
        (400, with("contracts", json!({ "a": 1 }))),
        (422, with("code", json!([1, 2, 3]))),
        (422, with("code", json!(no_program))),
    ] {
        let (got, refusal) = ana.ask("POST", "deploy", Some(&body));
        assert_eq!(got, status, "{refusal}");
        let sentence = refusal["error"].as_str().unwrap();
        assert!(sentence.len() > 20, "{refusal}");
        // Names of internal types mean nothing to a client.
        assert!(!sentence.contains("expected struct") && !sentence.contains("Body"), "{refusal}");
    }
    assert_eq!(ana.ask("GET", "x/status", None).0, 400);
    assert_eq!(ana.ask("GET", "1/executions?limit=0", None).0, 400);
    assert_eq!(ana.ask("GET", "9/status", None).0, 404);
    assert_eq!(ana.ask("GET", "deploy", None).0, 405);
    assert_eq!(ana.ask("POST", "query", Some(&json!({ "query": "selec" }))).0, 422);
    assert_eq!(ana.ask("POST", "query", Some(&json!({}))).0, 400);
    let stranger = Owner { base: ana.base.clone(), token: "x".to_owned() };
    assert_eq!(stranger.ask("GET", "list", None).0, 401);
}
