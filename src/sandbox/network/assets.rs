//! The sandbox's assets with their names and contract ids, which assets are well formed, and helpers
//! that build ScVals.

use std::borrow::Cow;

use orrery_ledger::domain::{ContractId, NetworkId, asset_contract_id, asset_text};
use stellar_xdr::{
    AccountId, AlphaNum4, AlphaNum12, Asset, AssetCode4, AssetCode12, Hash, ScAddress, ScBytes,
    ScSymbol, ScVal,
};

use super::error::Result;

/// An asset with its SEP-11 name and the id of its Stellar asset contract.
#[derive(Debug, Clone)]
pub(super) struct KnownAsset {
    pub(super) asset: Asset,
    /// `native` or `CODE:ISSUER`, the last topic of every event of the asset (CAP-67).
    pub(super) name: String,
    pub(super) contract: ContractId,
}

impl KnownAsset {
    fn new(asset: Asset, network: &NetworkId) -> Self {
        let (name, contract) = (asset_text(&asset), asset_contract_id(network, &asset));
        Self { asset, name, contract }
    }

    pub(super) fn address(&self) -> ScAddress {
        ScAddress::Contract(stellar_xdr::ContractId(Hash(self.contract.0)))
    }
}

/// The assets of one sandbox.
#[derive(Debug, Clone)]
pub(super) struct Assets {
    network: NetworkId,
    pub(super) native: KnownAsset,
    /// `USD`, an asset with a code of at most four letters; most contract calls use it.
    pub(super) dollar: KnownAsset,
    /// `HARBOR`, an asset with a code of at most twelve letters.
    pub(super) harbor: KnownAsset,
    /// `RELIC`, whose contract is deployed and never called, so that it expires and is restored.
    pub(super) relic: KnownAsset,
}

impl Assets {
    pub(super) fn new(network: &NetworkId, issuer: &AccountId) -> Self {
        let short = |code: [u8; 4]| {
            Asset::CreditAlphanum4(AlphaNum4 {
                asset_code: AssetCode4(code),
                issuer: issuer.clone(),
            })
        };
        let long = |code: [u8; 12]| {
            Asset::CreditAlphanum12(AlphaNum12 {
                asset_code: AssetCode12(code),
                issuer: issuer.clone(),
            })
        };
        Self {
            network: *network,
            native: KnownAsset::new(Asset::Native, network),
            dollar: KnownAsset::new(short(*b"USD\0"), network),
            harbor: KnownAsset::new(long(*b"HARBOR\0\0\0\0\0\0"), network),
            relic: KnownAsset::new(long(*b"RELIC\0\0\0\0\0\0\0"), network),
        }
    }

    pub(super) fn all(&self) -> [&KnownAsset; 4] {
        [&self.native, &self.dollar, &self.harbor, &self.relic]
    }

    /// Returns an asset with its name and contract id, also when it is not one of the sandbox's
    /// own.
    pub(super) fn find(&self, asset: &Asset) -> Cow<'_, KnownAsset> {
        let known = self.all().into_iter().find(|known| known.asset == *asset);
        match known {
            Some(known) => Cow::Borrowed(known),
            None => Cow::Owned(KnownAsset::new(asset.clone(), &self.network)),
        }
    }
}

pub(super) fn byte_string(bytes: &[u8]) -> Result<ScVal> {
    Ok(ScVal::Bytes(ScBytes(bytes.try_into()?)))
}

pub(super) fn symbol(text: &str) -> Result<ScVal> {
    Ok(ScVal::Symbol(ScSymbol(text.try_into()?)))
}

/// Returns whether the code of an asset is valid.
pub(super) fn is_asset(asset: &Asset) -> bool {
    match asset {
        Asset::Native => true,
        Asset::CreditAlphanum4(asset) => is_code(&asset.asset_code.0),
        Asset::CreditAlphanum12(asset) => is_code(&asset.asset_code.0),
    }
}

/// Returns whether an asset code is valid: letters and digits, padded with zeros.
pub(super) fn is_code(code: &[u8]) -> bool {
    let end = code.iter().position(|byte| *byte == 0).unwrap_or(code.len());
    let (name, rest) = code.split_at(end);
    let least = if code.len() > 4 { 5 } else { 1 };
    name.len() >= least
        && name.iter().all(u8::is_ascii_alphanumeric)
        && rest.iter().all(|byte| *byte == 0)
}
