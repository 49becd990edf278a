//! A failed transaction whose arguments are nested deeper than the contract host reads: the network stores it all the
//! same, and what it calls is told.

use orrery::decode::decode;
use orrery::domain::{ContractId, LedgerRange, LedgerSeq, Network};
use orrery::webhooks::trigger::Trigger;
use orrery_testkit::scratch::scratch;
use orrery_testkit::storage::histories::StorageHistory;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    Hash, HostFunction, Limits, OperationBody, ReadXdr, ScAddress, TransactionEnvelope,
    TransactionSignaturePayload, TransactionSignaturePayloadTaggedTransaction, WriteXdr,
};

use super::scene::Scene;

/// Number of vectors in each other: three levels of XDR each.
const NESTED: usize = 400;
/// The beginning of the call of `act` without arguments: its name, and their number.
const CALL: &[u8] = b"\0\0\0\x03act\0\0\0\0\0";

fn with_nested_argument(envelope: &[u8]) -> Vec<u8> {
    let at = envelope.windows(CALL.len()).position(|part| part == CALL).unwrap();
    let end = at + CALL.len();
    let vector = [0, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1];
    let number = [0, 0, 0, 3, 0, 0, 0, 7];
    let arguments = [&[0, 0, 0, 1][..], &vector.repeat(NESTED), &number].concat();
    [&envelope[..end - 4], &arguments, &envelope[end..]].concat()
}

fn hash_of(network: &Network, envelope: &[u8]) -> [u8; 32] {
    let TransactionEnvelope::Tx(envelope) =
        TransactionEnvelope::from_xdr(envelope, Limits::none()).unwrap()
    else {
        panic!("it is a plain transaction")
    };
    let payload = TransactionSignaturePayload {
        network_id: Hash(network.id().0),
        tagged_transaction: TransactionSignaturePayloadTaggedTransaction::Tx(envelope.tx),
    };
    Sha256::digest(payload.to_xdr(Limits::none()).unwrap()).into()
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let (mut result, mut left) = (Vec::new(), bytes);
    while let Some(at) = left.windows(old.len()).position(|part| part == old) {
        result.extend_from_slice(&left[..at]);
        result.extend_from_slice(new);
        left = &left[at + old.len()..];
    }
    result.extend_from_slice(left);
    result
}

/// Returns the contract that a failed call of `act` calls, if it is a plain transaction.
fn called(envelope: &[u8]) -> Option<ContractId> {
    let TransactionEnvelope::Tx(envelope) =
        TransactionEnvelope::from_xdr(envelope, Limits::none()).unwrap()
    else {
        return None;
    };
    let OperationBody::InvokeHostFunction(call) = &envelope.tx.operations.first()?.body else {
        return None;
    };
    let HostFunction::InvokeContract(args) = &call.host_function else { return None };
    let ScAddress::Contract(id) = &args.contract_address else { return None };
    (args.args.is_empty()).then_some(ContractId(id.0.0))
}

/// Returns a history, the number of a ledger of it with a failed call, now with nested arguments, and the contract.
fn nested() -> (StorageHistory, usize, ContractId) {
    for seed in 0..100 {
        let mut history = StorageHistory::small(seed);
        for at in 0..history.ledgers.len() {
            let raw = &history.ledgers[at].xdr;
            let view = decode(raw, history.network.id()).unwrap();
            let mut failed = view.transactions.iter().filter(|it| !it.successful);
            let found = failed.find_map(|it| Some((it.envelope, it.hash, called(it.envelope)?)));
            let Some((envelope, hash, contract)) = found else { continue };
            let deep = with_nested_argument(envelope);
            let new = hash_of(&history.network, &deep);
            let raw = replaced(&replaced(raw, envelope, &deep), hash.as_bytes(), &new);
            history.ledgers[at].xdr = raw;
            return (history, at, contract);
        }
    }
    panic!("no history has a failed call")
}

#[test]
fn a_failed_call_with_deep_arguments_is_told_and_delays_nobody() {
    let (history, at, contract) = nested();
    let directory = scratch();
    let scene = Scene::open(directory.path(), &history.network);
    let id = scene.subscribe(contract, Trigger::FailedCall { functions: Vec::new() }, false);
    let other = scene.subscribe(contract, Trigger::Silence { within: 1 }, false);
    for ledger in &history.ledgers {
        scene.commit(&ledger.xdr);
        scene.feed();
    }
    let last = history.ledgers.last().unwrap().sequence;
    let sequence = history.ledgers[at].sequence;
    let told = scene.bodies(id);
    let place = format!("\"ledger\":{sequence},");
    let texts = told.iter().map(|(_, body)| body);
    let deep = texts.filter(|body| body.contains(&place)).max_by_key(|body| body.len());
    let body = deep.expect("the call is told");
    assert!(body.contains("\"function\":\"act\""), "{body}");
    // Its arguments are a list of what is nested.
    assert!(body.matches('[').count() > NESTED, "{body}");
    assert!(scene.store.lacks(orrery::webhooks::CONSUMER, LedgerSeq(last)) == Some(false));
    assert!(!scene.bodies(other).is_empty(), "others are told");
    scene.replay(id, LedgerRange::new(0, u32::MAX));
    assert_eq!(scene.bodies(id), told, "a replay makes the same");
}
