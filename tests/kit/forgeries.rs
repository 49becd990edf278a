//! What a forger changes in a ledger.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use stellar_xdr::*;

use super::forged::{Ledger, forgers_key, signature_of};

/// One change to a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
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

/// All of them, in ascending order: those of events and results, and those above.
pub const CHANGES: [Change; 16] = [
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

/// Applies a change, and returns the positions of the transactions that it concerns; `None` if the
/// ledger has nothing to change so.
pub fn apply(
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
