//! Transaction routes: the parameters of each, and its query to the store.

use super::answer::Answer;
use super::call::ReadCall;
use super::params::{self, Query};
use super::route::Route;
use super::stored::{DECODED, Stored, answer};
use super::{ApiError, allowance, page};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, ParseError, TxHash};
use orrery_store::{Store, TransactionPosition, TransactionQuery};

/// Routes of this area.
pub(super) static ROUTES: [Route; 7] = [
    Route::list("/rest/txs/by-ledger", &page::IN_LEDGERS, by_ledger).with_public_read(),
    Route::list("/rest/txs/by-contract/{contract_id}", &page::IN_LEDGERS, by_contract)
        .with_public_read(),
    Route::list("/rest/txs/by-contracts", &page::OF_CONTRACTS, by_contracts).with_public_read(),
    Route::list("/rest/txs/by-contracts", &page::OF_CONTRACTS, by_contracts).posted(),
    Route::list(IN_LEDGERS_OF_CONTRACTS, &page::OF_CONTRACTS_IN_LEDGERS, by_ledger_and_contracts)
        .with_public_read(),
    Route::list(IN_LEDGERS_OF_CONTRACTS, &page::OF_CONTRACTS_IN_LEDGERS, by_ledger_and_contracts)
        .posted(),
    Route::list("/rest/txs/by-hash/{tx_hex}", &[DECODED], by_hash).with_public_read(),
];

const IN_LEDGERS_OF_CONTRACTS: &str = "/rest/txs/by-ledger/contracts";

fn by_ledger(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let ledgers = call.query.ledgers()?;
    page_of(stored, call, ledgers, Vec::new())
}

fn by_contract(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let ledgers = call.query.ledgers()?;
    page_of(stored, call, ledgers, vec![contract])
}

fn by_contracts(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let contracts = call.query.contracts()?;
    page_of(stored, call, None, contracts)
}

fn by_ledger_and_contracts(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let (ledgers, contracts) = (call.query.ledgers()?, call.query.contracts()?);
    page_of(stored, call, ledgers, contracts)
}

fn by_hash(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let hash = params::path_hash(call.path.get("tx_hex"))?;
    let names = stored.names(call)?;
    let mut list = stored.list(names.as_ref(), 1);
    stored.store.transaction(&hash, |transaction| list.transaction(transaction))?;
    if list.is_empty()
        && let Some(ledger) = ledger_of_removed(stored.store, &hash)?
    {
        return Err(ApiError::NoRecord(format!(
            "the transaction {hash} is not stored any more: retention has removed the transactions \
             of ledger {ledger}, which retention.transactions decides"
        )));
    }
    answer(list, true, names.as_ref())
}

/// Returns the ledger of a transaction of which only events are stored, because retention has removed
/// the transactions of that ledger.
pub(super) fn ledger_of_removed(
    store: &Store,
    hash: &TxHash,
) -> Result<Option<LedgerSeq>, ApiError> {
    let mut ledger = None;
    store.events_of_transaction(hash, |event| ledger = Some(event.ledger))?;
    match ledger {
        Some(ledger) if !store.has_all_transactions(ledger)? => Ok(Some(ledger)),
        _ => Ok(None),
    }
}

fn page_of(
    stored: &Stored<'_>,
    call: &ReadCall<'_>,
    ledgers: Option<LedgerRange>,
    contracts: Vec<ContractId>,
) -> Result<Answer, ApiError> {
    let store = stored.store;
    let page =
        page::page(call.query, call.allowance.limits.offset.into(), |query| cursor(store, query))?;
    let names = stored.names(call)?;
    let mut list = stored.list(names.as_ref(), page.limit);
    let mut is_complete = true;
    if !ledgers.is_some_and(|range| range.is_empty()) {
        let question = TransactionQuery { ledgers, contracts, page };
        is_complete = allowance::walk(call.allowance, page.skip(), |bounds, may_continue| {
            let walked = store.transactions_within(&question, bounds, |transaction| {
                list.transaction(transaction);
                may_continue(list.len())
            })?;
            Ok((walked.map(|hash| hash.to_string()), !list.is_empty()))
        })?;
    }
    answer(list, is_complete, names.as_ref())
}

/// Returns the position of the transaction whose hash is the cursor. It need not match the filter.
fn cursor(store: &Store, query: &Query<'_>) -> Result<Option<TransactionPosition>, ApiError> {
    let Some(text) = query.get("cursor") else { return Ok(None) };
    let hash: TxHash = text.parse().map_err(|error: ParseError| {
        ApiError::parameter("cursor", format!("is malformed: {error}"))
    })?;
    match store.transaction_position(&hash)? {
        Some(position) => Ok(Some(position)),
        None => Err(ApiError::UnknownCursor(hash.to_string())),
    }
}
