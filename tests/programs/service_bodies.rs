//! Request bodies and responses of the program routes: JSON, forms, paths, and the same through the
//! CLI on a terminal.

use serde_json::{Value, json};

use crate::service::{Owner, Recorded, Scene};
use orrery_testkit::binary::{Service, orrery};
use orrery_testkit::terminal::on_terminal;

/// Builds a multipart form of these parts; returns its content type and body.
fn form(parts: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    const BOUNDARY: &str = "a-boundary-that-no-module-holds";
    let mut body = Vec::new();
    for (name, content) in parts {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"f\"\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={BOUNDARY}"), body)
}

fn post_form(owner: &Owner, path: &str, parts: &[(&str, &[u8])]) -> (u16, Value) {
    let (content_type, body) = form(parts);
    owner.send(path, &content_type, body)
}

/// The module of the recorded program, and its contracts separated by commas.
fn parts_of(recorded: &Recorded) -> (Vec<u8>, String) {
    let deploy = recorded.deploy("vault");
    let code = deploy["code"].as_array().unwrap().iter();
    let code = code.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap()).collect();
    let contracts: Vec<_> =
        deploy["contracts"].as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    (code, contracts.join(","))
}

/// A trial's response without the execution times.
fn untimed(mut tried: Value) -> Value {
    for run in tried["transactions"].as_array_mut().unwrap() {
        assert!(run.as_object_mut().unwrap().remove("execution_us").is_some(), "{run}");
    }
    tried
}

#[test]
fn multipart_forms_are_equivalent_to_json() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    scene.import(&recorded.ledgers());
    let ana = scene.owner(&service, "ana");
    let (code, contracts) = parts_of(&recorded);
    let of = [("code", code.as_slice()), ("contracts", contracts.as_bytes())];
    let and = |more: &[(&'static str, &'static [u8])]| [&of, more].concat();

    let mut body = recorded.deploy("vault");
    body["last"] = 7.into();
    let tried = untimed(ana.post("try", &body));
    let hash = tried["transactions"][0]["tx_hash"].as_str().unwrap().to_owned();
    let other = tried["transactions"][1]["tx_hash"].as_str().unwrap().to_owned();
    assert!(tried["transactions"].as_array().unwrap().len() <= 7, "{tried}");
    let (status, answer) = post_form(&ana, "try", &and(&[("last", b"7")]));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(untimed(answer), tried);
    for hashes in [vec![format!("{hash},{other}")], vec![hash, other]] {
        let hashes = hashes.iter().map(|hash| ("transactions", hash.as_bytes()));
        let parts: Vec<_> = of.into_iter().chain(hashes).collect();
        let (status, answer) = post_form(&ana, "try", &parts);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["transactions"].as_array().unwrap().len(), 2, "{answer}");
    }

    for (path, parts, says) in [
        ("try", and(&[("last", b"ten")]), "'last' is \"ten\": give a whole number"),
        ("try", and(&[("last", b"0")]), "'last' is 0: give a number from 1 to 100"),
        ("try", and(&[("last", b"1"), ("last", b"2")]), "'last' is given more than once"),
        ("try", and(&[("last", b"1"), ("transactions", b"aa")]), "exclude each other"),
        ("try", and(&[("transactions", b"aa")]), "'transactions': 'aa' is not a hash"),
        ("try", of[1..].to_vec(), "'code' is missing"),
        ("deploy", of.to_vec(), "'project_name' is missing"),
        ("deploy", and(&[("project_name", b"p"), ("public", b"1")]), "'public' is \"1\""),
        ("deploy", and(&[("project_name", b"p"), ("public", b"True")]), "give true or false"),
        ("deploy", and(&[("project_name", b"\xff")]), "'project_name' is "),
    ] {
        let (status, refusal) = post_form(&ana, path, &parts);
        let sentence = refusal["error"].as_str().unwrap();
        assert!(status == 400 && sentence.contains(says), "{says}: {refusal}");
    }
    assert_eq!(ana.get("list"), json!([]), "nothing was deployed");
    for (number, (project, public)) in [("a", "true"), ("b", "false")].into_iter().enumerate() {
        let more = [("project_name", project.as_bytes()), ("public", public.as_bytes())];
        let (status, answer) = post_form(&ana, "deploy", &[&of[..], &more].concat());
        assert_eq!(status, 200, "{answer}");
        assert_eq!(ana.get("list")[number]["public"].to_string(), public);
    }
}

