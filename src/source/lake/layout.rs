//! Maps the ledgers of a lake to keys and back (SEP-54). Pure functions without I/O.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network};
use serde::Deserialize;

use super::error::LakeError;

/// Layout of a lake as far as the settings give it, for a lake without a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenLayout {
    /// Number of ledgers in one file.
    pub ledgers_per_batch: Option<u32>,
    /// Number of files in one directory; 1 puts all files at the root.
    pub batches_per_partition: Option<u32>,
    /// File extension after `.xdr.`; detected when it is `None`.
    pub extension: Option<String>,
}

/// Content of `.config.json` at the root of a lake. Its `version`, `1.0` or `0.x`, stands for the
/// same layout and is not read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Passphrase of the network whose ledgers the lake holds; `None` when the manifest has none.
    pub network_passphrase: Option<String>,
    /// Number of ledgers in one file.
    pub ledgers_per_batch: u32,
    /// Number of files in one directory; 1 puts all files at the root.
    pub batches_per_partition: u32,
}

impl Manifest {
    /// Name of the manifest at the root of a lake.
    pub const FILE_NAME: &'static str = ".config.json";

    /// Parses a manifest; `place` names it in errors.
    pub fn parse(place: &str, text: &[u8]) -> Result<Self, LakeError> {
        let wrong = |reason: String| LakeError::Manifest { place: place.to_owned(), reason };
        let manifest: Self =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        manifest.check_numbers().map_err(wrong)?;
        Ok(manifest)
    }

    /// Builds the manifest of a lake that has none from the settings; returns `None` when they are
    /// incomplete. `place` names the lake in errors.
    pub fn given(place: &str, given: &GivenLayout) -> Result<Option<Self>, LakeError> {
        let numbers = (given.ledgers_per_batch, given.batches_per_partition);
        let (Some(ledgers_per_batch), Some(batches_per_partition)) = numbers else {
            return Ok(None);
        };
        let manifest = Self { network_passphrase: None, ledgers_per_batch, batches_per_partition };
        let wrong = |reason| LakeError::Address { address: place.to_owned(), reason };
        manifest.check_numbers().map_err(wrong)?;
        Ok(Some(manifest))
    }

    fn check_numbers(&self) -> Result<(), String> {
        match self.ledgers_per_batch.checked_mul(self.batches_per_partition) {
            None | Some(0) => Err(format!(
                "ledgersPerBatch {} and batchesPerPartition {} must be at least 1 and their product \
                 below 2^32",
                self.ledgers_per_batch, self.batches_per_partition
            )),
            Some(_) => Ok(()),
        }
    }

    /// Fails when the settings contradict this manifest, which lies at `place`.
    pub fn check_layout(&self, place: &str, given: &GivenLayout) -> Result<(), LakeError> {
        let (batch, partition) = (self.ledgers_per_batch, self.batches_per_partition);
        let (given_batch, given_partition) = (
            given.ledgers_per_batch.unwrap_or(batch),
            given.batches_per_partition.unwrap_or(partition),
        );
        if (given_batch, given_partition) == (batch, partition) {
            return Ok(());
        }
        let words = |batch: u32, partition: u32| {
            format!("{batch} ledgers per batch and {partition} batches per partition")
        };
        Err(LakeError::OtherLayout {
            place: place.to_owned(),
            found: words(batch, partition),
            given: words(given_batch, given_partition),
        })
    }

    /// Fails when the manifest, which lies at `place`, names a network other than `wanted`.
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
    /// File extension after `.xdr.`: `zst` today, `zstd` or `gz` in older lakes.
    extension: String,
    guessed: bool,
}

impl Layout {
    /// Creates the layout of a manifest, with today's file extension as a guess.
    pub fn new(manifest: &Manifest) -> Self {
        Self {
            ledgers_per_batch: manifest.ledgers_per_batch,
            ledgers_per_partition: manifest.ledgers_per_batch * manifest.batches_per_partition,
            partitioned: manifest.batches_per_partition > 1,
            extension: "zst".to_owned(),
            guessed: true,
        }
    }

