//! What the model answers.

use stellar_xdr::{ConfigSettingEntry, ContractDataDurability, LedgerKey, ScVal};

use super::KeyHash;

/// What an entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Contract data.
    Data(ScVal),
    /// Contract code: S1 records no bytes of it, and its hash is its key.
    Code,
    /// A setting of the network.
    Setting(Box<ConfigSettingEntry>),
}

impl Value {
    /// The value of contract data.
    pub fn data(&self) -> Option<&ScVal> {
        match self {
            Self::Data(value) => Some(value),
            _ => None,
        }
    }
}

/// Kind of a change (S1: "Kinds").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Created,
    Updated,
    Removed,
    Restored,
    Extended,
    Evicted,
    /// S7: not a change, but where a checkpoint is the first to say what the entry is.
    Found,
}

impl Kind {
    /// Those of ledgers.
    pub const ALL: [Self; 6] = [
        Self::Created,
        Self::Updated,
        Self::Removed,
        Self::Restored,
        Self::Extended,
        Self::Evicted,
    ];

    /// The word of S1.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
            Self::Restored => "restored",
            Self::Extended => "extended",
            Self::Evicted => "evicted",
            Self::Found => "found",
        }
    }
}

/// The hashes of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId {
    /// Hash of the envelope: of a fee bump the outer one.
    pub hash: [u8; 32],
    /// Hash of the transaction in a fee bump.
    pub inner: Option<[u8; 32]>,
    /// Position in application order, from 1.
    pub order: u32,
}

/// What is known about a key at the end of a ledger (S2: "Three answers").
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The entry exists, live or archived.
    Present(Box<Present>),
    /// It certainly does not exist.
    Absent {
        /// See [`Present::known_since`].
        known_since: u32,
    },
    /// S2: "Else **unknown**"; "TTL changes alone without a value: unknown, with
    /// `live_until_ledger` in the answer".
    Unknown { live_until: Option<u32> },
    /// S2: "answered as a ledger that is not stored".
    NotStored,
}

impl Answer {
    /// `present`, `absent`, `unknown` or `not stored`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Present(_) => "present",
            Self::Absent { .. } => "absent",
            Self::Unknown { .. } => "unknown",
            Self::NotStored => "not stored",
        }
    }

    /// The entry, if it is present.
    pub fn present(&self) -> Option<&Present> {
        match self {
            Self::Present(present) => Some(present),
            _ => None,
        }
    }
}

/// An entry that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    pub key: LedgerKey,
    pub durability: ContractDataDurability,
    pub value: Value,
    /// The last ledger in which the entry lives; `None` when it is not known, and of settings. Of an
    /// evicted entry the one it had (choice: S2 does not take it away).
    pub live_until: Option<u32>,
    /// Whether the entry is archived; `None` when its TTL is not known.
    pub archived: Option<bool>,
    /// S3: "of the last created, updated or restored change". Where none is known, as of `found`:
    /// `lastModifiedLedgerSeq` and `None`.
    pub updated_ledger: u32,
    pub updated_tx: Option<TransactionId>,
    /// `lastModifiedLedgerSeq` of the entry.
    pub modified_ledger: u32,
    /// S2: "the first ledger for which the answer would be of the same kind". Choice: the first of
    /// the unbroken sequence of stored ledgers, up to the one asked for, in which the key is known,
    /// be it present or absent.
    pub known_since: u32,
    /// What the value is known from.
    pub because: Because,
}

/// What in the range makes a value known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// A change at or before the ledger.
    Change,
    /// The state before a later change.
    StateBefore,
    /// The state at a checkpoint.
    Checkpoint,
}

/// An entry of a contract's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key_hash: KeyHash,
    pub present: Present,
}

/// The entries of a contract at the end of a ledger, ascending by key hash. Instances are entries
/// like others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContractList {
    pub complete: bool,
    /// The first stored ledger of the range whose list would be as complete or incomplete.
    pub known_since: u32,
    pub entries: Vec<Entry>,
}

/// A change as history and SQL show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key_hash: KeyHash,
    pub key: LedgerKey,
    pub kind: Kind,
    /// The value after the change: `None` where removed, where evicted temporary data is gone, and
    /// where it is not known. S5: "of `extended` and `evicted` the value that holds".
    pub value: Option<Value>,
    /// The value before the change: `None` where the entry did not exist, or was not live temporary
    /// data, or where it is not known.
    pub previous: Option<Value>,
    /// The TTL after the change, if it is known; `None` where the entry is gone.
    pub live_until: Option<u32>,
    /// `None` of upgrades and evictions.
    pub tx: Option<TransactionId>,
    pub ledger: u32,
}

/// The changes of a key, newest first, in all stored ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// First ledger of the newest stored range: from there on no change is missing. `None` when
    /// nothing is stored.
    pub known_since: Option<u32>,
    pub changes: Vec<Row>,
}

/// A contiguous range of stored ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRange {
    /// First ledger that is still stored.
    pub first: u32,
    pub last: u32,
    /// First ledger whose changes are still known: lower than `first` after retention.
    pub known_first: u32,
    /// S2: the range "begins at genesis or at the first ledger of protocol 20", so that it "knows
    /// everything".
    pub knows_everything: bool,
}
