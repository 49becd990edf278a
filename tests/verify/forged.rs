//! Forged ledgers: real ones with one thing changed, and every hash above it made right again as far
//! as a forger can. Each is refused at the right place, or has another hash than the real ledger, so
//! that no signature of a trusted validator attests it. 2,000 of them, 10,000 at full size.

use std::collections::BTreeMap;

use orrery_ledger::decode::{DecodeError, decode};
use orrery_ledger::domain::{Network, TxHash};
use orrery_ledger::verify::{Fault, Policy, Rewritten, Rule, VerifyError, verify};
use orrery_testkit::fixtures;
use orrery_testkit::forged::{Extent, Ledger, forgers_key, signature_of};
use orrery_testkit::forgeries::{CHANGES, Change, apply};
use orrery_testkit::size;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use stellar_xdr::*;

/// A real ledger that can be forged.
struct Original {
    network: Network,
    ledger: Ledger,
    /// Hashes of its transactions, in apply order.
    transactions: Vec<TxHash>,
    /// Whether its events may have been rewritten.
    rewritten: bool,
}

/// Real ledgers with transactions: public, of the test network, of the reference node's tests.
fn originals() -> Vec<Original> {
    let Some(folder) = fixtures::folder() else { return Vec::new() };
    let mut originals = Vec::new();
    for name in fixtures::files(&folder) {
        if name.starts_with("lake-pubnet/") || name.starts_with("synthetic/") {
            continue;
        }
        let fixture = fixtures::load(&folder, &name);
        for raw in &fixture.ledgers {
            let view = decode(raw, fixture.network.id()).unwrap();
            if view.transactions.is_empty() || view.header.protocol < 20 {
                continue;
            }
            verify(&view, fixture.network.id(), Policy::default()).unwrap();
            let rewritten = view.header.protocol < 23;
            let Some(ledger) = Ledger::read(raw) else { continue };
            let transactions = view.transactions.iter().map(|one| one.hash).collect();
            let network = fixture.network.clone();
            originals.push(Original { network, ledger, transactions, rewritten });
        }
    }
    originals
}

#[test]
fn forged_ledgers_are_refused_or_have_another_hash() {
    let originals = originals();
    if originals.is_empty() {
        return;
    }
    let with_events: Vec<&Original> = originals
        .iter()
        .filter(|one| one.ledger.invocations().iter().any(|(_, events)| *events > 0))
        .collect();
    let mut rng = StdRng::seed_from_u64(43);
    let mut verdicts: BTreeMap<&'static str, usize> = BTreeMap::new();
    let wanted = size::choose(2_000, 10_000) as usize;
    let mut made = 0;
    while made < wanted {
        let change = CHANGES[made % CHANGES.len()];
        let original = match change {
            Change::ResultCode | Change::Fee => originals.choose(&mut rng).unwrap(),
            change if change < Change::ResultCode => *with_events.choose(&mut rng).unwrap(),
            _ => originals.choose(&mut rng).unwrap(),
        };
        let extent = Extent::ALL[rng.random_range(0..Extent::ALL.len())];
        let mut forged = original.ledger.clone();
        let other = &originals.choose(&mut rng).unwrap().ledger;
        let Some(touched) = apply(change, &mut forged, other, &mut rng) else { continue };
        if forged == original.ledger {
            continue;
        }
        let key = forgers_key(rng.random());
        forged.make_right(extent, original.network.id(), &key);
        let case = format!("{change:?}, {extent:?}, ledger {}", forged.header.header.ledger_seq);
        *verdicts.entry(judge(original, &forged, change, extent, &touched, &case)).or_default() +=
            1;
        made += 1;
    }
    println!("{made} forged ledgers: {verdicts:?}");
}

