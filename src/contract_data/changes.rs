//! What one transaction did to contract data: at most one change for each key, from the entry before
//! the transaction to the entry after it. The order of changes within the metadata of a transaction
//! means nothing beyond that of the changes of one entry.

use std::borrow::Cow;
use std::collections::BTreeMap;

use orrery_ledger::decode::{
    ChangeKind, EntryChange, EntryKey, EntryKind, footprint_keys, transaction_changes,
};
use orrery_ledger::domain::{ContractId, ENTERED_VALUE, Hash32, LedgerSeq};
use orrery_store::{StoreError, TransactionPosition};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    ContractDataDurability, Hash, LedgerKey, LedgerKeyContractData, Limits, ScAddress, ScVal,
    WriteXdr,
};

use super::entry::{DataKey, Durability, live_until, modified, value};

/// Why the changes of a stored transaction cannot be told: its metadata or its envelope is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(pub String);

impl Unreadable {
    /// Returns the error of the store that has the transaction at a position.
    pub(crate) fn at(&self, position: TransactionPosition) -> StoreError {
        let TransactionPosition { ledger, application_order } = position;
        StoreError::Database(format!(
            "transaction {application_order} of ledger {ledger} cannot be read: {}",
            self.0
        ))
    }
}

/// An entry before a transaction wrote it. Entries are XDR `LedgerEntry`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before<'a> {
    /// The metadata does not say.
    Unknown,
    /// There was no such entry.
    Absent,
    /// This was the entry.
    Held(&'a [u8]),
    /// This was the entry, and it was archived (CAP-66).
    Archived(&'a [u8]),
}

/// How a transaction wrote an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written<'a> {
    /// The entry before.
    pub before: Before<'a>,
    /// XDR `LedgerEntry` after; `None` when the entry is gone.
    pub after: Option<&'a [u8]>,
}

/// How a transaction changed the time to live of an entry: the last ledger in which the entry is live
/// (`liveUntilLedgerSeq`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ttl {
    /// Before; `None` when there was none, or the metadata does not say.
    pub before: Option<u32>,
    /// The ledger that gave the one before (`lastModifiedLedgerSeq`); 0 when there is none.
    pub since: u32,
    /// After; `None` when the entry is gone.
    pub after: Option<u32>,
}

/// What a transaction did to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataChange<'a> {
    /// The key.
    pub key: DataKey<'a>,
    /// How the entry was written; `None` when only its time to live was changed.
    pub written: Option<Written<'a>>,
    /// How the time to live was changed, if it was.
    pub ttl: Option<Ttl>,
}

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There was no entry, or a temporary one that was dead.
    Created,
    /// The entry has another value.
    Updated,
    /// The entry is gone.
    Removed,
    /// The entry was archived, and is live again.
    Restored,
    /// The entry lives longer.
    Extended,
}

impl Kind {
    /// Whether the entry is another one than before, or is gone.
    pub fn is_update(self) -> bool {
        self != Self::Extended
    }

    /// Returns the name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Removed => "removed",
            Self::Restored => "restored",
            Self::Extended => "extended",
        }
    }
}

impl DataChange<'_> {
    /// Returns what the transaction of a ledger did; `None` when it left value and time to live as
    /// they were.
    pub fn kind(&self, ledger: LedgerSeq) -> Option<Kind> {
        let was_dead = self.ttl.and_then(|ttl| ttl.before).is_some_and(|until| until < ledger.0);
        let is_temporary = self.key.durability() == Durability::Temporary;
        match self.written {
            Some(Written { before: Before::Absent, after: None }) => None,
            Some(Written { after: None, .. }) if is_temporary && was_dead => None,
            Some(Written { after: None, .. }) => Some(Kind::Removed),
            Some(Written { before: Before::Absent, .. }) => Some(Kind::Created),
            Some(Written { before: Before::Archived(_), .. }) => Some(Kind::Restored),
            _ if was_dead && is_temporary => Some(Kind::Created),
            _ if was_dead => Some(Kind::Restored),
            Some(Written { before: Before::Held(before), after: Some(after) })
                if value(before) == value(after) =>
            {
                self.extended()
            }
            Some(_) => Some(Kind::Updated),
            None => self.extended(),
        }
    }

    fn extended(&self) -> Option<Kind> {
        let Ttl { before, after, .. } = self.ttl?;
        (after > before).then_some(Kind::Extended)
    }
}

