//! `/rest/events/by-id/{id}`: each event of the lists by its id, and nothing for ids that no stored
//! event has.

use orrery::store::Retention;
use serde_json::{Value, json};

use orrery_testkit::http::Connection;
use orrery_testkit::pubnet;
use orrery_testkit::server::Server;

fn all(server: &Server, decoded: bool) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), 0);
    loop {
        let path = format!("/rest/events/by-ledger?order=asc&cursor={cursor}&decoded={decoded}");
        let page = server.get(&path).json();
        let page = page.as_array().unwrap();
        let Some(last) = page.last() else { return all };
        cursor = last["id"].as_u64().unwrap();
        all.extend(page.iter().cloned());
    }
}

fn get(connection: &mut Connection, server: &Server, id: impl std::fmt::Display) -> Value {
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str())];
    let answer = connection.request("GET", &format!("/rest/events/by-id/{id}"), &headers);
    assert_eq!(answer.status, 200, "{id}");
    answer.json()
}

#[test]
fn each_event_is_found_by_its_id() {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(pubnet::made()), public].into_iter().flatten() {
        let store = pubnet::store_of(&network, &ledgers);
        let server = Server::start(&store);
        let (plain, decoded) = (all(&server, false), all(&server, true));
        assert!(plain.len() > 100);
        let mut connection = server.connect();
        for (plain, decoded) in plain.iter().zip(&decoded) {
            let id = plain["id"].as_u64().unwrap();
            assert_eq!(get(&mut connection, &server, id), json!([plain]));
            let with_names = get(&mut connection, &server, format!("{id}?decoded=true"));
            assert_eq!(with_names, json!([decoded]));
        }
        for none in [0, plain.len() as u64 + 1, u64::MAX] {
            assert_eq!(get(&mut connection, &server, none), json!([]), "{none}");
        }
        assert_eq!(get(&mut connection, &server, "99999999999999999999999"), json!([]));
    }
}

#[test]
fn an_event_that_retention_removed_is_said_to_be_gone() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers);
    let server = Server::start(&store);
    let before = all(&server, false);
    let retention = Retention { events: Some(9), ..Retention::default() };
    while !store.store.prune(&retention).unwrap().is_nothing() {}
    let after = all(&server, false);
    assert!(after.len() < before.len() && !after.is_empty());
    let mut connection = server.connect();
    for event in before {
        if after.contains(&event) {
            assert_eq!(get(&mut connection, &server, &event["id"]), json!([event]));
            continue;
        }
        let gone = server.get(&format!("/rest/events/by-id/{}", event["id"]));
        let ledger = format!("ledger {},", event["ledger"]);
        assert!(gone.error(410, "events_removed").contains(&ledger), "{ledger}");
    }
    // Ids that no event was given.
    for none in [0, store.store.status().last_event_id.0 + 1] {
        assert_eq!(get(&mut connection, &server, none), json!([]));
    }
}

#[test]
fn malformed_ids_and_callers_without_a_token_are_refused() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers[..5]);
    let server = Server::start(&store);
    for wrong in ["x", "-1", "%FF", "1.0", "0x1"] {
        let refused = server.get(&format!("/rest/events/by-id/{wrong}"));
        assert!(refused.error(400, "bad_parameter").contains("'id'"), "{wrong}");
    }
    server.get_public("/rest/events/by-id/1").error(401, "unauthorized");
    server.get("/rest/events/by-id/1?limit=1").error(400, "unknown_parameter");
}
