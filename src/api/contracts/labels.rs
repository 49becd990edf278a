//! `/rest/contracts/labels`: short names of addresses, of many at once, for lists that show them; or the addresses
//! that have a name ([`named`]).

use serde::Serialize;
use stellar_xdr::ContractExecutable;

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::labels::shown_symbol;
use super::super::{ApiError, Deps};
use super::{asset, named, token};
use orrery_executables::Instance;
use orrery_ledger::domain::{ContractId, LedgerSeq, address_xdr};

/// Name of the parameter, and maximum number of addresses in it. Each may take the reading of a
/// transaction.
pub(super) const ADDRESSES: &str = "addresses";
const MOST: usize = 50;
/// Name of the parameter for a search by name.
pub(super) const NAME: &str = "name";

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

/// Returns the names of those of the given addresses that have one, or the addresses that have a name. An answer
/// without some that were not looked at in time is truncated.
pub(super) fn labels(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    if let Some(name) = call.query.get(NAME) {
        if call.query.get(ADDRESSES).is_some() {
            let problem = format!("goes alone: leave '{ADDRESSES}' out");
            return Err(ApiError::parameter(NAME, problem));
        }
        return named::named(deps, call, name);
    }
    let mut found = Vec::new();
    let mut is_complete = true;
    for address in given(call)? {
        let own = deps.settings.names.of(address).map(|name| (name.to_owned(), Kind::Operator));
        let label = match (own, address.parse::<ContractId>(), call.as_of) {
            (Some(own), _, _) => Some(own),
            (None, Ok(_), Some(_)) if call.allowance.is_over() => {
                is_complete = false;
                None
            }
            (None, Ok(contract), Some(ledger)) => of_contract(deps, &contract, ledger)?,
            _ => None,
        };
        found.extend(label.map(|(name, kind)| Label::new(address.to_owned(), name, kind)));
    }
    Ok(Answer { is_complete, ..Answer::of(&found) })
}

/// Returns the addresses of the request.
fn given<'a>(call: &'a CurrentCall<'_>) -> Result<Vec<&'a str>, ApiError> {
    let text = call.query.get(ADDRESSES).filter(|text| !text.is_empty()).ok_or_else(|| {
        ApiError::parameter(ADDRESSES, "is missing: give addresses separated by commas")
    })?;
    let addresses: Vec<&str> = text.split(',').collect();
    if addresses.len() > MOST {
        let problem = format!("holds {} values: give {MOST} at the most", addresses.len());
        return Err(ApiError::parameter(ADDRESSES, problem));
    }
    for address in &addresses {
        address_xdr(address)
            .map_err(|error| ApiError::parameter(ADDRESSES, format!("is malformed: {error}")))?;
    }
    Ok(addresses)
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
