//! Decodes the sandbox's ledgers with `stellar-xdr` alone and checks them from outside.

mod control;
mod execution;
mod market;
mod times;
mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use ed25519_dalek::{Signature, VerifyingKey};
use orrery_ledger::domain::{LedgerSeq, Network};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    DecoratedSignature, EnvelopeType, FeeBumpTransactionInnerTx, GeneralizedTransactionSet,
    LedgerCloseMeta, LedgerCloseMetaV2, LedgerKey, Limits, NodeId, OperationBody, PublicKey,
    ReadXdr, StellarValueExt, TransactionEnvelope, TransactionExt, TransactionMeta,
    TransactionMetaV4, TransactionPhase, TransactionResultMetaV1, TransactionResultResult,
    TransactionResultSet, TxSetComponent, WriteXdr,
};

use super::envelope::ed25519;
use super::*;

/// Number of ledgers: enough for every kind of transaction, expiry and restoration included.
const LEDGERS: usize = 250;
/// First ledger with a market.
const MARKET_FROM: LedgerSeq = LedgerSeq(60);

fn configuration() -> SandboxConfig {
    SandboxConfig {
        network: Network::from_name_or_passphrase("local"),
        seed: 7,
        start_time: 1_800_000_000,
        close_interval: 5,
        transactions_per_ledger: 4..=8,
    }
}

/// Returns the first ledgers of a sandbox with a market and the sandbox after them, made once for
/// all tests.
fn chain() -> &'static (Vec<LedgerCloseMetaV2>, Sandbox) {
    static CHAIN: OnceLock<(Vec<LedgerCloseMetaV2>, Sandbox)> = OnceLock::new();
    CHAIN.get_or_init(|| {
        let mut sandbox = Sandbox::new(configuration()).unwrap().with_market(MARKET_FROM);
        let ledgers = (0..LEDGERS).map(|_| decode(&sandbox.next_ledger().unwrap())).collect();
        (ledgers, sandbox)
    })
}

fn decode(bytes: &[u8]) -> LedgerCloseMetaV2 {
    let meta = LedgerCloseMeta::from_xdr(bytes, Limits { depth: 500, len: bytes.len() }).unwrap();
    assert_eq!(meta.to_xdr(Limits::none()).unwrap(), bytes);
    match meta {
        LedgerCloseMeta::V2(meta) => meta,
        other => panic!("{}", other.name()),
    }
}

fn digest(value: &impl WriteXdr) -> [u8; 32] {
    Sha256::digest(value.to_xdr(Limits::none()).unwrap()).into()
}

fn meta_of(transaction: &TransactionResultMetaV1) -> &TransactionMetaV4 {
    match &transaction.tx_apply_processing {
        TransactionMeta::V4(meta) => meta,
        other => panic!("{}", other.name()),
    }
}

/// Envelopes of the classic phase, and those of the contract phase by stage and cluster.
type Phases = (Vec<TransactionEnvelope>, Vec<Vec<Vec<TransactionEnvelope>>>);

fn phases(ledger: &LedgerCloseMetaV2) -> Phases {
    let GeneralizedTransactionSet::V1(set) = &ledger.tx_set;
    let [TransactionPhase::V0(components), TransactionPhase::V1(parallel)] = set.phases.as_slice()
    else {
        panic!("two phases, the second one parallel");
    };
    let classic = components
        .iter()
        .flat_map(|TxSetComponent::TxsetCompTxsMaybeDiscountedFee(part)| part.txs.to_vec())
        .collect();
    let stages = parallel
        .execution_stages
        .iter()
        .map(|stage| stage.0.iter().map(|cluster| cluster.0.to_vec()).collect())
        .collect();
    (classic, stages)
}

fn envelopes(ledger: &LedgerCloseMetaV2) -> Vec<TransactionEnvelope> {
    let (classic, stages) = phases(ledger);
    classic.into_iter().chain(stages.into_iter().flatten().flatten()).collect()
}

