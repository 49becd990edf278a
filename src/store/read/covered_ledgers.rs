//! Covered ledgers, in a form that two installations can compare.

use orrery_ledger::domain::{LedgerHash, LedgerRange, LedgerSeq};
use orrery_ledger::validators::{Signed, Unattested, Validators};

use crate::encoding::digest::Digest;
use crate::encoding::error::StoreError;
use crate::encoding::indexed_as::IndexedAs;
use crate::state::coverage::CoveredRange;
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
    /// The newest ledger of the range that each trusted validator has signed.
    pub signed: Signed,
}

/// What validators attest of consecutive stored ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestedRange {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// The newest ledger of the range that each trusted validator has signed.
    pub signed: Signed,
    /// The newest ledger of the range that is attested, or the reason why none is.
    pub attested: Result<LedgerSeq, Unattested>,
}

impl AttestedRange {
    fn of(range: &CoveredRange, validators: &Validators) -> Self {
        let CoveredRange { ledgers, signed, .. } = range;
        let attested = validators.attested(*ledgers, signed);
        Self { ledgers: *ledgers, signed: signed.clone(), attested }
    }
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
        let ranges: Vec<_> = self.coverage.read().ranges().cloned().collect();
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
                signed: range.signed,
            })
        });
        described.collect()
    }

    /// Returns what these validators attest of each covered range, in ascending order.
    pub fn attested(&self, validators: &Validators) -> Vec<AttestedRange> {
        let coverage = self.coverage.read();
        coverage.ranges().map(|range| AttestedRange::of(range, validators)).collect()
    }

    /// Returns what these validators attest of the newest covered range; `None` when nothing is
    /// stored.
    pub fn newest_attested(&self, validators: &Validators) -> Option<AttestedRange> {
        let coverage = self.coverage.read();
        coverage.ranges().next_back().map(|range| AttestedRange::of(range, validators))
    }
}
