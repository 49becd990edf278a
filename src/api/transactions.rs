//! The transaction routes: which parameters each takes, and which question they ask of the store.

use super::answer::Answer;
use super::params::{self, Query};
use super::router::{Access, Call, Handler, Route, Work};
use super::{ApiError, Deps, json, page};
use crate::auth::{Area, Right, Scope};
use crate::domain::{ContractId, LedgerRange, ParseError, TxHash};
use crate::store::{TransactionPosition, TransactionQuery};

const fn route(template: &'static str, handler: Handler) -> Route {
    let access = Access::Token(Right { area: Area::Queries, scope: Scope::Read });
    Route { template, access, work: Work::Blocking, handler }
}

/// Routes of this area.
pub(super) const ROUTES: [Route; 5] = [
    route("/rest/txs/by-ledger", by_ledger),
    route("/rest/txs/by-contract/{contract_id}", by_contract),
    route("/rest/txs/by-contracts", by_contracts),
    route("/rest/txs/by-ledger/contracts", by_ledger_and_contracts),
    route("/rest/txs/by-hash/{tx_hex}", by_hash),
];

fn by_ledger(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let query = Query::parse(call.query, &["limit", "offset", "cursor", "order", "from", "to"])?;
    let ledgers = query.ledgers()?;
    answer(deps, &query, ledgers, Vec::new())
}

fn by_contract(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path_value)?;
    let query = Query::parse(call.query, &["limit", "offset", "cursor", "order", "from", "to"])?;
    let ledgers = query.ledgers()?;
    answer(deps, &query, ledgers, vec![contract])
}

fn by_contracts(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let query = Query::parse(call.query, &["limit", "offset", "cursor", "order", "contracts"])?;
    let contracts = query.contracts()?;
    answer(deps, &query, None, contracts)
}

fn by_ledger_and_contracts(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    const KNOWN: [&str; 7] = ["limit", "offset", "cursor", "order", "from", "to", "contracts"];
    let query = Query::parse(call.query, &KNOWN)?;
    let (ledgers, contracts) = (query.ledgers()?, query.contracts()?);
    answer(deps, &query, ledgers, contracts)
}

fn by_hash(deps: &Deps, call: &Call<'_>) -> Result<Answer, ApiError> {
    let hash = params::path_hash(call.path_value)?;
    let mut list = json::List::with_room_for(1);
    deps.store.transaction(&hash, |transaction| list.transaction(transaction))?;
    Ok(Answer::json(list.finish()))
}

fn answer(
    deps: &Deps,
    query: &Query<'_>,
    ledgers: Option<LedgerRange>,
    contracts: Vec<ContractId>,
) -> Result<Answer, ApiError> {
    let page = page::page(query, |query| cursor(deps, query))?;
    let mut list = json::List::with_room_for(page.limit);
    if !ledgers.is_some_and(|range| range.is_empty()) {
        let question = TransactionQuery { ledgers, contracts, page };
        deps.store.transactions(&question, |transaction| list.transaction(transaction))?;
    }
    Ok(Answer::json(list.finish()))
}

/// The position of the transaction that the cursor names. It need not satisfy the filter.
fn cursor(deps: &Deps, query: &Query<'_>) -> Result<Option<TransactionPosition>, ApiError> {
    let Some(text) = query.get("cursor") else { return Ok(None) };
    let hash: TxHash = text.parse().map_err(|error: ParseError| {
        ApiError::parameter("cursor", format!("is malformed: {error}"))
    })?;
    match deps.store.transaction_position(&hash)? {
        Some(position) => Ok(Some(position)),
        None => Err(ApiError::UnknownCursor(hash.to_string())),
    }
}
