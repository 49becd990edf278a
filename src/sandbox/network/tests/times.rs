//! Close times in milliseconds, and ledgers whose transaction set was dropped.

use orrery_ledger::verify::{Policy, verify};
use stellar_xdr::{Hash, LedgerCloseValueSignature, StellarValue};

use super::*;

/// First ledger with milliseconds, and number of ledgers per second.
const FROM: LedgerSeq = LedgerSeq(20);
const PER_SECOND: u32 = 4;

fn sandbox() -> Sandbox {
    Sandbox::new(configuration()).unwrap().with_milliseconds(FROM, PER_SECOND)
}

/// Returns the close time in milliseconds, the hash of the proposed set, and the signature over
/// both and the close time in seconds.
fn signed(value: &StellarValue) -> (Option<u64>, &Hash, &LedgerCloseValueSignature) {
    match &value.ext {
        StellarValueExt::Basic => panic!("an unsigned value"),
        StellarValueExt::Signed(signature) => (None, &value.tx_set_hash, signature),
        StellarValueExt::EmptyTxSet(dropped) => {
            (None, &dropped.tx_set_hash, &dropped.lc_value_signature)
        }
        StellarValueExt::SignedMs(signed) => {
            (Some(signed.close_time_ms.0), &value.tx_set_hash, &signed.lc_value_signature)
        }
        StellarValueExt::EmptyTxSetMs(dropped) => {
            let time = dropped.close_time_ms.0;
            (Some(time), &dropped.tx_set_hash, &dropped.lc_value_signature)
        }
    }
}

fn assert_agreed(ledger: &LedgerCloseMetaV2) -> Option<u64> {
    let value = &ledger.ledger_header.header.scp_value;
    let (milliseconds, proposed, signature) = signed(value);
    let mut payload = configuration().network.id().0.to_vec();
    payload.extend((EnvelopeType::Scpvalue as i32).to_be_bytes());
    payload.extend(proposed.0);
    payload.extend(value.close_time.0.to_be_bytes());
    payload.extend(milliseconds.iter().flat_map(|time| time.to_be_bytes()));
    let NodeId(PublicKey::PublicKeyTypeEd25519(key)) = &signature.node_id;
    assert!(verifies(&key.0, &payload, &signature.signature.0));
    milliseconds
}

#[test]
fn several_ledgers_share_a_second() {
    let mut sandbox = sandbox();
    let mut previous = (0, None);
    let mut seconds = BTreeMap::<u64, u32>::new();
    for sequence in 2..100 {
        let ledger = decode(&sandbox.next_ledger().unwrap());
        let whole = ledger.ledger_header.header.scp_value.close_time.0;
        let milliseconds = assert_agreed(&ledger);
        assert_eq!(milliseconds.is_some(), sequence >= FROM.0);
        assert!(milliseconds.is_none_or(|time| time / 1000 == whole));
        assert!(previous.0 <= whole);
        if let (_, Some(before)) = previous {
            assert!(milliseconds.is_some_and(|time| before < time), "{sequence}");
        }
        previous = (whole, milliseconds);
        *seconds.entry(whole).or_default() += 1;
    }
    let shared = seconds.values().filter(|count| **count == PER_SECOND).count();
    assert_eq!(shared, (100 - FROM.0 as usize) / PER_SECOND as usize, "{seconds:?}");
}

#[test]
fn seconds_equal_those_of_a_network_without_milliseconds() {
    let times = |mut sandbox: Sandbox| -> Vec<u64> {
        let mut next = || {
            sandbox.next_ledger().unwrap();
            sandbox.latest_close_time()
        };
        (0..40).map(|_| next()).collect()
    };
    let plain = Sandbox::new(configuration()).unwrap();
    assert_eq!(times(plain.clone().with_milliseconds(FROM, 1)), times(plain));
}

#[test]
fn a_restored_snapshot_continues_in_milliseconds() {
    let mut sandbox = sandbox();
    sandbox.skip_to(LedgerSeq(33)).unwrap();
    let restored = Sandbox::restore(configuration(), &sandbox.snapshot().unwrap()).unwrap();
    let mut restored = restored.with_milliseconds(FROM, PER_SECOND);
    for _ in 0..10 {
        assert!(sandbox.next_ledger().unwrap() == restored.next_ledger().unwrap());
    }
}

#[test]
fn a_dropped_set_leaves_an_empty_ledger_and_no_other_effect() {
    for from in [FROM, LedgerSeq(1_000)] {
        let mut sandbox =
            Sandbox::new(configuration()).unwrap().with_milliseconds(from, PER_SECOND);
        sandbox.skip_to(LedgerSeq(30)).unwrap();
        // Some ledgers are empty without a dropped set.
        let proposed = loop {
            let proposed = decode(&sandbox.clone().next_ledger().unwrap());
            if !proposed.tx_processing.is_empty() {
                break proposed;
            }
            sandbox.next_ledger().unwrap();
        };
        let visitors = sandbox.visitors.clone();
        let before = sandbox.tip.hash;
        let dropped = decode(&sandbox.next_ledger_without_set().unwrap());
        assert_eq!(assert_agreed(&dropped).is_some(), from == FROM);
        let value = &dropped.ledger_header.header.scp_value;
        assert_eq!(value.tx_set_hash, Hash([0; 32]));
        let (_, hash, _) = signed(value);
        assert_eq!(*hash, proposed.ledger_header.header.scp_value.tx_set_hash);
        assert!(dropped.tx_processing.is_empty());
        assert!(envelopes(&dropped).is_empty());
        let GeneralizedTransactionSet::V1(set) = &dropped.tx_set;
        assert_eq!(set.previous_ledger_hash.0, before);
        assert_eq!(sandbox.visitors, visitors);
        // The network continues after the dropped set.
        let next = decode(&sandbox.next_ledger().unwrap());
        assert_eq!(next.ledger_header.header.previous_ledger_hash, dropped.ledger_header.hash);
    }
}

/// The checks of ledgers accept every kind of value; that of a dropped set attests nothing.
#[test]
fn ledgers_with_each_kind_of_value_pass_the_checks() {
    let network = configuration().network;
    let mut sandbox = sandbox().with_market(FIRST_MARKET_LEDGER).with_wallets(FIRST_MARKET_LEDGER);
    let mut invocations = 0;
    for sequence in 2..80_u32 {
        let dropped = sequence.is_multiple_of(7);
        let made = if dropped { sandbox.next_ledger_without_set() } else { sandbox.next_ledger() };
        let made = made.unwrap();
        let view = orrery_ledger::decode::decode(&made, network.id()).unwrap();
        let verified = verify(&view, network.id(), Policy::default()).unwrap();
        let signer = (!dropped).then(|| Sandbox::validator(configuration().seed));
        assert_eq!(verified.signer, signer, "ledger {sequence}");
        invocations += verified.invocations.bound;
    }
    assert!(invocations > 20, "{invocations}");
}
