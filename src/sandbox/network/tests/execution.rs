//! Checks the effects of transactions: metadata against state, events against balances, fees
//! against both.

use std::collections::{BTreeMap, BTreeSet};

use orrery_ledger::domain::ContractId;
use stellar_xdr::{
    ContractEvent, ContractEventBody, Hash, InvokeHostFunctionResult,
    InvokeHostFunctionSuccessPreImage, LedgerCloseMetaV2, LedgerEntry, LedgerEntryChange,
    LedgerEntryData, LedgerKey, LedgerKeyTtl, OperationResult, OperationResultTr, ScVal,
    SorobanTransactionMetaExt, TransactionEventStage, TransactionExt, TransactionResultMetaV1,
    TransactionResultResult, TrustLineAsset,
};

use super::{chain, configuration, digest, envelopes, inner, meta_of};
use crate::network::Sandbox;

/// Returns the name of an event, which is its first topic, and its data.
pub(super) fn name_and_data(event: &ContractEvent) -> (String, &ScVal) {
    let ContractEventBody::V0(body) = &event.body;
    let Some(ScVal::Symbol(name)) = body.topics.first() else { panic!("an event without a name") };
    (name.to_utf8_string().unwrap(), &body.data)
}

/// Returns the amount in an event's data, alone or in a map.
fn amount(data: &ScVal) -> i128 {
    match data {
        ScVal::I128(parts) => i128::from(parts),
        ScVal::Map(Some(fields)) => amount(&fields[0].val),
        other => panic!("{other:?}"),
    }
}

/// Returns all changes of a ledger in the order in which a node makes them.
fn chronological(ledger: &LedgerCloseMetaV2) -> Vec<&LedgerEntryChange> {
    let (soroban, classic): (Vec<_>, Vec<_>) =
        ledger.tx_processing.iter().partition(|tx| meta_of(tx).soroban_meta.is_some());
    let operations = |tx: &&'_ TransactionResultMetaV1| meta_of(tx).operations.len();
    let mut changes: Vec<&LedgerEntryChange> = Vec::new();
    for transaction in ledger.tx_processing.iter() {
        changes.extend(transaction.fee_processing.iter());
    }
    for transaction in &classic {
        changes.extend(meta_of(transaction).tx_changes_before.iter());
        for index in 0..operations(transaction) {
            changes.extend(meta_of(transaction).operations[index].changes.iter());
        }
    }
    for transaction in &soroban {
        changes.extend(meta_of(transaction).tx_changes_before.iter());
    }
    for transaction in &soroban {
        for index in 0..operations(transaction) {
            changes.extend(meta_of(transaction).operations[index].changes.iter());
        }
    }
    for transaction in ledger.tx_processing.iter() {
        changes.extend(transaction.post_tx_apply_fee_processing.iter());
    }
    changes
}

/// Applies a ledger's metadata to a state that is built from metadata alone, and checks each change
/// against that state.
fn replay(state: &mut BTreeMap<LedgerKey, LedgerEntry>, ledger: &LedgerCloseMetaV2) {
    let sequence = ledger.ledger_header.header.ledger_seq;
    let mut announced: Option<LedgerKey> = None;
    for change in chronological(ledger) {
        match change {
            LedgerEntryChange::State(entry) => {
                assert_eq!(announced, None, "a STATE without a change");
                assert_eq!(state.get(&entry.to_key()), Some(entry), "ledger {sequence}");
                announced = Some(entry.to_key());
            }
            LedgerEntryChange::Updated(entry) => {
                assert_eq!(announced.take(), Some(entry.to_key()));
                assert_eq!(entry.last_modified_ledger_seq, sequence);
                state.insert(entry.to_key(), entry.clone());
            }
            LedgerEntryChange::Removed(key) => {
                assert_eq!(announced.take().as_ref(), Some(key));
                state.remove(key);
            }
            LedgerEntryChange::Created(entry) => {
                assert_eq!(entry.last_modified_ledger_seq, sequence);
                assert_eq!(state.insert(entry.to_key(), entry.clone()), None);
            }
            LedgerEntryChange::Restored(entry) => {
                let before = state.insert(entry.to_key(), entry.clone());
                assert!(before.is_some(), "restored without having been archived");
            }
        }
    }
    for key in ledger.evicted_keys.iter() {
        assert!(state.remove(key).is_some(), "evicted without having been there");
    }
}

