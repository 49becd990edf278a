//! Reads the contract events of a ledger for the consumers of the account indexes.

use std::ops::ControlFlow;

use super::{AccountIndex, Position};
use crate::decode::{EventType, LedgerView, Placement};
use crate::domain::{ContractId, Direction, LedgerRange, LedgerSeq, Page};
use crate::store::{Bounds, EventQuery, Gathers, Store, StoreError, TopicFilter};

/// Value gathered from a ledger without any account event.
const NONE: &[u8] = &[0];

/// A recognised event, with its emitting contract and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted<Event> {
    /// Contract that emitted the event.
    pub contract: ContractId,
    /// Position of the event on the chain.
    pub position: Position,
    /// The recognised event.
    pub event: Event,
}

/// Returns one byte that is 1 when the index recognises any event of the ledger and 0 otherwise.
/// Most ledgers have no account event, and [`recognised`] then skips reading their events. Some
/// events checked here may not be stored; a false positive costs one read.
pub(super) fn any<I: AccountIndex>(ledger: &LedgerView<'_>) -> Vec<u8> {
    let any = ledger.events.iter().any(|event| {
        event.event_type == EventType::Contract
            && matches!(event.placement, Placement::Operation { .. })
            && I::recognise(ledger.topics(event), event.data).is_some()
    });
    vec![u8::from(any)]
}

/// Returns the events of a ledger that the index recognises. Only events of type `contract` count;
/// failed transactions have none. `any` is the [`Gathers`] that was filled by [`any`].
pub(super) fn recognised<I: AccountIndex>(
    store: &Store,
    any: &Gathers,
    ledger: LedgerSeq,
) -> Result<Vec<Emitted<I::Event>>, StoreError> {
    if store.take_gathered(any, ledger).is_some_and(|any| any == NONE) {
        return Ok(Vec::new());
    }
    let query = EventQuery {
        ledgers: Some(LedgerRange { first: ledger, last: ledger }),
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: Page {
            direction: Direction::OldestFirst,
            cursor: None,
            offset: 0,
            limit: usize::MAX,
        },
    };
    let mut found = Vec::new();
    store.events_within(&query, Bounds::NONE, |record| {
        // Fee events have no index within their transaction and never belong to an account.
        let of_contract = record.contract.filter(|_| record.event_type == EventType::Contract);
        if let (Some(contract), Some(event_index)) = (of_contract, record.event_index())
            && let Some(event) = I::recognise(record.topics, record.data)
        {
            let application_order = record.application_order;
            let position = Position { ledger: record.ledger.0, application_order, event_index };
            found.push(Emitted { contract: ContractId(*contract), position, event });
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
