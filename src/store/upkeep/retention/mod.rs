//! Removes what is older than the configured retention. Works in small batches beside ingestion and
//! has no state of its own: records that are stored and too old are the remaining work.

#[cfg(test)]
mod histories;
mod keeping;
pub(crate) mod old_floors;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use keeping::Keeping;
use orrery_ledger::domain::{Direction, EventId, LedgerRange, LedgerSeq, LedgerSet, TxHash};

use crate::db::database::Batch;
use crate::db::snapshot::Snapshot;
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, LedgerKey, TransactionKey};
use crate::encoding::compression::Content;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::records::{TransactionPosition, TransactionRecord};
use crate::encoding::transaction_block::{Row, TransactionBlock};
use crate::encoding::{compression, transaction_record};
use crate::feed::retention_floor::{Floors, Retention};
use crate::indexes::rows::Rows;
use crate::indexes::tx_by_hash;
use crate::indexes::tx_by_hash::HashEntry;
use crate::indexes::values::EventsOfTransaction;
use crate::read::id_intervals::Intervals;
use crate::state::removed::{Removed, ledgers_below};
use crate::state::store::Store;
use crate::state::totals::TOTALS_ROW;

/// Maximum number of records removed with one write.
const RECORDS_PER_BATCH: usize = 64;

/// What one call of [`Store::prune`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// Whether raw ledgers were removed.
    pub raw_ledgers: bool,
    /// Number of events removed.
    pub events: u64,
    /// Number of smart-contract transactions removed.
    pub transactions: u64,
}

impl Pruned {
    /// Returns whether nothing was removed.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

impl Store {
    /// Removes one batch of what is too old. Call again until nothing is left. What consumers of
    /// the feed have yet to see is kept, within the bound that `retention` sets; ledgers beyond it
    /// are first recorded as lost to them. Does nothing while an import has ledgers that are not
    /// durable yet, and waits for a prune that is in progress.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails; what was removed before stays removed.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned, StoreError> {
        let _only = self.pruning.lock();
        match self.begin_round(retention)? {
            Some(round) => self.finish_round(round),
            None => Ok(Pruned::default()),
        }
    }

