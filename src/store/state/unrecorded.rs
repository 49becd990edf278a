//! Ledgers of which the conditions and changes of settings are not recorded: an earlier version stored
//! them, and their raw form was gone when the directory was upgraded. Ledgers that are stored since are
//! not among them.

use orrery_ledger::domain::LedgerSet;

use super::removed;
use crate::db::database::{Batch, Database};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// Key in `meta` of the set; there is no row when it is empty.
pub(crate) const UNRECORDED_ROW: &[u8] = b"unrecorded_settings";

/// Reads the set.
pub(crate) fn load(database: &Database) -> Result<LedgerSet, StoreError> {
    let Some(row) = database.get(Family::Meta, UNRECORDED_ROW)? else {
        return Ok(LedgerSet::default());
    };
    removed::decode(&row).map_err(corrupt(Family::Meta, UNRECORDED_ROW))
}

/// Puts the row of a set.
pub(crate) fn put(batch: &mut Batch<'_>, ledgers: &LedgerSet) -> Result<(), StoreError> {
    if ledgers.ranges().is_empty() {
        return batch.delete_raw(Family::Meta, UNRECORDED_ROW);
    }
    batch.put_raw(Family::Meta, UNRECORDED_ROW, &removed::encode(ledgers))
}
