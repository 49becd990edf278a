//! A list of buckets as a node keeps it: the changes of the newest ledgers in small buckets, those of
//! older ones in larger buckets. Its hash is the state's, which headers carry.
//!
//! Source of the rules: stellar-core, `src/bucket` (`BucketListBase`, `LiveBucket`). The buckets of a
//! node merge in the background and count when they are needed, so that nothing here depends on it.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use orrery_ledger::domain::{Hash32, LedgerSeq};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    BucketEntry, BucketListType, BucketMetadata, BucketMetadataExt, Hash, LedgerEntry, LedgerKey,
    Limits, WriteXdr,
};

use super::error::{Result, SandboxError};
use super::host::PROTOCOL;
use super::sandbox::Sandbox;

/// Number of levels of a list.
const LEVELS: usize = 11;
/// Marks a record of one fragment (RFC 5531, section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// The state of a network after one ledger, as history archives publish it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ledger.
    pub ledger: LedgerSeq,
    /// XDR `LedgerHeader` of the ledger, whose `bucketListHash` is that of the state.
    pub header: Vec<u8>,
    /// Files of the archive: paths below its root, and content.
    pub files: Vec<(String, Vec<u8>)>,
}

/// The list of the live state. A sandbox evicts no persistent entries, so its hot archive is empty.
#[derive(Debug, Clone)]
pub(super) struct BucketList {
    levels: Vec<Level>,
}

#[derive(Debug, Clone, Default)]
struct Level {
    curr: Bucket,
    snap: Bucket,
    /// What becomes `curr` when the level above is full again.
    next: Option<Bucket>,
}

/// Entries by their keys, in the order of the network; shared, because buckets do not change.
#[derive(Debug, Clone, Default)]
struct Bucket {
    entries: Arc<BTreeMap<LedgerKey, BucketEntry>>,
    /// 32 zero bytes for an empty bucket.
    hash: Hash32,
}

impl Bucket {
    fn new(entries: BTreeMap<LedgerKey, BucketEntry>) -> Result<Self> {
        let mut bucket = Self { entries: Arc::new(entries), hash: Hash32([0; 32]) };
        if !bucket.entries.is_empty() {
            bucket.hash = Hash32(Sha256::digest(bucket.bytes()?).into());
        }
        Ok(bucket)
    }

    /// Returns the file's content: framed records, the metadata first.
    fn bytes(&self) -> Result<Vec<u8>> {
        let metadata = BucketEntry::Metaentry(BucketMetadata {
            ledger_version: PROTOCOL,
            ext: BucketMetadataExt::V1(BucketListType::Live),
        });
        let mut bytes = Vec::new();
        for entry in [&metadata].into_iter().chain(self.entries.values()) {
            let xdr = entry.to_xdr(Limits::none())?;
            let length = u32::try_from(xdr.len())
                .map_err(|_| SandboxError::inconsistent("an entry of 4 GiB"))?;
            bytes.extend((LAST_FRAGMENT | length).to_be_bytes());
            bytes.extend(xdr);
        }
        Ok(bytes)
    }

    /// Merges this bucket with a newer one. Without `tombstones`, the merged one is the oldest of all,
    /// where a missing entry needs none.
    fn merged(&self, newer: &Self, tombstones: bool) -> Result<Self> {
        let mut entries = (*self.entries).clone();
        for (key, new) in newer.entries.iter() {
            let merged = match (entries.remove(key), new.clone()) {
                // Created and removed since the older buckets.
                (Some(BucketEntry::Initentry(_)), BucketEntry::Deadentry(_)) => continue,
                (Some(BucketEntry::Initentry(_)), BucketEntry::Liveentry(entry)) => {
                    BucketEntry::Initentry(entry)
                }
                (Some(BucketEntry::Deadentry(_)), BucketEntry::Initentry(entry)) => {
                    BucketEntry::Liveentry(entry)
                }
                (_, new) => new,
            };
            entries.insert(key.clone(), merged);
        }
        if !tombstones {
            entries.retain(|_, entry| !matches!(entry, BucketEntry::Deadentry(_)));
            for entry in entries.values_mut() {
                if let BucketEntry::Initentry(live) = entry {
                    *entry = BucketEntry::Liveentry(live.clone());
                }
            }
        }
        Self::new(entries)
    }
}

impl BucketList {
    /// Creates a list that holds these entries in its oldest bucket.
    pub(super) fn new(entries: impl Iterator<Item = LedgerEntry>) -> Result<Self> {
        let entries = entries.map(|entry| (entry.to_key(), BucketEntry::Liveentry(entry)));
        let mut levels = vec![Level::default(); LEVELS];
        levels[LEVELS - 1].curr = Bucket::new(entries.collect())?;
        Ok(Self { levels })
    }

    /// Adds the changes of a ledger: of each key the entry that it has now, if it has one, and whether
    /// it had one before.
    pub(super) fn add(
        &mut self,
        ledger: u32,
        changes: impl Iterator<Item = (LedgerKey, Option<LedgerEntry>, bool)>,
    ) -> Result<()> {
        for level in (1..LEVELS).rev() {
            if !spills(ledger, level - 1) {
                continue;
            }
            let above = &mut self.levels[level - 1];
            let snap = std::mem::take(&mut above.curr);
            above.snap = snap.clone();
            let level_below = &mut self.levels[level];
            if let Some(next) = level_below.next.take() {
                level_below.curr = next;
            }
            let merged = if becomes_snap(ledger, level) {
                Bucket::default().merged(&snap, level < LEVELS - 1)?
            } else {
                level_below.curr.merged(&snap, level < LEVELS - 1)?
            };
            level_below.next = Some(merged);
        }
        let fresh = changes.filter_map(|(key, entry, existed)| {
            let change = match (entry, existed) {
                (Some(entry), true) => BucketEntry::Liveentry(entry),
                (Some(entry), false) => BucketEntry::Initentry(entry),
                (None, true) => BucketEntry::Deadentry(key.clone()),
                (None, false) => return None,
            };
            Some((key, change))
        });
        let fresh = Bucket::new(fresh.collect())?;
        self.levels[0].curr = self.levels[0].curr.merged(&fresh, true)?;
        Ok(())
    }

