//! What the functions of indexes are given, and what they fill: tags of events, and tags of
//! transactions with a value each.

use orrery_ledger::domain::TxHash;

/// Maximum length of a tag in bytes.
pub(crate) const MAX_TAG_LEN: usize = 12;

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) sort_key: SortKey,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// A tag in the high bytes, and in the low ones the number of an event or the application order of
/// a transaction. One integer, because that sorts fastest, in the order of keys.
pub(crate) type SortKey = u128;

pub(crate) fn sort_key(tag: &[u8], number: u32) -> SortKey {
    let mut bytes = [0; MAX_TAG_LEN + 4];
    let len = tag.len().min(MAX_TAG_LEN);
    bytes[..len].copy_from_slice(&tag[..len]);
    bytes[MAX_TAG_LEN..].copy_from_slice(&number.to_be_bytes());
    SortKey::from_be_bytes(bytes)
}

/// Collects the tags of one event.
pub struct Tags<'a> {
    pub(crate) number: u32,
    pub(crate) occurrences: &'a mut Vec<SortKey>,
}

impl Tags<'_> {
    /// Adds a tag. Adding it again has no effect.
    pub fn add(&mut self, tag: &[u8]) {
        self.occurrences.push(sort_key(tag, self.number));
    }
}

/// Collects the tags of one transaction, each with a value.
pub struct Values<'a> {
    pub(crate) application_order: u32,
    pub(crate) rows: &'a mut Vec<Row>,
    pub(crate) values: &'a mut Vec<u8>,
}

impl Values<'_> {
    /// Adds a row. One row is kept per tag.
    pub fn add(&mut self, tag: &[u8], value: &[u8]) {
        self.add_with(tag, |values| values.extend_from_slice(value));
    }

    pub(crate) fn add_with(&mut self, tag: &[u8], append: impl FnOnce(&mut Vec<u8>)) {
        let start = self.values.len();
        append(self.values);
        let len = (self.values.len() - start) as u32;
        let sort_key = sort_key(tag, self.application_order);
        self.rows.push(Row { sort_key, start: start as u32, len });
    }
}

/// Numbers, within the ledger, of a transaction's stored events.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventsOfTransaction {
    /// Number of the first event of its operations.
    pub first: u64,
    /// How many events its operations emitted; their numbers are consecutive.
    pub operations: u64,
    /// Numbers of its fee events.
    pub fees: Vec<u64>,
}

impl EventsOfTransaction {
    pub(crate) fn add(&mut self, number: u64, by_operation: bool) {
        if !by_operation {
            return self.fees.push(number);
        }
        if self.operations == 0 {
            self.first = number;
        }
        self.operations += 1;
    }

    pub(crate) fn count(&self) -> u64 {
        self.operations + self.fees.len() as u64
    }
}

/// A transaction of which a record or an event is stored.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) application_order: u32,
    /// Hash (the outer one of a fee bump).
    pub tx: TxHash,
    /// Hash of the inner transaction of a fee bump.
    pub inner_tx: Option<TxHash>,
    /// Numbers of its events.
    pub events: EventsOfTransaction,
}
