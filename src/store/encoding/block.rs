//! Packed events: up to [`EVENTS_PER_BLOCK`] consecutive events of one ledger in one record, so
//! that they compress together.
//!
//! Layout, after one byte of layout version:
//!
//! ```text
//! u32 ledger · u64 close time · u8 events n · u8 transactions t · u8 contracts c
//! t × { 32 hash · u24 application order }      c × { 32 contract id }
//! n × u8 transaction index                     n × u8 contract index, 255 for none
//! n × u8 kind                                  n × u16 operation index
//! n × u32 event index                          n × u32 length of the body
//! n bodies: varint topics · that many varint lengths · topics · data
//! ```
//!
//! Layout 3 has the close time in seconds (ledgers up to protocol 29), layout 4 in milliseconds
//! (ledgers that state it in milliseconds). Layouts 1 and 2 are the same without the outcomes of
//! transactions, which are part of the kinds.
//!
//! The columns let a reader access one event without decoding the others.

use orrery_ledger::decode::{EventType, EventView, LedgerView, Placement};
use orrery_ledger::domain::{CloseTime, EventId, LedgerSeq};

use super::bytes::{Malformed, Reader, put_varint};
use super::positions::EVENTS_PER_BLOCK;
use super::records::EventRecord;
use super::stored_time;

const NO_CONTRACT: u8 = u8::MAX;
const TRANSACTION_LEN: usize = 35;
/// What the layout of a block that has outcomes is above that of its time.
const WITH_OUTCOMES: u8 = 2;

/// Encoding of an event's kind in one byte: its type in the lowest bit, whether its transaction failed
/// in the highest, its placement between them.
mod kind {
    use super::{EventType, Placement};

    const SYSTEM: u8 = 1;
    const FAILED: u8 = 1 << 7;
    const OPERATION: u8 = 0;
    const BEFORE_ALL: u8 = 1 << 1;
    const AFTER_TRANSACTION: u8 = 2 << 1;
    const AFTER_ALL: u8 = 3 << 1;

    pub(crate) fn encode(event_type: EventType, placement: Placement, failed: bool) -> u8 {
        let placement = match placement {
            Placement::Operation { .. } => OPERATION,
            Placement::BeforeAllTransactions => BEFORE_ALL,
            Placement::AfterTransaction => AFTER_TRANSACTION,
            Placement::AfterAllTransactions => AFTER_ALL,
        };
        let event_type = if event_type == EventType::System { SYSTEM } else { 0 };
        placement | event_type | if failed { FAILED } else { 0 }
    }

    pub(crate) fn event_type(kind: u8) -> EventType {
        if kind & SYSTEM == 0 { EventType::Contract } else { EventType::System }
    }

    pub(crate) fn is_failed(kind: u8) -> bool {
        kind & FAILED != 0
    }

    pub(crate) fn placement(kind: u8, operation: u32, event_index: u32) -> Placement {
        match kind & !SYSTEM & !FAILED {
            OPERATION => Placement::Operation { operation, event_index },
            BEFORE_ALL => Placement::BeforeAllTransactions,
            AFTER_TRANSACTION => Placement::AfterTransaction,
            _ => Placement::AfterAllTransactions,
        }
    }
}

/// Packs up to [`EVENTS_PER_BLOCK`] events of one ledger, in order.
pub(crate) fn encode(ledger: &LedgerView<'_>, events: &[&EventView<'_>]) -> Vec<u8> {
    debug_assert!(!events.is_empty() && events.len() <= EVENTS_PER_BLOCK);
    let transactions = distinct(events.iter().map(|event| event.transaction));
    let contracts = distinct(events.iter().filter_map(|event| event.contract));

    let mut out = Vec::with_capacity(events.len() * 320);
    let (layout, close_time) = stored_time::encode(ledger.header.closed_at());
    out.push(layout + WITH_OUTCOMES);
    out.extend_from_slice(&ledger.header.sequence.0.to_be_bytes());
    out.extend_from_slice(&close_time);
    out.extend_from_slice(&[events.len() as u8, transactions.len() as u8, contracts.len() as u8]);
    for &index in &transactions {
        let transaction = &ledger.transactions[index];
        out.extend_from_slice(transaction.hash.as_bytes());
        out.extend_from_slice(&transaction.application_order.to_be_bytes()[1..]);
    }
    for contract in &contracts {
        out.extend_from_slice(*contract);
    }
    // There are at most EVENTS_PER_BLOCK of each, so an index fits one byte and 255 stays free.
    let index_of = |found: Option<usize>| found.map_or(NO_CONTRACT, |index| index as u8);
    out.extend(
        events
            .iter()
            .map(|event| index_of(transactions.iter().position(|t| *t == event.transaction))),
    );
    out.extend(events.iter().map(|event| {
        index_of(event.contract.and_then(|id| contracts.iter().position(|c| *c == id)))
    }));
    out.extend(events.iter().map(|event| {
        let failed = !ledger.transactions[event.transaction].successful;
        kind::encode(event.event_type, event.placement, failed)
    }));
    for event in events {
        out.extend_from_slice(&(operation_of(event) as u16).to_be_bytes());
    }
    for event in events {
        out.extend_from_slice(&index_in_transaction(event).to_be_bytes());
    }
    let lengths_at = out.len();
    out.resize(lengths_at + 4 * events.len(), 0);
    for (i, event) in events.iter().enumerate() {
        let start = out.len();
        put_body(&mut out, ledger.topics(event), event.data);
        let length = (out.len() - start) as u32;
        out[lengths_at + 4 * i..][..4].copy_from_slice(&length.to_be_bytes());
    }
    out
}

