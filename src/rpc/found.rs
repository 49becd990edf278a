//! Events in the order of the chain, whichever order their ledgers were stored in. Finds those that any of several
//! selections wants, through the indexes that the store has for each.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use super::numbers::Numbers;
use super::params::XdrFormat;
use super::{Allowed, Rpc, RpcError};
use crate::decode::EventType;
use crate::domain::{ContractId, Direction, EventId, LedgerRange, LedgerSeq, Page, RpcEventId};
use crate::store::{Bounds, EventQuery, EventRecord, LedgerRow, StoreError, TopicFilter};

/// How many times as long as base64 values may be as JSON: a map from nothing to nothing is 28 characters for 8 bytes.
const JSON_LONGER: usize = 3;

/// Some of the events: all conditions that are given hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// Of one of these contracts; of all, and of none, when empty.
    pub contracts: Vec<ContractId>,
    /// Values of the first four topics, XDR `ScVal`.
    pub topics: [Option<Vec<u8>>; 4],
    /// How many topics.
    pub count: TopicCount,
    pub event_type: Option<EventType>,
}

/// How many topics an event has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TopicCount {
    #[default]
    Any,
    Exactly(usize),
    AtLeast(usize),
}

impl Selection {
    /// What the store does not look at.
    fn admits(&self, event: &EventRecord<'_>) -> bool {
        let topics = event.topics.len();
        let count = match self.count {
            TopicCount::Any => true,
            TopicCount::Exactly(wanted) => topics == wanted,
            TopicCount::AtLeast(least) => topics >= least,
        };
        count && self.event_type.is_none_or(|wanted| event.event_type == wanted)
    }
}

/// Which events are wanted.
pub(super) struct Wanted<'a> {
    /// Of these ledgers, of which all events are stored.
    pub ledgers: LedgerRange,
    pub direction: Direction,
    /// Only those behind this one, in this direction.
    pub behind: Option<RpcEventId>,
    pub limit: usize,
    /// Any of these; never empty.
    pub selections: &'a [Selection],
}

impl Wanted<'_> {
    /// Whether an id lies behind where it begins.
    fn gets_on_with(&self, id: RpcEventId) -> bool {
        let LedgerRange { first, last } = self.ledgers;
        match self.direction {
            Direction::OldestFirst => {
                let before = RpcEventId::end_of(first.previous().unwrap_or_default());
                id > self.behind.unwrap_or(before).max(before)
            }
            Direction::NewestFirst => {
                let before = RpcEventId::new(last.0.saturating_add(1), 0, 0, 0);
                id < self.behind.unwrap_or(before).min(before)
            }
        }
    }
}

/// An event, with its id on the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub id: RpcEventId,
    pub ledger: LedgerSeq,
    /// UNIX seconds.
    pub closed_at: u64,
    pub tx: [u8; 32],
    pub contract: Option<[u8; 32]>,
    pub event_type: EventType,
    /// Whether its transaction succeeded.
    pub successful: bool,
    /// XDR of the topics and of the data, one behind the other.
    xdr: Vec<u8>,
    /// Where each topic ends in it.
    topic_ends: Vec<u32>,
}

/// A page of events.
pub(super) struct Events {
    pub events: Vec<Found>,
    /// Where it ends.
    pub end: End,
}

impl Events {
    /// Whether it ends where it does for everybody: at so many events or at the end, and not because of what this
    /// call might cost.
    pub(super) fn is_whole(&self, limit: usize) -> bool {
        match self.end {
            End::All => true,
            End::Full => self.events.len() == limit,
            End::Behind(_) => false,
        }
    }
}

/// Where a page ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// All that was wanted was looked at.
    All,
    /// It is full: what is behind its last event was not looked at.
    Full,
    /// Nothing was found, and it would have cost too much to go on: what is behind this id was not looked at.
    Behind(RpcEventId),
}

/// What a walk through several indexes may still cost.
struct Spending<'a> {
    bounds: Bounds<'a>,
    records: u64,
    index_rows: u64,
}

impl<'a> Spending<'a> {
    /// One of so many equal shares of what is left; with less than this a walk would not get on.
    fn share(&self, of: usize) -> Bounds<'a> {
        let of = of.max(1) as u64;
        let share = |left: u64| (left / of).max(1);
        Bounds { records: share(self.records), index_rows: share(self.index_rows), ..self.bounds }
    }

    fn is_over(&self) -> bool {
        self.records == 0 || self.index_rows == 0 || (self.bounds.interrupted)()
    }
}

/// Events of one piece, in which row ids ascend with the chain, as they are found through one index after the other.
struct Gathered<'a> {
    direction: Direction,
    room: usize,
    /// By rank: what comes first in the wanted direction has the lowest.
    events: BTreeMap<u64, Found>,
    /// Nothing from this rank on is known whole.
    cut: u64,
    bytes: usize,
    goes_on: &'a dyn Fn(usize) -> ControlFlow<()>,
}

