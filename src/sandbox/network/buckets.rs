//! Lists of buckets as a node keeps them: the changes of the newest ledgers in small buckets, those of
//! older ones in larger buckets. Their hash is the state's, which headers carry.
//!
//! Source of the rules: stellar-core, `src/bucket` (`BucketListBase`, `LiveBucket`,
//! `HotArchiveBucket`). The buckets of a
//! node merge in the background and count when they are needed, so that nothing here depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use orrery_ledger::domain::{Hash32, has_lifetime, is_temporary, ttl_key};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    BucketEntry, BucketListType, BucketMetadata, BucketMetadataExt, Hash, HotArchiveBucketEntry,
    LedgerEntry, LedgerKey, Limits, WriteXdr,
};

use super::error::{Result, SandboxError};
use super::host::PROTOCOL;
use super::state::LedgerState;

/// Number of levels of a list.
const LEVELS: usize = 11;
/// Marks a record of one fragment (RFC 5531, section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// Number of ledgers after its last one in which an archived entry is evicted. On a network, that
/// depends on a scan through the buckets.
const EVICTION_DELAY: u32 = 4;

/// Both lists of a state: what is live, and what was evicted.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    live: BucketList<BucketEntry>,
    hot_archive: BucketList<HotArchiveBucketEntry>,
    /// Keys of entries that were evicted, by those of their lifetimes. The sandbox itself keeps these
    /// entries: calls restore them alike.
    evicted: BTreeMap<LedgerKey, LedgerKey>,
}

/// A record of a bucket.
trait Record: Clone + WriteXdr {
    /// The record at the beginning of each bucket.
    fn metadata() -> Self;

    /// Merges two records of one key; `None` when nothing is left of them.
    fn merged(older: Self, newer: Self) -> Option<Self>;

    /// Returns what is left of a record where no older ones are.
    fn oldest(self) -> Option<Self>;
}

impl Record for BucketEntry {
    fn metadata() -> Self {
        Self::Metaentry(metadata_of(BucketListType::Live))
    }

    fn merged(older: Self, newer: Self) -> Option<Self> {
        match (older, newer) {
            // Created and removed since the older buckets.
            (Self::Initentry(_), Self::Deadentry(_)) => None,
            (Self::Initentry(_), Self::Liveentry(entry)) => Some(Self::Initentry(entry)),
            (Self::Deadentry(_), Self::Initentry(entry)) => Some(Self::Liveentry(entry)),
            (_, newer) => Some(newer),
        }
    }

    fn oldest(self) -> Option<Self> {
        match self {
            Self::Deadentry(_) => None,
            Self::Initentry(entry) => Some(Self::Liveentry(entry)),
            entry => Some(entry),
        }
    }
}

impl Record for HotArchiveBucketEntry {
    fn metadata() -> Self {
        Self::Metaentry(metadata_of(BucketListType::HotArchive))
    }

    fn merged(_: Self, newer: Self) -> Option<Self> {
        Some(newer)
    }

    fn oldest(self) -> Option<Self> {
        match self {
            Self::Live(_) => None,
            entry => Some(entry),
        }
    }
}

fn metadata_of(list: BucketListType) -> BucketMetadata {
    BucketMetadata { ledger_version: PROTOCOL, ext: BucketMetadataExt::V1(list) }
}

/// One list of buckets, of eleven levels.
#[derive(Debug, Clone)]
struct BucketList<R> {
    levels: Vec<Level<R>>,
}

#[derive(Debug, Clone)]
struct Level<R> {
    curr: Bucket<R>,
    snap: Bucket<R>,
    /// What becomes `curr` when the level above is full again.
    next: Option<Bucket<R>>,
}

/// Records by their keys, in the order of the network; shared, because buckets do not change.
#[derive(Debug, Clone)]
struct Bucket<R> {
    records: Arc<BTreeMap<LedgerKey, R>>,
    /// 32 zero bytes for an empty bucket.
    hash: Hash32,
}

