//! Records the settings and conditions of ledgers that an earlier version stored, from their raw form.

use orrery_ledger::decode::ledger_conditions;
use orrery_ledger::domain::LedgerRange;

use super::upgrade::Upgrade;
use crate::db::database::Database;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey, SettingKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::raw_form;
use crate::encoding::settings::{LedgerConditions, SettingRow};
use crate::state::coverage::Coverage;
use crate::state::unrecorded::Unrecorded;

/// Number of rows from which a batch is written.
const ROWS_PER_BATCH: u64 = 4096;

/// Writes the rows of all ledgers whose raw form is stored, and which ledgers have none. Idempotent.
/// Without the WAL: the caller's next flush makes it durable.
pub(crate) fn fill(database: &Database, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    let mut unrecorded = Coverage::load(database)?.ledgers();
    let mut batch = database.batch();
    let mut progress = upgrade.step(database, "settings from raw ledgers".to_owned())?;
    database.scan(Family::LedgerXdr, |key, row| {
        let damaged = |malformed| corrupt(Family::LedgerXdr, key)(malformed);
        let ledger = LedgerKey::decode(key).ok_or(Malformed).map_err(damaged)?;
        progress.at(ledger.0);
        // `verify` finds what is damaged; here it is a ledger that says nothing.
        let Ok(raw) = raw_form::unpack(row) else { return Ok(()) };
        let Ok(conditions) = ledger_conditions(&raw) else { return Ok(()) };
        batch.put(Family::Conditions, &ledger, LedgerConditions::of(&conditions).encode())?;
        for change in &conditions.settings {
            let key = SettingKey { id: change.id, ledger: ledger.0 };
            batch.put(Family::Settings, &key, SettingRow::of(change).encode())?;
        }
        unrecorded.remove(LedgerRange::only(ledger.0));
        if batch.rows() >= ROWS_PER_BATCH {
            let full = std::mem::replace(&mut batch, database.batch());
            database.write_unlogged(full)?;
        }
        Ok(())
    })?;
    Unrecorded::Settings.put(&mut batch, &unrecorded)?;
    database.write_unlogged(batch)
}
