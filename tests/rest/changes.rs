//! `/rest/txs/by-hash/{tx_hex}/changes`: what a transaction changed, compared with a complete decoding
//! of its metadata, and the answers for transactions whose metadata is not stored.

use std::collections::HashMap;

use orrery::decode::decode;
use orrery::store::{Durability, IndexOptions, PreparedLedger, Retention};
use serde_json::{Value, json};
use stellar_xdr::{
    ContractDataDurability, LedgerEntry, LedgerEntryChange, LedgerEntryData, LedgerKey,
    LedgerKeyContractData, Limits, ReadXdr, TransactionMeta, WriteXdr,
};

use orrery_testkit::full;
use orrery_testkit::pubnet::{self, Model};
use orrery_testkit::server::{Server, TempStore};

fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

/// All changes of a transaction but its fee, in their order.
fn changes_of(meta: &TransactionMeta) -> Vec<LedgerEntryChange> {
    let (before, operations, after) = match meta {
        TransactionMeta::V3(meta) => {
            let operations = meta.operations.iter().flat_map(|it| it.changes.0.to_vec()).collect();
            (&meta.tx_changes_before, operations, &meta.tx_changes_after)
        }
        TransactionMeta::V4(meta) => {
            let operations =
                meta.operations.iter().flat_map(|it| it.changes.0.to_vec()).collect::<Vec<_>>();
            (&meta.tx_changes_before, operations, &meta.tx_changes_after)
        }
        other => panic!("{other:?}"),
    };
    [before.0.to_vec(), operations, after.0.to_vec()].concat()
}

fn shown(entry: &LedgerEntry) -> Value {
    match &entry.data {
        LedgerEntryData::ContractData(data) => serde_json::to_value(&data.val).unwrap(),
        LedgerEntryData::Account(account) => json!({
            "account": account.account_id.to_string(),
            "balance": account.balance.to_string(),
            "sequence": account.seq_num.0.to_string(),
            "subentries": account.num_sub_entries,
        }),
        LedgerEntryData::Trustline(line) => json!({
            "account": line.account_id.to_string(),
            "asset": asset(&serde_json::to_value(&line.asset).unwrap()),
            "balance": line.balance.to_string(),
            "limit": line.limit.to_string(),
            "authorized": line.flags & 1 == 1,
        }),
        LedgerEntryData::ContractCode(code) => {
            json!({ "hash": hex::encode(code.hash.0), "bytes": code.code.len() })
        }
        LedgerEntryData::Ttl(ttl) => json!({ "live_until": ttl.live_until_ledger_seq }),
        other => panic!("{other:?}"),
    }
}

/// Converts an asset from the JSON form of XDR.
fn asset(asset: &Value) -> String {
    let Some(parts) = asset.as_object().and_then(|it| it.values().next()) else {
        return asset.as_str().unwrap().to_owned();
    };
    let text = |name: &str| parts[name].as_str().unwrap().to_owned();
    format!("{}:{}", text("asset_code"), text("issuer"))
}

fn row(change: &str, key: &LedgerKey) -> Value {
    let (entry, key) = match key {
        LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability }) => {
            return json!({
                "change": change,
                "entry": "contract_data",
                "contract": contract.to_string(),
                "durability": match durability {
                    ContractDataDurability::Temporary => "temporary",
                    ContractDataDurability::Persistent => "persistent",
                },
                "key": key,
            });
        }
        LedgerKey::Account(key) => ("account", json!({ "account": key.account_id.to_string() })),
        LedgerKey::Trustline(key) => {
            let asset = asset(&serde_json::to_value(&key.asset).unwrap());
            ("trustline", json!({ "account": key.account_id.to_string(), "asset": asset }))
        }
        LedgerKey::ContractCode(key) => {
            ("contract_code", json!({ "hash": hex::encode(key.hash.0) }))
        }
        LedgerKey::Ttl(key) => ("ttl", json!({ "key_hash": hex::encode(key.key_hash.0) })),
        other => panic!("{other:?}"),
    };
    json!({ "change": change, "entry": entry, "key": key })
}