    /// Determines what a round may remove; `None` when nothing. Only what is in the round's snapshot
    /// is removed: a ledger that is stored later has not been recorded as lost to the consumers that
    /// have yet to see it, even if it is older than the floors.
    fn begin_round(&self, retention: &Retention) -> Result<Option<Round<'_>>, StoreError> {
        let (snapshot, covered, latest) = {
            // While nothing is written, the snapshot holds exactly the covered ledgers, unless a
            // failed write may have taken effect.
            let mut writer = self.writer.lock();
            self.reload_if_in_doubt(&mut writer)?;
            let coverage = self.coverage.read();
            let covered: LedgerSet = coverage.ranges().map(|range| range.ledgers).collect();
            (self.database.snapshot(), covered, coverage.latest())
        };
        let Some(latest) = latest else { return Ok(None) };
        let Some(floors) = self.floors(retention, latest, &covered)? else { return Ok(None) };
        Ok(Some(Round {
            snapshot,
            covered,
            floors,
            batch: self.database.batch(),
            rows: Rows::new(&self.indexes),
            removed: Removed::default(),
            keeping: self.begin_keeping()?,
            most: RECORDS_PER_BATCH,
            transactions: BTreeSet::new(),
            blocks: Vec::new(),
            events: 0,
        }))
    }

    /// Removes what a round may remove, in small batches.
    fn finish_round(&self, mut round: Round<'_>) -> Result<Pruned, StoreError> {
        let raw_ledgers = self.prune_raw(&round)?;
        self.collect(&mut round)?;
        let removed = Pruned { raw_ledgers, ..round.pruned() };
        Ok(match self.write_pruned(round)? {
            true => removed,
            false => Pruned { raw_ledgers, ..Pruned::default() },
        })
    }

    /// Collects the records that a round removes with one write.
    fn collect(&self, round: &mut Round<'_>) -> Result<(), StoreError> {
        // Transactions first: when the events of a transaction go in the same round, its hash rows
        // go with them.
        round.remove_transactions()?;
        round.remove_events(self)
    }

    /// Writes what a round removes, if anything; returns false when it must wait for an import to
    /// flush.
    fn write_pruned(&self, round: Round<'_>) -> Result<bool, StoreError> {
        let pruned = round.pruned();
        if pruned.is_nothing() {
            return Ok(true);
        }
        let mut writer = self.writer.lock();
        self.reload_if_in_doubt(&mut writer)?;
        if self.database.has_unlogged() {
            return Ok(false);
        }
        let Round { mut batch, blocks, removed: newly, .. } = round;
        let mut totals = *self.totals.read();
        totals.events = totals.events.saturating_sub(pruned.events);
        totals.transactions = totals.transactions.saturating_sub(pruned.transactions);
        batch.put_raw(Family::Meta, TOTALS_ROW, &totals.encode())?;
        let removed = self.removed_after(&newly, &mut batch)?;
        let change = self.generations.change();
        let written = self.database.write_logged(batch);
        // Also after a failed write, which may have taken effect; blocks that are still stored are
        // read again.
        self.database.evict_event_blocks(&blocks);
        if let Err(error) = written {
            drop(change);
            self.mark_in_doubt(&mut writer);
            return Err(error);
        }
        *self.totals.write() = totals;
        *self.removed.write() = removed;
        Ok(true)
    }

    /// Adds the change for newly removed records to the batch that removes them, and returns the sets
    /// to keep in memory once it is written.
    fn removed_after(&self, newly: &Removed, batch: &mut Batch<'_>) -> Result<Removed, StoreError> {
        let before = self.removed.read();
        let mut removed = before.clone();
        removed.raw_ledgers.insert_all(&newly.raw_ledgers);
        removed.events.insert_all(&newly.events);
        removed.transactions.insert_all(&newly.transactions);
        removed.put_changes(&before, batch)?;
        Ok(removed)
    }

    /// Removes the raw form of ledgers, as far as the round's snapshot has it. Returns whether there
    /// was any.
    fn prune_raw(&self, round: &Round<'_>) -> Result<bool, StoreError> {
        let ledgers = round.covered.within(ledgers_below(round.floors.raw_ledgers));
        let mut rows = round.snapshot.rows(Family::LedgerXdr)?;
        let mut ranges = Vec::new();
        let mut left = ledgers.ranges();
        rows.seek_to_first();
        // There may be many ranges whose raw form was removed long ago: they are passed over at once.
        while let Some(LedgerKey(first)) = rows.key().and_then(LedgerKey::decode) {
            left = &left[left.partition_point(|range| range.last < first)..];
            let Some((range, later)) = left.split_first() else { break };
            if range.first <= first {
                ranges.push(LedgerRange { first, ..*range });
                left = later;
            }
            match left.first() {
                Some(next) => rows.seek(LedgerKey(next.first).encode()),
                None => break,
            }
        }
        rows.status()?;
        if ranges.is_empty() {
            return Ok(false);
        }
        let mut writer = self.writer.lock();
        self.reload_if_in_doubt(&mut writer)?;
        if self.database.has_unlogged() {
            return Ok(false);
        }
        let mut batch = self.database.batch();
        for range in &ranges {
            let (first, last) = (LedgerKey(range.first).encode(), LedgerKey(range.last).encode());
            batch.delete_range(Family::LedgerXdr, &first, &last)?;
            batch.delete(Family::LedgerXdr, &LedgerKey(range.last))?;
        }
        let newly = Removed { raw_ledgers: ledgers, ..Removed::default() };
        let removed = self.removed_after(&newly, &mut batch)?;
        let change = self.generations.change();
        if let Err(error) = self.database.write_logged(batch) {
            drop(change);
            self.mark_in_doubt(&mut writer);
            return Err(error);
        }
        *self.removed.write() = removed;
        for range in &ranges {
            let (first, last) = (LedgerKey(range.first).encode(), LedgerKey(range.last).encode());
            self.database.drop_files(Family::LedgerXdr, &first, &last)?;
        }
        Ok(true)
    }

    /// Returns the ledgers of a run from its first one up to that of an event. When the events of
    /// older runs and of these ledgers are removed in the order of ids, none of these has any left.
    fn run_up_to(&self, ledger: LedgerSeq, event: EventId) -> LedgerRange {
        let only = LedgerRange::only(ledger);
        let span = self.coverage.read().span(only, event.0, Direction::OldestFirst);
        span.map_or(only, |span| LedgerRange { last: ledger, ..span.first.ledgers })
    }

    /// Visits the stored event blocks of all ledgers up to `last` in the order of ids, until
    /// `visit` breaks.
    fn visit_blocks(
        &self,
        snapshot: &Snapshot<'_>,
        last: LedgerSeq,
        mut visit: impl FnMut(EventId, &[u8]) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = snapshot.rows(Family::Events)?;
        let intervals = Intervals::of_ledgers(self, LedgerRange::new(0, last));
        let mut interval = intervals.first()?;
        while let Some(ids) = interval {
            rows.seek(BlockKey(EventId(ids.first)).encode());
            let mut beyond = None;
            while let Some((key, bytes)) = rows.item() {
                let id = BlockKey::decode(key).ok_or(Malformed);
                let id = id.map_err(corrupt(Family::Events, key))?.0;
                if id.0 > ids.last {
                    beyond = Some(id.0);
                    break;
                }
                if visit(id, bytes)?.is_break() {
                    return Ok(());
                }
                rows.next();
            }
            rows.status()?;
            interval = beyond.map_or(Ok(None), |id| intervals.at_or_after(id))?;
        }
        Ok(())
    }
}

