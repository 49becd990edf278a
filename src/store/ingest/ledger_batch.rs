//! Composes the rows of a ledger, which are written atomically.

use orrery_ledger::domain::EventId;

use super::index_rows::IndexRows;
use super::prepare::PreparedLedger;
use crate::db::database::Batch;
use crate::encoding::block::PreparedBlock;
use crate::encoding::columns::{BlockKey, Family, LedgerKey, RunKey, SettingKey, TransactionKey};
use crate::encoding::error::StoreError;
use crate::encoding::ledgers::LedgerRow;
use crate::encoding::records::TransactionPosition;
use crate::state::coverage::CoverageChange;

/// Adds the rows of a ledger to `batch` and its index rows to `index`. The ledger's first event
/// gets the id `first_event`.
pub(crate) fn compose(
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
    batch.put(Family::Evicted, &key, &ledger.evicted)?;
    batch.put(Family::Conditions, &key, ledger.conditions.encode())?;
    for (id, row) in &ledger.settings {
        let key = SettingKey { id: *id, ledger: ledger.sequence };
        batch.put(Family::Settings, &key, row)?;
    }
    let row = LedgerRow { first_event, ..ledger.row.clone() };
    batch.put(Family::Ledgers, &key, row.encode())?;
    if let Some(merged) = change.merged {
        batch.delete(Family::Ranges, &LedgerKey(merged))?;
    }
    let (range, (number, run)) = (&change.range, change.run);
    batch.put(Family::Ranges, &LedgerKey(range.ledgers.first), range.encode())?;
    batch.put(Family::Runs, &RunKey(number), run.encode())?;
    let mut block = first_event;
    for PreparedBlock { events, compressed, .. } in &ledger.blocks {
        batch.put(Family::Events, &BlockKey(block), compressed)?;
        block.0 += events;
    }
    for (application_order, row) in &ledger.transactions {
        let (ledger, application_order) = (ledger.sequence, *application_order);
        let position = TransactionPosition { ledger, application_order };
        batch.put(Family::Transactions, &TransactionKey(position), row)?;
    }
    ledger.rows.visit(ledger.sequence, first_event, |_, family, key, value| {
        index.put(family, key, value);
        Ok(())
    })
}
