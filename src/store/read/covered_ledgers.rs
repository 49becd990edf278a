//! Covered ledgers, in a form that two installations can compare.

use orrery_ledger::domain::{LedgerHash, LedgerRange};

use crate::encoding::digest::Digest;
use crate::encoding::error::StoreError;
use crate::encoding::indexed_as::IndexedAs;
use crate::state::store::Store;

/// Consecutive ledgers that are stored; the ledgers before and after them are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoveredLedgers {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Hash of the first ledger.
    pub first_hash: LedgerHash,
    /// Hash of the last ledger.
    pub last_hash: LedgerHash,
    /// Hash of the ledger before the first one, according to the first ledger's header.
    pub previous_hash: LedgerHash,
    /// Number of events that were stored, including those that retention has removed since.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
    /// Settings under which the ledgers were indexed; more than one when the settings changed.
    pub indexed_as: Vec<IndexedAs>,
}

impl CoveredLedgers {
    /// Returns the uncovered ledgers between ascending ranges.
    pub fn gaps(ranges: &[Self]) -> Vec<LedgerRange> {
        let between = |pair: &[Self]| {
            let first = pair[0].ledgers.last.next()?;
            Some(LedgerRange { first, last: pair[1].ledgers.first.previous()? })
        };
        ranges.windows(2).filter_map(between).collect()
    }
}

impl Store {
    /// Returns the covered ranges in ascending order.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a record is damaged.
    pub fn completeness(&self) -> Result<Vec<CoveredLedgers>, StoreError> {
        let ranges: Vec<_> = self.coverage.read().ranges().copied().collect();
        let described = ranges.into_iter().map(|range| {
            let first = self.ledger_or_missing(range.ledgers.first)?;
            let last = self.ledger_or_missing(range.ledgers.last)?;
            Ok(CoveredLedgers {
                ledgers: range.ledgers,
                first_hash: first.hash,
                last_hash: last.hash,
                previous_hash: first.previous_hash,
                events: range.sums.events,
                digest: range.sums.digest,
                indexed_as: range.sums.settings.list(),
            })
        });
        described.collect()
    }
}
