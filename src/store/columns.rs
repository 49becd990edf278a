//! Families, their options and their keys: the one place that knows how RocksDB is laid out.
//!
//! Integers in keys are big-endian, so that the order of bytes is the order of numbers. Contracts,
//! topics and hashes stand in keys as short tags: every index is verified against the record it
//! leads to, so a collision of tags costs one read and never a wrong answer.

use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64;

use super::query::TransactionPosition;
use crate::decode::{EntryKey, EntryKind};
use crate::domain::{ContractId, EventId, LedgerSeq, TxHash};

/// The families of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Family {
    /// Name → value: format version, passphrase.
    Meta,
    /// [`LedgerKey`] → [`super::ledgers::LedgerRow`].
    Ledgers,
    /// [`LedgerKey`] → zstd of `LedgerCloseMeta`; pruned by retention.
    LedgerXdr,
    /// [`LedgerKey`] of the first ledger of a covered range → [`super::coverage::CoveredRange`].
    Ranges,
    /// [`RunKey`] → [`super::runs::Run`]: ledgers ingested one after the other.
    Runs,
    /// [`BlockKey`] → packed events, see [`super::block`].
    Events,
    /// [`ContractBlockKey`] → [`super::positions::Positions`].
    EventsByContract,
    /// [`TopicBlockKey`] → [`super::positions::Positions`].
    EventsByTopic,
    /// [`TransactionKey`] → packed smart-contract transactions, see [`super::transaction_block`].
    Transactions,
    /// [`HashKey`] → [`super::lookup::HashEntry`].
    TxByHash,
    /// [`ContractTransactionKey`] → nothing.
    TxByContract,
    /// [`EntryChangeKey`] → [`super::entries::Changed`].
    Entries,
    /// [`KnownEntryKey`] → [`super::known_entries::KnownEntry`].
    KnownEntries,
    /// Number of an indexing program → its manifest. See [`super::programs`] for this and what follows.
    Programs,
    /// SHA-256 of a module → the module.
    Wasm,
    /// Number of a program → how far it has got.
    ProgramProgress,
    /// What earlier versions queued for programs; empty.
    ProgramQueue,
    /// Program, position → what a program's run on that transaction emitted.
    Rows,
    /// Program, number → position of a run, in the order in which runs were stored.
    RowLog,
    /// Program, number → record of a run; the newest are kept.
    Executions,
    /// Program, ledger, source → sums over the runs of that ledger.
    ProgramStats,
    /// Name of a consumer of the feed → how far it has got, see [`super::feed`].
    Consumers,
    /// Place in the order of ingestion → the contracts that ledgers from there on were restricted to,
    /// see [`super::listings`].
    Listings,
}

impl Family {
    pub(super) const ALL: [Self; 23] = [
        Self::Meta,
        Self::Ledgers,
        Self::LedgerXdr,
        Self::Ranges,
        Self::Runs,
        Self::Events,
        Self::EventsByContract,
        Self::EventsByTopic,
        Self::Transactions,
        Self::TxByHash,
        Self::TxByContract,
        Self::Entries,
        Self::KnownEntries,
        Self::Programs,
        Self::Wasm,
        Self::ProgramProgress,
        Self::ProgramQueue,
        Self::Rows,
        Self::RowLog,
        Self::Executions,
        Self::ProgramStats,
        Self::Consumers,
        Self::Listings,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Ledgers => "ledgers",
            Self::LedgerXdr => "ledger_xdr",
            Self::Ranges => "ranges",
            Self::Runs => "runs",
            Self::Events => "events",
            Self::EventsByContract => "events_by_contract",
            Self::EventsByTopic => "events_by_topic",
            Self::Transactions => "transactions",
            Self::TxByHash => "tx_by_hash",
            Self::TxByContract => "tx_by_contract",
            Self::Entries => "entries",
            Self::KnownEntries => "known_entries",
            Self::Programs => "programs",
            Self::Wasm => "wasm",
            Self::ProgramProgress => "program_progress",
            Self::ProgramQueue => "program_queue",
            Self::Rows => "rows",
            Self::RowLog => "row_log",
            Self::Executions => "executions",
            Self::ProgramStats => "program_stats",
            Self::Consumers => "consumers",
            Self::Listings => "listings",
        }
    }
}

