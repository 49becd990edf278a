//! Recounts the totals. Every write keeps them up to date, but a directory that was pruned by a
//! version whose prunes could overlap may hold totals that are too low. Nothing else is wrong in
//! such a directory: its totals are recounted once when it is opened, and whenever an operator
//! requests it.

use super::block::Block;
use super::bytes::Malformed;
use super::columns::{BlockKey, Family, Key, LedgerKey, TransactionKey};
use super::compression::{self, Content};
use super::database::{Batch, corrupt};
use super::{LedgerRow, Store, StoreError, TOTALS_ROW, Totals};

/// Key in `meta`: the totals are exact, because a version whose prunes exclude each other recounted
/// them or created the directory.
const EXACT_ROW: &[u8] = b"totals_are_exact";

/// Result of a recount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recount {
    /// Totals before the recount.
    pub before: Totals,
    /// Totals after the recount.
    pub after: Totals,
}

/// Records that the totals in this batch, or their absence, are exact.
pub(super) fn mark_exact(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.put_raw(Family::Meta, EXACT_ROW, b"")
}

/// Returns whether a row of `meta` belongs to this module.
pub(super) fn is_row(name: &[u8]) -> bool {
    name == EXACT_ROW
}

impl Store {
    /// Recounts all events and transactions and corrects the totals. Reads the row of every ledger;
    /// blocks ingestion meanwhile.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a record is damaged; the totals are not changed
    /// then.
    pub fn recount(&self) -> Result<Recount, StoreError> {
        let _only = self.pruning.lock();
        let mut writer = self.writer.lock();
        self.reload_if_in_doubt(&mut writer)?;
        self.database.sync_pending()?;
        let before = *self.totals.read();
        let after = self.counted(before)?;
        let mut batch = self.database.batch();
        batch.put_raw(Family::Meta, TOTALS_ROW, &after.encode())?;
        mark_exact(&mut batch)?;
        let change = self.generations.change();
        if let Err(error) = self.database.write_synced(batch) {
            drop(change);
            self.mark_in_doubt(&mut writer);
            return Err(error);
        }
        *self.totals.write() = after;
        Ok(Recount { before, after })
    }

    /// Recounts unless the totals are recorded as exact.
    pub(super) fn recount_once(&self) -> Result<(), StoreError> {
        if self.database.get(Family::Meta, EXACT_ROW)?.is_some() {
            return Ok(());
        }
        let Recount { before, after } = self.recount()?;
        if before != after {
            tracing::warn!(
                "the totals were corrected: {} events and {} transactions are stored, {} and {} \
                 were counted",
                after.events,
                after.transactions,
                before.events,
                before.transactions
            );
        }
        Ok(())
    }

    /// Returns the totals that follow from the stored records. For ledgers that retention has not
    /// reached, the counts in their rows are exact; what is left of the others is counted record by
    /// record.
    fn counted(&self, totals: Totals) -> Result<Totals, StoreError> {
        let Totals { events_from, transactions_from, .. } = totals;
        let mut counted = Totals { events: 0, transactions: 0, ..totals };
        self.database.scan(Family::Ledgers, |key, value| {
            let damaged = |malformed| corrupt(Family::Ledgers, key)(malformed);
            let ledger = LedgerKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
            let row = LedgerRow::decode(value).map_err(damaged)?;
            if ledger >= events_from {
                counted.events += row.counts.events();
            }
            if ledger >= transactions_from {
                counted.transactions += u64::from(row.counts.stored_transactions);
            }
            counted.latest_close_time = row.close_time.seconds();
            Ok(())
        })?;
        let snapshot = self.database.snapshot();
        if let Some(last) = events_from.previous() {
            self.visit_blocks(&snapshot, last, |id, bytes| {
                let bytes = compression::decompress(Content::Events, bytes)?;
                let block = Block::open(id, &bytes);
                let block = block.map_err(corrupt(Family::Events, BlockKey(id).encode()))?;
                counted.events += block.len() as u64;
                Ok(true)
            })?;
        }
        let mut rows = snapshot.rows(Family::Transactions)?;
        rows.seek_to_first();
        while let Some(key) = rows.key() {
            let position = TransactionKey::decode(key).ok_or(Malformed);
            let position = position.map_err(corrupt(Family::Transactions, key))?.0;
            if position.ledger >= transactions_from {
                break;
            }
            counted.transactions += 1;
            rows.next();
        }
        rows.status()?;
        Ok(counted)
    }
}

#[cfg(test)]
pub(super) fn forget_exactness(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.delete_raw(Family::Meta, EXACT_ROW)
}
