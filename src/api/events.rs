//! Event routes: the parameters of each, and the store query that they form.

use super::answer::Answer;
use super::call::ReadCall;
use super::params::{self, Query};
use super::route::Route;
use super::stored::{DECODED, Stored, answer};
use super::{ApiError, allowance, page};
use orrery_ledger::domain::{ContractId, EventId, LedgerRange, LedgerSeq, Page, TxHash};
use orrery_store::{EventQuery, Needs, TopicFilter};

/// Typical number of events in a transaction, used to size buffers.
const TYPICAL_EVENTS: usize = 4;

/// Routes of this area.
pub(super) static ROUTES: [Route; 9] = [
    Route::list("/rest/events/by-ledger", &IN_LEDGERS, by_ledger).with_public_read(),
    Route::list("/rest/events/by-contract/{contract_id}", &BY_CONTRACT, by_contract)
        .with_public_read(),
    Route::list("/rest/events/by-contracts", &OF_CONTRACTS, by_contracts).with_public_read(),
    Route::list("/rest/events/by-contracts", &OF_CONTRACTS, by_contracts).posted(),
    Route::list(BY_LEDGER_AND_CONTRACTS, &OF_CONTRACTS_IN_LEDGERS, by_ledger_and_contracts)
        .with_public_read(),
    Route::list(BY_LEDGER_AND_CONTRACTS, &OF_CONTRACTS_IN_LEDGERS, by_ledger_and_contracts)
        .posted(),
    Route::list("/rest/events/by-tx/{tx_hex}", &[ADDRESS, DECODED], by_transaction)
        .with_public_read(),
    Route::list("/rest/events/by-address/{address}", &BY_ADDRESS, by_address).with_public_read(),
    Route::list("/rest/events/by-id/{id}", &[DECODED], by_id).with_public_read(),
];

const BY_LEDGER_AND_CONTRACTS: &str = "/rest/events/by-ledger/contracts";

/// Parameter that selects events of which a topic is this address.
const ADDRESS: &str = "address";

/// Parameters of a list of events within a range of ledgers.
const IN_LEDGERS: [&str; 8] =
    ["limit", "offset", "cursor", "order", "from", "to", ADDRESS, DECODED];
/// Parameters of a list of the events of several contracts.
const OF_CONTRACTS: [&str; 7] =
    ["limit", "offset", "cursor", "order", "contracts", ADDRESS, DECODED];
/// Parameters of a list of the events of several contracts within a range of ledgers.
const OF_CONTRACTS_IN_LEDGERS: [&str; 9] =
    ["limit", "offset", "cursor", "order", "from", "to", "contracts", ADDRESS, DECODED];
/// Parameters of the list of events of which a topic is an address.
const BY_ADDRESS: [&str; 7] = ["limit", "cursor", "order", "from", "to", "contracts", DECODED];

/// Parameters of the list of a contract's events.
const BY_CONTRACT: [&str; 15] = [
    "limit",
    "offset",
    "cursor",
    "order",
    "from",
    "to",
    "combine",
    "topics",
    "topics_match",
    "topic1",
    "topic2",
    "topic3",
    "topic4",
    ADDRESS,
    DECODED,
];

fn by_ledger(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let ledgers = call.query.ledgers()?;
    page_of(stored, call, ledgers, Vec::new(), with_address(call.query)?)
}

fn by_contract(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let (ledgers, topics) = branch(call.query)?;
    page_of(stored, call, ledgers, vec![contract], topics)
}

fn by_contracts(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let contracts = call.query.contracts()?;
    page_of(stored, call, None, contracts, with_address(call.query)?)
}

fn by_ledger_and_contracts(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let (ledgers, contracts) = (call.query.ledgers()?, call.query.contracts()?);
    page_of(stored, call, ledgers, contracts, with_address(call.query)?)
}

