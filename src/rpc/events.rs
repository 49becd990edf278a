//! `getEvents`.

use serde::{Deserialize, Serialize};
use stellar_xdr::ScVal;

use super::event_search::{EventSearch, Events, PageEnd, Selection, TopicCount};
use super::found_event::FoundEvent;
use super::json::Writer;
use super::params::{Named, Pagination, XdrFormat};
use super::range::{Needed, Range};
use super::{CallLimits, Outcome, Params, Rpc, RpcError, xdr};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{
    CloseTime, ContractId, Direction, LedgerRange, LedgerSeq, RpcEventId, TxHash, scval_xdr,
};

/// Default number of events per page.
const DEFAULT_LIMIT: u64 = 100;
/// Maximum number of events per page.
const MAX_EVENTS: u64 = 10_000;
/// Maximum number of ledgers that one call searches.
pub(super) const MAX_LEDGERS: u32 = 10_000;
/// Maximum number of filters per call.
const MAX_FILTERS: usize = 5;
/// Maximum number of contracts per filter.
const MAX_CONTRACTS: usize = 5;
/// Maximum number of topic filters per filter.
const MAX_TOPICS: usize = 5;
/// Maximum number of segments per topic filter, not counting a final `**`.
const MAX_SEGMENTS: usize = 4;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    start_ledger: Option<u32>,
    /// Exclusive end.
    end_ledger: Option<u32>,
    filters: Option<Vec<Named<Filter>>>,
    pagination: Option<Named<Pagination>>,
    xdr_format: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Filter {
    #[serde(rename = "type")]
    types: Option<String>,
    contract_ids: Option<Vec<String>>,
    topics: Option<Vec<Vec<String>>>,
}

/// The members of the answer other than `events`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    cursor: String,
    latest_ledger: u32,
    oldest_ledger: u32,
    latest_ledger_close_time: String,
    oldest_ledger_close_time: String,
}

/// Writes the member `events`; with `shows_success`, each event says whether its transaction
/// succeeded.
///
/// # Errors
/// Fails when stored XDR cannot be decoded.
pub(super) fn write_all(
    events: &[FoundEvent],
    format: XdrFormat,
    shows_success: bool,
    to: &mut Writer,
) -> Result<(), RpcError> {
    to.name("events");
    to.open('[');
    // Usually all events are of one contract, so its strkey is computed once.
    let mut contract = (None, String::new());
    for event in events {
        if contract.0 != event.contract {
            let name = event.contract.map(|id| ContractId(id).to_string()).unwrap_or_default();
            contract = (event.contract, name);
        }
        write(event, &contract.1, format, shows_success, to)?;
    }
    to.close(']');
    Ok(())
}

fn write(
    event: &FoundEvent,
    contract: &str,
    format: XdrFormat,
    shows_success: bool,
    to: &mut Writer,
) -> Result<(), RpcError> {
    to.open('{');
    to.name("type");
    to.plain(match event.event_type {
        EventType::Contract => "contract",
        EventType::System => "system",
    });
    to.name("ledger");
    to.bare(event.ledger);
    to.name("ledgerClosedAt");
    to.plain(CloseTime::Seconds(event.closed_at));
    to.name("contractId");
    to.plain(contract);
    to.name("id");
    to.plain(event.id);
    to.name("operationIndex");
    to.bare(event.id.operation());
    to.name("transactionIndex");
    to.bare(event.id.transaction());
    to.name("txHash");
    to.plain(TxHash::from(event.tx));
    if shows_success {
        // Deprecated; the Python client before version 16 requires it.
        to.name("inSuccessfulContractCall");
        to.bare(event.successful);
    }
    let (topic, value) = match format {
        XdrFormat::Base64 => ("topic", "value"),
        XdrFormat::Json => ("topicJson", "valueJson"),
    };
    to.name(topic);
    to.open('[');
    for topic in event.topics() {
        xdr::write::<ScVal>(topic, format, to)?;
    }
    to.close(']');
    to.name(value);
    xdr::write::<ScVal>(event.data(), format, to)?;
    to.close('}');
    Ok(())
}

/// A validated request.
struct ParsedRequest {
    selections: Vec<Selection>,
    cursor: Option<RpcEventId>,
    start: LedgerSeq,
    /// Exclusive end.
    end: Option<u32>,
    limit: usize,
    format: XdrFormat,
}

