//! Removing what is older than the operator wants to keep. Works in small batches beside ingestion
//! and keeps no state of its own: what is still there and too old is what is left to do.

use super::block::Block;
use super::bytes::Malformed;
use super::columns::{
    BlockKey, ContractBlockKey, ContractTag, ContractTransactionKey, Family, HashKey, HashTag, Key,
    LedgerKey, TopicBlockKey, TopicTag, TransactionKey,
};
use super::compression::{self, Content};
use super::database::{Batch, Snapshot, corrupt};
use super::intervals::Intervals;
use super::lookup::{HashEntry, HashRole};
use super::query::TransactionPosition;
use super::transaction_block::{Row, TransactionBlock};
use super::{Store, StoreError, TOTALS_ROW, entries, transaction_record};
use crate::domain::{ContractId, EventId, LedgerRange, LedgerSeq, TxHash};

/// Records removed with one write.
const RECORDS_PER_BATCH: usize = 64;

/// How many of the newest ledgers are kept; `None` keeps all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// Raw ledgers.
    pub raw_ledgers: Option<u32>,
    /// Events.
    pub events: Option<u32>,
    /// Smart-contract transactions.
    pub transactions: Option<u32>,
}

/// What one step removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Raw ledgers were removed up to here.
    pub raw_ledgers: bool,
    /// Events.
    pub events: u64,
    /// Smart-contract transactions.
    pub transactions: u64,
}

impl Pruned {
    /// Whether nothing was left to remove.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Store {
    /// Removes one batch of what is too old. Call again until nothing is left. Does nothing while
    /// an import has ledgers that are not durable yet.
    ///
    /// # Errors
    /// What the database says; what was removed before stays removed.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned, StoreError> {
        let Some(latest) = self.coverage.read().latest() else { return Ok(Pruned::default()) };
        // The first ledger to keep.
        let floor = |kept: Option<u32>| match kept {
            Some(kept) => LedgerSeq((latest.0 + 1).saturating_sub(kept)),
            None => LedgerSeq(0),
        };
        let mut pruned = Pruned {
            raw_ledgers: self.prune_raw(floor(retention.raw_ledgers))?,
            ..Pruned::default()
        };
        let snapshot = self.database.snapshot();
        let mut batch = self.database.batch();
        let events_from = floor(retention.events);
        let mut blocks = Vec::new();
        pruned.events = self.prune_events(&snapshot, &mut batch, events_from, &mut blocks)?;
        let transactions_from = floor(retention.transactions);
        pruned.transactions = prune_transactions(&snapshot, &mut batch, transactions_from)?;
        if pruned.events == 0 && pruned.transactions == 0 {
            return Ok(pruned);
        }
        let writer = self.writer.lock();
        if writer.unlogged {
            return Ok(Pruned::default());
        }
        let mut totals = *self.totals.read();
        totals.events = totals.events.saturating_sub(pruned.events);
        totals.transactions = totals.transactions.saturating_sub(pruned.transactions);
        totals.events_from = totals.events_from.max(events_from);
        totals.transactions_from = totals.transactions_from.max(transactions_from);
        batch.put_raw(Family::Meta, TOTALS_ROW, &totals.encode())?;
        let _change = self.generations.change();
        self.database.write_logged(batch)?;
        self.database.forget_event_blocks(&blocks);
        *self.totals.write() = totals;
        Ok(pruned)
    }

    fn prune_raw(&self, keep_from: LedgerSeq) -> Result<bool, StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(Family::LedgerXdr)?;
        rows.seek_to_first();
        let first = rows.key().and_then(LedgerKey::decode);
        rows.status()?;
        let (Some(first), Some(last)) =
            (first.filter(|key| key.0 < keep_from), keep_from.previous())
        else {
            return Ok(false);
        };
        let (first, last) = (first.encode(), LedgerKey(last).encode());
        let writer = self.writer.lock();
        if writer.unlogged {
            return Ok(false);
        }
        let mut batch = self.database.batch();
        batch.delete_range(Family::LedgerXdr, &first, &LedgerKey(keep_from).encode())?;
        let _change = self.generations.change();
        self.database.write_logged(batch)?;
        self.database.drop_files(Family::LedgerXdr, &first, &last)?;
        Ok(true)
    }

    fn prune_events(
        &self,
        snapshot: &Snapshot<'_>,
        batch: &mut Batch<'_>,
        keep_from: LedgerSeq,
        removed: &mut Vec<EventId>,
    ) -> Result<u64, StoreError> {
        let Some(last) = keep_from.previous() else { return Ok(0) };
        let mut rows = snapshot.rows(Family::Events)?;
        let intervals = Intervals::of_ledgers(self, LedgerRange::new(0, last));
        let mut interval = intervals.first()?;
        let mut events = 0;
        while let Some(ids) = interval {
            rows.seek(BlockKey(EventId(ids.first)).encode());
            let mut beyond = None;
            while let Some((key, bytes)) = rows.item() {
                let damaged = |e| corrupt(Family::Events, key)(e);
                let id = BlockKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
                if removed.len() == RECORDS_PER_BATCH {
                    return Ok(events);
                }
                if id.0 > ids.last {
                    beyond = Some(id.0);
                    break;
                }
                let bytes = compression::decompress(Content::Events, bytes)?;
                let block = Block::open(id, &bytes).map_err(damaged)?;
                remove_block(snapshot, batch, BlockKey(id), &block)?;
                events += block.len() as u64;
                removed.push(id);
                rows.next();
            }
            rows.status()?;
            interval = beyond.map_or(Ok(None), |id| intervals.at_or_after(id))?;
        }
        Ok(events)
    }
}

