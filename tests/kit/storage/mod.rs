//! A naive model of what contracts hold, and a generator of histories to compare it and the product
//! with.
//!
//! The model decodes whole ledgers with `stellar-xdr`, keeps every net change, and computes each
//! answer anew from all of them. It shares nothing with the product: where the two agree, they agree
//! because both follow the same specification. Every rule names the sentence that it comes from; "S1" and
//! "S2" are the sections of that document.

mod answers;
mod checkpoints;
mod decoding;
pub mod histories;
mod model;
mod net;
mod timeline;

pub use answers::{
    Answer, Because, ContractList, Entry, History, Kind, Present, Row, StoredRange, TransactionId,
    Value,
};
pub use checkpoints::{CheckpointState, HeldThere};
pub use decoding::LedgerChanges;
pub use model::StorageModel;
pub use net::{After, Before, NetChange, TtlAfter, TtlBefore};

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId, Hash, LedgerKey, LedgerKeyContractData, Limits, ScAddress,
    ScVal, WriteXdr,
};

/// SHA-256 of the XDR `LedgerKey` of an entry (S3: "`key_hash`").
pub type KeyHash = [u8; 32];

/// Returns the hash of a key.
pub fn key_hash(key: &LedgerKey) -> KeyHash {
    Sha256::digest(key.to_xdr(Limits::none()).unwrap()).into()
}

/// Returns the key of the instance of a contract.
pub fn instance_key(contract: &[u8; 32]) -> LedgerKey {
    data_key(contract, ScVal::LedgerKeyContractInstance, ContractDataDurability::Persistent)
}

/// Returns the key of contract data.
pub fn data_key(contract: &[u8; 32], key: ScVal, durability: ContractDataDurability) -> LedgerKey {
    let contract = ScAddress::Contract(ContractId(Hash(*contract)));
    LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability })
}

/// Returns the contract that a key of contract data belongs to. Keys below an account are nonces.
pub fn contract_of(key: &LedgerKey) -> Option<[u8; 32]> {
    match key {
        LedgerKey::ContractData(LedgerKeyContractData {
            contract: ScAddress::Contract(ContractId(Hash(id))),
            ..
        }) => Some(*id),
        _ => None,
    }
}

/// Returns the durability of an entry: code and settings live as persistent data does.
pub fn durability_of(key: &LedgerKey) -> ContractDataDurability {
    match key {
        LedgerKey::ContractData(data) => data.durability,
        _ => ContractDataDurability::Persistent,
    }
}

/// Whether the entry of a key is temporary data.
pub fn is_temporary(key: &LedgerKey) -> bool {
    durability_of(key) == ContractDataDurability::Temporary
}

/// Whether the model records the entries of a key. S1: "Nonces (`SCV_LEDGER_KEY_NONCE`) are not
/// recorded"; "Of contract code hash, TTL and `lastModifiedLedgerSeq` are recorded"; settings are
/// changed by upgrades.
pub fn is_recorded(key: &LedgerKey) -> bool {
    match key {
        LedgerKey::ContractData(data) => {
            contract_of(key).is_some() && !matches!(data.key, ScVal::LedgerKeyNonce(_))
        }
        LedgerKey::ContractCode(_) | LedgerKey::ConfigSetting(_) => true,
        _ => false,
    }
}
