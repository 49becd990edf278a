//! A short name of an address: what it is, who chose it, and which one a contract has.

use serde::Serialize;
use stellar_xdr::ContractExecutable;

use super::super::labels::shown_symbol;
use super::super::{ApiError, Deps};
use super::{asset, token};
use orrery_executables::Instance;
use orrery_ledger::domain::{ContractId, LedgerSeq};

/// Who chose a name.
#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The operator of this service.
    Operator,
    /// The code of an asset: whoever issues it chose the code.
    Asset,
    /// The symbol of a token: whoever wrote the contract chose it.
    Token,
}

/// The name of an address.
#[derive(Serialize)]
pub(super) struct Label {
    address: String,
    name: String,
    kind: Kind,
}

impl Label {
    pub(super) fn new(address: String, name: String, kind: Kind) -> Self {
        Self { address, name, kind }
    }

    /// Whether this is the name, which is given in small letters.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.to_lowercase() == name
    }
}

/// Returns the symbol of the token that a contract is. No other server is asked.
pub(super) fn of_contract(
    deps: &Deps,
    contract: &ContractId,
    as_of: LedgerSeq,
) -> Result<Option<(String, Kind)>, ApiError> {
    let asset = || -> Result<_, ApiError> {
        let asset = asset::asset(&deps.store, contract)?;
        Ok(asset.as_ref().map(|asset| (token::symbol_of_asset(asset), Kind::Asset)))
    };
    match deps.interfaces.stored_instance(contract, as_of)? {
        Instance::Known(instance) => match instance.executable {
            ContractExecutable::StellarAsset => asset(),
            _ => {
                let symbol = token::symbol_in_instance(&instance);
                Ok(symbol.and_then(|it| shown_symbol(&it)).map(|name| (name, Kind::Token)))
            }
        },
        Instance::Absent(_) => Ok(None),
        Instance::Unknown => asset(),
    }
}
