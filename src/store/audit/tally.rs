//! Rows of indexes as sums: the same rows in any order give the same sums, other rows other ones but
//! for a chance of 1 in 2^128. Knows keys and values as bytes.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::super::columns::Family;

/// Parts of each index that are summed up by themselves, so that a difference is narrowed down.
const BUCKETS: usize = 1024;

/// What is compared: the indexes of the store, one of them in two halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Index {
    /// Events by contract: key, positions.
    Contract,
    /// Events by topic: key, positions.
    Topic,
    /// Transactions by contract: key, nothing.
    ContractTransaction,
    /// Transactions by their only or outer hash: key, where the events are.
    Hash,
    /// Transactions by their inner hash: key, that hash, where the events are.
    InnerHash,
    /// Transactions by the entries that they changed: key, what of the entry.
    Entry,
}

impl Index {
    const ALL: [Self; 6] = [
        Self::Contract,
        Self::Topic,
        Self::ContractTransaction,
        Self::Hash,
        Self::InnerHash,
        Self::Entry,
    ];

    /// Where its rows are.
    pub(super) fn family(self) -> Family {
        match self {
            Self::Contract => Family::EventsByContract,
            Self::Topic => Family::EventsByTopic,
            Self::ContractTransaction => Family::TxByContract,
            Self::Hash | Self::InnerHash => Family::TxByHash,
            Self::Entry => Family::Entries,
        }
    }
}

/// Whether a row should be there, or is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Expected,
    Found,
}

/// Takes rows of indexes in.
pub(super) trait Sink {
    fn row(&mut self, side: Side, index: Index, key: &[u8], value: &[u8]);
}

/// One part of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Bucket {
    pub index: Index,
    pub number: usize,
}

impl Bucket {
    pub(super) fn of(index: Index, key: &[u8]) -> Self {
        Self { index, number: (xxh3_64(key) % BUCKETS as u64) as usize }
    }

    fn slot(self) -> usize {
        self.index as usize * BUCKETS + self.number
    }
}

/// Sums of the hashes of rows, and how many rows.
type Sum = (u128, u64);

/// The rows that should be there, and those that are.
pub(super) struct Tally {
    expected: Vec<Sum>,
    found: Vec<Sum>,
}

impl Default for Tally {
    fn default() -> Self {
        let nothing = vec![(0, 0); Index::ALL.len() * BUCKETS];
        Self { expected: nothing.clone(), found: nothing }
    }
}

impl Sink for Tally {
    fn row(&mut self, side: Side, index: Index, key: &[u8], value: &[u8]) {
        let sums = match side {
            Side::Expected => &mut self.expected,
            Side::Found => &mut self.found,
        };
        // Keys of one index are of one length.
        let hash = xxh3_128(&[key, value].concat());
        let (sum, count) = &mut sums[Bucket::of(index, key).slot()];
        *sum = sum.wrapping_add(hash);
        *count += 1;
    }
}

impl Tally {
    pub(super) fn add(&mut self, other: &Self) {
        let ours = self.expected.iter_mut().chain(&mut self.found);
        for ((sum, count), (more, rows)) in ours.zip(other.expected.iter().chain(&other.found)) {
            *sum = sum.wrapping_add(*more);
            *count += rows;
        }
    }

    /// Where what is there is not what should be.
    pub(super) fn differences(&self) -> Vec<Bucket> {
        let buckets = Index::ALL
            .into_iter()
            .flat_map(|index| (0..BUCKETS).map(move |number| Bucket { index, number }));
        let differs = |bucket: &Bucket| self.expected[bucket.slot()] != self.found[bucket.slot()];
        buckets.filter(differs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_rows_does_not_matter_and_their_content_does() {
        let rows: Vec<[u8; 4]> = (0..5000u32).map(u32::to_be_bytes).collect();
        let (mut first, mut rest) = (Tally::default(), Tally::default());
        for row in &rows {
            first.row(Side::Expected, Index::Topic, row, b"x");
        }
        for row in rows[..100].iter().rev() {
            first.row(Side::Found, Index::Topic, row, b"x");
        }
        assert!(!first.differences().is_empty());
        for row in rows[100..].iter().rev() {
            rest.row(Side::Found, Index::Topic, row, b"x");
        }
        first.add(&rest);
        assert_eq!(first.differences(), []);
        first.row(Side::Found, Index::Contract, &rows[7], b"x");
        first.row(Side::Expected, Index::Hash, &rows[8], b"x");
        first.row(Side::Found, Index::Hash, &rows[8], b"y");
        let different = [Bucket::of(Index::Contract, &rows[7]), Bucket::of(Index::Hash, &rows[8])];
        assert_eq!(first.differences(), different);
    }
}
