//! The sandbox's assets with their names and contract ids, which assets are well formed, and helpers
//! that build ScVals.

use std::borrow::Cow;

use orrery_ledger::domain::{ContractId, NetworkId};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, AlphaNum4, AlphaNum12, Asset, AssetCode4, AssetCode12, ContractIdPreimage, Hash,
    HashIdPreimage, HashIdPreimageContractId, Limits, ScAddress, ScBytes, ScSymbol, ScVal,
    WriteXdr,
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
    fn new(asset: Asset, name: String, network: &NetworkId) -> Result<Self> {
        let contract = contract_id(network, &asset)?;
        Ok(Self { asset, name, contract })
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
    pub(super) fn new(network: &NetworkId, issuer: &AccountId) -> Result<Self> {
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
        Ok(Self {
            network: *network,
            native: KnownAsset::new(Asset::Native, "native".to_owned(), network)?,
            dollar: KnownAsset::new(short(*b"USD\0"), format!("USD:{issuer}"), network)?,
            harbor: KnownAsset::new(
                long(*b"HARBOR\0\0\0\0\0\0"),
                format!("HARBOR:{issuer}"),
                network,
            )?,
            relic: KnownAsset::new(
                long(*b"RELIC\0\0\0\0\0\0\0"),
                format!("RELIC:{issuer}"),
                network,
            )?,
        })
    }

    pub(super) fn all(&self) -> [&KnownAsset; 4] {
        [&self.native, &self.dollar, &self.harbor, &self.relic]
    }

    /// Returns an asset with its name and contract id, also when it is not one of the sandbox's
    /// own.
    pub(super) fn find(&self, asset: &Asset) -> Result<Cow<'_, KnownAsset>> {
        let known = self.all().into_iter().find(|known| known.asset == *asset);
        match known {
            Some(known) => Ok(Cow::Borrowed(known)),
            None => {
                KnownAsset::new(asset.clone(), sep11_name(asset), &self.network).map(Cow::Owned)
            }
        }
    }
}

/// Returns `native` or `CODE:ISSUER` (SEP-11).
fn sep11_name(asset: &Asset) -> String {
    let (code, issuer) = match asset {
        Asset::Native => return "native".to_owned(),
        Asset::CreditAlphanum4(asset) => (asset.asset_code.0.as_slice(), &asset.issuer),
        Asset::CreditAlphanum12(asset) => (asset.asset_code.0.as_slice(), &asset.issuer),
    };
    let code: String =
        code.iter().take_while(|byte| **byte != 0).map(|byte| char::from(*byte)).collect();
    format!("{code}:{issuer}")
}

/// Returns the id of an asset's contract: the SHA-256 of the preimage that contains network and
/// asset (CAP-46).
fn contract_id(network: &NetworkId, asset: &Asset) -> Result<ContractId> {
    let preimage = HashIdPreimage::ContractId(HashIdPreimageContractId {
        network_id: Hash(network.0),
        contract_id_preimage: ContractIdPreimage::Asset(asset.clone()),
    });
    Ok(ContractId(Sha256::digest(preimage.to_xdr(Limits::none())?).into()))
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