impl Gathered<'_> {
    fn rank(&self, id: EventId) -> u64 {
        match self.direction {
            Direction::OldestFirst => id.0,
            Direction::NewestFirst => u64::MAX - id.0,
        }
    }

    /// Whether an event of this rank is of use.
    fn has_use_for(&self, rank: u64) -> bool {
        let last = self.events.last_key_value().map(|(rank, _)| *rank);
        rank < self.cut && (self.events.len() < self.room || last.is_some_and(|last| rank < last))
    }

    fn add(&mut self, rank: u64, event: Found) {
        self.bytes += event.size();
        if let Some(same) = self.events.insert(rank, event) {
            self.bytes -= same.size();
        }
        if self.events.len() > self.room {
            self.drop_last();
        }
        // One at least, or a page would never get on.
        while self.events.len() > 1 && (self.goes_on)(self.bytes).is_break() {
            self.cut = self.cut.min(self.drop_last());
        }
    }

    fn drop_last(&mut self) -> u64 {
        let Some((rank, event)) = self.events.pop_last() else { return 0 };
        self.bytes -= event.size();
        rank
    }
}

impl Found {
    /// An event with its number.
    pub(super) fn new(event: &EventRecord<'_>, id: RpcEventId, successful: bool) -> Self {
        let length = event.topics.iter().map(|topic| topic.len()).sum::<usize>() + event.data.len();
        let mut xdr = Vec::with_capacity(length);
        let mut topic_ends = Vec::with_capacity(event.topics.len());
        for topic in event.topics {
            xdr.extend_from_slice(topic);
            // An event is smaller than a ledger, whose length is a number of 32 bits.
            topic_ends.push(xdr.len() as u32);
        }
        xdr.extend_from_slice(event.data);
        Self {
            id,
            ledger: event.ledger,
            closed_at: event.closed_at.seconds(),
            tx: *event.tx,
            contract: event.contract.copied(),
            event_type: event.event_type,
            successful,
            xdr,
            topic_ends,
        }
    }

    /// XDR `ScVal` of each topic.
    pub(super) fn topics(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.topic_ends);
        begins.zip(&self.topic_ends).map(|(from, to)| &self.xdr[*from as usize..*to as usize])
    }

    /// XDR `ScVal` of the data.
    pub(super) fn data(&self) -> &[u8] {
        &self.xdr[self.topic_ends.last().map_or(0, |end| *end as usize)..]
    }

    /// About as many bytes as it takes in an answer, in base64.
    pub(super) fn size(&self) -> usize {
        500 + self.xdr.len() * 4 / 3
    }
}

impl Rpc {
    /// The events that are wanted, so many as are shown in this form.
    ///
    /// # Errors
    /// As [`Self::find`].
    pub(super) fn find_to_show(
        &self,
        wanted: &Wanted<'_>,
        format: XdrFormat,
        allowed: Allowed<'_>,
    ) -> Result<Events, RpcError> {
        let times = match format {
            XdrFormat::Base64 => 1,
            XdrFormat::Json => JSON_LONGER,
        };
        let goes_on = |bytes: usize| (allowed.goes_on)(bytes * times);
        self.find(wanted, Allowed { goes_on: &goes_on, ..allowed })
    }

    /// The events that are wanted, in the order of the chain.
    ///
    /// # Errors
    /// What the store says, and when not one ledger can be looked at for what a call may cost.
    fn find(&self, wanted: &Wanted<'_>, allowed: Allowed<'_>) -> Result<Events, RpcError> {
        let mut pieces = self.store.pieces(wanted.ledgers);
        if wanted.direction == Direction::NewestFirst {
            pieces.reverse();
        }
        let Bounds { records, index_rows, .. } = allowed.bounds;
        let mut spending = Spending { bounds: allowed.bounds, records, index_rows };
        let mut numbers = Numbers::of(self);
        let mut events: Vec<Found> = Vec::new();
        let mut bytes = 0;
        for piece in pieces {
            // Each piece brings one event at least.
            if !events.is_empty() && (allowed.goes_on)(bytes).is_break() {
                return self.unless_removed(wanted, Events { events, end: End::Full });
            }
            let goes_on = |more: usize| (allowed.goes_on)(bytes + more);
            let mut gathered = Gathered {
                direction: wanted.direction,
                room: wanted.limit - events.len(),
                events: BTreeMap::new(),
                cut: u64::MAX,
                bytes: 0,
                goes_on: &goes_on,
            };
            let is_over = spending.is_over();
            let is_cut = is_over || {
                self.gather(wanted, piece, &mut spending, &mut numbers, &mut gathered)?;
                gathered.cut < u64::MAX
            };
            let Gathered { events: found, cut, bytes: more, .. } = gathered;
            events
                .extend(found.into_iter().filter(|(rank, _)| *rank < cut).map(|(_, event)| event));
            bytes += more;
            if is_cut {
                // Of a piece that was not begun nothing was looked at.
                let cut = if is_over { 0 } else { cut };
                let end = match events.is_empty() {
                    false => End::Full,
                    true => {
                        let last = self.looked_at(piece, wanted.direction, cut, &mut numbers)?;
                        if !wanted.gets_on_with(last) {
                            return Err(RpcError::too_expensive());
                        }
                        End::Behind(last)
                    }
                };
                return self.unless_removed(wanted, Events { events, end });
            }
            if events.len() == wanted.limit {
                return self.unless_removed(wanted, Events { events, end: End::Full });
            }
        }
        self.unless_removed(wanted, Events { events, end: End::All })
    }

