//! The member `decoded` of events and transactions: it changes nothing else, values are those of the
//! XDR, and events of the contracts of assets have their names and parameters.

use std::io::{BufRead, BufReader};

use orrery::interfaces::names::RESERVED_COLUMNS;
use orrery::tables::INJECTED;
use orrery_testkit::client::HTTP;
use orrery_testkit::pubnet::{self, Model, topics};
use orrery_testkit::server::{Server, TempStore};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AlphaNum4, AlphaNum12, Asset, AssetCode4, AssetCode12, ContractIdPreimage,
    FeeBumpTransactionInnerTx, Hash, HashIdPreimage, HashIdPreimageContractId, HostFunction,
    Limits, OperationBody, ReadXdr, ScVal, TransactionEnvelope, WriteXdr,
};

fn value(base64: &str) -> ScVal {
    ScVal::from_xdr_base64(base64, Limits::none()).unwrap()
}

/// Reads an asset as SEP-11 writes it.
fn asset(text: &str) -> Option<Asset> {
    if text == "native" {
        return Some(Asset::Native);
    }
    let (code, issuer) = text.split_once(':')?;
    let issuer = issuer.parse().ok()?;
    let mut padded = [0; 12];
    padded.get_mut(..code.len())?.copy_from_slice(code.as_bytes());
    Some(match code.len() {
        0 => return None,
        1..=4 => {
            let code = AssetCode4(padded[..4].try_into().unwrap());
            Asset::CreditAlphanum4(AlphaNum4 { asset_code: code, issuer })
        }
        _ => {
            let asset_code = AssetCode12(padded);
            Asset::CreditAlphanum12(AlphaNum12 { asset_code, issuer })
        }
    })
}

/// Returns the strkey of an asset's contract (CAP-46-06).
fn contract_of(asset: Asset, network: &[u8; 32]) -> String {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(*network),
        contract_id_preimage: ContractIdPreimage::Asset(asset),
    });
    let id = Sha256::digest(preimage.to_xdr(Limits::none()).unwrap());
    stellar_strkey::Contract(id.into()).to_string().to_string()
}

/// Whether the contract of the asset that its last topic names has emitted an event.
fn is_of_asset(row: &Value, network: &[u8; 32]) -> bool {
    let Some(ScVal::String(text)) = topics(row).last().map(|topic| value(topic)) else {
        return false;
    };
    let asset = asset(&text.to_utf8_string_lossy());
    asset.is_some_and(|asset| row["contract_id"] == contract_of(asset, network))
}

#[test]
fn events_have_their_names_and_values() {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(pubnet::made()), public].into_iter().flatten() {
        let store = pubnet::store_of(&network, &ledgers);
        let server = Server::start(&store);
        let model = Model::of_network(&network, &ledgers);
        let (mut named, mut cursor, mut seen) = (0, 0, 0);
        loop {
            let page = format!("limit=500&order=asc&cursor={cursor}&decoded=true");
            let answer = server.get(&format!("/rest/events/by-ledger?{page}")).json();
            let Some(last) = answer.as_array().unwrap().last() else { break };
            cursor = last["id"].as_u64().unwrap();
            for (row, expected) in answer.as_array().unwrap().iter().zip(&model.events[seen..]) {
                named += u64::from(check(row, expected, network.id().as_bytes()));
            }
            seen += answer.as_array().unwrap().len();
        }
        assert_eq!(seen, model.events.len());
        assert!(named > 0, "there are events of assets");
    }
}

/// Asserts that a row is as expected with another member; returns whether it has a name.
fn check(row: &Value, expected: &Value, network: &[u8; 32]) -> bool {
    let mut plain = row.clone();
    let decoded = plain.as_object_mut().unwrap().remove("decoded").unwrap();
    assert_eq!(&plain, expected);
    let values: Vec<ScVal> = topics(row).into_iter().map(value).collect();
    assert_eq!(decoded["topics"], serde_json::to_value(&values).unwrap());
    let data = value(row["data"].as_str().unwrap());
    assert_eq!(decoded["data"], serde_json::to_value(&data).unwrap());
    if !is_of_asset(row, network) {
        assert_eq!((&decoded["name"], &decoded["params"]), (&Value::Null, &Value::Null));
        return false;
    }
    let ScVal::Symbol(name) = &values[0] else { panic!("{row}") };
    assert_eq!(decoded["name"], name.to_utf8_string_lossy(), "{row}");
    assert_eq!(decoded.get("rest"), None, "{row}");
    let params = &decoded["params"];
    if let (b"transfer", ScVal::I128(amount)) = (name.as_slice(), &data) {
        let [_, ScVal::Address(from), ScVal::Address(to), ScVal::String(asset)] = &values[..]
        else {
            panic!("{row}")
        };
        let (from, to) = (from.to_string(), to.to_string());
        let asset = asset.to_utf8_string_lossy();
        let amount = i128::from(amount).to_string();
        let transfer = json!({ "from": from, "to": to, "sep0011_asset": asset, "amount": amount });
        assert_eq!(params, &transfer, "{row}");
    }
    assert!(params.as_object().is_some_and(|params| params.contains_key("sep0011_asset")));
    true
}

/// A parameter of an event must not have the name of a column that every table has.
#[test]
fn columns_of_every_table_are_reserved() {
    for (column, _) in INJECTED {
        assert!(RESERVED_COLUMNS.contains(&column), "{column}");
    }
}

