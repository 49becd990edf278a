//! Keys of ledger entries, and what a key says about its entry. Does not depend on the entries.

use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, Asset, ContractDataDurability, Hash, LedgerEntryData, LedgerKey, LedgerKeyAccount,
    LedgerKeyTrustLine, LedgerKeyTtl, Limits, TrustLineAsset, TtlEntry, WriteXdr,
};

use super::error::Result;

pub(super) fn account_key(id: &AccountId) -> LedgerKey {
    LedgerKey::Account(LedgerKeyAccount { account_id: id.clone() })
}

pub(super) fn trustline_key(id: &AccountId, asset: &Asset) -> LedgerKey {
    let asset = trustline_asset(asset);
    LedgerKey::Trustline(LedgerKeyTrustLine { account_id: id.clone(), asset })
}

pub(super) fn trustline_asset(asset: &Asset) -> TrustLineAsset {
    match asset {
        Asset::Native => TrustLineAsset::Native,
        Asset::CreditAlphanum4(asset) => TrustLineAsset::CreditAlphanum4(asset.clone()),
        Asset::CreditAlphanum12(asset) => TrustLineAsset::CreditAlphanum12(asset.clone()),
    }
}

/// Returns the key of the TTL entry that belongs to a contract entry; it contains the SHA-256 of
/// the entry's key.
pub(super) fn ttl_key(key: &LedgerKey) -> Result<LedgerKey> {
    let digest = Sha256::digest(key.to_xdr(Limits::none())?);
    Ok(LedgerKey::Ttl(LedgerKeyTtl { key_hash: Hash(digest.into()) }))
}

pub(super) fn ttl_entry(key: &LedgerKey, live_until_ledger_seq: u32) -> Result<LedgerEntryData> {
    let digest = Sha256::digest(key.to_xdr(Limits::none())?);
    Ok(LedgerEntryData::Ttl(TtlEntry { key_hash: Hash(digest.into()), live_until_ledger_seq }))
}

pub(super) fn has_lifetime(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(_) | LedgerKey::ContractCode(_))
}

pub(super) fn is_temporary(key: &LedgerKey) -> bool {
    matches!(key, LedgerKey::ContractData(data) if data.durability == ContractDataDurability::Temporary)
}