    /// Returns the hash for a header: of the live list, and of an empty hot archive.
    pub(super) fn hash(&self) -> Hash {
        let live = list_hash(self.levels.iter().map(|level| [level.curr.hash, level.snap.hash]));
        let hot_archive = list_hash(std::iter::repeat_n([Hash32([0; 32]); 2], LEVELS));
        Hash(digest([live, hot_archive]).0)
    }

    /// Returns the files of a history archive with this state.
    fn files(&self, ledger: u32, passphrase: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let empty = json!({"curr": Hash32([0; 32]), "next": {"state": 0}, "snap": Hash32([0; 32])});
        let state = json!({
            "version": 2,
            "server": "orrery sandbox",
            "currentLedger": ledger,
            "networkPassphrase": passphrase,
            "currentBuckets": self.levels.iter().map(Level::json).collect::<Vec<_>>(),
            "hotArchiveBuckets": vec![empty; LEVELS],
        });
        let state = format!("{state:#}\n").into_bytes();
        let digits = format!("{ledger:08x}");
        let mut files = vec![
            (".well-known/stellar-history.json".to_owned(), state.clone()),
            (format!("history/{}/history-{digits}.json", nested(&digits)), state),
        ];
        let buckets = self.levels.iter();
        let buckets =
            buckets.flat_map(|level| [Some(&level.curr), Some(&level.snap), level.next.as_ref()]);
        for bucket in buckets.flatten().filter(|bucket| !bucket.entries.is_empty()) {
            let digits = bucket.hash.to_string();
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            let compressed = encoder.write_all(&bucket.bytes()?).and_then(|()| encoder.finish());
            let compressed = compressed.map_err(SandboxError::inconsistent)?;
            files.push((format!("bucket/{}/bucket-{digits}.xdr.gz", nested(&digits)), compressed));
        }
        Ok(files)
    }
}

impl Level {
    fn json(&self) -> Value {
        let next = match &self.next {
            None => json!({"state": 0}),
            Some(next) => json!({"state": 1, "output": next.hash}),
        };
        json!({"curr": self.curr.hash, "next": next, "snap": self.snap.hash})
    }
}

impl Sandbox {
    /// Keeps a list of buckets from now on, so that headers have the hash of the real state and
    /// [`Self::checkpoint`] can be asked for. The settings of the network belong to that state. Later
    /// ledgers differ from those of a network without it in their headers alone. A
    /// [snapshot](Self::snapshot) does not contain the list.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn with_buckets(mut self) -> Result<Self> {
        let entries = self.state.entries().map(|(_, entry)| entry.clone());
        let entries = entries.chain(super::settings::entries()?);
        let buckets = BucketList::new(entries)?;
        self.buckets = Some(buckets);
        Ok(self)
    }

    /// Returns the state after the latest ledger, as a history archive has it. On a public network only
    /// every 64th ledger has a checkpoint.
    ///
    /// # Errors
    /// When the sandbox has made no ledger [with buckets](Self::with_buckets).
    pub fn checkpoint(&self) -> Result<Checkpoint> {
        let header = &self.tip.header;
        let buckets = self.buckets.as_ref();
        let buckets = buckets.filter(|buckets| buckets.hash() == header.bucket_list_hash);
        let Some(buckets) = buckets else {
            return Err(SandboxError(
                "the sandbox has made no ledger with buckets: call with_buckets before".to_owned(),
            ));
        };
        let ledger = header.ledger_seq;
        let files = buckets.files(ledger, self.config.network.passphrase())?;
        let header = header.to_xdr(Limits::none())?;
        Ok(Checkpoint { ledger: LedgerSeq(ledger), header, files })
    }
}

/// Number of ledgers whose changes a level holds.
fn size(level: usize) -> u32 {
    1 << (2 * (level + 1))
}

/// Whether the level gives its `curr` to the next one in this ledger.
fn spills(ledger: u32, level: usize) -> bool {
    level < LEVELS - 1 && ledger.is_multiple_of(size(level) / 2)
}

/// Whether the level gives its `curr` away before what is merged now becomes it.
fn becomes_snap(ledger: u32, level: usize) -> bool {
    let half = size(level - 1) / 2;
    let begun = ledger / half * half;
    begun.checked_add(half).is_some_and(|next| spills(next, level))
}

fn digest(hashes: impl IntoIterator<Item = Hash32>) -> Hash32 {
    let mut digest = Sha256::new();
    hashes.into_iter().for_each(|hash| digest.update(hash.0));
    Hash32(digest.finalize().into())
}

fn list_hash(levels: impl Iterator<Item = [Hash32; 2]>) -> Hash32 {
    digest(levels.map(digest))
}

/// Returns the directories in which a file with these digits lies.
fn nested(digits: &str) -> String {
    format!("{}/{}/{}", &digits[..2], &digits[2..4], &digits[4..6])
}
