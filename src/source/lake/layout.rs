//! Maps the ledgers of a lake to keys and back (SEP-54). Pure functions without I/O.

use orrery_ledger::domain::{LedgerRange, LedgerSeq, Network};
use serde::Deserialize;

use super::error::LakeError;

/// Extensions in use, the newest first: `zst` today, `zstd` and `gz` in older lakes.
pub(super) const EXTENSIONS: [&str; 3] = ["zst", "zstd", "gz"];
/// Numbers of ledgers in a file, and of files in a directory, that exporters are configured with.
const USUAL_BATCHES: [u32; 12] = [1, 64, 4, 2, 8, 10, 16, 32, 100, 128, 256, 1000];
const USUAL_PARTITIONS: [u32; 14] =
    [64_000, 1, 10, 1000, 64, 100, 8, 16, 32, 4, 2, 10_000, 16_000, 32_000];

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
        let wrong = |reason: String| {
            LakeError::Other(format!("the lake manifest {place} is wrong: {reason}"))
        };
        // Editors and shells of some systems write a byte order mark before the text.
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
        if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
            return Err(wrong("it is written in UTF-16: save it as UTF-8".to_owned()));
        }
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
        manifest.check_numbers().map_err(|reason| {
            LakeError::Fatal(format!("the lake address {place} cannot be used: {reason}"))
        })?;
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
        let (found, given) = (words(batch, partition), words(given_batch, given_partition));
        Err(LakeError::Fatal(format!(
            "the lake manifest {place} says {found}, but the settings say {given}: remove the \
             settings"
        )))
    }

    /// Fails when the manifest, which lies at `place`, names a network other than `wanted`.
    pub fn check_network(&self, place: &str, wanted: &Network) -> Result<(), LakeError> {
        match self.network_passphrase.as_deref().map(Network::from_passphrase) {
            Some(found) if found != *wanted => Err(LakeError::Fatal(format!(
                "{place} holds ledgers of the network {found}, not of {wanted}"
            ))),
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

    /// Returns the file extension after `.xdr.`.
    pub(super) fn extension(&self) -> &str {
        &self.extension
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

    /// Returns the ledgers of a finished file of a lake with another layout; `None` for the files of
    /// this one, for files that are still being written and for those that are no batch files.
    pub(super) fn range_of_other(&self, key: &str) -> Option<LedgerRange> {
        let range = range_of(key)?;
        let ours = self.key_of(range.first);
        let (stem, extension) = key.rsplit_once(".xdr.")?;
        let is_ours = ours.rsplit_once(".xdr.").is_some_and(|(ours, _)| ours == stem);
        let is_finished = extension != self.extension && EXTENSIONS.contains(&extension);
        (!is_ours || is_finished).then_some(range)
    }

    /// Returns whether files and directories hold as many ledgers as in another layout.
    pub(super) fn has_sizes_of(&self, other: &Self) -> bool {
        let sizes = |of: &Self| (of.ledgers_per_batch, of.ledgers_per_partition, of.partitioned);
        sizes(self) == sizes(other)
    }

    /// Describes the files of this layout, as the end of a sentence.
    pub(super) fn words(&self) -> String {
        let files = match self.ledgers_per_batch {
            1 => "files of 1 ledger".to_owned(),
            many => format!("files of {many} ledgers"),
        };
        let extension =
            if self.guessed { String::new() } else { format!(" (.xdr.{})", self.extension) };
        match self.ledgers_per_partition / self.ledgers_per_batch {
            _ if !self.partitioned => format!("{files}{extension} without directories"),
            batches => format!("{files}{extension}, {batches} in a directory"),
        }
    }

    /// Returns layouts that lakes also have, the likely ones first: with another extension, with
    /// other files in directories as long or as full, with other directories, with both different.
    pub(super) fn others(&self) -> impl Iterator<Item = Self> {
        let (own, batches) =
            (self.ledgers_per_batch, self.ledgers_per_partition / self.ledgers_per_batch);
        let sizes = move || USUAL_BATCHES.into_iter().filter(move |size| *size != own);
        let counts = move || USUAL_PARTITIONS.into_iter().filter(move |count| *count != batches);
        let of = move |(ledgers_per_batch, batches_per_partition): (u32, u32)| {
            let manifest =
                Manifest { network_passphrase: None, ledgers_per_batch, batches_per_partition };
            let fits = manifest.check_numbers().is_ok();
            fits.then(|| Self::new(&manifest).with_extension(Some(self.extension.clone())))
        };
        let as_long = self.ledgers_per_partition;
        let likely = sizes().flat_map(move |size| [(size, batches), (size, as_long / size)]);
        let rest = sizes().flat_map(move |size| counts().map(move |count| (size, count)));
        let others = likely.chain(counts().map(move |count| (own, count))).chain(rest);
        let extensions = EXTENSIONS.into_iter().filter(move |other| *other != self.extension);
        let with = move |extension: &str| self.clone().with_extension(Some(extension.to_owned()));
        extensions.map(with).chain(others.filter_map(of))
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

/// Describes the file of another layout as [`Layout::words`] does.
pub(super) fn words_of(key: &str) -> String {
    let Some(range) = range_of(key) else { return "another file".to_owned() };
    let ledgers = match range.len() {
        1 => "1 ledger".to_owned(),
        many => format!("{many} ledgers"),
    };
    match key.split_once('/') {
        Some((directory, _)) => format!("a file of {ledgers} in the directory {directory}"),
        None => format!("a file of {ledgers} without a directory"),
    }
}

/// Returns whether a file may hold ledgers although it is not where, or not named as, a batch file of
/// any layout is.
pub(super) fn may_be_misnamed(key: &str) -> bool {
    let (directories, name) = key.rsplit_once('/').unwrap_or(("", key));
    let is_in_place =
        directories.is_empty() || directories.contains("--") && !directories.contains('/');
    // A file that is still being written may end with a tilde.
    let is_batch_file = is_in_place && range_of(name.trim_end_matches('~')).is_some();
    name.contains(".xdr") && !name.starts_with('.') && !is_batch_file
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
    fn keys_of_other_layouts_are_recognised() {
        let ours = layout(1, 64).with_extension(Some("zst".to_owned()));
        assert_eq!(ours.words(), "files of 1 ledger (.xdr.zst), 64 in a directory");
        let key = layout(4, 1).key_of(LedgerSeq(146));
        assert_eq!(layout(4, 1).words(), "files of 4 ledgers without directories");
        assert_eq!(ours.range_of_other(&key), Some(LedgerRange::new(144, 147)));
        let other = layout(1, 8).key_of(LedgerSeq(146));
        assert_eq!(ours.range_of_other(&other), Some(LedgerRange::new(146, 146)));
        let old = ours.clone().with_extension(Some("zstd".to_owned())).key_of(LedgerSeq(146));
        assert_eq!(ours.range_of_other(&old), Some(LedgerRange::new(146, 146)));
        for own in [ours.key_of(LedgerSeq(146)), format!("{}.part", ours.key_of(LedgerSeq(146)))] {
            assert_eq!(ours.range_of_other(&own), None, "{own}");
        }
        let keys: Vec<String> = ours.others().map(|it| it.key_of(LedgerSeq(146))).collect();
        assert!(keys.len() < 250, "{}", keys.len());
        for wanted in [key, other, old] {
            assert!(keys.contains(&wanted), "{wanted}");
        }
        assert!(!keys.contains(&ours.key_of(LedgerSeq(146))));
        let largest = layout(u32::MAX, 1);
        assert!(largest.others().all(|it| !it.key_of(LedgerSeq(2)).is_empty()));
    }

    #[test]
    fn a_byte_order_mark_before_a_manifest_is_skipped() {
        let text = r#"{"ledgersPerBatch":4,"batchesPerPartition":1}"#;
        let manifest = Manifest::parse("it", format!("\u{feff}{text}").as_bytes()).unwrap();
        assert_eq!(manifest.ledgers_per_batch, 4);
        let wide: Vec<u8> =
            "\u{feff}{}".encode_utf16().flat_map(|unit| unit.to_le_bytes()).collect();
        let error = Manifest::parse("it", &wide).unwrap_err().to_string();
        assert!(error.contains("it is written in UTF-16"), "{error}");
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
