//! Checks the files that RocksDB reads when it opens: the list of its SST files (`MANIFEST`) and
//! its write-ahead logs. Parses the framing of records, not their content.
//!
//! RocksDB checks them too, but takes some damage for the end of a write that a crash cut short: a
//! length that points beyond the end of the file, or a type that only recycled logs have. It then
//! silently continues without the rest (or, in version 11.8, reads the same record forever). So
//! damage is distinguished here from what a crash leaves, before RocksDB changes or deletes
//! anything.
//!
//! The format (`db/log_format.h`): blocks of 32 KiB. In each, records of u32 checksum · u16 length
//! · u8 type · content, little-endian; the last bytes of a block are unused when they are too few
//! for the first three. Records that do not fit into one block are split into a first, middle and
//! last part.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::acknowledged::AcknowledgedWrite;
use crate::encoding::error::StoreError;

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
/// Bytes at the start of a write's record: u64 sequence number of its first change, u32 number of
/// changes.
const WRITE_HEAD: usize = 12;

/// How the content of a file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// After a record.
    Whole,
    /// In the middle of the record that begins here: the process or machine stopped while writing
    /// it.
    CutShort,
    /// The record that begins at this offset is not what was written.
    Damaged(u64),
}

/// Prepares a directory for RocksDB to open without losing an acknowledged write. A damaged record
/// after the last acknowledged write, as a loss of power leaves it, is cut off with everything
/// after it.
pub(crate) fn make_ready(
    raw: &Path,
    last_write: Option<AcknowledgedWrite>,
) -> Result<(), StoreError> {
    let Some((log, at)) = unacknowledged_damage(raw, last_write)? else { return Ok(()) };
    tracing::warn!(
        path = %log.display(), at,
        "the log ends with a damaged write that was never acknowledged: it is cut off"
    );
    let cut = File::options().write(true).open(&log).and_then(|file| {
        file.set_len(at)?;
        file.sync_all()
    });
    cut.map_err(|source| StoreError::Io { path: log, source })
}

/// Checks that RocksDB can open a directory read-only without losing an acknowledged write. Changes
/// nothing: RocksDB stops reading where [`make_ready`] would cut.
pub(crate) fn check_acknowledged(
    raw: &Path,
    last_write: Option<AcknowledgedWrite>,
) -> Result<(), StoreError> {
    unacknowledged_damage(raw, last_write).map(|_| ())
}

/// Returns the log that ends with a damaged record which was never acknowledged, and the record's
/// offset. Any other damage is an error.
fn unacknowledged_damage(
    raw: &Path,
    last_write: Option<AcknowledgedWrite>,
) -> Result<Option<(PathBuf, u64)>, StoreError> {
    let found = Found::of(raw, last_write)?;
    let Some((log, at)) = found.damaged_log else { return Ok(None) };
    let kept = last_write.is_some_and(|last_write| last_write.sequence <= found.last_sequence);
    if !kept || !found.is_last_log {
        return Err(damaged_at(&log, at));
    }
    Ok(Some((log, at)))
}

/// Returns the size of the write-ahead logs in bytes. A log that RocksDB removes meanwhile counts
/// as 0.
///
/// # Errors
/// When a log cannot be read.
pub(crate) fn bytes(raw: &Path) -> Result<u64, StoreError> {
    let size = |log: PathBuf| match fs::metadata(&log) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(source) => Err(StoreError::Io { path: log, source }),
    };
    files(raw, ".log")?.into_iter().map(size).sum()
}

/// Checks that a directory may be opened for reading. Changes nothing.
pub(crate) fn check(raw: &Path, last_write: Option<AcknowledgedWrite>) -> Result<(), StoreError> {
    match Found::of(raw, last_write)?.damaged_log {
        Some((path, at)) => Err(damaged_at(&path, at)),
        None => Ok(()),
    }
}

fn damaged_at(path: &Path, at: u64) -> StoreError {
    StoreError::damaged(path, format_args!("damaged at byte {at}"))
}

/// Result of checking all files, up to the first damaged log.
#[derive(Default)]
struct Found {
    /// Sequence number of the last change in the readable part of the logs.
    last_sequence: u64,
    /// The damaged log, and the offset at which the damaged record begins.
    damaged_log: Option<(PathBuf, u64)>,
    /// Whether the damaged log is the newest one.
    is_last_log: bool,
}

