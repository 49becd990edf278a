//! The token that a contract says it is (SEP-41).

use stellar_xdr::{ContractExecutable, ScContractInstance, ScMap, ScVal};

use super::instance::Instance;
use super::interfaces::Interfaces;
use orrery_ledger::domain::{ContractId, LedgerSeq, text};
use orrery_store::StoreError;

/// Number of decimals of every asset (`DECIMAL` of the contract host's stellar_asset_contract).
pub const ASSET_DECIMALS: u32 = 7;

/// Key under which soroban-token-sdk, and the contract of an asset, store what SEP-41 calls decimals,
/// name and symbol: a map with the members `decimal`, `name` and `symbol`.
const METADATA: &[u8] = b"METADATA";

/// What a contract's instance says of the token that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenMetadata {
    /// Name of the token.
    pub name: String,
    /// Symbol of the token.
    pub symbol: String,
    /// Number of decimals of its amounts, which contracts choose freely.
    pub decimals: u32,
}

impl TokenMetadata {
    /// Reads an instance; `None` where it says nothing of a token.
    pub fn of(instance: &ScContractInstance) -> Option<Self> {
        let Some(ScVal::Map(Some(metadata))) = member(instance.storage.as_ref()?, METADATA) else {
            return None;
        };
        let (Some(ScVal::String(name)), Some(ScVal::String(symbol)), Some(ScVal::U32(decimals))) =
            (member(metadata, b"name"), member(metadata, b"symbol"), member(metadata, b"decimal"))
        else {
            return None;
        };
        Some(Self {
            name: text(name.as_slice()),
            symbol: text(symbol.as_slice()),
            decimals: *decimals,
        })
    }
}

/// Returns the value under a symbol.
fn member<'a>(map: &'a ScMap, name: &[u8]) -> Option<&'a ScVal> {
    let is_named = |key: &ScVal| matches!(key, ScVal::Symbol(symbol) if symbol.as_slice() == name);
    map.iter().find(|entry| is_named(&entry.key)).map(|entry| &entry.val)
}

impl Interfaces {
    /// Returns the number of decimals of a token as of a ledger; `None` where its instance is not known, or
    /// says nothing of a token. What is not known is asked for, as in [`Self::instance`].
    pub fn decimals(
        &self,
        contract: &ContractId,
        as_of: LedgerSeq,
    ) -> Result<Option<u32>, StoreError> {
        Ok(match self.instance(contract, as_of)? {
            Instance::Known(it) if it.executable == ContractExecutable::StellarAsset => {
                Some(ASSET_DECIMALS)
            }
            Instance::Known(instance) => TokenMetadata::of(&instance).map(|it| it.decimals),
            Instance::Absent(_) | Instance::Unknown => None,
        })
    }
}
