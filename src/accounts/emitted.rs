//! The events of a ledger that contracts emitted, for the two consumers to look at.

use std::ops::ControlFlow;

use super::Position;
use crate::decode::EventType;
use crate::domain::{ContractId, Direction, LedgerRange, LedgerSeq, Page};
use crate::store::{Bounds, EventQuery, Store, StoreError, TopicFilter};

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

/// What `recognise` makes of the topics and the data of a ledger's events. Only those of type `contract` count; of
/// transactions that failed there are none.
pub(super) fn recognised<Event>(
    store: &Store,
    ledger: LedgerSeq,
    recognise: impl Fn(&[&[u8]], &[u8]) -> Option<Event>,
) -> Result<Vec<Emitted<Event>>, StoreError> {
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