    /// Sets the file extension after `.xdr.`; `None` leaves it a guess.
    pub fn with_extension(mut self, extension: Option<String>) -> Self {
        self.guessed = extension.is_none();
        if let Some(extension) = extension {
            self.extension = extension;
        }
        self
    }

    /// Returns whether the extension is only a guess, because no file was seen.
    pub(super) fn is_guessed(&self) -> bool {
        self.guessed
    }

    /// Returns the number of ledgers in one file.
    pub fn ledgers_per_batch(&self) -> u32 {
        self.ledgers_per_batch
    }

    /// Returns the ledgers that share a file with `ledger`. The first batch may lack those before
    /// ledger 2.
    pub fn batch_of(&self, ledger: LedgerSeq) -> LedgerRange {
        group(ledger, self.ledgers_per_batch)
    }

    /// Returns the ledgers of a file of this lake; `None` for any other key.
    pub(super) fn range_at(&self, key: &str) -> Option<LedgerRange> {
        let range = range_of(key)?;
        (self.key_of(range.first) == key).then_some(range)
    }

    /// Returns the key of the file that holds `ledger`.
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

/// Returns the group of `size` ledgers that `ledger` belongs to.
fn group(ledger: LedgerSeq, size: u32) -> LedgerRange {
    let first = ledger.0 / size * size;
    LedgerRange::new(first, first.saturating_add(size - 1))
}

/// Returns the beginning of a name, with the number inverted so that a lexicographic listing shows
/// the newest first.
fn prefix(first: LedgerSeq) -> String {
    format!("{:08X}--{}", u32::MAX - first.0, first)
}

/// Returns the file extension after `.xdr.` in the key of a batch file.
pub(super) fn extension_of(key: &str) -> Option<&str> {
    range_of(key)?;
    key.rsplit('/').next()?.split_once(".xdr.").map(|(_, extension)| extension)
}

/// Returns the ledgers that a key's name promises, or `None` when it is not the key of a batch
/// file: `^[0-9A-F]{8}--[0-9]+(-[0-9]+)?\.xdr\.[A-Za-z0-9._-]+$` after the last slash.
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
        Layout::new(&manifest)
    }

    #[test]
    fn sep_54_keys_are_composed() {
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
    fn the_extension_is_taken_from_a_key() {
        let extension = extension_of("FFFFFFFB--4-5/FFFFFFFB--4.xdr.zstd").unwrap();
        assert_eq!(extension, "zstd");
        let layout = layout(1, 2).with_extension(Some(extension.to_owned()));
        let key = layout.key_of(LedgerSeq(9));
        assert_eq!(key, "FFFFFFF7--8-9/FFFFFFF6--9.xdr.zstd");
        assert_eq!(layout.range_at(&key), Some(LedgerRange::new(9, 9)));
        for foreign in [
            "FFFFFFF7--8-9/FFFFFFF6--9.xdr.zst",
            "FFFFFFF6--9.xdr.zstd",
            "2025-08-14/FFFFFFF7--8-9/FFFFFFF6--9.xdr.zstd",
        ] {
            assert_eq!(layout.range_at(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn settings_complete_or_contradict_a_manifest() {
        let given = |ledgers_per_batch, batches_per_partition| GivenLayout {
            ledgers_per_batch,
            batches_per_partition,
            extension: None,
        };
        assert_eq!(Manifest::given("lake", &given(Some(1), None)).unwrap(), None);
        let manifest = Manifest::given("lake", &given(Some(1), Some(64_000))).unwrap().unwrap();
        assert_eq!(Layout::new(&manifest), layout(1, 64_000));
        assert!(Manifest::given("lake", &given(Some(0), Some(1))).is_err());
        manifest.check_layout("lake", &given(None, Some(64_000))).unwrap();
        let error = manifest.check_layout("lake", &given(Some(2), None)).unwrap_err().to_string();
        assert!(
            error.contains("says 1 ledgers per batch and 64000 batches per partition"),
            "{error}"
        );
        assert!(error.contains("the settings say 2 ledgers per batch"), "{error}");
    }

    #[test]
    fn other_file_names_are_not_batch_files() {
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
    fn invalid_manifests_are_refused() {
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
