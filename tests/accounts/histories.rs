//! Random histories: a few contracts that emit events of all layouts, similar events of other
//! contracts, and almost valid events.

use orrery::domain::ContractId;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{ScAddress, ScVal};

use crate::world::Events;
use orrery_testkit::account_events::{
    Made, account, address, contract, contract_id, number, passkey, smart,
};
use orrery_testkit::values::{bytes, fields, i128, list, map, string, symbol};

/// The kind of most events in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    Smart,
    Passkey,
}

/// Returns a history of `ledgers` ledgers with events of `contracts` contracts.
pub fn history(rng: &mut ChaCha8Rng, of: AccountKind, ledgers: u32, contracts: u16) -> Vec<Events> {
    let ids: Vec<ContractId> = (0..contracts).map(contract_id).collect();
    let mut all = Vec::new();
    for _ in 0..ledgers {
        let transactions = rng.random_range(0..4 + contracts as usize / 8);
        let mut ledger = Vec::new();
        for _ in 0..transactions {
            let mut emitted = Vec::new();
            for _ in 0..rng.random_range(0..6) {
                let made = match (of, rng.random_bool(0.1)) {
                    (AccountKind::Smart, false) | (AccountKind::Passkey, true) => smart_event(rng),
                    (AccountKind::Passkey, false) | (AccountKind::Smart, true) => {
                        passkey_event(rng)
                    }
                };
                emitted.push((*ids.choose(rng).unwrap(), made));
            }
            ledger.push(emitted);
        }
        all.push(ledger);
    }
    all
}

fn who(rng: &mut ChaCha8Rng) -> ScAddress {
    let number = rng.random_range(0..3);
    if rng.random_bool(0.5) { account(number) } else { contract(number) }
}

/// Returns a key of one of the lengths that matter, with few distinct values per length.
fn key(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let length = *[0, 1, 32, 65, 66, 85].choose(rng).unwrap();
    let mut key = orrery_testkit::account_events::public_key(rng.random_range(1..3));
    key.resize(length, rng.random_range(1..4));
    key
}

fn smart_signer(rng: &mut ChaCha8Rng) -> ScVal {
    let who = who(rng);
    match rng.random_range(0..9) {
        0..4 => smart::external(&who, &key(rng)),
        4..6 => smart::delegated(&who),
        6 => smart::native(&who),
        7 => list([symbol("Delegated"), address(&who), bytes(&key(rng))]),
        _ => list([symbol("Quorum"), address(&who), bytes(&key(rng))]),
    }
}

fn smart_event(rng: &mut ChaCha8Rng) -> Made {
    let (rule, id) = (rng.random_range(0..3), rng.random_range(0..4));
    let valid_until = |rng: &mut ChaCha8Rng| match rng.random_range(0..3) {
        0 => None,
        1 => Some(("valid_until", ScVal::Void)),
        _ => Some(("valid_until", number(rng.random_range(0..100)))),
    };
    let named = |rng: &mut ChaCha8Rng, by_id: &'static str, itself: &'static str, value: ScVal| {
        if rng.random_bool(0.6) { (by_id, number(id)) } else { (itself, value) }
    };
    let some = |rng: &mut ChaCha8Rng| rng.random_range(0..3);
    let made = match rng.random_range(0..20) {
        0..4 => {
            let mut entries = match rng.random_bool(0.6) {
                true => {
                    let ids = |rng: &mut ChaCha8Rng| {
                        let ids: Vec<u32> =
                            (0..some(rng)).map(|_| rng.random_range(0..4)).collect();
                        smart::ids(&ids)
                    };
                    vec![("policy_ids", ids(rng)), ("signer_ids", ids(rng))]
                }
                false => {
                    let policies =
                        list((0..some(rng)).map(|_| address(&who(rng))).collect::<Vec<_>>());
                    let signers =
                        list((0..some(rng)).map(|_| smart_signer(rng)).collect::<Vec<_>>());
                    vec![("policies", policies), ("signers", signers)]
                }
            };
            entries.extend([("context_type", smart::default_context()), ("name", string("r"))]);
            entries.extend(valid_until(rng));
            smart::event("context_rule_added", rule, fields(entries))
        }
        4 => {
            let entries = [("context_type", smart::default_context()), ("name", string("u"))];
            let entries = entries.into_iter().chain(valid_until(rng));
            smart::event("context_rule_updated", rule, fields(entries))
        }
        5 => {
            let entries = [("name", string("m"))].into_iter().chain(valid_until(rng));
            smart::event("context_rule_meta_updated", rule, fields(entries))
        }
        6 => smart::event("context_rule_removed", rule, smart::empty()),
        7..10 => smart::event("signer_registered", id, fields([("signer", smart_signer(rng))])),
        10 => smart::event("signer_deregistered", id, smart::empty()),
        11..13 => {
            let signer = smart_signer(rng);
            smart::event("signer_added", rule, fields([named(rng, "signer_id", "signer", signer)]))
        }
        13 => {
            let signer = smart_signer(rng);
            smart::event(
                "signer_removed",
                rule,
                fields([named(rng, "signer_id", "signer", signer)]),
            )
        }
        14 => smart::event("policy_registered", id, fields([("policy", address(&who(rng)))])),
        15 => smart::event("policy_deregistered", id, smart::empty()),
        16..18 => {
            let policy = address(&who(rng));
            let mut entries = vec![named(rng, "policy_id", "policy", policy)];
            if rng.random_bool(0.5) {
                let params =
                    fields([("limit", i128(rng.random_range(-9..9))), ("threshold", number(2))]);
                entries.push(("install_param", params));
            }
            smart::event("policy_added", rule, fields(entries))
        }
        _ => {
            let policy = address(&who(rng));
            smart::event(
                "policy_removed",
                rule,
                fields([named(rng, "policy_id", "policy", policy)]),
            )
        }
    };
    maybe_corrupt(rng, made)
}