/// A key of fixed width.
pub(super) trait Key: Sized {
    /// The encoded form.
    type Bytes: AsRef<[u8]>;

    fn encode(&self) -> Self::Bytes;

    /// `None` when the bytes are not of this key's form.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Key of `ledgers`, `ledger_xdr` and `ranges`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LedgerKey(pub LedgerSeq);

impl Key for LedgerKey {
    type Bytes = [u8; 4];

    fn encode(&self) -> [u8; 4] {
        self.0.0.to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(LedgerSeq(u32::from_be_bytes(bytes.try_into().ok()?))))
    }
}

/// Key of `runs`: their number, in the order of ingestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RunKey(pub u32);

impl Key for RunKey {
    type Bytes = [u8; 4];

    fn encode(&self) -> [u8; 4] {
        self.0.to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(u32::from_be_bytes(bytes.try_into().ok()?)))
    }
}

/// Key of `events`: id of the first event of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockKey(pub EventId);

impl Key for BlockKey {
    type Bytes = [u8; 8];

    fn encode(&self) -> [u8; 8] {
        self.0.0.to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(EventId(u64::from_be_bytes(bytes.try_into().ok()?))))
    }
}

/// First bytes of a contract's id. Ids are SHA-256 digests: to share a tag with a given contract
/// takes 2^64 attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ContractTag(pub [u8; 8]);

impl From<&ContractId> for ContractTag {
    fn from(id: &ContractId) -> Self {
        Self::of(id.as_bytes())
    }
}

impl ContractTag {
    /// Tag of events without a contract; they are never looked up by it.
    pub(super) const NONE: Self = Self([0; 8]);

    pub(super) fn of(id: &[u8; 32]) -> Self {
        let mut tag = [0; 8];
        tag.copy_from_slice(&id[..8]);
        Self(tag)
    }
}

/// Key of `events_by_contract`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ContractBlockKey {
    pub contract: ContractTag,
    pub block: EventId,
}

impl Key for ContractBlockKey {
    type Bytes = [u8; 16];

    fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.contract.0);
        bytes[8..].copy_from_slice(&self.block.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 16] = bytes.try_into().ok()?;
        Some(Self {
            contract: ContractTag(bytes[..8].try_into().ok()?),
            block: EventId(u64::from_be_bytes(bytes[8..].try_into().ok()?)),
        })
    }
}

/// Short hash of a topic, then of the contract that emitted it: serves lookups of a topic of one
/// contract by its whole length and of any contract by its first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TopicTag(pub [u8; 9]);

impl TopicTag {
    /// Length of the part that depends on the topic alone.
    pub(super) const TOPIC_LEN: usize = 5;

    /// Tag of the topic with this XDR, emitted by this contract.
    pub(super) fn new(topic: &[u8], contract: ContractTag) -> Self {
        let mut tag = [0; 9];
        tag[..Self::TOPIC_LEN].copy_from_slice(&Self::topic_part(topic));
        tag[Self::TOPIC_LEN..].copy_from_slice(&contract.0[..4]);
        Self(tag)
    }

    /// The part that depends on the topic alone.
    pub(super) fn topic_part(topic: &[u8]) -> [u8; Self::TOPIC_LEN] {
        let mut part = [0; Self::TOPIC_LEN];
        part.copy_from_slice(&xxh3_64(topic).to_be_bytes()[..Self::TOPIC_LEN]);
        part
    }
}

/// Key of `events_by_topic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TopicBlockKey {
    pub tag: TopicTag,
    pub block: EventId,
}