fn genesis() -> BTreeMap<LedgerKey, LedgerEntry> {
    let sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.state.entries().map(|(key, entry)| (key.clone(), entry.clone())).collect()
}

#[test]
fn replayed_metadata_gives_the_state_and_no_coin_is_lost() {
    let (ledgers, sandbox) = chain();
    let mut state = genesis();
    for ledger in ledgers {
        replay(&mut state, ledger);
        let header = &ledger.ledger_header.header;
        let coins: i64 = state
            .values()
            .map(|entry| match &entry.data {
                LedgerEntryData::Account(account) => account.balance,
                _ => 0,
            })
            .sum();
        assert_eq!(coins + header.fee_pool, header.total_coins);
        let bytes: usize = state.values().map(contract_bytes).sum();
        assert_eq!(ledger.total_byte_size_of_live_soroban_state, bytes as u64);
    }
    let expected: BTreeMap<_, _> =
        sandbox.state.entries().map(|(key, entry)| (key.clone(), entry.clone())).collect();
    assert_eq!(state, expected);
}

/// Returns the size of a contract entry that rent counts: its XDR, and more for a module, which is
/// kept in parsed form.
fn contract_bytes(entry: &LedgerEntry) -> usize {
    let bytes = super::WriteXdr::to_xdr(entry, super::Limits::none()).unwrap().len();
    match &entry.data {
        LedgerEntryData::ContractData(_) => bytes,
        LedgerEntryData::ContractCode(_) => {
            let counted = super::super::fees::rent_size(entry).unwrap() as usize;
            assert!(counted > 2 * bytes, "{counted} for {bytes}");
            counted
        }
        _ => 0,
    }
}

#[test]
fn asset_supplies_equal_the_sum_of_their_events() {
    let (ledgers, sandbox) = chain();
    let mut state = genesis();
    let mut supplies: BTreeMap<[u8; 32], i128> = BTreeMap::new();
    for ledger in ledgers {
        replay(&mut state, ledger);
        let operations = ledger.tx_processing.iter().flat_map(|tx| meta_of(tx).operations.iter());
        for event in operations.flat_map(|operation| operation.events.iter()) {
            let supply = supplies.entry(event.contract_id.clone().unwrap().0.0).or_default();
            match name_and_data(event) {
                (name, data) if name == "mint" => *supply += amount(data),
                (name, data) if name == "burn" || name == "clawback" => *supply -= amount(data),
                _ => {}
            }
        }
        for known in [&sandbox.assets.dollar, &sandbox.assets.harbor] {
            let line = super::super::keys::trustline_asset(&known.asset);
            let held: i128 =
                state.values().map(|entry| held_of(&entry.data, &line, &known.contract)).sum();
            let issued = supplies.get(&known.contract.0).copied().unwrap_or(0);
            assert_eq!(
                held, issued,
                "{} in {}",
                known.name, ledger.ledger_header.header.ledger_seq
            );
        }
    }
    assert!(supplies.values().all(|supply| *supply >= 0) && supplies.len() >= 3);
}

/// Returns the amount of an asset that an entry holds: the balance of a trustline or of a contract.
fn held_of(data: &LedgerEntryData, asset: &TrustLineAsset, contract: &ContractId) -> i128 {
    match data {
        LedgerEntryData::Trustline(line) if line.asset == *asset => line.balance.into(),
        LedgerEntryData::ContractData(entry) => {
            let stellar_xdr::ScAddress::Contract(id) = &entry.contract else { return 0 };
            match &entry.val {
                ScVal::Map(Some(fields)) if id.0.0 == contract.0 && fields.len() == 3 => {
                    amount(&fields[0].val)
                }
                _ => 0,
            }
        }
        _ => 0,
    }
}

#[test]
fn fee_events_add_up_to_the_fee_charged() {
    let mut fee_pool = 0;
    for ledger in &chain().0 {
        for transaction in ledger.tx_processing.iter() {
            let meta = meta_of(transaction);
            let charged = transaction.result.result.fee_charged;
            let stages: Vec<_> = meta.events.iter().map(|event| event.stage).collect();
            assert_eq!(stages[0], TransactionEventStage::BeforeAllTxs);
            assert!(stages[1..].iter().all(|stage| *stage == TransactionEventStage::AfterAllTxs));
            let sum: i128 =
                meta.events.iter().map(|event| amount(name_and_data(&event.event).1)).sum();
            assert_eq!(sum, i128::from(charged));
            fee_pool += charged;

            let Some(soroban) = &meta.soroban_meta else {
                assert!(stages.len() == 1 && transaction.post_tx_apply_fee_processing.is_empty());
                continue;
            };
            assert_eq!(stages.len(), 2, "a refund for every contract transaction");
            let SorobanTransactionMetaExt::V1(fees) = &soroban.ext else { panic!() };
            let resource_fee = fees.total_non_refundable_resource_fee_charged
                + fees.total_refundable_resource_fee_charged;
            assert!(
                [100, 200].contains(&(charged - resource_fee)),
                "the rest is the inclusion fee"
            );
            assert!(fees.rent_fee_charged <= fees.total_refundable_resource_fee_charged);
        }
        assert_eq!(ledger.ledger_header.header.fee_pool, fee_pool);
    }
}

