//! How far the store has promised that ledgers are on disk, in a small file of its own.
//!
//! RocksDB takes the damaged end of a log for a write that a crash cut short, and goes on without it.
//! Whether that write had been acknowledged it cannot know. So after each acknowledgement the number
//! of the last write is noted here, in place and without waiting for the disk: the note survives the
//! process, and after a loss of power it may be some seconds old but never ahead of what is stored.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::StoreError;
use crate::domain::LedgerSeq;

pub(super) const FILE: &str = "acknowledged";

/// What was acknowledged last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Promise {
    /// RocksDB's number of the last change that is on disk.
    pub sequence: u64,
    /// The ledger that was stored with it, for people.
    pub ledger: LedgerSeq,
}

impl Promise {
    /// One line of text, always of the same length: both numbers and a checksum.
    pub(super) fn encode(&self) -> String {
        let numbers = format!("{:020} {:010}", self.sequence, self.ledger.0);
        format!("{numbers} {:016x}\n", xxh3_64(numbers.as_bytes()))
    }

    /// `None` when the line is not what [`Self::encode`] writes.
    fn decode(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let sequence = words.next()?.parse().ok()?;
        let ledger = LedgerSeq(words.next()?.parse().ok()?);
        let promise = Self { sequence, ledger };
        (promise.encode() == line).then_some(promise)
    }
}

/// The open file.
pub(super) struct Acknowledged {
    file: File,
    path: PathBuf,
    promise: Option<Promise>,
}

impl Acknowledged {
    /// Reads what the last process noted. A note that is damaged is no reason not to serve what is
    /// stored: that is said, and a new one is begun.
    pub(super) fn open(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let promise = match read(directory) {
            Err(error @ StoreError::DamagedPromise(_)) => {
                tracing::warn!("{error}");
                None
            }
            read => read?,
        };
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|source| StoreError::Io { path: path.clone(), source })?;
        Ok(Self { file, path, promise })
    }

    /// What had been acknowledged when the file was opened; none when that is not known.
    pub(super) fn promise(&self) -> Option<Promise> {
        self.promise
    }

    /// Notes that everything up to `sequence` is on disk, the last being `ledger`.
    pub(super) fn is_now(&self, sequence: u64, ledger: LedgerSeq) {
        let line = Promise { sequence, ledger }.encode();
        if let Err(error) = self.file.write_all_at(line.as_bytes(), 0) {
            // The ledger is stored all the same; only a later loss would go unnoticed.
            tracing::warn!(path = %self.path.display(), %error, "cannot note what is stored");
        }
    }
}

impl Drop for Acknowledged {
    fn drop(&mut self) {
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(path = %self.path.display(), %error, "cannot note what is stored");
        }
    }
}

/// What the last process noted, if there is a note.
pub(super) fn read(directory: &Path) -> Result<Option<Promise>, StoreError> {
    let path = directory.join(FILE);
    match std::fs::read(&path) {
        // A process that was killed before its first ledger.
        Ok(bytes) if bytes.is_empty() => Ok(Some(Promise::default())),
        Ok(bytes) => {
            let promise = std::str::from_utf8(&bytes).ok().and_then(Promise::decode);
            promise.map(Some).ok_or(StoreError::DamagedPromise(path))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Io { path, source }),
    }
}

/// Whether a database that has come to `sequence` holds all that was promised.
pub(super) fn check(
    directory: &Path,
    promise: Option<Promise>,
    sequence: u64,
) -> Result<(), StoreError> {
    match promise {
        Some(promise) if promise.sequence > sequence => {
            Err(StoreError::Lost { ledger: promise.ledger, note: directory.join(FILE) })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_survives_and_its_damage_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(read(directory).unwrap(), None);
        let acknowledged = Acknowledged::open(directory).unwrap();
        assert_eq!(read(directory).unwrap(), Some(Promise::default()), "nothing is stored yet");
        let ledger = LedgerSeq(u32::MAX);
        for sequence in [u64::MAX, 7] {
            acknowledged.is_now(sequence, ledger);
            assert_eq!(read(directory).unwrap(), Some(Promise { sequence, ledger }));
        }
        drop(acknowledged);
        let promise = Acknowledged::open(directory).unwrap().promise();
        assert!(check(directory, promise, 7).is_ok() && check(directory, promise, 8).is_ok());
        let lost = check(directory, promise, 6).unwrap_err();
        assert!(matches!(&lost, StoreError::Lost { ledger: LedgerSeq(u32::MAX), .. }), "{lost}");

        let path = directory.join(FILE);
        let line = std::fs::read(&path).unwrap();
        for (at, bit) in (0..line.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = line.clone();
            flipped[at] ^= 1 << bit;
            std::fs::write(&path, &flipped).unwrap();
            assert!(matches!(read(directory), Err(StoreError::DamagedPromise(_))), "{at} {bit}");
            assert_eq!(Acknowledged::open(directory).unwrap().promise(), None);
        }
    }
}
