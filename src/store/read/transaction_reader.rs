//! Reads records of transactions from their blocks.

use crate::db::snapshot::Snapshot;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, TransactionKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::records::TransactionPosition;
use crate::encoding::transaction_block::{Row, TransactionBlock};

/// Reads records from a snapshot. Keeps the last block, because neighbours are often in the same
/// one.
pub(crate) struct Records<'a> {
    snapshot: &'a Snapshot<'a>,
    last: Option<TransactionBlock>,
}

impl<'a> Records<'a> {
    pub fn new(snapshot: &'a Snapshot<'a>) -> Self {
        Self::after(snapshot, None)
    }

    /// Creates a reader that already has a block of this snapshot.
    pub fn after(snapshot: &'a Snapshot<'a>, last: Option<TransactionBlock>) -> Self {
        Self { snapshot, last }
    }

    /// Returns the block that was read last.
    pub fn into_last(self) -> Option<TransactionBlock> {
        self.last
    }

    /// Returns the record of a transaction, if it is stored.
    pub fn get(&mut self, position: TransactionPosition) -> Result<Option<&[u8]>, StoreError> {
        if self.last.as_ref().is_none_or(|block| block.record(position).is_none()) {
            self.last = self.block_of(position)?;
        }
        Ok(self.last.as_ref().and_then(|block| block.record(position)))
    }

    fn block_of(
        &self,
        position: TransactionPosition,
    ) -> Result<Option<TransactionBlock>, StoreError> {
        let mut at = position;
        // First the transaction's row, then that of the first transaction of its block.
        for _ in 0..2 {
            let key = TransactionKey(at).encode();
            let Some(row) = self.snapshot.get(Family::Transactions, key)? else { return Ok(None) };
            match Row::parse(&row).map_err(corrupt(Family::Transactions, key))? {
                Row::Block(compressed) => return TransactionBlock::open(at, compressed).map(Some),
                Row::InBlockOf(application_order) => at.application_order = application_order,
            }
        }
        Err(corrupt(Family::Transactions, TransactionKey(at).encode())(Malformed))
    }
}
