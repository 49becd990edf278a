//! Checks `schema/openapi.yaml` against the running server.

use std::collections::BTreeSet;
use std::sync::Arc;

use jsonschema::Validator;
use orrery::api::{self, Access, ApiSettings};
use orrery::store::Sample;
use serde_json::{Value, json};
use tokio::sync::watch;

use orrery_testkit::pubnet::{self, Model};
use orrery_testkit::server::{Server, TempStore};

const METHODS: [&str; 6] = ["get", "post", "put", "patch", "delete", "trace"];

fn description() -> Value {
    let yaml = include_str!("../../schema/openapi.yaml");
    serde_json::to_value(serde_yaml_ng::from_str::<serde_yaml_ng::Value>(yaml).unwrap()).unwrap()
}

/// Follows `$ref` within the description.
fn resolve<'a>(root: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => root.pointer(&reference[1..]).unwrap_or_else(|| panic!("{reference}")),
        None => value,
    }
}

fn validator(root: &Value, schema: &Value) -> Validator {
    // References in the description start at its root.
    let whole = json!({ "components": root["components"], "allOf": [schema] });
    jsonschema::draft202012::new(&whole).unwrap()
}

/// Schema of an operation's response with this status.
fn answer_schema<'a>(root: &'a Value, operation: &'a Value, status: u16) -> &'a Value {
    let responses = &operation["responses"];
    let response = responses.get(status.to_string()).unwrap_or(&responses["default"]);
    &resolve(root, response)["content"]["application/json"]["schema"]
}

/// Replaces the path parameters with values from the model that exist, or with well-formed ones.
fn example_path(path: &str, model: Option<&Model>) -> String {
    let (contract, hash) = model.map_or_else(
        || ("CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA".into(), "ab".repeat(32)),
        |model| {
            let event = &model.events[0];
            let text = |field: &str| event[field].as_str().unwrap().to_owned();
            (text("contract_id"), text("tx"))
        },
    );
    let ledger = model.map_or(1, |model| model.ledgers.0).to_string();
    ["{contract_id}", "{address}"]
        .iter()
        .fold(path.to_owned(), |path, name| path.replace(name, &contract))
        .replace("{tx_hex}", &hash)
        .replace("{id}", "1")
        .replace("{key_hash}", &"ab".repeat(32))
        .replace("{ledger}", &ledger)
}

fn example_query(name: &str, model: Option<&Model>, transactions: bool) -> String {
    let contract = "CAS3J7GYLGXMF6TDJBBYYSE3HQ6BBSMLNUQ34T6TZMYMW2EVH34XOWMA";
    match (name, model) {
        ("contracts", Some(model)) => model.contracts.join(","),
        ("contracts", None) | ("address" | "addresses", _) => contract.into(),
        ("cursor", Some(model)) if transactions => {
            model.transactions[3]["tx"].as_str().unwrap().into()
        }
        ("order", _) => "asc".into(),
        ("combine" | "decoded" | "spec", _) => "true".into(),
        ("topics_match", _) => "all".into(),
        (name, _) if name.starts_with("topic") => "AAAADwAAAAh0cmFuc2Zlcg==".into(),
        _ => "3".into(),
    }
}

/// Generators of clients refuse other descriptions, or leave out the routes that have them.
#[test]
fn arrays_say_what_they_hold_and_no_schema_is_a_boolean() {
    fn check(value: &Value, place: &str, arrays: &mut usize) {
        let mut kinds =
            [&value["type"]].into_iter().chain(value["type"].as_array().into_iter().flatten());
        if kinds.any(|kind| kind == "array") {
            assert!(value["items"].is_object(), "{place}");
            *arrays += 1;
        }
        for name in ["items", "contains", "not"] {
            assert!(!value[name].is_boolean(), "{place}/{name}");
        }
        let members = value.as_object().into_iter().flatten();
        members.for_each(|(name, inner)| check(inner, &format!("{place}/{name}"), arrays));
        for (at, inner) in value.as_array().into_iter().flatten().enumerate() {
            check(inner, &format!("{place}/{at}"), arrays);
        }
    }
    let mut arrays = 0;
    check(&description(), "", &mut arrays);
    assert!(arrays > 40, "{arrays}");
}

