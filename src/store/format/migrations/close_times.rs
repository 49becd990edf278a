//! 2.1 to 2.2: close times in milliseconds. Ledgers that have them (from protocol 30 on) were
//! stored in whole seconds; where the raw ledger is kept the time is read again, elsewhere the
//! seconds stay.

use super::super::super::block::{self, Block};
use super::super::super::columns::{BlockKey, Family, Key, LedgerKey, TransactionKey};
use super::super::super::compression::{self, Content};
use super::super::super::database::{Batch, Database, Snapshot, corrupt};
use super::super::super::ledgers::LedgerRow;
use super::super::super::query::TransactionPosition;
use super::super::super::transaction_block::{Row, TransactionBlock};
use super::super::super::upgrade::Upgrade;
use super::super::super::{StoreError, bytes, raw_form};
use super::super::FormatVersion;
use super::Migration;
use crate::decode;
use crate::domain::{CloseTime, LedgerSeq};

#[cfg(test)]
mod tests;

pub(super) const MIGRATION: Migration = Migration {
    from: FormatVersion { major: 2, minor: 1 },
    to: FormatVersion { major: 2, minor: 2 },
    run: |database, upgrade| run(database, ROWS_PER_BATCH, upgrade),
};

/// First protocol whose ledgers may have close times in milliseconds (CAP-88).
const FIRST_PROTOCOL: u32 = 30;
/// Minimum number of rows per write; all rows of a ledger are in one write.
const ROWS_PER_BATCH: u64 = 512;

fn run(database: &Database, rows_per_batch: u64, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    let mut progress = upgrade.step(database, "close times in milliseconds".to_owned())?;
    let snapshot = database.snapshot();
    let mut batch = database.batch();
    database.scan(Family::Ledgers, |key, value| {
        let damaged = |malformed| corrupt(Family::Ledgers, key)(malformed);
        let sequence = LedgerKey::decode(key).ok_or(bytes::Malformed).map_err(damaged)?.0;
        let row = LedgerRow::decode(value).map_err(damaged)?;
        progress.at(sequence);
        if row.protocol < FIRST_PROTOCOL {
            return Ok(());
        }
        let Some(time) = precise_time(&snapshot, sequence, &row)? else { return Ok(()) };
        set_close_time(&mut batch, &snapshot, sequence, row, time)?;
        if batch.rows() >= rows_per_batch {
            let full = std::mem::replace(&mut batch, database.batch());
            database.write_unlogged(full)?;
        }
        Ok(())
    })?;
    database.write_unlogged(batch)?;
    // The new version is recorded through the WAL and must not become durable before these unlogged
    // writes.
    database.flush()
}

/// Returns a more precise close time than the stored one, if the raw ledger is kept and has one.
fn precise_time(
    snapshot: &Snapshot<'_>,
    sequence: LedgerSeq,
    row: &LedgerRow,
) -> Result<Option<CloseTime>, StoreError> {
    let key = LedgerKey(sequence).encode();
    let Some(raw) = snapshot.get(Family::LedgerXdr, key)? else { return Ok(None) };
    let unpacked = raw_form::unpack(&raw);
    let header = unpacked.as_deref().ok().and_then(|xdr| decode::header(xdr).ok());
    let Some(time) = header.map(|header| header.closed_at()) else {
        // `verify` reports the damage; the ledger keeps its seconds, as if the raw ledger were
        // gone.
        tracing::warn!(ledger = sequence.0, "a stored raw ledger cannot be read");
        return Ok(None);
    };
    let better = time != row.close_time && time.seconds() == row.close_time.seconds();
    Ok(better.then_some(time))
}

/// Replaces the close time in all stored rows of a ledger.
fn set_close_time(
    batch: &mut Batch<'_>,
    snapshot: &Snapshot<'_>,
    sequence: LedgerSeq,
    row: LedgerRow,
    time: CloseTime,
) -> Result<(), StoreError> {
    set_time_of_events(batch, snapshot, sequence, &row, time)?;
    set_time_of_transactions(batch, snapshot, sequence, time)?;
    let row = LedgerRow { close_time: time, ..row };
    batch.put(Family::Ledgers, &LedgerKey(sequence), row.encode())
}

fn set_time_of_events(
    batch: &mut Batch<'_>,
    snapshot: &Snapshot<'_>,
    sequence: LedgerSeq,
    row: &LedgerRow,
    time: CloseTime,
) -> Result<(), StoreError> {
    let mut rows = snapshot.rows(Family::Events)?;
    rows.seek(BlockKey(row.first_event).encode());
    while let Some((key, compressed)) = rows.item() {
        let damaged = |malformed| corrupt(Family::Events, key)(malformed);
        let first = BlockKey::decode(key).ok_or(bytes::Malformed).map_err(damaged)?.0;
        if first.0 >= row.first_event.0 + row.counts.events() {
            break;
        }
        let mut bytes = compression::decompress(Content::Events, compressed)?;
        if Block::open(first, &bytes).map_err(damaged)?.ledger() != sequence {
            return Err(damaged(bytes::Malformed));
        }
        block::set_close_time(&mut bytes, time).map_err(damaged)?;
        let compressed = compression::compress(Content::Events, &bytes)?;
        batch.put(Family::Events, &BlockKey(first), compressed)?;
        rows.next();
    }
    Ok(rows.status()?)
}

fn set_time_of_transactions(
    batch: &mut Batch<'_>,
    snapshot: &Snapshot<'_>,
    sequence: LedgerSeq,
    time: CloseTime,
) -> Result<(), StoreError> {
    let mut rows = snapshot.rows(Family::Transactions)?;
    let first = TransactionPosition { ledger: sequence, application_order: 0 };
    rows.seek(TransactionKey(first).encode());
    while let Some((key, row)) = rows.item() {
        let damaged = |malformed| corrupt(Family::Transactions, key)(malformed);
        let at = TransactionKey::decode(key).ok_or(bytes::Malformed).map_err(damaged)?.0;
        if at.ledger != sequence {
            break;
        }
        // Rows of transactions in another row's block are covered by that block.
        if let Row::Block(compressed) = Row::parse(row).map_err(damaged)? {
            let block = TransactionBlock::open(at, compressed)?;
            batch.put(Family::Transactions, &TransactionKey(at), block.with_close_time(time)?)?;
        }
        rows.next();
    }
    Ok(rows.status()?)
}