fn expected(meta: &[u8]) -> Vec<Value> {
    let meta = TransactionMeta::from_xdr(meta, Limits::none()).unwrap();
    let mut last: HashMap<Vec<u8>, Option<Value>> = HashMap::new();
    let mut rows = Vec::new();
    for change in changes_of(&meta) {
        let (name, key, entry) = match change {
            LedgerEntryChange::Created(entry) => ("created", entry.to_key(), Some(entry)),
            LedgerEntryChange::Updated(entry) => ("updated", entry.to_key(), Some(entry)),
            LedgerEntryChange::Restored(entry) => ("restored", entry.to_key(), Some(entry)),
            LedgerEntryChange::Removed(key) => ("removed", key, None),
            LedgerEntryChange::State(entry) => {
                last.insert(xdr(&entry.to_key()), Some(shown(&entry)));
                continue;
            }
        };
        let after = entry.as_ref().map(shown);
        let before = last.insert(xdr(&key), after.clone()).flatten();
        let mut row = row(name, &key);
        for (member, value) in [("before", before), ("after", after)] {
            if let Some(value) = value {
                row[member] = value;
            }
        }
        rows.push(row);
    }
    rows
}

#[test]
fn changes_are_those_of_a_second_decoding() {
    let public = pubnet::ledgers().map(|ledgers| (pubnet::network(), ledgers));
    for (network, ledgers) in [Some(pubnet::made()), public].into_iter().flatten() {
        let store = pubnet::store_of(&network, &ledgers);
        let server = Server::start(&store);
        let (mut seen, mut failed) = (HashMap::<String, u64>::new(), 0);
        for raw in &ledgers {
            let ledger = full::decode(raw, network.id()).unwrap();
            for transaction in ledger.transactions.iter().filter(|it| it.smart_contract) {
                failed += u64::from(!transaction.successful);
                for hash in [Some(transaction.hash), transaction.inner_hash].into_iter().flatten() {
                    let path = format!("/rest/txs/by-hash/{hash}/changes");
                    let answer = server.get(&path).json();
                    assert_eq!(answer["tx"], transaction.hash.to_string());
                    assert_eq!(answer["truncated"], false);
                    assert_eq!(answer["changes"], json!(expected(&transaction.meta)), "{path}");
                    for row in answer["changes"].as_array().unwrap() {
                        let word = |name: &str| row[name].as_str().unwrap().to_owned();
                        *seen.entry(word("entry") + " " + &word("change")).or_default() += 1;
                    }
                }
            }
        }
        eprintln!("{failed} failed transactions, changes {seen:?}");
        for kind in ["account updated", "contract_data created", "contract_data updated"] {
            assert!(seen[kind] > 0, "{kind}");
        }
    }
}

#[test]
fn a_transaction_without_stored_metadata_is_explained() {
    let (network, ledgers) = pubnet::made();
    let store = TempStore::with_names(&network);
    let options = IndexOptions { classic_events: true, fee_events: true, ..Default::default() };
    for raw in &ledgers {
        let view = decode(raw, network.id()).unwrap();
        let prepared = PreparedLedger::new(&view, &options).unwrap();
        store.store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.store.flush().unwrap();
    let server = Server::start(&store);
    let changes = |hash: &str| server.get(&format!("/rest/txs/by-hash/{hash}/changes"));
    let unknown = changes(&"ab".repeat(32)).error(404, "no_transaction");
    assert!(unknown.contains("is in no stored ledger"), "{unknown}");
    let classic = ledgers.iter().find_map(|raw| {
        let ledger = full::decode(raw, network.id()).unwrap();
        let transaction = ledger.transactions.iter().find(|it| !it.smart_contract)?;
        Some(transaction.hash.to_string())
    });
    if let Some(classic) = classic {
        let sentence = changes(&classic).error(404, "no_transaction");
        assert!(sentence.contains("calls no contract"), "{sentence}");
    }
    let model = Model::of_network(&network, &ledgers);
    let old = model.events[0]["tx"].as_str().unwrap();
    assert_eq!(changes(old).status, 200);
    let retention = Retention { transactions: Some(9), ..Retention::default() };
    while !store.store.prune(&retention).unwrap().is_nothing() {}
    let removed = changes(old).error(410, "metadata_removed");
    assert!(removed.contains("retention has removed"), "{removed}");
    assert!(
        !server.get(&format!("/rest/events/by-tx/{old}")).json().as_array().unwrap().is_empty()
    );
}

#[test]
fn malformed_hashes_and_callers_without_a_token_are_refused() {
    let (network, ledgers) = pubnet::made();
    let store = pubnet::store_of(&network, &ledgers[..5]);
    let server = Server::start(&store);
    for wrong in ["x", "0x", "%FF", &"ab".repeat(33)] {
        let refused = server.get(&format!("/rest/txs/by-hash/{wrong}/changes"));
        assert!(refused.error(400, "bad_parameter").contains("'tx_hex'"), "{wrong}");
    }
    let path = format!("/rest/txs/by-hash/{}/changes", "ab".repeat(32));
    server.get_public(&path).error(401, "unauthorized");
    server.get(&format!("{path}?decoded=true")).error(400, "unknown_parameter");
}