fn passkey_key(rng: &mut ChaCha8Rng) -> ScVal {
    match rng.random_range(0..4) {
        0..2 => passkey::secp256r1(&vec![rng.random_range(1..4); rng.random_range(1..3)]),
        2 => passkey::ed25519(rng.random_range(0..3)),
        _ => passkey::policy(&who(rng)),
    }
}

fn passkey_limits(rng: &mut ChaCha8Rng) -> ScVal {
    let mut entries = Vec::new();
    for at in 0..rng.random_range(0..3) {
        let keys = match rng.random_range(0..3) {
            0 => ScVal::Void,
            1 => list([]),
            _ => list([passkey_key(rng), passkey_key(rng)]),
        };
        entries.push((address(&contract(at)), keys));
    }
    map(entries)
}

fn passkey_event(rng: &mut ChaCha8Rng) -> Made {
    let key = passkey_key(rng);
    let kept = |rng: &mut ChaCha8Rng| {
        passkey::storage(if rng.random_bool(0.5) { "Persistent" } else { "Temporary" })
    };
    let optional = |rng: &mut ChaCha8Rng, value: ScVal| match rng.random_bool(0.5) {
        true => value,
        false => ScVal::Void,
    };
    // Around the ledger and time at which the tests evaluate expirations.
    let ledger = number(rng.random_range(998..1003));
    let second = ScVal::U64(rng.random_range(1_699_999_998..1_700_000_003));
    let limits = passkey_limits(rng);
    let v1 = |rng: &mut ChaCha8Rng| {
        let rest = [optional(rng, second.clone()), optional(rng, limits.clone())];
        passkey::val(&key, rest.map(passkey::wrapped))
    };
    let old = |rng: &mut ChaCha8Rng| {
        let limited = passkey::wrapped(limits.clone());
        let time = optional(rng, ledger.clone());
        let rest = match rng.random_range(0..4) {
            0 => vec![limited],
            1 => vec![time, limited],
            2 => vec![passkey::wrapped(time), passkey::wrapped(ScVal::Void)],
            _ => vec![passkey::wrapped(time), limited],
        };
        list([passkey::val(&key, rest), kept(rng)])
    };
    let made = match rng.random_range(0..12) {
        0..3 => passkey::added(&key, v1(rng), kept(rng)),
        3 => passkey::updated(&key, v1(rng), kept(rng), kept(rng)),
        4..6 => passkey::removed(&key, kept(rng)),
        6 => passkey::upgraded(rng.random_bool(0.5).then_some([3; 32])),
        7..9 => passkey::legacy("add", &key, old(rng)),
        9 => passkey::legacy("update", &key, old(rng)),
        _ => passkey::legacy("remove", &key, ScVal::Void),
    };
    maybe_corrupt(rng, made)
}

/// Corrupts 7 % of the events.
fn maybe_corrupt(rng: &mut ChaCha8Rng, mut made: Made) -> Made {
    if rng.random_bool(0.93) {
        return made;
    }
    let wrong = [number(1), ScVal::Void, symbol("x"), list([]), ScVal::Map(None), smart::empty()];
    let wrong = wrong.choose(rng).unwrap().clone();
    match rng.random_range(0..4) {
        0 => made.topics.push(wrong),
        1 => {
            let at = rng.random_range(0..made.topics.len());
            made.topics[at] = wrong;
        }
        2 => made.data = wrong,
        _ => {
            if let ScVal::Map(Some(entries)) = &made.data
                && !entries.is_empty()
            {
                let mut entries: Vec<_> =
                    entries.iter().map(|it| (it.key.clone(), it.val.clone())).collect();
                let at = rng.random_range(0..entries.len());
                match rng.random_bool(0.5) {
                    true => entries[at].1 = wrong,
                    false => drop(entries.remove(at)),
                }
                made.data = map(entries);
            }
        }
    }
    made
}
