//! Index of smart-contract transactions by the ledger entries that they changed.

use orrery_ledger::decode::{ChangedEntry, EntryKey, EntryKind};
use sha2::{Digest, Sha256};

use super::index::{Index, IndexedTransaction, RowsOf};
use super::values::Values;
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::Family;

pub(crate) const INDEX: Index = Index {
    family: Family::Entries,
    tag_len: EntryTag::LEN,
    rows_of: RowsOf::Transaction(rows_of),
};

fn rows_of(transaction: &IndexedTransaction<'_>, rows: &mut Values<'_>) {
    for (tag, changed) in changes(transaction.changed_entries) {
        rows.add(&tag.0, &changed.encode());
    }
}

/// Returns the rows of the index for these entries, one per tag, in the order of their tags.
pub(crate) fn changes(entries: &[ChangedEntry<'_>]) -> Vec<(EntryTag, Changed)> {
    let change = |it: &ChangedEntry<'_>| (EntryTag::of(&it.key), Changed::by(it));
    let mut changes: Vec<_> = entries.iter().map(change).collect();
    changes.sort_unstable();
    changes.dedup_by(|second, first| {
        let same = second.0 == first.0;
        if same {
            first.1 = first.1.and(second.1);
        }
        same
    });
    changes
}

/// First bytes of the SHA-256 of an entry's `LedgerKey`. The key of an entry's TTL holds that same
/// hash, so an entry and its TTL share a tag and, where both change, a row; a faster hash would not
/// allow that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryTag(pub [u8; Self::LEN]);

impl EntryTag {
    pub(crate) const LEN: usize = 8;

    pub(crate) fn of(key: &EntryKey<'_>) -> Self {
        match key.kind {
            EntryKind::Ttl => Self::of_hash(key.body),
            _ => Self::of_hash(
                &Sha256::new_with_prefix(key.prefix()).chain_update(key.body).finalize(),
            ),
        }
    }

    /// Returns the tag for the SHA-256 of a `LedgerKey`.
    pub(crate) fn of_hash(hash: &[u8]) -> Self {
        let mut tag = [0; Self::LEN];
        tag.iter_mut().zip(hash).for_each(|(to, byte)| *to = *byte);
        Self(tag)
    }
}

/// What of an entry a transaction changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Changed {
    /// Whether it changed the entry itself.
    pub entry: bool,
    /// Whether it changed the entry's time to live.
    pub ttl: bool,
    /// Whether it left the entry itself with another value than before.
    pub entry_differs: bool,
    /// Whether it left the time to live with another value than before.
    pub ttl_differs: bool,
}

impl Changed {
    /// Any change of an entry of this kind.
    pub(crate) fn of(kind: EntryKind) -> Self {
        let ttl = kind == EntryKind::Ttl;
        Self { entry: !ttl, ttl, ..Self::default() }
    }

    fn by(changed: &ChangedEntry<'_>) -> Self {
        let any = Self::of(changed.key.kind);
        let differs = changed.differs;
        Self { entry_differs: any.entry && differs, ttl_differs: any.ttl && differs, ..any }
    }

    fn and(self, other: Self) -> Self {
        Self {
            entry: self.entry || other.entry,
            ttl: self.ttl || other.ttl,
            entry_differs: self.entry_differs || other.entry_differs,
            ttl_differs: self.ttl_differs || other.ttl_differs,
        }
    }

    pub(crate) fn contains(self, wanted: Self) -> bool {
        self.and(wanted) == self
    }

    pub(crate) fn encode(self) -> [u8; 1] {
        let Self { entry, ttl, entry_differs, ttl_differs } = self;
        let flags = [entry, ttl, entry_differs, ttl_differs];
        [(0..).zip(flags).map(|(bit, is_set)| u8::from(is_set) << bit).sum()]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let [flags] = *bytes else { return Err(Malformed) };
        let [entry, ttl, entry_differs, ttl_differs] =
            [0, 1, 2, 3].map(|bit| flags >> bit & 1 == 1);
        let is_valid =
            flags < 16 && (entry || ttl) && (entry || !entry_differs) && (ttl || !ttl_differs);
        is_valid.then_some(Self { entry, ttl, entry_differs, ttl_differs }).ok_or(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn an_entry_and_its_time_to_live_share_a_row() {
        let key = |kind, body| EntryKey { kind, body };
        let hash = Sha256::digest(key(EntryKind::ContractCode, &[1; 32]).to_ledger_key());
        let changed = [
            (key(EntryKind::Account, &[2; 36]), false),
            (key(EntryKind::ContractCode, &[1; 32]), true),
            (key(EntryKind::Ttl, &[0; 32]), true),
            (key(EntryKind::Ttl, &hash), false),
        ];
        let both = changes(&changed.map(|(key, differs)| ChangedEntry { key, differs }));
        let mut kinds: Vec<_> = both.iter().map(|(_, changed)| changed.encode()[0]).collect();
        assert!(both.is_sorted());
        kinds.sort_unstable();
        assert_eq!(kinds, [1, 3 | 4, 2 | 8]);
        let ttl = Changed { ttl: true, ttl_differs: true, ..Changed::default() };
        assert_eq!(both[0], (EntryTag([0; 8]), ttl));
    }

    #[test]
    fn flags_round_trip() {
        for flags in [1, 2, 3, 5, 7, 10, 11, 15] {
            let changed = Changed::decode(&[flags]).unwrap();
            assert_eq!(changed.encode(), [flags]);
            assert!(changed.contains(changed) && changed.contains(Changed::default()));
        }
        for malformed in [&[][..], &[0], &[4], &[6], &[9], &[16], &[1, 1]] {
            assert_eq!(Changed::decode(malformed), Err(Malformed));
        }
    }
}
