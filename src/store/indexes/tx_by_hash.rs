//! Index of transactions by hash, with the location of their events, for every transaction of which
//! a record or an event is stored.

use orrery_ledger::domain::{EventId, TxHash};

use super::index;
use super::index::{Index, RowsOf};
use super::values::{Located, Values};
use crate::encoding::bytes::{Malformed, Reader, put_varint};
use crate::encoding::columns::{Family, TransactionKey};
use crate::encoding::positions::EVENTS_PER_BLOCK;
use crate::encoding::records::TransactionPosition;

pub(crate) const INDEX: Index =
    Index { family: Family::TxByHash, tag_len: HashTag::LEN, rows_of: RowsOf::Located(rows_of) };

fn rows_of(transaction: &Located, first_event: EventId, rows: &mut Values<'_>) {
    let events = &transaction.events;
    let id = |number: u64| EventId(first_event.0 + number);
    let mut entry = HashEntry {
        role: HashRole::Only,
        first_event: id(events.first),
        position: (events.first % EVENTS_PER_BLOCK as u64) as u8,
        events: events.operations,
        fee_events: events.fees.iter().map(|number| id(*number)).collect(),
    };
    for (hash, role) in roles(&transaction.tx, transaction.inner_tx) {
        entry.role = role;
        rows.add_with(&HashTag::from(&hash).0, |value| entry.encode(value));
    }
}

/// Returns the hashes of a transaction, each with its role.
pub(crate) fn roles(
    tx: &TxHash,
    inner: Option<TxHash>,
) -> impl Iterator<Item = (TxHash, HashRole)> {
    let role = inner.map_or(HashRole::Only, |inner| HashRole::Outer { inner });
    [Some((*tx, role)), inner.map(|inner| (inner, HashRole::Inner(inner)))].into_iter().flatten()
}

/// Returns the key of the row for one of a transaction's hashes.
pub(crate) fn key(hash: &TxHash, position: TransactionPosition) -> Vec<u8> {
    index::key(&HashTag::from(hash).0, &TransactionKey(position))
}

/// First bytes of a transaction's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashTag(pub [u8; Self::LEN]);

impl HashTag {
    pub(crate) const LEN: usize = 6;
}

impl From<&TxHash> for HashTag {
    fn from(hash: &TxHash) -> Self {
        let mut tag = [0; Self::LEN];
        tag.copy_from_slice(&hash.as_bytes()[..Self::LEN]);
        Self(tag)
    }
}

/// Value of a row of `tx_by_hash`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HashEntry {
    /// Which of the transaction's hashes the key is derived from.
    pub role: HashRole,
    /// Id of the first event of its operations.
    pub first_event: EventId,
    /// Position of that event in its block.
    pub position: u8,
    /// Number of events that its operations emitted; their ids are consecutive.
    pub events: u64,
    /// Ids of its fee events, in order.
    pub fee_events: Vec<EventId>,
}

/// Which of a transaction's hashes a row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HashRole {
    /// The only hash of a transaction that is not a fee bump.
    Only,
    /// The outer hash of a fee bump. The inner one is stored so that both rows can be pruned.
    Outer {
        /// Inner hash.
        inner: TxHash,
    },
    /// The inner hash of a fee bump. Stored whole, because events hold only the outer one.
    Inner(TxHash),
}

impl HashRole {
    /// Returns the inner hash of the transaction when this is the role of the outer one.
    pub(crate) fn inner(&self) -> Option<TxHash> {
        match self {
            Self::Outer { inner } => Some(*inner),
            Self::Only | Self::Inner(_) => None,
        }
    }
}

impl HashEntry {
    /// Returns the id of the block that holds the first event of its operations.
    pub(crate) fn first_block(&self) -> EventId {
        EventId(self.first_event.0.saturating_sub(u64::from(self.position)))
    }

    /// Returns the ids of all its events in chain order: charged fee, operations, refund.
    pub(crate) fn ids(&self) -> Vec<EventId> {
        let operations = (0..self.events).map(|n| EventId(self.first_event.0 + n));
        let mut ids: Vec<_> = operations.chain(self.fee_events.iter().copied()).collect();
        ids.sort_unstable();
        ids
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match &self.role {
            HashRole::Only => out.push(0),
            HashRole::Outer { inner } => {
                out.push(1);
                out.extend_from_slice(inner.as_bytes());
            }
            HashRole::Inner(hash) => {
                out.push(2);
                out.extend_from_slice(hash.as_bytes());
            }
        }
        put_varint(out, self.first_event.0);
        out.push(self.position);
        put_varint(out, self.events);
        for id in &self.fee_events {
            put_varint(out, id.0);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let role = match reader.u8()? {
            0 => HashRole::Only,
            1 => HashRole::Outer { inner: TxHash::from(*reader.array()?) },
            2 => HashRole::Inner(TxHash::from(*reader.array()?)),
            _ => return Err(Malformed),
        };
        let first_event = EventId(reader.varint()?);
        let position = reader.u8()?;
        let events = reader.varint()?;
        let mut fee_events = Vec::new();
        while !reader.rest().is_empty() {
            fee_events.push(EventId(reader.varint()?));
        }
        Ok(Self { role, first_event, position, events, fee_events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_entries_round_trip() {
        let hash = TxHash::from([7; 32]);
        for role in [HashRole::Only, HashRole::Outer { inner: hash }, HashRole::Inner(hash)] {
            let entry = HashEntry {
                role,
                first_event: EventId(300),
                position: 44,
                events: 2,
                fee_events: vec![EventId(5), EventId(9_000_000_000)],
            };
            let mut bytes = Vec::new();
            entry.encode(&mut bytes);
            assert_eq!(HashEntry::decode(&bytes), Ok(entry.clone()));
            assert_eq!(entry.ids(), [5, 300, 301, 9_000_000_000].map(EventId));
        }
    }
}
