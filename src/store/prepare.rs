//! A decoded ledger to what will be written of it, all but the row ids. Pure, so that any number of
//! ledgers can be prepared at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::StoreError;
use super::block;
use super::columns::{ContractTag, EntryTag, HashTag, TopicTag};
use super::compression::{self, Content};
use super::coverage::Sums;
use super::digest::{Digest, LedgerHasher};
use super::entries::{self, Changed};
use super::indexed_as::{IndexedAs, Settings};
use super::ledgers::LedgerCounts;
use super::listings::Listed;
use super::lookup::HashRole;
use super::positions::{EVENTS_PER_BLOCK, Positions};
use super::query::EventRecord;
use super::raw_form;
use super::transaction_block::Packer;
use crate::decode::{EventView, LedgerView, Placement, TransactionView};
use crate::domain::{CompressedLedger, ContractId, EventId, LedgerHash, LedgerSeq, TxHash};
use crate::verify::Link;

/// What of a ledger is indexed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IndexOptions {
    /// Also the unified events of classic operations (CAP-67).
    pub classic_events: bool,
    /// Also the fee events of all transactions.
    pub fee_events: bool,
    /// Only events of these contracts, and transactions that touch one of them.
    pub contracts: Option<BTreeSet<ContractId>>,
    /// Whether the raw ledger is kept as well.
    pub raw_ledgers: bool,
}

impl IndexOptions {
    pub(super) fn wants_event(
        &self,
        transaction: &TransactionView<'_>,
        event: &EventView<'_>,
    ) -> bool {
        let kind = match event.placement {
            // What the operations of a failed transaction did is undone, and their events with it: no
            // network writes any.
            Placement::Operation { .. } => {
                transaction.successful && (transaction.smart_contract || self.classic_events)
            }
            _ => self.fee_events,
        };
        let contract = || match (&self.contracts, event.contract) {
            (None, _) => true,
            (Some(listed), Some(id)) => listed.contains(&ContractId(*id)),
            (Some(_), None) => false,
        };
        kind && contract()
    }

    fn wants_transaction(&self, transaction: &TransactionView<'_>) -> bool {
        let listed = || match &self.contracts {
            None => true,
            Some(listed) => transaction.contracts.iter().any(|id| listed.contains(id)),
        };
        transaction.smart_contract && listed()
    }
}

/// A ledger ready to be written.
#[derive(Debug)]
pub struct PreparedLedger {
    pub(super) sequence: LedgerSeq,
    pub(super) hash: LedgerHash,
    pub(super) previous_hash: LedgerHash,
    pub(super) close_time: u64,
    pub(super) protocol: u32,
    pub(super) counts: LedgerCounts,
    pub(super) indexed_as: IndexedAs,
    /// The only contracts that were indexed.
    pub(super) listed: Listed,
    pub(super) digest: Digest,
    pub(super) raw: Option<Vec<u8>>,
    pub(super) blocks: Vec<PreparedBlock>,
    pub(super) contracts: Vec<IndexRow<ContractTag>>,
    pub(super) topics: Vec<IndexRow<TopicTag>>,
    pub(super) transactions: Vec<PreparedTransaction>,
    pub(super) hashes: Vec<PreparedHash>,
    pub(super) entries: Vec<PreparedEntry>,
}

/// One event block.
#[derive(Debug)]
pub(super) struct PreparedBlock {
    pub bytes: Vec<u8>,
    pub events: usize,
}

/// One row of an index of events: where in one block something occurs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct IndexRow<T> {
    pub tag: T,
    /// The block's first event, counted from the first event of the ledger.
    pub block: u64,
    pub positions: Positions,
}

/// One smart-contract transaction and its index rows.
#[derive(Debug)]
pub(super) struct PreparedTransaction {
    pub application_order: u32,
    pub row: Vec<u8>,
    pub contracts: Vec<ContractTag>,
}

/// One entry that a transaction changed, or its time to live, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PreparedEntry {
    pub tag: EntryTag,
    pub application_order: u32,
    pub changed: Changed,
}

/// One hash to be found; event ids are counted from the first event of the ledger.
#[derive(Debug)]
pub(super) struct PreparedHash {
    pub tag: HashTag,
    pub application_order: u32,
    pub role: HashRole,
    pub first_event: u64,
    pub events: u64,
    pub fee_events: Vec<u64>,
}

impl PreparedLedger {
    /// Packs and indexes what `options` want of a ledger.
    ///
    /// # Errors
    /// [`StoreError::Compression`] when zstd refuses.
    pub fn new(ledger: &LedgerView<'_>, options: &IndexOptions) -> Result<Self, StoreError> {
        Self::with_compressed(ledger, None, options)
    }

