//! Trials: a module is run on the requested transactions only, and nothing is stored.

use orrery::domain::ContractId;
use serde_json::{Value, json};
use stellar_xdr::ScVal;

use crate::network::{Chain, built, call};
use crate::service::{Owner, Scene};
use orrery_testkit::binary::Service;

/// Creates a network in which a counter was called, twice with a result that overflows, and returns
/// the contract and the hashes of all transactions that touched it, oldest first, each with whether
/// it succeeded.
fn called(scene: &Scene, service: &Service) -> (ContractId, Vec<(String, bool)>) {
    let mut chain = Chain::new();
    let counter = chain.create("counter", vec![ScVal::U32(u32::MAX - 100)]);
    let increment = |by| call(counter, "increment", vec![ScVal::U32(by)]);
    for together in
        [&[increment(60), increment(60)][..], &[increment(1)], &[increment(30), increment(30)]]
    {
        chain.close_allowing_failures(together);
    }
    chain.import_into(scene);
    let found = service.get(&format!("/rest/txs/by-contract/{counter}?limit=100"));
    let mut found: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["tx"].as_str().unwrap().to_owned(), it["successful"] == true))
        .collect();
    found.reverse();
    assert_eq!((found.len(), found.iter().filter(|(_, well)| *well).count()), (6, 4));
    (counter, found)
}

fn attempt(owner: &Owner, contract: ContractId, on: (&str, Value)) -> Value {
    let mut body = json!({
        "code": built("counter_program"), "project_name": "counter", "contracts": [contract.to_string()],
    });
    body[on.0] = on.1;
    owner.post("try", &body)
}

/// Collects a member of all transactions of a trial's response.
fn list(tried: &Value, member: &str) -> Value {
    tried["transactions"].as_array().unwrap().iter().map(|it| it[member].clone()).collect()
}

#[test]
fn a_trial_runs_the_newest_successful_transactions() {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let (counter, found) = called(&scene, &service);
    let succeeded: Vec<_> = found.iter().filter(|(_, well)| *well).map(|(hash, _)| hash).collect();
    let tried = attempt(&owner, counter, ("last", json!(3)));
    assert_eq!(list(&tried, "tx_hash"), json!(succeeded[1..]));
    assert_eq!(list(&tried, "status"), json!(["success", "success", "success"]));
    let before = tried["transactions"].as_array().unwrap().iter();
    let before: Vec<_> = before.map(|it| &it["rows"][0]["values"]["before"]).collect();
    assert_eq!(json!(before), json!([u32::MAX - 100, u32::MAX - 40, u32::MAX - 39]));
    let all = attempt(&owner, counter, ("last", json!(100)));
    assert_eq!(list(&all, "tx_hash"), json!(succeeded));
    assert_eq!(owner.get("list"), json!([]), "nothing is kept");
}

#[test]
fn a_trial_runs_the_named_transactions_or_says_why_not() {
    let scene = Scene::new();
    let service = Service::start(scene.path());
    let owner = scene.owner(&service, "ana");
    let (counter, found) = called(&scene, &service);
    let everything: Vec<_> = found.iter().map(|(hash, _)| hash).collect();
    let all = attempt(&owner, counter, ("transactions", json!(everything)));
    assert_eq!(list(&all, "tx_hash"), json!(everything));
    for ((_, well), tried) in found.iter().zip(all["transactions"].as_array().unwrap()) {
        let reason = "it failed on the network, and only what succeeded is run";
        let expected = match well {
            true => (json!("success"), json!(null), 1),
            false => (json!("skipped"), json!(reason), 0),
        };
        let rows = tried["rows"].as_array().unwrap().len();
        let tried = (tried["status"].clone(), tried["error_message"].clone(), rows);
        assert_eq!(tried, expected, "{all}");
    }
    let last = json!(everything[5..]);
    let alone = attempt(&owner, counter, ("transactions", last.clone()));
    assert_eq!(list(&alone, "tx_hash"), last);
    let other = attempt(&owner, ContractId([7; 32]), ("transactions", json!(everything[..1])));
    assert_eq!(list(&other, "status"), json!(["skipped"]));
    let reason = "none of these contracts is called in it";
    assert_eq!(list(&other, "error_message"), json!([reason]));
}
