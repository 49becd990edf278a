//! `/rest/health` and the probes.

use std::sync::Arc;

use orrery::domain::{LedgerSeq, Network};
use serde_json::json;

use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

#[test]
fn an_empty_store_without_a_source_is_up() {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    let server = Server::start(&store);
    let answer = server.get_public("/rest/health");
    assert_eq!(answer.status, 200);
    let expected = json!({
        "service": "up",
        "components": {},
        "version": env!("CARGO_PKG_VERSION"),
        "network": "testnet",
        "network_passphrase": "Test SDF Network ; September 2015",
    });
    assert_eq!(answer.json(), expected);
    assert_eq!(server.get_public("/rest/health/live").status, 200);
    assert_eq!(server.get_public("/rest/health/ready").status, 200);
}

#[test]
fn a_component_that_is_down_marks_the_service_as_down() {
    let store = TempStore::new(&Network::from_passphrase("a \"private\" network"));
    let server = Server::start(&store);
    server.health.up("store");
    server.health.down("source", "the lake answers 403");
    let answer = server.get_public("/rest/health");
    assert_eq!(answer.status, 200);
    let record = answer.json();
    assert_eq!(record["service"], "down");
    assert_eq!(record["network"], "custom");
    assert_eq!(record["network_passphrase"], "a \"private\" network");
    let components = json!({
        "store": {"status": "up"},
        "source": {"status": "down", "reason": "the lake answers 403"},
    });
    assert_eq!(record["components"], components);

    let ready = server.get_public("/rest/health/ready");
    let sentence = ready.error(503, "not_ready");
    assert!(sentence.contains("source") && sentence.contains("the lake answers 403"));
    assert!(ready.header("retry-after").is_some());
    assert_eq!(server.get_public("/rest/health/live").status, 200);

    server.health.up("source");
    assert_eq!(server.get_public("/rest/health").json()["service"], "up");
    assert_eq!(server.get_public("/rest/health/ready").status, 200);
}

#[test]
fn health_reports_ledgers_and_lag() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let closed = store.store.status().latest_close_time.unwrap();
    let server = Server::start_with(&store, |deps| deps.clock = Arc::new(move || closed + 7));
    server.health.set_network_latest(LedgerSeq(pubnet::LAST + 5));
    let record = server.get_public("/rest/health/").json();
    assert_eq!(record["service_latest_ledger"], pubnet::LAST);
    for lag in ["lag_seconds", "lag_ledgers"] {
        assert!(record.get(lag).is_none(), "nothing is followed: {record}");
    }

    let server = Server::start_with(&store, |deps| deps.clock = Arc::new(move || closed + 7));
    server.health.set_follows_source();
    let record = server.get_public("/rest/health/").json();
    assert_eq!(record["service_latest_ledger"], pubnet::LAST);
    assert_eq!(record["oldest_ledger"], pubnet::FIRST);
    assert_eq!(record["lag_seconds"], 7);
    assert_eq!(record["network"], "mainnet");
    assert!(record.get("network_latest_ledger").is_none() && record.get("lag_ledgers").is_none());
    assert!(record.get("warning").is_none());

    server.health.set_network_latest(LedgerSeq(pubnet::LAST + 5));
    let record = server.get_public("/rest/health").json();
    assert_eq!(
        (&record["network_latest_ledger"], &record["lag_ledgers"]),
        (&json!(pubnet::LAST + 5), &json!(5))
    );

    server.health.set_network_latest(LedgerSeq(pubnet::LAST - 1));
    let record = server.get_public("/rest/health").json();
    assert_eq!(record["lag_ledgers"], 0, "ahead of a slow source is not behind");
}
