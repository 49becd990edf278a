//! Ledger entries that a transaction or a whole ledger changed, read from the metadata without
//! decoding it: keys and values are slices. Leaves out entries that no contract can read, such as
//! offers.

use super::DecodeError;
use super::ledger::close_meta_header;
use super::xdr::{
    self, Cursor, Depth, LedgerEntryChangeType, LedgerEntryType, Xdr, XdrError, each,
};

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

impl<'a> EntryKey<'a> {
    /// Returns the key for an XDR `LedgerKey`, whose body is not validated; `None` for kinds that
    /// are left out.
    pub fn from_ledger_key(xdr: &'a [u8]) -> Option<Self> {
        let (kind, body) = xdr.split_first_chunk()?;
        Some(Self { kind: EntryKind::of(i32::from_be_bytes(*kind))?, body })
    }

    /// Returns the first four bytes of the XDR `LedgerKey`; [`Self::body`] follows them.
    pub fn prefix(&self) -> [u8; 4] {
        (self.kind as i32).to_be_bytes()
    }

    /// Returns the XDR `LedgerKey`.
    pub fn to_ledger_key(&self) -> Vec<u8> {
        [&self.prefix(), self.body].concat()
    }
}

/// Kind of a change to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The entry did not exist before.
    Created,
    /// The entry has a new value.
    Updated,
    /// The entry no longer exists.
    Removed,
    /// The value of the entry before the change that follows.
    State,
    /// The entry was archived or its time to live had expired, and it is live again (CAP-66).
    Restored,
}

/// One change of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryChange<'a> {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Key of the changed entry.
    pub key: EntryKey<'a>,
    /// XDR `LedgerEntry`; `None` when the entry was removed.
    pub entry: Option<&'a [u8]>,
}

/// Changes that one transaction made, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionChanges<'a> {
    /// Changes before its operations: sequence numbers, and signers that were used up.
    pub before: Vec<EntryChange<'a>>,
    /// Changes by its operations.
    pub operations: Vec<EntryChange<'a>>,
    /// Changes after its operations: refunds up to protocol 22.
    pub after: Vec<EntryChange<'a>>,
    /// Whether its metadata has a part about contracts (`sorobanMeta`).
    pub smart_contract: bool,
}

/// Changes that one ledger made, in this order: fees of all transactions, the transactions one
/// after the other, refunds of all transactions, upgrades.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerChanges<'a> {
    /// Version of the `LedgerCloseMeta`: 0, 1 or 2.
    pub version: u32,
    /// Fee changes, one list per transaction in apply order.
    pub fees: Vec<Vec<EntryChange<'a>>>,
    /// Changes by the transactions, in apply order.
    pub transactions: Vec<TransactionChanges<'a>>,
    /// Refunds (from protocol 23), one list per transaction in apply order.
    pub refunds: Vec<Vec<EntryChange<'a>>>,
    /// Changes by upgrades of the network's settings.
    pub upgrades: Vec<EntryChange<'a>>,
    /// Keys of temporary data that was deleted and of persistent data that was archived, after all
    /// other changes.
    pub evicted: Vec<EntryKey<'a>>,
}

/// Returns the entries that the operations of a transaction created, changed, removed or restored:
/// sorted, without repeats.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn changed_entries(meta: &[u8]) -> Result<Vec<EntryKey<'_>>, XdrError> {
    Ok(changed_and_restored(meta)?.0)
}

/// Returns the same as [`changed_entries`], and the restored ones among them in the order of the
/// metadata.
pub(super) fn changed_and_restored(
    meta: &[u8],
) -> Result<(Vec<EntryKey<'_>>, Vec<EntryKey<'_>>), XdrError> {
    let (mut keys, mut restored) = (Vec::new(), Vec::new());
    let cursor = &mut Cursor::new(meta);
    let (version, depth) = to_operations(cursor, |_| {})?;
    operations(cursor, depth, version, |change| {
        if change.kind != ChangeKind::State {
            keys.push(change.key);
        }
        if change.kind == ChangeKind::Restored {
            restored.push(change.key);
        }
    })?;
    keys.sort_unstable();
    keys.dedup();
    Ok((keys, restored))
}

/// Returns all changes that a transaction made, except for its fee.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn transaction_changes(meta: &[u8]) -> Result<TransactionChanges<'_>, XdrError> {
    walk_meta(&mut Cursor::new(meta), Depth::LIMIT)
}

/// Returns all changes that a ledger made.
///
/// # Errors
/// When `raw` is not an XDR `LedgerCloseMeta`.
pub fn ledger_changes(raw: &[u8]) -> Result<LedgerChanges<'_>, DecodeError> {
    let mut cursor = Cursor::new(raw);
    walk_ledger(&mut cursor)
        .map_err(|reason| DecodeError::undecodable(raw, reason, cursor.position()))
}

