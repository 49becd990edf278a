//! Indexes: rows that are derived from stored records and lead to them.
//!
//! An index is one file: its family, the length of its tag, and a function that returns the rows
//! derived from a record. All code that writes ledgers, removes them, checks them or fills a new
//! index calls that function. A key is the tag, then the location of the record: the id of an
//! event's block, or the position of a transaction. An index is registered with one line: those of
//! every store in [`BUILT_IN`], others with [`Indexes::with`].

pub(super) mod entries;
pub(super) mod events_by_contract;
pub(super) mod events_by_topic;
pub(super) mod fill;
mod rows;
pub(super) mod tx_by_contract;
pub(super) mod tx_by_hash;

use orrery_ledger::decode::{EntryKey, TransactionView};
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq};

use super::columns::{BlockKey, Family, Key, TransactionKey};
use super::database::corrupt;
use super::positions::Positions;
use super::query::{EventRecord, TransactionPosition, TransactionRecord};
use super::{Store, StoreError, bytes::Malformed};
pub(super) use fill::{bring_up_to_date, is_row};
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

/// An index: its family, the length of its tag, and the function that derives its rows.
#[derive(Debug, Clone, Copy)]
pub struct Index {
    family: Family,
    tag_len: usize,
    rows_of: RowsOf,
}

/// Function that derives the rows of an index from a record.
#[derive(Debug, Clone, Copy)]
enum RowsOf {
    /// From an event. A row's value holds the positions in the block of the events that have the
    /// tag.
    Event(fn(&EventRecord<'_>, &mut Tags<'_>)),
    /// From a stored smart-contract transaction.
    Transaction(fn(&IndexedTransaction<'_>, &mut Values<'_>)),
    /// From a transaction that has a record, or events, or both. For a transaction without a
    /// record, the rows cannot be derived from its events alone, so such an index cannot be filled
    /// later. The [`EventId`] is that of the ledger's event number 0.
    Located(fn(&Located, EventId, &mut Values<'_>)),
}

/// Input of an index of transactions: a smart-contract transaction, as decoded or as stored.
#[derive(Debug, Clone, Copy)]
pub struct IndexedTransaction<'a> {
    /// Its ledger and application order.
    pub position: TransactionPosition,
    /// Hash (the outer one of a fee bump).
    pub tx: &'a [u8; 32],
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<&'a [u8; 32]>,
    /// Whether it succeeded.
    pub successful: bool,
    /// Contracts that it touches.
    pub contracts: &'a [ContractId],
    /// Entries that its operations changed; empty when it failed.
    pub changed_entries: &'a [EntryKey<'a>],
    /// XDR `TransactionEnvelope`.
    pub envelope: &'a [u8],
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
}

/// The record that an index row leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Indexed {
    /// Id of an event.
    Event(EventId),
    /// Position of a transaction.
    Transaction(TransactionPosition),
}

impl Index {
    /// Creates an index of events in a family of its own. `rows_of` adds the tags of an event, each
    /// of `tag_len` bytes (at most 12). They must depend on the event alone, and not on its id,
    /// which is not assigned yet. An index whose `rows_of` changes needs a new family.
    pub const fn of_events(
        family: &'static str,
        tag_len: usize,
        rows_of: fn(&EventRecord<'_>, &mut Tags<'_>),
    ) -> Self {
        Self { family: Family::Index(family), tag_len, rows_of: RowsOf::Event(rows_of) }
    }

    /// Creates an index of smart-contract transactions, as [`Self::of_events`] does for events.
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

    /// Returns whether its rows hold the location of a transaction's events, which can be checked
    /// only where all of these are stored.
    pub(super) fn holds_event_locations(&self) -> bool {
        matches!(self.rows_of, RowsOf::Located(_))
    }

    /// Returns the record that a row's key leads to; for an index of events, the first event of the
    /// block.
    pub(super) fn leads_to(&self, key: &[u8]) -> Result<Indexed, Malformed> {
        match self.rows_of {
            RowsOf::Event(_) => {
                record_key::<BlockKey>(self.tag_len, key).map(|key| Indexed::Event(key.0))
            }
            RowsOf::Transaction(_) | RowsOf::Located(_) => {
                record_key::<TransactionKey>(self.tag_len, key)
                    .map(|key| Indexed::Transaction(key.0))
            }
        }
    }
}

/// Returns the key of a row with this tag for the record with this key.
pub(super) fn key(tag: &[u8], record: &impl Key) -> Vec<u8> {
    [tag, record.encode().as_ref()].concat()
}

/// Returns the key of the record that a row leads to.
pub(super) fn record_key<K: Key>(tag_len: usize, key: &[u8]) -> Result<K, Malformed> {
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
    /// Registers one more index. A directory that already has ledgers gets its rows when it is
    /// opened.
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

    /// Returns the families of the registered indexes; fails when a name is taken or occurs twice.
    pub(super) fn registered_families(&self) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for (name, _) in self.registered() {
            if Family::ALL.iter().any(|family| family.name() == name)
                || names.iter().any(|it| it == name)
            {
                return Err(StoreError::FamilyTaken(name));
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Returns the indexes that are not built in, with the names of their families.
    pub(super) fn registered(&self) -> impl Iterator<Item = (&'static str, Index)> {
        self.0.iter().filter_map(|index| match index.family {
            Family::Index(name) => Some((name, *index)),
            _ => None,
        })
    }
}

impl<'a> IndexedTransaction<'a> {
    /// Creates the input from a transaction of a decoded ledger.
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

    /// Creates the input from a stored transaction.
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
    /// Visits the rows of an index whose tags begin with `tag`, in the order of tags: the tag, the
    /// record, and the value, which is empty when the record is an event.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails or a row is damaged.
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