impl Rpc {
    pub(super) fn get_events(&self, params: Params<'_>, limits: CallLimits<'_>) -> Outcome {
        let parsed = ParsedRequest::read(params.read()?)?;
        xdr::with_stack_for(parsed.format, || self.answer_with_events(parsed, limits))
    }

    fn answer_with_events(&self, parsed: ParsedRequest, limits: CallLimits<'_>) -> Outcome {
        let range = self.range(Needed::Events)?;
        let ParsedRequest { selections, cursor, start, end, limit, format } = parsed;
        if !range.contains(start.0.into()) {
            let Range { oldest, latest, .. } = range;
            return Err(RpcError::invalid_request(format!(
                "startLedger must be within the ledger range: {oldest} - {latest}"
            )));
        }
        let mut last = range.latest.0.min(start.0.saturating_add(MAX_LEDGERS - 1));
        if let Some(end) = end {
            last = last.min(end.saturating_sub(1));
        }
        // A cursor at the end of a ledger continues with the next ledger.
        let first = match cursor {
            Some(cursor) if cursor >= RpcEventId::end_of(start) => start.next().unwrap_or(start),
            _ => start,
        };
        let search = EventSearch {
            ledgers: LedgerRange { first, last: LedgerSeq(last) },
            direction: Direction::OldestFirst,
            after: cursor,
            limit,
            selections: &selections,
        };
        let page = self.find_page(&search, format, limits)?;
        let is_complete = page.is_complete(limit);
        let Events { events, end } = page;
        let cursor = match (end, events.last()) {
            (PageEnd::Full, Some(event)) => event.id,
            (PageEnd::OutOfBudget(id), _) => id,
            (PageEnd::Full | PageEnd::All, _) => RpcEventId::end_of(LedgerSeq(last)),
        };
        let mut answer = Writer::with_room_for(events.iter().map(FoundEvent::size).sum());
        answer.open('{');
        write_all(&events, format, true, &mut answer)?;
        answer.members_of(&Answer {
            cursor: cursor.to_string(),
            latest_ledger: range.latest.0,
            oldest_ledger: range.oldest.0,
            latest_ledger_close_time: range.latest_closed_at.to_string(),
            oldest_ledger_close_time: range.oldest_closed_at.to_string(),
        })?;
        answer.close('}');
        let answer = answer.finish();
        Ok(if is_complete { answer.cacheable() } else { answer })
    }
}

impl ParsedRequest {
    fn read(request: Request) -> Result<Self, RpcError> {
        let format = XdrFormat::parse(request.xdr_format.as_deref());
        let format = format.map_err(RpcError::invalid_params)?;
        let pagination = request.pagination.unwrap_or_default().0;
        let cursor = pagination.cursor.as_deref().filter(|text| !text.is_empty());
        let cursor =
            cursor.map(|text| text.parse::<RpcEventId>().map_err(|_| malformed_cursor(text)));
        let cursor = cursor.transpose()?;
        let has_range = [request.start_ledger, request.end_ledger]
            .into_iter()
            .any(|ledger| ledger.is_some_and(|ledger| ledger != 0));
        let start = match (cursor, request.start_ledger) {
            (Some(_), _) if has_range => {
                return Err(RpcError::invalid_params(
                    "ledger ranges and cursor cannot both be set",
                ));
            }
            (Some(cursor), _) => cursor.ledger(),
            (None, Some(start)) if start > 0 => LedgerSeq(start),
            (None, _) => return Err(RpcError::invalid_params("startLedger must be positive")),
        };
        let limit = pagination.limit.filter(|limit| *limit > 0).unwrap_or(DEFAULT_LIMIT);
        if limit > MAX_EVENTS {
            let why = format!("limit must not exceed {MAX_EVENTS}");
            return Err(RpcError::invalid_params(why));
        }
        let filters = request.filters.unwrap_or_default();
        if filters.len() > MAX_FILTERS {
            let why = format!("maximum {MAX_FILTERS} filters per request");
            return Err(RpcError::invalid_params(why));
        }
        let mut selections = Vec::new();
        for (number, Named(filter)) in filters.into_iter().enumerate() {
            selections.extend(filter.selections(number)?);
        }
        if selections.is_empty() {
            selections.push(Selection::default());
        }
        let end = request.end_ledger.filter(|end| *end > 0);
        // At most 10,000, checked above.
        Ok(Self { selections, cursor, start, end, limit: limit as usize, format })
    }
}

