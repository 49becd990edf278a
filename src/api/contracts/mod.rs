//! `/rest/contracts/{contract_id}`: what is known of a contract's code, its interface, and the token
//! that it is. Nothing of the contract is executed.

mod asset;
mod known;
mod outline;
mod token;

use serde::Serialize;

use super::accounts;
use super::answer::Answer;
use super::call::CurrentCall;
use super::identity::Access;
use super::route::{Route, Work};
use super::{ApiError, Deps, params};
use known::{Executable, Known};
use orrery_auth::{Area, Right, Scope};
use orrery_executables::CONSUMER;
use orrery_ledger::domain::ContractId;
use outline::Outline;
use token::Token;

const READ: Access = Access::Token(Right { area: Area::Queries, scope: Scope::Read });

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] = [Route::new(
    "GET",
    "/rest/contracts/{contract_id}",
    Work::current_cached(READ, &[CONSUMER], contract),
)
.with_public_read()];

#[derive(Serialize)]
struct Record {
    contract_id: ContractId,
    executable: Option<Executable>,
    interface_unknown_because: Option<String>,
    token: Option<Token>,
    account_kinds: Vec<&'static str>,
    #[serde(flatten)]
    outline: Outline,
}

fn contract(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let known = Known::of(deps, call, &contract)?;
    let Known { executable, entries, lacking, mut is_final } = known;
    let token = match (&executable, call.as_of) {
        (Some(executable), Some(ledger)) => {
            let (token, is_known) = token::of(deps, &contract, executable, ledger)?;
            is_final &= is_known;
            token
        }
        _ => None,
    };
    let (account_kinds, are_all) = accounts::kinds(deps, call, &contract)?;
    is_final &= are_all;
    let record = Record {
        contract_id: contract,
        executable,
        interface_unknown_because: entries.as_ref().err().cloned(),
        token,
        account_kinds,
        outline: Outline::of(entries.as_deref().unwrap_or_default())?,
    };
    Ok(Answer { is_complete: is_final, lacking, ..Answer::of(&record) })
}
