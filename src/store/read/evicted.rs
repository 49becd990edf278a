//! What a ledger evicted.

use orrery_ledger::domain::LedgerSeq;

use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::evicted::{self, Evicted};
use crate::state::store::Store;

impl Store {
    /// Returns the contract data that a ledger evicted; `None` when the ledger is not stored, or was
    /// stored by a version that did not keep this.
    ///
    /// # Errors
    /// Errors of the database, or that the row is damaged.
    pub fn evicted(&self, ledger: LedgerSeq) -> Result<Option<Vec<Evicted>>, StoreError> {
        let key = LedgerKey(ledger).encode();
        let Some(row) = self.database.get(Family::Evicted, key)? else { return Ok(None) };
        evicted::decode(&row).map(Some).map_err(corrupt(Family::Evicted, key))
    }
}
