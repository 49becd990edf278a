//! Marks the ledgers that an earlier version stored without the transactions that do no more than extend or
//! restore data of listed contracts.

use orrery_ledger::domain::{LedgerRange, LedgerSet};

use super::upgrade::Upgrade;
use crate::db::database::Database;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::state::unrecorded::Unrecorded;

/// Records all ledgers of which storing was restricted to a list. Idempotent. Without the WAL: the caller's
/// next flush makes it durable.
pub(crate) fn mark(database: &Database, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    let mut unrecorded = LedgerSet::default();
    let mut progress = upgrade.step(database, "ledgers with listed contracts".to_owned())?;
    database.scan(Family::Ledgers, |key, row| {
        let damaged = |malformed| corrupt(Family::Ledgers, key)(malformed);
        let ledger = LedgerKey::decode(key).ok_or(Malformed).map_err(damaged)?.0;
        progress.at(ledger);
        // `verify` finds what is damaged; here it is a ledger of which nothing is known.
        if LedgerRow::decode(row).map_or(true, |row| row.indexed_as.listed_contracts) {
            unrecorded.insert(LedgerRange::only(ledger));
        }
        Ok(())
    })?;
    let mut batch = database.batch();
    Unrecorded::Extensions.put(&mut batch, &unrecorded)?;
    database.write_unlogged(batch)
}
