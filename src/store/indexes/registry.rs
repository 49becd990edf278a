//! The list of a store's indexes. An index is registered with one line: those of every store in
//! [`BUILT_IN`], others with [`Indexes::with`].

use super::index::Index;
use super::{
    entries, events_by_address, events_by_contract, events_by_topic, tx_by_contract, tx_by_hash,
};
use crate::encoding::columns::Family;

/// The indexes of every store.
const BUILT_IN: [Index; 6] = [
    events_by_contract::INDEX,
    events_by_topic::INDEX,
    events_by_address::INDEX,
    tx_by_hash::INDEX,
    tx_by_contract::INDEX,
    entries::INDEX,
];

/// All indexes of a store.
#[derive(Debug, Clone)]
pub struct Indexes(pub(crate) Vec<Index>);

impl Default for Indexes {
    fn default() -> Self {
        Self(BUILT_IN.to_vec())
    }
}

impl Indexes {
    /// Registers one more index. A directory that already has ledgers gets its rows when it is
    /// opened.
    #[must_use]
    pub fn with(mut self, index: Index) -> Self {
        self.0.push(index);
        self
    }

    pub(crate) fn only(index: Index) -> Self {
        Self(vec![index])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Index> {
        self.0.iter()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Index> {
        self.0.get(number)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the indexes that are not built in, with the names of their families.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (&'static str, Index)> {
        self.0.iter().filter_map(|index| match index.family {
            Family::Index(name) => Some((name, *index)),
            _ => None,
        })
    }
}
