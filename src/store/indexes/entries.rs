//! Index of smart-contract transactions by the ledger entries that they changed.

use orrery_ledger::decode::{EntryKey, EntryKind};
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
pub(crate) fn changes(keys: &[EntryKey<'_>]) -> Vec<(EntryTag, Changed)> {
    let mut changes: Vec<_> =
        keys.iter().map(|key| (EntryTag::of(key), Changed::of(key.kind))).collect();
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
        let mut tag = [0; Self::LEN];
        match key.kind {
            EntryKind::Ttl => tag.iter_mut().zip(key.body).for_each(|(to, byte)| *to = *byte),
            _ => {
                let hash = Sha256::new_with_prefix(key.prefix()).chain_update(key.body).finalize();
                tag.copy_from_slice(&hash[..Self::LEN]);
            }
        }
        Self(tag)
    }
}

/// What of an entry a transaction changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Changed {
    /// Whether it changed the entry itself.
    pub entry: bool,
    /// Whether it changed the entry's time to live.
    pub ttl: bool,
}

impl Changed {
    pub(crate) fn of(kind: EntryKind) -> Self {
        let ttl = kind == EntryKind::Ttl;
        Self { entry: !ttl, ttl }
    }

    fn and(self, other: Self) -> Self {
        Self { entry: self.entry || other.entry, ttl: self.ttl || other.ttl }
    }

    pub(crate) fn contains(self, wanted: Self) -> bool {
        self.and(wanted) == self
    }

    pub(crate) fn encode(self) -> [u8; 1] {
        [u8::from(self.entry) | u8::from(self.ttl) << 1]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        match *bytes {
            [flags @ 1..=3] => Ok(Self { entry: flags & 1 != 0, ttl: flags & 2 != 0 }),
            _ => Err(Malformed),
        }
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
        let both = changes(&[
            key(EntryKind::Account, &[2; 36]),
            key(EntryKind::ContractCode, &[1; 32]),
            key(EntryKind::Ttl, &[0; 32]),
            key(EntryKind::Ttl, &hash),
        ]);
        let mut kinds: Vec<_> = both.iter().map(|(_, changed)| changed.encode()[0]).collect();
        assert!(both.is_sorted());
        kinds.sort_unstable();
        assert_eq!(kinds, [1, 2, 3]);
        assert_eq!(both[0], (EntryTag([0; 8]), Changed { entry: false, ttl: true }));
    }

    #[test]
    fn flags_round_trip() {
        for flags in 1..=3 {
            let changed = Changed::decode(&[flags]).unwrap();
            assert_eq!(changed.encode(), [flags]);
            assert!(changed.contains(changed) && changed.contains(Changed::default()));
        }
        for malformed in [&[][..], &[0], &[4], &[1, 1]] {
            assert_eq!(Changed::decode(malformed), Err(Malformed));
        }
    }
}
