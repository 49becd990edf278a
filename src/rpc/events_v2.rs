//! `getEventsV2`, as accepted in discussion 1872 of the Stellar organisation in its revision of
//! August 2026; the reference's archive node calls the same method `queryEvents`. Differences:
//! there is no budget of terms, and topics may be given as JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stellar_xdr::{ScVal, WriteXdr};

use super::event_search::{EventSearch, Events, PageEnd, Selection, TopicCount};
use super::events::{self, MAX_LEDGERS};
use super::events_cursor::{Filter, MAX_FILTERS, Scan};
use super::found_event::FoundEvent;
use super::json::Writer;
use super::params::{Named, XdrFormat};
use super::range::{Needed, Range};
use super::{CallLimits, Outcome, Params, Rpc, RpcError, xdr};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{
    ContractId, Direction, ENTERED_VALUE, LedgerRange, RpcEventId, scval_xdr,
};

/// Default number of events per page.
const DEFAULT_LIMIT: u64 = 100;
/// Maximum number of events per page.
const MAX_EVENTS: u64 = 1_000;
/// The first ledger after genesis.
const FIRST_LEDGER: u32 = 2;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Request {
    min_ledger: Option<u32>,
    max_ledger: Option<u32>,
    order: Option<String>,
    filters: Option<Vec<Named<FilterRequest>>>,
    xdr_input_format: Option<String>,
    cursor: Option<String>,
    limit: Option<u64>,
    xdr_format: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct FilterRequest {
    contract_id: Option<String>,
    #[serde(rename = "type")]
    event_type: Option<String>,
    topic0: Option<Value>,
    topic1: Option<Value>,
    topic2: Option<Value>,
    topic3: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    scan_status: ScanStatus,
    scanned_ledger: u32,
    oldest_ledger: u32,
    latest_ledger: u32,
}

/// Progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ScanStatus {
    /// There are more ledgers or events to search.
    HasMore,
    /// The next ledgers of the query have not closed yet.
    WaitingForLedgers,
    /// The rest of the query is older than what is stored.
    OldestReached,
    /// The whole query was searched, and no further events can follow.
    Complete,
}

/// The `data` of an error.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reason {
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ledger: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latest_ledger: Option<u32>,
}

fn invalid(problem: impl Into<String>) -> RpcError {
    let reason = "invalid_params";
    let more = Reason { reason, missing_ledger: None, oldest_ledger: None, latest_ledger: None };
    RpcError::invalid_params(problem).with_object(&more)
}

fn out_of_range(missing: u32, range: &Range) -> RpcError {
    let (oldest, latest) = (range.oldest.0, range.latest.0);
    let why = format!("ledger {missing} is not among those that are stored: {oldest} - {latest}");
    RpcError::invalid_params(why).with_object(&Reason {
        reason: "ledger_out_of_range",
        missing_ledger: Some(missing),
        oldest_ledger: Some(oldest),
        latest_ledger: Some(latest),
    })
}

fn malformed_cursor(range: &Range) -> RpcError {
    RpcError::invalid_params("the cursor is none that this service has given").with_object(
        &Reason {
            reason: "cursor_malformed",
            missing_ledger: None,
            oldest_ledger: Some(range.oldest.0),
            latest_ledger: Some(range.latest.0),
        },
    )
}

impl Rpc {
    pub(super) fn get_events_v2(&self, params: Params<'_>, limits: CallLimits<'_>) -> Outcome {
        let request: Request = params.read().map_err(|error| {
            let why = error.data.as_ref().map_or(error.message.as_str(), |data| data.get());
            invalid(format!("invalid parameters: {}", why.trim_matches('"')))
        })?;
        let format = request.xdr_format.as_deref();
        let format = XdrFormat::parse(format).map_err(invalid)?;
        let limit = request.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_EVENTS).contains(&limit) {
            return Err(invalid(format!("limit must be between 1 and {MAX_EVENTS}")));
        }
        let given = request.cursor.clone().filter(|cursor| !cursor.is_empty());
        let requested_scan = match &given {
            Some(_) if request.has_query() => {
                return Err(invalid(
                    "cursor is mutually exclusive with minLedger, maxLedger, order, filters, xdrInputFormat",
                ));
            }
            Some(_) => None,
            None => Some(request.scan()?),
        };
        let range = self.range(Needed::Events)?;
        let scan = match (requested_scan, &given) {
            (Some(scan), _) => scan.with_fixed_end(&range)?,
            (None, Some(cursor)) => Scan::read(cursor).ok_or_else(|| malformed_cursor(&range))?,
            (None, None) => return Err(invalid("minLedger is required for ascending order")),
        };
        // At most 1,000, checked above.
        xdr::with_stack_for(format, || self.scan(scan, limit as usize, format, &range, limits))
    }

    /// Answers with the next page of a scan.
    fn scan(
        &self,
        mut scan: Scan,
        limit: usize,
        format: XdrFormat,
        range: &Range,
        limits: CallLimits<'_>,
    ) -> Outcome {
        let (page, mut status) = scan.next_page(range)?;
        let mut events = Vec::new();
        let mut is_complete = true;
        if let Some(ledgers) = page {
            let selections = selections(&scan.filters);
            let search = EventSearch {
                ledgers,
                direction: scan.direction,
                after: scan.after,
                limit,
                selections: &selections,
            };
            let page = self.find_page(&search, format, limits)?;
            is_complete = page.is_complete(limit);
            let Events { events: found, end } = page;
            match (end, found.last()) {
                (PageEnd::Full, Some(event)) => scan.after = Some(event.id),
                (PageEnd::OutOfBudget(id), _) => scan.after = Some(id),
                (PageEnd::Full | PageEnd::All, _) => {
                    scan.mark_searched(ledgers);
                    status = scan.status_after_page(range);
                }
            }
            events = found;
        }
        let mut answer = Writer::with_room_for(events.iter().map(FoundEvent::size).sum());
        answer.open('{');
        events::write_all(&events, format, false, &mut answer)?;
        answer.members_of(&Answer {
            cursor: (status != ScanStatus::Complete).then(|| scan.to_cursor()),
            scan_status: status,
            scanned_ledger: scan.scanned_ledger(),
            oldest_ledger: range.oldest.0,
            latest_ledger: range.latest.0,
        })?;
        answer.close('}');
        let answer = answer.finish();
        Ok(if is_complete { answer.cacheable() } else { answer })
    }
}

