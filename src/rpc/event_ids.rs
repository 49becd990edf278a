//! Event ids as Stellar RPC assigns them: by the position of an event among all events of its
//! ledger, whether those are stored here or not.

use std::ops::ControlFlow;

use super::found_event::FoundEvent;
use super::{Rpc, RpcError};
use orrery_ledger::decode::{EventView, LedgerView, Placement};
use orrery_ledger::domain::{Direction, EventId, LedgerRange, LedgerSeq, Page, RpcEventId, TxHash};
use orrery_store::{Bounds, EventQuery, EventRecord, StoreError};

/// Computes the ids of events, ledger by ledger.
pub(super) struct EventIdResolver<'s> {
    rpc: &'s Rpc,
    /// Cached ids of the ledger used last.
    last: Option<(LedgerSeq, LedgerIds)>,
}

/// Ids of all stored events of a ledger.
struct LedgerIds {
    first: EventId,
    events: Vec<ResolvedId>,
}

#[derive(Clone, Copy)]
struct ResolvedId {
    id: RpcEventId,
    /// Whether the event's transaction succeeded.
    successful: bool,
}

impl<'s> EventIdResolver<'s> {
    pub(super) fn of(rpc: &'s Rpc) -> Self {
        Self { rpc, last: None }
    }

    /// Returns an event with its Stellar RPC id.
    pub(super) fn resolve(&mut self, event: &EventRecord<'_>) -> Result<FoundEvent, RpcError> {
        let ResolvedId { id, successful } = self.resolve_id(event)?;
        Ok(FoundEvent::new(event, id, successful))
    }

    fn resolve_id(&mut self, event: &EventRecord<'_>) -> Result<ResolvedId, RpcError> {
        // The store counts events across all operations of a transaction, while Stellar RPC starts
        // anew in each operation. Failed operations have no events.
        if let Placement::Operation { operation, event_index } = event.placement
            && let Some(begins) = self.operation_begins(event)?
        {
            let index = event_index - begins.min(event_index);
            let order = event.application_order;
            let id = RpcEventId::new(event.ledger.0, order, operation, index);
            return Ok(ResolvedId { id, successful: true });
        }
        self.stored_id(event.ledger, event.id)
    }

    /// Returns the index, in its transaction, of the first event of an event's operation, if the
    /// stored events determine it.
    fn operation_begins(&self, event: &EventRecord<'_>) -> Result<Option<u32>, RpcError> {
        if event.operation_begins.is_some() {
            return Ok(event.operation_begins);
        }
        // The operation begins in an earlier block. If the preceding event belongs to the same
        // operation, it may have the index; otherwise it is the last event of the previous
        // operation.
        let Some((operation, index)) = event.op_index().zip(event.event_index()) else {
            return Ok(None);
        };
        let mut after = index;
        let page = Page { cursor: Some(event.id), ..Page::first(usize::MAX) };
        let query = EventQuery { page, ..EventQuery::of_ledgers(LedgerRange::only(event.ledger)) };
        let walked = self.rpc.store.events_within(&query, Bounds::NONE, |before| {
            let is_neighbour = before.tx == event.tx
                && before.event_index().is_some_and(|index| index + 1 == after);
            if is_neighbour && before.op_index() == Some(operation) {
                after -= 1;
                return match before.operation_begins {
                    None => ControlFlow::Continue(()),
                    begins => ControlFlow::Break(begins),
                };
            }
            ControlFlow::Break(is_neighbour.then_some(after))
        })?;
        Ok(walked.broken_off.flatten())
    }

    /// Returns the id of a stored event.
    pub(super) fn rpc_id(
        &mut self,
        ledger: LedgerSeq,
        id: EventId,
    ) -> Result<RpcEventId, RpcError> {
        self.stored_id(ledger, id).map(|event| event.id)
    }

    fn stored_id(&mut self, ledger: LedgerSeq, id: EventId) -> Result<ResolvedId, RpcError> {
        let LedgerIds { first, events } = self.ledger_ids(ledger)?;
        let place = id.0.checked_sub(first.0).and_then(|place| usize::try_from(place).ok());
        let found = place.and_then(|place| events.get(place));
        found.copied().ok_or_else(|| events_mismatch(ledger))
    }

    /// Returns the row id after which, in this direction, exactly the events after `after` follow,
    /// or `None` when those are all events of its ledger.
    pub(super) fn cursor(
        &mut self,
        after: RpcEventId,
        direction: Direction,
    ) -> Result<Option<EventId>, RpcError> {
        let LedgerIds { first, events } = self.ledger_ids(after.ledger())?;
        Ok(match direction {
            Direction::OldestFirst => {
                let passed = events.partition_point(|event| event.id <= after) as u64;
                passed.checked_sub(1).map(|last| EventId(first.0 + last))
            }
            Direction::NewestFirst => {
                let left = events.partition_point(|event| event.id < after);
                (left < events.len()).then(|| EventId(first.0 + left as u64))
            }
        })
    }

