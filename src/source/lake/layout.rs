//! Which key of a lake holds which ledger (SEP-54). Pure.

use serde::Deserialize;

use super::LakeError;
use crate::domain::{LedgerRange, LedgerSeq, Network};

/// What `.config.json` at the root of a lake says. Its `version` is `1.0` or `0.x` for the same layout
/// and is not read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Passphrase of the network whose ledgers these are.
    pub network_passphrase: Option<String>,
    /// Ledgers in one file.
    pub ledgers_per_batch: u32,
    /// Files in one directory; 1 puts all files at the root.
    pub batches_per_partition: u32,
}

impl Manifest {
    /// Name of the manifest at the root of a lake.
    pub const FILE_NAME: &'static str = ".config.json";

    /// Reads a manifest; `place` names it in errors.
    pub fn parse(place: &str, text: &[u8]) -> Result<Self, LakeError> {
        let wrong = |reason: String| LakeError::Manifest { place: place.to_owned(), reason };
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let partition = manifest.ledgers_per_batch.checked_mul(manifest.batches_per_partition);
        match partition {
            None | Some(0) => Err(wrong(format!(
                "ledgersPerBatch {} and batchesPerPartition {} must be at least 1 and their product \
                 below 2^32",
                manifest.ledgers_per_batch, manifest.batches_per_partition
            ))),
            Some(_) => Ok(manifest),
        }
    }

