//! A second implementation: how a ledger and its transactions appear in responses, computed from
//! fully decoded ledgers.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery::decode::DEEPEST;
use orrery::domain::Network;
use serde::Serialize;
use serde_json::{Map, Value, json};
use stellar_xdr as x;
use x::{Limits, ReadXdr, WriteXdr};

/// A ledger as the methods show it.
pub struct Ledger {
    pub sequence: u32,
    pub hash: String,
    pub closed_at: u64,
    pub protocol: u32,
    /// XDR of the `LedgerHeader`.
    pub header: Vec<u8>,
    /// Items of `getLedgers`, in the order of [`FORMATS`].
    pub items: [Value; 2],
    pub transactions: Vec<Transaction>,
}

pub struct Transaction {
    pub hash: String,
    pub inner_hash: Option<String>,
    pub smart_contract: bool,
    /// Items of `getTransactions`, in the order of [`FORMATS`].
    pub items: [Value; 2],
    /// Whether it is a smart-contract transaction, and the inclusion fee that it paid in stroops,
    /// per operation for classic ones. `None` where the metadata do not contain the resource fees.
    pub inclusion_fee: Option<(bool, u64)>,
}

/// Values of `xdrFormat`, in the order of the items.
pub const FORMATS: [&str; 2] = ["base64", "json"];

fn base64(value: &impl WriteXdr) -> Value {
    json!(STANDARD.encode(value.to_xdr(Limits::none()).unwrap()))
}

/// A value in the given format.
fn encode<T: WriteXdr + Serialize>(value: &T, format: &str) -> Value {
    match format {
        "json" => serde_json::to_value(value).unwrap(),
        _ => base64(value),
    }
}

fn list<T: WriteXdr + Serialize>(values: &[T], format: &str) -> Value {
    values.iter().map(|value| encode(value, format)).collect()
}

fn envelopes(meta: &x::LedgerCloseMeta) -> Vec<x::TransactionEnvelope> {
    let set = match meta {
        x::LedgerCloseMeta::V0(meta) => return meta.tx_set.txs.to_vec(),
        x::LedgerCloseMeta::V1(meta) => &meta.tx_set,
        x::LedgerCloseMeta::V2(meta) => &meta.tx_set,
    };
    let x::GeneralizedTransactionSet::V1(set) = set;
    let mut all = Vec::new();
    for phase in set.phases.iter() {
        match phase {
            x::TransactionPhase::V0(components) => {
                for component in components.iter() {
                    let x::TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) = component;
                    all.extend_from_slice(&component.txs);
                }
            }
            x::TransactionPhase::V1(parallel) => {
                let clusters = parallel.execution_stages.iter().flat_map(|stage| stage.0.iter());
                all.extend(clusters.flat_map(|cluster| cluster.0.to_vec()));
            }
        }
    }
    all
}

type Applied<'a> = Vec<(&'a x::TransactionResultPair, &'a x::TransactionMeta)>;

/// Decodes a ledger in full.
pub fn ledger(raw: &[u8], network: &Network) -> Ledger {
    orrery_testkit::full::with_stack(|| read(raw, network))
}

fn read(raw: &[u8], network: &Network) -> Ledger {
    let meta = x::LedgerCloseMeta::from_xdr(raw, Limits::depth(DEEPEST)).unwrap();
    let (entry, applied): (_, Applied<'_>) = match &meta {
        x::LedgerCloseMeta::V0(meta) => (
            &meta.ledger_header,
            meta.tx_processing.iter().map(|it| (&it.result, &it.tx_apply_processing)).collect(),
        ),
        x::LedgerCloseMeta::V1(meta) => (
            &meta.ledger_header,
            meta.tx_processing.iter().map(|it| (&it.result, &it.tx_apply_processing)).collect(),
        ),
        x::LedgerCloseMeta::V2(meta) => (
            &meta.ledger_header,
            meta.tx_processing.iter().map(|it| (&it.result, &it.tx_apply_processing)).collect(),
        ),
    };
    let sequence = entry.header.ledger_seq;
    let closed_at = entry.header.scp_value.close_time.0;
    let hash = hex::encode(entry.hash.0);
    let by_hash: HashMap<_, _> =
        envelopes(&meta).into_iter().map(|it| (it.hash(network.id().0).unwrap(), it)).collect();
    let common = || {
        json!({ "hash": hash, "sequence": sequence, "ledgerCloseTime": closed_at.to_string(),
                "headerXdr": "", "metadataXdr": "" })
    };
    let (mut in_base64, mut in_json) = (common(), common());
    in_base64["headerXdr"] = base64(entry);
    in_base64["metadataXdr"] = json!(STANDARD.encode(raw));
    in_json["headerJson"] = serde_json::to_value(entry).unwrap();
    in_json["metadataJson"] = serde_json::to_value(&meta).unwrap();
    let transactions = applied.iter().zip(1u32..).map(|((pair, meta), order)| {
        let envelope = &by_hash[&pair.transaction_hash.0];
        let items = FORMATS.map(|format| {
            let mut item = item(envelope, pair, meta, format);
            item["applicationOrder"] = json!(order);
            item["ledger"] = json!(sequence);
            item["createdAt"] = json!(closed_at);
            item
        });
        let inner_hash = match envelope {
            x::TransactionEnvelope::TxFeeBump(bump) => {
                let x::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
                Some(hex::encode(inner.hash(network.id().0).unwrap()))
            }
            _ => None,
        };
        Transaction {
            hash: hex::encode(pair.transaction_hash.0),
            inner_hash,
            smart_contract: parts(envelope).1,
            items,
            inclusion_fee: inclusion_fee(envelope, pair.result.fee_charged, meta),
        }
    });
    Ledger {
        sequence,
        closed_at,
        protocol: entry.header.ledger_version,
        header: entry.header.to_xdr(Limits::none()).unwrap(),
        items: [in_base64, in_json],
        transactions: transactions.collect(),
        hash: hash.clone(),
    }
}

