//! Bodies of JSON-RPC requests: every body gets a valid JSON-RPC response, call by call, from a
//! store of sandbox ledgers.

use std::sync::{Arc, OnceLock};

use orrery::decode::decode;
use orrery::domain::Network;
use orrery::rpc::envelope::{Call, Reply, Request, error_without_id};
use orrery::rpc::{CallLimits, Rpc, Settings};
use orrery::sandbox::network::{Sandbox, SandboxConfig};
use orrery::store::{Durability, IndexOptions, PreparedLedger, Store};
use serde_json::Value;
use tempfile::TempDir;

/// Number of ledgers in the store.
const LEDGERS: usize = 12;

fn rpc() -> &'static Rpc {
    static RPC: OnceLock<(Rpc, TempDir)> = OnceLock::new();
    let (rpc, _) = RPC.get_or_init(|| {
        let network = Network::from_name_or_passphrase("local");
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(directory.path(), Some(&network)).unwrap());
        let config = SandboxConfig {
            network: network.clone(),
            seed: 1,
            start_time: 1_700_000_000,
            close_interval: 1,
            transactions_per_ledger: 2..=4,
        };
        let mut sandbox = Sandbox::new(config).unwrap();
        let options = IndexOptions {
            classic_events: true,
            fee_events: true,
            raw_ledgers: true,
            contracts: None,
        };
        for _ in 0..LEDGERS {
            let raw = sandbox.next_ledger().unwrap();
            let ledger = decode(&raw, network.id()).unwrap();
            let prepared = PreparedLedger::new(&ledger, &options).unwrap();
            store.commit(prepared, Durability::Deferred).unwrap();
        }
        (Rpc::new(store, Settings::default(), Arc::new(|| 1_700_000_010)), directory)
    });
    rpc
}

pub fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"jsonrpc":"2.0","id":1,"method":"getHealth"}"#,
        r#"[{"jsonrpc":"2.0","id":"a","method":"getNetwork","params":null},{"jsonrpc":"2.0","method":"getFeeStats"}]"#,
        r#"{"jsonrpc":"2.0","id":1.5,"method":"getLedgers","params":{"startLedger":3,"pagination":{"limit":2},"xdrFormat":"json"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"getTransactions","params":{"pagination":{"cursor":"17179873281","limit":2}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"getTransaction","params":{"hash":"0000000000000000000000000000000000000000000000000000000000000000"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"getEvents","params":{"startLedger":2,"endLedger":9,"filters":[{"type":"contract","contractIds":[],"topics":[["AAAADwAAAAh0cmFuc2Zlcg==","*","**"]]}],"pagination":{"limit":9}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"getEvents","params":{"pagination":{"cursor":"0000000017179873280-0000000000"}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"getEventsV2","params":{"minLedger":2,"order":"desc","limit":3,"filters":[{"type":"contract","topic0":"AAAADwAAAANmZWUA"}]}}"#,
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect()
}

pub fn check(bytes: &[u8]) {
    match Request::read(bytes, 50) {
        Err(error) => {
            let answer: Value = serde_json::from_slice(&error_without_id(error).unwrap()).unwrap();
            is_answer(&answer);
            assert!(answer["id"].is_null());
        }
        Ok(Request::Single(call)) => answered(&call),
        Ok(Request::Batch(calls)) => {
            assert!(calls.len() <= 50);
            calls.iter().for_each(answered);
        }
    }
}

fn answered(call: &Call<'_>) {
    let reply = match &call.content {
        Err(error) => Reply::Error(error.clone()),
        Ok((method, params)) => match rpc().call(method, *params, CallLimits::UNLIMITED) {
            Ok(result) => Reply::Result(result),
            Err(error) => Reply::Error(error),
        },
    };
    let answer: Value = serde_json::from_slice(&call.answer(&reply).unwrap()).unwrap();
    is_answer(&answer);
    let id = call.id.map(|id| serde_json::from_str::<Value>(id.get()).unwrap());
    assert_eq!(answer["id"], id.unwrap_or(Value::Null));
}

/// Asserts that a response has either a result, or an error with a code and a short message.
fn is_answer(answer: &Value) {
    let members = answer.as_object().unwrap();
    assert_eq!(answer["jsonrpc"], "2.0");
    assert!(members.contains_key("id") && members.len() == 3, "{answer}");
    if let Some(error) = members.get("error") {
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && message.len() < 2_000, "{answer}");
        assert!((-32_800..=-32_000).contains(&error["code"].as_i64().unwrap()), "{answer}");
        assert_ne!(error["code"], -32_603, "requests never cause an internal error: {answer}");
    } else {
        assert!(members.contains_key("result"), "{answer}");
    }
}