fn malformed_cursor(text: &str) -> RpcError {
    RpcError::unreadable_params(format!(
        "invalid event id {}",
        orrery_ledger::domain::excerpt(text)
    ))
}

impl Filter {
    /// Returns one selection per topic filter.
    fn selections(self, number: usize) -> Result<Vec<Selection>, RpcError> {
        let invalid = |problem: &str| {
            RpcError::invalid_params(format!("filter {} invalid: {problem}", number + 1))
        };
        let event_type = event_type(self.types.as_deref()).map_err(invalid)?;
        let given = self.contract_ids.unwrap_or_default();
        if given.len() > MAX_CONTRACTS {
            return Err(invalid(&format!("maximum {MAX_CONTRACTS} contract IDs per filter")));
        }
        let contracts = given.iter().enumerate().map(|(number, text)| {
            text.parse().map_err(|_| invalid(&format!("contract ID {} invalid", number + 1)))
        });
        let contracts: Vec<ContractId> = contracts.collect::<Result<_, _>>()?;
        let topics = self.topics.unwrap_or_default();
        if topics.len() > MAX_TOPICS {
            return Err(invalid(&format!("maximum {MAX_TOPICS} topics per filter")));
        }
        if topics.is_empty() {
            return Ok(vec![Selection { contracts, event_type, ..Selection::default() }]);
        }
        let of_topics = topics.iter().enumerate().map(|(number, segments)| {
            let (topics, count) = parse_segments(segments).map_err(|problem| match problem {
                Problem::Form(what) => invalid(&format!("topic {} invalid: {what}", number + 1)),
                Problem::Value(what) => RpcError::unreadable_params(format!("a topic {what}")),
            })?;
            Ok(Selection { contracts: contracts.clone(), topics, count, event_type })
        });
        of_topics.collect()
    }
}

/// Returns the only event type that is wanted, or `None` when both are.
fn event_type(given: Option<&str>) -> Result<Option<EventType>, &'static str> {
    let Some(given) = given.filter(|given| !given.is_empty()) else { return Ok(None) };
    let mut wanted = None;
    for (number, name) in given.split(',').enumerate() {
        let one = match name {
            "contract" => EventType::Contract,
            "system" => EventType::System,
            _ => {
                return Err(
                    "filter type invalid: if set, type must be either 'system' or 'contract'",
                );
            }
        };
        wanted = if number == 0 { Some(one) } else { wanted.filter(|wanted| *wanted == one) };
    }
    Ok(wanted)
}

/// Why a topic filter is invalid.
enum Problem {
    /// Its form is wrong; the text follows the number of the filter in the message.
    Form(String),
    /// A segment is not an `ScVal`.
    Value(String),
}

/// The values wanted for the first four topics; `None` where any value matches.
type Topics = [Option<Vec<u8>>; 4];

/// Returns the wanted topic values and the wanted number of topics.
fn parse_segments(segments: &[String]) -> Result<(Topics, TopicCount), Problem> {
    let form = |what: String| Err(Problem::Form(what));
    let (is_open, segments) = match segments {
        [before @ .., last] if last == "**" => (true, before),
        all => (false, all),
    };
    if segments.is_empty() && !is_open {
        return form("topic must have at least 1 segment".to_owned());
    }
    if segments.len() > MAX_SEGMENTS {
        return form(format!("topic cannot have more than {MAX_SEGMENTS} segments"));
    }
    let mut topics = [const { None }; 4];
    for (number, (segment, topic)) in segments.iter().zip(&mut topics).enumerate() {
        match segment.as_str() {
            "*" => {}
            "**" => {
                return form(format!(
                    "segment {} invalid: wildcard '**' is only allowed as the last segment",
                    number + 1
                ));
            }
            value => {
                let value = scval_xdr(value).map_err(|error| Problem::Value(error.to_string()))?;
                *topic = Some(value);
            }
        }
    }
    let count = segments.len();
    Ok((topics, if is_open { TopicCount::AtLeast(count) } else { TopicCount::Exactly(count) }))
}
