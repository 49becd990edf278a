//! Ledger entries that a transaction or a whole ledger changed, read from the metadata without
//! decoding it: keys and values are slices. Leaves out entries that no contract can read, such as
//! offers.

use std::mem;

use super::entry::{ChangedEntry, EntryKey};
use super::error::DecodeError;
use super::header::meta_version;
use super::walk::walk;
use super::xdr::{self, Cursor, Depth, LedgerEntryChangeType, Part, Visit, Xdr, XdrError};

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

impl<'a> EntryChange<'a> {
    /// Returns the change for an XDR `LedgerEntryChange`; `None` for entries that are left out.
    fn of(xdr: &'a [u8]) -> Result<Option<Self>, XdrError> {
        use LedgerEntryChangeType as Type;

        let (number, value) = xdr.split_first_chunk().ok_or(XdrError::UnexpectedEnd)?;
        let kind = match i32::from_be_bytes(*number) {
            Type::REMOVED => {
                let key = EntryKey::from_ledger_key(value);
                return Ok(key.map(|key| Self { kind: ChangeKind::Removed, key, entry: None }));
            }
            Type::CREATED => ChangeKind::Created,
            Type::UPDATED => ChangeKind::Updated,
            Type::STATE => ChangeKind::State,
            _ => ChangeKind::Restored,
        };
        let key = EntryKey::of_entry(value)?;
        Ok(key.map(|key| Self { kind, key, entry: Some(value) }))
    }
}

/// Entries that the operations of one transaction created, changed, removed or restored.
#[derive(Default)]
pub struct ChangedEntries<'a> {
    /// All of them, in the order of the metadata.
    all: Vec<ChangedEntry<'a>>,
    /// The last `STATE`: an entry, and its value before the change that follows.
    state: Option<(EntryKey<'a>, &'a [u8])>,
    restored: Vec<EntryKey<'a>>,
    has_new_contract: bool,
}

impl<'a> ChangedEntries<'a> {
    /// Whether the instance of a contract was created.
    pub fn has_new_contract(&self) -> bool {
        self.has_new_contract
    }

    /// Returns all entries, sorted, without repeats, and the restored ones among them, in the order
    /// of the metadata.
    pub fn sorted(mut self) -> (Vec<ChangedEntry<'a>>, Vec<EntryKey<'a>>) {
        self.all.sort_unstable();
        self.all.dedup_by(|second, first| {
            let is_same = second.key == first.key;
            first.differs |= is_same && second.differs;
            is_same
        });
        (self.all, self.restored)
    }

    /// Whether an update leaves an entry with another value than the `STATE` before it.
    fn differs(&self, key: EntryKey<'_>, entry: Option<&[u8]>) -> bool {
        self.state.is_none_or(|(of, before)| of != key || value(before) != entry.and_then(value))
    }
}

/// Returns the bytes of a `LedgerEntry` after its first field, `lastModifiedLedgerSeq`.
fn value(entry: &[u8]) -> Option<&[u8]> {
    entry.get(size_of::<u32>()..)
}

impl<'a> Visit<'a> for ChangedEntries<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        if part == Part::OperationChange
            && let Some(EntryChange { kind, key, entry }) = EntryChange::of(xdr)?
        {
            match kind {
                ChangeKind::State => {
                    self.state = entry.map(|entry| (key, entry));
                    return Ok(());
                }
                ChangeKind::Restored => self.restored.push(key),
                ChangeKind::Created => self.has_new_contract |= key.instance_of().is_some(),
                ChangeKind::Updated | ChangeKind::Removed => {}
            }
            let differs = kind != ChangeKind::Updated || self.differs(key, entry);
            self.all.push(ChangedEntry { key, differs });
        }
        Ok(())
    }
}

/// Returns the entries that the operations of a transaction created, changed, removed or restored:
/// sorted, without repeats.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn changed_entries(meta: &[u8]) -> Result<Vec<ChangedEntry<'_>>, XdrError> {
    let mut found = UpToOperations::default();
    match xdr::TransactionMeta::walk(&mut Cursor::new(meta), Depth::LIMIT, &mut found) {
        Err(reason) if !found.complete => Err(reason),
        _ => Ok(found.changed.sorted().0),
    }
}

/// Ends the walk after the operations, since no entries that they changed follow.
#[derive(Default)]
struct UpToOperations<'a> {
    changed: ChangedEntries<'a>,
    complete: bool,
}

impl<'a> Visit<'a> for UpToOperations<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        self.complete = matches!(part, Part::Operations | Part::OperationsV2);
        // The error only ends the walk: the caller ignores it once `complete` is set.
        if self.complete { Err(XdrError::TrailingBytes) } else { self.changed.visit(part, xdr) }
    }
}

/// Returns all changes that a transaction made, except for its fee.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`.
pub fn transaction_changes(meta: &[u8]) -> Result<TransactionChanges<'_>, XdrError> {
    let mut changes = Changes::default();
    xdr::TransactionMeta::walk(&mut Cursor::new(meta), Depth::LIMIT, &mut changes)?;
    Ok(changes.transaction)
}

/// Returns all changes that a ledger made.
///
/// # Errors
/// When `raw` is not an XDR `LedgerCloseMeta`.
pub fn ledger_changes(raw: &[u8]) -> Result<LedgerChanges<'_>, DecodeError> {
    let mut changes = Changes::default();
    walk::<xdr::LedgerCloseMeta>(raw, &mut changes)?;
    Ok(LedgerChanges { version: meta_version(raw).unwrap_or_default(), ..changes.ledger })
}

/// Changes of a ledger during a walk.
#[derive(Default)]
struct Changes<'a> {
    ledger: LedgerChanges<'a>,
    /// The transaction whose metadata is being walked.
    transaction: TransactionChanges<'a>,
    /// Changes of the list that is being walked.
    list: Vec<EntryChange<'a>>,
}

impl<'a> Visit<'a> for Changes<'a> {
    #[inline(always)]
    fn visit(&mut self, part: Part, xdr: &'a [u8]) -> Result<(), XdrError> {
        let Self { ledger, transaction, list } = self;
        match part {
            Part::Change => list.extend(EntryChange::of(xdr)?),
            Part::FeeChanges => ledger.fees.push(mem::take(list)),
            Part::ChangesBefore => transaction.before = mem::take(list),
            Part::OperationChange => transaction.operations.extend(EntryChange::of(xdr)?),
            Part::ChangesAfter => transaction.after = mem::take(list),
            Part::SorobanMeta | Part::SorobanMetaV2 => transaction.smart_contract = true,
            Part::Meta => ledger.transactions.push(mem::take(transaction)),
            Part::RefundChanges => ledger.refunds.push(mem::take(list)),
            Part::UpgradeChanges => ledger.upgrades.append(list),
            Part::EvictedKey => ledger.evicted.extend(EntryKey::from_ledger_key(xdr)),
            _ => {}
        }
        Ok(())
    }
}
