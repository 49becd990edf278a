//! Keys of contract instances, and lifetimes of contract entries: which entries have one, and the key
//! of the entry that holds it, the TTL.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, ContractId as XdrContractId, Hash, LedgerKey, LedgerKeyContractData,
    LedgerKeyTtl, Limits, ScAddress, ScVal, WriteXdr,
};

use super::ContractId;

/// Returns whether the entry under a key has a lifetime: contract data and contract code do.
pub fn has_lifetime(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(_) | LedgerKey::ContractCode(_))
}

/// Returns whether the entry under a key is gone once its lifetime has ended, instead of archived.
pub fn is_temporary(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if data.durability == ContractDataDurability::Temporary)
}

/// Returns the hash by which the TTL of an entry is found: SHA-256 of the XDR of the entry's key
/// (CAP-46-12).
pub fn ttl_hash(key_xdr: &[u8]) -> Hash {
    Hash(Sha256::digest(key_xdr).into())
}

/// Returns the key of the TTL of an entry.
///
/// # Errors
/// When the key cannot be written as XDR.
pub fn ttl_key(key: &LedgerKey) -> Result<LedgerKey, stellar_xdr::Error> {
    Ok(LedgerKey::Ttl(LedgerKeyTtl { key_hash: ttl_hash(&key.to_xdr(Limits::none())?) }))
}

/// Returns the key of a contract's instance.
pub fn instance_key(contract: &ContractId) -> LedgerKey {
    instance_key_at(ScAddress::Contract(XdrContractId(Hash(contract.0))))
}

/// Returns the key of the instance of the contract at an address.
pub fn instance_key_at(contract: ScAddress) -> LedgerKey {
    LedgerKey::ContractData(LedgerKeyContractData {
        contract,
        key: ScVal::LedgerKeyContractInstance,
        durability: ContractDataDurability::Persistent,
    })
}