fn put_body(out: &mut Vec<u8>, topics: &[&[u8]], data: &[u8]) {
    put_varint(out, topics.len() as u64);
    for topic in topics {
        put_varint(out, topic.len() as u64);
    }
    for topic in topics {
        out.extend_from_slice(topic);
    }
    out.extend_from_slice(data);
}

fn operation_of(event: &EventView<'_>) -> u32 {
    match event.placement {
        Placement::Operation { operation, .. } => operation,
        _ => 0,
    }
}

fn index_in_transaction(event: &EventView<'_>) -> u32 {
    match event.placement {
        Placement::Operation { event_index, .. } => event_index,
        _ => 0,
    }
}

/// Returns the distinct values in order of first occurrence; there are few enough for a linear
/// search.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen: Vec<T> = Vec::with_capacity(16);
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// A packed block, opened for reading.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    first: EventId,
    ledger: LedgerSeq,
    closed_at: CloseTime,
    has_outcomes: bool,
    transactions: &'a [u8],
    contracts: &'a [u8],
    transaction_of: &'a [u8],
    contract_of: &'a [u8],
    kinds: &'a [u8],
    operations: &'a [u8],
    event_indexes: &'a [u8],
    body_ends: [u32; EVENTS_PER_BLOCK],
    bodies: &'a [u8],
}

impl<'a> Block<'a> {
    /// Opens the block that is stored under the id of its first event.
    pub(crate) fn open(first: EventId, bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let layout = reader.u8()?;
        let has_outcomes = layout > WITH_OUTCOMES;
        let layout_of_time = if has_outcomes { layout - WITH_OUTCOMES } else { layout };
        let ledger = LedgerSeq(reader.u32()?);
        let closed_at = stored_time::decode(layout_of_time, *reader.array()?)?;
        let [events, transactions, contracts] = reader.array()?.map(usize::from);
        if events == 0 || events > EVENTS_PER_BLOCK {
            return Err(Malformed);
        }
        let transactions = reader.take(transactions * TRANSACTION_LEN)?;
        let contracts = reader.take(contracts * 32)?;
        let transaction_of = reader.take(events)?;
        let contract_of = reader.take(events)?;
        let kinds = reader.take(events)?;
        let operations = reader.take(2 * events)?;
        let event_indexes = reader.take(4 * events)?;
        let lengths = reader.take(4 * events)?;
        let bodies = reader.rest();
        let mut body_ends = [0; EVENTS_PER_BLOCK];
        let mut end = 0u32;
        for (slot, length) in body_ends.iter_mut().zip(lengths.as_chunks::<4>().0) {
            end = end.checked_add(u32::from_be_bytes(*length)).ok_or(Malformed)?;
            *slot = end;
        }
        if end as usize != bodies.len() {
            return Err(Malformed);
        }
        Ok(Self {
            first,
            ledger,
            closed_at,
            has_outcomes,
            transactions,
            contracts,
            transaction_of,
            contract_of,
            kinds,
            operations,
            event_indexes,
            body_ends,
            bodies,
        })
    }

    /// Number of events in the block.
    pub(crate) fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Ledger of all events in the block.
    pub(crate) fn ledger(&self) -> LedgerSeq {
        self.ledger
    }

    /// Hashes and application orders of the transactions that emitted the events.
    pub(crate) fn transactions(&self) -> impl Iterator<Item = (&'a [u8; 32], u32)> {
        self.transactions.chunks_exact(TRANSACTION_LEN).filter_map(split_transaction)
    }