fn remove_block(
    snapshot: &Snapshot<'_>,
    batch: &mut Batch<'_>,
    key: BlockKey,
    block: &Block<'_>,
) -> Result<(), StoreError> {
    let damaged = |e| corrupt(Family::Events, key.encode())(e);
    let mut topics = Vec::new();
    for position in 0..block.len() {
        let event = block.event(position, &mut topics).map_err(damaged)?;
        let contract = event.contract.map_or(ContractTag::NONE, ContractTag::of);
        let row = ContractBlockKey { contract, block: key.0 };
        batch.delete(Family::EventsByContract, &row)?;
        for topic in event.topics {
            let tag = TopicTag::new(topic, contract);
            batch.delete(Family::EventsByTopic, &TopicBlockKey { tag, block: key.0 })?;
        }
    }
    for (hash, application_order) in block.transactions() {
        let position = TransactionPosition { ledger: block.ledger(), application_order };
        // A transaction that is still there keeps its hash.
        if snapshot.get(Family::Transactions, TransactionKey(position).encode())?.is_none() {
            remove_hashes(snapshot, batch, &TxHash::from(*hash), position)?;
        }
    }
    batch.delete(Family::Events, &key)
}

fn prune_transactions(
    snapshot: &Snapshot<'_>,
    batch: &mut Batch<'_>,
    keep_from: LedgerSeq,
) -> Result<u64, StoreError> {
    let mut rows = snapshot.rows(Family::Transactions)?;
    rows.seek_to_first();
    let mut removed = 0;
    let mut contracts = Vec::new();
    while removed < RECORDS_PER_BATCH as u64 {
        let Some((key, row)) = rows.item() else { break };
        let first = TransactionKey::decode(key).ok_or(Malformed);
        let first = first.map_err(corrupt(Family::Transactions, key))?.0;
        if first.ledger >= keep_from {
            break;
        }
        // A block goes as a whole, so what is left begins with one.
        let Ok(Row::Block(compressed)) = Row::parse(row) else {
            return Err(corrupt(Family::Transactions, key)(Malformed));
        };
        let block = TransactionBlock::open(first, compressed)?;
        let mut last = first;
        for (position, bytes) in block.records() {
            remove_transaction(snapshot, batch, position, bytes, &mut contracts)?;
            last = position;
            removed += 1;
        }
        rows.seek(TransactionKey(last).encode());
        rows.next();
    }
    rows.status()?;
    Ok(removed)
}

fn remove_transaction(
    snapshot: &Snapshot<'_>,
    batch: &mut Batch<'_>,
    position: TransactionPosition,
    bytes: &[u8],
    contracts: &mut Vec<ContractId>,
) -> Result<(), StoreError> {
    let damaged = corrupt(Family::Transactions, TransactionKey(position).encode());
    let record = transaction_record::decode(position, bytes, contracts).map_err(damaged)?;
    for id in record.contracts {
        let contract = ContractTag::from(id);
        let row = ContractTransactionKey { contract, position };
        batch.delete(Family::TxByContract, &row)?;
    }
    for key in entries::keys(&record)? {
        batch.delete(Family::Entries, &key)?;
    }
    let hash = TxHash::from(*record.tx);
    if !has_stored_events(snapshot, &hash, position)? {
        remove_hashes(snapshot, batch, &hash, position)?;
    }
    batch.delete(Family::Transactions, &TransactionKey(position))
}

fn hash_entry(
    snapshot: &Snapshot<'_>,
    hash: &TxHash,
    position: TransactionPosition,
) -> Result<Option<HashEntry>, StoreError> {
    let key = HashKey { tag: HashTag::from(hash), position }.encode();
    let Some(bytes) = snapshot.get(Family::TxByHash, key)? else { return Ok(None) };
    HashEntry::decode(&bytes).map(Some).map_err(corrupt(Family::TxByHash, key))
}

fn has_stored_events(
    snapshot: &Snapshot<'_>,
    hash: &TxHash,
    position: TransactionPosition,
) -> Result<bool, StoreError> {
    let Some(entry) = hash_entry(snapshot, hash, position)? else { return Ok(false) };
    let Some(first) = entry.ids().first().copied() else { return Ok(false) };
    let mut rows = snapshot.rows(Family::Events)?;
    rows.seek_for_prev(BlockKey(first).encode());
    let Some((key, bytes)) = rows.item() else {
        rows.status()?;
        return Ok(false);
    };
    let damaged = |e| corrupt(Family::Events, key)(e);
    let id = BlockKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
    let bytes = compression::decompress(Content::Events, bytes)?;
    Ok(Block::open(id, &bytes).map_err(damaged)?.ledger() == position.ledger)
}

/// Removes the rows of a transaction's outer and inner hash.
fn remove_hashes(
    snapshot: &Snapshot<'_>,
    batch: &mut Batch<'_>,
    hash: &TxHash,
    position: TransactionPosition,
) -> Result<(), StoreError> {
    let entry = hash_entry(snapshot, hash, position)?;
    if let Some(HashEntry { role: HashRole::Outer { inner }, .. }) = entry {
        batch.delete(Family::TxByHash, &HashKey { tag: HashTag::from(&inner), position })?;
    }
    batch.delete(Family::TxByHash, &HashKey { tag: HashTag::from(hash), position })
}