    /// What was found, unless retention has removed some of what was looked for meanwhile.
    fn unless_removed(&self, wanted: &Wanted<'_>, found: Events) -> Result<Events, RpcError> {
        let kept_from = self.store.ends().events_from;
        match wanted.ledgers.is_empty() || kept_from <= wanted.ledgers.first {
            true => Ok(found),
            false => Err(RpcError::internal(format!(
                "events before ledger {kept_from} were removed while they were read: try again"
            ))),
        }
    }

    /// Looks for the events of a piece through each selection's index.
    fn gather(
        &self,
        wanted: &Wanted<'_>,
        piece: LedgerRange,
        spending: &mut Spending<'_>,
        numbers: &mut Numbers<'_>,
        gathered: &mut Gathered<'_>,
    ) -> Result<(), RpcError> {
        let cursor = match wanted.behind {
            Some(behind) if piece.contains(behind.ledger()) => {
                numbers.cursor(behind, wanted.direction)?
            }
            _ => None,
        };
        // A walk that is interrupted has got further than its cursor: so it has one in any case.
        let ids = self.ids_of(piece)?;
        let cursor = cursor.or(Some(EventId(match wanted.direction {
            Direction::OldestFirst => ids.start.saturating_sub(1),
            Direction::NewestFirst => ids.end,
        })));
        for (number, selection) in wanted.selections.iter().enumerate() {
            let positional = selection.topics.clone();
            let query = EventQuery {
                ledgers: Some(piece),
                contracts: selection.contracts.clone(),
                topics: TopicFilter { positional, ..TopicFilter::default() },
                page: Page { direction: wanted.direction, cursor, offset: 0, limit: usize::MAX },
            };
            let mut failed = None;
            let bounds = spending.share(wanted.selections.len() - number);
            let walked = self.store.events_within(&query, bounds, |event| {
                let rank = gathered.rank(event.id);
                if !gathered.has_use_for(rank) {
                    return ControlFlow::Break(());
                }
                if !selection.admits(event) || gathered.events.contains_key(&rank) {
                    return ControlFlow::Continue(());
                }
                match numbers.found(event) {
                    Ok(event) => gathered.add(rank, event),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
            spending.records = spending.records.saturating_sub(walked.cost.records);
            spending.index_rows = spending.index_rows.saturating_sub(walked.cost.index_rows);
            if let Some(interrupted) = walked.interrupted {
                // That one was still looked at.
                gathered.cut =
                    gathered.cut.min(gathered.rank(interrupted.cursor).saturating_add(1));
            }
        }
        Ok(())
    }

    fn row(&self, ledger: LedgerSeq) -> Result<LedgerRow, RpcError> {
        Ok(self.store.ledger(ledger)?.ok_or(StoreError::Missing(ledger))?)
    }

    /// The row ids of a piece.
    fn ids_of(&self, piece: LedgerRange) -> Result<Range<u64>, RpcError> {
        let (first, last) = (self.row(piece.first)?, self.row(piece.last)?);
        Ok(first.first_event.0..last.first_event.0 + last.counts.events())
    }

    /// The last event of a piece before a rank; the edge of the piece when there is none.
    fn looked_at(
        &self,
        piece: LedgerRange,
        direction: Direction,
        cut: u64,
        numbers: &mut Numbers<'_>,
    ) -> Result<RpcEventId, RpcError> {
        let ids = self.ids_of(piece)?;
        let before = piece.first.previous().unwrap_or_default();
        let (start, end) =
            (RpcEventId::new(piece.first.0, 0, 0, 0), RpcEventId::end_of(piece.last));
        let behind = RpcEventId::new(piece.last.0.saturating_add(1), 0, 0, 0);
        let id = match direction {
            Direction::OldestFirst => cut.checked_sub(1),
            Direction::NewestFirst => (u64::MAX - cut).checked_add(1),
        };
        let id = match (id, direction) {
            (None, Direction::OldestFirst) => return Ok(RpcEventId::end_of(before)),
            (None, Direction::NewestFirst) => return Ok(behind),
            (Some(id), Direction::OldestFirst) if id < ids.start => {
                return Ok(RpcEventId::end_of(before));
            }
            (Some(id), Direction::OldestFirst) if id >= ids.end => return Ok(end),
            (Some(id), Direction::NewestFirst) if id < ids.start => return Ok(start),
            (Some(id), Direction::NewestFirst) if id >= ids.end => return Ok(behind),
            (Some(id), _) => id,
        };
        // Its ledger is the last one whose first event is not behind it.
        let (mut low, mut high) = (piece.first.0, piece.last.0);
        while low < high {
            let middle = high - (high - low) / 2;
            match self.row(LedgerSeq(middle))?.first_event.0 <= id {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        numbers.at(LedgerSeq(low), EventId(id))
    }
}
