//! The database under audit.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network};
use orrery_ledger::verify::Policy;

use super::problems::Problems;
use crate::db::database::Database;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::digest::Digest;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::ledgers::LedgerRow;
use crate::indexes::registry::Indexes;
use crate::state::coverage::Coverage;
use crate::state::removed::Removed;
use crate::state::totals::Totals;

/// Consecutive ledgers, as found on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditedRange {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Number of events that were stored, including those that retention has removed since.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
}

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
}

impl Subject<'_> {
    /// Returns whether all stored ledgers are wanted.
    pub(super) fn is_whole(&self) -> bool {
        self.coverage.is_within(self.wanted)
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
