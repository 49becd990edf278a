//! Column families and their keys: the only module that defines how RocksDB is laid out.
//!
//! Integers in keys are big-endian, so that byte order is numeric order. Contracts, topics and
//! hashes appear in keys as short tags: every index hit is verified against the record it leads to,
//! so a tag collision costs one read and never gives a wrong result.

use orrery_ledger::domain::{ContractId, EventId, LedgerSeq};

use super::records::TransactionPosition;
use super::row_codec::RowCodec;

/// Column families of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Name → value: format version, passphrase, totals and other state of the whole store.
    Meta,
    /// [`LedgerKey`] → [`super::ledgers::LedgerRow`].
    Ledgers,
    /// [`LedgerKey`] → `LedgerCloseMeta` compressed with zstd, see [`super::raw_form`]; pruned by
    /// retention.
    LedgerXdr,
    /// [`LedgerKey`] of the first ledger of a covered range → `CoveredRange`.
    Ranges,
    /// [`RunKey`] → `IngestRun`: ledgers ingested consecutively.
    Runs,
    /// [`BlockKey`] → packed events, see [`super::block`].
    Events,
    /// Contract tag, block → [`super::positions::Positions`], see `indexes`.
    EventsByContract,
    /// Topic tag, block → [`super::positions::Positions`].
    EventsByTopic,
    /// [`TransactionKey`] → packed smart-contract transactions, see [`super::transaction_block`].
    Transactions,
    /// Hash tag, position → `HashEntry`.
    TxByHash,
    /// Contract tag, position → empty value.
    TxByContract,
    /// Entry tag, position → `Changed`.
    Entries,
    /// [`LedgerKey`] → contract data that the ledger evicted, see [`super::evicted`].
    Evicted,
    /// [`SettingKey`] → change of a setting of the network, see [`super::settings`].
    Settings,
    /// [`LedgerKey`] → [`super::settings::LedgerConditions`].
    Conditions,
    /// SHA-256 of the entry's key, [`LedgerKey`] → `KnownEntry`.
    KnownEntries,
    /// Name of a feed consumer → its progress, see `feed`.
    Consumers,
    /// Position in ingestion order → the contracts to which ledgers from that position on were
    /// restricted, see `state::contract_filters`.
    Listings,
    /// An index beyond the built-in ones, see [`crate::indexes::registry::Indexes::with`].
    Index(&'static str),
    /// A family of a kind of consumers.
    Shared(SharedFamily),
}

/// A family that all consumers of one kind share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedFamily {
    /// Its name in the database, of lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Whether its rows are compressed, which pays if there are many.
    pub compressed: bool,
}

impl SharedFamily {
    /// Names a row of the family.
    pub fn row(self, key: impl RowCodec) -> SharedRow {
        SharedRow { family: self, key: key.encode() }
    }
}

/// A row of a shared family, by its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedRow {
    /// The family.
    pub family: SharedFamily,
    /// The key.
    pub key: Vec<u8>,
}

impl Family {
    /// The built-in families, which every store has.
    pub(crate) const ALL: [Self; 18] = [
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
        Self::Evicted,
        Self::Settings,
        Self::Conditions,
        Self::KnownEntries,
        Self::Consumers,
        Self::Listings,
    ];

    pub(crate) fn name(self) -> &'static str {
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
            Self::Evicted => "evicted",
            Self::Settings => "settings",
            Self::Conditions => "conditions",
            Self::KnownEntries => "known_entries",
            Self::Consumers => "consumers",
            Self::Listings => "listings",
            Self::Index(name) | Self::Shared(SharedFamily { name, .. }) => name,
        }
    }
}

/// A key of fixed length.
pub(crate) trait Key: Sized {
    /// The encoded form.
    type Bytes: AsRef<[u8]>;

    fn encode(&self) -> Self::Bytes;

    /// Returns `None` when the bytes do not have the form of this key.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Key of `ledgers`, `ledger_xdr` and `ranges`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LedgerKey(pub LedgerSeq);

impl Key for LedgerKey {
    type Bytes = [u8; 4];

    fn encode(&self) -> [u8; 4] {
        self.0.0.to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(LedgerSeq(u32::from_be_bytes(bytes.try_into().ok()?))))
    }
}

/// Key of `settings`: a setting of the network, and the ledger that changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SettingKey {
    /// Number of the setting (`ConfigSettingID`).
    pub id: u32,
    pub ledger: LedgerSeq,
}

impl Key for SettingKey {
    type Bytes = [u8; 8];

    fn encode(&self) -> [u8; 8] {
        (u64::from(self.id) << 32 | u64::from(self.ledger.0)).to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let number = u64::from_be_bytes(bytes.try_into().ok()?);
        Some(Self { id: (number >> 32) as u32, ledger: LedgerSeq(number as u32) })
    }
}

/// Key of `runs`: number of the run in ingestion order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunKey(pub u32);

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
pub(crate) struct BlockKey(pub EventId);

impl Key for BlockKey {
    type Bytes = [u8; 8];

    fn encode(&self) -> [u8; 8] {
        self.0.0.to_be_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(EventId(u64::from_be_bytes(bytes.try_into().ok()?))))
    }
}

/// First bytes of a contract's id. Ids are SHA-256 digests, so finding one with the tag of a given
/// contract takes 2^64 attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ContractTag(pub [u8; Self::LEN]);

impl From<&ContractId> for ContractTag {
    fn from(id: &ContractId) -> Self {
        Self::of(id.as_bytes())
    }
}

impl ContractTag {
    pub(crate) const LEN: usize = 8;

    /// Tag of events without a contract; it is never looked up.
    pub(crate) const NONE: Self = Self([0; Self::LEN]);

    pub(crate) fn of(id: &[u8; 32]) -> Self {
        let mut tag = [0; Self::LEN];
        tag.copy_from_slice(&id[..Self::LEN]);
        Self(tag)
    }
}

/// Key of `transactions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransactionKey(pub TransactionPosition);

impl TransactionKey {
    pub(crate) const LEN: usize = 7;

    /// Packs the position into one number that sorts in chain order.
    pub(crate) fn to_number(position: TransactionPosition) -> u64 {
        u64::from(position.ledger.0) << 24 | u64::from(position.application_order & 0x00ff_ffff)
    }

    /// Unpacks a number from [`Self::to_number`].
    pub(crate) fn from_number(number: u64) -> TransactionPosition {
        TransactionPosition {
            ledger: LedgerSeq((number >> 24) as u32),
            application_order: (number & 0x00ff_ffff) as u32,
        }
    }
}

impl Key for TransactionKey {
    type Bytes = [u8; 7];

    fn encode(&self) -> [u8; 7] {
        self.0.to_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        TransactionPosition::from_bytes(bytes).map(Self)
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
    fn keys_round_trip() {
        let position =
            TransactionPosition { ledger: LedgerSeq(u32::MAX), application_order: 0x00ff_ffff };
        round_trip(LedgerKey(LedgerSeq(63_092_982)));
        round_trip(SettingKey { id: 7, ledger: LedgerSeq(u32::MAX - 1) });
        round_trip(RunKey(7));
        round_trip(BlockKey(EventId(u64::MAX - 1)));
        round_trip(TransactionKey(position));
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
    fn family_names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Family::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Family::ALL.len());
    }
}
