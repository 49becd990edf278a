//! `getHealth`, `getNetwork` and `getVersionInfo`, and responses of a store that lacks the
//! requested data.

use orrery::rpc::Settings;
use orrery::store::{IndexOptions, Retention};
use serde_json::{Value, json};

use crate::naive;
use crate::world::{Chain, RAW_KEPT, World};

fn asked(chain: &Chain, settings: Settings, now: u64) -> World {
    let world = World::with(&chain.network, RAW_KEPT, settings, now);
    world.add(&chain.ledgers);
    world
}

#[test]
fn a_store_that_is_up_to_date_is_healthy() {
    let chain = Chain::made();
    let of = |raw: &Vec<u8>| naive::ledger(raw, &chain.network);
    let [first, last] = [of(&chain.ledgers[0]), of(chain.ledgers.last().unwrap())];
    let settings = || Settings { retention_window: 120_960, ..Settings::default() };
    for late in [-5, 0, 30] {
        let world = asked(&chain, settings(), last.closed_at.saturating_add_signed(late));
        for params in [Value::Null, json!({}), json!({ "more": 1 })] {
            assert_eq!(
                world.call("getHealth", &params).unwrap(),
                json!({
                    "status": "healthy",
                    "latestLedger": last.sequence,
                    "latestLedgerCloseTime": last.closed_at.to_string(),
                    "oldestLedger": first.sequence,
                    "oldestLedgerCloseTime": first.closed_at.to_string(),
                    "ledgerRetentionWindow": 120_960,
                })
            );
        }
    }
    for (late, most, text) in [
        (31, 30, "latency (31s) since last known ledger closed is too high (>30s)"),
        (62, 30, "latency (1m2s) since last known ledger closed is too high (>30s)"),
        (3600, 90, "latency (1h0m0s) since last known ledger closed is too high (>1m30s)"),
        (90_061, 7200, "latency (25h1m1s) since last known ledger closed is too high (>2h0m0s)"),
    ] {
        let settings = Settings { max_ledger_latency: most, ..settings() };
        let world = asked(&chain, settings, last.closed_at + late);
        let error = world.call("getHealth", &Value::Null).unwrap_err();
        assert_eq!(error, json!({ "code": -32603, "message": text }));
    }
}

#[test]
fn network_and_version_are_returned() {
    let chain = Chain::made();
    let protocol = naive::ledger(chain.ledgers.last().unwrap(), &chain.network).protocol;
    let world = asked(&chain, Settings::default(), 0);
    let passphrase = chain.network.passphrase();
    let network = json!({ "passphrase": passphrase, "protocolVersion": protocol });
    assert_eq!(world.call("getNetwork", &Value::Null).unwrap(), network);
    let url = "http://127.0.0.1:8000/friendbot";
    let settings = Settings { friendbot_url: Some(url.to_owned()), ..Settings::default() };
    let network = asked(&chain, settings, 0).call("getNetwork", &json!({})).unwrap();
    assert_eq!(network["friendbotUrl"], url);
    let version = world.call("getVersionInfo", &Value::Null).unwrap();
    assert_eq!(version["protocolVersion"], protocol);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    for member in ["commitHash", "buildTimestamp", "captiveCoreVersion"] {
        assert_eq!(version[member], "", "{member}");
    }
    assert_eq!(version["atLedger"], json!([]), "what contracts hold is not indexed here");
}

#[test]
fn an_empty_store_returns_errors() {
    let world = World::empty(&Chain::made().network);
    // Clients ask for the version first, to learn whether they can talk to the service.
    let version = world.call("getVersionInfo", &Value::Null).unwrap();
    assert_eq!(version["protocolVersion"], 0);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let start = json!({ "startLedger": 2 });
    let hash = json!({ "hash": "ab".repeat(32) });
    for (method, params) in [
        ("getHealth", &Value::Null),
        ("getNetwork", &Value::Null),
        ("getLatestLedger", &Value::Null),
        ("getFeeStats", &Value::Null),
        ("getLedgers", &start),
        ("getTransactions", &start),
        ("getTransaction", &hash),
    ] {
        let error = world.call(method, params).unwrap_err();
        let wanted = json!({ "code": -32603, "message": "data stores are not initialized" });
        assert_eq!(error, wanted, "{method}");
    }
}

#[test]
fn without_raw_ledgers_errors_name_the_missing_setting() {
    let chain = Chain::made();
    let options = IndexOptions { raw_ledgers: false, ..RAW_KEPT };
    let world = World::with(&chain.network, options, Settings::default(), 0);
    world.add(&chain.ledgers);
    let start = json!({ "startLedger": 2 });
    for (method, params) in [
        ("getLatestLedger", &Value::Null),
        ("getFeeStats", &Value::Null),
        ("getLedgers", &start),
        ("getTransactions", &start),
    ] {
        let error = world.call(method, params).unwrap_err();
        assert_eq!(error["code"], -32603, "{method}");
        assert!(error["message"].as_str().unwrap().contains("raw_ledgers"), "{method}");
    }
    assert!(world.call("getNetwork", &Value::Null).is_ok());
}

#[test]
fn ledgers_before_a_gap_are_hidden() {
    let chain = Chain::made();
    let world = World::empty(&chain.network);
    world.add(&chain.ledgers[..10]);
    world.add(&chain.ledgers[12..20]);
    let first = orrery::decode::header(&chain.ledgers[12]).unwrap().sequence.0;
    let page = world.call("getLedgers", &json!({ "startLedger": first })).unwrap();
    assert_eq!(page["oldestLedger"], first);
    assert_eq!(page["ledgers"].as_array().unwrap().len(), 8);
    let error = world.call("getLedgers", &json!({ "startLedger": first - 1 })).unwrap_err();
    assert_eq!(error["code"], -32600);
    // Transactions before the gap are not returned, because the reported range of ledgers does not
    // include them.
    let before = naive::ledger(&chain.ledgers[9], &chain.network);
    for transaction in &before.transactions {
        let request = json!({ "hash": transaction.hash });
        let answer = world.call("getTransaction", &request).unwrap();
        assert_eq!(answer["status"], "NOT_FOUND");
        assert_eq!(answer["oldestLedger"], first);
    }
}

/// The ranges begin after the newest ledger of which something is gone, although older ledgers were
/// stored after its removal.
#[test]
fn ledgers_before_removed_ones_are_hidden() {
    let chain = Chain::made();
    let world = World::empty(&chain.network);
    world.add(&chain.ledgers[10..40]);
    let (raw_ledgers, events) = (Some(8), Some(12));
    let retention = Retention { raw_ledgers, events, ..Retention::default() };
    while !world.store.prune(&retention).unwrap().is_nothing() {}
    world.add(&chain.ledgers[..10]);
    let sequence = |at: usize| orrery::decode::header(&chain.ledgers[at]).unwrap().sequence.0;
    for (method, first) in [("getEvents", sequence(28)), ("getLedgers", sequence(32))] {
        let page = world.call(method, &json!({ "startLedger": first })).unwrap();
        assert_eq!(page["oldestLedger"], first, "{method}");
        for before in [first - 1, sequence(0)] {
            let error = world.call(method, &json!({ "startLedger": before })).unwrap_err();
            assert_eq!(error["code"], -32600, "{method} {before}");
        }
    }
}