fn walk_ledger<'a>(cursor: &mut Cursor<'a>) -> Result<LedgerChanges<'a>, XdrError> {
    let (version, _, depth) = close_meta_header(cursor)?;
    match version {
        0 => xdr::TransactionSet::skip(cursor, depth)?,
        _ => xdr::GeneralizedTransactionSet::skip(cursor, depth)?,
    }
    let mut found = LedgerChanges { version, ..LedgerChanges::default() };
    each(cursor, depth, |cursor, depth| {
        let depth = depth.enter()?;
        if version == 2 {
            xdr::ExtensionPoint::skip(cursor, depth)?;
        }
        xdr::TransactionResultPair::skip(cursor, depth)?;
        found.fees.push(list(cursor, depth)?);
        found.transactions.push(walk_meta(cursor, depth)?);
        if version == 2 {
            found.refunds.push(list(cursor, depth)?);
        }
        Ok(())
    })?;
    each(cursor, depth, |cursor, depth| {
        let depth = depth.enter()?;
        xdr::LedgerUpgrade::skip(cursor, depth)?;
        changes(cursor, depth, |change| found.upgrades.push(change))
    })?;
    xdr::VarArray::<xdr::ScpHistoryEntry>::skip(cursor, depth)?;
    if version >= 1 {
        // totalByteSizeOfLiveSorobanState
        xdr::Uint64::skip(cursor, depth)?;
        found.evicted = ledger_keys(cursor, depth)?;
    }
    if version == 1 {
        xdr::VarArray::<xdr::LedgerEntry>::skip(cursor, depth)?;
    }
    cursor.finish()?;
    Ok(found)
}

/// Reads a list of `LedgerKey`.
pub(super) fn ledger_keys<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
) -> Result<Vec<EntryKey<'a>>, XdrError> {
    let mut keys = Vec::new();
    each(cursor, depth, |cursor, depth| {
        keys.extend(EntryKey::from_ledger_key(cursor.value::<xdr::LedgerKey>(depth)?));
        Ok(())
    })?;
    Ok(keys)
}

/// Walks a `TransactionMeta`.
fn walk_meta<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
) -> Result<TransactionChanges<'a>, XdrError> {
    let mut found = TransactionChanges::default();
    let start = *cursor;
    let (version, inner) = to_operations(cursor, |change| found.before.push(change))?;
    operations(cursor, inner, version, |change| found.operations.push(change))?;
    if version >= 2 {
        changes(cursor, inner, |change| found.after.push(change))?;
    }
    if version >= 3 {
        found.smart_contract = cursor.flag()?;
    }
    *cursor = start;
    xdr::TransactionMeta::skip(cursor, depth)?;
    Ok(found)
}

/// Walks a `TransactionMeta` up to its operations; also returns its version.
fn to_operations<'a>(
    cursor: &mut Cursor<'a>,
    visit: impl FnMut(EntryChange<'a>),
) -> Result<(u32, Depth), XdrError> {
    let depth = Depth::LIMIT.enter()?.enter()?;
    let version = cursor.u32()?;
    if version > 4 {
        return Err(XdrError::UnknownValue);
    }
    if version >= 3 {
        xdr::ExtensionPoint::skip(cursor, depth)?;
    }
    if version >= 1 {
        changes(cursor, depth, visit)?;
    }
    Ok((version, depth))
}

/// Walks a list of `OperationMeta`, or of `OperationMetaV2` from version 4 on.
fn operations<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    version: u32,
    mut visit: impl FnMut(EntryChange<'a>),
) -> Result<(), XdrError> {
    each(cursor, depth, |cursor, depth| {
        let depth = depth.enter()?;
        if version >= 4 {
            xdr::ExtensionPoint::skip(cursor, depth)?;
        }
        changes(cursor, depth, &mut visit)?;
        if version >= 4 {
            xdr::VarArray::<xdr::ContractEvent>::skip(cursor, depth)?;
        }
        Ok(())
    })
}

fn list<'a>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<Vec<EntryChange<'a>>, XdrError> {
    let mut found = Vec::new();
    changes(cursor, depth, |change| found.push(change))?;
    Ok(found)
}

/// Walks `LedgerEntryChanges`.
fn changes<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    mut visit: impl FnMut(EntryChange<'a>),
) -> Result<(), XdrError> {
    // LedgerEntryChanges is a typedef of a list, which counts as one level.
    each(cursor, depth.enter()?, |cursor, depth| {
        let depth = depth.enter()?;
        let kind = match LedgerEntryChangeType::read(cursor, depth)? {
            LedgerEntryChangeType::CREATED => ChangeKind::Created,
            LedgerEntryChangeType::UPDATED => ChangeKind::Updated,
            LedgerEntryChangeType::REMOVED => ChangeKind::Removed,
            LedgerEntryChangeType::STATE => ChangeKind::State,
            _ => ChangeKind::Restored,
        };
        let (key, entry) = if kind == ChangeKind::Removed {
            (EntryKey::from_ledger_key(cursor.value::<xdr::LedgerKey>(depth)?), None)
        } else {
            let entry = cursor.value::<xdr::LedgerEntry>(depth)?;
            (key_of(entry)?, Some(entry))
        };
        if let Some(key) = key {
            visit(EntryChange { kind, key, entry });
        }
        Ok(())
    })
}

/// Returns the key of a `LedgerEntry`, which consists of consecutive fields at its beginning.
fn key_of(entry: &[u8]) -> Result<Option<EntryKey<'_>>, XdrError> {
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
        EntryKind::Account => cursor.value::<xdr::LedgerKeyAccount>(depth)?,
        EntryKind::Trustline => cursor.value::<xdr::LedgerKeyTrustLine>(depth)?,
        EntryKind::ContractData => cursor.value::<xdr::LedgerKeyContractData>(depth)?,
        EntryKind::ContractCode => cursor.value::<xdr::LedgerKeyContractCode>(depth)?,
        EntryKind::Ttl => cursor.value::<xdr::LedgerKeyTtl>(depth)?,
    };
    Ok(Some(EntryKey { kind, body }))
}
