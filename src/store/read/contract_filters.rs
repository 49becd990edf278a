//! Which ledgers were restricted to lists of contracts, for readers of a contract.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};

use crate::encoding::error::StoreError;
use crate::state::contract_filters::ContractFilter;
use crate::state::coverage::CoveredRange;
use crate::state::store::Store;

impl Store {
    /// Returns whether a stored ledger was restricted to a list that lacks one of `contracts`, so
    /// that transactions of that contract may have been left out.
    pub fn leaves_out(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<bool, StoreError> {
        let may_be = |range: &CoveredRange| range.sums.settings.has_listed_contracts();
        if !self.coverage.read().range_of(ledger).is_some_and(may_be) {
            return Ok(false);
        }
        if !self.ledger(ledger)?.is_some_and(|row| row.indexed_as.listed_contracts) {
            return Ok(false);
        }
        let lacks_one =
            |listed: &BTreeSet<ContractId>| contracts.iter().any(|id| !listed.contains(id));
        let coverage = self.coverage.read();
        let lists = coverage.filters.0.iter().filter_map(|(_, listed)| listed.as_deref());
        let mut verdicts = lists.map(lacks_one);
        // The place of the ledger, which takes longer to find, matters only where lists differ.
        if let Some(first) = verdicts.next()
            && verdicts.all(|verdict| verdict == first)
        {
            return Ok(first);
        }
        let listed = coverage.place_of(ledger).and_then(|place| coverage.filters.at(place));
        Ok(listed.and_then(|listed| listed.as_deref()).is_none_or(lacks_one))
    }

    /// Returns the ledgers after a place that were restricted to a list without this contract;
    /// without a contract, those restricted to any list.
    pub fn left_out_after(&self, place: u64, contract: Option<&ContractId>) -> LedgerSet {
        let leaves_out = |listed: &ContractFilter| {
            let lacks = |listed: &Arc<BTreeSet<ContractId>>| {
                contract.is_none_or(|contract| !listed.contains(contract))
            };
            listed.as_ref().is_some_and(lacks)
        };
        let coverage = self.coverage.read();
        let filters = &coverage.filters.0;
        let ends = filters.iter().skip(1).map(|(next, _)| *next).chain([u64::MAX]);
        let mut left_out = LedgerSet::default();
        for ((first, _), end) in filters.iter().zip(ends).filter(|((_, it), _)| leaves_out(it)) {
            let from = place.max(first.saturating_sub(1));
            let mut places = end.saturating_sub(from.saturating_add(1));
            for range in coverage.ranges_after(from) {
                let count = range.len().min(places);
                places -= count;
                // The number of ledgers in a range fits in `u32`, except for the range of all
                // sequences.
                if let Some(last) = u32::try_from(count).ok().and_then(|count| count.checked_sub(1))
                {
                    let last = LedgerSeq(range.first.0.saturating_add(last));
                    left_out.insert(LedgerRange { first: range.first, last });
                }
            }
        }
        left_out
    }
}
