//! Digests of stored ledgers, with which two installations can be compared.
//!
//! The digest of a ledger is the SHA-256 of
//!
//! ```text
//! "orrery ledger digest 1\n" · u32 sequence · 32 ledger hash · u64 stored events
//! and for each stored event, in the order of the chain:
//!   u32 application order · option u32 operation index · option u32 event index · 32 tx hash ·
//!   option 32 contract · u8 type (0 contract, 1 system) · u32 topics ·
//!   for each topic: u32 length · XDR · then u32 length of the data · XDR
//! ```
//!
//! with big-endian integers; an option is a byte 0, or a byte 1 and the value. Row ids are not part
//! of it, so the digest does not depend on the order of ingestion.

use orrery_ledger::decode::EventType;
use orrery_ledger::domain::{Digest, LedgerHash, LedgerSeq};
use sha2::{Digest as _, Sha256};

use super::records::EventRecord;

const DOMAIN: &[u8] = b"orrery ledger digest 1\n";

/// Computes the digest of a ledger from its events. Hashes topics and data in place, without
/// copying them.
pub(crate) struct LedgerHasher(Sha256);

impl LedgerHasher {
    /// Begins the digest of a ledger with this number of stored events.
    pub(crate) fn new(sequence: LedgerSeq, hash: &LedgerHash, events: u64) -> Self {
        let hasher = Sha256::new_with_prefix(DOMAIN)
            .chain_update(sequence.0.to_be_bytes())
            .chain_update(hash.as_bytes())
            .chain_update(events.to_be_bytes());
        Self(hasher)
    }

    /// Adds the next event in chain order.
    pub(crate) fn add_event(&mut self, event: &EventRecord<'_>) {
        let mut head = Head::default();
        head.put(&event.application_order.to_be_bytes());
        head.option(event.op_index().map(u32::to_be_bytes).as_ref());
        head.option(event.event_index().map(u32::to_be_bytes).as_ref());
        head.put(event.tx);
        head.option(event.contract);
        head.put(&[u8::from(event.event_type == EventType::System)]);
        head.put(&length(event.topics.len()));
        self.0.update(head.bytes());
        for topic in event.topics {
            self.text(topic);
        }
        self.text(event.data);
    }

    fn text(&mut self, xdr: &[u8]) {
        self.0.update(length(xdr.len()));
        self.0.update(xdr);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from(<[u8; Digest::LEN]>::from(self.0.finalize()))
    }
}

/// Encodes a length or count; XDR limits them to 32 bits.
fn length(count: usize) -> [u8; 4] {
    (count as u32).to_be_bytes()
}

/// The part of an event whose size is bounded, passed to the hasher in one piece.
struct Head {
    bytes: [u8; Self::LONGEST],
    len: usize,
}

impl Default for Head {
    fn default() -> Self {
        Self { bytes: [0; Self::LONGEST], len: 0 }
    }
}

impl Head {
    const LONGEST: usize = 4 + 5 + 5 + 32 + 33 + 1 + 4;

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn option<const N: usize>(&mut self, value: Option<&[u8; N]>) {
        self.put(&[u8::from(value.is_some())]);
        if let Some(value) = value {
            self.put(value);
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orrery_ledger::decode::Placement;
    use orrery_ledger::domain::{CloseTime, EventId};

    fn hash() -> LedgerHash {
        LedgerHash::from([9; 32])
    }

    fn event<'a>(topics: &'a [&'a [u8]], contract: Option<&'a [u8; 32]>) -> EventRecord<'a> {
        EventRecord {
            id: EventId(77),
            ledger: LedgerSeq(5),
            closed_at: CloseTime::Seconds(1),
            tx: &[3; 32],
            application_order: 2,
            placement: Placement::Operation { operation: 0, event_index: 7 },
            operation_begins: None,
            contract,
            event_type: EventType::System,
            successful: None,
            topics,
            data: b"data",
        }
    }

    #[test]
    fn the_digest_is_computed_as_documented() {
        let mut hasher = LedgerHasher::new(LedgerSeq(5), &hash(), 2);
        hasher.add_event(&event(&[b"one", b"three"], Some(&[4; 32])));
        let fee = EventRecord { placement: Placement::BeforeAllTransactions, ..event(&[], None) };
        hasher.add_event(&EventRecord { event_type: EventType::Contract, ..fee });
        let mut expected = b"orrery ledger digest 1\n".to_vec();
        expected.extend([0, 0, 0, 5]);
        expected.extend([9; 32]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 2]);
        expected.extend([0, 0, 0, 2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 7]);
        expected.extend([3; 32]);
        expected.push(1);
        expected.extend([4; 32]);
        expected.extend(b"\x01\0\0\0\x02\0\0\0\x03one\0\0\0\x05three\0\0\0\x04data");
        expected.extend([0, 0, 0, 2, 0, 0]);
        expected.extend([3; 32]);
        expected.extend(b"\0\0\0\0\0\0\0\0\0\x04data");
        assert_eq!(hasher.finish().to_bytes(), <[u8; 32]>::from(Sha256::digest(expected)));
    }

    #[test]
    fn the_digest_does_not_depend_on_row_ids() {
        let digest = |id| {
            let mut hasher = LedgerHasher::new(LedgerSeq(5), &hash(), 1);
            hasher.add_event(&EventRecord { id: EventId(id), ..event(&[b"one"], None) });
            hasher.finish()
        };
        assert_eq!(digest(1), digest(u64::MAX));
    }
}
