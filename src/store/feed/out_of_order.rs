//! Progress of a consumer that does not work in the order of ingestion and that records its
//! progress elsewhere: it reports all ledgers that it has processed, and its place is derived from
//! them.

use orrery_ledger::domain::{LedgerRange, LedgerSet};

use crate::state::consumers::consumer::OutOfOrderProgress;
use crate::state::store::Store;

impl Store {
    /// Sets the ledgers that a consumer has processed, all of them, in any order. Its place becomes
    /// the last one up to which nothing is left for it to do, and may move back. Retention waits
    /// for the remaining ledgers and records those that it removes as lost. Written as
    /// [`Self::mark_passed`] is.
    pub fn set_processed(&self, name: &str, done: &LedgerSet) {
        // The runs may be many, so neither lock is held while they are examined.
        let ranges: Vec<LedgerRange> = self.coverage.read().ranges_after(0).collect();
        let lost = self.consumers.lock().get(name).map(|it| it.lost.clone()).unwrap_or_default();
        let mut settled = done.clone();
        settled.insert_all(&lost);
        let (place, beyond) = place_of(&ranges, &settled);
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            let noted = consumer.lost.ledgers();
            consumer.lost.remove_all(done);
            consumer.dirty |= consumer.place != place || consumer.lost.ledgers() != noted;
            consumer.place = place;
            consumer.ahead = OutOfOrderProgress { done: done.clone(), ledgers: beyond };
        }
    }

    /// Returns the ledgers of a range that are lost to a consumer.
    pub fn lost_among(&self, name: &str, ledgers: LedgerRange) -> LedgerSet {
        let consumers = self.consumers.lock();
        consumers.get(name).map(|consumer| consumer.lost.within(ledgers)).unwrap_or_default()
    }
}

/// Counts the settled ledgers of `ranges`, in their order, before the first unsettled ledger and
/// after it.
fn place_of(ranges: &[LedgerRange], settled: &LedgerSet) -> (u64, u64) {
    let (mut place, mut beyond) = (0, 0);
    let mut is_whole = true;
    for range in ranges {
        let inside = settled.within(*range);
        let begin = inside.ranges().first().filter(|first| first.first == range.first);
        let begin = begin.filter(|_| is_whole).map_or(0, LedgerRange::len);
        place += begin;
        beyond += inside.ledgers() - begin;
        is_whole &= begin == range.len();
    }
    (place, beyond)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn the_place_precedes_the_first_unprocessed_ledger() {
        for seed in 0..300 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // Ranges that do not overlap, in any order.
            let ranges: Vec<_> = [40, 20, 0, 60]
                .map(|first| LedgerRange::new(first, first + rng.random_range(0..15)))
                .into_iter()
                .filter(|_| rng.random_bool(0.8))
                .collect();
            let chance = [0.5, 0.97, 1.0][rng.random_range(0..3)];
            let settled: BTreeSet<u32> = (0..80).filter(|_| rng.random_bool(chance)).collect();
            let set: LedgerSet = settled.iter().map(|it| LedgerRange::only(*it)).collect();
            let order: Vec<u32> =
                ranges.iter().flat_map(|range| range.first.0..=range.last.0).collect();
            let place = order.iter().take_while(|ledger| settled.contains(ledger)).count();
            let beyond = order[place..].iter().filter(|ledger| settled.contains(ledger)).count();
            assert_eq!(place_of(&ranges, &set), (place as u64, beyond as u64), "seed {seed}");
        }
    }
}
