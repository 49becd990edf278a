//! Covered ledgers, in a form that two installations can compare, and what validators have signed of
//! them. Does not judge what that attests.

use orrery_ledger::domain::{CoveredLedgers, LedgerRange};
use orrery_ledger::validators::Signed;

use crate::encoding::error::StoreError;
use crate::encoding::indexed_as::IndexedAs;
use crate::state::store::Store;

/// Consecutive ledgers that are stored; the ledgers before and after them are not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLedgers {
    /// The ledgers, with their hashes and digests.
    pub covered: CoveredLedgers,
    /// Settings under which the ledgers were indexed; more than one when the settings changed.
    pub indexed_as: Vec<IndexedAs>,
    /// The newest ledger of the range that each trusted validator has signed.
    pub signed: Signed,
}

impl StoredLedgers {
    /// Returns the uncovered ledgers between ascending ranges.
    pub fn gaps(ranges: &[Self]) -> Vec<LedgerRange> {
        let between = |pair: &[Self]| {
            let first = pair[0].covered.ledgers.last.next()?;
            Some(LedgerRange { first, last: pair[1].covered.ledgers.first.previous()? })
        };
        ranges.windows(2).filter_map(between).collect()
    }
}

impl Store {
    /// Returns the covered ranges in ascending order.
    pub fn completeness(&self) -> Result<Vec<StoredLedgers>, StoreError> {
        let ranges: Vec<_> = self.coverage.read().ranges().cloned().collect();
        let described = ranges.into_iter().map(|range| {
            let first = self.ledger_or_missing(range.ledgers.first)?;
            let last = self.ledger_or_missing(range.ledgers.last)?;
            let covered = CoveredLedgers {
                ledgers: range.ledgers,
                first_hash: first.hash,
                last_hash: last.hash,
                previous_hash: first.previous_hash,
                events: range.sums.events,
                digest: range.sums.digest,
            };
            let indexed_as = range.sums.settings.list();
            Ok(StoredLedgers { covered, indexed_as, signed: range.signed })
        });
        described.collect()
    }

    /// Returns each covered range, in ascending order, with the newest ledger in it that each trusted
    /// validator has signed.
    pub fn signed(&self) -> Vec<(LedgerRange, Signed)> {
        let coverage = self.coverage.read();
        coverage.ranges().map(|range| (range.ledgers, range.signed.clone())).collect()
    }

    /// Returns the same of the newest covered range; `None` when nothing is stored.
    pub fn newest_signed(&self) -> Option<(LedgerRange, Signed)> {
        let coverage = self.coverage.read();
        coverage.ranges().next_back().map(|range| (range.ledgers, range.signed.clone()))
    }
}