impl Found {
    fn of(raw: &Path, last_write: Option<AcknowledgedWrite>) -> Result<Self, StoreError> {
        let mut found = Self::default();
        let Some(manifest) = current_manifest(raw)? else {
            // Without `CURRENT`, RocksDB would create a new database in place of the old one.
            let was_one = last_write.is_some_and(|last_write| last_write.sequence > 0)
                || !files(raw, ".sst")?.is_empty();
            let missing = || StoreError::damaged(&raw.join(CURRENT), "missing");
            return if was_one { Err(missing()) } else { Ok(found) };
        };
        if let (End::Damaged(at), _) = walk(&manifest)? {
            return Err(damaged_at(&manifest, at));
        }
        let logs = files(raw, ".log")?;
        for (number, log) in logs.iter().enumerate() {
            let (end, last_sequence) = walk(log)?;
            found.last_sequence = found.last_sequence.max(last_sequence);
            if let End::Damaged(at) = end {
                found.damaged_log = Some((log.clone(), at));
                found.is_last_log = number + 1 == logs.len();
                break;
            }
        }
        Ok(found)
    }
}

const CURRENT: &str = "CURRENT";

/// Returns the file that `CURRENT` names; `None` in a directory without a database.
fn current_manifest(raw: &Path) -> Result<Option<PathBuf>, StoreError> {
    let path = raw.join(CURRENT);
    let named = match fs::read(&path) {
        Ok(named) => named,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StoreError::Io { path, source }),
    };
    let name = std::str::from_utf8(&named).ok().and_then(|text| text.strip_suffix('\n'));
    let name = name.filter(|name| {
        let number = name.strip_prefix("MANIFEST-").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    });
    let Some(name) = name else { return Err(damaged_at(&path, 0)) };
    let manifest = raw.join(name);
    match manifest.try_exists() {
        Ok(true) => Ok(Some(manifest)),
        Ok(false) => Err(StoreError::damaged(&manifest, "missing")),
        Err(source) => Err(StoreError::Io { path: manifest, source }),
    }
}

/// Returns the files named by a number and this suffix, oldest first; empty when the directory is
/// missing.
fn files(raw: &Path, suffix: &str) -> Result<Vec<PathBuf>, StoreError> {
    let io = |source| StoreError::Io { path: raw.to_owned(), source };
    let entries = match fs::read_dir(raw) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(io)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(io)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(suffix)?.parse::<u64>().ok());
        files.extend(number.map(|number| (number, raw.join(&name))));
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Returns how a file ends and, for a log, the sequence number of the last change in its whole
/// records.
fn walk(path: &Path) -> Result<(End, u64), StoreError> {
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    File::open(path).and_then(walk_through).map_err(io)
}

fn walk_through(mut file: impl Read) -> io::Result<(End, u64)> {
    let mut walk = Walk::default();
    let mut block = Vec::with_capacity(BLOCK);
    loop {
        block.clear();
        file.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
        if let Some(end) = walk.block(&block) {
            return Ok((end, walk.last_sequence));
        }
        walk.before += block.len() as u64;
    }
}

/// Part of a record, by its type in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Full,
    First,
    Middle,
    Last,
    /// Metadata record of RocksDB.
    Other,
}

