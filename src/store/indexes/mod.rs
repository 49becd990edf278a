//! Indexes: rows that follow from stored records and lead to them.
//!
//! An index is one file: its family, the length of its tag, and a function that says which rows follow from a
//! record. Whatever writes ledgers, removes them, checks them or fills an index that is new to a directory calls
//! that function. A key is the tag, then where the record is: the id of an event's block, or the position of a
//! transaction. An index is registered with one line: those of every store in [`BUILT_IN`], others with
//! [`Indexes::with`].

pub(super) mod entries;
pub(super) mod events_by_contract;
pub(super) mod events_by_topic;
mod fill;
mod rows;
pub(super) mod tx_by_contract;
pub(super) mod tx_by_hash;

use super::columns::{BlockKey, Family, Key, TransactionKey};
use super::database::corrupt;
use super::positions::Positions;
use super::query::{EventRecord, TransactionPosition, TransactionRecord};
use super::{Store, StoreError, bytes::Malformed};
use crate::decode::{EntryKey, TransactionView};
use crate::domain::{ContractId, EventId, LedgerSeq};
pub(super) use fill::{bring_up_to_date, fill, is_row};
use rows::Located;
pub(super) use rows::{EventsOfTransaction, Rows};
pub use rows::{Tags, Values};

/// The indexes of every store.
const BUILT_IN: [Index; 5] = [
    events_by_contract::INDEX,
    events_by_topic::INDEX,
    tx_by_hash::INDEX,
    tx_by_contract::INDEX,
    entries::INDEX,
];

/// One index.
#[derive(Debug, Clone, Copy)]
pub struct Index {
    family: Family,
    tag_len: usize,
    rows_of: RowsOf,
}

/// Which rows follow from a record.
#[derive(Debug, Clone, Copy)]
enum RowsOf {
    /// Of events. The value is where in its block an event has the tag.
    Event(fn(&EventRecord<'_>, &mut Tags<'_>)),
    /// Of stored smart-contract transactions.
    Transaction(fn(&IndexedTransaction<'_>, &mut Values<'_>)),
    /// Of transactions that have a record, or events, or both. What an index says of one without a record cannot
    /// all be read off its events, so such an index cannot be filled later. Events are numbered from that of the
    /// ledger which has the id.
    Located(fn(&Located, EventId, &mut Values<'_>)),
}

/// What rows can be made of: a smart-contract transaction as it is decoded, or as it is stored.
#[derive(Debug, Clone, Copy)]
pub struct IndexedTransaction<'a> {
    /// Where it stands.
    pub position: TransactionPosition,
    /// Hash (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<&'a [u8; 32]>,
    /// Whether it succeeded.
    pub successful: bool,
    /// The contracts that it touches.
    pub contracts: &'a [ContractId],
    /// Entries that its operations changed; none when it failed.
    pub changed_entries: &'a [EntryKey<'a>],
    /// XDR `TransactionEnvelope`.
    pub envelope: &'a [u8],
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
}

/// The record that a row of an index leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexed {
    /// An event.
    Event(EventId),
    /// A transaction.
    Transaction(TransactionPosition),
}

impl Index {
    /// An index of events in a family of its own. `rows_of` gives the tags of an event, each of `tag_len` bytes
    /// (12 at the most). What it gives must depend on the event alone, and not on its id, which is not known
    /// yet. An index that gives other rows than before needs another family.
    pub const fn of_events(
        family: &'static str,
        tag_len: usize,
        rows_of: fn(&EventRecord<'_>, &mut Tags<'_>),
    ) -> Self {
        Self { family: Family::Index(family), tag_len, rows_of: RowsOf::Event(rows_of) }
    }

    /// An index of smart-contract transactions, as [`Self::of_events`] is one of events.
    pub const fn of_transactions(
        family: &'static str,
        tag_len: usize,
        rows_of: fn(&IndexedTransaction<'_>, &mut Values<'_>),
    ) -> Self {
        Self { family: Family::Index(family), tag_len, rows_of: RowsOf::Transaction(rows_of) }
    }

    pub(super) fn family(&self) -> Family {
        self.family
    }

    fn is_of_events(&self) -> bool {
        matches!(self.rows_of, RowsOf::Event(_))
    }

    /// Whether its rows say where the events of a transaction are, which only those who have them all know.
    pub(super) fn says_where_events_are(&self) -> bool {
        matches!(self.rows_of, RowsOf::Located(_))
    }

