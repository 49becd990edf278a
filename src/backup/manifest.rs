//! The manifest of a backup: a JSON file with a checksum of itself. It is accepted only if it is,
//! byte for byte, what this version would write.

use std::io::{self, Write};
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{BackupError, failed};
use crate::domain::{Digest, LedgerRange, LedgerSeq, LedgerSet, SummedLedgers};
use crate::durable::write_atomically;
use crate::store::DirectoryContents;

/// Name of the manifest's file.
pub(super) const FILE: &str = "manifest.json";
/// Version of the layout that this build writes, and the newest that it reads. Ranges have their
/// attested ledger since version 2.
const FORMAT: u32 = 2;

/// Content of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout of backups.
    pub format: u32,
    /// Version of orrery that made the backup.
    pub version: String,
    /// Time at which the backup was begun; also the name of the backup.
    pub taken: String,
    /// Short name of the network, or `custom`.
    pub network: String,
    /// Passphrase of the network.
    pub network_passphrase: String,
    /// Covered ledger ranges in ascending order.
    pub ranges: Vec<Range>,
    /// Sum of the digests of all ranges.
    pub digest: Digest,
    /// All files, ordered by path.
    pub files: Vec<File>,
}

/// A range of consecutive ledgers, and what was attested of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The ledgers.
    #[serde(flatten)]
    pub summed: SummedLedgers,
    /// Newest ledger that validators, or a followed stellar-core, attest; `None` when none was
    /// attested when the backup was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested_ledger: Option<LedgerSeq>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Path below the backup's directory.
    pub path: String,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// Layout of the file: the manifest, and the SHA-256 of its compact JSON.
#[derive(Serialize, Deserialize)]
struct Sealed {
    sha256: String,
    manifest: Manifest,
}

impl Range {
    /// Whether it has ledgers, and the attested one is one of them.
    fn is_sound(&self) -> bool {
        let ledgers = self.summed.ledgers;
        !ledgers.is_empty() && self.attested_ledger.is_none_or(|ledger| ledgers.contains(ledger))
    }
}

