//! What is written of a ledger: rows of which either all are in the database or none.

use super::StoreError;
use super::columns::{
    BlockKey, ContractBlockKey, ContractTransactionKey, EntryChangeKey, Family, HashKey, LedgerKey,
    RunKey, TopicBlockKey, TransactionKey,
};
use super::coverage::CoverageChange;
use super::database::Batch;
use super::index_rows::IndexRows;
use super::ledgers::LedgerRow;
use super::lookup::HashEntry;
use super::positions::EVENTS_PER_BLOCK;
use super::prepare::PreparedLedger;
use super::query::TransactionPosition;
use crate::domain::EventId;

/// Adds a ledger whose first event gets the id `first_event`.
pub(super) fn compose(
    batch: &mut Batch<'_>,
    index: &mut IndexRows,
    ledger: &PreparedLedger,
    first_event: EventId,
    change: &CoverageChange,
) -> Result<(), StoreError> {
    let key = LedgerKey(ledger.sequence);
    if let Some(raw) = &ledger.raw {
        batch.put(Family::LedgerXdr, &key, raw)?;
    }
    batch.put(Family::Ledgers, &key, row(ledger, first_event).encode())?;
    put_coverage(batch, change)?;
    put_blocks(batch, index, ledger, first_event)?;
    put_transactions(batch, index, ledger, first_event)
}

fn row(ledger: &PreparedLedger, first_event: EventId) -> LedgerRow {
    LedgerRow {
        hash: ledger.hash,
        previous_hash: ledger.previous_hash,
        close_time: ledger.close_time,
        protocol: ledger.protocol,
        first_event,
        counts: ledger.counts,
        indexed_as: ledger.indexed_as,
        digest: ledger.digest,
    }
}

fn put_coverage(batch: &mut Batch<'_>, change: &CoverageChange) -> Result<(), StoreError> {
    if let Some(merged) = change.merged {
        batch.delete(Family::Ranges, &LedgerKey(merged))?;
    }
    let range = change.range;
    batch.put(Family::Ranges, &LedgerKey(range.ledgers.first), range.encode())?;
    let (number, run) = change.run;
    batch.put(Family::Runs, &RunKey(number), run.encode())
}

fn put_blocks(
    batch: &mut Batch<'_>,
    index: &mut IndexRows,
    ledger: &PreparedLedger,
    first_event: EventId,
) -> Result<(), StoreError> {
    let mut block = first_event;
    for prepared in &ledger.blocks {
        batch.put(Family::Events, &BlockKey(block), &prepared.bytes)?;
        block.0 += prepared.events as u64;
    }
    let block = |relative: u64| EventId(first_event.0 + relative);
    let mut positions = Vec::with_capacity(8);
    for row in &ledger.contracts {
        positions.clear();
        row.positions.encode(&mut positions);
        let key = ContractBlockKey { contract: row.tag, block: block(row.block) };
        index.put(Family::EventsByContract, &key, &positions);
    }
    for row in &ledger.topics {
        positions.clear();
        row.positions.encode(&mut positions);
        let key = TopicBlockKey { tag: row.tag, block: block(row.block) };
        index.put(Family::EventsByTopic, &key, &positions);
    }
    Ok(())
}

fn put_transactions(
    batch: &mut Batch<'_>,
    index: &mut IndexRows,
    ledger: &PreparedLedger,
    first_event: EventId,
) -> Result<(), StoreError> {
    let at = |application_order| TransactionPosition { ledger: ledger.sequence, application_order };
    for transaction in &ledger.transactions {
        let position = at(transaction.application_order);
        batch.put(Family::Transactions, &TransactionKey(position), &transaction.row)?;
        for &contract in &transaction.contracts {
            let key = ContractTransactionKey { contract, position };
            index.put(Family::TxByContract, &key, b"");
        }
    }
    for hash in &ledger.hashes {
        let entry = HashEntry {
            role: hash.role,
            first_event: EventId(first_event.0 + hash.first_event),
            position: (hash.first_event % EVENTS_PER_BLOCK as u64) as u8,
            events: hash.events,
            fee_events: hash.fee_events.iter().map(|n| EventId(first_event.0 + n)).collect(),
        };
        let key = HashKey { tag: hash.tag, position: at(hash.application_order) };
        index.put(Family::TxByHash, &key, &entry.encode());
    }
    for entry in &ledger.entries {
        let key = EntryChangeKey { tag: entry.tag, position: at(entry.application_order) };
        index.put(Family::Entries, &key, &entry.changed.encode());
    }
    Ok(())
}