/// Operations of the (inner) transaction, and whether it is a smart-contract transaction.
fn parts(envelope: &x::TransactionEnvelope) -> (&[x::Operation], bool) {
    let of = |tx: &x::Transaction| matches!(tx.ext, x::TransactionExt::V1(_));
    match envelope {
        x::TransactionEnvelope::TxV0(it) => (&it.tx.operations, false),
        x::TransactionEnvelope::Tx(it) => (&it.tx.operations, of(&it.tx)),
        x::TransactionEnvelope::TxFeeBump(bump) => {
            let x::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            (&inner.tx.operations, of(&inner.tx))
        }
    }
}

fn item(
    envelope: &x::TransactionEnvelope,
    pair: &x::TransactionResultPair,
    meta: &x::TransactionMeta,
    format: &str,
) -> Value {
    use x::TransactionResultResult as R;

    let end = if format == "json" { "Json" } else { "Xdr" };
    let successful = matches!(pair.result.result, R::TxSuccess(_) | R::TxFeeBumpInnerSuccess(_));
    let (mut diagnostic, mut of_transaction): (&[x::DiagnosticEvent], &[x::TransactionEvent]) =
        (&[], &[]);
    let mut of_operations: Vec<&[x::ContractEvent]> = Vec::new();
    match meta {
        x::TransactionMeta::V3(x::TransactionMetaV3 { soroban_meta: Some(soroban), .. }) => {
            diagnostic = &soroban.diagnostic_events;
            if successful {
                of_operations.push(&soroban.events);
            }
        }
        // The metadata of a failed transaction contain no operations.
        x::TransactionMeta::V4(meta) => {
            diagnostic = &meta.diagnostic_events;
            of_transaction = &meta.events;
            of_operations.extend(meta.operations.iter().map(|it| it.events.as_slice()));
        }
        _ => {}
    }
    let mut events = Map::new();
    if !of_transaction.is_empty() {
        events.insert(format!("transactionEvents{end}"), list(of_transaction, format));
    }
    if !of_operations.is_empty() {
        let lists = of_operations.iter().map(|events| list(events, format)).collect();
        events.insert(format!("contractEvents{end}"), lists);
    }
    let mut item = Map::new();
    item.insert("status".into(), json!(if successful { "SUCCESS" } else { "FAILED" }));
    item.insert("txHash".into(), json!(hex::encode(pair.transaction_hash.0)));
    let is_bump = matches!(envelope, x::TransactionEnvelope::TxFeeBump(_));
    item.insert("feeBump".into(), json!(is_bump));
    item.insert(format!("envelope{end}"), encode(envelope, format));
    item.insert(format!("result{end}"), encode(&pair.result, format));
    item.insert(format!("resultMeta{end}"), encode(meta, format));
    if !diagnostic.is_empty() {
        item.insert(format!("diagnosticEvents{end}"), list(diagnostic, format));
    }
    item.insert("events".into(), Value::Object(events));
    Value::Object(item)
}

fn inclusion_fee(
    envelope: &x::TransactionEnvelope,
    charged: i64,
    meta: &x::TransactionMeta,
) -> Option<(bool, u64)> {
    let (operations, smart_contract) = parts(envelope);
    if !smart_contract {
        return Some((false, charged as u64 / operations.len() as u64));
    }
    let ext = match meta {
        x::TransactionMeta::V3(meta) => meta.soroban_meta.as_ref().map(|it| &it.ext),
        x::TransactionMeta::V4(meta) => meta.soroban_meta.as_ref().map(|it| &it.ext),
        _ => None,
    };
    let x::SorobanTransactionMetaExt::V1(fees) = ext? else { return None };
    let resources =
        fees.total_non_refundable_resource_fee_charged + fees.total_refundable_resource_fee_charged;
    Some((true, (charged - resources) as u64))
}
