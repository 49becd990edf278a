//! Records of the buckets that hold a network's state, read without decoding the entries in them:
//! keys and values are slices.

use sha2::{Digest, Sha256};

use super::entry::{EntryKey, EntryKind};
use super::xdr::{
    self, BucketEntryType, BucketListType, Cursor, Depth, HotArchiveBucketEntryType,
    LedgerEntryType, Xdr, XdrError,
};
use crate::domain::Hash32;

/// The two lists of buckets of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketList {
    /// What is live, or was not evicted yet.
    Live,
    /// Persistent entries that were evicted (from protocol 23 on, CAP-62).
    HotArchive,
}

/// One record of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketRecord<'a> {
    /// What stands at the beginning of a bucket.
    Metadata {
        /// Protocol version with which the bucket was made.
        protocol: u32,
        /// The list that the bucket belongs to; buckets from before protocol 23 do not say it.
        list: Option<BucketList>,
    },
    /// The list holds this entry: `LIVEENTRY`, `INITENTRY` or `HOT_ARCHIVE_ARCHIVED`.
    Entry {
        /// Key of the entry.
        key: StateKey<'a>,
        /// XDR `LedgerEntry`.
        entry: &'a [u8],
    },
    /// The list does not hold the entry with this key any more: `DEADENTRY` or `HOT_ARCHIVE_LIVE`.
    Tombstone(StateKey<'a>),
}

/// Key of an entry of the state, as far as smart contracts use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKey<'a> {
    /// Of an entry that a contract can read, or of the lifetime of one.
    Entry(EntryKey<'a>),
    /// Of a setting of the network, with its number (`ConfigSettingID`).
    Setting(i32),
    /// Of any other entry, such as an offer.
    Other,
}

impl<'a> BucketRecord<'a> {
    /// Reads the record of a bucket of `list` whose XDR is exactly `xdr`.
    ///
    /// # Errors
    /// When the bytes are not one such record.
    pub fn read(list: BucketList, xdr: &'a [u8]) -> Result<Self, XdrError> {
        let depth = Depth::LIMIT.enter()?;
        let cursor = &mut Cursor::new(xdr);
        let record = match (list, cursor.i32()?) {
            (BucketList::Live, BucketEntryType::METAENTRY)
            | (BucketList::HotArchive, HotArchiveBucketEntryType::HOT_ARCHIVE_METAENTRY) => {
                metadata(cursor, depth)?
            }
            (BucketList::Live, BucketEntryType::LIVEENTRY | BucketEntryType::INITENTRY)
            | (BucketList::HotArchive, HotArchiveBucketEntryType::HOT_ARCHIVE_ARCHIVED) => {
                let entry = xdr::LedgerEntry::bytes(cursor, depth)?;
                Self::Entry { key: StateKey::of_entry(entry)?, entry }
            }
            (BucketList::Live, BucketEntryType::DEADENTRY)
            | (BucketList::HotArchive, HotArchiveBucketEntryType::HOT_ARCHIVE_LIVE) => {
                Self::Tombstone(StateKey::of_key(xdr::LedgerKey::bytes(cursor, depth)?)?)
            }
            _ => return Err(XdrError::UnknownValue),
        };
        cursor.finish()?;
        Ok(record)
    }
}

fn metadata<'a>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<BucketRecord<'a>, XdrError> {
    let mut fields = Cursor::new(xdr::BucketMetadata::bytes(cursor, depth)?);
    let protocol = fields.u32()?;
    let list = match fields.u32()? {
        0 => None,
        _ if fields.i32()? == BucketListType::HOT_ARCHIVE => Some(BucketList::HotArchive),
        _ => Some(BucketList::Live),
    };
    Ok(BucketRecord::Metadata { protocol, list })
}

impl<'a> StateKey<'a> {
    fn of_entry(entry: &'a [u8]) -> Result<Self, XdrError> {
        let cursor = &mut Cursor::new(entry);
        xdr::Uint32::skip(cursor, Depth::LIMIT)?;
        if cursor.i32()? == LedgerEntryType::CONFIG_SETTING {
            return cursor.i32().map(Self::Setting);
        }
        Ok(EntryKey::of_entry(entry)?.map_or(Self::Other, Self::Entry))
    }

    fn of_key(key: &'a [u8]) -> Result<Self, XdrError> {
        let cursor = &mut Cursor::new(key);
        if cursor.i32()? == LedgerEntryType::CONFIG_SETTING {
            return cursor.i32().map(Self::Setting);
        }
        Ok(EntryKey::from_ledger_key(key).map_or(Self::Other, Self::Entry))
    }

    /// Returns the hash by which the lifetime of the entry is found, SHA-256 of its XDR `LedgerKey`.
    /// For the key of a lifetime, that is the hash which it names. `None` for other entries.
    pub fn hash(&self) -> Option<Hash32> {
        let digest = |start: [u8; 4], body: &[u8]| {
            let digest = Sha256::new().chain_update(start).chain_update(body);
            Some(Hash32(digest.finalize().into()))
        };
        match self {
            Self::Entry(key) if key.kind == EntryKind::Ttl => {
                key.body.first_chunk().copied().map(Hash32)
            }
            Self::Entry(key) => digest(key.prefix(), key.body),
            Self::Setting(number) => {
                digest(LedgerEntryType::CONFIG_SETTING.to_be_bytes(), &number.to_be_bytes())
            }
            Self::Other => None,
        }
    }

    /// Whether this is the key of a nonce: data that belongs to whoever authorized a call, an account
    /// or a contract, and that no contract reads.
    pub fn is_nonce(&self) -> bool {
        // `SCV_LEDGER_KEY_NONCE`.
        const NONCE: i32 = 21;
        let Self::Entry(EntryKey { kind: EntryKind::ContractData, body }) = self else {
            return false;
        };
        let cursor = &mut Cursor::new(body);
        xdr::ScAddress::skip(cursor, Depth::LIMIT).is_ok() && cursor.i32() == Ok(NONCE)
    }
}

/// Returns the ledger in which an entry was modified last, the first field of its XDR.
pub fn last_modified(entry: &[u8]) -> Result<u32, XdrError> {
    Cursor::new(entry).u32()
}

/// Returns the last ledger in which the entry is live whose lifetime this XDR `LedgerEntry` holds.
///
/// # Errors
/// When the entry is no lifetime.
pub fn live_until(entry: &[u8]) -> Result<u32, XdrError> {
    let cursor = &mut Cursor::new(entry);
    cursor.u32()?;
    if cursor.i32()? != LedgerEntryType::TTL {
        return Err(XdrError::UnknownValue);
    }
    cursor.array::<32>()?;
    cursor.u32()
}