    fn ledger_ids(&mut self, ledger: LedgerSeq) -> Result<&LedgerIds, RpcError> {
        let cached = match self.last.take() {
            Some((of, cached)) if of == ledger => cached,
            _ => self.rpc.resolve_ledger(ledger)?,
        };
        Ok(&self.last.insert((ledger, cached)).1)
    }
}

impl Rpc {
    fn resolve_ledger(&self, ledger: LedgerSeq) -> Result<LedgerIds, RpcError> {
        let row = self.store.ledger(ledger)?.ok_or(StoreError::Missing(ledger))?;
        let first = row.first_event;
        let of_raw = self.with_ledger_if_stored(ledger, |view| self.ids_from_raw(ledger, view))?;
        let events = match of_raw {
            Some(events) => events,
            // The ledger was restricted to some contracts: the events left out have ids too, so
            // counting would be wrong.
            None if row.indexed_as.listed_contracts => {
                let why = format!(
                    "the ids of the events of ledger {ledger} are not known: its raw form is no longer kept"
                );
                return Err(RpcError::internal(why));
            }
            None => self.ids_from_rows(ledger)?,
        };
        Ok(LedgerIds { first, events })
    }

    /// Takes the ids from the raw ledger; the stored events are a subsequence of its events.
    fn ids_from_raw(
        &self,
        ledger: LedgerSeq,
        view: &LedgerView<'_>,
    ) -> Result<Vec<ResolvedId>, RpcError> {
        let mut all = view.events.iter();
        let mut found = Vec::new();
        let query = EventQuery::of_ledgers(LedgerRange::only(ledger));
        let walked = self.store.events_within(&query, Bounds::NONE, |row| {
            let Some(event) = all.find(|event| is_same(view, event, row)) else {
                return ControlFlow::Break(events_mismatch(ledger));
            };
            let successful = view.transactions[event.transaction].successful;
            found.push(ResolvedId { id: event.rpc_id, successful });
            ControlFlow::Continue(())
        })?;
        walked.broken_off.map_or(Ok(found), Err)
    }

    /// Counts the stored events when the raw ledger is not kept, which works because of each kind
    /// all events are stored or none.
    fn ids_from_rows(&self, ledger: LedgerSeq) -> Result<Vec<ResolvedId>, RpcError> {
        let mut counted = IdCounter::default();
        let mut found = Vec::new();
        let mut unknown = Vec::new();
        self.store.events(&EventQuery::of_ledgers(LedgerRange::only(ledger)), |row| {
            if row.successful.is_none() && row.op_index().is_none() {
                unknown.push((found.len(), TxHash::from(*row.tx)));
            }
            let successful = row.successful.unwrap_or(true);
            found.push(ResolvedId { id: counted.next(row), successful });
        })?;
        // In ledgers that were stored before outcomes were, only the records of smart-contract
        // transactions tell; the fee events of others count as successful.
        for (place, hash) in unknown {
            self.store.transaction(&hash, |record| found[place].successful = record.successful)?;
        }
        Ok(found)
    }
}

/// Numbers the events of a ledger in order.
#[derive(Default)]
struct IdCounter {
    /// Transaction and operation of the previous event, and its number in the operation.
    last: Option<(u32, u32, u32)>,
}

impl IdCounter {
    fn next(&mut self, row: &EventRecord<'_>) -> RpcEventId {
        let (transaction, operation) = match row.placement {
            Placement::BeforeAllTransactions => (0, 0),
            Placement::Operation { operation, .. } => (row.application_order, operation),
            Placement::AfterTransaction => (row.application_order, RpcEventId::AFTER_TRANSACTION),
            Placement::AfterAllTransactions => (RpcEventId::AFTER_ALL_TRANSACTIONS, 0),
        };
        let number = match self.last {
            Some((of, at, number)) if (of, at) == (transaction, operation) => number + 1,
            _ => 0,
        };
        self.last = Some((transaction, operation, number));
        RpcEventId::new(row.ledger.0, transaction, operation, number)
    }
}

fn is_same(view: &LedgerView<'_>, event: &EventView<'_>, row: &EventRecord<'_>) -> bool {
    view.transactions[event.transaction].application_order == row.application_order
        && event.placement == row.placement
        && event.contract == row.contract
        && event.event_type == row.event_type
        && view.topics(event) == row.topics
        && event.data == row.data
}

fn events_mismatch(ledger: LedgerSeq) -> RpcError {
    RpcError::internal(format!(
        "the stored events of ledger {ledger} are not those of its raw form: run orrery verify"
    ))
}
