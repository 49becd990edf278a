//! What is known of a contradiction between stored ledgers and validators, kept with the ledgers so that
//! it outlives the process that has found it. What the row says is a matter of the caller.

use std::sync::Arc;

use crate::db::database::Database;
use crate::encoding::columns::Family;
use crate::encoding::error::StoreError;
use crate::state::store::Store;

pub(crate) const CONTRADICTION_ROW: &[u8] = b"contradiction";

/// Reads the row.
pub(crate) fn load(database: &Database) -> Result<Option<Arc<[u8]>>, StoreError> {
    let row = database.get(Family::Meta, CONTRADICTION_ROW)?;
    Ok(row.map(|bytes| Arc::from(bytes.as_ref())))
}

impl Store {
    /// Returns what was recorded with [`Self::set_contradiction`].
    pub fn contradiction(&self) -> Option<Arc<[u8]>> {
        self.contradiction.read().clone()
    }

    /// Records how validators contradict stored ledgers, or with `None` that they do not. It is on disk
    /// when this returns.
    ///
    /// # Errors
    /// Errors of the database; what [`Self::contradiction`] returns has changed nevertheless.
    pub fn set_contradiction(&self, found: Option<&[u8]>) -> Result<(), StoreError> {
        let _writer = self.writer.lock();
        *self.contradiction.write() = found.map(Arc::from);
        let mut batch = self.database.batch();
        match found {
            Some(found) => batch.put_raw(Family::Meta, CONTRADICTION_ROW, found)?,
            None => batch.delete_raw(Family::Meta, CONTRADICTION_ROW)?,
        }
        self.database.write_synced(batch)
    }
}