impl Key for TopicBlockKey {
    type Bytes = [u8; 17];

    fn encode(&self) -> [u8; 17] {
        let mut bytes = [0; 17];
        bytes[..9].copy_from_slice(&self.tag.0);
        bytes[9..].copy_from_slice(&self.block.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 17] = bytes.try_into().ok()?;
        Some(Self {
            tag: TopicTag(bytes[..9].try_into().ok()?),
            block: EventId(u64::from_be_bytes(bytes[9..].try_into().ok()?)),
        })
    }
}

/// Key of `transactions`: ledger in 4 bytes, application order in 3 (SEP-35 gives it 20 bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TransactionKey(pub TransactionPosition);

impl TransactionKey {
    pub(super) const LEN: usize = 7;

    /// The position as one number, in chain order.
    pub(super) fn to_number(position: TransactionPosition) -> u64 {
        u64::from(position.ledger.0) << 24 | u64::from(position.application_order & 0x00ff_ffff)
    }

    /// The position of a number from [`Self::to_number`].
    pub(super) fn from_number(number: u64) -> TransactionPosition {
        TransactionPosition {
            ledger: LedgerSeq((number >> 24) as u32),
            application_order: (number & 0x00ff_ffff) as u32,
        }
    }
}

impl Key for TransactionKey {
    type Bytes = [u8; 7];

    fn encode(&self) -> [u8; 7] {
        let mut bytes = [0; 7];
        bytes.copy_from_slice(&Self::to_number(self.0).to_be_bytes()[1..]);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 7] = bytes.try_into().ok()?;
        let mut number = [0; 8];
        number[1..].copy_from_slice(bytes);
        Some(Self(Self::from_number(u64::from_be_bytes(number))))
    }
}

/// First bytes of a transaction's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HashTag(pub [u8; Self::LEN]);

impl HashTag {
    pub(super) const LEN: usize = 6;
}

impl From<&TxHash> for HashTag {
    fn from(hash: &TxHash) -> Self {
        let mut tag = [0; 6];
        tag.copy_from_slice(&hash.as_bytes()[..6]);
        Self(tag)
    }
}

/// Key of `tx_by_hash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HashKey {
    pub tag: HashTag,
    pub position: TransactionPosition,
}

impl Key for HashKey {
    type Bytes = [u8; 13];

    fn encode(&self) -> [u8; 13] {
        let mut bytes = [0; 13];
        bytes[..6].copy_from_slice(&self.tag.0);
        bytes[6..].copy_from_slice(&TransactionKey(self.position).encode());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 13] = bytes.try_into().ok()?;
        Some(Self {
            tag: HashTag(bytes[..6].try_into().ok()?),
            position: TransactionKey::decode(&bytes[6..])?.0,
        })
    }
}

/// Key of `tx_by_contract`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContractTransactionKey {
    pub contract: ContractTag,
    pub position: TransactionPosition,
}

impl Key for ContractTransactionKey {
    type Bytes = [u8; 15];

    fn encode(&self) -> [u8; 15] {
        let mut bytes = [0; 15];
        bytes[..8].copy_from_slice(&self.contract.0);
        bytes[8..].copy_from_slice(&TransactionKey(self.position).encode());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 15] = bytes.try_into().ok()?;
        Some(Self {
            contract: ContractTag(bytes[..8].try_into().ok()?),
            position: TransactionKey::decode(&bytes[8..])?.0,
        })
    }
}

/// First bytes of the SHA-256 of an entry's `LedgerKey`. The network names an entry's time to live by
/// that hash, so both share a tag and, where both change, a row; no faster hash could do that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct EntryTag(pub [u8; Self::LEN]);

impl EntryTag {
    pub(super) const LEN: usize = 8;

