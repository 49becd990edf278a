//! The events of a ledger that contracts emitted, for the two consumers to look at.

use std::ops::ControlFlow;

use super::Position;
use crate::decode::{EventType, LedgerView, Placement};
use crate::domain::{ContractId, Direction, LedgerRange, LedgerSeq, Page};
use crate::store::{Bounds, EventQuery, Gathers, Store, StoreError, TopicFilter};

/// What is gathered from a ledger without any event of accounts.
const NONE: &[u8] = &[0];

/// What was recognised of an event, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted<Event> {
    /// Who emitted it.
    pub contract: ContractId,
    /// Where it stands.
    pub position: Position,
    /// What it is.
    pub event: Event,
}

/// Says whether `recognise` makes anything of any event of a ledger. Most ledgers have none, and [`recognised`] need not
/// read their events. Some of those that are looked at here may not be stored; that costs a read.
pub(super) fn any<Event>(
    ledger: &LedgerView<'_>,
    recognise: impl Fn(&[&[u8]], &[u8]) -> Option<Event>,
) -> Vec<u8> {
    let any = ledger.events.iter().any(|event| {
        event.event_type == EventType::Contract
            && matches!(event.placement, Placement::Operation { .. })
            && recognise(ledger.topics(event), event.data).is_some()
    });
    vec![u8::from(any)]
}

/// What `recognise` makes of the topics and the data of a ledger's events. Only those of type `contract` count; of
/// transactions that failed there are none. `any` is what was gathered with the function of this name.
pub(super) fn recognised<Event>(
    store: &Store,
    any: &Gathers,
    ledger: LedgerSeq,
    recognise: impl Fn(&[&[u8]], &[u8]) -> Option<Event>,
) -> Result<Vec<Emitted<Event>>, StoreError> {
    if store.still_gathered(any, ledger).is_some_and(|any| any == NONE) {
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
        // Events of fees have no place among those of their transaction, and are no account's.
        let of_contract = record.contract.filter(|_| record.event_type == EventType::Contract);
        if let (Some(contract), Some(event_index)) = (of_contract, record.event_index())
            && let Some(event) = recognise(record.topics, record.data)
        {
            let application_order = record.application_order;
            let position = Position { ledger: record.ledger.0, application_order, event_index };
            found.push(Emitted { contract: ContractId(*contract), position, event });
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