#[test]
fn errors_name_the_documented_member() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &recorded.deploy("vault"));
    for (path, body, names) in [
        ("query", json!({ "query": "select 1", "max_rows": -1 }), "'max_rows' is -1"),
        ("query", json!({ "query": "select 1", "params": {} }), "'params' is {}"),
        ("query", json!({ "query": "select 1", "numbers": "bad" }), "'numbers' is \"bad\""),
        ("query", json!({ "query": "select 1", "format": "xml" }), "'format' is \"xml\""),
        ("query", json!({ "query": null }), "'query' is missing"),
        ("query", json!([]), "'query'"),
        ("append-contracts", json!({ "program_id": "11", "contracts": [] }), "'program_id' is"),
        ("1/backfill", json!({ "from": "1", "to": 2 }), "'from' is \"1\""),
        ("1/backfill", json!({ "to": 1 }), "'from' is missing"),
        ("try", json!({ "code": [], "contracts": [], "last": -1 }), "'last' is -1"),
        ("try", json!({ "code": [], "contracts": [], "transactions": 1 }), "'transactions' is 1"),
        (
            "deploy",
            json!({ "public": "yes", "code": [], "project_name": "p", "contracts": [] }),
            "'public' is \"yes\"",
        ),
    ] {
        let (status, refusal) = ana.ask("POST", path, Some(&body));
        let sentence = refusal["error"].as_str().unwrap();
        assert!(status == 400 && sentence.contains(names), "{path} {body}: {refusal}");
        for rust in ["u32", "u64", "usize", "expected", "sequence", "line 1"] {
            assert!(!sentence.contains(rust), "{sentence}");
        }
    }
    let no_module = json!({
        "code": b"#!/bin/sh\n".as_slice(), "project_name": "p",
        "contracts": recorded.expected["vaults"],
    });
    for path in ["deploy", "try"] {
        let (status, refusal) = ana.ask("POST", path, Some(&no_module));
        let sentence = refusal["error"].as_str().unwrap();
        assert_eq!(status, 422, "{refusal}");
        assert!(sentence.contains("not a WebAssembly module"), "{sentence}");
        assert!(sentence.contains(".wasm file") && !sentence.contains('\n'), "{sentence}");
    }
}

#[test]
fn path_numbers_are_decoded_and_saturate_and_times_have_three_digits() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let ana = scene.owner(&service, "ana");
    ana.post("deploy", &recorded.deploy("vault"));
    assert_eq!(ana.get("%31/status"), ana.get("1/status"));
    for (id, expected) in [("4294967296", 404), ("99999999999999999999", 404), ("-1", 400)] {
        let (status, refusal) = ana.ask("GET", &format!("{id}/status"), None);
        assert_eq!(status, expected, "{id}: {refusal}");
    }
    scene.import(&recorded.ledgers());
    ana.wait("it has run", |it| it.get("1/executions?limit=200").as_array().unwrap().len() > 40);
    let records = [ana.get("1/executions?limit=200"), ana.get("1/stats")];
    for record in records.iter().flat_map(|records| records.as_array().unwrap()) {
        let at = record["created_at"].as_str().unwrap();
        let digits = at.strip_suffix('Z').and_then(|at| at.split_once('.')).map(|(_, it)| it.len());
        assert_eq!((at.len(), digits), (24, Some(3)), "{at}");
    }
}

#[test]
fn a_trial_prints_tables_on_a_terminal_and_json_elsewhere() {
    let Some(recorded) = Recorded::find() else { return };
    let scene = Scene::new();
    let service = Service::start(scene.path());
    scene.import(&recorded.ledgers());
    let ana = scene.owner(&service, "ana");
    let (code, contracts) = parts_of(&recorded);
    std::fs::write(scene.path().join("p.wasm"), code).unwrap();
    let base = ana.base("/rest");
    let settings = [("ORRERY_BASE", base.as_str()), ("ORRERY_JWT", ana.token())];
    let arguments = ["try", "--code-path", "p.wasm", "--contracts", &contracts, "--last", "100"];

    let piped = orrery().args(arguments).envs(settings).current_dir(scene.path()).output().unwrap();
    let piped: Value = serde_json::from_slice(&piped.stdout).unwrap();
    let runs = piped["transactions"].as_array().unwrap();
    let Some((drawn, code)) = on_terminal(scene.path(), &arguments, &settings) else { return };
    assert_eq!(code, 0, "{drawn}");
    let mut lines = drawn.lines();
    let head: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    let names =
        ["ledger_sequence", "tx_hash", "status", "fidelity", "fuel", "rows", "error_message"];
    assert_eq!(head, names);
    fn text<'a>(run: &'a Value, name: &str) -> &'a str {
        run[name].as_str().unwrap()
    }
    assert!(runs.iter().any(|run| text(run, "fidelity") == "exact"), "{piped}");
    for (run, line) in runs.iter().zip(&mut lines) {
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells[0], run["ledger_sequence"].to_string());
        assert_eq!(cells[1], run["tx_hash"]);
        assert_eq!((cells[2], cells[3]), (text(run, "status"), text(run, "fidelity")));
        assert_eq!(cells[4], run["fuel"].to_string());
        assert_eq!(cells[5], run["rows"].as_array().unwrap().len().to_string());
    }
    for table in ["balance_changed", "batch_done"] {
        let rows = recorded.rows(table).len();
        assert!(drawn.contains(&format!("\n\n{table}: {rows} rows\n")), "{drawn}");
    }
    let (json, _) = on_terminal(scene.path(), &[&arguments[..], &["--json"]].concat(), &settings)
        .expect("there was one before");
    assert_eq!(untimed(serde_json::from_str(&json).expect(&json)), untimed(piped));
}