#[test]
fn the_openapi_description_is_served_unchanged() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start(&store);
    let served = server.get_public("/rest/openapi.json").json();
    assert_eq!(served, description());
    assert_eq!(served["openapi"], "3.1.0");
    assert_eq!(served["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn documented_routes_answer_as_documented_and_no_others_exist() {
    let ledgers = pubnet::ledgers();
    let model = ledgers.as_deref().map(Model::of);
    let store = match &ledgers {
        Some(ledgers) => pubnet::store(ledgers),
        None => TempStore::with_names(&pubnet::network()),
    };
    let sample = Sample { ledgers: 256, bytes: u64::MAX, contracts: usize::MAX };
    let sizes = store.store.contract_sizes(sample, 10, || true).unwrap();
    let server = Server::start_with(&store, |deps| {
        deps.contract_sizes = watch::channel(sizes.map(Arc::new)).1;
    });
    let root = description();
    let mut answered = 0;
    for (path, item) in root["paths"].as_object().unwrap() {
        let documented: BTreeSet<_> =
            item.as_object().unwrap().keys().map(String::as_str).collect();
        let target = format!("/rest{}", example_path(path, model.as_ref()));
        for method in METHODS {
            let status = server.connect().request(&method.to_uppercase(), &target, &[]).status;
            assert_eq!(status == 405, !documented.contains(method), "{method} {path}: {status}");
        }
        // Routes of programs and webhooks take bodies and streams do not end; all of these have
        // tests of their own.
        let has_own_tests = [
            "/retroshade",
            "/webhooks",
            "/events/stream",
            "/smart-account-indexer",
            "/passkey-indexer",
        ];
        let is_of_storage = path.contains("/storage");
        if is_of_storage || has_own_tests.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        let operation = &item["get"];
        let public = operation["security"] == json!([]);
        let anonymous = server.get_public(&target);
        assert_eq!(anonymous.status == 401, !public, "{path}");
        let error = validator(&root, answer_schema(&root, operation, anonymous.status));
        assert!(error.is_valid(&anonymous.json()), "{path}");

        let schema = validator(&root, answer_schema(&root, operation, 200));
        let refusal = validator(&root, answer_schema(&root, operation, 400));
        let none = Vec::new();
        let parameters: Vec<_> = operation["parameters"]
            .as_array()
            .unwrap_or(&none)
            .iter()
            .map(|parameter| resolve(&root, parameter))
            .filter(|parameter| parameter["in"] == "query")
            .collect();
        let transactions = path.starts_with("/txs");
        let usable = |name: &str| !(name == "cursor" && transactions && model.is_none());
        let pair = |parameter: &Value| {
            let name = parameter["name"].as_str().unwrap();
            format!("{name}={}", example_query(name, model.as_ref(), transactions))
        };
        let required: Vec<_> =
            parameters.iter().filter(|p| p["required"] == true).map(|p| pair(p)).collect();
        let mut queries = vec![required.join("&")];
        for parameter in &parameters {
            let name = parameter["name"].as_str().unwrap();
            if usable(name) && parameter["required"] != true {
                queries.push([required.clone(), vec![pair(parameter)]].concat().join("&"));
            }
            // A value that is not UTF-8 is refused by name, so the server has this parameter.
            let wrong = format!(
                "{target}?{}&{name}=%FF",
                if parameter["required"] == true { String::new() } else { required.join("&") }
            );
            let answer = server.get(&wrong);
            assert_eq!(answer.status, 400, "{wrong}");
            assert!(answer.error(400, "bad_parameter").contains(name));
            assert!(refusal.is_valid(&answer.json()), "{wrong}");
        }
        // Without ledgers, there is none to answer with.
        let needs_ledgers = ["/ledgers/", "/txs/by-hash/{tx_hex}/changes"];
        if model.is_none() && needs_ledgers.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        for query in queries {
            let target = format!("{target}?{query}");
            let answer = server.get(&target);
            assert_eq!(answer.status, 200, "{target}: {}", String::from_utf8_lossy(&answer.body));
            let body = answer.json();
            let problems: Vec<_> =
                schema.iter_errors(&body).map(|error| error.to_string()).take(3).collect();
            assert!(problems.is_empty(), "{target}: {problems:?}");
            answered += 1;
        }
    }
    assert!(answered > 40, "{answered}");
}

#[test]
fn every_route_is_documented_with_its_access() {
    let served: BTreeSet<_> = api::routes(&ApiSettings::default())
        .filter_map(|route| {
            let path = route.template.strip_prefix("/rest")?;
            let is_public = !matches!(route.access(), Access::Token(_));
            // A catch-all matches only paths that do not exist.
            let exists = !path.ends_with("{*rest}");
            exists.then(|| (path.to_owned(), route.method.to_lowercase(), is_public))
        })
        .collect();
    let root = description();
    let mut documented = BTreeSet::new();
    for (path, item) in root["paths"].as_object().unwrap() {
        let operations = item.as_object().unwrap().iter();
        for (method, operation) in operations.filter(|(key, _)| METHODS.contains(&key.as_str())) {
            let is_public = operation["security"] == json!([]);
            documented.insert((path.clone(), method.clone(), is_public));
        }
    }
    assert_eq!(served, documented);
}

#[test]
fn records_with_milliseconds_match_the_schema() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers);
    let server = Server::start(&store);
    let root = description();
    for (list, schema) in [("events", "Event"), ("txs", "Transaction")] {
        let records = server.get(&format!("/rest/{list}/by-ledger?order=asc&limit=1000")).json();
        let records = records.as_array().unwrap();
        let schema = validator(&root, &root["components"]["schemas"][schema]);
        assert!(records.iter().all(|record| schema.is_valid(record)), "{list}");
        let precise = |record: &&Value| record["ledger_closed_at_ms"].is_u64();
        let count = records.iter().filter(precise).count();
        assert!(0 < count && count < records.len(), "some ledgers say milliseconds");
        // Ledgers that share a second are listed by sequence.
        let order = records.iter().map(|record| record["ledger"].as_u64().unwrap());
        assert!(order.is_sorted(), "{list}");
        let mut altered = records.iter().find(precise).unwrap().clone();
        altered["ledger_closed_at"] = json!("2025-06-15T15:06:40.5Z");
        assert!(!schema.is_valid(&altered), "{list}");
    }
}
