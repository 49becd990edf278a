//! Which stored ledger precedes one that closed at a given time.

use orrery_ledger::domain::{CloseTime, LedgerHash, LedgerRange, LedgerSeq};

use crate::encoding::error::StoreError;
use crate::state::store::Store;

/// Number of ledgers that are looked at among those that closed in one second: more than a network
/// closes.
const MOST_IN_A_SECOND: u64 = 64;

impl Store {
    /// Returns whether a stored ledger with this hash may be the one right before a ledger that closed at
    /// `closed`: it is among the last ones that had closed by then. Reads a few ledger rows, however many
    /// are stored.
    pub fn holds_before(&self, hash: LedgerHash, closed: CloseTime) -> Result<bool, StoreError> {
        let covered: Vec<LedgerRange> =
            self.coverage.read().ranges().map(|range| range.ledgers).collect();
        let count: u64 = covered.iter().map(LedgerRange::len).sum();
        let closed = closed.seconds();
        // The first stored ledger that closed in a later second.
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low.midpoint(high);
            let row = self.ledger_or_missing(nth(&covered, middle))?;
            match row.close_time.seconds() > closed {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        for position in (low.saturating_sub(MOST_IN_A_SECOND)..low).rev() {
            let row = self.ledger_or_missing(nth(&covered, position))?;
            if row.hash == hash {
                return Ok(true);
            }
            if row.close_time.seconds() < closed {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// Returns the ledger at a position among those of ascending ranges.
fn nth(ranges: &[LedgerRange], mut position: u64) -> LedgerSeq {
    for range in ranges {
        if position < range.len() {
            return LedgerSeq(range.first.0 + position as u32);
        }
        position -= range.len();
    }
    ranges.last().map_or(LedgerSeq(0), |range| range.last)
}

#[cfg(test)]
mod tests {
    use orrery_ledger::decode::decode;
    use orrery_testkit::sandbox::local;

    use crate::sample_ledgers::{chain, everything, store_of};

    /// Every stored ledger is found by the time of the one after it, and no other by that time.
    #[test]
    fn the_ledger_before_is_found_by_the_time_of_the_next() {
        let ledgers = chain(6, 0..=3, 40);
        let directory = tempfile::tempdir().unwrap();
        let stored = ledgers[..10].iter().chain(&ledgers[20..35]);
        let store = store_of(directory.path(), stored, &everything());
        let header = |at: usize| decode(&ledgers[at], local().id()).unwrap().header.closed_at();
        let hash = |at: usize| decode(&ledgers[at], local().id()).unwrap().header.hash;
        for at in (0..10).chain(20..35) {
            assert!(store.holds_before(hash(at), header(at + 1)).unwrap(), "{at}");
        }
        assert!(!store.holds_before(hash(15), header(16)).unwrap(), "it is not stored");
        assert!(!store.holds_before(hash(2), header(30)).unwrap(), "others are between");
    }
}
