//! What contracts hold, now and at any stored ledger: lists, single entries, histories and changes. The
//! routes under `/api` have the form of the backend of the Stellar Lab.

mod at;
mod changes;
mod cursor;
mod entry;
mod error;
mod history;
mod key;
mod lab;
mod list;
mod parameters;
mod record;
mod shown;
mod walk;

use serde::Serialize;

use super::answer::Answer;
use super::call::CurrentCall;
use super::identity::Access;
use super::route::{CurrentHandler, Route, Work};
use super::stored::{DECODED, is_decoded};
use super::{ApiError, Deps};
use orrery_auth::{Area, Right, Scope};
use orrery_contract_data::CONSUMER;
use orrery_executables::InterfaceReader;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::{RowBounds, TransactionPosition};

pub use error::StorageError;

const READ: Access = Access::Token(Right { area: Area::Queries, scope: Scope::Read });

/// Routes of this area.
pub(super) static ROUTES: [Route; 9] = [
    route("/rest/contracts/{contract_id}/storage", list::list)
        .with_parameters(&parameters::OF_LIST),
    route("/rest/contracts/{contract_id}/storage/changes", changes::of_contract)
        .with_parameters(&["from", "to", key::NAME, "limit", cursor::CURSOR, DECODED]),
    route("/rest/contracts/{contract_id}/storage/{key_hash}", entry::entry)
        .with_parameters(&[parameters::AT, DECODED]),
    route("/rest/contracts/{contract_id}/storage/{key_hash}/history", history::history)
        .with_parameters(&[key::KEY, "limit", cursor::CURSOR, DECODED]),
    route("/rest/txs/{tx_hex}/storage", changes::of_transaction).with_parameters(&[DECODED]),
    lab::route(route("/api/contract/{contract_id}/storage", lab::storage))
        .choosing_parameters(&lab::PARAMETERS),
    lab::route(route("/api/contract/{contract_id}/keys", lab::keys)).choosing_parameters(&[]),
    // The Lab asks the first page below the name of its network, and follows the links in it as they are.
    lab::route(route("/{network}/api/contract/{contract_id}/storage", lab::storage_of_network))
        .choosing_parameters(&lab::PARAMETERS),
    lab::route(route("/{network}/api/contract/{contract_id}/keys", lab::keys_of_network))
        .choosing_parameters(&[]),
];

const fn route(template: &'static str, handler: CurrentHandler) -> Route {
    Route::new("GET", template, Work::current_cached(READ, &[CONSUMER], handler)).with_public_read()
}

/// Returns the reader of interfaces for an answer; `None` when the request does not want plain JSON.
fn names<'c>(
    deps: &'c Deps,
    call: &'c CurrentCall<'_>,
) -> Result<Option<InterfaceReader<'c>>, ApiError> {
    if !is_decoded(call.query)? {
        return Ok(None);
    }
    let bounds =
        RowBounds { interrupted: Box::new(|| call.allowance.is_over()), ..RowBounds::none() };
    Ok(Some(deps.interfaces.reader(bounds)?))
}

/// Returns an answer with what its names lacked. It is not complete if it ended early, or if a name that
/// is missing now may be found later without a change of the store.
fn answer(
    record: &impl Serialize,
    is_complete: bool,
    names: Option<&InterfaceReader<'_>>,
) -> Result<Answer, ApiError> {
    let answer = Answer { is_complete, ..Answer::of(record) };
    let Some(names) = names else { return Ok(answer) };
    let is_complete = names.finish()? && is_complete;
    Ok(Answer { is_complete, lacking: names.lacking(), ..answer })
}

/// Returns the position after all transactions of a ledger.
fn end_of(ledger: LedgerSeq) -> TransactionPosition {
    TransactionPosition { ledger, application_order: u32::MAX }
}