/// Removals that are written together.
struct Round<'a> {
    snapshot: Snapshot<'a>,
    /// Ledgers that the snapshot has.
    covered: LedgerSet,
    floors: Floors,
    batch: Batch<'a>,
    /// Index rows derived from the record that is being removed.
    rows: Rows,
    /// Ledgers of which events or transactions are removed, and ledgers that have none.
    removed: Removed,
    /// What consumers keep of removed transactions.
    keeping: Vec<Keeping<'a>>,
    /// Number of transactions, and of event blocks, at which the round ends.
    most: usize,
    /// Transactions to remove.
    transactions: BTreeSet<TransactionPosition>,
    /// Event blocks to remove.
    blocks: Vec<EventId>,
    /// Number of events in these blocks.
    events: u64,
}

impl Round<'_> {
    fn pruned(&self) -> Pruned {
        let transactions = self.transactions.len() as u64;
        Pruned { raw_ledgers: false, events: self.events, transactions }
    }

    fn remove_events(&mut self, store: &Store) -> Result<(), StoreError> {
        let below = ledgers_below(self.floors.events);
        if below.is_empty() {
            return Ok(());
        }
        let Self { snapshot, batch, rows, transactions, blocks, events, most, .. } = self;
        let removed = &mut self.removed.events;
        store.visit_blocks(snapshot, below.last, |id, bytes| {
            if blocks.len() == *most {
                return Ok(ControlFlow::Break(()));
            }
            let bytes = compression::decompress(Content::Events, bytes)?;
            let block = Block::open(id, &bytes);
            let block = block.map_err(corrupt(Family::Events, BlockKey(id).encode()))?;
            rows.add_block(&block).map_err(corrupt(Family::Events, BlockKey(id).encode()))?;
            for (hash, application_order) in block.transactions() {
                let position = TransactionPosition { ledger: block.ledger(), application_order };
                let key = TransactionKey(position).encode();
                // A transaction whose record stays keeps its hash rows.
                if transactions.contains(&position)
                    || snapshot.get(Family::Transactions, key)?.is_none()
                {
                    let hash = TxHash::from(*hash);
                    let entry = hash_entry(snapshot, &hash, position)?;
                    let inner = entry.and_then(|entry| entry.role.inner());
                    rows.locate(application_order, hash, inner, EventsOfTransaction::default());
                }
            }
            remove_rows(rows, batch, block.ledger(), id)?;
            batch.delete(Family::Events, &BlockKey(id))?;
            *events += block.len() as u64;
            blocks.push(id);
            removed.insert(store.run_up_to(block.ledger(), id));
            Ok(ControlFlow::Continue(()))
        })?;
        if !blocks.is_empty() && blocks.len() < self.most {
            // None is left; the others never had events.
            removed.insert_all(&self.covered.within(below));
        }
        Ok(())
    }

    fn remove_transactions(&mut self) -> Result<(), StoreError> {
        let below = ledgers_below(self.floors.transactions);
        let Self { snapshot, batch, rows: of_indexes, transactions, keeping, most, .. } = self;
        // Ledgers up to this one have no transactions any more.
        let mut up_to = below.last;
        let mut rows = snapshot.rows(Family::Transactions)?;
        rows.seek_to_first();
        let mut contracts = Vec::new();
        while let Some((key, row)) = rows.item() {
            let first = TransactionKey::decode(key).ok_or(Malformed);
            let first = first.map_err(corrupt(Family::Transactions, key))?.0;
            if !below.contains(first.ledger) {
                break;
            }
            if transactions.len() >= *most {
                up_to = up_to.min(last_removed(transactions));
                break;
            }
            // Blocks are removed as a whole, so the first remaining row holds a block.
            let Ok(Row::Block(compressed)) = Row::parse(row) else {
                return Err(corrupt(Family::Transactions, key)(Malformed));
            };
            let block = TransactionBlock::open(first, compressed)?;
            let mut last = first;
            for (position, bytes) in block.records() {
                let key = TransactionKey(position);
                let damaged = |malformed| corrupt(Family::Transactions, key.encode())(malformed);
                let record = transaction_record::decode(position, bytes, &mut contracts);
                let record = record.map_err(damaged)?;
                of_indexes.add_record(&record).map_err(damaged)?;
                keeping.iter_mut().try_for_each(|keeping| keeping.keep(&record))?;
                locate_without_events(&record, snapshot, of_indexes)?;
                batch.delete(Family::Transactions, &key)?;
                last = position;
                transactions.insert(position);
            }
            remove_rows(of_indexes, batch, first.ledger, EventId(0))?;
            rows.seek(TransactionKey(last).encode());
            rows.next();
        }
        rows.status()?;
        keeping.iter_mut().try_for_each(|keeping| keeping.write(batch))?;
        if !transactions.is_empty() {
            let emptied = LedgerRange { last: up_to, ..below };
            self.removed.transactions.insert_all(&self.covered.within(emptied));
        }
        Ok(())
    }
}

