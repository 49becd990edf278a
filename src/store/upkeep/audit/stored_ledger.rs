//! One ledger as it is stored on disk.

use std::collections::BTreeMap;

use orrery_ledger::domain::{EventId, LedgerSeq};

use crate::encoding::block::Block;
use crate::encoding::columns::{BlockKey, Family, Key};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::records::EventRecord;

/// Event blocks of one ledger, decompressed, each with the id of its first event.
pub(super) type Blocks = Vec<(EventId, Vec<u8>)>;

/// Transaction records of one ledger, decompressed, by application order.
pub(super) type Transactions = BTreeMap<u32, Vec<u8>>;

/// One ledger as stored on disk.
pub(super) struct StoredLedger {
    pub sequence: LedgerSeq,
    pub row: LedgerRow,
    pub blocks: Blocks,
    pub transactions: Transactions,
    /// Whether all its events are still stored.
    pub has_all_events: bool,
    /// Whether all its transactions are still stored.
    pub has_all_transactions: bool,
}

/// Calls `visit` for each event of a ledger, in order.
pub(super) fn visit(
    blocks: &Blocks,
    mut visit: impl FnMut(&EventRecord<'_>),
) -> Result<(), StoreError> {
    for (id, bytes) in blocks {
        let damaged = |malformed| corrupt(Family::Events, BlockKey(*id).encode())(malformed);
        let block = Block::open(*id, bytes).map_err(damaged)?;
        let mut topics = Vec::new();
        for position in 0..block.len() {
            visit(&block.event(position, &mut topics).map_err(damaged)?);
        }
    }
    Ok(())
}
