//! For a consumer whose work does not follow the order of ingestion, and whose own record of it lies elsewhere: what it
//! is through with is said as a whole, and its place follows from that.

use super::super::Store;
use super::state::Ahead;
use crate::domain::{LedgerRange, LedgerSet};

impl Store {
    /// Says with which ledgers a consumer is through, all of them, in whatever order that came. Its place is from now
    /// on the last one up to which there is nothing left for it to do; it may also go back. Retention waits for what
    /// is left, and notes as lost what of that it removes. It is written as by [`Self::passed`].
    pub fn is_through_with(&self, name: &str, done: &LedgerSet) {
        // Neither lock is held while this looks at all runs, which may be many.
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
            consumer.ahead = Ahead { done: done.clone(), ledgers: beyond };
        }
    }

    /// Ledgers that are lost to a consumer, among these.
    pub fn lost_among(&self, name: &str, ledgers: LedgerRange) -> LedgerSet {
        let consumers = self.consumers.lock();
        consumers.get(name).map(|consumer| consumer.lost.within(ledgers)).unwrap_or_default()
    }
}

/// How many ledgers of these ranges, in their order, are settled before the first that is not, and after it.
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
    fn the_place_is_that_before_the_first_ledger_that_is_left() {
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
            let set: LedgerSet = settled.iter().map(|it| LedgerRange::new(*it, *it)).collect();
            let order: Vec<u32> =
                ranges.iter().flat_map(|range| range.first.0..=range.last.0).collect();
            let place = order.iter().take_while(|ledger| settled.contains(ledger)).count();
            let beyond = order[place..].iter().filter(|ledger| settled.contains(ledger)).count();
            assert_eq!(place_of(&ranges, &set), (place as u64, beyond as u64), "seed {seed}");
        }
    }
}
