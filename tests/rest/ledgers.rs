//! `/rest/ledgers/{ledger}`: every stored ledger as a second decoding has it, and why others are not
//! stored.

use orrery::decode::{Placement, decode};
use orrery::domain::{Network, NodeId};
use orrery::settings::Mib;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Retention};
use orrery::validators::{Organisation, Validators};
use serde_json::{Value, json};
use std::sync::Arc;

use orrery::attestation::Attestation;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::wait::wait_until;
use orrery_testkit::{full, pubnet};

fn commit(store: &TempStore, xdr: &[u8]) {
    let view = decode(xdr, store.store.network().id()).unwrap();
    let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
    store.store.commit(prepared, Durability::Deferred).unwrap();
}

fn expected(ledger: &full::Ledger, range: [u32; 2]) -> Value {
    let time = time::OffsetDateTime::from_unix_timestamp(ledger.close_time as i64).unwrap();
    let mut closed = time.format(&time::format_description::well_known::Rfc3339).unwrap();
    if let Some(milliseconds) = ledger.close_time_ms {
        closed = closed.replace('Z', &format!(".{:03}Z", milliseconds % 1000));
    }
    let contracts = ledger.transactions.iter().filter(|it| it.smart_contract).count();
    let events = ledger.events.iter().filter(|event| {
        ledger.transactions[event.transaction].smart_contract
            && matches!(event.placement, Placement::Operation { .. })
    });
    let mut expected = json!({
        "ledger": ledger.sequence.0,
        "hash": ledger.hash.to_string(),
        "previous_hash": ledger.previous_hash.to_string(),
        "closed_at": closed,
        "protocol_version": ledger.protocol,
        "transactions": contracts,
        "transactions_in_ledger": ledger.transactions.len(),
        "failed_in_ledger": ledger.transactions.iter().filter(|it| !it.successful).count(),
        "events": events.count(),
        "events_removed": false,
        "attested": false,
        "reported": false,
        "unproven": false,
        "range": range,
    });
    if let Some(milliseconds) = ledger.close_time_ms {
        expected["closed_at_ms"] = json!(milliseconds);
    }
    expected
}

#[test]
fn every_ledger_is_as_in_a_second_decoding() {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(pubnet::made()), public].into_iter().flatten() {
        let store = pubnet::store_of(&network, &ledgers);
        let server = Server::start(&store);
        let decoded: Vec<_> =
            ledgers.iter().map(|raw| full::decode(raw, network.id()).unwrap()).collect();
        let range = [&decoded[0], &decoded[decoded.len() - 1]].map(|ledger| ledger.sequence.0);
        for ledger in &decoded {
            let answer = server.get_public(&format!("/rest/ledgers/{}", ledger.sequence));
            assert_eq!((answer.status, answer.json()), (200, expected(ledger, range)));
        }
    }
}

#[test]
fn ledgers_that_are_not_stored_are_explained() {
    let (network, ledgers) = pubnet::made();
    let store = TempStore::new(&network);
    let server = Server::start(&store);
    let asked = |ledger: &str| server.get_public(&format!("/rest/ledgers/{ledger}"));
    assert!(asked("5").error(404, "no_ledger").contains("no ledger is stored yet"));
    let first = full::decode(&ledgers[0], network.id()).unwrap().sequence.0;
    for at in [3, 4, 9] {
        commit(&store, &ledgers[at]);
    }
    let (from, to) = (first + 5, first + 8);
    let fill =
        format!("in the gap from {from} to {to}, which `orrery backfill --from {from} --to {to}`");
    for (ledger, expected) in [
        (first + 2, format!("older than the first stored ledger {}", first + 3)),
        (0, "`orrery backfill --from 1 --to 1`".to_owned()),
        (from, fill.clone()),
        (to, fill),
        (first + 10, format!("newer than the newest stored ledger {}", first + 9)),
        (u32::MAX, format!("newer than the newest stored ledger {}", first + 9)),
    ] {
        let sentence = asked(&ledger.to_string()).error(404, "no_ledger");
        assert!(sentence.contains(&format!("ledger {ledger} is not stored")), "{sentence}");
        assert!(sentence.contains(&expected), "{sentence}");
    }
    assert!(asked("99999999999999999999").error(404, "no_ledger").contains("newer"));
    for wrong in ["x", "-1", "%FF", "1.0", "0x1"] {
        assert!(asked(wrong).error(400, "bad_parameter").contains("'ledger'"), "{wrong}");
    }
    let answer = asked(&(first + 4).to_string()).json();
    assert_eq!(answer["range"], json!([first + 3, first + 4]));
}

