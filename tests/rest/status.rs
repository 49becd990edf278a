//! `/rest/status`: its contents and headers.

use orrery::domain::{LedgerSeq, Network};
use serde_json::json;

use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

fn empty() -> (Server, TempStore) {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    (Server::start(&store), store)
}

#[test]
fn an_empty_store_has_a_status() {
    let (server, _store) = empty();
    let answer = server.get_public("/rest/status");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let status = answer.json();
    assert_eq!((&status["ledgers"], &status["store"]["events"]), (&json!([]), &json!(0)));
    assert!(status.get("protocol_version").is_none());
    let nothing = json!({"at": [], "latest_ledger": [], "lag_ledgers": [], "lag_seconds": []});
    assert_eq!(status["history"], nothing);
}

#[test]
fn the_status_reports_ledgers_and_lag_history() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let server = Server::start(&store);
    let health = &server.health;
    let (latest, closed) = (Some(LedgerSeq(pubnet::LAST)), Some(1000));
    health.record_lag(1003, latest, closed);
    health.set_follows_source();
    health.record_lag(1004, latest, closed);
    health.set_network_latest(LedgerSeq(pubnet::LAST + 2));
    health.record_lag(1014, latest, closed);
    let status = server.get_public("/rest/status").json();
    let last = pubnet::LAST;
    let expected = json!({
        "at": [1003, 1004, 1014],
        "latest_ledger": [last, last, last],
        "lag_ledgers": [null, null, 2],
        "lag_seconds": [null, 4, 14],
    });
    assert_eq!(status["history"], expected);

    let reported = status["ledgers"].as_array().unwrap();
    let sequences: Vec<_> =
        reported.iter().map(|it| it["ledger"].as_u64().unwrap() as u32).collect();
    assert_eq!(sequences, (pubnet::FIRST..=pubnet::LAST).collect::<Vec<_>>());
    let mut total = 0;
    for ledger in reported {
        let of = &ledger["ledger"];
        let rows = |what| {
            let rows = server.get(&format!("/rest/{what}/by-ledger?from={of}&to={of}&limit=1000"));
            rows.json().as_array().unwrap().clone()
        };
        let (events, transactions) = (rows("events"), rows("txs"));
        assert_eq!(ledger["events"], events.len(), "ledger {of}");
        assert_eq!(ledger["transactions"], transactions.len(), "ledger {of}");
        assert_eq!(ledger["closed_at"], transactions[0]["ledger_closed_at"]);
        total += events.len();
    }
    assert!(total > 0);
    assert_eq!(status["store"]["events"], total);
    let parts = status["store"]["parts"].as_object().unwrap();
    let sum: u64 = parts.values().map(|size| size.as_u64().unwrap()).sum();
    assert_eq!(status["store"]["bytes"], sum);
    assert!(sum > 10_000, "recent data is in the write-ahead log: {parts:?}");
}
