//! `/rest/health` and the probes.

use std::sync::Arc;

use orrery::attestation::Attestation;
use orrery::decode::decode;
use orrery::domain::{LedgerSeq, Network, NodeId};
use orrery::sandbox::network::Sandbox;
use orrery::store::{Durability, IndexOptions, PreparedLedger};
use orrery::validators::{Organisation, Validators};
use serde_json::{Value, json};

use orrery_testkit::pubnet;
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::server::{Server, TempStore};

#[test]
fn an_empty_store_without_a_source_is_up() {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    let server = Server::start(&store);
    let answer = server.get_public("/rest/health");
    assert_eq!(answer.status, 200);
    let expected = json!({
        "service": "up",
        "attested_ledger": null,
        "components": {
            "attestation": {
                "status": "up",
                "detail": "nothing is attested, because no ledgers are stored",
            },
        },
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
    let untrusted = "no validators of this network are trusted: name them in trust.validators to \
                     learn which ledgers they attest";
    let components = json!({
        "attestation": {"status": "up", "detail": untrusted},
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

/// Stores ledgers that validators of too few organisations have signed lately.
#[test]
fn health_says_when_too_little_is_attested() {
    let (network, ledgers) = (local(), ledgers(sandbox(3, 0..=0), 104));
    let store = TempStore::new(&network);
    let key = Sandbox::validator(3);
    let organisation =
        |name: &str, key: NodeId| Organisation { name: name.to_owned(), validators: vec![key] };
    let both = vec![organisation("a", key), organisation("b", NodeId([1; 32]))];
    let validators = Arc::new(Validators::new(both, 2).unwrap());
    let server = Server::start_with(&store, |deps| {
        deps.attestation = Arc::new(Attestation::new(Some(Arc::clone(&validators))));
    });
    let commit = |at: usize, signer: NodeId| {
        let view = decode(&ledgers[at], network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
        store.store.commit(prepared.signed_by(Some(signer)), Durability::Deferred).unwrap();
    };
    let asked = || {
        let record = server.get_public("/rest/health").json();
        assert_eq!(record["service"], "up");
        let component = &record["components"]["attestation"];
        assert_eq!(component["status"], "up");
        (record["attested_ledger"].clone(), component["detail"].as_str().map(str::to_owned))
    };
    // Ledgers 2 to 4, of which one organisation has signed none.
    (0..3).for_each(|at| commit(at, key));
    let (attested, detail) = asked();
    assert_eq!(attested, Value::Null);
    let reason = "no ledger of the newest range, 2 to 4, is attested: validators of 1 trusted \
                  organisations have signed ledgers of this range, and 2 are needed";
    assert_eq!(detail.as_deref(), Some(reason));
    commit(3, NodeId([1; 32]));
    (4..103).for_each(|at| commit(at, key));
    assert_eq!(asked(), (json!(4), None), "100 ledgers, to ledger 104");
    commit(103, key);
    let (attested, detail) = asked();
    assert_eq!(attested, 4);
    let detail = detail.unwrap();
    assert!(detail.contains("101 ledgers before the newest stored one, 105"), "{detail}");
}

#[test]
fn a_followed_core_attests_what_it_delivers() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let attestation = Arc::new(Attestation::default());
    let server = Server::start_with(&store, |deps| deps.attestation = Arc::clone(&attestation));
    assert_eq!(server.get_public("/rest/health").json()["attested_ledger"], Value::Null);
    attestation.stored_from_core(LedgerSeq(pubnet::LAST));
    let record = server.get_public("/rest/health").json();
    assert_eq!(record["attested_ledger"], pubnet::LAST);
    assert_eq!(record["attested_by"], "core");
    assert_eq!(record["components"]["attestation"], json!({"status": "up"}));
    let answer = server.get_public("/rest/completeness").json();
    assert_eq!(answer["ranges"][0]["attested_by"], "core");
}