impl<R: Record> Bucket<R> {
    fn new(records: BTreeMap<LedgerKey, R>) -> Result<Self> {
        let mut bucket = Self { records: Arc::new(records), hash: Hash32::default() };
        if !bucket.records.is_empty() {
            bucket.hash = Hash32(Sha256::digest(bucket.bytes()?).into());
        }
        Ok(bucket)
    }

    fn empty() -> Self {
        Self { records: Arc::default(), hash: Hash32::default() }
    }

    /// Returns the file's content: framed records, the metadata first.
    fn bytes(&self) -> Result<Vec<u8>> {
        let metadata = R::metadata();
        let mut bytes = Vec::new();
        for record in [&metadata].into_iter().chain(self.records.values()) {
            let xdr = record.to_xdr(Limits::none())?;
            let length = u32::try_from(xdr.len())
                .map_err(|_| SandboxError::inconsistent("an entry of 4 GiB"))?;
            bytes.extend((LAST_FRAGMENT | length).to_be_bytes());
            bytes.extend(xdr);
        }
        Ok(bytes)
    }

    /// Merges this bucket with a newer one, to the bucket of a level.
    fn merged(&self, newer: &Self, level: usize) -> Result<Self> {
        let mut records = (*self.records).clone();
        for (key, new) in newer.records.iter() {
            let merged = match records.remove(key) {
                Some(old) => R::merged(old, new.clone()),
                None => Some(new.clone()),
            };
            if let Some(merged) = merged {
                records.insert(key.clone(), merged);
            }
        }
        if level == LEVELS - 1 {
            let records = records.into_iter();
            return Self::new(records.filter_map(|(key, it)| Some((key, it.oldest()?))).collect());
        }
        Self::new(records)
    }
}

impl<R: Record> BucketList<R> {
    /// Creates a list whose oldest bucket has these records.
    fn new(records: BTreeMap<LedgerKey, R>) -> Result<Self> {
        let level = Level { curr: Bucket::empty(), snap: Bucket::empty(), next: None };
        let mut levels = vec![level; LEVELS];
        levels[LEVELS - 1].curr = Bucket::new(records)?;
        Ok(Self { levels })
    }

    /// Adds the records of a ledger.
    fn add(&mut self, ledger: u32, records: BTreeMap<LedgerKey, R>) -> Result<()> {
        for level in (1..LEVELS).rev() {
            if !spills(ledger, level - 1) {
                continue;
            }
            let above = &mut self.levels[level - 1];
            let snap = std::mem::replace(&mut above.curr, Bucket::empty());
            above.snap = snap.clone();
            let below = &mut self.levels[level];
            if let Some(next) = below.next.take() {
                below.curr = next;
            }
            let old = if becomes_snap(ledger, level) { &Bucket::empty() } else { &below.curr };
            below.next = Some(old.merged(&snap, level)?);
        }
        self.levels[0].curr = self.levels[0].curr.merged(&Bucket::new(records)?, 0)?;
        Ok(())
    }

    fn hash(&self) -> Hash32 {
        let levels = self.levels.iter();
        digest(levels.map(|level| digest([level.curr.hash, level.snap.hash])))
    }

    /// Returns the levels as the state file has them.
    fn json(&self) -> Value {
        let level = |level: &Level<R>| {
            let next = match &level.next {
                None => json!({"state": 0}),
                Some(next) => json!({"state": 1, "output": next.hash}),
            };
            json!({"curr": level.curr.hash, "next": next, "snap": level.snap.hash})
        };
        self.levels.iter().map(level).collect()
    }

    /// Adds the files of all buckets.
    fn write(&self, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        let buckets = self.levels.iter();
        let buckets =
            buckets.flat_map(|level| [Some(&level.curr), Some(&level.snap), level.next.as_ref()]);
        for bucket in buckets.flatten().filter(|bucket| !bucket.records.is_empty()) {
            let digits = bucket.hash.to_string();
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            let compressed = encoder.write_all(&bucket.bytes()?).and_then(|()| encoder.finish());
            let compressed = compressed.map_err(SandboxError::inconsistent)?;
            files.push((format!("bucket/{}/bucket-{digits}.xdr.gz", nested(&digits)), compressed));
        }
        Ok(())
    }
}