fn inner(envelope: &TransactionEnvelope) -> &stellar_xdr::TransactionV1Envelope {
    match envelope {
        TransactionEnvelope::Tx(inner) => inner,
        TransactionEnvelope::TxFeeBump(bump) => {
            let FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
            inner
        }
        TransactionEnvelope::TxV0(_) => panic!("an envelope of version 0"),
    }
}

#[test]
fn headers_form_a_chain_from_ledger_2() {
    let (ledgers, sandbox) = chain();
    let mut previous = Sandbox::new(configuration()).unwrap().tip.hash;
    for (ledger, sequence) in ledgers.iter().zip(2..) {
        let (entry, header) = (&ledger.ledger_header, &ledger.ledger_header.header);
        assert_eq!(header.ledger_seq, sequence);
        assert_eq!(header.ledger_version, sandbox.protocol());
        assert_eq!(header.previous_ledger_hash.0, previous);
        assert_eq!(entry.hash.0, digest(header));
        assert_eq!(header.scp_value.tx_set_hash.0, digest(&ledger.tx_set));
        let results: Vec<_> = ledger.tx_processing.iter().map(|tx| tx.result.clone()).collect();
        let results = TransactionResultSet { results: results.try_into().unwrap() };
        assert_eq!(header.tx_set_result_hash.0, digest(&results));
        let GeneralizedTransactionSet::V1(set) = &ledger.tx_set;
        assert_eq!(set.previous_ledger_hash.0, previous);
        assert_eq!(header.scp_value.close_time.0, 1_800_000_000 + 5 * (u64::from(sequence) - 2));
        previous = entry.hash.0;
    }
    assert_eq!(sandbox.tip.hash, previous);
    assert_eq!(sandbox.latest_ledger(), LedgerSeq(1 + LEDGERS as u32));
}

#[test]
fn old_state_digests_move_up_the_skip_list() {
    let headers: Vec<_> = chain().0.iter().map(|ledger| &ledger.ledger_header.header).collect();
    let of = |sequence: usize| headers[sequence - 2];
    assert_eq!(of(49).skip_list[0].0, [0; 32]);
    for sequence in [50, 99] {
        assert_eq!(of(sequence).skip_list[0], of(50).bucket_list_hash);
    }
    assert_eq!(of(100).skip_list[0], of(100).bucket_list_hash);
    assert_eq!(of(100).skip_list[1].0, [0; 32]);
}

#[test]
fn the_agreed_value_is_signed_by_the_validator() {
    let network = configuration().network;
    for ledger in &chain().0 {
        let value = &ledger.ledger_header.header.scp_value;
        let StellarValueExt::Signed(signed) = &value.ext else { panic!("{:?}", value.ext) };
        let mut payload = network.id().0.to_vec();
        payload.extend((EnvelopeType::Scpvalue as i32).to_be_bytes());
        payload.extend(value.tx_set_hash.0);
        payload.extend(value.close_time.0.to_be_bytes());
        let NodeId(PublicKey::PublicKeyTypeEd25519(key)) = &signed.node_id;
        assert!(verifies(&key.0, &payload, &signed.signature.0));
    }
}

#[test]
fn every_result_has_its_signed_envelope() {
    let network = configuration().network.id().0;
    for ledger in &chain().0 {
        let mut by_hash = BTreeMap::new();
        for envelope in envelopes(ledger) {
            let hash = envelope.hash(network).unwrap();
            assert!(by_hash.insert(hash, envelope).is_none());
        }
        for transaction in ledger.tx_processing.iter() {
            let hash = transaction.result.transaction_hash.0;
            let envelope = by_hash.remove(&hash).expect("an envelope for each result");
            let inner = inner(&envelope);
            let inner_hash = inner.hash(network).unwrap();
            let source = ed25519(&inner.tx.source_account);
            assert_signed(&inner.signatures, &source, &inner_hash);
            match (&envelope, &transaction.result.result.result) {
                (
                    TransactionEnvelope::TxFeeBump(bump),
                    TransactionResultResult::TxFeeBumpInnerSuccess(pair)
                    | TransactionResultResult::TxFeeBumpInnerFailed(pair),
                ) => {
                    assert_eq!(pair.transaction_hash.0, inner_hash);
                    assert_signed(&bump.signatures, &ed25519(&bump.tx.fee_source), &hash);
                }
                (
                    TransactionEnvelope::Tx(_),
                    TransactionResultResult::TxSuccess(_) | TransactionResultResult::TxFailed(_),
                ) => {}
                (_, result) => panic!("{}", result.name()),
            }
            let is_soroban = matches!(inner.tx.ext, TransactionExt::V1(_));
            assert_eq!(meta_of(transaction).soroban_meta.is_some(), is_soroban);
        }
        assert!(by_hash.is_empty());
    }
}