impl Scan {
    /// Returns the ledgers of the next page, if any are left, and what follows unless the page ends
    /// elsewhere.
    fn next_page(&self, range: &Range) -> Result<(Option<LedgerRange>, ScanStatus), RpcError> {
        let (oldest, latest) = (range.oldest.0, range.latest.0);
        let Ok(next) = u32::try_from(self.next_ledger()) else {
            return Ok((None, ScanStatus::Complete));
        };
        Ok(match self.direction {
            Direction::OldestFirst if next > self.last() => (None, ScanStatus::Complete),
            Direction::OldestFirst if next > latest => (None, ScanStatus::WaitingForLedgers),
            Direction::OldestFirst if next < oldest => return Err(out_of_range(next, range)),
            Direction::OldestFirst => {
                let last = latest.min(self.last());
                let last = last.min(next.saturating_add(MAX_LEDGERS - 1));
                (Some(LedgerRange::new(next, last)), ScanStatus::HasMore)
            }
            Direction::NewestFirst if next < self.min => (None, ScanStatus::Complete),
            Direction::NewestFirst if next > latest => (None, ScanStatus::WaitingForLedgers),
            Direction::NewestFirst if next < oldest => (None, ScanStatus::OldestReached),
            Direction::NewestFirst => {
                let first = oldest.max(self.min).max(next.saturating_sub(MAX_LEDGERS - 1));
                (Some(LedgerRange::new(first, next)), ScanStatus::HasMore)
            }
        })
    }

    /// Starts a new scan. A descending one without an upper end gets the latest ledger as its end.
    fn with_fixed_end(mut self, range: &Range) -> Result<Self, RpcError> {
        if self.direction == Direction::NewestFirst && self.max.is_none() {
            if self.min > range.latest.0 {
                return Err(out_of_range(self.min, range));
            }
            // Fixed now, so that all pages have the same end.
            self.max = Some(range.latest.0);
        }
        Ok(self)
    }

    /// Returns the status of a scan after a page that searched all ledgers it could.
    fn status_after_page(&self, range: &Range) -> ScanStatus {
        let next = self.next_ledger();
        match self.direction {
            Direction::OldestFirst if next > self.last().into() => ScanStatus::Complete,
            Direction::OldestFirst if next > range.latest.0.into() => ScanStatus::WaitingForLedgers,
            Direction::NewestFirst if next < self.min.into() => ScanStatus::Complete,
            Direction::NewestFirst if next < range.oldest.0.into() => ScanStatus::OldestReached,
            _ => ScanStatus::HasMore,
        }
    }
}

impl Request {
    fn has_query(&self) -> bool {
        self.min_ledger.is_some_and(|ledger| ledger != 0)
            || self.max_ledger.is_some_and(|ledger| ledger != 0)
            || self.order.as_ref().is_some_and(|order| !order.is_empty())
            || self.filters.is_some()
            || self.xdr_input_format.as_ref().is_some_and(|format| !format.is_empty())
    }

