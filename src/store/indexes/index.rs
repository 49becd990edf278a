//! What an index is: its family, the length of its tag, and the function that derives its rows.

use orrery_ledger::decode::{ChangedEntry, TransactionView};
use orrery_ledger::domain::{ContractId, EventId, LedgerSeq};

use super::values::{Located, Tags, Values};
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{BlockKey, Family, Key, TransactionKey};
use crate::encoding::records::{EventRecord, TransactionPosition, TransactionRecord};

/// An index: its family, the length of its tag, and the function that derives its rows.
#[derive(Debug, Clone, Copy)]
pub struct Index {
    pub(crate) family: Family,
    pub(crate) tag_len: usize,
    pub(crate) rows_of: RowsOf,
}

/// Function that derives the rows of an index from a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowsOf {
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
    pub changed_entries: &'a [ChangedEntry<'a>],
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

    pub(crate) fn family(&self) -> Family {
        self.family
    }

    pub(crate) fn is_of_events(&self) -> bool {
        matches!(self.rows_of, RowsOf::Event(_))
    }

    /// Returns whether its rows hold the location of a transaction's events, which can be checked
    /// only where all of these are stored.
    pub(crate) fn holds_event_locations(&self) -> bool {
        matches!(self.rows_of, RowsOf::Located(_))
    }

    /// Returns the record that a row's key leads to; for an index of events, the first event of the
    /// block.
    pub(crate) fn leads_to(&self, key: &[u8]) -> Result<Indexed, Malformed> {
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
pub(crate) fn key(tag: &[u8], record: &impl Key) -> Vec<u8> {
    [tag, record.encode().as_ref()].concat()
}

/// Returns the key of the record that a row leads to.
pub(crate) fn record_key<K: Key>(tag_len: usize, key: &[u8]) -> Result<K, Malformed> {
    key.get(tag_len..).and_then(K::decode).ok_or(Malformed)
}

impl<'a> IndexedTransaction<'a> {
    /// Creates the input from a transaction of a decoded ledger.
    pub(crate) fn of_view(ledger: LedgerSeq, view: &'a TransactionView<'a>) -> Self {
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
    pub(crate) fn of_record(
        record: &TransactionRecord<'a>,
        changed_entries: &'a [ChangedEntry<'a>],
    ) -> Self {
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
