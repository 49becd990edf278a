//! Lists of contracts to which ledgers were restricted when they were stored, in the order of
//! ingestion. The row of a ledger says whether it was restricted at all; the lists are stored here,
//! each with the place in the feed from which it applied.

use std::collections::BTreeSet;
use std::sync::Arc;

use orrery_ledger::domain::ContractId;

use crate::db::database::Database;
use crate::encoding::bytes::{Malformed, Reader};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

/// The only contracts that are indexed; `None` when all are.
pub(crate) type ContractFilter = Option<Arc<BTreeSet<ContractId>>>;

/// All lists, each with the place of the first ledger to which it applied.
#[derive(Debug, Clone, Default)]
pub(crate) struct ContractFilters(pub(crate) Vec<(u64, ContractFilter)>);

impl ContractFilters {
    /// Reads the stored lists.
    pub(crate) fn load(database: &Database) -> Result<Self, StoreError> {
        let mut found = Vec::new();
        database.scan(Family::Listings, |key, value| {
            let filter = <[u8; 8]>::try_from(key)
                .map_err(|_| Malformed)
                .and_then(|key| Ok((u64::from_be_bytes(key), decode(value)?)));
            found.push(filter.map_err(corrupt(Family::Listings, key))?);
            Ok(())
        })?;
        Ok(Self(found))
    }

    /// Returns whether a list differs from the last one, so that it must be stored with the ledger.
    pub(crate) fn is_new(&self, filter: &ContractFilter) -> bool {
        match self.0.last() {
            Some((_, last)) => last != filter,
            None => filter.is_some(),
        }
    }

    /// Appends a list that applies from `place` on.
    pub(crate) fn push(&mut self, place: u64, filter: ContractFilter) {
        self.0.push((place, filter));
    }

    /// Returns whether every list contains a contract; false when there is none, because a ledger
    /// that was restricted always has one.
    pub(crate) fn always_included(&self, contract: &ContractId) -> bool {
        let has = |(_, filter): &(u64, ContractFilter)| {
            filter.as_ref().is_none_or(|filter| filter.contains(contract))
        };
        !self.0.is_empty() && self.0.iter().all(has)
    }

    /// Returns the list that applied at `place`; `None` before the first one.
    pub(crate) fn at(&self, place: u64) -> Option<&ContractFilter> {
        let at = self.0.partition_point(|(first, _)| *first <= place).checked_sub(1)?;
        self.0.get(at).map(|(_, filter)| filter)
    }
}

pub(crate) fn encode(filter: &ContractFilter) -> Vec<u8> {
    let Some(filter) = filter else { return vec![0] };
    let mut out = Vec::with_capacity(1 + 32 * filter.len());
    out.push(1);
    filter.iter().for_each(|id| out.extend_from_slice(id.as_bytes()));
    out
}

fn decode(bytes: &[u8]) -> Result<ContractFilter, Malformed> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_lists_round_trip() {
        let some = |ids: &[u8]| {
            Some(Arc::new(ids.iter().map(|id| ContractId([*id; 32])).collect::<BTreeSet<_>>()))
        };
        for filter in [None, some(&[]), some(&[1]), some(&[1, 2, 9])] {
            assert_eq!(decode(&encode(&filter)), Ok(filter));
        }
        for damaged in [&[][..], &[2], &[0, 1], &[1, 2]] {
            assert_eq!(decode(damaged), Err(Malformed), "{damaged:?}");
        }
    }

    #[test]
    fn a_contract_list_applies_until_the_next_one() {
        let filter = |id: u8| Some(Arc::new(BTreeSet::from([ContractId([id; 32])])));
        let mut filters = ContractFilters::default();
        assert!(!filters.is_new(&None) && filters.is_new(&filter(1)));
        assert_eq!(filters.at(7), None);
        filters.push(5, filter(1));
        filters.push(9, None);
        assert!(filters.is_new(&filter(1)) && !filters.is_new(&None));
        assert_eq!(filters.at(4), None);
        let at = |place| filters.at(place).unwrap().clone();
        assert_eq!([at(5), at(8), at(9)], [filter(1), filter(1), None]);
    }
}
