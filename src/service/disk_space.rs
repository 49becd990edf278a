//! Free space on the disk of the data directory. Ledgers stop being stored before the reserve is
//! used up, so that reading, compaction and pruning still work, and resume when there is enough
//! space again.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::settings::Disk;

/// How long a measurement of the disk stays valid. Even a full second of the fastest import writes
/// far less than the reserve of any disk on which it would be run.
const MEASUREMENT_VALID_FOR: Duration = Duration::from_millis(200);
/// Percentage of the reserve that must be free beyond it before ledgers are stored again. This
/// hysteresis keeps a disk at its limit from changing state again and again.
const RESUME_MARGIN_PERCENT: u64 = 10;

/// Space on a disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this process may still write.
    pub free: u64,
    /// Size of the disk.
    pub total: u64,
}

impl DiskSpace {
    /// Measures the disk on which `path` lies.
    pub fn of(path: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }
}

/// Why no more ledgers are stored. Health shows it to every client, so it names no path.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the disk of the data directory has {} MiB left, and {} MiB are reserved (disk.reserve_mib, disk.reserve_percent): \
     no more ledgers are stored until there is more free space",
    free >> 20, required >> 20
)]
pub struct DiskFull {
    free: u64,
    required: u64,
}

/// Why a ledger is not stored: its source failed, or the disk is nearly full.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotStoredReason<E: Error + 'static> {
    #[error(transparent)]
    DiskFull(DiskFull),
    #[error(transparent)]
    Source(E),
}

/// Checks the free space on the disk of a data directory.
pub(super) struct DiskSpaceMonitor {
    data_dir: PathBuf,
    settings: Disk,
    last: Mutex<Option<Measurement>>,
}

#[derive(Clone)]
struct Measurement {
    at: Instant,
    found: Result<(), DiskFull>,
}

impl DiskSpaceMonitor {
    pub(super) fn new(data_dir: &Path, settings: Disk) -> Self {
        Self { data_dir: data_dir.to_owned(), settings, last: Mutex::default() }
    }

    /// Returns an error unless there is space for another ledger.
    pub(super) fn check(&self) -> Result<(), DiskFull> {
        let mut last = self.last.lock();
        if let Some(measurement) = &*last
            && measurement.at.elapsed() < MEASUREMENT_VALID_FOR
        {
            return measurement.found.clone();
        }
        let stopped = last.as_ref().is_some_and(|measurement| measurement.found.is_err());
        let found = match DiskSpace::of(&self.data_dir) {
            Ok(room) => self.evaluate(room, stopped),
            Err(error) => {
                // If the file system cannot be measured, the write itself will fail when there is
                // no space.
                tracing::debug!(%error, "the free space on the disk is not known");
                Ok(())
            }
        };
        *last = Some(Measurement { at: Instant::now(), found: found.clone() });
        found
    }

    fn evaluate(
        &self,
        DiskSpace { free, total }: DiskSpace,
        stopped: bool,
    ) -> Result<(), DiskFull> {
        let reserve = self.settings.reserve(total);
        let required = if stopped {
            reserve.saturating_add(reserve / 100 * RESUME_MARGIN_PERCENT)
        } else {
            reserve
        };
        if free < required { Err(DiskFull { free, required }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_reserve_applies_with_a_hysteresis() {
        const GIB: u64 = 1 << 30;
        let room = |settings| DiskSpaceMonitor::new(Path::new("d"), settings);
        let usual = room(Disk::default());
        let is_full = |room: &DiskSpaceMonitor, free, total, stopped| {
            room.evaluate(DiskSpace { free, total }, stopped).is_err()
        };
        // The reserve is 2 GiB of a large disk, and 5 % of a small one.
        assert!(is_full(&usual, 2 * GIB - 1, 1000 * GIB, false));
        assert!(!is_full(&usual, 2 * GIB, 1000 * GIB, false));
        assert!(is_full(&usual, GIB / 2 - 1, 10 * GIB, false));
        assert!(!is_full(&usual, GIB / 2, 10 * GIB, false));
        assert!(is_full(&usual, 2 * GIB, 1000 * GIB, true));
        assert!(!is_full(&usual, 3 * GIB, 1000 * GIB, true));
        for none in [
            Disk { reserve_mib: 0, ..Disk::default() },
            Disk { reserve_percent: 0, ..Disk::default() },
        ] {
            assert!(!is_full(&room(none), 0, GIB, false));
        }
        let sentence =
            usual.evaluate(DiskSpace { free: 7 << 20, total: 10 * GIB }, false).unwrap_err();
        let sentence = sentence.to_string();
        assert!(
            sentence.starts_with(
                "the disk of the data directory has 7 MiB left, and 512 MiB are reserved"
            ),
            "{sentence}"
        );
    }
}