/// Returns what the operations of a successful transaction did to contract data, by the hashes of the
/// keys. Nonces are left out: they belong to accounts as often as to contracts, and nobody looks for
/// them.
///
/// # Errors
/// When `meta` is not an XDR `TransactionMeta`, or `envelope`, which names the keys of entries whose
/// time to live alone was changed, is not an XDR `TransactionEnvelope`.
pub fn data_changes<'a>(
    meta: &'a [u8],
    envelope: &'a [u8],
) -> Result<BTreeMap<Hash32, DataChange<'a>>, Unreadable> {
    let changes = transaction_changes(meta);
    let changes = changes.map_err(|error| Unreadable(format!("its metadata: {error}")))?;
    let mut found = BTreeMap::new();
    // The last one is looked up first: changes of one entry are mostly next to each other.
    let mut last: Option<(EntryKey<'_>, Hash32)> = None;
    let mut ttls: Vec<(Hash32, &EntryChange<'_>)> = Vec::new();
    for change in &changes.operations {
        match change.key.kind {
            EntryKind::Ttl => ttls.extend(ttl_of(&change.key).map(|of| (of, change))),
            EntryKind::ContractData => {
                let Some(key) = DataKey::of(Cow::Borrowed(change.key.body)) else { continue };
                let hash = match last {
                    Some((key, hash)) if key == change.key => hash,
                    _ => hash_of(&change.key),
                };
                last = Some((change.key, hash));
                write(
                    found.entry(hash).or_insert(DataChange { key, written: None, ttl: None }),
                    change,
                );
            }
            _ => {}
        }
    }
    add_ttls(&mut found, &ttls, envelope)?;
    Ok(found)
}

/// Returns the SHA-256 of an entry's XDR `LedgerKey`.
pub fn hash_of(key: &EntryKey<'_>) -> Hash32 {
    Hash32(Sha256::new_with_prefix(key.prefix()).chain_update(key.body).finalize().into())
}

/// Returns the hash of the key of a contract's data, as [`hash_of`]; `None` when the key is larger or deeper
/// than what a user can enter.
pub fn hash_of_data_key(
    contract: &ContractId,
    key: ScVal,
    durability: Durability,
) -> Option<Hash32> {
    const LIMITS: Limits = Limits { depth: ENTERED_VALUE.depth + 10, len: ENTERED_VALUE.len + 100 };
    let durability = match durability {
        Durability::Temporary => ContractDataDurability::Temporary,
        Durability::Persistent => ContractDataDurability::Persistent,
    };
    let contract = ScAddress::Contract(stellar_xdr::ContractId(Hash(contract.0)));
    let key = LedgerKey::ContractData(LedgerKeyContractData { contract, key, durability });
    let xdr = key.to_xdr(LIMITS).ok()?;
    EntryKey::from_ledger_key(&xdr).map(|key| hash_of(&key))
}

fn ttl_of(key: &EntryKey<'_>) -> Option<Hash32> {
    key.body.first_chunk().copied().map(Hash32)
}

fn write<'a>(to: &mut DataChange<'a>, EntryChange { kind, entry, .. }: &EntryChange<'a>) {
    let before = match (kind, entry) {
        (ChangeKind::State, Some(entry)) => Before::Held(entry),
        (ChangeKind::Restored, Some(entry)) => Before::Archived(entry),
        (ChangeKind::Created, _) => Before::Absent,
        _ => Before::Unknown,
    };
    let written = to.written.get_or_insert(Written { before, after: *entry });
    written.after = *entry;
}

/// Adds changes of times to live to those of the entries to which they belong. They name these by
/// hashes; the keys of entries that are not written are in the footprint.
fn add_ttls<'a>(
    found: &mut BTreeMap<Hash32, DataChange<'a>>,
    ttls: &[(Hash32, &EntryChange<'a>)],
    envelope: &'a [u8],
) -> Result<(), Unreadable> {
    if ttls.iter().any(|(of, _)| !found.contains_key(of)) {
        let keys = footprint_keys(envelope);
        let keys = keys.map_err(|error| Unreadable(format!("its envelope: {error}")))?;
        for key in keys.into_iter().filter_map(EntryKey::from_ledger_key) {
            let of_data = Some(key.body).filter(|_| key.kind == EntryKind::ContractData);
            let Some(data_key) = of_data.and_then(|body| DataKey::of(Cow::Borrowed(body))) else {
                continue;
            };
            let hash = hash_of(&key);
            if ttls.iter().any(|(of, _)| *of == hash) {
                let only_ttl = DataChange { key: data_key, written: None, ttl: None };
                found.entry(hash).or_insert(only_ttl);
            }
        }
    }
    for (of, change) in ttls {
        let Some(found) = found.get_mut(of) else { continue };
        let until = change.entry.and_then(live_until);
        let before = until.filter(|_| change.kind == ChangeKind::State);
        let since = change.entry.filter(|_| before.is_some()).and_then(modified).unwrap_or(0);
        found.ttl.get_or_insert(Ttl { before, since, after: until }).after = until;
    }
    Ok(())
}

/// Returns the contract of an entry that is the instance of one.
pub(crate) fn created_contract(change: &DataChange<'_>) -> Option<ContractId> {
    let is_created =
        matches!(change.written, Some(Written { before: Before::Absent, after: Some(_) }));
    (is_created && change.key.is_instance()).then(|| change.key.contract())
}
