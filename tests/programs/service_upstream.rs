//! Programs on ledgers whose predecessors are not stored: unknown entries are requested from an RPC
//! server. Uses the built binary, and a server that may be down.

use std::io::Write;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use soroban_env_host::Val;
use tempfile::NamedTempFile;

use crate::service::{Owner, Recorded, Scene};
use crate::state::timeline;
use crate::state_sections::{Section, local_network};
use crate::state_upstream::rpc_answer;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::engine_world::module;
use orrery_testkit::provider::{Provider, Reply};
use orrery_testkit::wasm_text::{env_call, imports, map_of, sym, val, void, word};

/// Writes some ledgers to a file, framed as stellar-core writes them.
fn file_of(section: &Section, ledgers: RangeInclusive<u32>) -> NamedTempFile {
    let mut file = NamedTempFile::with_suffix(".xdr").unwrap();
    for xdr in section.ledgers.range(ledgers).map(|(_, xdr)| xdr) {
        let mark = 0x8000_0000 | u32::try_from(xdr.len()).unwrap();
        file.write_all(&mark.to_be_bytes()).unwrap();
        file.write_all(xdr).unwrap();
    }
    file.flush().unwrap();
    file
}

/// A program that looks up an entry that its contract never wrote, and emits a row when it is
/// absent. The recorded transactions therefore do not determine what it reads.
pub fn program_reading_unwritten_entry() -> Vec<u8> {
    let found = env_call("has_contract_data", &[sym("ghost"), word(1)]);
    let emit = env_call("emit", &[sym("absent"), map_of(&[("wanted", sym("ghost"))])]);
    let body = format!(
        "(if (i64.ne {found} {}) (then unreachable)) (drop {emit}) {}",
        val(Val::from_bool(false)),
        void()
    );
    let function = |name: &str, parameters: usize| {
        let parameters = "(param i64) ".repeat(parameters);
        format!("(func (export \"{name}\") {parameters} (result i64) {body})")
    };
    let functions = [("deposit", 2), ("withdraw", 2), ("sweep", 3)];
    let functions: String = functions.map(|(name, count)| function(name, count)).concat();
    module(&format!("{} (memory (export \"memory\") 1) {functions}", imports()))
}

/// Ledger and error message of each run.
pub fn runs(owner: &Owner) -> Vec<(u64, Option<String>)> {
    let runs = owner.get("1/executions?limit=200");
    let run = |run: &Value| {
        let error = run["error_message"].as_str().map(str::to_owned);
        (run["ledger_sequence"].as_u64().unwrap(), error)
    };
    runs.as_array().unwrap().iter().map(run).collect()
}

/// Number of rows; `None` until the first row has created the table.
fn rows(owner: &Owner) -> Option<usize> {
    let query = json!({ "query": "select count(*) n from vault_absent" });
    let (status, answer) = owner.ask("POST", "query", Some(&query));
    (status == 200).then(|| answer[0]["n"].as_u64().unwrap() as usize)
}

#[test]
fn entries_missing_from_the_store_are_requested_from_the_rpc_server() {
    let (Some(recorded), Some(section)) = (Recorded::find(), local_network()) else { return };
    let deploy = |service: &Service, scene: &Scene| {
        let ana = scene.owner(service, "ana");
        let mut body = recorded.deploy("vault");
        body["code"] = STANDARD.encode(program_reading_unwritten_entry()).into();
        ana.post("deploy", &body);
        ana
    };
    // From the ledger on in which the contracts are created, the entry is known to be absent.
    let whole = Scene::new();
    let service = Service::start(whole.path());
    let ana = deploy(&service, &whole);
    whole.import(&recorded.ledgers());
    ana.wait("a row of each run", |it| {
        let caught_up = it.get("1/status")["lag_ledgers"] == 0;
        let count = runs(it).len();
        caught_up && count > 40 && rows(it) == Some(count)
    });
    let first = (section.first() + section.last()) / 2;
    let late = runs(&ana).iter().filter(|run| run.0 >= u64::from(first)).count();
    assert!(late >= 10, "{late}");

    // The second half, without a server to ask.
    let half = file_of(&section, first..=section.last());
    let alone = Scene::new();
    let service = Service::start(alone.path());
    let ana = deploy(&service, &alone);
    alone.import(half.path());
    ana.wait("runs without state", |it| runs(it).len() == late);
    for (ledger, error) in runs(&ana) {
        assert!(error.unwrap().starts_with("state unavailable: "), "{ledger}");
    }
    assert!(ana.query("show tables").is_empty());

    // The second half, and a server that is down at first.
    let (model, latest) = (timeline(&section), section.last());
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let server = Provider::start(move |request| match up.load(Ordering::Relaxed) {
        true => rpc_answer(&model, latest, request),
        false => Reply::status(503),
    });
    let asked = Scene::new();
    let address = format!("rpc:http://{}/", server.address());
    let service = Service::start_with(asked.path(), &[("ORRERY_PROGRAMS_RPC", &address)]);
    let ana = deploy(&service, &asked);
    asked.import(half.path());
    let programs = || -> Value {
        let health = HTTP.get(format!("{}/rest/health", service.base)).send().unwrap();
        health.json::<Value>().unwrap()["components"]["programs"].clone()
    };
    ana.wait("the failure is reported", |_| programs()["status"] == "down");
    let reason = programs()["reason"].to_string();
    let own = ana.get("1/status")["last_error_message"].to_string();
    for message in [reason, own] {
        assert!(message.contains("out of reach"), "{message}");
        assert!(!message.contains("503") && !message.contains("127.0.0.1"), "{message}");
    }
    assert!(runs(&ana).is_empty());
    is_up.store(true, Ordering::Relaxed);
    ana.wait("all runs", |it| runs(it).len() == late);
    ana.wait("the failure is over", |_| programs()["status"] != "down");
    assert_eq!(runs(&ana).into_iter().find_map(|(_, error)| error), None);
    ana.wait("a row of each run", |it| rows(it) == Some(late));
}
