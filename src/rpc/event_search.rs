//! Finds events in chain order, whatever the order in which their ledgers were ingested. An event
//! is found when it matches any of several selections, each of which is searched through the
//! indexes that fit it.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use super::event_ids::EventIdResolver;
use super::found_event::FoundEvent;
use super::params::XdrFormat;
use super::{CallLimits, Rpc, RpcError};
use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{
    ContractId, Direction, EventId, LedgerRange, LedgerSeq, Page, RpcEventId,
};
use orrery_store::{
    Bounds, EventQuery, EventRecord, LedgerRow, Needs, QueryCost, StoreError, TopicFilter,
};

/// Maximum ratio of the size of values as JSON to that as base64: a map from void to void is 28
/// characters for 8 bytes.
const MAX_JSON_EXPANSION: usize = 3;

/// Conditions on an event, all of which have to hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Wanted contracts; when empty, events of any contract and of none match.
    pub contracts: Vec<ContractId>,
    /// Wanted values of the first four topics, as XDR `ScVal`.
    pub topics: [Option<Vec<u8>>; 4],
    /// Wanted number of topics.
    pub count: TopicCount,
    pub event_type: Option<EventType>,
}

/// Condition on the number of topics of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TopicCount {
    #[default]
    Any,
    Exactly(usize),
    AtLeast(usize),
}

impl Selection {
    /// Finds the events of ledgers that may match.
    fn query(&self, ledgers: LedgerRange) -> EventQuery {
        let (contracts, positional) = (self.contracts.clone(), self.topics.clone());
        let topics = TopicFilter { positional, ..TopicFilter::default() };
        EventQuery { contracts, topics, ..EventQuery::of_ledgers(ledgers) }
    }

    /// Checks the conditions that the store does not evaluate.
    fn accepts(&self, event: &EventRecord<'_>) -> bool {
        let topics = event.topics.len();
        let count = match self.count {
            TopicCount::Any => true,
            TopicCount::Exactly(wanted) => topics == wanted,
            TopicCount::AtLeast(least) => topics >= least,
        };
        count && self.event_type.is_none_or(|wanted| event.event_type == wanted)
    }
}

/// A query for events.
pub(super) struct EventSearch<'a> {
    /// Ledgers to search, of which all events must be stored.
    pub ledgers: LedgerRange,
    pub direction: Direction,
    /// Only events after this one, in this direction.
    pub after: Option<RpcEventId>,
    pub limit: usize,
    /// An event has to match one of these; never empty.
    pub selections: &'a [Selection],
}

impl EventSearch<'_> {
    /// Returns whether a page that ends at `id` has moved beyond the start of the query.
    fn makes_progress_to(&self, id: RpcEventId) -> bool {
        let LedgerRange { first, last } = self.ledgers;
        match self.direction {
            Direction::OldestFirst => {
                let before = RpcEventId::end_of(first.previous().unwrap_or_default());
                id > self.after.unwrap_or(before).max(before)
            }
            Direction::NewestFirst => {
                let before = RpcEventId::new(last.0.saturating_add(1), 0, 0, 0);
                id < self.after.unwrap_or(before).min(before)
            }
        }
    }
}

/// A page of events.
pub(super) struct Events {
    pub events: Vec<FoundEvent>,
    /// Why the page ends.
    pub end: PageEnd,
}

impl Events {
    /// Returns whether the page ends where it would for any caller: at the limit or at the end of
    /// the ledgers, and not because of this call's bounds.
    pub(super) fn is_complete(&self, limit: usize) -> bool {
        match self.end {
            PageEnd::All => true,
            PageEnd::Full => self.events.len() == limit,
            PageEnd::OutOfBudget(_) => false,
        }
    }
}

/// Why a page ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageEnd {
    /// Everything was searched.
    All,
    /// The page is full: nothing after its last event was searched.
    Full,
    /// No event was found before the cost limit was reached: nothing after this id was searched.
    OutOfBudget(RpcEventId),
}

/// What a walk through several indexes may still cost.
struct RemainingBudget<'a> {
    bounds: Bounds<'a>,
    records: u64,
    index_rows: u64,
}

impl<'a> RemainingBudget<'a> {
    /// Returns one of `of` equal shares of what is left, at least 1 each, so that every walk makes
    /// progress.
    fn share(&self, of: usize) -> Bounds<'a> {
        let of = of.max(1) as u64;
        let share = |left: u64| (left / of).max(1);
        Bounds { records: share(self.records), index_rows: share(self.index_rows), ..self.bounds }
    }

    fn spend(&mut self, cost: QueryCost) {
        self.records = self.records.saturating_sub(cost.records);
        self.index_rows = self.index_rows.saturating_sub(cost.index_rows);
    }

    fn is_exhausted(&self) -> bool {
        self.records == 0 || self.index_rows == 0 || (self.bounds.interrupted)()
    }
}

/// Events of one piece (ledgers whose row ids ascend in chain order), collected from one index
/// after the other.
struct PieceResults<'a> {
    direction: Direction,
    limit: usize,
    /// Events by rank: the first in the wanted direction has the lowest rank.
    events: BTreeMap<u64, FoundEvent>,
    /// Rank from which on events may be missing.
    incomplete_from: u64,
    bytes: usize,
    may_grow_to: &'a dyn Fn(usize) -> ControlFlow<()>,
}

