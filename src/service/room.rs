//! Room on the disk of the data directory: ledgers stop being stored before a reserve is touched, so that
//! what is stored can still be read, sorted and removed, and go on when there is room again.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::Disk;

/// How long a look at the disk holds. A full second of the fastest import is far less than the reserve of
/// any disk that it would be made on.
const LOOK_HOLDS: Duration = Duration::from_millis(200);
/// Once ledgers have stopped, so many hundredths of the reserve must be free beyond it before they go on: or
/// a disk at its limit would be reported again and again.
const BEYOND: u64 = 10;

/// A disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskRoom {
    /// What this account may still write.
    pub free: u64,
    /// All of it.
    pub total: u64,
}

impl DiskRoom {
    /// Of the disk that a path is on.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn of(path: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(path)?;
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        Ok(Self { free: bytes(disk.f_bavail), total: bytes(disk.f_blocks) })
    }
}

/// Why nothing more is stored. Health tells it to everybody, so it names no path.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the disk of the data directory has {} MiB left, and {} MiB stay free (disk.reserve_mib, disk.reserve_percent): \
     no ledgers are stored until there is more room",
    free >> 20, wanted >> 20
)]
pub struct NoRoom {
    free: u64,
    wanted: u64,
}

/// Why a ledger is not stored: what yields ledgers, or the disk.
#[derive(Debug, thiserror::Error)]
pub(super) enum Held<E: Error + 'static> {
    #[error(transparent)]
    NoRoom(NoRoom),
    #[error(transparent)]
    Source(E),
}

/// The disk of a data directory.
pub(super) struct Room {
    data_dir: PathBuf,
    settings: Disk,
    last: Mutex<Option<Look>>,
}

#[derive(Clone)]
struct Look {
    at: Instant,
    found: Result<(), NoRoom>,
}

impl Room {
    pub(super) fn new(data_dir: &Path, settings: Disk) -> Self {
        Self { data_dir: data_dir.to_owned(), settings, last: Mutex::default() }
    }

    /// Whether there is room for another ledger.
    pub(super) fn check(&self) -> Result<(), NoRoom> {
        let mut last = self.last.lock();
        if let Some(look) = &*last
            && look.at.elapsed() < LOOK_HOLDS
        {
            return look.found.clone();
        }
        let stopped = last.as_ref().is_some_and(|look| look.found.is_err());
        let found = match DiskRoom::of(&self.data_dir) {
            Ok(room) => self.judge(room, stopped),
            Err(error) => {
                // A file system that does not say: the write itself will.
                tracing::debug!(%error, "the room on the disk is not known");
                Ok(())
            }
        };
        *last = Some(Look { at: Instant::now(), found: found.clone() });
        found
    }

    fn judge(&self, DiskRoom { free, total }: DiskRoom, stopped: bool) -> Result<(), NoRoom> {
        let reserve = self.settings.reserve(total);
        let wanted = match stopped {
            true => reserve.saturating_add(reserve / 100 * BEYOND),
            false => reserve,
        };
        match free < wanted {
            true => Err(NoRoom { free, wanted }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_reserve_counts_and_there_is_some_play() {
        const GIB: u64 = 1 << 30;
        let room = |settings| Room::new(Path::new("d"), settings);
        let usual = room(Disk::default());
        let is_full = |room: &Room, free, total, stopped| {
            room.judge(DiskRoom { free, total }, stopped).is_err()
        };
        // Of a large disk 2 GiB, of a small one a twentieth.
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
        let sentence = usual.judge(DiskRoom { free: 7 << 20, total: 10 * GIB }, false).unwrap_err();
        let sentence = sentence.to_string();
        assert!(
            sentence.starts_with(
                "the disk of the data directory has 7 MiB left, and 512 MiB stay free"
            ),
            "{sentence}"
        );
    }
}
