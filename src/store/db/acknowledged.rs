//! A small file of its own that records up to which write the store has acknowledged ledgers as
//! durable.
//!
//! RocksDB treats a damaged end of its write-ahead log as a write that a crash cut short, and
//! continues without it. It cannot tell whether that write had been acknowledged. So after each
//! acknowledgement the sequence number of the last write is recorded here, in place and without
//! fsync: the record survives a crash of the process; after a loss of power it may be some seconds
//! old, but it is never ahead of what is stored.
//!
//! Events can be read before they are durable, and a crash then loses them although their ids were given
//! out. So ids are reserved here, with fsync, before a write that a crash can undo gives them to events.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use orrery_ledger::domain::{EventId, LedgerSeq};
use rustix::fs::OFlags;
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use crate::encoding::error::StoreError;

/// Name of the file, in the data directory.
pub const FILE: &str = "acknowledged";

/// The last acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AcknowledgedWrite {
    /// RocksDB sequence number of the last durable change.
    pub sequence: u64,
    /// Last ledger stored up to that change, shown in error messages.
    pub ledger: LedgerSeq,
    /// Ids before this one may have been given to events that were not durable; 0 when none were
    /// since the change.
    pub reserved: EventId,
}

impl AcknowledgedWrite {
    /// Encodes the numbers and a checksum as one line of text of constant length.
    pub(crate) fn encode(&self) -> String {
        with_checksum(&format!(
            "{:020} {:010} {:020}",
            self.sequence, self.ledger.0, self.reserved.0
        ))
    }

    /// Returns `None` when the line is not what [`Self::encode`] writes, or wrote before ids were
    /// reserved.
    fn decode(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse().ok();
        let (sequence, ledger) = (number(0)?, LedgerSeq(words.get(1)?.parse().ok()?));
        let without_ids = format!("{sequence:020} {:010}", ledger.0);
        if with_checksum(&without_ids) == line {
            return Some(Self { sequence, ledger, reserved: EventId(0) });
        }
        let last_write = Self { sequence, ledger, reserved: EventId(number(2)?) };
        (last_write.encode() == line).then_some(last_write)
    }
}

fn with_checksum(numbers: &str) -> String {
    format!("{numbers} {:016x}\n", xxh3_64(numbers.as_bytes()))
}

/// The open file, and the record it held when it was opened.
pub(crate) struct Acknowledged {
    file: File,
    path: PathBuf,
    last_write: Option<AcknowledgedWrite>,
}

impl Acknowledged {
    /// Reads the record of the previous process. A damaged record must not keep the store from
    /// opening: it is logged, and a new one is begun.
    pub(crate) fn open(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let last_write = read_unless_damaged(directory)?;
        // Whoever put a link there would decide which file gets the record.
        let no_link = OFlags::NOFOLLOW.bits() as i32;
        let mut options = File::options();
        options.create(true).truncate(false).write(true).custom_flags(no_link);
        let file = options.open(&path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::LOOP.raw_os_error() => {
                let reason = "it is a link: put the file that it leads to in its place";
                io::Error::new(io::ErrorKind::InvalidData, reason)
            }
            _ => error,
        });
        let file = file.map_err(|source| StoreError::Io { path: path.clone(), source })?;
        Ok(Self { file, path, last_write })
    }

    /// Returns the record that the file held when it was opened; `None` when there was none or it
    /// was damaged.
    pub(crate) fn last_write(&self) -> Option<AcknowledgedWrite> {
        self.last_write
    }

    /// Records the last acknowledged write.
    pub(crate) fn record(&self, last_write: AcknowledgedWrite) {
        if let Err(error) = self.file.write_all_at(last_write.encode().as_bytes(), 0) {
            // The ledger is stored regardless; only a later loss would go unnoticed.
            tracing::warn!(path = %self.path.display(), %error, "cannot record the last ledger");
        }
    }

    /// Records reserved ids, durably.
    pub(crate) fn reserve(&self, last_write: AcknowledgedWrite) -> Result<(), StoreError> {
        let written = self.file.write_all_at(last_write.encode().as_bytes(), 0);
        let synced = written.and_then(|()| self.file.sync_data());
        synced.map_err(|source| StoreError::Io { path: self.path.clone(), source })
    }
}