    /// The same with what the ledger's source has compressed, which may be kept as it is.
    ///
    /// # Errors
    /// [`StoreError::Compression`] when zstd refuses.
    pub fn with_compressed(
        ledger: &LedgerView<'_>,
        at_source: Option<&CompressedLedger>,
        options: &IndexOptions,
    ) -> Result<Self, StoreError> {
        let header = &ledger.header;
        let wanted: Vec<&EventView<'_>> = ledger
            .events
            .iter()
            .filter(|event| options.wants_event(&ledger.transactions[event.transaction], event))
            .collect();
        let mut of_transaction = vec![EventsOfTransaction::default(); ledger.transactions.len()];
        for (number, event) in wanted.iter().enumerate() {
            of_transaction[event.transaction].add(number as u64, event.placement);
        }
        let mut counts = count(ledger, &wanted);
        let mut stored_transactions = Vec::new();
        let mut packer = Packer::default();
        let mut hashes = Vec::new();
        for (transaction, events) in ledger.transactions.iter().zip(of_transaction) {
            let stored = options.wants_transaction(transaction);
            if stored {
                counts.stored_transactions += 1;
                packer.add(transaction, header.close_time, events.count() as u32)?;
                stored_transactions.push(transaction);
            }
            if stored || events.count() > 0 {
                prepare_hashes(transaction, events, &mut hashes);
            }
        }
        let entries = prepare_entries(&stored_transactions);
        let prepare = |(transaction, row): (&&TransactionView<'_>, Vec<u8>)| PreparedTransaction {
            application_order: transaction.application_order,
            row,
            contracts: transaction.contracts.iter().map(ContractTag::from).collect(),
        };
        let transactions = stored_transactions.iter().zip(packer.finish()?).map(prepare).collect();
        // In the order of the keys, which is how the database takes rows in fastest.
        hashes.sort_unstable_by_key(|hash| (hash.tag, hash.application_order));
        let (contracts, topics) = index(ledger, &wanted);
        let raw = match options.raw_ledgers {
            true => Some(raw_form::pack(ledger.raw, at_source)?),
            false => None,
        };
        Ok(Self {
            sequence: header.sequence,
            hash: header.hash,
            previous_hash: header.previous_hash,
            close_time: header.close_time,
            protocol: header.protocol,
            counts,
            indexed_as: IndexedAs::from(options),
            listed: options.contracts.clone().map(Arc::new),
            digest: digest(ledger, &wanted),
            raw,
            blocks: wanted
                .chunks(EVENTS_PER_BLOCK)
                .map(|part| prepare_block(ledger, part))
                .collect::<Result<_, _>>()?,
            contracts,
            topics,
            transactions,
            hashes,
            entries,
        })
    }

    /// What is kept of it for good, as a summand of its range.
    pub(super) fn sums(&self) -> Sums {
        let settings = Settings::from(self.indexed_as);
        Sums { events: self.counts.events(), digest: self.digest, settings }
    }

    /// About how many bytes its rows take.
    pub(super) fn bytes(&self) -> usize {
        const PER_INDEX_ROW: usize = 32;
        const PER_HASH: usize = 64;
        let raw = self.raw.as_ref().map_or(0, Vec::len);
        let block = |block: &PreparedBlock| PER_INDEX_ROW + block.bytes.len();
        let transaction = |transaction: &PreparedTransaction| {
            transaction.row.len() + PER_INDEX_ROW * transaction.contracts.len()
        };
        raw + self.blocks.iter().map(block).sum::<usize>()
            + self.transactions.iter().map(transaction).sum::<usize>()
            + PER_INDEX_ROW * (self.contracts.len() + self.topics.len() + self.entries.len())
            + PER_HASH * self.hashes.len()
            + 1024
    }

    /// Its place in the chain.
    pub fn link(&self) -> Link {
        let Self { sequence, hash, previous_hash, .. } = *self;
        Link { sequence, hash, previous_hash }
    }

    /// Its sequence number.
    pub fn sequence(&self) -> LedgerSeq {
        self.sequence
    }

    /// What it holds and what will be stored of it.
    pub fn counts(&self) -> &LedgerCounts {
        &self.counts
    }
}

#[derive(Debug, Clone, Default)]
struct EventsOfTransaction {
    first: u64,
    operations: u64,
    fees: Vec<u64>,
}

impl EventsOfTransaction {
    fn add(&mut self, number: u64, placement: Placement) {
        match placement {
            Placement::Operation { .. } => {
                if self.operations == 0 {
                    self.first = number;
                }
                self.operations += 1;
            }
            _ => self.fees.push(number),
        }
    }

    fn count(&self) -> u64 {
        self.operations + self.fees.len() as u64
    }
}

fn count(ledger: &LedgerView<'_>, wanted: &[&EventView<'_>]) -> LedgerCounts {
    let transactions = &ledger.transactions;
    let mut counts = LedgerCounts {
        transactions: transactions.len() as u32,
        failed: transactions.iter().filter(|t| !t.successful).count() as u32,
        smart_contract: transactions.iter().filter(|t| t.smart_contract).count() as u32,
        ..LedgerCounts::default()
    };
    for event in wanted {
        let by_contract = transactions[event.transaction].smart_contract;
        match event.placement {
            Placement::Operation { .. } if by_contract => counts.contract_events += 1,
            Placement::Operation { .. } => counts.classic_events += 1,
            _ => counts.fee_events += 1,
        }
    }
    counts
}