impl Manifest {
    pub(super) fn new(
        taken: &str,
        contents: &DirectoryContents,
        attested: &LedgerSet,
        mut files: Vec<File>,
    ) -> Self {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let ranges = contents.ranges.iter().map(|range| Range {
            summed: *range,
            attested_ledger: newest_within(attested, range.ledgers),
        });
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken: taken.to_owned(),
            network: contents.network.name().to_owned(),
            network_passphrase: contents.network.passphrase().to_owned(),
            ranges: ranges.collect(),
            digest: sum(&contents.ranges),
            files,
        }
    }

    /// Whether the manifest describes these ledgers of this network. Which of them are attested is not
    /// compared: that depends on the validators that were trusted.
    pub(super) fn matches(&self, contents: &DirectoryContents) -> bool {
        contents.network.passphrase() == self.network_passphrase
            && self.ranges.iter().map(|range| &range.summed).eq(&contents.ranges)
            && self.digest == sum(&contents.ranges)
    }

    /// Returns the size of all files in bytes. Whoever has written the manifest may have written any sizes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }

    /// Returns the number of ledgers in all ranges.
    pub fn ledgers(&self) -> u64 {
        let lengths = self.ranges.iter().map(|range| range.summed.ledgers.len());
        lengths.fold(0, u64::saturating_add)
    }

    /// Writes the manifest into a backup, whose other files must be on disk already.
    pub(super) fn write(&self, backup: &Path) -> Result<(), BackupError> {
        let path = backup.join(FILE);
        let text = self.sealed().map_err(|error| failed(&path)(io::Error::from(error)))?;
        write_atomically(&path, |file| file.write_all(&text)).map_err(failed(&path))
    }

    /// Reads and checks the manifest of a backup.
    pub(super) fn read(backup: &Path) -> Result<Self, BackupError> {
        let path = backup.join(FILE);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(BackupError::Other(format!(
                    "{} has no manifest.json: it is not a backup, or the backup is incomplete",
                    backup.display()
                )));
            }
            read => read.map_err(failed(&path))?,
        };
        let damaged =
            || BackupError::Other(format!("{} is damaged: use another backup", path.display()));
        let sealed: Sealed = serde_json::from_slice(&text).map_err(|_| damaged())?;
        if sealed.manifest.format > FORMAT {
            return Err(BackupError::Other(format!(
                "the backup {} has format {}, this version of orrery reads {FORMAT}: use the version \
                 that made it",
                backup.display(),
                sealed.manifest.format
            )));
        }
        let manifest = sealed.manifest;
        let is_whole = manifest.sealed().is_ok_and(|same| same == text) && manifest.is_sound();
        is_whole.then_some(manifest).ok_or_else(damaged)
    }

    /// Whether the paths stay below the directory, and the ranges are ranges.
    pub(super) fn is_sound(&self) -> bool {
        self.format <= FORMAT
            && self.files.iter().all(|file| stays_below(&file.path))
            && self.ranges.iter().all(Range::is_sound)
    }

    fn sealed(&self) -> Result<Vec<u8>, serde_json::Error> {
        let sha256 = hex::encode(Sha256::digest(serde_json::to_vec(self)?));
        let mut text = serde_json::to_vec_pretty(&Sealed { sha256, manifest: self.clone() })?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Returns the newest ledger of a range up to which all are attested.
fn newest_within(attested: &LedgerSet, range: LedgerRange) -> Option<LedgerSeq> {
    let attested = attested.within(range);
    let first = attested.ranges().first().filter(|part| part.first == range.first)?;
    Some(first.last)
}

fn sum(ranges: &[SummedLedgers]) -> Digest {
    ranges.iter().map(|range| range.digest).sum()
}

/// Whether a relative path stays below the directory that it is joined to.
fn stays_below(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let (ledgers, digest) = (LedgerRange::new(2, 9), Digest::default());
        let range =
            Range { summed: SummedLedgers { ledgers, events: 7, digest }, attested_ledger: None };
        let file = File { path: "raw/000001.sst".to_owned(), size: 3, sha256: "0".repeat(64) };
        Manifest {
            format: FORMAT,
            version: "0.1.0".to_owned(),
            taken: "2026-11-24T10-45-00.123Z".to_owned(),
            network: "testnet".to_owned(),
            network_passphrase: "a passphrase".to_owned(),
            ranges: vec![range],
            digest,
            files: vec![file],
        }
    }

    /// A manifest that an earlier version wrote is, byte for byte, what it was.
    #[test]
    fn manifests_without_attested_ledgers_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let earlier = Manifest { format: 1, ..manifest() };
        earlier.write(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join(FILE)).unwrap();
        assert!(!text.contains("attested"), "{text}");
        assert_eq!(Manifest::read(directory.path()).unwrap(), earlier);
    }

    #[test]
    fn a_range_is_attested_from_its_first_ledger_on() {
        let set = |ranges: &[(u32, u32)]| -> LedgerSet {
            ranges.iter().map(|(first, last)| LedgerRange::new(*first, *last)).collect()
        };
        let range = LedgerRange::new(10, 20);
        for (attested, newest) in [
            (set(&[]), None),
            (set(&[(10, 15)]), Some(15)),
            (set(&[(5, 30)]), Some(20)),
            (set(&[(11, 15)]), None),
            (set(&[(1, 9), (10, 12), (25, 30)]), Some(12)),
        ] {
            assert_eq!(newest_within(&attested, range), newest.map(LedgerSeq), "{attested:?}");
        }
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let backup = directory.path();
        let error = Manifest::read(backup).unwrap_err().to_string();
        assert!(error.contains(" has no manifest.json: "), "{error}");
        manifest().write(backup).unwrap();
        assert_eq!(Manifest::read(backup).unwrap(), manifest());
        let text = std::fs::read(backup.join(FILE)).unwrap();
        for (at, bit) in (0..text.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            std::fs::write(backup.join(FILE), &changed).unwrap();
            assert!(Manifest::read(backup).is_err(), "byte {at}, bit {bit}");
        }
        for length in 0..text.len() {
            std::fs::write(backup.join(FILE), &text[..length]).unwrap();
            assert!(Manifest::read(backup).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn paths_outside_the_backup_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["../secrets/key", "/etc/passwd", "raw/../../x", "", "./x"] {
            let mut made = manifest();
            made.files[0].path = path.to_owned();
            made.write(directory.path()).unwrap();
            let error = Manifest::read(directory.path()).unwrap_err().to_string();
            assert!(error.ends_with("manifest.json is damaged: use another backup"), "{error}");
        }
    }
}
