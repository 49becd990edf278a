//! Keys and values of contracts.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractExecutable, ContractExecutableExternalRef, ContractId, Hash,
    LedgerKey, LedgerKeyContractCode, LedgerKeyContractData, ScAddress, ScContractInstance, ScMap,
    ScNonceKey, ScString, ScVal,
};

use crate::storage::data_key;
use crate::values::{bytes, fields, i128, list, map, string, symbol};

/// Code that contracts run: its bytes.
pub fn codes() -> [Vec<u8>; 3] {
    [b"first code".to_vec(), b"second code, longer".to_vec(), b"third".to_vec()]
}

/// The key of a code.
pub fn code_key(code: &[u8]) -> LedgerKey {
    LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash(Sha256::digest(code).into()) })
}

/// The address of a contract.
pub fn address(contract: &[u8; 32]) -> ScVal {
    ScVal::Address(ScAddress::Contract(ContractId(Hash(*contract))))
}

/// The keys that a contract may use, without its instance: of several types, with a leading symbol and
/// without, some in both durabilities.
pub fn of_contract(rng: &mut StdRng, contract: &[u8; 32]) -> Vec<LedgerKey> {
    use ContractDataDurability::{Persistent, Temporary};

    let other: [u8; 32] = rng.random();
    let all = [
        (symbol("Counter"), &[Persistent, Temporary][..]),
        (list([symbol("Balance"), address(contract)]), &[Persistent][..]),
        (list([symbol("Balance"), address(&other)]), &[Persistent, Temporary][..]),
        (list([symbol("Allowance"), address(&other), ScVal::U32(7)]), &[Temporary][..]),
        (list([symbol("Balance")]), &[Persistent][..]),
        (list([]), &[Temporary][..]),
        (ScVal::U32(rng.random_range(0..3)), &[Persistent, Temporary][..]),
        (bytes(&other[..5]), &[Temporary][..]),
        (string("name"), &[Persistent][..]),
        (list([ScVal::U32(1), symbol("Late")]), &[Persistent][..]),
        (ScVal::ExecutableTag(tag()), &[Persistent][..]),
    ];
    let count = rng.random_range(2..=all.len());
    let chosen = rand::seq::index::sample(rng, all.len(), count);
    let keys = chosen.iter().flat_map(|at| {
        let (key, durabilities) = &all[at];
        durabilities.iter().map(|durability| data_key(contract, key.clone(), *durability))
    });
    keys.collect()
}

/// A nonce below a contract or an account.
pub fn nonce(rng: &mut StdRng, contract: &[u8; 32]) -> LedgerKey {
    let contract = if rng.random() {
        ScAddress::Contract(ContractId(Hash(*contract)))
    } else {
        ScAddress::Account(super::closing::account(rng.random_range(0..3)))
    };
    LedgerKey::ContractData(LedgerKeyContractData {
        contract,
        key: ScVal::LedgerKeyNonce(ScNonceKey { nonce: rng.random() }),
        durability: ContractDataDurability::Temporary,
    })
}

/// The tag of an executable (CAP-85).
fn tag() -> ScString {
    ScString("fleet".try_into().unwrap())
}

fn code_hash(rng: &mut StdRng) -> [u8; 32] {
    Sha256::digest(codes().choose(rng).unwrap()).into()
}

/// A value of a key; equal ones are frequent.
pub fn value_of(rng: &mut StdRng, key: &LedgerKey) -> ScVal {
    match key {
        LedgerKey::ContractData(LedgerKeyContractData { key, .. }) => match key {
            ScVal::ExecutableTag(_) => bytes(&code_hash(rng)),
            ScVal::LedgerKeyContractInstance => instance(rng),
            _ => value(rng),
        },
        _ => value(rng),
    }
}

fn value(rng: &mut StdRng) -> ScVal {
    match rng.random_range(0..8) {
        0 => ScVal::Void,
        1 => ScVal::Bool(rng.random()),
        2 => i128(rng.random_range(-2..3)),
        3 => fields([("amount", i128(rng.random())), ("authorized", ScVal::Bool(true))]),
        4 => list([symbol("Active"), ScVal::U32(rng.random_range(0..2))]),
        5 => bytes(&vec![7; rng.random_range(0..90)]),
        6 => string("héllo"),
        _ => ScVal::U32(rng.random_range(0..4)),
    }
}

/// The value of an instance: its executable, and a map of its own.
fn instance(rng: &mut StdRng) -> ScVal {
    let executable = match rng.random_range(0..6) {
        0 => ContractExecutable::StellarAsset,
        1 => ContractExecutable::ExternalRef(ContractExecutableExternalRef {
            executable_owner: ScAddress::Contract(ContractId(Hash([9; 32]))),
            tag: tag(),
        }),
        _ => ContractExecutable::Wasm(Hash(code_hash(rng))),
    };
    let names = [
        symbol("Admin"),
        list([symbol("Price"), symbol("XLM")]),
        list([symbol("Price"), symbol("BTC")]),
        ScVal::U32(3),
    ];
    let count = rng.random_range(0..=names.len());
    let chosen = rand::seq::index::sample(rng, names.len(), count);
    let entries: Vec<_> = chosen.iter().map(|at| (names[at].clone(), value(rng))).collect();
    let storage: Option<ScMap> = match map(entries) {
        ScVal::Map(map) => map.filter(|map| !map.is_empty()),
        _ => None,
    };
    ScVal::ContractInstance(ScContractInstance { executable, storage })
}
