//! Ledgers that an earlier version stored without something that this one stores, each set in a row of
//! `meta`. Ledgers that are stored since are not among them.

use orrery_ledger::domain::LedgerSet;

use super::removed;
use super::store::Store;
use crate::db::database::{Batch, Database};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// What ledgers may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unrecorded {
    /// The network's conditions and changes of its settings: their raw form was gone when the directory
    /// was upgraded.
    Settings,
    /// Transactions that extend or restore data of listed contracts and do nothing else: storing was
    /// restricted to a list.
    Extensions,
}

impl Unrecorded {
    const ALL: [Self; 2] = [Self::Settings, Self::Extensions];

    /// Key in `meta` of the set; there is no row when it is empty.
    fn row(self) -> &'static [u8] {
        match self {
            Self::Settings => b"unrecorded_settings",
            Self::Extensions => b"unrecorded_extensions",
        }
    }

    /// Whether a row of `meta` has such a set.
    pub(crate) fn is_row(key: &[u8]) -> bool {
        Self::ALL.iter().any(|one| one.row() == key)
    }

    /// Reads the set.
    pub(crate) fn load(self, database: &Database) -> Result<LedgerSet, StoreError> {
        let Some(row) = database.get(Family::Meta, self.row())? else {
            return Ok(LedgerSet::default());
        };
        removed::decode(&row).map_err(corrupt(Family::Meta, self.row()))
    }

    /// Puts the row of a set.
    pub(crate) fn put(self, batch: &mut Batch<'_>, ledgers: &LedgerSet) -> Result<(), StoreError> {
        if ledgers.ranges().is_empty() {
            return batch.delete_raw(Family::Meta, self.row());
        }
        batch.put_raw(Family::Meta, self.row(), &removed::encode(ledgers))
    }
}

impl Store {
    /// Returns the ledgers that were stored without something.
    ///
    /// # Errors
    /// Errors of the database, or that the row is damaged.
    pub fn unrecorded(&self, what: Unrecorded) -> Result<LedgerSet, StoreError> {
        what.load(&self.database)
    }
}
