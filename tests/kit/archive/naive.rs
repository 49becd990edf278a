//! Reads a state into memory, all of it, with the types of `stellar-xdr`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    BucketEntry, HotArchiveBucketEntry, LedgerEntry, LedgerEntryData, LedgerKey, Limits, ReadXdr,
    ScAddress, ScVal, WriteXdr,
};

/// What holds of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held<T> {
    pub value: T,
    pub live_until: Option<u32>,
    pub is_evicted: bool,
}

/// What smart contracts have in a state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naive {
    /// By the hash of the key.
    pub settings: BTreeMap<[u8; 32], LedgerEntry>,
    /// The ledger of the last modification, by the hash of the code.
    pub code: BTreeMap<[u8; 32], Held<u32>>,
    /// By the contract and the hash of the key.
    pub data: BTreeMap<([u8; 32], [u8; 32]), Held<LedgerEntry>>,
}

/// Newest record of each key; `None` for a tombstone.
type Newest = BTreeMap<LedgerKey, Option<LedgerEntry>>;

/// SHA-256 of a key's XDR.
pub fn key_hash(key: &LedgerKey) -> [u8; 32] {
    Sha256::digest(key.to_xdr(Limits::none()).unwrap()).into()
}

/// Reads the state of a ledger from an archive in a directory, without checking anything.
pub fn read(archive: &Path, ledger: u32) -> Naive {
    let digits = format!("{ledger:08x}");
    let directory = format!("history/{}/{}/{}", &digits[..2], &digits[2..4], &digits[4..6]);
    let path = archive.join(directory).join(format!("history-{digits}.json"));
    let state: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut live = Newest::new();
    for bucket in buckets(archive, &state["currentBuckets"]) {
        for record in records::<BucketEntry>(&bucket) {
            let (key, entry) = match record {
                BucketEntry::Liveentry(entry) | BucketEntry::Initentry(entry) => {
                    (entry.to_key(), Some(entry))
                }
                BucketEntry::Deadentry(key) => (key, None),
                BucketEntry::Metaentry(_) => continue,
            };
            live.entry(key).or_insert(entry);
        }
    }
    let mut hot = Newest::new();
    for bucket in buckets(archive, &state["hotArchiveBuckets"]) {
        for record in records::<HotArchiveBucketEntry>(&bucket) {
            let (key, entry) = match record {
                HotArchiveBucketEntry::Archived(entry) => (entry.to_key(), Some(entry)),
                HotArchiveBucketEntry::Live(key) => (key, None),
                HotArchiveBucketEntry::Metaentry(_) => continue,
            };
            hot.entry(key).or_insert(entry);
        }
    }
    merged(&live, &hot)
}

fn merged(live: &Newest, hot: &Newest) -> Naive {
    let mut naive = Naive::default();
    let mut lifetimes = BTreeMap::new();
    for entry in live.values().flatten() {
        if let LedgerEntryData::Ttl(ttl) = &entry.data {
            lifetimes.insert(ttl.key_hash.0, ttl.live_until_ledger_seq);
        }
    }
    let live = live.iter().map(|(key, entry)| (key, entry, false));
    let hot = hot.iter().map(|(key, entry)| (key, entry, true));
    for (key, entry, is_evicted) in live.chain(hot) {
        let Some(entry) = entry else { continue };
        let hash = key_hash(key);
        let live_until = lifetimes.get(&hash).copied().filter(|_| !is_evicted);
        match &entry.data {
            LedgerEntryData::ConfigSetting(_) => drop(naive.settings.insert(hash, entry.clone())),
            LedgerEntryData::ContractCode(code) => {
                let value = entry.last_modified_ledger_seq;
                let held = Held { value, live_until, is_evicted };
                assert_eq!(naive.code.insert(code.hash.0, held), None);
            }
            LedgerEntryData::ContractData(data) => {
                if matches!(data.key, ScVal::LedgerKeyNonce(_)) {
                    continue;
                }
                let ScAddress::Contract(contract) = &data.contract else { panic!("{key:?}") };
                let held = Held { value: entry.clone(), live_until, is_evicted };
                assert_eq!(naive.data.insert((contract.0.0, hash), held), None);
            }
            _ => {}
        }
    }
    naive
}

/// The decompressed buckets of a list, the newest first.
fn buckets(archive: &Path, levels: &Value) -> Vec<Vec<u8>> {
    let levels = levels.as_array().into_iter().flatten();
    let names = levels.flat_map(|level| [&level["curr"], &level["snap"]]);
    let names = names.map(|name| name.as_str().unwrap()).filter(|name| name.contains(|c| c != '0'));
    let read = |name: &str| {
        let directory = format!("bucket/{}/{}/{}", &name[..2], &name[2..4], &name[4..6]);
        let path = archive.join(directory).join(format!("bucket-{name}.xdr.gz"));
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        bytes
    };
    names.map(read).collect()
}

fn records<T: ReadXdr>(mut bucket: &[u8]) -> Vec<T> {
    let mut records = Vec::new();
    while let Some((mark, rest)) = bucket.split_first_chunk() {
        let length = (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
        records.push(T::from_xdr(&rest[..length], Limits::none()).unwrap());
        bucket = &rest[length..];
    }
    records
}