    /// Returns the scan that the request describes.
    fn scan(self) -> Result<Scan, RpcError> {
        let input = XdrFormat::parse(self.xdr_input_format.as_deref());
        let input = input.map_err(|_| invalid("xdrInputFormat must be \"base64\" or \"json\""))?;
        let direction = match self.order.as_deref() {
            None | Some("" | "asc") => Direction::OldestFirst,
            Some("desc") => Direction::NewestFirst,
            Some(_) => return Err(invalid("order must be \"asc\" or \"desc\"")),
        };
        let (min, max) = (self.min_ledger.unwrap_or(0), self.max_ledger.filter(|max| *max != 0));
        if direction == Direction::OldestFirst && min == 0 {
            return Err(invalid("minLedger is required for ascending order"));
        }
        if max.is_some_and(|max| min > max) {
            return Err(invalid("minLedger must be <= maxLedger"));
        }
        let filters = match self.filters {
            None => Vec::new(),
            Some(given) if given.is_empty() || given.len() > MAX_FILTERS => {
                return Err(invalid(format!("filters must contain 1 to {MAX_FILTERS} filters")));
            }
            Some(given) => {
                let read = given.into_iter().enumerate();
                read.map(|(number, filter)| filter.0.read(number, input))
                    .collect::<Result<_, _>>()?
            }
        };
        Ok(Scan { direction, min: min.max(FIRST_LEDGER), max, after: None, filters })
    }
}

impl FilterRequest {
    fn read(self, number: usize, input: XdrFormat) -> Result<Filter, RpcError> {
        let problem = |what: &str| invalid(format!("filters[{number}]: {what}"));
        let event_type = match self.event_type.as_deref() {
            None | Some("") => None,
            Some("contract") => Some(EventType::Contract),
            Some("system") => Some(EventType::System),
            Some(_) => return Err(problem("type must be \"contract\" or \"system\"")),
        };
        let contract = self.contract_id.filter(|id| !id.is_empty());
        let contract = contract.map(|id| id.parse::<ContractId>()).transpose();
        let contract = contract.map_err(|_| problem("contractId is invalid"))?;
        let mut topics = [const { None }; 4];
        let given = [self.topic0, self.topic1, self.topic2, self.topic3];
        for (position, (given, topic)) in given.into_iter().zip(&mut topics).enumerate() {
            let Some(given) = given else { continue };
            *topic = Some(topic_xdr(given, input).ok_or_else(|| {
                let form = match input {
                    XdrFormat::Base64 => "valid base64-encoded XDR",
                    XdrFormat::Json => "an ScVal as JSON",
                };
                invalid(format!("filters[{number}].topic{position} is not {form}"))
            })?);
        }
        if contract.is_none() && event_type.is_none() && topics.iter().all(Option::is_none) {
            return Err(problem(
                "filter must specify type, contractId, or at least one topic position",
            ));
        }
        Ok(Filter { event_type, contract, topics })
    }
}

/// Returns the XDR of a topic, or `None` when it is not an `ScVal`.
fn topic_xdr(given: Value, input: XdrFormat) -> Option<Vec<u8>> {
    match input {
        XdrFormat::Base64 => scval_xdr(given.as_str()?).ok(),
        XdrFormat::Json => {
            let value: ScVal = serde_json::from_value(given).ok()?;
            value.to_xdr(ENTERED_VALUE).ok()
        }
    }
}

/// Converts filters to selections; filters that differ only in the contract are merged into one.
fn selections(filters: &[Filter]) -> Vec<Selection> {
    let mut selections: Vec<Selection> = Vec::new();
    for Filter { event_type, contract, topics } in filters {
        let same = selections.iter_mut().find(|it| {
            it.event_type == *event_type
                && it.topics == *topics
                && it.contracts.is_empty() == contract.is_none()
        });
        match same {
            Some(same) => same.contracts.extend(*contract),
            None => selections.push(Selection {
                contracts: contract.iter().copied().collect(),
                topics: topics.clone(),
                count: TopicCount::Any,
                event_type: *event_type,
            }),
        }
    }
    if selections.is_empty() {
        selections.push(Selection::default());
    }
    selections
}

impl Scan {
    /// Returns the ledger at which the scan continues; after the last sequence number, the number
    /// beyond it.
    fn next_ledger(&self) -> u64 {
        match (self.direction, self.after) {
            (Direction::OldestFirst, None) => self.min.into(),
            (Direction::NewestFirst, None) => self.last().into(),
            (Direction::OldestFirst, Some(after)) => {
                let ledger = after.ledger();
                u64::from(ledger.0) + u64::from(after >= RpcEventId::end_of(ledger))
            }
            (Direction::NewestFirst, Some(after)) => {
                let ledger = after.ledger().0;
                let is_searched = after <= RpcEventId::new(ledger, 0, 0, 0);
                u64::from(ledger).saturating_sub(is_searched.into())
            }
        }
    }

    /// Returns the last ledger of the scan.
    fn last(&self) -> u32 {
        self.max.unwrap_or(u32::MAX)
    }

    /// Records that these ledgers were searched completely.
    fn mark_searched(&mut self, ledgers: LedgerRange) {
        self.after = Some(match self.direction {
            Direction::OldestFirst => RpcEventId::end_of(ledgers.last),
            Direction::NewestFirst => RpcEventId::new(ledgers.first.0, 0, 0, 0),
        });
    }

    /// Returns the last ledger that was searched completely.
    fn scanned_ledger(&self) -> u32 {
        let scanned = match self.direction {
            Direction::OldestFirst => self.next_ledger().saturating_sub(1),
            Direction::NewestFirst => self.next_ledger().saturating_add(1),
        };
        u32::try_from(scanned).unwrap_or(u32::MAX)
    }
}
