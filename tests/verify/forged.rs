//! Forged ledgers: real ones with one thing changed, and every hash above it made right again as far
//! as a forger can. Each is refused at the right place, or has another hash than the real ledger, so
//! that no signature of a trusted validator attests it. 2,000 of them, 10,000 at full size.

use std::collections::BTreeMap;

use orrery_ledger::decode::{DecodeError, decode};
use orrery_ledger::domain::{Network, TxHash};
use orrery_ledger::verify::{Fault, Policy, Rewritten, Rule, VerifyError, verify};
use orrery_testkit::fixtures;
use orrery_testkit::forged::{Extent, Ledger, forgers_key, signature_of};
use orrery_testkit::size;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use stellar_xdr::*;

/// One change to a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    DropEvent,
    AddEvent,
    Topic,
    Data,
    SwapEvents,
    MoveEvent,
    ReturnValue,
    ResultCode,
    Fee,
    ExchangeTransaction,
    DropTransaction,
    RepeatTransaction,
    BaseFee,
    CloseTime,
    Signature,
    Signer,
}

const CHANGES: [Change; 16] = [
    Change::DropEvent,
    Change::AddEvent,
    Change::Topic,
    Change::Data,
    Change::SwapEvents,
    Change::MoveEvent,
    Change::ReturnValue,
    Change::ResultCode,
    Change::Fee,
    Change::ExchangeTransaction,
    Change::DropTransaction,
    Change::RepeatTransaction,
    Change::BaseFee,
    Change::CloseTime,
    Change::Signature,
    Change::Signer,
];

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

/// Applies a change, and returns the positions of the transactions that it concerns; `None` if the
/// ledger has nothing to change so.
fn apply(
    change: Change,
    ledger: &mut Ledger,
    other: &Ledger,
    rng: &mut StdRng,
) -> Option<Vec<usize>> {
    let invocations = ledger.invocations();
    let with = |least: usize, rng: &mut StdRng| {
        let fit: Vec<_> = invocations.iter().filter(|(_, events)| *events >= least).collect();
        fit.choose(rng).map(|(position, _)| *position)
    };
    match change {
        Change::DropEvent | Change::Topic | Change::Data => {
            let position = with(1, rng)?;
            let mut events = ledger.events(position);
            let at = rng.random_range(0..events.len());
            if change == Change::DropEvent {
                events.remove(at);
            } else {
                change_event(&mut events[at], change, rng)?;
            }
            ledger.set_events(position, events);
            Some(vec![position])
        }
        Change::AddEvent => {
            let position = with(0, rng)?;
            let mut events = ledger.events(position);
            let (donor, _) = *other.invocations().iter().find(|(_, events)| *events > 0)?;
            let at = rng.random_range(0..=events.len());
            events.insert(at, other.events(donor)[0].clone());
            ledger.set_events(position, events);
            Some(vec![position])
        }
        Change::SwapEvents => {
            let position = with(2, rng)?;
            let mut events = ledger.events(position);
            let at = rng.random_range(1..events.len());
            (events[0] != events[at]).then(|| events.swap(0, at))?;
            ledger.set_events(position, events);
            Some(vec![position])
        }
        Change::MoveEvent => {
            let (from, to) = (with(1, rng)?, with(0, rng)?);
            (from != to).then_some(())?;
            let (mut taken, mut given) = (ledger.events(from), ledger.events(to));
            given.push(taken.remove(0));
            ledger.set_events(from, taken);
            ledger.set_events(to, given);
            Some(vec![from, to])
        }
        Change::ReturnValue => {
            let position = with(0, rng)?;
            ledger.set_return_value(position, ScVal::U64(rng.random()));
            Some(vec![position])
        }
        _ => apply_above_events(change, ledger, other, rng),
    }
}

fn change_event(event: &mut ContractEvent, change: Change, rng: &mut StdRng) -> Option<()> {
    let ContractEventBody::V0(body) = &mut event.body;
    if change == Change::Data {
        body.data = ScVal::U64(rng.random());
        return Some(());
    }
    let topic = body.topics.iter_mut().next()?;
    *topic = ScVal::U64(rng.random());
    Some(())
}

fn apply_above_events(
    change: Change,
    ledger: &mut Ledger,
    other: &Ledger,
    rng: &mut StdRng,
) -> Option<Vec<usize>> {
    let position = rng.random_range(0..ledger.applied.len());
    let value = &mut ledger.header.header.scp_value;
    match change {
        Change::ResultCode => {
            let result = &mut ledger.applied[position].result.result.result;
            *result = match result {
                TransactionResultResult::TxBadSeq => TransactionResultResult::TxBadAuth,
                _ => TransactionResultResult::TxBadSeq,
            };
            return Some(vec![position]);
        }
        Change::Fee => {
            ledger.applied[position].result.result.fee_charged ^= 1 << rng.random_range(0..40);
            return Some(vec![position]);
        }
        Change::ExchangeTransaction => {
            let mut donated = None;
            let mut donor = other.clone();
            donor.change_envelopes(|envelopes| donated = donated.take().or(envelopes.pop()));
            ledger.change_envelopes(|envelopes| {
                if let (Some(first), Some(new)) = (envelopes.first_mut(), donated.take()) {
                    *first = new;
                }
            });
        }
        Change::DropTransaction => {
            let mut dropped = false;
            ledger.change_envelopes(|envelopes| {
                if !dropped {
                    dropped = envelopes.pop().is_some();
                }
            });
            ledger.applied.remove(position);
        }
        Change::RepeatTransaction => {
            ledger.change_envelopes(|envelopes| envelopes.extend(envelopes.first().cloned()));
            ledger.applied.push(ledger.applied[position].clone());
        }
        Change::BaseFee => {
            let GeneralizedTransactionSet::V1(set) = &mut ledger.set;
            match set.phases.iter_mut().next()? {
                TransactionPhase::V0(components) => match components.iter_mut().next()? {
                    TxSetComponent::TxsetCompTxsMaybeDiscountedFee(component) => {
                        component.base_fee = Some(rng.random_range(1..1 << 40));
                    }
                },
                TransactionPhase::V1(component) => component.base_fee = Some(1 << 41),
            }
        }
        Change::CloseTime => value.close_time.0 ^= 1 << rng.random_range(0..20),
        Change::Signature => {
            let signed = signature_of(value)?;
            let mut bytes = signed.signature.0.to_vec();
            let at = rng.random_range(0..bytes.len());
            bytes[at] ^= 1 << rng.random_range(0..8);
            signed.signature.0 = bytes.try_into().unwrap();
        }
        Change::Signer => {
            let signed = signature_of(value)?;
            signed.node_id = NodeId(PublicKey::PublicKeyTypeEd25519(Uint256(
                forgers_key(rng.random()).verifying_key().to_bytes(),
            )));
        }
        _ => unreachable!("changes of events are applied elsewhere"),
    }
    Some(Vec::new())
}

fn node(signed: &LedgerCloseValueSignature) -> [u8; 32] {
    let NodeId(PublicKey::PublicKeyTypeEd25519(Uint256(key))) = &signed.node_id;
    *key
}