fn by_address(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let address = Some(params::path_address(call.path.get("address"))?);
    let (ledgers, contracts) = (call.query.ledgers()?, call.query.contracts_if_given()?);
    let topics = TopicFilter { address, ..TopicFilter::default() };
    page_of(stored, call, ledgers, contracts.unwrap_or_default(), topics)
}

/// Returns the condition of a list that may be limited to an address.
fn with_address(query: &Query<'_>) -> Result<TopicFilter, ApiError> {
    Ok(TopicFilter { address: query.address(ADDRESS)?, ..TopicFilter::default() })
}

fn by_transaction(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let hash = params::path_hash(call.path.get("tx_hex"))?;
    let topics = with_address(call.query)?;
    let names = stored.names(call)?;
    let mut list = stored.list(names.as_ref(), TYPICAL_EVENTS);
    let (mut found, mut of_events) = (0, None);
    stored.store.events_of_transaction(&hash, |event| {
        (found, of_events) = (found + 1, Some(event.ledger));
        if topics.matches(event.topics) {
            list.event(event);
        }
    })?;
    refuse_if_removed(stored, &hash, found, of_events)?;
    answer(list, true, names.as_ref())
}

/// Refuses to answer as if a transaction had no more than the `found` events when retention has removed
/// others. `of_events` is the ledger of those that were found.
fn refuse_if_removed(
    stored: &Stored<'_>,
    hash: &TxHash,
    found: u32,
    of_events: Option<LedgerSeq>,
) -> Result<(), ApiError> {
    // Mostly nothing was removed, and the record need not be read. The ledgers are asked for after the
    // events were read, so that a removal meanwhile is noticed.
    let removed = stored.store.removed(Needs::EVENTS)?;
    if removed.is_empty() {
        return Ok(());
    }
    // The hash's own rows may have been removed meanwhile.
    let ledgers = stored.store.ledgers_of_hash(hash)?;
    if !ledgers.iter().chain(&of_events).any(|ledger| removed.contains(*ledger)) {
        return Ok(());
    }
    let mut of_record = None;
    stored.store.transaction(hash, |record| {
        of_record = Some((record.position.ledger, record.event_count));
    })?;
    let ledger = match of_record {
        Some((ledger, all)) => Some(ledger).filter(|_| found < all),
        // Nothing tells how many there were.
        None => of_events,
    };
    match ledger {
        Some(ledger) if !stored.store.has_all_events(ledger)? => Err(ApiError::NoEvents(format!(
            "events of the transaction {hash} are not stored any more: retention has removed \
                 events of ledger {ledger}, which retention.events decides"
        ))),
        _ => Ok(()),
    }
}

fn by_id(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let id = params::path_id(call.path.get("id"))?;
    let names = stored.names(call)?;
    let mut list = stored.list(names.as_ref(), 1);
    if let Some(before) = id.checked_sub(1) {
        // The first event from this id on, of which at most one block is read.
        let page = Page { cursor: Some(EventId(before)), limit: 1, ..Page::all() };
        let (contracts, topics) = (Vec::new(), TopicFilter::default());
        let query = EventQuery { ledgers: None, contracts, topics, page };
        stored.store.events(&query, |event| {
            if event.id == EventId(id) {
                list.event(event);
            }
        })?;
    }
    if list.is_empty()
        && let Some(ledger) = stored.store.ledger_of_lost_event(EventId(id))?
    {
        return Err(ApiError::NoEvents(format!(
            "the event {id} is not stored any more: retention has removed the events of ledger \
             {ledger}, which retention.events decides"
        )));
    }
    answer(list, true, names.as_ref())
}