    pub(super) fn of(key: &EntryKey<'_>) -> Self {
        let mut tag = [0; Self::LEN];
        match key.kind {
            EntryKind::Ttl => tag.iter_mut().zip(key.body).for_each(|(to, byte)| *to = *byte),
            _ => {
                let hash = Sha256::new_with_prefix(key.prefix()).chain_update(key.body).finalize();
                tag.copy_from_slice(&hash[..Self::LEN]);
            }
        }
        Self(tag)
    }
}

/// Key of `entries`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryChangeKey {
    pub tag: EntryTag,
    pub position: TransactionPosition,
}

impl Key for EntryChangeKey {
    type Bytes = [u8; 15];

    fn encode(&self) -> [u8; 15] {
        let mut bytes = [0; 15];
        bytes[..8].copy_from_slice(&self.tag.0);
        bytes[8..].copy_from_slice(&TransactionKey(self.position).encode());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 15] = bytes.try_into().ok()?;
        Some(Self {
            tag: EntryTag(bytes[..8].try_into().ok()?),
            position: TransactionKey::decode(&bytes[8..])?.0,
        })
    }
}

/// Key of `known_entries`: the whole hash, because nothing leads to a record to verify it with, and
/// the ledger from which on the answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KnownEntryKey {
    pub hash: [u8; 32],
    pub from: LedgerSeq,
}

impl Key for KnownEntryKey {
    type Bytes = [u8; 36];

    fn encode(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..32].copy_from_slice(&self.hash);
        bytes[32..].copy_from_slice(&self.from.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 36] = bytes.try_into().ok()?;
        Some(Self {
            hash: bytes[..32].try_into().ok()?,
            from: LedgerSeq(u32::from_be_bytes(bytes[32..].try_into().ok()?)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<K: Key + PartialEq + std::fmt::Debug>(key: K) {
        let bytes = key.encode();
        assert_eq!(K::decode(bytes.as_ref()), Some(key));
        assert!(K::decode(&bytes.as_ref()[1..]).is_none(), "a shorter key is not accepted");
    }

    #[test]
    fn keys_survive_a_round_trip() {
        let position =
            TransactionPosition { ledger: LedgerSeq(u32::MAX), application_order: 0x00ff_ffff };
        round_trip(LedgerKey(LedgerSeq(63_092_982)));
        round_trip(RunKey(7));
        round_trip(BlockKey(EventId(u64::MAX - 1)));
        round_trip(ContractBlockKey { contract: ContractTag([3; 8]), block: EventId(9) });
        round_trip(TopicBlockKey {
            tag: TopicTag::new(b"topic", ContractTag([3; 8])),
            block: EventId(9),
        });
        round_trip(TransactionKey(position));
        round_trip(HashKey { tag: HashTag([1, 2, 3, 4, 5, 6]), position });
        round_trip(ContractTransactionKey { contract: ContractTag([3; 8]), position });
        round_trip(EntryChangeKey { tag: EntryTag([4; 8]), position });
        round_trip(KnownEntryKey { hash: [5; 32], from: LedgerSeq(7) });
    }

    #[test]
    fn transaction_keys_sort_in_chain_order() {
        let key = |ledger, application_order| {
            TransactionKey(TransactionPosition { ledger: LedgerSeq(ledger), application_order })
                .encode()
        };
        assert!(key(1, 300) < key(2, 1));
        assert!(key(2, 255) < key(2, 256));
    }

    #[test]
    fn an_entry_and_its_time_to_live_share_a_tag() {
        let code = EntryKey { kind: EntryKind::ContractCode, body: &[7; 32] };
        let hash = Sha256::digest(code.to_ledger_key());
        let ttl = EntryKey { kind: EntryKind::Ttl, body: &hash };
        assert_eq!(EntryTag::of(&code), EntryTag::of(&ttl));
        let other = EntryKey { kind: EntryKind::ContractCode, body: &[8; 32] };
        assert_ne!(EntryTag::of(&code), EntryTag::of(&other));
    }

    #[test]
    fn family_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Family::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Family::ALL.len());
    }
}