impl Drop for Acknowledged {
    fn drop(&mut self) {
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(path = %self.path.display(), %error, "cannot record the last ledger");
        }
    }
}

/// As [`read`], but a damaged record is logged and counts as none.
pub(crate) fn read_unless_damaged(
    directory: &Path,
) -> Result<Option<AcknowledgedWrite>, StoreError> {
    match read(directory) {
        Err(error @ StoreError::DamagedAcknowledgement(_)) => {
            tracing::warn!("{error}");
            Ok(None)
        }
        read => read,
    }
}

/// Reads the record of the previous process, if there is one.
pub(crate) fn read(directory: &Path) -> Result<Option<AcknowledgedWrite>, StoreError> {
    let path = directory.join(FILE);
    match std::fs::read(&path) {
        // The previous process was killed before it stored its first ledger.
        Ok(bytes) if bytes.is_empty() => Ok(Some(AcknowledgedWrite::default())),
        Ok(bytes) => {
            let last_write = std::str::from_utf8(&bytes).ok().and_then(AcknowledgedWrite::decode);
            last_write.map(Some).ok_or(StoreError::DamagedAcknowledgement(path))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreError::Io { path, source }),
    }
}

/// Fails when a database that ends at `sequence` lacks acknowledged writes.
pub(crate) fn check(
    directory: &Path,
    last_write: Option<AcknowledgedWrite>,
    sequence: u64,
) -> Result<(), StoreError> {
    match last_write {
        Some(last_write) if last_write.sequence > sequence => {
            let (ledger, note) = (last_write.ledger, directory.join(FILE));
            Err(StoreError::Other(format!(
                "ledger {ledger} had been stored and was acknowledged, but the database ends before \
                 it: restore a backup of the whole data directory, or remove {} to continue with the \
                 remaining ledgers",
                note.display()
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_writes_round_trip_and_damage_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(read(directory).unwrap(), None);
        let acknowledged = Acknowledged::open(directory).unwrap();
        assert_eq!(
            read(directory).unwrap(),
            Some(AcknowledgedWrite::default()),
            "nothing is stored yet"
        );
        let ledger = LedgerSeq(u32::MAX);
        for (sequence, reserved) in [(u64::MAX, 0), (9, u64::MAX), (7, 1)] {
            let last_write = AcknowledgedWrite { sequence, ledger, reserved: EventId(reserved) };
            acknowledged.record(last_write);
            assert_eq!(read(directory).unwrap(), Some(last_write));
            acknowledged.reserve(last_write).unwrap();
            assert_eq!(read(directory).unwrap(), Some(last_write));
        }
        drop(acknowledged);
        let last_write = Acknowledged::open(directory).unwrap().last_write();
        assert!(check(directory, last_write, 7).is_ok() && check(directory, last_write, 8).is_ok());
        let lost = check(directory, last_write, 6).unwrap_err().to_string();
        let begin = format!("ledger {} had been stored and was acknowledged, ", u32::MAX);
        assert!(lost.starts_with(&begin), "{lost}");

        let path = directory.join(FILE);
        let line = std::fs::read(&path).unwrap();
        for (at, bit) in (0..line.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut flipped = line.clone();
            flipped[at] ^= 1 << bit;
            std::fs::write(&path, &flipped).unwrap();
            assert!(
                matches!(read(directory), Err(StoreError::DamagedAcknowledgement(_))),
                "{at} {bit}"
            );
            assert_eq!(Acknowledged::open(directory).unwrap().last_write(), None);
        }
    }

    #[test]
    fn a_record_without_reserved_ids_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let line = with_checksum(&format!("{:020} {:010}", 12, 7));
        std::fs::write(directory.path().join(FILE), line).unwrap();
        let read = read(directory.path()).unwrap();
        let ledger = LedgerSeq(7);
        assert_eq!(read, Some(AcknowledgedWrite { sequence: 12, ledger, reserved: EventId(0) }));
    }
}
