//! `/rest/contracts/labels`: short names of addresses, of many at once, for lists that show them.

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::{ApiError, Deps};
use super::label::{Kind, Label, of_contract};
use orrery_ledger::domain::{ContractId, address_xdr};

/// Name of the parameter, and maximum number of addresses in it. Each may take the reading of a
/// transaction.
pub(super) const ADDRESSES: &str = "addresses";
const MOST: usize = 50;

/// Returns the names of those of the given addresses that have one. An answer without some that were not looked at
/// in time is truncated.
pub(super) fn labels(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
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