#[test]
fn every_list_of_events_can_be_decoded() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers);
    let server = Server::start(&store);
    let event = &server.get("/rest/events/by-ledger?limit=1").json()[0];
    let (contract, tx) = (event["contract_id"].as_str().unwrap(), event["tx"].as_str().unwrap());
    for path in [
        "by-ledger?".to_owned(),
        format!("by-contract/{contract}?"),
        format!("by-contracts?contracts={contract}&"),
        format!("by-ledger/contracts?contracts={contract}&"),
        format!("by-tx/{tx}?"),
        format!("by-address/{contract}?"),
        format!("by-id/{}?", event["id"]),
    ] {
        let get = |decoded: &str| server.get(&format!("/rest/events/{path}{decoded}"));
        let (with, without) = (get("decoded=true").json(), get("decoded=false").json());
        for row in with.as_array().unwrap() {
            assert!(row["decoded"]["topics"].is_array(), "{path}");
        }
        assert_eq!(get("").json(), without, "{path}");
        assert!(without.as_array().unwrap().iter().all(|row| row.get("decoded").is_none()));
        for wrong in ["decoded", "decoded=1", "decoded=TRUE", "decoded=%20true"] {
            let refused = get(wrong).error(400, "bad_parameter");
            assert!(refused.contains("'decoded'"), "{path}{wrong}: {refused}");
        }
    }
    let empty = TempStore::with_names(&network);
    let answer = Server::start(&empty).get("/rest/events/by-ledger?decoded=true");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"[]"[..]));
}

/// Events of a stream are decoded as those of a page.
#[test]
fn a_stream_is_decoded_as_pages_are() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers);
    let server = Server::start(&store);
    let page = server.get("/rest/events/by-ledger?limit=200&order=asc&decoded=true").json();
    let url = format!("http://{}/rest/events/stream?decoded=true", server.address);
    let request = HTTP.get(url).bearer_auth(&server.token).header("Last-Event-ID", "0");
    let messages = BufReader::new(request.send().unwrap()).lines().map(Result::unwrap);
    let events = messages.filter_map(|line| {
        line.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data).unwrap())
    });
    let expected = page.as_array().unwrap();
    assert!(expected.iter().any(|row| row["decoded"]["name"] == "transfer"));
    for (streamed, row) in events.zip(expected) {
        assert_eq!(&streamed, row);
    }
    let refused = server.get("/rest/events/stream?decoded=yes").error(400, "bad_parameter");
    assert!(refused.contains("'decoded'"), "{refused}");
}

/// The call of a transaction is that of its envelope, and what it returned that of its metadata.
#[test]
fn transactions_have_their_calls() {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(pubnet::made()), public].into_iter().flatten() {
        let store = pubnet::store_of(&network, &ledgers);
        let server = Server::start(&store);
        let (mut cursor, mut calls, mut named, mut failed) = (String::new(), 0, 0, 0);
        let mut of_assets = 0;
        loop {
            let path = format!("/rest/txs/by-ledger?limit=200&order=asc&decoded=true{cursor}");
            let answer = server.get(&path).json();
            let Some(last) = answer.as_array().unwrap().last() else { break };
            cursor = format!("&cursor={}", last["tx"].as_str().unwrap());
            for row in answer.as_array().unwrap() {
                let decoded = &row["decoded"];
                let operation = operation(row["envelope_xdr"].as_str().unwrap());
                let OperationBody::InvokeHostFunction(operation) = operation else {
                    let done = decoded["operation"].as_str().unwrap();
                    assert!(["extend", "restore"].contains(&done), "{row}");
                    continue;
                };
                let HostFunction::InvokeContract(call) = operation.host_function else {
                    let done = decoded["operation"].as_str().unwrap();
                    assert!(["upload", "create"].contains(&done), "{row}");
                    continue;
                };
                calls += 1;
                assert_eq!(decoded["contract"], call.contract_address.to_string());
                assert_eq!(decoded["function"], call.function_name.to_utf8_string_lossy());
                if decoded["args"].is_array() {
                    assert_eq!(decoded["args"], serde_json::to_value(&call.args).unwrap());
                } else {
                    named += 1;
                    let args = decoded["args"].as_object().unwrap();
                    assert_eq!(args.len(), call.args.len());
                    if decoded["function"] == "transfer" && args.contains_key("amount") {
                        let [ScVal::Address(from), ScVal::Address(to), ScVal::I128(amount)] =
                            call.args.as_slice()
                        else {
                            panic!("{row}")
                        };
                        let (from, to) = (from.to_string(), to.to_string());
                        let amount = i128::from(amount).to_string();
                        let expected = json!({ "from": from, "to": to, "amount": amount });
                        assert_eq!(decoded["args"], expected);
                        of_assets += 1;
                    }
                }
                if row["successful"] == false {
                    failed += 1;
                    assert_eq!(decoded["returned"], Value::Null);
                }
                let authorized = decoded["auth"].as_array().unwrap().len();
                assert_eq!(operation.auth.is_empty(), authorized == 0, "{row}");
            }
        }
        assert!(calls > 0, "{network:?}");
        eprintln!("{calls} calls, {named} with names, {failed} failed, {of_assets} of assets");
        if network.name() == "local" {
            assert!(of_assets > 0, "the store has seen the contracts of assets come into being");
        }
    }
}

/// Returns the operation of a smart-contract transaction.
fn operation(envelope: &str) -> OperationBody {
    let inner = match TransactionEnvelope::from_xdr_base64(envelope, Limits::none()).unwrap() {
        TransactionEnvelope::Tx(envelope) => envelope,
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(inner) = bump.tx.inner_tx;
            inner
        }
        TransactionEnvelope::TxV0(_) => panic!("it has no contract data"),
    };
    inner.tx.operations[0].body.clone()
}