fn assert_signed(signatures: &[DecoratedSignature], key: &[u8; 32], payload: &[u8]) {
    let [signature] = signatures else { panic!("one signature") };
    assert_eq!(signature.hint.0, key[28..]);
    assert!(verifies(key, payload, &signature.signature.0));
}

fn verifies(key: &[u8; 32], payload: &[u8], signature: &[u8]) -> bool {
    let key = VerifyingKey::from_bytes(key).unwrap();
    key.verify_strict(payload, &Signature::from_slice(signature).unwrap()).is_ok()
}

#[test]
fn transaction_sets_are_sorted_by_hash_but_applied_shuffled() {
    let network = configuration().network.id().0;
    let (mut shuffled, mut many_stages, mut shared_cluster) = (0, 0, 0);
    for ledger in &chain().0 {
        let (classic, stages) = phases(ledger);
        assert!(classic.is_sorted_by_key(digest));
        for stage in &stages {
            assert!(stage.iter().all(|cluster| cluster.is_sorted_by_key(digest)));
            assert!(stage.is_sorted_by_key(|cluster| digest(&cluster[0])));
            shared_cluster += stage.iter().filter(|cluster| cluster.len() > 1).count();
        }
        assert!(stages.is_sorted_by_key(|stage| digest(&stage[0][0])));
        many_stages += usize::from(stages.len() > 1);

        let set_order: Vec<_> =
            envelopes(ledger).iter().map(|envelope| envelope.hash(network).unwrap()).collect();
        let applied: Vec<_> =
            ledger.tx_processing.iter().map(|tx| tx.result.transaction_hash.0).collect();
        shuffled += usize::from(applied != set_order);
        let phase = |hash: &[u8; 32]| {
            classic.iter().all(|envelope| envelope.hash(network).unwrap() != *hash)
        };
        assert!(applied.is_sorted_by_key(phase), "classic transactions first");
    }
    assert!(shuffled > LEDGERS / 2 && many_stages > LEDGERS / 4 && shared_cluster > 0);
}

#[test]
fn clusters_of_a_stage_do_not_touch_the_same_entries() {
    for ledger in &chain().0 {
        for stage in phases(ledger).1 {
            let mut written_elsewhere: BTreeSet<LedgerKey> = BTreeSet::new();
            let mut read_elsewhere: BTreeSet<LedgerKey> = BTreeSet::new();
            for cluster in stage {
                let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
                for envelope in &cluster {
                    let TransactionExt::V1(data) = &inner(envelope).tx.ext else { panic!() };
                    read.extend(data.resources.footprint.read_only.to_vec());
                    written.extend(data.resources.footprint.read_write.to_vec());
                }
                assert!(written.is_disjoint(&written_elsewhere));
                assert!(written.is_disjoint(&read_elsewhere));
                assert!(read.is_disjoint(&written_elsewhere));
                written_elsewhere.extend(written);
                read_elsewhere.extend(read);
            }
        }
    }
}

