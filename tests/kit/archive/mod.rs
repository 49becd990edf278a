//! States in history archives: their files, states that are made at random, and a naive reader, which
//! keeps everything in memory and decodes it with `stellar-xdr`.

pub mod made;
pub mod naive;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use orrery_ledger::domain::Hash32;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stellar_xdr::{
    BucketEntry, BucketListType, BucketMetadata, BucketMetadataExt, HotArchiveBucketEntry, Limits,
    WriteXdr,
};

/// Number of buckets in a list: `curr` and `snap` of eleven levels.
pub const BUCKETS: usize = 22;

/// The network of made states.
pub const PASSPHRASE: &str = "Standalone Network ; February 2017";

/// A state as the decompressed bytes of its buckets: those of an empty one are empty. The newest bucket
/// of a list comes first.
#[derive(Debug, Clone)]
pub struct RawState {
    pub ledger: u32,
    pub protocol: u32,
    pub live: Vec<Vec<u8>>,
    /// From protocol 23 on.
    pub hot_archive: Option<Vec<Vec<u8>>>,
}

impl RawState {
    pub fn empty(ledger: u32, protocol: u32) -> Self {
        let buckets = vec![Vec::new(); BUCKETS];
        let hot_archive = (protocol >= 23).then(|| buckets.clone());
        Self { ledger, protocol, live: buckets, hot_archive }
    }

    /// The hash for the header, made of hashes of hashes as the network defines it.
    pub fn hash(&self) -> [u8; 32] {
        let list = |buckets: &[Vec<u8>]| {
            let mut levels = Vec::new();
            for level in buckets.chunks(2) {
                levels.extend(Sha256::digest([name(&level[0]), name(&level[1])].concat()));
            }
            <[u8; 32]>::from(Sha256::digest(levels))
        };
        match &self.hot_archive {
            None => list(&self.live),
            Some(hot) => Sha256::digest([list(&self.live), list(hot)].concat()).into(),
        }
    }

    /// Path of the state file in an archive.
    pub fn state_file(&self) -> String {
        let digits = format!("{:08x}", self.ledger);
        format!("history/{}/history-{digits}.json", nested(&digits))
    }

    /// The members of the state file.
    pub fn state(&self) -> Value {
        let levels = |buckets: &[Vec<u8>]| {
            let level = |level: &[Vec<u8>]| {
                let [curr, snap] = [&level[0], &level[1]].map(|bucket| Hash32(name(bucket)));
                json!({"curr": curr, "next": {"state": 0}, "snap": snap})
            };
            buckets.chunks(2).map(level).collect::<Vec<_>>()
        };
        let mut state = json!({
            "version": 1,
            "server": "stellar-core 0.0.0",
            "currentLedger": self.ledger,
            "networkPassphrase": PASSPHRASE,
            "currentBuckets": levels(&self.live),
        });
        if let Some(hot) = &self.hot_archive {
            state["version"] = 2.into();
            state["hotArchiveBuckets"] = levels(hot).into();
        }
        state
    }

    /// All buckets that are not empty, in the order of their lists.
    pub fn buckets(&self) -> impl Iterator<Item = &Vec<u8>> {
        let buckets = self.live.iter().chain(self.hot_archive.iter().flatten());
        buckets.filter(|bucket| !bucket.is_empty())
    }

    /// All files of the archive, by their paths.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = serde_json::to_vec_pretty(&self.state()).unwrap();
        let newest = (".well-known/stellar-history.json".to_owned(), state.clone());
        let buckets = self.buckets().map(|bucket| (bucket_file(bucket), gzip(bucket)));
        [newest, (self.state_file(), state)].into_iter().chain(buckets).collect()
    }
}

/// Writes the files of an archive.
pub fn write(directory: &Path, files: impl IntoIterator<Item = (String, Vec<u8>)>) {
    for (path, content) in files {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Path in an archive of the bucket with these decompressed bytes.
pub fn bucket_file(bucket: &[u8]) -> String {
    bucket_file_of(name(bucket))
}

/// Path in an archive of the bucket with this hash.
pub fn bucket_file_of(hash: [u8; 32]) -> String {
    let digits = Hash32(hash).to_string();
    format!("bucket/{}/bucket-{digits}.xdr.gz", nested(&digits))
}

/// The name of a bucket: 32 zero bytes for an empty one.
pub fn name(bucket: &[u8]) -> [u8; 32] {
    if bucket.is_empty() { [0; 32] } else { Sha256::digest(bucket).into() }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A record with the mark before it.
pub fn framed(xdr: &[u8]) -> Vec<u8> {
    let mark = 0x8000_0000 | u32::try_from(xdr.len()).unwrap();
    [&mark.to_be_bytes(), xdr].concat()
}

/// Metadata of a bucket of the live list, or of the hot archive's.
pub fn metadata(protocol: u32, list: Option<BucketListType>) -> BucketMetadata {
    let ext = list.map_or(BucketMetadataExt::V0, BucketMetadataExt::V1);
    BucketMetadata { ledger_version: protocol, ext }
}

/// The bytes of a bucket with these records, the metadata included; of none, when there are no others.
pub fn live_bucket(protocol: u32, records: impl IntoIterator<Item = BucketEntry>) -> Vec<u8> {
    let list = (protocol >= 23).then_some(BucketListType::Live);
    bucket(BucketEntry::Metaentry(metadata(protocol, list)), records)
}

/// As [`live_bucket`], of the hot archive.
pub fn hot_bucket(
    protocol: u32,
    records: impl IntoIterator<Item = HotArchiveBucketEntry>,
) -> Vec<u8> {
    let list = Some(BucketListType::HotArchive);
    bucket(HotArchiveBucketEntry::Metaentry(metadata(protocol, list)), records)
}

fn bucket<T: WriteXdr>(metadata: T, records: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend(framed(&record.to_xdr(Limits::none()).unwrap()));
    }
    if bytes.is_empty() {
        return bytes;
    }
    [framed(&metadata.to_xdr(Limits::none()).unwrap()), bytes].concat()
}

fn nested(digits: &str) -> String {
    [&digits[..2], &digits[2..4], &digits[4..6]].join("/")
}
