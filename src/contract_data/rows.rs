//! Rows of the index: which keys each contract has, and what became of each last.

use orrery_ledger::domain::{ContractId, Hash32, LedgerSeq};
use orrery_store::{RowCodec, Table, TransactionPosition, row_codec};

use super::entry::Durability;

/// Name of the feed consumer that maintains the index.
pub const CONSUMER: &str = "contract_data";

/// A key of a contract.
pub type Key = (ContractId, KeyTag);

/// Every key that a contract has or had.
pub const KEYS: Table<(ContractId, KeyTag), KeyRow> = Table::new("keys");
/// The transaction that created the instance of a contract.
pub const CREATED: Table<ContractId, TransactionPosition> = Table::new("created");
/// Ledgers that brought protocol 20, before which no contract had data.
pub const BEGINNINGS: Table<LedgerSeq, ()> = Table::new("beginnings");
/// Transactions that changed data of a contract, and ledgers that evicted some of it, which have the
/// position after all transactions.
pub const CHANGED: Table<(ContractId, TransactionPosition), ()> = Table::new("changed");
/// Ledgers that evicted a key, the newest first.
pub const EVICTED: Table<((ContractId, KeyTag), Inverted), Durability> = Table::new("evicted");
/// Symbols with which keys begin that are vectors.
pub const NAMES: Table<(ContractId, Vec<u8>), NameRow> = Table::new("names");
/// What is known of a key from transactions that retention has removed.
pub const KEPT: Table<(ContractId, KeyTag), Kept> = Table::new("kept");

/// First bytes of the SHA-256 of a key's XDR `LedgerKey`. Two keys of one contract that share them take
/// 2^64 attempts to find, and harm that contract alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyTag(pub [u8; Self::LEN]);

row_codec!(KeyTag { 0 });

impl KeyTag {
    /// Their number.
    pub const LEN: usize = 16;

    /// Returns the tag of a key.
    pub fn of(key_hash: &Hash32) -> Self {
        let mut tag = [0; Self::LEN];
        tag.copy_from_slice(&key_hash.0[..Self::LEN]);
        Self(tag)
    }
}

/// A ledger of which the later has the smaller encoding, so that a walk goes back in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inverted(pub LedgerSeq);

impl RowCodec for Inverted {
    fn write(&self, to: &mut Vec<u8>) {
        (!self.0.0).write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        u32::read(bytes).map(|ledger| Self(LedgerSeq(!ledger)))
    }
}

/// A time to live and the ledger in which it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Last ledger in which the entry is live; 0 when the entry was removed.
    pub live_until: LedgerSeq,
    /// The ledger of the transaction that said it.
    pub at: LedgerSeq,
}

row_codec!(Given { live_until, at });

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its durability.
    pub durability: Durability,
    /// The newest transaction that created, updated, restored or removed the entry; position 0 when
    /// none is stored.
    pub changed: TransactionPosition,
    /// Whether the entry is gone after that transaction.
    pub is_gone: bool,
    /// The newest ledger that evicted it; 0 when none is stored.
    pub evicted: LedgerSeq,
    /// The newest time to live; ledger 0 when it is not known.
    pub ttl: Given,
    /// What the newest checkpoint with a row says of its time to live; ledger 0 when there is none.
    pub found: Given,
    /// Whether that symbol is the first element of a vector.
    pub leads: bool,
    /// The symbol by which the key is found; empty when there is none.
    pub name: Vec<u8>,
}

/// Set in the first byte of a row with [`KeyRow::found`], beside the durability.
const IS_FOUND: u8 = 2;

impl RowCodec for KeyRow {
    fn write(&self, to: &mut Vec<u8>) {
        let Self { durability, changed, is_gone, evicted, ttl, found, leads, name } = self;
        let is_found = *found != NEVER_GIVEN;
        to.push(*durability as u8 | if is_found { IS_FOUND } else { 0 });
        changed.write(to);
        is_gone.write(to);
        evicted.write(to);
        ttl.write(to);
        if is_found {
            found.write(to);
        }
        leads.write(to);
        name.write(to);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let first = u8::read(bytes)?;
        let durability = [first & !IS_FOUND];
        let mut durability = durability.as_slice();
        Some(Self {
            durability: Durability::read(&mut durability)?,
            changed: RowCodec::read(bytes)?,
            is_gone: RowCodec::read(bytes)?,
            evicted: RowCodec::read(bytes)?,
            ttl: RowCodec::read(bytes)?,
            found: if first & IS_FOUND != 0 { Given::read(bytes)? } else { NEVER_GIVEN },
            leads: RowCodec::read(bytes)?,
            name: RowCodec::read(bytes)?,
        })
    }
}

/// How many keys of a contract begin with a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NameRow {
    /// Those of persistent entries that are not removed.
    pub persistent: u64,
    /// Those of temporary entries that are neither removed nor evicted.
    pub temporary: u64,
    /// The greatest time to live of a temporary entry.
    pub live_until: u32,
}

row_codec!(NameRow { persistent, temporary, live_until });

/// What the removed transactions have said of a key, each as of the newest one that said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The newest transaction that wrote the entry, also with the value that was there; position 0 when
    /// there was none.
    pub written: TransactionPosition,
    /// The newest one that created, updated, restored or removed it.
    pub changed: TransactionPosition,
    /// The hash of that transaction.
    pub tx: Hash32,
    /// The newest time to live.
    pub ttl: Given,
    /// Length of the key, and the XDR `LedgerKey` without its kind; then the XDR `LedgerEntry` that the
    /// newest write left, or nothing if the entry was gone.
    pub content: KeyAndEntry,
}

row_codec!(Kept { written, changed, tx, ttl, content });

/// A key and an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyAndEntry {
    /// XDR `LedgerKey` without its kind.
    pub key: Vec<u8>,
    /// XDR `LedgerEntry`; empty when there is none.
    pub entry: Vec<u8>,
}

impl RowCodec for KeyAndEntry {
    fn write(&self, to: &mut Vec<u8>) {
        // Keys of entries have at most some hundred bytes.
        (self.key.len() as u32).write(to);
        to.extend_from_slice(&self.key);
        to.extend_from_slice(&self.entry);
    }

    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let length = usize::try_from(u32::read(bytes)?).ok()?;
        let key = bytes.split_off(..length)?.to_vec();
        Some(Self { key, entry: Vec::read(bytes)? })
    }
}

/// The greatest position in apply order. No transaction has it.
pub const LAST_ORDER: u32 = 0x00ff_ffff;
/// The position before all transactions.
pub const NOWHERE: TransactionPosition =
    TransactionPosition { ledger: LedgerSeq(0), application_order: 0 };
/// No time to live.
pub const NEVER_GIVEN: Given = Given { live_until: LedgerSeq(0), at: LedgerSeq(0) };

/// Returns the position after all transactions of a ledger, which is that of its evictions.
pub(super) fn end_of(ledger: LedgerSeq) -> TransactionPosition {
    TransactionPosition { ledger, application_order: LAST_ORDER }
}
