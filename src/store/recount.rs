//! Totals, counted anew. They are kept up to date with every write; a directory that was pruned by a
//! version whose prunes could overlap may hold totals that are too low. Nothing else is wrong with it:
//! its totals are counted once when it is opened, and whenever an operator asks for it.

use super::block::Block;
use super::bytes::Malformed;
use super::columns::{BlockKey, Family, Key, LedgerKey, TransactionKey};
use super::compression::{self, Content};
use super::database::{Batch, corrupt};
use super::{LedgerRow, Store, StoreError, TOTALS_ROW, Totals};

/// In `meta`: the totals are exact, because they were counted by, or are all the work of, a version
/// whose prunes exclude each other.
const EXACT_ROW: &[u8] = b"totals_are_exact";

/// What counting anew found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recount {
    /// The totals until then.
    pub before: Totals,
    /// The totals now.
    pub after: Totals,
}

/// Notes that the totals in this batch, or the absence of any, are exact.
pub(super) fn is_exact(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.put_raw(Family::Meta, EXACT_ROW, b"")
}

/// Whether a row of `meta` is this module's.
pub(super) fn is_row(name: &[u8]) -> bool {
    name == EXACT_ROW
}

impl Store {
    /// Counts all events and transactions anew and puts the totals right. Reads the row of every
    /// ledger; ledgers that arrive meanwhile wait.
    ///
    /// # Errors
    /// What the database says, or that a record is damaged; then the totals are what they were.
    pub fn recount(&self) -> Result<Recount, StoreError> {
        let _only = self.pruning.lock();
        let mut writer = self.writer.lock();
        self.settle(&mut writer)?;
        self.database.settle()?;
        let before = *self.totals.read();
        let after = self.counted(before)?;
        let mut batch = self.database.batch();
        batch.put_raw(Family::Meta, TOTALS_ROW, &after.encode())?;
        is_exact(&mut batch)?;
        let change = self.generations.change();
        if let Err(error) = self.database.write_synced(batch) {
            drop(change);
            self.doubt(&mut writer);
            return Err(error);
        }
        *self.totals.write() = after;
        Ok(Recount { before, after })
    }

    /// Counts anew unless the totals are known to be exact.
    pub(super) fn recount_once(&self) -> Result<(), StoreError> {
        if self.database.get(Family::Meta, EXACT_ROW)?.is_some() {
            return Ok(());
        }
        let Recount { before, after } = self.recount()?;
        if before != after {
            tracing::warn!(
                "the totals were put right: {} events and {} transactions are stored, {} and {} were \
                 counted",
                after.events,
                after.transactions,
                before.events,
                before.transactions
            );
        }
        Ok(())
    }

    /// The totals as what is stored says. Of ledgers that retention has not reached everything is there
    /// that their rows count; of the others what is left is counted itself.
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
