//! What stored transactions did to contract data, with bytes of their own.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use orrery_ledger::domain::{CloseTime, ContractId, Hash32, LedgerSeq};
use orrery_store::{EntryReader, StoreError, TransactionPosition};

use super::changes::{Before, DataChange, Kind, Ttl, Written, data_changes};
use super::entry::DataKey;
use super::rows::KeyTag;

/// Maximum number of transactions whose changes are kept in memory.
const MAX_CACHED: usize = 256;

/// A transaction and what it changed.
#[derive(Debug)]
pub struct Transaction {
    /// Its ledger and application order.
    pub position: TransactionPosition,
    /// Its hash.
    pub hash: Hash32,
    /// When its ledger closed.
    pub closed_at: CloseTime,
    /// Its changes, by key.
    pub changes: BTreeMap<(ContractId, KeyTag), Change>,
}

/// What a transaction did to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: DataKey<'static>,
    /// The SHA-256 of its XDR `LedgerKey`.
    pub key_hash: Hash32,
    /// What it did; `None` when value and time to live stayed as they were.
    pub kind: Option<Kind>,
    /// The entry before and after, if it was written.
    pub written: Option<WrittenEntry>,
    /// How the time to live was changed.
    pub ttl: Option<Ttl>,
}

/// How a transaction wrote an entry. Entries are XDR `LedgerEntry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenEntry {
    /// The entry before.
    pub before: Found,
    /// The entry after; `None` when it is gone.
    pub after: Option<Vec<u8>>,
}

/// What a transaction found under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Its metadata does not say.
    Unknown,
    /// Nothing.
    Absent,
    /// An XDR `LedgerEntry`.
    Entry(Vec<u8>),
}

impl Change {
    fn of(key_hash: Hash32, change: DataChange<'_>, ledger: LedgerSeq) -> Self {
        let kind = change.kind(ledger);
        let written = change.written.map(|Written { before, after }| WrittenEntry {
            before: match before {
                Before::Unknown => Found::Unknown,
                Before::Absent => Found::Absent,
                Before::Held(entry) | Before::Archived(entry) => Found::Entry(entry.to_vec()),
            },
            after: after.map(<[u8]>::to_vec),
        });
        Self { key: change.key.into_owned(), key_hash, kind, written, ttl: change.ttl }
    }
}

/// Transactions that were read, of which the last ones stay in memory.
#[derive(Debug, Default)]
pub struct Transactions(RefCell<HashMap<TransactionPosition, Option<Rc<Transaction>>>>);

impl Transactions {
    /// Returns a transaction; `None` when it is not stored. `count` is given its size in bytes if it is
    /// read from the store.
    ///
    /// # Errors
    /// Errors of the database, or that the transaction is damaged.
    pub fn get(
        &self,
        reader: &EntryReader<'_>,
        position: TransactionPosition,
        count: impl Fn(usize),
    ) -> Result<Option<Rc<Transaction>>, StoreError> {
        if let Some(known) = self.0.borrow().get(&position) {
            return Ok(known.clone());
        }
        let mut read = None;
        reader.transaction(position, |record| {
            count(record.meta.len() + record.envelope.len());
            let changes = match record.successful {
                true => data_changes(record.meta, record.envelope),
                false => Ok(BTreeMap::new()),
            };
            let of_key = |(hash, change): (Hash32, DataChange<'_>)| {
                let key = (change.key.contract(), KeyTag::of(&hash));
                (key, Change::of(hash, change, position.ledger))
            };
            read = Some(changes.map(|changes| Transaction {
                position,
                hash: Hash32(*record.tx),
                closed_at: record.closed_at,
                changes: changes.into_iter().map(of_key).collect(),
            }));
        })?;
        let read = read.transpose().map_err(|error| error.at(position))?.map(Rc::new);
        let mut known = self.0.borrow_mut();
        if known.len() >= MAX_CACHED {
            known.clear();
        }
        known.insert(position, read.clone());
        Ok(read)
    }
}
