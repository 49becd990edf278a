//! Lists of contracts to which ledgers were restricted when they were stored, in the order of
//! ingestion. The row of a ledger says whether it was restricted at all; the lists are stored here,
//! each with the place in the feed from which it applied.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};

use super::bytes::{Malformed, Reader};
use super::columns::Family;
use super::coverage::CoveredRange;
use super::database::{Database, corrupt};
use super::{Store, StoreError};

/// The only contracts that are indexed; `None` when all are.
pub(super) type Listed = Option<Arc<BTreeSet<ContractId>>>;

/// All lists, each with the place of the first ledger to which it applied.
#[derive(Debug, Clone, Default)]
pub(super) struct Listings(Vec<(u64, Listed)>);

impl Listings {
    /// Reads the stored lists.
    pub(super) fn load(database: &Database) -> Result<Self, StoreError> {
        let mut found = Vec::new();
        database.scan(Family::Listings, |key, value| {
            let listing = <[u8; 8]>::try_from(key)
                .map_err(|_| Malformed)
                .and_then(|key| Ok((u64::from_be_bytes(key), decode(value)?)));
            found.push(listing.map_err(corrupt(Family::Listings, key))?);
            Ok(())
        })?;
        Ok(Self(found))
    }

    /// Returns whether a list differs from the last one, so that it must be stored with the ledger.
    pub(super) fn is_new(&self, listed: &Listed) -> bool {
        match self.0.last() {
            Some((_, last)) => last != listed,
            None => listed.is_some(),
        }
    }

    /// Appends a list that applies from `place` on.
    pub(super) fn push(&mut self, place: u64, listed: Listed) {
        self.0.push((place, listed));
    }

    /// Returns whether every list contains a contract.
    pub(super) fn always_included(&self, contract: &ContractId) -> bool {
        let has = |(_, listed): &(u64, Listed)| {
            listed.as_ref().is_none_or(|listed| listed.contains(contract))
        };
        self.0.iter().all(has)
    }

    /// Returns the list that applied at `place`; `None` before the first one.
    fn at(&self, place: u64) -> Option<&Listed> {
        let at = self.0.partition_point(|(first, _)| *first <= place).checked_sub(1)?;
        self.0.get(at).map(|(_, listed)| listed)
    }
}

pub(super) fn encode(listed: &Listed) -> Vec<u8> {
    let Some(listed) = listed else { return vec![0] };
    let mut out = Vec::with_capacity(1 + 32 * listed.len());
    out.push(1);
    listed.iter().for_each(|id| out.extend_from_slice(id.as_bytes()));
    out
}

fn decode(bytes: &[u8]) -> Result<Listed, Malformed> {
    let (first, ids) = bytes.split_first().ok_or(Malformed)?;
    match first {
        0 if ids.is_empty() => Ok(None),
        1 => {
            let mut reader = Reader::new(ids);
            let ids = (0..ids.len() / 32).map(|_| Ok(ContractId(*reader.array()?)));
            let ids = ids.collect::<Result<BTreeSet<_>, Malformed>>()?;
            reader.end()?;
            Ok(Some(Arc::new(ids)))
        }
        _ => Err(Malformed),
    }
}

impl Store {
    /// Returns whether a stored ledger was restricted to a list that lacks one of `contracts`, so
    /// that transactions of that contract may have been left out.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
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
        let lists = coverage.listings.0.iter().filter_map(|(_, listed)| listed.as_deref());
        let mut verdicts = lists.map(lacks_one);
        // The place of the ledger, which takes longer to find, matters only where lists differ.
        if let Some(first) = verdicts.next()
            && verdicts.all(|verdict| verdict == first)
        {
            return Ok(first);
        }
        let listed = coverage.place_of(ledger).and_then(|place| coverage.listings.at(place));
        Ok(listed.and_then(|listed| listed.as_deref()).is_none_or(lacks_one))
    }

    /// Returns the ledgers after a place that were restricted to a list without this contract;
    /// without a contract, those restricted to any list.
    pub fn left_out_after(&self, place: u64, contract: Option<&ContractId>) -> LedgerSet {
        let leaves_out = |listed: &Listed| {
            let lacks = |listed: &Arc<BTreeSet<ContractId>>| {
                contract.is_none_or(|contract| !listed.contains(contract))
            };
            listed.as_ref().is_some_and(lacks)
        };
        let coverage = self.coverage.read();
        let listings = &coverage.listings.0;
        let ends = listings.iter().skip(1).map(|(next, _)| *next).chain([u64::MAX]);
        let mut left_out = LedgerSet::default();
        for ((first, _), end) in listings.iter().zip(ends).filter(|((_, it), _)| leaves_out(it)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_lists_round_trip() {
        let some = |ids: &[u8]| {
            Some(Arc::new(ids.iter().map(|id| ContractId([*id; 32])).collect::<BTreeSet<_>>()))
        };
        for listed in [None, some(&[]), some(&[1]), some(&[1, 2, 9])] {
            assert_eq!(decode(&encode(&listed)), Ok(listed));
        }
        for damaged in [&[][..], &[2], &[0, 1], &[1, 2]] {
            assert_eq!(decode(damaged), Err(Malformed), "{damaged:?}");
        }
    }

    #[test]
    fn a_contract_list_applies_until_the_next_one() {
        let listed = |id: u8| Some(Arc::new(BTreeSet::from([ContractId([id; 32])])));
        let mut listings = Listings::default();
        assert!(!listings.is_new(&None) && listings.is_new(&listed(1)));
        assert_eq!(listings.at(7), None);
        listings.push(5, listed(1));
        listings.push(9, None);
        assert!(listings.is_new(&listed(1)) && !listings.is_new(&None));
        assert_eq!(listings.at(4), None);
        let at = |place| listings.at(place).unwrap().clone();
        assert_eq!([at(5), at(8), at(9)], [listed(1), listed(1), None]);
    }
}