#[test]
fn the_same_configuration_yields_the_same_bytes() {
    let make = |config: SandboxConfig| -> Vec<Vec<u8>> {
        let mut sandbox = Sandbox::new(config).unwrap();
        (0..40).map(|_| sandbox.next_ledger().unwrap()).collect()
    };
    let first = make(configuration());
    assert_eq!(make(configuration()), first);
    for (made, ledger) in first.iter().zip(&chain().0) {
        assert_eq!(&decode(made), ledger);
    }
    for other in [
        SandboxConfig { seed: 8, ..configuration() },
        SandboxConfig { start_time: 1_800_000_001, ..configuration() },
        SandboxConfig { network: Network::from_passphrase("another"), ..configuration() },
    ] {
        assert_ne!(make(other)[0], first[0]);
    }
}

#[test]
fn the_chain_continues_from_a_snapshot_or_by_skipping() {
    for height in [1, 2, 5, 6, 7, 30, 60, 140] {
        let mut original = Sandbox::new(configuration()).unwrap().with_market(MARKET_FROM);
        original.skip_to(LedgerSeq(height)).unwrap();
        let bytes = original.snapshot().unwrap();
        let config = SandboxConfig { start_time: 1, ..configuration() };
        let mut restored = Sandbox::restore(config, &bytes).unwrap().with_market(MARKET_FROM);
        assert_eq!(restored.latest_ledger(), LedgerSeq(height));
        assert_eq!(restored.tip.hash, original.tip.hash);
        assert_eq!(restored.state, original.state);
        for _ in 0..20 {
            assert_eq!(restored.next_ledger().unwrap(), original.next_ledger().unwrap());
        }
        assert_eq!(restored.snapshot().unwrap(), original.snapshot().unwrap());
    }
}

#[test]
fn foreign_and_damaged_snapshots_are_refused() {
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.skip_to(LedgerSeq(9)).unwrap();
    let bytes = sandbox.snapshot().unwrap();
    let other = SandboxConfig { seed: 8, ..configuration() };
    let refused = |restored: Result<Sandbox, SandboxError>| restored.err().unwrap().to_string();
    let error = refused(Sandbox::restore(other, &bytes));
    assert!(error.contains("of a sandbox with another configuration: "), "{error}");
    for length in [0, 7, 31, 32, 60, bytes.len() / 2, bytes.len() - 1] {
        let error = refused(Sandbox::restore(configuration(), &bytes[..length]));
        assert!(error.starts_with("these bytes are not a sandbox snapshot: "), "{length}: {error}");
    }
    for position in (0..bytes.len()).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 1;
        let error = refused(Sandbox::restore(configuration(), &damaged));
        assert!(
            error.starts_with("these bytes are not a sandbox snapshot: "),
            "{position}: {error}"
        );
    }
}

#[test]
fn a_halted_network_resumes_at_the_given_time() {
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.skip_to(LedgerSeq(20)).unwrap();
    let regular = sandbox.latest_close_time();
    sandbox.next_ledger_at(regular + 1_000).unwrap();
    assert_eq!(sandbox.latest_close_time(), regular + 1_000);
    sandbox.next_ledger_at(regular).unwrap();
    assert_eq!(sandbox.latest_close_time(), regular + 1_005);
}

#[test]
fn invalid_configurations_are_refused() {
    for range in [0..=MAX_TRANSACTIONS + 1, RangeInclusive::new(5, 4)] {
        let config = SandboxConfig { transactions_per_ledger: range, ..configuration() };
        let error = Sandbox::new(config).err().unwrap().to_string();
        assert!(error.starts_with("a sandbox ledger cannot hold "), "{error}");
    }
    let config = SandboxConfig { close_interval: 0, ..configuration() };
    let error = Sandbox::new(config).err().unwrap().to_string();
    assert!(error.starts_with("a close interval of 0 seconds "), "{error}");
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    sandbox.skip_to(LedgerSeq(4)).unwrap();
    sandbox.skip_to(LedgerSeq(4)).unwrap();
    let error = sandbox.skip_to(LedgerSeq(3)).unwrap_err().to_string();
    assert_eq!(error, "the sandbox is at ledger 4 and cannot go back to 3");
}

