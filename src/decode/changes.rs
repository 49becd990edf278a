//! Which entries of the ledger a transaction or a whole ledger changed, read off the metadata without
//! decoding it: keys and values are slices. Leaves out entries that no contract can read, such as offers.

use super::DecodeError;
use super::ledger::close_meta_header;
use super::xdr::{
    self, Cursor, Depth, LedgerEntryChangeType, LedgerEntryType, Xdr, XdrError, each,
};

/// Kinds of entries that a contract can read, and the entries that say how long others live. The
/// numbers are those of `LedgerEntryType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum EntryKind {
    /// An account.
    Account = LedgerEntryType::ACCOUNT,
    /// A trustline.
    Trustline = LedgerEntryType::TRUSTLINE,
    /// Data of a contract, its instance included.
    ContractData = LedgerEntryType::CONTRACT_DATA,
    /// Code of contracts.
    ContractCode = LedgerEntryType::CONTRACT_CODE,
    /// Until when data or code of a contract live.
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
    /// What kind of entry.
    pub kind: EntryKind,
    /// The `LedgerKey` without its kind.
    pub body: &'a [u8],
}

impl<'a> EntryKey<'a> {
    /// The key with this XDR `LedgerKey`, whose body is not looked at; none for kinds that are left out.
    pub fn from_ledger_key(xdr: &'a [u8]) -> Option<Self> {
        let (kind, body) = xdr.split_first_chunk()?;
        Some(Self { kind: EntryKind::of(i32::from_be_bytes(*kind))?, body })
    }

    /// First four bytes of the XDR `LedgerKey`; [`Self::body`] follows.
    pub fn prefix(&self) -> [u8; 4] {
        (self.kind as i32).to_be_bytes()
    }

    /// The XDR `LedgerKey`.
    pub fn to_ledger_key(&self) -> Vec<u8> {
        [&self.prefix(), self.body].concat()
    }
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there before.
    Created,
    /// It is different now.
    Updated,
    /// It is not there any more.
    Removed,
    /// It will be changed by what follows, and this is how it was.
    State,
    /// It was archived, or had lived too long, and is there again (CAP-66).
    Restored,
}

/// One change of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryChange<'a> {
    /// What happened.
    pub kind: ChangeKind,
    /// To which entry.
    pub key: EntryKey<'a>,
    /// XDR `LedgerEntry`; none when it was removed.
    pub entry: Option<&'a [u8]>,
}

/// What one transaction changed, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionChanges<'a> {
    /// Before its operations: sequence numbers, signers used up.
    pub before: Vec<EntryChange<'a>>,
    /// By its operations.
    pub operations: Vec<EntryChange<'a>>,
    /// After its operations: refunds up to protocol 22.
    pub after: Vec<EntryChange<'a>>,
    /// Whether its metadata has a part about contracts.
    pub smart_contract: bool,
}

/// What one ledger changed. Fees of all transactions come first, then the transactions one after the
/// other, then refunds of all, then upgrades.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LedgerChanges<'a> {
    /// Version of the `LedgerCloseMeta`: 0, 1 or 2.
    pub version: u32,
    /// Fees, for each transaction in apply order.
    pub fees: Vec<Vec<EntryChange<'a>>>,
    /// The transactions in apply order.
    pub transactions: Vec<TransactionChanges<'a>>,
    /// Refunds (from protocol 23), for each transaction in apply order.
    pub refunds: Vec<Vec<EntryChange<'a>>>,
    /// By upgrades of the network's settings.
    pub upgrades: Vec<EntryChange<'a>>,
    /// Temporary data that is gone, and persistent data that went to the archive, after all else.
    pub evicted: Vec<EntryKey<'a>>,
}

/// Entries that the operations of a transaction created, changed, removed or restored: sorted, without
/// repeats.
///
/// # Errors
/// When `meta` is no XDR `TransactionMeta`.
pub fn changed_entries(meta: &[u8]) -> Result<Vec<EntryKey<'_>>, XdrError> {
    Ok(changed_and_restored(meta)?.0)
}

/// The same, and those of them that were restored, in order.
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

/// All that a transaction changed, but for its fee.
///
/// # Errors
/// When `meta` is no XDR `TransactionMeta`.
pub fn transaction_changes(meta: &[u8]) -> Result<TransactionChanges<'_>, XdrError> {
    walk_meta(&mut Cursor::new(meta), Depth::LIMIT)
}

/// All that a ledger changed.
///
/// # Errors
/// When `raw` is no XDR `LedgerCloseMeta`.
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
        // Size of the live contract state.
        xdr::Uint64::skip(cursor, depth)?;
        found.evicted = ledger_keys(cursor, depth)?;
    }
    if version == 1 {
        xdr::VarArray::<xdr::LedgerEntry>::skip(cursor, depth)?;
    }
    cursor.finish()?;
    Ok(found)
}

/// A list of `LedgerKey`
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

/// `TransactionMeta`
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

/// `TransactionMeta` up to its operations; gives its version too.
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

/// `OperationMeta` list, or from version 4 on of `OperationMetaV2`
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

/// `LedgerEntryChanges`
fn changes<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    mut visit: impl FnMut(EntryChange<'a>),
) -> Result<(), XdrError> {
    // LedgerEntryChanges is a name of a list.
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

/// The key of a `LedgerEntry`: its first fields, which stand together.
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
