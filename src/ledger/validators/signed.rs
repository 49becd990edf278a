//! What validators have signed in a range of ledgers.

use std::collections::BTreeMap;

use crate::domain::{LedgerSeq, NodeId};

/// The newest ledger of a range that each validator has signed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signed(BTreeMap<NodeId, LedgerSeq>);

impl Signed {
    /// Records that a validator has signed a ledger.
    pub fn add(&mut self, validator: NodeId, ledger: LedgerSeq) {
        let newest = self.0.entry(validator).or_insert(ledger);
        *newest = ledger.max(*newest);
    }

    /// Adds what validators have signed in a range that is joined with this one.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(validator, ledger)| self.add(validator, ledger));
    }

    /// Returns the part for which `is_kept` returns true.
    pub fn only(&self, is_kept: impl Fn(&NodeId, LedgerSeq) -> bool) -> Self {
        let kept = self.iter().filter(|(validator, ledger)| is_kept(validator, *ledger));
        Self(kept.collect())
    }

    /// Returns the newest ledger that a validator has signed.
    pub fn newest(&self, validator: &NodeId) -> Option<LedgerSeq> {
        self.0.get(validator).copied()
    }

    /// Returns all validators with the newest ledger that each has signed, in the order of their
    /// keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, LedgerSeq)> {
        self.0.iter().map(|(validator, ledger)| (*validator, *ledger))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_ledger_of_each_validator_is_kept() {
        let (a, b) = (NodeId([1; 32]), NodeId([2; 32]));
        let mut signed = Signed::default();
        for ledger in [5, 9, 7] {
            signed.add(a, LedgerSeq(ledger));
        }
        let mut other = Signed::default();
        other.add(a, LedgerSeq(8));
        other.add(b, LedgerSeq(3));
        signed.merge(&other);
        assert!(signed.iter().eq([(a, LedgerSeq(9)), (b, LedgerSeq(3))]));
        assert_eq!(signed.newest(&NodeId([3; 32])), None);
    }
}