impl<'a> PieceResults<'a> {
    fn new(
        direction: Direction,
        limit: usize,
        may_grow_to: &'a dyn Fn(usize) -> ControlFlow<()>,
    ) -> Self {
        let (events, incomplete_from) = (BTreeMap::new(), u64::MAX);
        Self { direction, limit, events, incomplete_from, bytes: 0, may_grow_to }
    }

    fn rank(&self, id: EventId) -> u64 {
        match self.direction {
            Direction::OldestFirst => id.0,
            Direction::NewestFirst => u64::MAX - id.0,
        }
    }

    /// Returns whether an event of this rank would be kept.
    fn would_keep(&self, rank: u64) -> bool {
        let last = self.events.last_key_value().map(|(rank, _)| *rank);
        rank < self.incomplete_from
            && (self.events.len() < self.limit || last.is_some_and(|last| rank < last))
    }

    fn add(&mut self, rank: u64, event: FoundEvent) {
        self.bytes += event.size();
        if let Some(same) = self.events.insert(rank, event) {
            self.bytes -= same.size();
        }
        if self.events.len() > self.limit {
            self.drop_last();
        }
        // Keep at least one event, or the page would make no progress.
        while self.events.len() > 1 && (self.may_grow_to)(self.bytes).is_break() {
            self.incomplete_from = self.incomplete_from.min(self.drop_last());
        }
    }

    fn drop_last(&mut self) -> u64 {
        let Some((rank, event)) = self.events.pop_last() else { return 0 };
        self.bytes -= event.size();
        rank
    }
}

impl Rpc {
    /// Finds the wanted events; the limit on the size of the answer accounts for `format`.
    ///
    /// # Errors
    /// Fails like [`Self::find`].
    pub(super) fn find_page(
        &self,
        search: &EventSearch<'_>,
        format: XdrFormat,
        limits: CallLimits<'_>,
    ) -> Result<Events, RpcError> {
        let times = match format {
            XdrFormat::Base64 => 1,
            XdrFormat::Json => MAX_JSON_EXPANSION,
        };
        let may_grow_to = |bytes: usize| (limits.may_grow_to)(bytes * times);
        self.find(search, CallLimits { may_grow_to: &may_grow_to, ..limits })
    }

    /// Finds the wanted events, in chain order.
    ///
    /// # Errors
    /// Fails when the store does, or when the bounds do not suffice to search even one ledger.
    fn find(&self, search: &EventSearch<'_>, limits: CallLimits<'_>) -> Result<Events, RpcError> {
        let mut pieces = self.store.pieces(search.ledgers);
        if search.direction == Direction::NewestFirst {
            pieces.reverse();
        }
        let Bounds { records, index_rows, .. } = limits.bounds;
        let mut budget = RemainingBudget { bounds: limits.bounds, records, index_rows };
        let mut resolver = EventIdResolver::of(self);
        let mut events: Vec<FoundEvent> = Vec::new();
        let mut bytes = 0;
        for piece in pieces {
            // A piece may always add one event, so the size limit is checked before the piece is
            // searched.
            if !events.is_empty() && (limits.may_grow_to)(bytes).is_break() {
                return self.unless_pruned(search, Events { events, end: PageEnd::Full });
            }
            let may_grow_to = |more: usize| (limits.may_grow_to)(bytes + more);
            let mut gathered =
                PieceResults::new(search.direction, search.limit - events.len(), &may_grow_to);
            let is_exhausted = budget.is_exhausted();
            let is_incomplete = is_exhausted || {
                self.search_piece(search, piece, &mut budget, &mut resolver, &mut gathered)?;
                gathered.incomplete_from < u64::MAX
            };
            let PieceResults { events: found, incomplete_from, bytes: more, .. } = gathered;
            let found = found.into_iter().filter(|(rank, _)| *rank < incomplete_from);
            events.extend(found.map(|(_, event)| event));
            bytes += more;
            if is_incomplete {
                // Nothing was searched of a piece that was not begun.
                let incomplete_from = if is_exhausted { 0 } else { incomplete_from };
                let end = match events.is_empty() {
                    true => self.out_of_budget(search, piece, incomplete_from, &mut resolver)?,
                    false => PageEnd::Full,
                };
                return self.unless_pruned(search, Events { events, end });
            }
            if events.len() == search.limit {
                return self.unless_pruned(search, Events { events, end: PageEnd::Full });
            }
        }
        self.unless_pruned(search, Events { events, end: PageEnd::All })
    }

    /// Returns where a page without events ends in a piece of which a part was searched.
    fn out_of_budget(
        &self,
        search: &EventSearch<'_>,
        piece: LedgerRange,
        incomplete_from: u64,
        resolver: &mut EventIdResolver<'_>,
    ) -> Result<PageEnd, RpcError> {
        let last = self.last_searched(piece, search.direction, incomplete_from, resolver)?;
        match search.makes_progress_to(last) {
            true => Ok(PageEnd::OutOfBudget(last)),
            false => Err(RpcError::too_expensive()),
        }
    }

