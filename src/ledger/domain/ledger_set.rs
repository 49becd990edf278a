//! Sets of ledgers.

use serde::{Deserialize, Serialize};

use super::{LedgerRange, LedgerSeq};

/// Maximum number of ranges that an answer lists of a set.
const MOST_LISTED: usize = 100;

/// A set of ledgers, stored and serialised as ascending ranges that neither overlap nor touch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Vec<LedgerRange>")]
pub struct LedgerSet(Vec<LedgerRange>);

impl LedgerSet {
    /// Returns the ranges, in ascending order.
    pub fn ranges(&self) -> &[LedgerRange] {
        &self.0
    }

    /// Returns the first ranges, at most as many as an answer lists: 100.
    pub fn first_ranges(&self) -> impl Iterator<Item = LedgerRange> + '_ {
        self.0.iter().take(MOST_LISTED).copied()
    }

    /// Returns whether the set contains no ledger.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of ledgers in the set.
    pub fn ledgers(&self) -> u64 {
        self.0.iter().map(LedgerRange::len).sum()
    }

    /// Returns whether the set contains `ledger`.
    pub fn contains(&self, ledger: LedgerSeq) -> bool {
        let at = self.0.partition_point(|range| range.last < ledger);
        self.0.get(at).is_some_and(|range| range.contains(ledger))
    }

    /// Adds the ledgers of a range.
    pub fn insert(&mut self, added: LedgerRange) {
        if added.is_empty() {
            return;
        }
        // Ranges that overlap or touch the added one are merged with it.
        let (first, last) = (added.first.0.saturating_sub(1), added.last.0.saturating_add(1));
        let from = self.0.partition_point(|range| range.last.0 < first);
        let to = self.0.partition_point(|range| range.first.0 <= last);
        let joined = self.0[from..to].iter().fold(added, |joined, range| LedgerRange {
            first: joined.first.min(range.first),
            last: joined.last.max(range.last),
        });
        self.0.splice(from..to, [joined]);
    }

    /// Removes the ledgers of a range.
    pub fn remove(&mut self, removed: LedgerRange) {
        if removed.is_empty() {
            return;
        }
        let from = self.0.partition_point(|range| range.last < removed.first);
        let to = self.0.partition_point(|range| range.first <= removed.last);
        let overlapping = self.0.get(from..to).unwrap_or_default();
        let mut left = Vec::with_capacity(2);
        if let Some((range, last)) = overlapping.first().zip(removed.first.previous())
            && range.first <= last
        {
            left.push(LedgerRange { first: range.first, last });
        }
        if let Some((range, first)) = overlapping.last().zip(removed.last.next())
            && first <= range.last
        {
            left.push(LedgerRange { first, last: range.last });
        }
        if from < to {
            self.0.splice(from..to, left);
        }
    }

    /// Adds all ledgers of another set.
    pub fn insert_all(&mut self, other: &Self) {
        other.0.iter().for_each(|range| self.insert(*range));
    }

    /// Removes all ledgers of another set.
    pub fn remove_all(&mut self, other: &Self) {
        other.0.iter().for_each(|range| self.remove(*range));
    }

    /// Returns the ledgers of the set that are in the range `bounds`.
    pub fn within(&self, bounds: LedgerRange) -> Self {
        let cut = |range: &LedgerRange| LedgerRange {
            first: range.first.max(bounds.first),
            last: range.last.min(bounds.last),
        };
        Self(self.0.iter().map(cut).filter(|range| !range.is_empty()).collect())
    }
}

impl FromIterator<LedgerRange> for LedgerSet {
    fn from_iter<I: IntoIterator<Item = LedgerRange>>(ranges: I) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

impl From<Vec<LedgerRange>> for LedgerSet {
    fn from(ranges: Vec<LedgerRange>) -> Self {
        ranges.into_iter().collect()
    }
}

impl From<LedgerRange> for LedgerSet {
    fn from(range: LedgerRange) -> Self {
        [range].into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn ledger_sets_agree_with_a_btree_set() {
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut set, mut model) = (LedgerSet::default(), BTreeSet::new());
            for _ in 0..60 {
                let first = rng.random_range(0..40u32);
                let range =
                    LedgerRange::new(first, (first + rng.random_range(0..8)).saturating_sub(1));
                if rng.random_bool(0.6) {
                    set.insert(range);
                    model.extend(range.first.0..=range.last.0);
                } else {
                    set.remove(range);
                    model.retain(|ledger| !range.contains(LedgerSeq(*ledger)));
                }
                let ranges = set.ranges();
                let apart = |pair: &[LedgerRange]| pair[0].last.0 + 1 < pair[1].first.0;
                assert!(ranges.windows(2).all(apart), "{set:?}");
                let listed = |set: &LedgerSet| -> Vec<u32> {
                    set.ranges().iter().flat_map(|range| range.first.0..=range.last.0).collect()
                };
                assert_eq!(listed(&set), model.iter().copied().collect::<Vec<_>>());
                assert_eq!(set.ledgers(), model.len() as u64);
                let ledger = rng.random_range(0..50);
                assert_eq!(set.contains(LedgerSeq(ledger)), model.contains(&ledger));
                let bounds = LedgerRange::new(10, 20);
                let inside = model.iter().copied().filter(|it| bounds.contains(LedgerSeq(*it)));
                assert_eq!(listed(&set.within(bounds)), inside.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn ledgers_0_and_u32_max_are_supported() {
        let mut set = LedgerSet::from(LedgerRange::new(0, u32::MAX));
        set.remove(LedgerRange::new(0, 0));
        set.remove(LedgerRange::new(u32::MAX, u32::MAX));
        assert_eq!(set.ranges(), [LedgerRange::new(1, u32::MAX - 1)]);
        set.insert(LedgerRange::new(u32::MAX, u32::MAX));
        set.insert(LedgerRange::new(0, 0));
        assert_eq!(set.ledgers(), 1 << 32);
    }
}
