//! The rows of indexes that follow from the events and transactions of a ledger.

use std::collections::BTreeMap;

use super::super::block::Block;
use super::super::bytes::Malformed;
use super::super::columns::{
    BlockKey, ContractBlockKey, ContractTag, Family, HashKey, HashTag, Key, TopicBlockKey,
    TopicTag, TransactionKey,
};
use super::super::database::corrupt;
use super::super::lookup::{HashEntry, HashRole};
use super::super::positions::EVENTS_PER_BLOCK;
use super::super::prepare::index_rows;
use super::super::query::TransactionPosition;
use super::super::{StoreError, transaction_record};
use super::contents::StoredLedger;
use super::tally::{Index, Side, Sink};
use crate::domain::{EventId, TxHash};

/// Events of one transaction, as ids.
#[derive(Debug, Default)]
pub(super) struct EventsOfTransaction {
    pub tx: TxHash,
    /// First of its operations' events; the ledger's first when it has none.
    pub first: Option<EventId>,
    pub operations: u64,
    pub fees: Vec<EventId>,
}

impl EventsOfTransaction {
    pub(super) fn count(&self) -> u64 {
        self.operations + self.fees.len() as u64
    }
}

/// The rows that lead to the events of a block by their contracts and topics.
pub(super) fn of_block(id: EventId, bytes: &[u8], sink: &mut impl Sink) -> Result<(), StoreError> {
    let (mut contracts, mut topics) = (Vec::new(), Vec::new());
    let mut collect = || -> Result<(), Malformed> {
        let block = Block::open(id, bytes)?;
        let mut of_event = Vec::new();
        for position in 0..block.len() {
            let event = block.event(position, &mut of_event)?;
            let contract = event.contract.map_or(ContractTag::NONE, ContractTag::of);
            if event.contract.is_some() {
                contracts.push((contract, position));
            }
            topics.extend(event.topics.iter().map(|t| (TopicTag::new(t, contract), position)));
        }
        Ok(())
    };
    collect().map_err(corrupt(Family::Events, BlockKey(id).encode()))?;
    for row in index_rows(contracts) {
        let key = ContractBlockKey { contract: row.tag, block: id };
        sink.row(Side::Expected, Index::Contract, &key.encode(), &row.positions.0.to_be_bytes());
    }
    for row in index_rows(topics) {
        let key = TopicBlockKey { tag: row.tag, block: id };
        sink.row(Side::Expected, Index::Topic, &key.encode(), &row.positions.0.to_be_bytes());
    }
    Ok(())
}

/// The rows that lead to a ledger's transactions by their only or outer hash.
pub(super) fn hashes(
    ledger: &StoredLedger,
    events: &BTreeMap<u32, EventsOfTransaction>,
    sink: &mut impl Sink,
) -> Result<(), StoreError> {
    let mut hashes: BTreeMap<u32, TxHash> =
        events.iter().map(|(order, of)| (*order, of.tx)).collect();
    let mut contracts = Vec::new();
    for (&application_order, bytes) in &ledger.transactions {
        let position = TransactionPosition { ledger: ledger.sequence, application_order };
        let record = transaction_record::decode(position, bytes, &mut contracts)
            .map_err(corrupt(Family::Transactions, TransactionKey(position).encode()))?;
        hashes.insert(application_order, TxHash::from(*record.tx));
    }
    let nothing = EventsOfTransaction::default();
    for (application_order, hash) in hashes {
        let of = events.get(&application_order).unwrap_or(&nothing);
        let first = of.first.unwrap_or(ledger.row.first_event);
        let relative = first.0.saturating_sub(ledger.row.first_event.0);
        let entry = HashEntry {
            role: HashRole::Only,
            first_event: first,
            position: (relative % EVENTS_PER_BLOCK as u64) as u8,
            events: of.operations,
            fee_events: of.fees.clone(),
        };
        let position = TransactionPosition { ledger: ledger.sequence, application_order };
        let key = HashKey { tag: HashTag::from(&hash), position };
        sink.row(Side::Expected, Index::Hash, &key.encode(), &whereabouts(&entry));
    }
    Ok(())
}

/// What a row by hash says of its events, whatever its role.
pub(super) fn whereabouts(entry: &HashEntry) -> Vec<u8> {
    HashEntry { role: HashRole::Only, ..entry.clone() }.encode()
}
