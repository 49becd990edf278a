//! `/rest/contracts/{contract_id}`: what is known of a contract's code, its interface, and the token
//! that it is. Nothing of the contract is executed.

mod asset;
mod earlier;
mod known;
mod label;
mod labels;
mod named;
mod outline;
mod token;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use stellar_xdr::{Limits, ScSpecEntry, WriteXdr};

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

/// Limits for writing an entry of an interface, which has been read within narrower ones.
const ENTRY_LIMITS: Limits = Limits { depth: 500, len: 4 << 20 };

const READ: Access = Access::Token(Right { area: Area::Queries, scope: Scope::Read });

/// Routes of this area.
pub(super) static ROUTES: [Route; 3] = [
    Route::new(
        "GET",
        "/rest/contracts/labels",
        Work::current_cached(READ, &[CONSUMER], labels::labels),
    )
    .with_parameters(&[labels::ADDRESSES])
    .with_public_read(),
    Route::new(
        "GET",
        "/rest/contracts/named",
        Work::current_cached(READ, &[CONSUMER], named::named),
    )
    .with_parameters(&[named::NAME])
    .with_public_read(),
    Route::new(
        "GET",
        "/rest/contracts/{contract_id}",
        Work::current_cached(READ, &[CONSUMER], contract),
    )
    .with_parameters(&["spec"])
    .with_public_read(),
];

#[derive(Serialize)]
struct Record {
    contract_id: ContractId,
    executable: Option<Executable>,
    interface_unknown_because: Option<String>,
    token: Option<Token>,
    account_kinds: Vec<&'static str>,
    #[serde(flatten)]
    outline: Outline,
    /// The whole interface as its entries stand in a module (SEP-48), in base64; `None` leaves the member
    /// out, and `Some(None)` means that it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Option<String>>,
    /// Those of the code that it ran before, the latest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier_specs: Option<Vec<String>>,
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
    let wants_spec = call.query.word("spec", &[("true", true), ("false", false)])?.unwrap_or(false);
    let spec = || entries.as_deref().ok().map(spec).transpose();
    let earlier_specs = match wants_spec {
        true => {
            let (specs, are_final) = earlier::specs(deps, call, &contract, executable.as_ref())?;
            is_final &= are_final;
            Some(specs)
        }
        false => None,
    };
    let record = Record {
        contract_id: contract,
        executable,
        interface_unknown_because: entries.as_ref().err().cloned(),
        token,
        account_kinds,
        outline: Outline::of(entries.as_deref().unwrap_or_default())?,
        spec: wants_spec.then(spec).transpose()?,
        earlier_specs,
    };
    Ok(Answer { is_complete: is_final, lacking, ..Answer::of(&record) })
}

/// Returns entries as they stand in a module.
fn spec(entries: &[ScSpecEntry]) -> Result<String, ApiError> {
    let mut section = Vec::new();
    for entry in entries {
        section.extend(entry.to_xdr(ENTRY_LIMITS).map_err(|_| ApiError::Encoding)?);
    }
    Ok(STANDARD.encode(section))
}
