//! The database under audit.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network};
use orrery_ledger::verify::{Policy, Verified};
use parking_lot::Mutex;

use super::problems::Problems;
use crate::db::database::Database;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::indexes::registry::Indexes;
use crate::state::coverage::Coverage;
use crate::state::marks::Marks;
use crate::state::removed::Removed;
use crate::state::totals::Totals;

/// The database under audit, and what was loaded from it.
pub(super) struct Subject<'a> {
    pub(super) network: &'a Network,
    pub(super) coverage: Coverage,
    pub(super) totals: Totals,
    pub(super) removed: Removed,
    pub(super) wanted: LedgerRange,
    /// Policy under which the ledgers were stored.
    pub(super) policy: Policy,
    pub(super) indexes: Indexes,
    pub(super) database: Database,
    pub(super) problems: &'a Problems,
    /// Marks of the wanted ledgers: those that are stored, and those that follow from raw ledgers.
    pub(super) marks: Mutex<Marks>,
}

impl Subject<'_> {
    /// Returns whether all stored ledgers are wanted.
    pub(super) fn is_whole(&self) -> bool {
        self.coverage.is_within(self.wanted)
    }

    /// Records the marks that follow from a raw ledger: one that was stored before marks were kept has
    /// none.
    pub(super) fn mark(&self, ledger: LedgerSeq, verified: &Verified) {
        let only = LedgerRange::only(ledger);
        if verified.reported.is_some() {
            self.marks.lock().reported.insert(only);
        }
        if verified.invocations.unproven > 0 {
            self.marks.lock().unproven.insert(only);
        }
    }

    /// Records a read error as a problem. The caller continues with the next item.
    pub(super) fn add(&self, place: String, error: &StoreError) {
        self.problems.add(place, error.to_string());
    }

    pub(super) fn ledger(&self, sequence: LedgerSeq) -> Result<Option<LedgerRow>, StoreError> {
        let key = LedgerKey(sequence).encode();
        let row = self.database.get_on_disk(Family::Ledgers, key)?;
        let row = row.map(|bytes| LedgerRow::decode(&bytes));
        row.transpose().map_err(corrupt(Family::Ledgers, key))
    }
}
