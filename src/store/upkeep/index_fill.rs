//! Fills indexes that are new to a directory from the stored records.

use orrery_ledger::domain::{EventId, LedgerSeq};

use super::upgrade::Upgrade;
use crate::db::database::{Batch, Database};
use crate::encoding::block::Block;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, TransactionKey};
use crate::encoding::compression::Content;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::transaction_block::{Row, TransactionBlock};
use crate::encoding::{compression, transaction_record};
use crate::indexes::index::Index;
use crate::indexes::registry::Indexes;
use crate::indexes::rows::Rows;

/// Number of rows from which a batch is written.
const ROWS_PER_BATCH: u64 = 4096;
/// Key prefix in `meta`, followed by the name of a registered index: its family is complete.
const COMPLETE_ROW: &[u8] = b"index ";
/// Sorts after every key of an index.
const AFTER_ALL_KEYS: [u8; 32] = [0xff; 32];

/// Returns whether a row of `meta` belongs to this module.
pub(crate) fn is_row(name: &[u8]) -> bool {
    name.starts_with(COMPLETE_ROW)
}

impl Indexes {
    /// Returns the indexes whose families are complete.
    pub(crate) fn complete_in(&self, database: &Database) -> Result<Self, StoreError> {
        let mut complete = Vec::new();
        for index in self.iter() {
            let is_complete = match index.family {
                Family::Index(name) => database.get(Family::Meta, row(name.as_bytes()))?.is_some(),
                _ => true,
            };
            complete.extend(is_complete.then_some(*index));
        }
        Ok(Self(complete))
    }
}

fn row(name: &[u8]) -> Vec<u8> {
    [COMPLETE_ROW, name].concat()
}

/// Fills the registered indexes that are new, and deletes the completeness rows of indexes that are
/// no longer registered: ledgers stored from now on will be missing in them.
pub(crate) fn bring_up_to_date(
    database: &Database,
    indexes: &Indexes,
    upgrade: &Upgrade<'_>,
) -> Result<(), StoreError> {
    let mut batch = database.batch();
    let complete = indexes.complete_in(database)?;
    for (name, index) in indexes.registered() {
        if !complete.registered().any(|(complete, _)| complete == name) {
            if has_ledgers(database)? {
                tracing::info!(index = name, "filling an index");
            }
            refill(database, &Indexes::only(index), name, upgrade)?;
            batch.put_raw(Family::Meta, &row(name.as_bytes()), b"")?;
        }
    }
    database.scan(Family::Meta, |key, _| {
        let registered = || indexes.registered().any(|(name, _)| row(name.as_bytes()) == key);
        if is_row(key) && !registered() { batch.delete_raw(Family::Meta, key) } else { Ok(()) }
    })?;
    if batch.rows() > 0 { database.write_synced(batch) } else { Ok(()) }
}

/// Whether anything is stored: in a new directory, there is nothing to fill.
fn has_ledgers(database: &Database) -> Result<bool, StoreError> {
    let snapshot = database.snapshot();
    let mut rows = snapshot.rows(Family::Ledgers)?;
    rows.seek_to_first();
    let has_row = rows.key().is_some();
    rows.status()?;
    Ok(has_row)
}

/// Removes all rows of indexes, and fills these anew. Idempotent.
pub(crate) fn refill(
    database: &Database,
    indexes: &Indexes,
    name: &str,
    upgrade: &Upgrade<'_>,
) -> Result<(), StoreError> {
    let mut stale = database.batch();
    for index in indexes.iter() {
        stale.delete_range(index.family, &[], &AFTER_ALL_KEYS)?;
    }
    database.write_unlogged(stale)?;
    fill(database, indexes, name, upgrade)
}

/// Writes the rows that follow from stored events and transactions, without the WAL, and flushes at
/// the end. Idempotent.
pub(crate) fn fill(
    database: &Database,
    indexes: &Indexes,
    name: &str,
    upgrade: &Upgrade<'_>,
) -> Result<(), StoreError> {
    let mut filling = Filling { database, batch: database.batch(), rows: Rows::new(indexes) };
    if indexes.iter().any(Index::is_of_events) {
        let mut progress = upgrade.step(database, format!("index {name} from events"))?;
        database.scan(Family::Events, |key, row| {
            let damaged = |malformed| corrupt(Family::Events, key)(malformed);
            let id = BlockKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
            let bytes = compression::decompress(Content::Events, row)?;
            let block = Block::open(id, &bytes).map_err(damaged)?;
            filling.rows.add_block(&block).map_err(damaged)?;
            progress.at(block.ledger());
            filling.put(block.ledger(), id)
        })?;
    }
    let mut contracts = Vec::new();
    let mut progress = upgrade.step(database, format!("index {name} from transactions"))?;
    database.scan(Family::Transactions, |key, row| {
        let damaged = |malformed| corrupt(Family::Transactions, key)(malformed);
        let first = TransactionKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
        // Rows of transactions in another row's block are covered by that block.
        let Row::Block(compressed) = Row::parse(row).map_err(damaged)? else { return Ok(()) };
        let block = TransactionBlock::open(first, compressed)?;
        for (position, record) in block.records() {
            let record = transaction_record::decode(position, record, &mut contracts);
            record.and_then(|record| filling.rows.add_record(&record)).map_err(damaged)?;
        }
        progress.at(first.ledger);
        filling.put(first.ledger, EventId(0))
    })?;
    database.write_unlogged(filling.batch)?;
    // The caller's next write goes through the WAL and must not become durable before these
    // unlogged writes.
    database.flush()
}

struct Filling<'a> {
    database: &'a Database,
    batch: Batch<'a>,
    rows: Rows,
}

impl Filling<'_> {
    fn put(&mut self, ledger: LedgerSeq, first_event: EventId) -> Result<(), StoreError> {
        let Self { database, batch, rows } = self;
        rows.drain(ledger, first_event, |_, family, key, value| batch.put_raw(family, key, value))?;
        if batch.rows() >= ROWS_PER_BATCH {
            let full = std::mem::replace(batch, database.batch());
            database.write_unlogged(full)?;
        }
        Ok(())
    }
}