impl Buckets {
    /// Creates lists that hold these entries in the oldest bucket.
    pub(super) fn new(entries: impl Iterator<Item = LedgerEntry>) -> Result<Self> {
        let entries = entries.map(|entry| (entry.to_key(), BucketEntry::Liveentry(entry)));
        let live = BucketList::new(entries.collect())?;
        let hot_archive = BucketList::new(BTreeMap::new())?;
        Ok(Self { live, hot_archive, evicted: BTreeMap::new() })
    }

    /// Adds the changes of a ledger, from the state before it to that after it, and evicts what has been
    /// archived for long. Returns the keys that are evicted, each after that of its lifetime.
    pub(super) fn close(
        &mut self,
        ledger: u32,
        before: &LedgerState,
        after: &LedgerState,
    ) -> Result<Vec<LedgerKey>> {
        let (mut live, mut hot) = (BTreeMap::new(), BTreeMap::new());
        let mut restored = BTreeSet::new();
        // A call that restores an entry writes its lifetime.
        for lifetime in after.changed() {
            if let Some(key) = self.evicted.remove(lifetime) {
                hot.insert(key.clone(), HotArchiveBucketEntry::Live(key.clone()));
                restored.extend([lifetime.clone(), key]);
            }
        }
        let changed = after.changed().chain(&restored).collect::<BTreeSet<_>>();
        for key in changed {
            let existed = before.get(key).is_some() && !restored.contains(key);
            let record = match (after.get(key).cloned(), existed) {
                (Some(entry), true) => BucketEntry::Liveentry(entry),
                (Some(entry), false) => BucketEntry::Initentry(entry),
                (None, true) => BucketEntry::Deadentry(key.clone()),
                (None, false) => continue,
            };
            live.insert(key.clone(), record);
        }
        let mut evicted = Vec::new();
        for (key, entry) in after.entries().filter(|(key, _)| has_lifetime(key)) {
            let lifetime = ttl_key(key)?;
            let last = after.live_until(key)?.filter(|_| !is_temporary(key));
            let is_due = last.is_some_and(|last| last.saturating_add(EVICTION_DELAY) < ledger);
            if !is_due || self.evicted.contains_key(&lifetime) {
                continue;
            }
            for dead in [&lifetime, key] {
                live.insert(dead.clone(), BucketEntry::Deadentry(dead.clone()));
                evicted.push(dead.clone());
            }
            hot.insert(key.clone(), HotArchiveBucketEntry::Archived(entry.clone()));
            self.evicted.insert(lifetime, key.clone());
        }
        self.live.add(ledger, live)?;
        self.hot_archive.add(ledger, hot)?;
        Ok(evicted)
    }

    /// Returns the hash for a header.
    pub(super) fn hash(&self) -> Hash {
        Hash(digest([self.live.hash(), self.hot_archive.hash()]).0)
    }

    /// Returns the files of a history archive with this state.
    pub(super) fn files(&self, ledger: u32, passphrase: &str) -> Result<Vec<(String, Vec<u8>)>> {
        let state = json!({
            "version": 2,
            "server": "orrery sandbox",
            "currentLedger": ledger,
            "networkPassphrase": passphrase,
            "currentBuckets": self.live.json(),
            "hotArchiveBuckets": self.hot_archive.json(),
        });
        let state = format!("{state:#}\n").into_bytes();
        let digits = format!("{ledger:08x}");
        let mut files = vec![
            (".well-known/stellar-history.json".to_owned(), state.clone()),
            (format!("history/{}/history-{digits}.json", nested(&digits)), state),
        ];
        self.live.write(&mut files)?;
        self.hot_archive.write(&mut files)?;
        Ok(files)
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

/// Returns the directories in which a file with these digits lies.
fn nested(digits: &str) -> String {
    format!("{}/{}/{}", &digits[..2], &digits[2..4], &digits[4..6])
}
