//! Keys and entries of contract data, read from their XDR without decoding all of it.

use std::borrow::Cow;

use orrery_ledger::decode::{EntryKey, EntryKind};
use orrery_ledger::domain::ContractId;
use orrery_store::{RowCodec, row_codec};

/// Bytes of the contract's `SCAddress` at the beginning of a key.
const CONTRACT: usize = 4 + size_of::<ContractId>();
/// Bytes of the durability at its end.
const DURABILITY: usize = 4;
/// `SCV_SYMBOL`, `SCV_VEC`, `SCV_LEDGER_KEY_CONTRACT_INSTANCE`, `SCV_LEDGER_KEY_NONCE`.
const SYMBOL: u32 = 15;
const VEC: u32 = 16;
const INSTANCE: u32 = 20;
const NONCE: u32 = 21;

/// How long an entry can live (`ContractDataDurability`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Durability {
    /// Gone for ever after its time to live.
    Temporary,
    /// Archived after its time to live, and can be restored.
    Persistent,
}

row_codec!(enum Durability);

impl Durability {
    const ALL: [Self; 2] = [Self::Temporary, Self::Persistent];

    /// Returns the name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Temporary => "temporary",
            Self::Persistent => "persistent",
        }
    }
}

/// The key of contract data that belongs to a contract and is no nonce: the XDR `LedgerKey` without its
/// first four bytes, its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataKey<'a> {
    contract: ContractId,
    durability: Durability,
    body: Cow<'a, [u8]>,
}

impl<'a> DataKey<'a> {
    /// Returns the key for the body of a `LedgerKey` of contract data; `None` for nonces, and for data
    /// of anything but a contract.
    pub fn of(body: Cow<'a, [u8]>) -> Option<Self> {
        let contract = EntryKey { kind: EntryKind::ContractData, body: &body }.contract()?;
        let key = body.get(CONTRACT..)?;
        let durability = match key.last_chunk::<DURABILITY>().copied().map(u32::from_be_bytes)? {
            0 => Durability::Temporary,
            _ => Durability::Persistent,
        };
        (kind(key)? != NONCE).then_some(Self { contract, durability, body })
    }

    /// Returns the contract.
    pub fn contract(&self) -> ContractId {
        self.contract
    }

    /// Returns the durability.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the XDR `ScVal` that is the contract's own key.
    pub fn scval(&self) -> &[u8] {
        &self.body[CONTRACT..self.body.len() - DURABILITY]
    }

    /// Whether this is the contract's instance.
    pub fn is_instance(&self) -> bool {
        kind(self.scval()) == Some(INSTANCE)
    }

    /// Returns the key as the index of entries has it.
    pub fn entry_key(&self) -> EntryKey<'_> {
        EntryKey { kind: EntryKind::ContractData, body: &self.body }
    }

    /// Returns the key with bytes of its own.
    pub fn into_owned(self) -> DataKey<'static> {
        DataKey { body: Cow::Owned(self.body.into_owned()), ..self }
    }

    /// Returns the symbol by which the entry is found: the key itself, or the first element of a vector.
    pub fn name(&self) -> Option<&[u8]> {
        name(self.scval())
    }

    /// Whether it is a vector that begins with a symbol.
    pub fn leads(&self) -> bool {
        kind(self.scval()) == Some(VEC) && self.name().is_some()
    }
}

/// Returns the symbol of an XDR `ScVal` that is a symbol, or a vector that begins with one.
pub fn name(scval: &[u8]) -> Option<&[u8]> {
    match kind(scval)? {
        SYMBOL => symbol(scval),
        // The pointer to the elements, and their number, precede the first one.
        VEC if number(scval, 4)? == 1 && number(scval, 8)? > 0 => symbol(scval.get(12..)?),
        _ => None,
    }
}

fn symbol(scval: &[u8]) -> Option<&[u8]> {
    let length = usize::try_from(number(scval, 4)?).ok()?;
    scval.get(8..)?.get(..length).filter(|_| kind(scval) == Some(SYMBOL))
}

fn kind(scval: &[u8]) -> Option<u32> {
    number(scval, 0)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

/// Returns the bytes of an XDR `LedgerEntry` after its first field, `lastModifiedLedgerSeq`: what a
/// transaction that writes the same value again leaves as it was.
pub fn value(entry: &[u8]) -> Option<&[u8]> {
    entry.get(size_of::<u32>()..)
}

/// Returns the ledger in which an XDR `LedgerEntry` was written last (`lastModifiedLedgerSeq`).
pub fn modified(entry: &[u8]) -> Option<u32> {
    number(entry, 0)
}

/// Returns the last ledger in which an entry is live, from the XDR `LedgerEntry` of its time to live.
pub fn live_until(ttl: &[u8]) -> Option<u32> {
    // `lastModifiedLedgerSeq`, the type of the entry, the hash of the key.
    number(ttl, 4 + 4 + 32)
}

/// Returns the XDR `ScVal` that an XDR `LedgerEntry` of contract data holds under a key.
pub fn held<'e>(entry: &'e [u8], key: &DataKey<'_>) -> Option<&'e [u8]> {
    // `lastModifiedLedgerSeq`, the type of the entry, an extension; the key; an extension.
    entry.get(4 + 4 + 4 + key.body.len()..entry.len().checked_sub(4)?)
}