    /// Where a row leads to; an event stands for its block.
    pub(super) fn leads_to(&self, key: &[u8]) -> Result<Indexed, Malformed> {
        match self.rows_of {
            RowsOf::Event(_) => at::<BlockKey>(self.tag_len, key).map(|key| Indexed::Event(key.0)),
            RowsOf::Transaction(_) | RowsOf::Located(_) => {
                at::<TransactionKey>(self.tag_len, key).map(|key| Indexed::Transaction(key.0))
            }
        }
    }
}

/// Key of a row with this tag about the record with this key.
pub(super) fn key(tag: &[u8], record: &impl Key) -> Vec<u8> {
    [tag, record.encode().as_ref()].concat()
}

/// Key of the record that a row leads to.
pub(super) fn at<K: Key>(tag_len: usize, key: &[u8]) -> Result<K, Malformed> {
    key.get(tag_len..).and_then(K::decode).ok_or(Malformed)
}

/// All indexes of a store.
#[derive(Debug, Clone)]
pub struct Indexes(Vec<Index>);

impl Default for Indexes {
    fn default() -> Self {
        Self(BUILT_IN.to_vec())
    }
}

impl Indexes {
    /// One more. A directory that has ledgers already gets its rows when it is opened.
    #[must_use]
    pub fn with(mut self, index: Index) -> Self {
        self.0.push(index);
        self
    }

    pub(super) fn only(index: Index) -> Self {
        Self(vec![index])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Index> {
        self.0.iter()
    }

    pub(super) fn get(&self, number: usize) -> Option<&Index> {
        self.0.get(number)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Names of the families that not every store has.
    pub(super) fn foreign_families(&self) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for (name, _) in self.registered() {
            if Family::ALL.iter().any(|family| family.name() == name)
                || names.iter().any(|it| it == name)
            {
                return Err(StoreError::TakenFamily(name));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Those that not every store has.
    pub(super) fn registered(&self) -> impl Iterator<Item = (&'static str, Index)> {
        self.0.iter().filter_map(|index| match index.family {
            Family::Index(name) => Some((name, *index)),
            _ => None,
        })
    }
}

impl<'a> IndexedTransaction<'a> {
    /// A transaction of a decoded ledger.
    pub(super) fn of_view(ledger: LedgerSeq, view: &'a TransactionView<'a>) -> Self {
        let application_order = view.application_order;
        Self {
            position: TransactionPosition { ledger, application_order },
            tx: view.hash.as_bytes(),
            inner_tx: view.inner_hash.as_ref().map(|hash| hash.as_bytes()),
            successful: view.successful,
            contracts: &view.contracts,
            changed_entries: &view.changed_entries,
            envelope: view.envelope,
            result: view.result,
            meta: view.meta,
        }
    }

    /// A stored transaction.
    fn of_record(record: &TransactionRecord<'a>, changed_entries: &'a [EntryKey<'a>]) -> Self {
        Self {
            position: record.position,
            tx: record.tx,
            inner_tx: record.inner_tx,
            successful: record.successful,
            contracts: record.contracts,
            changed_entries,
            envelope: record.envelope,
            result: record.result,
            meta: record.meta,
        }
    }
}

impl Store {
    /// Visits what a registered index has under tags that begin with `tag`, in the order of tags: the tag, the
    /// record, and the value, which is empty where the record is an event.
    ///
    /// # Errors
    /// What the database says, or that a row is damaged.
    pub fn index_rows(
        &self,
        index: &Index,
        tag: &[u8],
        mut visit: impl FnMut(&[u8], Indexed, &[u8]),
    ) -> Result<(), StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(index.family)?;
        rows.seek(tag);
        while let Some((key, value)) = rows.item().filter(|(key, _)| key.starts_with(tag)) {
            let damaged = |malformed| corrupt(index.family, key)(malformed);
            let found = index.leads_to(key).map_err(damaged)?;
            let tag = &key[..index.tag_len];
            if let Indexed::Event(block) = found {
                let positions = Positions::decode(value).ok_or(Malformed);
                let mut positions = positions.map_err(damaged)?;
                while let Some(position) = positions.pop_lowest() {
                    visit(tag, Indexed::Event(EventId(block.0 + position as u64)), &[]);
                }
            } else {
                visit(tag, found, value);
            }
            rows.next();
        }
        Ok(rows.status()?)
    }
}
