//! A stellar-core started by the service, here a stand-in, serves entries and receives submitted
//! transactions.

use orrery::decode::decode;
use orrery::store::Store;
use serde_json::{Value, json};
use stellar_xdr::{
    DiagnosticEvent, LedgerCloseMeta, LedgerEntry, LedgerKey, LedgerKeyTtl, Limits, ReadXdr,
    TransactionEnvelope, TransactionResult, TransactionResultExt, TransactionResultResult, VecM,
    WriteXdr,
};

use crate::transport::upstream;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::pubnet;
use orrery_testkit::stand_in_core::StandIn;
use orrery_testkit::wait::wait_until;

fn base64(value: &impl WriteXdr) -> String {
    value.to_xdr_base64(Limits::none()).unwrap()
}

fn call(service: &Service, method: &str, params: &Value) -> Value {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    HTTP.post(format!("{}/rpc", service.base)).json(&call).send().unwrap().json().unwrap()
}

/// A transaction of a recorded ledger, and an entry that the ledger changed.
fn recorded(raw: &[u8]) -> (TransactionEnvelope, LedgerEntry) {
    let ledger = LedgerCloseMeta::from_xdr(raw, Limits::none()).unwrap();
    let LedgerCloseMeta::V2(ledger) = ledger else { panic!("older metadata") };
    let stellar_xdr::GeneralizedTransactionSet::V1(set) = ledger.tx_set;
    let envelope = set.phases.iter().find_map(|phase| match phase {
        stellar_xdr::TransactionPhase::V0(parts) => parts.iter().find_map(|part| {
            let stellar_xdr::TxSetComponent::TxsetCompTxsMaybeDiscountedFee(part) = part;
            part.txs.first().cloned()
        }),
        stellar_xdr::TransactionPhase::V1(_) => None,
    });
    let entry = ledger.tx_processing.iter().find_map(|tx| {
        tx.fee_processing.iter().find_map(|change| match change {
            stellar_xdr::LedgerEntryChange::Updated(entry) => Some(entry.clone()),
            _ => None,
        })
    });
    (envelope.unwrap(), entry.unwrap())
}

/// `getLedgerEntries` and `sendTransaction` go to core, `simulateTransaction` to the upstream.
#[test]
fn a_followed_core_serves_entries_and_accepts_transactions() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let network = pubnet::network();
    let (envelope, entry) = recorded(&ledgers[0]);
    let mut core = StandIn::of((pubnet::FIRST..).zip(ledgers.iter().map(Vec::as_slice)));
    core.archive(pubnet::LAST, None);
    let item = json!({ "state": "live", "entry": base64(&entry) });
    core.answer_queries(&json!({ base64(&entry.to_key()): [[1, item]] }), None);
    let failed = TransactionResult {
        fee_charged: 100,
        result: TransactionResultResult::TxBadSeq,
        ext: TransactionResultExt::V0,
    };
    let events: VecM<DiagnosticEvent> = Default::default();
    core.change(
        "submitted",
        json!([
            { "status": "PENDING" },
            { "status": "DUPLICATE" },
            { "status": "TRY_AGAIN_LATER" },
            { "status": "ERROR", "error": base64(&failed), "diagnostic_events": base64(&events) },
            { "status": "ERROR", "error": "AAAA" },
            { "status": "FILTERED" },
            { "exception": "core is on fire" },
        ]),
    );
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), Some(&network)).unwrap());
    let upstream = upstream("Public Global Stellar Network ; September 2015");
    let (program, own) = (core.program(), core.own_config());
    let service = Service::follow(
        directory.path(),
        &[
            ("ORRERY_SOURCE_KIND", "core"),
            ("ORRERY_SOURCE_START", &pubnet::FIRST.to_string()),
            ("ORRERY_CORE_BINARY", program.to_str().unwrap()),
            ("ORRERY_CORE_CONFIG", own.to_str().unwrap()),
            ("ORRERY_RPC_UPSTREAM", &upstream.url("/")),
        ],
    );
    let latest = || call(&service, "getLatestLedger", &Value::Null)["result"]["sequence"].as_u64();
    wait_until("the ledgers are stored", || {
        if latest() == Some(pubnet::LAST.into()) { Ok(()) } else { Err(service.log()) }
    });

    let absent = LedgerKey::Account(stellar_xdr::LedgerKeyAccount {
        account_id: stellar_xdr::AccountId(stellar_xdr::PublicKey::PublicKeyTypeEd25519(
            stellar_xdr::Uint256([7; 32]),
        )),
    });
    let key = base64(&entry.to_key());
    let keys = json!({ "keys": [key, base64(&absent), key] });
    let found = &call(&service, "getLedgerEntries", &keys)["result"];
    let expected = json!({
        "key": key,
        "xdr": base64(&entry.data),
        "lastModifiedLedgerSeq": entry.last_modified_ledger_seq,
        "extXdr": base64(&entry.ext),
    });
    assert_eq!(*found, json!({ "entries": [expected, expected], "latestLedger": pubnet::LAST }));
    let none = &call(&service, "getLedgerEntries", &json!({ "keys": [] }))["result"];
    assert_eq!(*none, json!({ "entries": [], "latestLedger": pubnet::LAST }));
    let ttl = base64(&LedgerKey::Ttl(LedgerKeyTtl { key_hash: stellar_xdr::Hash([1; 32]) }));
    let refused = &call(&service, "getLedgerEntries", &json!({ "keys": [ttl] }))["error"];
    assert_eq!(refused["message"], "ledger ttl entries cannot be queried directly");

    let hash = hex::encode(envelope.hash(network.id().0).unwrap());
    let view = decode(ledgers.last().unwrap(), network.id()).unwrap();
    let closed = view.header.close_time.to_string();
    let send = || call(&service, "sendTransaction", &json!({ "transaction": base64(&envelope) }));
    let response = |status: &str| {
        json!({ "status": status, "hash": hash, "latestLedger": pubnet::LAST,
                "latestLedgerCloseTime": closed })
    };
    for status in ["PENDING", "DUPLICATE", "TRY_AGAIN_LATER"] {
        assert_eq!(send()["result"], response(status));
    }
    let mut error = response("ERROR");
    error["errorResultXdr"] = base64(&failed).into();
    assert_eq!(send()["result"], error);
    let sentences = [
        "invalid status from stellar-core",
        "invalid status from stellar-core",
        "received exception from stellar-core",
    ];
    for message in sentences {
        assert_eq!(send()["error"], json!({ "code": -32603, "message": message }));
    }
    let refused = call(&service, "sendTransaction", &json!({ "transaction": "AAAA" }));
    assert_eq!(refused["error"], json!({ "code": -32602, "message": "invalid_xdr" }));
    // Core received exactly the envelope that the client sent, each time.
    let handed = core
        .calls()
        .into_iter()
        .filter_map(|it| it.arguments.strip_prefix("tx ").map(str::to_owned));
    assert_eq!(handed.collect::<Vec<_>>(), vec![base64(&envelope); 7]);

    let params = json!({ "transaction": "AAAA" });
    let simulated = &call(&service, "simulateTransaction", &params)["result"];
    assert_eq!(*simulated, json!({ "method": "simulateTransaction", "params": params }));
}
