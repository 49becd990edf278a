//! 2.0 to 2.1: fills the family `entries` from the stored transactions.

use super::super::super::columns::{Family, Key, TransactionKey};
use super::super::super::database::{Database, corrupt};
use super::super::super::transaction_block::{Row, TransactionBlock};
use super::super::super::{StoreError, bytes, entries, transaction_record};
use super::super::FormatVersion;
use super::Migration;

pub(super) const MIGRATION: Migration = Migration {
    from: FormatVersion { major: 2, minor: 0 },
    to: FormatVersion { major: 2, minor: 1 },
    run,
};

/// Rows that are written together.
const ROWS_PER_BATCH: usize = 4096;

fn run(database: &Database) -> Result<(), StoreError> {
    let mut batch = database.batch();
    let mut rows = 0;
    database.scan(Family::Transactions, |key, row| {
        let damaged = |malformed| corrupt(Family::Transactions, key)(malformed);
        let first = TransactionKey::decode(key).ok_or(bytes::Malformed).map_err(damaged)?.0;
        // Transactions that are in another's block come with that block.
        let Row::Block(compressed) = Row::parse(row).map_err(damaged)? else { return Ok(()) };
        let block = TransactionBlock::open(first, compressed)?;
        let mut contracts = Vec::new();
        for (position, record) in block.records() {
            let damaged = corrupt(Family::Transactions, TransactionKey(position).encode());
            let record = transaction_record::decode(position, record, &mut contracts);
            for (key, changed) in entries::of_record(&record.map_err(damaged)?)? {
                batch.put(Family::Entries, &key, changed.encode())?;
                rows += 1;
            }
        }
        if rows >= ROWS_PER_BATCH {
            rows = 0;
            let full = std::mem::replace(&mut batch, database.batch());
            database.write_unlogged(full)?;
        }
        Ok(())
    })?;
    database.write_unlogged(batch)?;
    // The record of the new version goes through the log, which must not run ahead.
    database.flush()
}
