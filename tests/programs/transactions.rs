//! The parts extracted from a stored transaction, compared with a full decoding of its ledger.

use std::collections::BTreeSet;

use orrery::domain::{ContractId, LedgerSeq};
use orrery::programs::transaction::HostCall;
use orrery::store::IndexOptions;
use stellar_xdr::{
    ContractEventType, HostFunction, LedgerKey, Limits, OperationBody, ReadXdr, ScAddress, ScVal,
    TransactionEnvelope, TransactionMeta, WriteXdr,
};

use crate::state_sections::{Section, core_tests, local_network, public};
use orrery_testkit::full;

fn calls(section: &Section) -> Vec<HostCall> {
    let stored = section.store(section.first()..=section.last(), &IndexOptions::default());
    let mut calls = Vec::new();
    for sequence in section.first()..=section.last() {
        let reader = stored.store.entry_reader(LedgerSeq(sequence)).unwrap();
        reader
            .transactions_of(LedgerSeq(sequence), |record| {
                calls.extend(HostCall::read(record, section.network.id()).unwrap());
            })
            .unwrap();
    }
    calls
}

/// Ledgers in full decoding, with the index of each transaction that calls a host function.
fn expected(section: &Section) -> Vec<(full::Ledger, usize)> {
    let mut expected = Vec::new();
    for xdr in section.ledgers.values() {
        let ledger = full::decode(xdr, section.network.id()).unwrap();
        for (index, transaction) in ledger.transactions.iter().enumerate() {
            let xdr = &transaction.envelope;
            let envelope = TransactionEnvelope::from_xdr(xdr, Limits::none()).unwrap();
            let operations = match &envelope {
                TransactionEnvelope::TxV0(v0) => v0.tx.operations.to_vec(),
                TransactionEnvelope::Tx(v1) => v1.tx.operations.to_vec(),
                TransactionEnvelope::TxFeeBump(bump) => {
                    let stellar_xdr::FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
                    inner.tx.operations.to_vec()
                }
            };
            let calls = |body: &OperationBody| matches!(body, OperationBody::InvokeHostFunction(_));
            if transaction.smart_contract && operations.iter().any(|one| calls(&one.body)) {
                expected.push((ledger.clone(), index));
            }
        }
    }
    expected
}

#[test]
fn extracted_parts_equal_a_full_decoding() {
    let (mut seen, mut successful, mut returned, mut events, mut bumps) = (0, 0, 0, 0, 0);
    for section in core_tests().into_iter().chain(local_network()).chain(public()) {
        let calls = calls(&section);
        let expected = expected(&section);
        assert_eq!(calls.len(), expected.len(), "{}", section.name);
        for (call, (ledger, index)) in calls.iter().zip(expected) {
            let transaction = &ledger.transactions[index];
            assert_eq!(call.position.ledger, ledger.sequence);
            assert_eq!(call.position.application_order, transaction.application_order);
            assert_eq!(
                (call.hash, call.closed_at.seconds()),
                (transaction.hash, ledger.close_time)
            );
            assert_eq!(call.successful, transaction.successful);
            let xdr: Vec<Vec<u8>> = ledger.events[transaction.operation_events.clone()]
                .iter()
                .map(|event| event.xdr.clone())
                .collect();
            let ours: Vec<Vec<u8>> = call
                .recorded
                .events
                .iter()
                .inspect(|event| assert_ne!(event.type_, ContractEventType::Diagnostic))
                .map(|event| event.to_xdr(Limits::none()).unwrap())
                .collect();
            assert_eq!(ours, xdr);
            let meta = TransactionMeta::from_xdr(&transaction.meta, Limits::none()).unwrap();
            if let TransactionMeta::V4(meta) = &meta {
                let value = meta.soroban_meta.as_ref().and_then(|one| one.return_value.clone());
                assert_eq!(call.recorded.return_value, value);
                let changes = meta.operations.iter().map(|one| one.changes.len()).sum::<usize>();
                assert_eq!(call.recorded.changes.len(), changes);
            }
            // Together the contracts are those under which the transaction is indexed.
            let all: BTreeSet<ContractId> = call.called.all().copied().collect();
            assert_eq!(all.len(), call.called.all().count(), "no contract twice");
            assert!(all.iter().eq(&transaction.contracts), "{}", section.name);
            check_named(call);
            seen += 1;
            successful += u32::from(call.successful);
            returned += u32::from(call.recorded.return_value.is_some());
            events += call.recorded.events.len();
            bumps += u32::from(transaction.inner_hash.is_some());
        }
    }
    eprintln!(
        "{seen} calls, {successful} of them successful, {returned} with a value, {events} events, {bumps} fee bumps"
    );
    if seen > 0 {
        assert!(successful > 100 && returned > 100 && events > 20 && bumps > 0);
    }
}

/// The called contract is named, and a contract that occurs only in the footprint is not.
fn check_named(call: &HostCall) {
    if let HostFunction::InvokeContract(args) = &call.function {
        let ScAddress::Contract(id) = &args.contract_address else { panic!("{args:?}") };
        assert!(call.called.named.contains(&ContractId(id.0.0)));
    }
    for id in &call.called.in_footprint {
        let is_instance = |key: &LedgerKey| match key {
            LedgerKey::ContractData(data) => {
                data.key == ScVal::LedgerKeyContractInstance
                    && matches!(&data.contract, ScAddress::Contract(one) if one.0.0 == id.0)
            }
            _ => false,
        };
        assert!(call.footprint_keys().any(is_instance));
        assert!(!call.called.named.contains(id));
    }
}