fn digest(ledger: &LedgerView<'_>, events: &[&EventView<'_>]) -> Digest {
    let header = &ledger.header;
    let mut hasher = LedgerHasher::new(header.sequence, &header.hash, events.len() as u64);
    events.iter().for_each(|event| hasher.event(&as_record(ledger, event)));
    hasher.finish()
}

/// An event as the store gives it back, but for its row id.
pub(super) fn as_record<'a>(
    ledger: &'a LedgerView<'a>,
    event: &'a EventView<'a>,
) -> EventRecord<'a> {
    let transaction = &ledger.transactions[event.transaction];
    let (op_index, event_index) = match event.placement {
        Placement::Operation { operation, event_index } => (Some(operation), Some(event_index)),
        _ => (None, None),
    };
    EventRecord {
        id: EventId(0),
        ledger: ledger.header.sequence,
        closed_at: ledger.header.close_time,
        tx: transaction.hash.as_bytes(),
        application_order: transaction.application_order,
        op_index,
        event_index,
        contract: event.contract,
        event_type: event.event_type,
        topics: ledger.topics(event),
        data: event.data,
    }
}

fn prepare_block(
    ledger: &LedgerView<'_>,
    events: &[&EventView<'_>],
) -> Result<PreparedBlock, StoreError> {
    let bytes = compression::compress(Content::Events, &block::encode(ledger, events))?;
    Ok(PreparedBlock { bytes, events: events.len() })
}

fn index(
    ledger: &LedgerView<'_>,
    events: &[&EventView<'_>],
) -> (Vec<IndexRow<ContractTag>>, Vec<IndexRow<TopicTag>>) {
    let mut contracts = Vec::with_capacity(events.len());
    let mut topics = Vec::with_capacity(4 * events.len());
    for (number, event) in events.iter().enumerate() {
        let contract = event.contract.map_or(ContractTag::NONE, ContractTag::of);
        if event.contract.is_some() {
            contracts.push((contract, number));
        }
        topics.extend(ledger.topics(event).iter().map(|t| (TopicTag::new(t, contract), number)));
    }
    (index_rows(contracts), index_rows(topics))
}

/// The rows of an index, in the order of their keys, of the events in which each tag occurs.
pub(super) fn index_rows<T: Ord + Copy>(mut occurrences: Vec<(T, usize)>) -> Vec<IndexRow<T>> {
    occurrences.sort_unstable();
    let mut rows: Vec<IndexRow<T>> = Vec::with_capacity(occurrences.len());
    for (tag, number) in occurrences {
        let position = number % EVENTS_PER_BLOCK;
        let block = (number - position) as u64;
        match rows.last_mut() {
            Some(row) if row.tag == tag && row.block == block => row.positions.insert(position),
            _ => {
                let mut positions = Positions::default();
                positions.insert(position);
                rows.push(IndexRow { tag, block, positions });
            }
        }
    }
    rows
}

/// The entries that these transactions changed, in the order of their keys.
fn prepare_entries(transactions: &[&TransactionView<'_>]) -> Vec<PreparedEntry> {
    let mut entries = Vec::new();
    for transaction in transactions {
        let application_order = transaction.application_order;
        let rows = entries::rows(&transaction.changed_entries).into_iter();
        entries.extend(rows.map(|(tag, changed)| PreparedEntry {
            tag,
            application_order,
            changed,
        }));
    }
    entries.sort_unstable();
    entries
}

fn prepare_hashes(
    transaction: &TransactionView<'_>,
    events: EventsOfTransaction,
    hashes: &mut Vec<PreparedHash>,
) {
    let mut prepare = |hash: &TxHash, role: HashRole| {
        hashes.push(PreparedHash {
            tag: HashTag::from(hash),
            application_order: transaction.application_order,
            role,
            first_event: events.first,
            events: events.operations,
            fee_events: events.fees.clone(),
        });
    };
    match transaction.inner_hash {
        None => prepare(&transaction.hash, HashRole::Only),
        Some(inner) => {
            prepare(&transaction.hash, HashRole::Outer { inner });
            prepare(&inner, HashRole::Inner(inner));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_rows_come_in_the_order_of_their_keys() {
        let row = |tag, block, word| IndexRow { tag, block, positions: Positions(word) };
        let rows = index_rows(vec![(2, 64), (1, 130), (2, 0), (1, 3), (2, 127), (1, 3)]);
        assert_eq!(
            rows,
            [row(1, 0, 1 << 3), row(1, 128, 1 << 2), row(2, 0, 1), row(2, 64, 1 << 63 | 1)]
        );
    }
}
