//! Removes orphaned rows of `tx_by_hash`, which earlier versions left when events and transactions
//! were pruned together. The index is ordered by hash, so all of it must be walked once; each prune
//! walks a part, and a row of `meta` holds the key from which the next one continues.

use super::StoreError;
use super::columns::{Family, TransactionKey};
use super::database::{Batch, Snapshot, corrupt};
use super::indexes::record_key;
use super::indexes::tx_by_hash::HashTag;
use crate::domain::LedgerSeq;

/// Key in `meta`: the index key from which to continue; empty when the whole index has been walked.
/// A directory without this row has not been walked at all.
const NEXT_ROW: &[u8] = b"hashes_swept_up_to";

/// Number of rows that one prune reads.
const ROWS_PER_ROUND: usize = 16_384;

/// Records that nothing is left to sweep.
pub(super) fn mark_done(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.put_raw(Family::Meta, NEXT_ROW, b"")
}

/// Returns whether a row of `meta` belongs to this module.
pub(super) fn is_row(name: &[u8]) -> bool {
    name == NEXT_ROW
}

/// Walks one part of the index and deletes the rows of ledgers below `floor`, of which neither
/// events nor transactions are stored any more. Returns whether the batch has something to write.
pub(super) fn sweep(
    snapshot: &Snapshot<'_>,
    batch: &mut Batch<'_>,
    floor: LedgerSeq,
) -> Result<bool, StoreError> {
    let start = snapshot.get(Family::Meta, NEXT_ROW)?;
    if floor == LedgerSeq(0) || start.as_ref().is_some_and(|key| key.is_empty()) {
        return Ok(false);
    }
    let mut rows = snapshot.rows(Family::TxByHash)?;
    match start {
        Some(key) => rows.seek(&key),
        None => rows.seek_to_first(),
    }
    for _ in 0..ROWS_PER_ROUND {
        let Some(key) = rows.key() else { break };
        let position = record_key::<TransactionKey>(HashTag::LEN, key);
        if position.map_err(corrupt(Family::TxByHash, key))?.0.ledger < floor {
            batch.delete_raw(Family::TxByHash, key)?;
        }
        rows.next();
    }
    rows.status()?;
    batch.put_raw(Family::Meta, NEXT_ROW, rows.key().unwrap_or_default())?;
    Ok(true)
}

#[cfg(test)]
pub(super) fn forget_progress(batch: &mut Batch<'_>) -> Result<(), StoreError> {
    batch.delete_raw(Family::Meta, NEXT_ROW)
}