#[test]
fn failed_transactions_leave_no_operations() {
    for transaction in chain().0.iter().flat_map(|ledger| ledger.tx_processing.iter()) {
        let meta = meta_of(transaction);
        let (succeeded, results) = match &transaction.result.result.result {
            TransactionResultResult::TxSuccess(results) => (true, results),
            TransactionResultResult::TxFailed(results) => (false, results),
            TransactionResultResult::TxFeeBumpInnerSuccess(pair)
            | TransactionResultResult::TxFeeBumpInnerFailed(pair) => match &pair.result.result {
                stellar_xdr::InnerTransactionResultResult::TxSuccess(results) => (true, results),
                stellar_xdr::InnerTransactionResultResult::TxFailed(results) => (false, results),
                other => panic!("{}", other.name()),
            },
            other => panic!("{}", other.name()),
        };
        assert_eq!(meta.operations.len(), if succeeded { results.len() } else { 0 });
        assert!(!succeeded || meta.diagnostic_events.is_empty());
        for result in results.iter() {
            let OperationResult::OpInner(OperationResultTr::InvokeHostFunction(result)) = result
            else {
                continue;
            };
            let return_value = meta.soroban_meta.as_ref().unwrap().return_value.clone();
            match result {
                InvokeHostFunctionResult::Success(Hash(hash)) => {
                    let preimage = InvokeHostFunctionSuccessPreImage {
                        return_value: return_value.unwrap(),
                        events: meta.operations[0].events.clone(),
                    };
                    assert_eq!(*hash, digest(&preimage));
                }
                InvokeHostFunctionResult::Trapped => assert_eq!(return_value, None),
                other => panic!("{}", other.name()),
            }
        }
    }
}

#[test]
fn contract_transactions_change_only_declared_entries() {
    let network = configuration().network.id().0;
    for ledger in &chain().0 {
        let all: BTreeMap<_, _> = envelopes(ledger)
            .into_iter()
            .map(|envelope| (envelope.hash(network).unwrap(), envelope))
            .collect();
        for transaction in ledger.tx_processing.iter() {
            let tx = &inner(&all[&transaction.result.transaction_hash.0]).tx;
            let TransactionExt::V1(data) = &tx.ext else { continue };
            let footprint = &data.resources.footprint;
            let keys = footprint.read_only.iter().chain(footprint.read_write.iter());
            let lifetimes: BTreeSet<_> = keys.map(digest).collect();
            for operation in meta_of(transaction).operations.iter() {
                for change in operation.changes.iter() {
                    let key = match change {
                        LedgerEntryChange::Removed(key) => key.clone(),
                        LedgerEntryChange::Created(entry)
                        | LedgerEntryChange::Updated(entry)
                        | LedgerEntryChange::State(entry)
                        | LedgerEntryChange::Restored(entry) => entry.to_key(),
                    };
                    let declared = match &key {
                        LedgerKey::Ttl(LedgerKeyTtl { key_hash }) => {
                            lifetimes.contains(&key_hash.0)
                        }
                        key => footprint.read_write.contains(key),
                    };
                    assert!(declared, "{key:?}");
                }
            }
        }
    }
}

#[test]
fn asset_contracts_are_deployed_under_their_ids() {
    let (_, sandbox) = chain();
    assert_eq!(
        sandbox.assets.native.contract.to_string(),
        "CDMLFMKMMD7MWZP3FKUBZPVHTUEDLSX4BYGYKH4GCESXYHS3IHQ4EIG4",
        "the id that the native asset has on every standalone network"
    );
    for asset in sandbox.assets.all() {
        let key = orrery_ledger::domain::instance_key_at(asset.address());
        assert!(sandbox.state.get(&key).is_some(), "{}", asset.name);
    }
}