impl Part {
    /// `None` for types that the options of this store never produce.
    fn of(kind: u8) -> Option<Self> {
        match kind {
            1 => Some(Self::Full),
            2 => Some(Self::First),
            3 => Some(Self::Middle),
            4 => Some(Self::Last),
            // Compression type, sizes of user-defined timestamps, predecessor log.
            9 | 10 | 130 => Some(Self::Other),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Walk {
    /// Bytes of the file before the current block.
    before: u64,
    /// Offset at which the record began whose last part has not been read yet.
    unfinished: Option<u64>,
    /// First bytes of the record.
    head: Vec<u8>,
    last_sequence: u64,
    /// Offset from which the file is reserved space that was not written.
    reserved_from: Option<u64>,
}

impl Walk {
    /// Checks the next block; only the last one is shorter than [`BLOCK`]. Returns how the file
    /// ends, once that is decided.
    fn block(&mut self, block: &[u8]) -> Option<End> {
        let is_last = block.len() < BLOCK;
        let mut rest = block;
        while self.reserved_from.is_none() && rest.len() >= HEADER {
            let at = self.before + (block.len() - rest.len()) as u64;
            let (header, content) = rest.split_at(HEADER);
            let length = usize::from(u16::from_le_bytes([header[4], header[5]]));
            let kind = header[6];
            if kind == 0 && length == 0 {
                self.reserved_from = Some(self.unfinished.unwrap_or(at));
                break;
            }
            let checksum = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let damaged = Some(End::Damaged(self.unfinished.unwrap_or(at)));
            let Some(content) = content.get(..length) else {
                let length_is_wrong = !is_last || some_prefix_fits(kind, content, checksum);
                return if length_is_wrong { damaged } else { Some(End::CutShort) };
            };
            let Some(part) = Part::of(kind) else { return damaged };
            if masked(crc32c::crc32c_append(crc32c::crc32c(&[kind]), content)) != checksum
                || !self.part(part, at, content)
            {
                return damaged;
            }
            rest = &rest[HEADER + length..];
        }
        if let Some(from) = self.reserved_from {
            if rest.iter().any(|byte| *byte != 0) {
                return Some(End::Damaged(from));
            }
        } else if is_last && !rest.is_empty() {
            return Some(End::CutShort);
        }
        let end = if self.unfinished.is_some() { End::CutShort } else { End::Whole };
        is_last.then_some(end)
    }

    /// Adds the next part; returns false when it cannot follow the previous one.
    fn part(&mut self, part: Part, at: u64, content: &[u8]) -> bool {
        let begins = matches!(part, Part::Full | Part::First | Part::Other);
        if begins == self.unfinished.is_some() {
            return false;
        }
        if begins {
            self.head.clear();
        }
        let missing = WRITE_HEAD - self.head.len();
        self.head.extend_from_slice(&content[..content.len().min(missing)]);
        match part {
            Part::First => self.unfinished = Some(at),
            Part::Full | Part::Last => {
                self.unfinished = None;
                self.last_sequence = self.last_sequence.max(last_change(&self.head).unwrap_or(0));
            }
            Part::Middle | Part::Other => {}
        }
        true
    }
}

/// Returns the sequence number of the last change of a write.
fn last_change(head: &[u8]) -> Option<u64> {
    let (first, count) = head.split_first_chunk::<8>()?;
    let count = u32::from_le_bytes(*count.first_chunk()?);
    (u64::from_le_bytes(*first) + u64::from(count)).checked_sub(1)
}

/// Returns whether the checksum is that of a shorter record, so that only the length is wrong.
fn some_prefix_fits(kind: u8, content: &[u8], checksum: u32) -> bool {
    let mut sum = crc32c::crc32c(&[kind]);
    let mut fits = masked(sum) == checksum;
    for byte in content {
        sum = crc32c::crc32c_append(sum, std::slice::from_ref(byte));
        fits |= masked(sum) == checksum;
    }
    fits
}

/// Returns the checksum as it is stored: rotated (`util/crc32c.h`), because CRCs of data that
/// contains CRCs are weak.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused<T>(result: Result<T, StoreError>, part: &str) {
        let sentence = result.err().unwrap().to_string();
        assert!(sentence.contains(part), "{sentence}");
    }

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let checksum = masked(crc32c::crc32c_append(crc32c::crc32c(&[kind]), content));
        let mut record = checksum.to_le_bytes().to_vec();
        record.extend((content.len() as u16).to_le_bytes());
        record.push(kind);
        record.extend(content);
        record
    }

    fn write(first: u64, changes: u32, filling: usize) -> Vec<u8> {
        let mut content = first.to_le_bytes().to_vec();
        content.extend(changes.to_le_bytes());
        content.resize(WRITE_HEAD + filling, 0x5a);
        content
    }

    /// Returns a log of two short writes, one over three blocks, and a short one.
    fn log() -> Vec<u8> {
        let mut log = record(1, &write(1, 3, 40));
        log.extend(record(1, &write(4, 1, 100)));
        let long = write(5, 100, 2 * BLOCK);
        let (first, rest) = long.split_at(BLOCK - log.len() - HEADER);
        let (middle, last) = rest.split_at(BLOCK - HEADER);
        log.extend([record(2, first), record(3, middle), record(4, last)].concat());
        log.extend(record(1, &write(105, 1, 10)));
        log
    }