/// Collects the hash rows of a transaction, unless events of it are stored.
fn locate_without_events(
    record: &TransactionRecord<'_>,
    snapshot: &Snapshot<'_>,
    rows: &mut Rows,
) -> Result<(), StoreError> {
    let (hash, position) = (TxHash::from(*record.tx), record.position);
    if !has_stored_events(snapshot, &hash, position)? {
        let inner = record.inner_tx.map(|inner| TxHash::from(*inner));
        let order = position.application_order;
        rows.locate(order, hash, inner, EventsOfTransaction::default());
    }
    Ok(())
}

fn last_removed(transactions: &BTreeSet<TransactionPosition>) -> LedgerSeq {
    transactions.last().map_or(LedgerSeq(0), |position| position.ledger)
}

/// Removes the collected index rows from the database and clears the collection.
fn remove_rows(
    rows: &mut Rows,
    batch: &mut Batch<'_>,
    ledger: LedgerSeq,
    first_event: EventId,
) -> Result<(), StoreError> {
    rows.drain(ledger, first_event, |_, family, key, _| batch.delete_raw(family, key))
}

fn hash_entry(
    snapshot: &Snapshot<'_>,
    hash: &TxHash,
    position: TransactionPosition,
) -> Result<Option<HashEntry>, StoreError> {
    let key = tx_by_hash::key(hash, position);
    let Some(bytes) = snapshot.get(Family::TxByHash, &key)? else { return Ok(None) };
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
