//! Keys of the ledger entries that a contract can read.

use super::xdr::{self, Cursor, Depth, LedgerEntryType, Xdr, XdrError};
use crate::domain::ContractId;

/// `SC_ADDRESS_TYPE_CONTRACT`, the beginning of the key of a contract's data.
const CONTRACT: [u8; 4] = [0, 0, 0, 1];

/// Kinds of entries that a contract can read, and the entries that hold the time to live of others.
/// The numbers are those of `LedgerEntryType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum EntryKind {
    /// An account.
    Account = LedgerEntryType::ACCOUNT,
    /// A trustline.
    Trustline = LedgerEntryType::TRUSTLINE,
    /// Data of a contract, including its instance.
    ContractData = LedgerEntryType::CONTRACT_DATA,
    /// WASM code of contracts.
    ContractCode = LedgerEntryType::CONTRACT_CODE,
    /// Time to live of contract data or contract code.
    Ttl = LedgerEntryType::TTL,
}

impl EntryKind {
    fn of(number: i32) -> Option<Self> {
        Some(match number {
            LedgerEntryType::ACCOUNT => Self::Account,
            LedgerEntryType::TRUSTLINE => Self::Trustline,
            LedgerEntryType::CONTRACT_DATA => Self::ContractData,
            LedgerEntryType::CONTRACT_CODE => Self::ContractCode,
            LedgerEntryType::TTL => Self::Ttl,
            _ => return None,
        })
    }
}

/// The key of an entry: an XDR `LedgerKey`, whose first four bytes are the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryKey<'a> {
    /// Kind of the entry.
    pub kind: EntryKind,
    /// The `LedgerKey` without its kind.
    pub body: &'a [u8],
}

/// An entry that a transaction changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangedEntry<'a> {
    /// Its key.
    pub key: EntryKey<'a>,
    /// Whether one of the changes left it with another value than it had: a transaction may write a
    /// value that was there already, which changes nothing but `lastModifiedLedgerSeq`.
    pub differs: bool,
}

impl<'a> EntryKey<'a> {
    /// Returns the key for an XDR `LedgerKey`, whose body is not validated; `None` for kinds that
    /// are left out.
    pub fn from_ledger_key(xdr: &'a [u8]) -> Option<Self> {
        let (kind, body) = xdr.split_first_chunk()?;
        Some(Self { kind: EntryKind::of(i32::from_be_bytes(*kind))?, body })
    }

    /// Returns the contract to which data belongs; `None` for other entries.
    pub fn contract(&self) -> Option<ContractId> {
        let body = self.body.strip_prefix(&CONTRACT);
        let body = body.filter(|_| self.kind == EntryKind::ContractData)?;
        body.first_chunk().map(|contract| ContractId(*contract))
    }

    /// Returns the contract whose instance entry this is; `None` for other entries.
    pub fn instance_of(&self) -> Option<ContractId> {
        // `SCV_LEDGER_KEY_CONTRACT_INSTANCE` and `PERSISTENT`.
        const END: [u8; 8] = [0, 0, 0, 20, 0, 0, 0, 1];
        let is_instance = self.body.len() == CONTRACT.len() + size_of::<ContractId>() + END.len()
            && self.body.ends_with(&END);
        self.contract().filter(|_| is_instance)
    }

    /// Whether this is an entry that names the code of the contracts that refer to it (CAP-85).
    pub fn is_executable_tag(&self) -> bool {
        // `SCV_EXECUTABLE_TAG`.
        const TAG: [u8; 4] = [0, 0, 0, 22];
        let key = self.body.get(CONTRACT.len() + size_of::<ContractId>()..);
        self.contract().is_some() && key.is_some_and(|key| key.starts_with(&TAG))
    }

    /// Returns the first four bytes of the XDR `LedgerKey`; [`Self::body`] follows them.
    pub fn prefix(&self) -> [u8; 4] {
        (self.kind as i32).to_be_bytes()
    }

    /// Returns the XDR `LedgerKey`.
    pub fn to_ledger_key(&self) -> Vec<u8> {
        [&self.prefix(), self.body].concat()
    }

    /// Returns the key of a `LedgerEntry`, which consists of consecutive fields at its beginning; `None`
    /// when it is of a kind that contracts do not read.
    ///
    /// # Errors
    /// When the bytes are no entry.
    pub fn of_entry(entry: &'a [u8]) -> Result<Option<Self>, XdrError> {
        let depth = Depth::LIMIT;
        let cursor = &mut Cursor::new(entry);
        xdr::Uint32::skip(cursor, depth)?;
        let Some(kind) = EntryKind::of(cursor.i32()?) else { return Ok(None) };
        match kind {
            EntryKind::ContractData => xdr::ExtensionPoint::skip(cursor, depth)?,
            EntryKind::ContractCode => xdr::ContractCodeEntryExt::skip(cursor, depth)?,
            EntryKind::Account | EntryKind::Trustline | EntryKind::Ttl => {}
        }
        let body = match kind {
            EntryKind::Account => xdr::LedgerKeyAccount::bytes(cursor, depth)?,
            EntryKind::Trustline => xdr::LedgerKeyTrustLine::bytes(cursor, depth)?,
            EntryKind::ContractData => xdr::LedgerKeyContractData::bytes(cursor, depth)?,
            EntryKind::ContractCode => xdr::LedgerKeyContractCode::bytes(cursor, depth)?,
            EntryKind::Ttl => xdr::LedgerKeyTtl::bytes(cursor, depth)?,
        };
        Ok(Some(Self { kind, body }))
    }
}
