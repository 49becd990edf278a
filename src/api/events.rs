//! Event routes: the parameters of each, and the store query that they form.

use super::answer::Answer;
use super::call::ReadCall;
use super::params::{self, Query};
use super::route::Route;
use super::{ApiError, allowance, json, page};
use crate::domain::{ContractId, EventId, LedgerRange};
use crate::store::{EventQuery, Store, TopicFilter};

/// Typical number of events in a transaction, used to size buffers.
const TYPICAL_EVENTS: usize = 4;

/// Routes of this area.
pub(super) static ROUTES: [Route; 5] = [
    Route::list("/rest/events/by-ledger", by_ledger),
    Route::list("/rest/events/by-contract/{contract_id}", by_contract),
    Route::list("/rest/events/by-contracts", by_contracts),
    Route::list("/rest/events/by-ledger/contracts", by_ledger_and_contracts),
    Route::list("/rest/events/by-tx/{tx_hex}", by_transaction),
];

fn by_ledger(store: &Store, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let query = Query::parse(call.query, &["limit", "offset", "cursor", "order", "from", "to"])?;
    let ledgers = query.ledgers()?;
    answer(store, call, &query, ledgers, Vec::new(), TopicFilter::default())
}

fn by_contract(store: &Store, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    const KNOWN: [&str; 13] = [
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
    ];
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let query = Query::parse(call.query, &KNOWN)?;
    let (ledgers, topics) = branch(&query)?;
    answer(store, call, &query, ledgers, vec![contract], topics)
}

fn by_contracts(store: &Store, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let query = Query::parse(call.query, &["limit", "offset", "cursor", "order", "contracts"])?;
    let contracts = query.contracts()?;
    answer(store, call, &query, None, contracts, TopicFilter::default())
}

fn by_ledger_and_contracts(store: &Store, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    const KNOWN: [&str; 7] = ["limit", "offset", "cursor", "order", "from", "to", "contracts"];
    let query = Query::parse(call.query, &KNOWN)?;
    let (ledgers, contracts) = (query.ledgers()?, query.contracts()?);
    answer(store, call, &query, ledgers, contracts, TopicFilter::default())
}

fn by_transaction(store: &Store, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let hash = params::path_hash(call.path.get("tx_hex"))?;
    let mut list = json::List::with_room_for(TYPICAL_EVENTS);
    store.events_of_transaction(&hash, |event| list.event(event))?;
    Ok(Answer::json(list.finish()))
}

/// Returns the conditions of a `/events/by-contract` query. A ledger range takes precedence over
/// `topics`, unless `combine=true` applies both. Values at fixed positions always apply.
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
    Ok((ledgers, TopicFilter { anywhere, all, positional }))
}

fn answer(
    store: &Store,
    call: &ReadCall<'_>,
    query: &Query<'_>,
    ledgers: Option<LedgerRange>,
    contracts: Vec<ContractId>,
    topics: TopicFilter,
) -> Result<Answer, ApiError> {
    let cursor = |query: &Query<'_>| Ok(query.number("cursor", u64::MAX)?.map(EventId));
    let page = page::page(query, call.allowance.limits.offset, cursor)?;
    let mut list = json::List::with_room_for(page.limit);
    let mut is_complete = true;
    if !ledgers.is_some_and(|range| range.is_empty()) {
        let question = EventQuery { ledgers, contracts, topics, page };
        is_complete = allowance::walk(call.allowance, page.skip(), |bounds, may_continue| {
            let walked = store.events_within(&question, bounds, |event| {
                list.event(event);
                may_continue(list.len())
            })?;
            Ok((walked.map(|id| id.0), !list.is_empty()))
        })?;
    }
    Ok(Answer { is_complete, ..Answer::json(list.finish()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSFER: &str = "AAAADwAAAAh0cmFuc2Zlcg==";
    const KNOWN: [&str; 9] =
        ["from", "to", "combine", "topics", "topics_match", "topic1", "topic2", "topic3", "topic4"];

    fn taken(raw: &str) -> (bool, usize, bool, usize) {
        let raw = raw.replace('T', TRANSFER);
        let (ledgers, topics) = branch(&Query::parse(&raw, &KNOWN).unwrap()).unwrap();
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
        for raw in ["from=1&topics=x", "topics_match=some", "combine=1", "combine=", "topic3="] {
            assert!(branch(&Query::parse(raw, &KNOWN).unwrap()).is_err(), "{raw}");
        }
    }
}