#[test]
fn ledgers_of_any_allowed_size_can_be_made() {
    for range in [0..=0, 1..=1, MAX_TRANSACTIONS..=MAX_TRANSACTIONS] {
        let fullest = *range.end();
        let config = SandboxConfig { transactions_per_ledger: range, ..configuration() };
        let mut sandbox = Sandbox::new(config).unwrap();
        sandbox.skip_to(LedgerSeq(6)).unwrap();
        let counts: Vec<_> =
            (0..12).map(|_| decode(&sandbox.next_ledger().unwrap()).tx_processing.len()).collect();
        assert_eq!(counts.iter().max(), Some(&fullest), "{counts:?}");
    }
}

#[test]
fn a_sandbox_can_be_sent_to_another_thread() {
    let mut sandbox = Sandbox::new(configuration()).unwrap();
    let first = std::thread::spawn(move || sandbox.next_ledger().unwrap()).join().unwrap();
    assert_eq!(&decode(&first), &chain().0[0]);
}

#[test]
fn every_kind_of_transaction_happens_early() {
    let mut seen = BTreeSet::new();
    for ledger in &chain().0 {
        let applied = &ledger.tx_processing;
        seen.insert(format!("empty {}", applied.is_empty()));
        seen.insert(format!("evicts {}", !ledger.evicted_keys.is_empty()));
        let network = configuration().network.id().0;
        let all: BTreeMap<_, _> = envelopes(ledger)
            .into_iter()
            .map(|envelope| (envelope.hash(network).unwrap(), envelope))
            .collect();
        for transaction in applied.iter() {
            let tx = &inner(&all[&transaction.result.transaction_hash.0]).tx;
            let meta = meta_of(transaction);
            let phase = if meta.soroban_meta.is_some() { "soroban" } else { "classic" };
            let result = transaction.result.result.result.name();
            seen.insert(format!("{phase} {result}"));
            for operation in tx.operations.iter() {
                seen.insert(format!("{} {result}", operation.body.name()));
                if let OperationBody::InvokeHostFunction(call) = &operation.body {
                    seen.insert(call.host_function.name().to_owned());
                    seen.extend(
                        call.auth.iter().map(|auth| format!("auth {}", auth.credentials.name())),
                    );
                }
            }
            for operation in meta.operations.iter() {
                seen.extend(operation.changes.iter().map(|change| change.name().to_owned()));
                seen.extend(operation.events.iter().map(|event| {
                    let (name, data) = execution::name_and_data(event);
                    format!("{phase} {name} {}", data.name())
                }));
            }
        }
    }
    let expected = [
        "empty true",
        "evicts true",
        "classic TxSuccess",
        "classic TxFailed",
        "classic TxFeeBumpInnerSuccess",
        "classic TxFeeBumpInnerFailed",
        "soroban TxSuccess",
        "soroban TxFailed",
        "soroban TxFeeBumpInnerSuccess",
        "soroban TxFeeBumpInnerFailed",
        "CreateAccount TxSuccess",
        "AccountMerge TxSuccess",
        "ChangeTrust TxSuccess",
        "Payment TxSuccess",
        "Payment TxFailed",
        "InvokeHostFunction TxFailed",
        "ExtendFootprintTtl TxSuccess",
        "RestoreFootprint TxSuccess",
        "CreateContract",
        "UploadContractWasm",
        "CreateContractV2",
        "InvokeContract",
        "auth SourceAccount",
        "auth Address",
        "auth AddressV2",
        "State",
        "Created",
        "Updated",
        "Removed",
        "Restored",
        "classic transfer I128",
        "classic transfer Map",
        "classic mint I128",
        "classic burn I128",
        "soroban transfer I128",
        "soroban transfer Map",
        "soroban mint I128",
        "soroban burn I128",
        "soroban approve Vec",
        "soroban clawback I128",
        "soroban set_authorized Bool",
        "soroban placed Map",
        "soroban filled Map",
    ];
    let missing: Vec<_> = expected.iter().filter(|kind| !seen.contains(**kind)).collect();
    assert!(missing.is_empty(), "{missing:?} not among {seen:#?}");
}
