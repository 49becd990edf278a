//! Sums of index rows: the same rows in any order give the same sums, and different rows give
//! different sums except with a probability of 1 in 2^128. Treats keys and values as bytes.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// Number of parts of each index that are summed up separately, to narrow down a difference.
const BUCKETS: usize = 1024;

/// Whether a row follows from the contents or was read from the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Expected,
    Found,
}

/// Receives index rows.
pub(super) trait Sink {
    /// Takes a row of the index with number `index`.
    fn add_row(&mut self, side: Side, index: usize, key: &[u8], value: &[u8]);
}

/// One part of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub index: usize,
    pub number: usize,
}

impl Bucket {
    pub(super) fn of(index: usize, key: &[u8]) -> Self {
        Self { index, number: (xxh3_64(key) % BUCKETS as u64) as usize }
    }

    fn slot(self) -> usize {
        self.index * BUCKETS + self.number
    }
}

/// Sum of the hashes of rows, and number of rows.
type Sum = (u128, u64);

/// Sums of the expected and of the found rows.
pub(super) struct Tally {
    expected: Vec<Sum>,
    found: Vec<Sum>,
}

impl Sink for Tally {
    fn add_row(&mut self, side: Side, index: usize, key: &[u8], value: &[u8]) {
        let sums = match side {
            Side::Expected => &mut self.expected,
            Side::Found => &mut self.found,
        };
        // All keys of an index have the same length, so the concatenation is unambiguous.
        let hash = xxh3_128(&[key, value].concat());
        let (sum, count) = &mut sums[Bucket::of(index, key).slot()];
        *sum = sum.wrapping_add(hash);
        *count += 1;
    }
}

impl Tally {
    /// Creates empty sums for this number of indexes.
    pub(super) fn new(indexes: usize) -> Self {
        let nothing = vec![(0, 0); indexes * BUCKETS];
        Self { expected: nothing.clone(), found: nothing }
    }

    pub(super) fn add(&mut self, other: &Self) {
        let ours = self.expected.iter_mut().chain(&mut self.found);
        for ((sum, count), (more, rows)) in ours.zip(other.expected.iter().chain(&other.found)) {
            *sum = sum.wrapping_add(*more);
            *count += rows;
        }
    }

    /// Returns the buckets whose found rows differ from the expected ones.
    pub(super) fn differences(&self) -> Vec<Bucket> {
        let bucket = |slot| Bucket { index: slot / BUCKETS, number: slot % BUCKETS };
        let buckets = (0..self.expected.len()).map(bucket);
        let differs = |bucket: &Bucket| self.expected[bucket.slot()] != self.found[bucket.slot()];
        buckets.filter(differs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_depend_on_content_and_not_on_order() {
        let rows: Vec<[u8; 4]> = (0..5000u32).map(u32::to_be_bytes).collect();
        let (mut first, mut rest) = (Tally::new(3), Tally::new(3));
        for row in &rows {
            first.add_row(Side::Expected, 2, row, b"x");
        }
        for row in rows[..100].iter().rev() {
            first.add_row(Side::Found, 2, row, b"x");
        }
        assert!(!first.differences().is_empty());
        for row in rows[100..].iter().rev() {
            rest.add_row(Side::Found, 2, row, b"x");
        }
        first.add(&rest);
        assert_eq!(first.differences(), []);
        first.add_row(Side::Found, 0, &rows[7], b"x");
        first.add_row(Side::Expected, 1, &rows[8], b"x");
        first.add_row(Side::Found, 1, &rows[8], b"y");
        let different = [Bucket::of(0, &rows[7]), Bucket::of(1, &rows[8])];
        assert_eq!(first.differences(), different);
    }
}
