//! Requests for triggers: what is refused, what is listed, and what counts as the same.

use orrery::domain::ContractId;
use serde_json::{Value, json};

use crate::service::{Owner, SETTINGS, directory, store};
use orrery_testkit::binary::Service;

#[test]
fn members_that_a_trigger_does_not_take_are_refused_and_the_rest_is_listed() {
    let directory = directory();
    let service = Service::start_with(directory.path(), &SETTINGS);
    let ana = Owner::new(directory.path(), &service, "ana");
    store(directory.path(), 0..3);
    let contract = ContractId([3; 32]).to_string();
    let of = |members: Value| {
        let mut body = json!({
            "webhook_endpoint": "http://127.0.0.1:9/", "contract_ids": [contract], "on": "event",
        });
        let members = members.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(members);
        body
    };
    for (members, expected) in [
        (json!({ "on": "upgraded" }), "'on' is 'upgraded': give one of event, upgrade"),
        (json!({ "within": 5 }), "'within' says nothing about 'event'"),
        (json!({ "on": "upgrade", "topic1": "a" }), "'topic1' says nothing about 'upgrade'"),
        (json!({ "on": "upgrade", "address": contract }), "'address' says nothing about"),
        (json!({ "on": "storage", "within": 5 }), "'within' says nothing about 'storage'"),
        (json!({ "on": "storage", "key_name": "a b" }), "'key_name' holds 'a b'"),
        (json!({ "on": "storage", "key": "?" }), "'key' holds '?'"),
        (json!({ "on": "storage", "durability": "long" }), "'durability' is 'long'"),
        (json!({ "on": "ttl" }), "'within' is missing"),
        (json!({ "on": "ttl", "within": 0 }), "'within' is 0"),
        (json!({ "on": "ttl", "within": 1_000_001 }), "'within' is 1000001"),
        (json!({ "on": "ttl", "within": 5, "entries": [] }), "'entries' is empty"),
        (json!({ "on": "ttl", "within": 5, "entries": ["tag"] }), "'entries' holds 'tag'"),
        (json!({ "on": "ttl", "within": 5, "key_name": "a" }), "are of data"),
        (
            json!({ "on": "ttl", "within": 5, "include_backfill": true }),
            "'include_backfill' says nothing about 'ttl'",
        ),
        (json!({ "on": "failed_call", "functions": ["a b"] }), "'functions' holds 'a b'"),
        (json!({ "on": "failed_call", "entries": ["code"] }), "'entries' says nothing about"),
        (json!({ "on": "silence" }), "'within' is missing"),
    ] {
        let (status, answer) = ana.ask("POST", "webhooks/new", Some(&of(members)));
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && error.contains(expected), "{status} {error}: {expected}");
    }
    // Without contracts there is `address`, where that counts.
    let all = json!({ "webhook_endpoint": "http://127.0.0.1:9/", "on": "upgrade" });
    assert_eq!(ana.ask("POST", "webhooks/new", Some(&all)).0, 400);
    let silent = json!({
        "webhook_endpoint": "http://127.0.0.1:9/", "on": "silence", "within": 9, "address": contract,
    });
    let made = [
        of(json!({})),
        of(json!({ "on": "upgrade" })),
        of(json!({ "on": "storage" })),
        of(json!({ "on": "storage", "key": "symbol:Admin", "key_name": "Admin" })),
        of(json!({ "on": "ttl", "within": 17_280 })),
        of(
            json!({ "on": "ttl", "within": 17_280, "entries": ["data"], "durability": "temporary" }),
        ),
        of(json!({ "on": "failed_call", "functions": ["swap", "add", "swap"] })),
        of(json!({ "on": "silence", "within": 1_000_000, "topic1": "beat" })),
        silent,
    ];
    for body in &made {
        ana.post("webhooks/new", body);
        let mut again = body.clone();
        again["webhook_secret"] = "another".into();
        let (status, answer) = ana.ask("POST", "webhooks/new", Some(&again));
        assert_eq!((status, &answer["code"]), (409, &json!("webhook_exists")), "{body}");
    }
    let listed = ana.get("webhooks/list");
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), made.len());
    let of = |number: usize, name: &str| listed[number][name].clone();
    assert_eq!(of(0, "on"), "event");
    assert_eq!((of(3, "on"), of(3, "key_name")), (json!("storage"), json!("Admin")));
    assert!(of(3, "key").is_string() && of(2, "key").is_null());
    assert_eq!(of(4, "entries"), json!(["instance", "code"]));
    assert_eq!((of(5, "entries"), of(5, "durability")), (json!(["data"]), json!("temporary")));
    assert_eq!(of(6, "functions"), json!(["add", "swap"]));
    assert_eq!(of(7, "within"), 1_000_000);
    for subscription in listed {
        let id = &subscription["id"];
        let tested = ana.post(&format!("webhooks/{id}/test"), &json!({}));
        let delivery = tested["delivery_id"].as_str().unwrap();
        let path = format!("webhooks/{id}/deliveries?delivery_id={delivery}&body=true");
        let found = ana.get(&path);
        assert_eq!((&found[0]["test"], &found[0]["event_id"]), (&json!(true), &Value::Null));
        let body: Value = serde_json::from_str(found[0]["body"].as_str().unwrap()).unwrap();
        assert_eq!(body["test"], true);
        let schema: Value =
            serde_json::from_str(include_str!("../../../schema/webhook-delivery.schema.json"))
                .unwrap();
        let problems: Vec<String> = jsonschema::draft202012::new(&schema)
            .unwrap()
            .iter_errors(&body)
            .map(|error| error.to_string())
            .collect();
        assert!(problems.is_empty(), "{problems:?}: {body}");
        if subscription["on"] != "event" {
            assert_eq!(body["trigger"]["on"], subscription["on"]);
        }
    }
}
