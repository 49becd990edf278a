//! The token that a contract is, as its instance says.

use serde::Serialize;
use stellar_xdr::{Asset, ScContractInstance};

use super::super::{ApiError, Deps};
use super::asset::asset;
use super::known::Executable;
use orrery_executables::{ASSET_DECIMALS, Instance, TokenMetadata};
use orrery_ledger::domain::{ContractId, LedgerSeq, asset_text};

/// What the native asset is called everywhere but in its own contract, which says `native`.
const NATIVE_SYMBOL: &str = "XLM";

/// A token (SEP-41). The names are null where the instance is not known.
#[derive(Serialize, Clone)]
pub(super) struct Token {
    name: Option<String>,
    symbol: Option<String>,
    decimals: u32,
}

/// Returns the token that a contract is, and whether that is all that will be known as long as the
/// store does not change.
pub(super) fn of(
    deps: &Deps,
    contract: &ContractId,
    executable: &Executable,
    as_of: LedgerSeq,
) -> Result<(Option<Token>, bool), ApiError> {
    let instance = deps.interfaces.instance(contract, as_of)?;
    let is_known = instance != Instance::Unknown || !deps.interfaces.has_source();
    let named = match &instance {
        Instance::Known(instance) => in_instance(instance),
        Instance::Absent(_) | Instance::Unknown => None,
    };
    let token = match executable {
        Executable::Wasm(_) => named,
        Executable::StellarAsset(_) => Some(match named {
            Some(named) => Token { decimals: ASSET_DECIMALS, ..named },
            None => of_asset(asset(&deps.store, contract)?.as_ref()),
        }),
    };
    Ok((token, is_known))
}

/// Returns the symbol that an instance names.
pub(super) fn symbol_in_instance(instance: &ScContractInstance) -> Option<String> {
    in_instance(instance)?.symbol
}

/// Returns the code of an asset; that of the native one has no issuer, and is the ticker that all
/// wallets use.
pub(super) fn symbol_of_asset(asset: &Asset) -> String {
    match asset {
        Asset::Native => NATIVE_SYMBOL.to_owned(),
        other => asset_text(other).split(':').next().unwrap_or_default().to_owned(),
    }
}

fn in_instance(instance: &ScContractInstance) -> Option<Token> {
    let TokenMetadata { name, symbol, decimals } = TokenMetadata::of(instance)?;
    Some(Token { name: Some(name), symbol: Some(symbol), decimals })
}

/// Returns the token of an asset, as its contract names it: `code:issuer` and `code`, or `native`.
fn of_asset(asset: Option<&Asset>) -> Token {
    let name = asset.map(asset_text);
    let code = |name: &String| name.split(':').next().map(str::to_owned);
    Token { symbol: name.as_ref().and_then(code), name, decimals: ASSET_DECIMALS }
}
