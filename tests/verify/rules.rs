//! Each rule alone: a ledger that breaks it, with all hashes right and validly signed.

use orrery_ledger::decode::decode;
use orrery_ledger::domain::Network;
use orrery_ledger::verify::{Policy, Rule, VerifyError, verify};
use orrery_testkit::fixtures;
use orrery_testkit::forged::{Extent, Ledger, forgers_key, list, signature_of};
use orrery_testkit::sandbox::{self, local};
use stellar_xdr::*;

/// Makes all hashes right, signs, and returns the rule that the ledger breaks.
fn broken(mut ledger: Ledger, network: &Network) -> Option<Rule> {
    ledger.make_right(Extent::Signature, network.id(), &forgers_key(1));
    of_signed(&ledger, network)
}

/// Returns the rule that a ledger breaks as it is.
fn of_signed(ledger: &Ledger, network: &Network) -> Option<Rule> {
    let raw = ledger.encode();
    let view = decode(&raw, network.id()).unwrap();
    match verify(&view, network.id(), Policy::default()) {
        Ok(_) => None,
        Err(VerifyError::Fault(fault)) => {
            assert_eq!(fault.ledger, view.header.sequence);
            Some(fault.rule)
        }
        Err(error) => panic!("{error}"),
    }
}

/// A made ledger, and the position of a transaction in it whose invocation has events.
fn made() -> (Ledger, usize) {
    let ledgers = sandbox::ledgers(sandbox::sandbox(5, 4..=8), 30);
    let with_events = |raw: &Vec<u8>| {
        let ledger = Ledger::read(raw).unwrap();
        let (position, _) = ledger.invocations().into_iter().find(|(_, events)| *events > 0)?;
        Some((ledger, position))
    };
    ledgers.iter().find_map(with_events).unwrap()
}

/// The metadata of a transaction.
fn meta(ledger: &mut Ledger, position: usize) -> &mut TransactionMetaV4 {
    match &mut ledger.applied[position].tx_apply_processing {
        TransactionMeta::V4(meta) => meta,
        other => panic!("it is of another version: {other:?}"),
    }
}

#[test]
fn the_transaction_set_follows_the_ledger_before() {
    let (mut ledger, _) = made();
    assert_eq!(broken(ledger.clone(), &local()), None);
    let GeneralizedTransactionSet::V1(set) = &mut ledger.set;
    set.previous_ledger_hash = Hash([7; 32]);
    assert!(matches!(broken(ledger, &local()), Some(Rule::SetLink { .. })));
}

#[test]
fn metadata_has_the_shape_that_results_demand() {
    let (original, position) = made();
    let mut ledger = original.clone();
    let operations: Vec<_> = meta(&mut ledger, position).operations.to_vec();
    meta(&mut ledger, position).operations =
        list([operations, vec![OperationMetaV2::default()]].concat());
    let rule = Rule::Operations { metadata: 2, results: 1 };
    assert_eq!(broken(ledger, &local()), Some(rule));

    let mut ledger = original.clone();
    meta(&mut ledger, position).soroban_meta.as_mut().unwrap().return_value = None;
    assert_eq!(broken(ledger, &local()), Some(Rule::NoReturnValue));

    let mut ledger = original;
    ledger.applied[position].tx_apply_processing = TransactionMeta::V2(TransactionMetaV2 {
        operations: list(vec![OperationMeta::default()]),
        ..Default::default()
    });
    assert_eq!(broken(ledger, &local()), Some(Rule::Metadata(2)));
}

#[test]
fn diagnostic_events_do_not_stand_among_those_of_an_operation() {
    let (mut ledger, position) = made();
    let mut events = ledger.events(position);
    events.push(ContractEvent { type_: ContractEventType::Diagnostic, ..events[0].clone() });
    ledger.set_events(position, events);
    assert_eq!(broken(ledger, &local()), Some(Rule::Diagnostic));
}

#[test]
fn a_dropped_set_leaves_no_transactions_and_no_hash() {
    let (mut ledger, _) = made();
    let value = &mut ledger.header.header.scp_value;
    value.ext = StellarValueExt::EmptyTxSet(StellarValueProposedValue {
        tx_set_hash: value.tx_set_hash.clone(),
        ..Default::default()
    });
    let (hash, transactions) = (value.tx_set_hash.clone(), ledger.applied.len());
    ledger.header.header.scp_value.tx_set_hash = Hash::default();
    assert_eq!(broken(ledger.clone(), &local()), Some(Rule::Dropped(transactions)));
    ledger.applied.clear();
    ledger.change_envelopes(Vec::clear);
    assert_eq!(broken(ledger.clone(), &local()), None);
    ledger.header.header.scp_value.tx_set_hash = hash;
    assert_eq!(broken(ledger, &local()), Some(Rule::DroppedSet));
}

#[test]
fn ledgers_since_protocol_14_are_signed() {
    let (mut ledger, _) = made();
    ledger.header.header.scp_value.ext = StellarValueExt::Basic;
    for (protocol, rule) in [(13, None), (14, None), (15, Some(Rule::Unsigned))] {
        ledger.header.header.ledger_version = protocol;
        ledger.make_right(Extent::HeaderHash, local().id(), &forgers_key(1));
        assert_eq!(of_signed(&ledger, &local()), rule, "protocol {protocol}");
    }
}

#[test]
fn signatures_are_those_of_the_value() {
    let (mut ledger, _) = made();
    ledger.make_right(Extent::Signature, local().id(), &forgers_key(1));
    let signed = signature_of(&mut ledger.header.header.scp_value).unwrap().clone();
    ledger.make_right(Extent::Signature, local().id(), &forgers_key(2));
    signature_of(&mut ledger.header.header.scp_value).unwrap().signature = signed.signature;
    ledger.make_right(Extent::HeaderHash, local().id(), &forgers_key(1));
    assert!(matches!(of_signed(&ledger, &local()), Some(Rule::Signature(_))));
}

/// Whether the only operation of a transaction is a successful one that concerns times to live.
fn concerns_times_to_live(applied: &TransactionResultMetaV1) -> bool {
    let TransactionResultResult::TxSuccess(operations) = &applied.result.result.result else {
        return false;
    };
    matches!(
        operations.first(),
        Some(OperationResult::OpInner(
            OperationResultTr::ExtendFootprintTtl(ExtendFootprintTtlResult::Success)
                | OperationResultTr::RestoreFootprint(RestoreFootprintResult::Success)
        ))
    )
}

#[test]
fn operations_on_times_to_live_have_no_events() {
    let Some(folder) = fixtures::folder() else { return };
    let (event, mut found) = (made(), 0);
    let event = event.0.events(event.1).remove(0);
    for name in fixtures::files(&folder).iter().filter(|name| name.starts_with("core-tests/")) {
        let fixture = fixtures::load(&folder, name);
        for mut ledger in fixture.ledgers.iter().filter_map(|raw| Ledger::read(raw)) {
            let Some(position) = ledger.applied.iter().position(concerns_times_to_live) else {
                continue;
            };
            assert_eq!(broken(ledger.clone(), &fixture.network), None, "{name}");
            ledger.set_events(position, vec![event.clone()]);
            assert_eq!(broken(ledger, &fixture.network), Some(Rule::Events(1)), "{name}");
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}
