//! What stands behind a transaction's hash: where its events are, and which of its hashes it was.

use super::bytes::{Malformed, Reader, put_varint};
use crate::domain::{EventId, TxHash};

/// Value of `tx_by_hash`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HashEntry {
    /// Which hash of the transaction the key is made of.
    pub role: HashRole,
    /// First of the events of its operations.
    pub first_event: EventId,
    /// Its position in its block.
    pub position: u8,
    /// How many events its operations emitted; their ids follow one another.
    pub events: u64,
    /// Its fee events, in order.
    pub fee_events: Vec<EventId>,
}

/// Which hash of a transaction a row of `tx_by_hash` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HashRole {
    /// The only hash of a transaction that is not a fee bump.
    Only,
    /// The outer hash of a fee bump; the inner one is kept so that both rows can be pruned.
    Outer {
        /// Inner hash.
        inner: TxHash,
    },
    /// The inner hash of a fee bump, whole, because events keep only the outer one.
    Inner(TxHash),
}

impl HashEntry {
    /// The block that holds the first of the events of its operations.
    pub(super) fn first_block(&self) -> EventId {
        EventId(self.first_event.0.saturating_sub(u64::from(self.position)))
    }

    /// Ids of all its events in chain order: charged fee, operations, refund.
    pub(super) fn ids(&self) -> Vec<EventId> {
        let operations = (0..self.events).map(|n| EventId(self.first_event.0 + n));
        let mut ids: Vec<_> = operations.chain(self.fee_events.iter().copied()).collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
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
        put_varint(&mut out, self.first_event.0);
        out.push(self.position);
        put_varint(&mut out, self.events);
        for id in &self.fee_events {
            put_varint(&mut out, id.0);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
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
    fn survives_a_round_trip() {
        let hash = TxHash::from([7; 32]);
        for role in [HashRole::Only, HashRole::Outer { inner: hash }, HashRole::Inner(hash)] {
            let entry = HashEntry {
                role,
                first_event: EventId(300),
                position: 44,
                events: 2,
                fee_events: vec![EventId(5), EventId(9_000_000_000)],
            };
            assert_eq!(HashEntry::decode(&entry.encode()), Ok(entry.clone()));
            assert_eq!(entry.ids(), [5, 300, 301, 9_000_000_000].map(EventId));
        }
    }
}
