//! What is found in the state of a network.

use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};

/// What smart contracts have in the state: settings of the network first, then code, then data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A setting of the network.
    Setting(FoundSetting),
    /// Code of contracts.
    Code(FoundCode),
    /// Data of a contract.
    Data(FoundData),
}

/// A setting of the network; in ascending order of the key's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSetting {
    /// XDR `LedgerEntry`.
    pub entry: Vec<u8>,
}

/// Code of contracts, without its bytes; in ascending order of the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundCode {
    /// Hash of the code.
    pub hash: Hash32,
    /// Ledger of the last modification (`lastModifiedLedgerSeq`).
    pub last_modified: LedgerSeq,
    /// Last ledger in which it is live; `None` if the state says none, which is so for all that was
    /// evicted.
    pub live_until: Option<LedgerSeq>,
    /// Whether it was evicted: it is in the hot archive.
    pub is_evicted: bool,
}

/// Data of a contract, its instance included, nonces left out; in ascending order of the contract,
/// then of the key's hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundData {
    /// The contract.
    pub contract: ContractId,
    /// SHA-256 of the XDR `LedgerKey`.
    pub key_hash: Hash32,
    /// XDR `LedgerEntry`: with key, value, durability and `lastModifiedLedgerSeq`.
    pub entry: Vec<u8>,
    /// Last ledger in which it is live; `None` if the state says none, which is so for all that was
    /// evicted. If it is before the checkpoint, a persistent entry is archived, and a temporary one is
    /// gone.
    pub live_until: Option<LedgerSeq>,
    /// Whether it was evicted: it is in the hot archive.
    pub is_evicted: bool,
}