/// Returns the conditions of a `/events/by-contract` query. A ledger range takes precedence over
/// `topics`, unless `combine=true` applies both. Values at fixed positions and the address always
/// apply.
fn branch(query: &Query<'_>) -> Result<(Option<LedgerRange>, TopicFilter), ApiError> {
    // Malformed values are refused even when the chosen branch ignores them.
    let ledgers = query.ledgers()?;
    let topics = query.topics()?;
    let all = query.word("topics_match", &[("any", false), ("all", true)])?.unwrap_or(false);
    let combine = query.word("combine", &[("true", true), ("false", false)])?.unwrap_or(false);
    let positional = [
        query.topic("topic1")?,
        query.topic("topic2")?,
        query.topic("topic3")?,
        query.topic("topic4")?,
    ];
    let anywhere = if ledgers.is_some() && !combine { Vec::new() } else { topics };
    let address = query.address(ADDRESS)?;
    Ok((ledgers, TopicFilter { anywhere, all, positional, address }))
}

fn page_of(
    stored: &Stored<'_>,
    call: &ReadCall<'_>,
    ledgers: Option<LedgerRange>,
    contracts: Vec<ContractId>,
    topics: TopicFilter,
) -> Result<Answer, ApiError> {
    let cursor = |query: &Query<'_>| Ok(query.number("cursor", u64::MAX)?.map(EventId));
    let page = page::page(call.query, call.allowance.limits.offset.into(), cursor)?;
    let names = stored.names(call)?;
    let mut list = stored.list(names.as_ref(), page.limit);
    let mut is_complete = true;
    if !ledgers.is_some_and(|range| range.is_empty()) {
        let question = EventQuery { ledgers, contracts, topics, page };
        is_complete = allowance::walk(call.allowance, page.skip(), |bounds, may_continue| {
            let walked = stored.store.events_within(&question, bounds, |event| {
                list.event(event);
                may_continue(list.len())
            })?;
            Ok((walked.map(|id| id.0), !list.is_empty()))
        })?;
    }
    answer(list, is_complete, names.as_ref())
}

#[cfg(test)]
mod tests {
    use super::super::params::Parameters;
    use super::*;
    use orrery_settings::UnknownParameters;

    const TRANSFER: &str = "AAAADwAAAAh0cmFuc2Zlcg==";

    fn query(raw: &str) -> Query<'_> {
        let known = Parameters::Known(&BY_CONTRACT);
        Query::parse(raw, known, UnknownParameters::Refuse).unwrap()
    }

    fn taken(raw: &str) -> (bool, usize, bool, usize) {
        let raw = raw.replace('T', TRANSFER);
        let (ledgers, topics) = branch(&query(&raw)).unwrap();
        let positional = topics.positional.iter().flatten().count();
        (ledgers.is_some(), topics.anywhere.len(), topics.all, positional)
    }

    #[test]
    fn ledger_ranges_take_precedence_over_topics_unless_combined() {
        assert_eq!(taken(""), (false, 0, false, 0));
        assert_eq!(taken("topics=T,T"), (false, 2, false, 0));
        assert_eq!(taken("topics=T&topics_match=all"), (false, 1, true, 0));
        assert_eq!(taken("from=1&topics=T"), (true, 0, false, 0));
        assert_eq!(taken("to=1&topics=T"), (true, 0, false, 0));
        assert_eq!(taken("to=1&topics=T&combine=false"), (true, 0, false, 0));
        assert_eq!(taken("to=1&topics=T&combine=true"), (true, 1, false, 0));
        assert_eq!(taken("topics=T&combine=true"), (false, 1, false, 0));
    }

    #[test]
    fn topic_positions_apply_in_every_branch() {
        assert_eq!(taken("topic1=T&topic4=T"), (false, 0, false, 2));
        assert_eq!(taken("topic1=T&topics=T"), (false, 1, false, 1));
        assert_eq!(taken("from=1&topic2=T&topics=T"), (true, 0, false, 1));
    }

    #[test]
    fn unused_parameters_are_validated_too() {
        for raw in [
            "from=1&topics=-",
            "topics_match=some",
            "combine=1",
            "combine=",
            "topic3=",
            "address=transfer",
        ] {
            assert!(branch(&query(raw)).is_err(), "{raw}");
        }
    }
}
