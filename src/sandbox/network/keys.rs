//! Keys of ledger entries, and what a key says about its entry. Does not depend on the entries.

use orrery_ledger::domain::ttl_hash;
use stellar_xdr::{
    AccountId, Asset, LedgerEntryData, LedgerKey, LedgerKeyAccount, LedgerKeyTrustLine, Limits,
    TrustLineAsset, TtlEntry, WriteXdr,
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

pub(super) fn ttl_entry(key: &LedgerKey, live_until_ledger_seq: u32) -> Result<LedgerEntryData> {
    let key_hash = ttl_hash(&key.to_xdr(Limits::none())?);
    Ok(LedgerEntryData::Ttl(TtlEntry { key_hash, live_until_ledger_seq }))
}