    /// Returns what was found, or an error if retention has removed some of the searched ledgers in
    /// the meantime.
    fn unless_pruned(&self, search: &EventSearch<'_>, found: Events) -> Result<Events, RpcError> {
        let removed = self.store.removed(Needs::EVENTS)?.within(search.ledgers);
        match (removed.ranges().first(), removed.ranges().last()) {
            (Some(first), Some(last)) => Err(RpcError::internal(format!(
                "events of ledgers {} to {} were removed while they were read: try again",
                first.first, last.last
            ))),
            _ => Ok(found),
        }
    }

    /// Searches a piece for events through the index of each selection.
    fn search_piece(
        &self,
        search: &EventSearch<'_>,
        piece: LedgerRange,
        budget: &mut RemainingBudget<'_>,
        resolver: &mut EventIdResolver<'_>,
        gathered: &mut PieceResults<'_>,
    ) -> Result<(), RpcError> {
        let cursor = match search.after {
            Some(after) if piece.contains(after.ledger()) => {
                resolver.cursor(after, search.direction)?
            }
            _ => None,
        };
        // An interrupted walk is guaranteed to end beyond the cursor of its query, so every query
        // gets one.
        let ids = self.row_ids(piece)?;
        let cursor = cursor.or(Some(EventId(match search.direction {
            Direction::OldestFirst => ids.start.saturating_sub(1),
            Direction::NewestFirst => ids.end,
        })));
        for (number, selection) in search.selections.iter().enumerate() {
            let page = Page { direction: search.direction, cursor, offset: 0, limit: usize::MAX };
            let query = EventQuery { page, ..selection.query(piece) };
            let bounds = budget.share(search.selections.len() - number);
            let walked = self.store.events_within(&query, bounds, |event| {
                let rank = gathered.rank(event.id);
                if !gathered.would_keep(rank) {
                    return ControlFlow::Break(Ok(()));
                }
                if !selection.accepts(event) || gathered.events.contains_key(&rank) {
                    return ControlFlow::Continue(());
                }
                match resolver.resolve(event) {
                    Ok(event) => gathered.add(rank, event),
                    Err(error) => return ControlFlow::Break(Err(error)),
                }
                ControlFlow::Continue(())
            })?;
            walked.broken_off.transpose()?;
            budget.spend(walked.cost);
            if let Some(interrupted) = walked.interrupted {
                // The event at the cursor was still examined.
                gathered.incomplete_from = gathered
                    .incomplete_from
                    .min(gathered.rank(interrupted.cursor).saturating_add(1));
            }
        }
        Ok(())
    }

    fn row(&self, ledger: LedgerSeq) -> Result<LedgerRow, RpcError> {
        Ok(self.store.ledger(ledger)?.ok_or(StoreError::Missing(ledger))?)
    }

    /// Returns the row ids of a piece.
    fn row_ids(&self, piece: LedgerRange) -> Result<Range<u64>, RpcError> {
        let (first, last) = (self.row(piece.first)?, self.row(piece.last)?);
        Ok(first.first_event.0..last.first_event.0 + last.counts.events())
    }

    /// Returns the id of the last event of a piece before a rank, or the edge of the piece when
    /// there is no such event.
    fn last_searched(
        &self,
        piece: LedgerRange,
        direction: Direction,
        incomplete_from: u64,
        resolver: &mut EventIdResolver<'_>,
    ) -> Result<RpcEventId, RpcError> {
        let ids = self.row_ids(piece)?;
        let before = piece.first.previous().unwrap_or_default();
        let (start, end) =
            (RpcEventId::new(piece.first.0, 0, 0, 0), RpcEventId::end_of(piece.last));
        let beyond = RpcEventId::new(piece.last.0.saturating_add(1), 0, 0, 0);
        let id = match direction {
            Direction::OldestFirst => incomplete_from.checked_sub(1),
            Direction::NewestFirst => (u64::MAX - incomplete_from).checked_add(1),
        };
        let id = match (id, direction) {
            (None, Direction::OldestFirst) => return Ok(RpcEventId::end_of(before)),
            (None, Direction::NewestFirst) => return Ok(beyond),
            (Some(id), Direction::OldestFirst) if id < ids.start => {
                return Ok(RpcEventId::end_of(before));
            }
            (Some(id), Direction::OldestFirst) if id >= ids.end => return Ok(end),
            (Some(id), Direction::NewestFirst) if id < ids.start => return Ok(start),
            (Some(id), Direction::NewestFirst) if id >= ids.end => return Ok(beyond),
            (Some(id), _) => id,
        };
        // The event is in the last ledger whose first event is not after it.
        let (mut low, mut high) = (piece.first.0, piece.last.0);
        while low < high {
            let middle = high - (high - low) / 2;
            if self.row(LedgerSeq(middle))?.first_event.0 <= id {
                low = middle
            } else {
                high = middle - 1
            }
        }
        resolver.rpc_id(LedgerSeq(low), EventId(id))
    }
}