    /// Reads the event at a position below [`Self::len`]. `topics` is a reusable buffer for its
    /// topics.
    pub(crate) fn event<'t>(
        &self,
        position: usize,
        topics: &'t mut Vec<&'a [u8]>,
    ) -> Result<EventRecord<'t>, Malformed>
    where
        'a: 't,
    {
        let kind = *self.kinds.get(position).ok_or(Malformed)?;
        let (tx, application_order) = self.transaction(position)?;
        let data = self.body(position, topics)?;
        let operation = u16_at(self.operations, position)?.into();
        let event_index = u32_at(self.event_indexes, position)?;
        Ok(EventRecord {
            id: EventId(self.first.0 + position as u64),
            ledger: self.ledger,
            closed_at: self.closed_at,
            tx,
            application_order,
            placement: kind::placement(kind, operation, event_index),
            operation_begins: self.operation_begins(position)?,
            contract: self.contract(position)?,
            event_type: kind::event_type(kind),
            successful: self.has_outcomes.then(|| !kind::is_failed(kind)),
            topics,
            data,
        })
    }

    /// Returns the index, within its transaction, of the first event of the operation that emitted
    /// the event at a position. `None` for fee events, and when this block does not determine it
    /// because an earlier event is in another block or was not stored.
    fn operation_begins(&self, position: usize) -> Result<Option<u32>, Malformed> {
        let is_of_operation = |at: usize| {
            let kind = *self.kinds.get(at).ok_or(Malformed)?;
            Ok(matches!(kind::placement(kind, 0, 0), Placement::Operation { .. }))
        };
        if !is_of_operation(position)? {
            return Ok(None);
        }
        let operation = u16_at(self.operations, position)?;
        let mut begins = u32_at(self.event_indexes, position)?;
        let mut at = position;
        // Operation 0 emits the first events, and neighbouring events have consecutive indexes.
        while operation > 0 && begins > 0 {
            let Some(before) = at.checked_sub(1) else { return Ok(None) };
            let is_neighbour = self.transaction_of.get(before) == self.transaction_of.get(at)
                && is_of_operation(before)?
                && u32_at(self.event_indexes, before)?.checked_add(1) == Some(begins);
            if !is_neighbour {
                return Ok(None);
            }
            if u16_at(self.operations, before)? != operation {
                break;
            }
            (at, begins) = (before, begins - 1);
        }
        Ok(Some(if operation == 0 { 0 } else { begins }))
    }

    /// Returns the contract that emitted the event at a position.
    pub(crate) fn contract(&self, position: usize) -> Result<Option<&'a [u8; 32]>, Malformed> {
        let index = *self.contract_of.get(position).ok_or(Malformed)?;
        if index == NO_CONTRACT {
            return Ok(None);
        }
        let (contracts, _) = self.contracts.as_chunks::<32>();
        contracts.get(usize::from(index)).map(Some).ok_or(Malformed)
    }

    fn transaction(&self, position: usize) -> Result<(&'a [u8; 32], u32), Malformed> {
        let index = usize::from(*self.transaction_of.get(position).ok_or(Malformed)?);
        let entry = self.transactions.get(index * TRANSACTION_LEN..).ok_or(Malformed)?;
        split_transaction(entry.get(..TRANSACTION_LEN).ok_or(Malformed)?).ok_or(Malformed)
    }

    /// Number of bytes of the topics and data of the event at a position below [`Self::len`].
    pub(crate) fn body_bytes(&self, position: usize) -> u32 {
        let end = self.body_ends[position];
        // `open` computed the ends as a running sum, so they ascend.
        if position == 0 { end } else { end - self.body_ends[position - 1] }
    }

    /// Fills `topics` and returns the data of the event at a position.
    pub(crate) fn body(
        &self,
        position: usize,
        topics: &mut Vec<&'a [u8]>,
    ) -> Result<&'a [u8], Malformed> {
        let end = self.body_ends[position] as usize;
        let start = if position == 0 { 0 } else { self.body_ends[position - 1] as usize };
        let mut lengths = Reader::new(self.bodies.get(start..end).ok_or(Malformed)?);
        let count = lengths.len()?;
        let mut values = lengths;
        for _ in 0..count {
            values.varint()?;
        }
        topics.clear();
        for _ in 0..count {
            topics.push(values.take(lengths.len()?)?);
        }
        Ok(values.rest())
    }
}

fn split_transaction(entry: &[u8]) -> Option<(&[u8; 32], u32)> {
    let (hash, order) = entry.split_first_chunk::<32>()?;
    let [high, middle, low] = *order.first_chunk::<3>()?;
    Some((hash, u32::from_be_bytes([0, high, middle, low])))
}

fn u16_at(column: &[u8], position: usize) -> Result<u16, Malformed> {
    column.as_chunks::<2>().0.get(position).map(|b| u16::from_be_bytes(*b)).ok_or(Malformed)
}

fn u32_at(column: &[u8], position: usize) -> Result<u32, Malformed> {
    column.as_chunks::<4>().0.get(position).map(|b| u32::from_be_bytes(*b)).ok_or(Malformed)
}

/// An event block of a prepared ledger.
#[derive(Debug)]
pub(crate) struct PreparedBlock {
    /// Number of its events.
    pub events: u64,
    /// Its encoding, for the cache of decompressed blocks; `None` when it is not to be cached.
    pub encoded: Option<Vec<u8>>,
    /// The compressed form, which is stored.
    pub compressed: Vec<u8>,
}