    /// Refuses when the manifest, which lies at `place`, names another network than `wanted`.
    pub fn check_network(&self, place: &str, wanted: &Network) -> Result<(), LakeError> {
        match self.network_passphrase.as_deref().map(Network::from_passphrase) {
            Some(found) if found != *wanted => Err(LakeError::WrongNetwork {
                place: place.to_owned(),
                found: found.to_string(),
                wanted: wanted.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

/// How the keys of a lake are composed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    ledgers_per_batch: u32,
    ledgers_per_partition: u32,
    partitioned: bool,
    /// What follows `.xdr.`: `zst` today, `zstd` or `gz` in older lakes.
    extension: String,
}

impl Layout {
    /// The layout of a manifest. Its files are named as `any_key`, one of the lake's keys.
    pub fn new(manifest: &Manifest, any_key: Option<&str>) -> Self {
        let extension = any_key
            .and_then(|key| key.rsplit('/').next())
            .and_then(|name| name.split_once(".xdr."))
            .map_or("zst", |(_, extension)| extension);
        Self {
            ledgers_per_batch: manifest.ledgers_per_batch,
            ledgers_per_partition: manifest.ledgers_per_batch * manifest.batches_per_partition,
            partitioned: manifest.batches_per_partition > 1,
            extension: extension.to_owned(),
        }
    }

    /// Ledgers in one file.
    pub fn ledgers_per_batch(&self) -> u32 {
        self.ledgers_per_batch
    }

    /// Ledgers that share a file with `ledger`. The first batch may lack those before ledger 2.
    pub fn batch_of(&self, ledger: LedgerSeq) -> LedgerRange {
        group(ledger, self.ledgers_per_batch)
    }

    /// Whether a key has the extension of this lake's files.
    pub(super) fn is_key(&self, key: &str) -> bool {
        key.split_once(".xdr.").is_some_and(|(_, extension)| extension == self.extension)
    }

    /// Key of the file that holds `ledger`.
    pub fn key_of(&self, ledger: LedgerSeq) -> String {
        let batch = self.batch_of(ledger);
        let mut key = String::with_capacity(64);
        if self.partitioned {
            let partition = group(ledger, self.ledgers_per_partition);
            key.push_str(&prefix(partition.first));
            key.push_str(&format!("-{}/", partition.last));
        }
        key.push_str(&prefix(batch.first));
        if self.ledgers_per_batch > 1 {
            key.push_str(&format!("-{}", batch.last));
        }
        key.push_str(".xdr.");
        key.push_str(&self.extension);
        key
    }
}

/// The group of `size` ledgers that `ledger` belongs to.
fn group(ledger: LedgerSeq, size: u32) -> LedgerRange {
    let first = ledger.0 / size * size;
    LedgerRange::new(first, first.saturating_add(size - 1))
}

/// Inverted, so that a lexicographic listing shows the newest first.
fn prefix(first: LedgerSeq) -> String {
    format!("{:08X}--{}", u32::MAX - first.0, first)
}

/// The ledgers that a key's name promises, or none when it is not the key of a batch file:
/// `^[0-9A-F]{8}--[0-9]+(-[0-9]+)?\.xdr\.[A-Za-z0-9._-]+$` after the last slash.
pub(super) fn range_of(key: &str) -> Option<LedgerRange> {
    let name = key.rsplit('/').next()?;
    let (stem, extension) = name.split_once(".xdr.")?;
    let known = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if extension.is_empty() || !extension.bytes().all(known) {
        return None;
    }
    let (inverted, range) = stem.split_once("--")?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let range = LedgerRange::new(first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
    let promised = inverted.len() == 8
        && u32::from_str_radix(inverted, 16).ok()? == u32::MAX - range.first.0
        && !range.is_empty();
    promised.then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(ledgers_per_batch: u32, batches_per_partition: u32) -> Layout {
        let manifest =
            Manifest { network_passphrase: None, ledgers_per_batch, batches_per_partition };
        Layout::new(&manifest, None)
    }

    #[test]
    fn composes_the_keys_of_sep_54() {
        for (per_batch, per_partition, ledger, key) in [
            (1, 64_000, 63_092_982, "FC3E15FF--63040000-63103999/FC3D4709--63092982.xdr.zst"),
            (1, 64_000, 62_528_059, "FC45E5FF--62528000-62591999/FC45E5C4--62528059.xdr.zst"),
            (2, 8, 18, "FFFFFFEF--16-31/FFFFFFED--18-19.xdr.zst"),
            (2, 8, 19, "FFFFFFEF--16-31/FFFFFFED--18-19.xdr.zst"),
            (64, 1, 2, "FFFFFFFF--0-63.xdr.zst"),
            (1, 1, 2, "FFFFFFFD--2.xdr.zst"),
        ] {
            let layout = layout(per_batch, per_partition);
            assert_eq!(layout.key_of(LedgerSeq(ledger)), key);
            assert_eq!(range_of(key), Some(layout.batch_of(LedgerSeq(ledger))));
        }
    }

    #[test]
    fn takes_the_extension_from_a_key() {
        let manifest =
            Manifest { network_passphrase: None, ledgers_per_batch: 1, batches_per_partition: 2 };
        let layout = Layout::new(&manifest, Some("FFFFFFFB--4-5/FFFFFFFB--4.xdr.zstd"));
        assert_eq!(layout.key_of(LedgerSeq(9)), "FFFFFFF7--8-9/FFFFFFF6--9.xdr.zstd");
    }

    #[test]
    fn knows_batch_files_by_their_names() {
        for name in [
            "notes.txt",
            "FFFFFFFD--2.xdr.",
            "FFFFFFFD--2.xdr.zst.tmp~",
            "FFFFFFFD--3.xdr.zst",
            "FFFFFFFD--2-1.xdr.zst",
            "FFFD--2.xdr.zst",
        ] {
            assert_eq!(range_of(name), None, "{name}");
        }
    }

    #[test]
    fn refuses_a_wrong_manifest_in_one_sentence() {
        for (text, reason) in [
            ("{", "EOF while parsing"),
            (r#"{"ledgersPerBatch":0,"batchesPerPartition":1}"#, "must be at least 1"),
            (r#"{"ledgersPerBatch":65536,"batchesPerPartition":65536}"#, "below 2^32"),
        ] {
            let error = Manifest::parse("lake/.config.json", text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
            assert!(error.to_string().contains("lake/.config.json"), "{error}");
        }
    }
}