#[test]
fn removed_events_and_attested_ledgers_are_reported() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers);
    let decoded: Vec<_> =
        ledgers.iter().map(|raw| full::decode(raw, network.id()).unwrap()).collect();
    let range = [&decoded[0], &decoded[decoded.len() - 1]].map(|ledger| ledger.sequence.0);
    let retention = Retention { events: Some(9), ..Retention::default() };
    while !store.store.prune(&retention).unwrap().is_nothing() {}
    let newest_attested = decoded[20].sequence;
    let server = Server::start_with(&store, |deps| {
        let organisation =
            Organisation { name: "one".to_owned(), validators: vec![NodeId([1; 32])] };
        let validators = Validators::new(vec![organisation], 1).unwrap();
        deps.attestation = Arc::new(Attestation::new(Some(Arc::new(validators))));
        deps.attestation.stored_from_core(newest_attested);
    });
    let mut removed = 0;
    for ledger in &decoded {
        let mut expected = expected(ledger, range);
        let is_removed = range[1] - ledger.sequence.0 >= 9 && expected["events"] != 0;
        removed += u32::from(is_removed);
        expected["events_removed"] = json!(is_removed);
        if ledger.sequence <= newest_attested {
            expected["attested"] = json!(true);
            expected["attested_by"] = json!("core");
        }
        let answer = server.get_public(&format!("/rest/ledgers/{}", ledger.sequence)).json();
        assert_eq!(answer, expected);
    }
    assert!(removed > 10, "{removed}");
}

#[test]
fn a_ledger_takes_no_token_and_no_parameters() {
    let store = TempStore::new(&Network::from_name_or_passphrase("testnet"));
    let server = Server::start(&store);
    let refused = server.get_public("/rest/ledgers/5?limit=3").error(400, "unknown_parameter");
    assert!(refused.contains("'limit'"), "{refused}");
    assert_eq!(server.connect().request("POST", "/rest/ledgers/5", &[]).status, 405);
}

/// Clients that follow the cursor would stop for ever at a ledger that is refused.
#[test]
fn json_rpc_answers_with_a_ledger_that_is_larger_than_what_a_client_may_have() {
    /// Room for the least that is reserved for an answer, and for a call.
    const MOST: usize = (1 << 20) + (16 << 10);
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = TempStore::new(&pubnet::network());
    for raw in &ledgers {
        let view = orrery::decode::decode(raw, pubnet::network().id()).unwrap();
        let options = IndexOptions { raw_ledgers: true, ..IndexOptions::default() };
        let prepared = PreparedLedger::new(&view, &options).unwrap();
        store.store.commit(prepared, Durability::Deferred).unwrap();
    }
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.bytes_in_flight_per_token_mib = Mib::exactly(MOST as u64);
    });
    let ask = |params: Value| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "getLedgers", "params": params });
        let body = call.to_string();
        let mut connection = server.connect();
        let head = format!(
            "POST /rpc HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.send(head.as_bytes()).unwrap();
        connection.answer(false).json()["result"].clone()
    };
    let sequence = |raw: &Vec<u8>| orrery::decode::header(raw).unwrap().sequence.0;
    let mut params = json!({ "startLedger": sequence(&ledgers[0]) });
    for raw in &ledgers {
        assert!(raw.len() / 3 * 4 > MOST, "it is larger");
        // The answer before may still be about to be let go of: it is read to its end a moment before.
        let page = wait_until("the bytes of the answer before are free", || {
            Some(ask(params.clone())).filter(|page| page["ledgers"].is_array())
        });
        assert_eq!(page["ledgers"].as_array().map(Vec::len), Some(1));
        assert_eq!(page["ledgers"][0]["sequence"], sequence(raw));
        assert!(page["ledgers"][0]["metadataXdr"].as_str().unwrap().len() > raw.len());
        params = json!({ "pagination": { "cursor": page["cursor"] } });
    }
}