    fn walked(bytes: &[u8]) -> (End, u64) {
        walk_through(bytes).unwrap()
    }

    #[test]
    fn complete_logs_are_recognised() {
        assert_eq!(walked(&log()), (End::Whole, 105));
        assert_eq!(walked(&[]), (End::Whole, 0));
        let reserved = [log(), vec![0; 3 * BLOCK]].concat();
        assert_eq!(walked(&reserved), (End::Whole, 105));
        // A block ends with padding where a header does not fit.
        let mut full = record(1, &write(1, 1, BLOCK - 2 * HEADER - WRITE_HEAD + 1));
        full.resize(BLOCK, 0);
        assert_eq!(walked(&[full, record(1, &write(2, 1, 0))].concat()), (End::Whole, 2));
    }

    #[test]
    fn a_truncated_last_write_is_not_damage() {
        let log = log();
        let ends = (0..300).chain(BLOCK - 20..BLOCK + 20).chain(log.len() - 200..log.len());
        for length in ends.chain((0..log.len()).step_by(97)) {
            let (end, last) = walked(&log[..length]);
            assert!(!matches!(end, End::Damaged(_)), "{length}: {end:?}");
            assert!(end == End::CutShort || [0, 3, 4, 104].contains(&last), "{length}: {last}");
            assert!(last <= 104, "{length}: {last}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected_as_damage() {
        let log = log();
        let ends = (0..300).chain(BLOCK - 20..BLOCK + 20).chain(log.len() - 200..log.len());
        for (at, bit) in ends.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = log.clone();
            flipped[at] ^= 1 << bit;
            let (end, last) = walked(&flipped);
            let End::Damaged(from) = end else { panic!("byte {at}, bit {bit}: {end:?}") };
            assert!(from <= at as u64 && last < 105, "byte {at}, bit {bit}: {from}, {last}");
        }
        let mut reserved = [log.clone(), vec![0; 2 * BLOCK]].concat();
        reserved[log.len() + BLOCK] = 1;
        assert_eq!(walked(&reserved), (End::Damaged(log.len() as u64), 105));
    }

    #[test]
    fn only_unacknowledged_writes_are_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let raw = directory.path();
        let log = log();
        let last_write =
            |sequence| Some(AcknowledgedWrite { sequence, ..AcknowledgedWrite::default() });
        assert!(make_ready(raw, last_write(0)).is_ok() && make_ready(raw, None).is_ok());
        is_refused(make_ready(raw, last_write(1)), " is missing: ");
        fs::write(raw.join("000004.sst"), "rows").unwrap();
        is_refused(make_ready(raw, None), " is missing: ");
        fs::write(raw.join(CURRENT), "MANIFEST-000007\n").unwrap();
        is_refused(make_ready(raw, last_write(1)), " is missing: ");
        fs::write(raw.join("MANIFEST-000007"), record(1, b"tables")).unwrap();
        let path = raw.join("000008.log");
        let mut damaged = log.clone();
        *damaged.last_mut().unwrap() ^= 1;
        fs::write(&path, &damaged).unwrap();
        for last_write in [last_write(105), None] {
            is_refused(make_ready(raw, last_write), " is damaged at byte ");
            assert_eq!(fs::read(&path).unwrap(), damaged, "it is left as it is");
        }
        is_refused(check(raw, last_write(104)), " is damaged at byte ");
        let later = raw.join("000010.log");
        fs::write(&later, record(1, &write(106, 1, 0))).unwrap();
        assert!(make_ready(raw, last_write(104)).is_err(), "what follows would be lost");
        fs::remove_file(&later).unwrap();
        make_ready(raw, last_write(104)).unwrap();
        assert_eq!(walked(&fs::read(&path).unwrap()), (End::Whole, 104));
        assert!(check(raw, last_write(104)).is_ok());

        fs::write(raw.join("MANIFEST-000007"), b"\x01\x02\x03\x04\x05\0\x01tabel").unwrap();
        is_refused(make_ready(raw, last_write(0)), " is damaged at byte ");
        for named in ["MANIFEST-00000x\n", "MANIFEST-000007", "MANIFEST-\n", "\n", ""] {
            fs::write(raw.join(CURRENT), named).unwrap();
            is_refused(make_ready(raw, None), " is damaged at byte 0: ");
        }
    }
}