/// Checks the verdict on a forged ledger, and returns its kind. `touched` are the positions of the
/// transactions that were changed.
fn judge(
    original: &Original,
    forged: &Ledger,
    change: Change,
    extent: Extent,
    touched: &[usize],
    case: &str,
) -> &'static str {
    let network = original.network.id();
    let sequence = original.ledger.header.header.ledger_seq;
    let raw = forged.encode();
    let view = match decode(&raw, network) {
        Ok(view) => view,
        Err(error) => {
            assert!(error.to_string().contains(&sequence.to_string()), "{case}: {error}");
            let of_a_set = change >= Change::ExchangeTransaction && change <= Change::CloseTime;
            assert!(of_a_set, "{case}: {error}");
            assert!(!matches!(error, DecodeError::Malformed { .. }), "{case}: {error}");
            return "refused by the decoder";
        }
    };
    // Of rewritten events in protocols 20 to 22, only this policy refuses what is not proven.
    let strict = Policy { rewritten: Rewritten::Refuse, ..Policy::default() };
    match verify(&view, network, strict) {
        Ok(verified) => {
            assert!(extent >= Extent::HeaderHash, "{case}");
            assert_ne!(forged.header.hash, original.ledger.header.hash, "{case}");
            let honest = signature_of(&mut original.ledger.header.header.scp_value.clone())
                .map(|signed| node(signed));
            if change >= Change::ExchangeTransaction || extent == Extent::Signature {
                // The genuine signature does not cover what was changed, so it is another's.
                assert_ne!(verified.signer.map(|signer| signer.0), honest, "{case}");
            }
            "only later ledgers can tell"
        }
        Err(VerifyError::HeaderHash { ledger, .. }) => {
            assert_eq!(ledger.0, sequence, "{case}");
            assert!(extent < Extent::HeaderHash, "{case}");
            "refused by the hash of the header"
        }
        Err(VerifyError::Fault(fault)) => {
            check_place(original, &fault, change, extent, touched, case);
            "refused by a rule"
        }
        Err(error) => panic!("{case}: {error}"),
    }
}

/// Checks that a fault names the ledger, a transaction that was changed, and the rule that fits.
fn check_place(
    original: &Original,
    fault: &Fault,
    change: Change,
    extent: Extent,
    touched: &[usize],
    case: &str,
) {
    assert_eq!(fault.ledger.0, original.ledger.header.header.ledger_seq, "{case}");
    if let Some(transaction) = fault.transaction {
        let named = original.transactions.iter().position(|hash| *hash == transaction);
        assert!(named.is_some_and(|named| touched.contains(&named)), "{case}: {fault}");
    }
    match change {
        Change::DropEvent
        | Change::AddEvent
        | Change::Topic
        | Change::Data
        | Change::SwapEvents
        | Change::MoveEvent
        | Change::ReturnValue => match extent {
            Extent::Nothing => {
                assert!(fault.transaction.is_some(), "{case}: {fault}");
                assert_eq!(fault.operation, Some(0), "{case}: {fault}");
                let rewritten = original.rewritten && fault.rule == Rule::Rewritten;
                assert!(rewritten || fault.rule == Rule::Invocation, "{case}: {fault}");
            }
            _ => assert_eq!(fault.rule, Rule::Results, "{case}: {fault}"),
        },
        Change::ResultCode | Change::Fee => {
            assert_eq!(fault.rule, Rule::Results, "{case}: {fault}");
        }
        Change::ExchangeTransaction
        | Change::DropTransaction
        | Change::RepeatTransaction
        | Change::BaseFee => match extent {
            Extent::Nothing | Extent::Invocations => {
                assert_eq!(fault.rule, Rule::Set, "{case}: {fault}");
            }
            _ => assert!(matches!(fault.rule, Rule::Signature(_)), "{case}: {fault}"),
        },
        Change::CloseTime | Change::Signature | Change::Signer => {
            assert!(matches!(fault.rule, Rule::Signature(_)), "{case}: {fault}");
        }
    }
}

fn node(signed: &LedgerCloseValueSignature) -> [u8; 32] {
    let NodeId(PublicKey::PublicKeyTypeEd25519(Uint256(key))) = &signed.node_id;
    *key
}
