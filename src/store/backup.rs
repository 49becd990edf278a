//! States of a store to copy from while it is written to: RocksDB's checkpoints (hard links to its tables,
//! which never change, and a copy of its log), each laid out as a data directory, and what such a
//! directory holds.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rocksdb::checkpoint::Checkpoint as RocksCheckpoint;

use super::bytes::Malformed;
use super::columns::{Family, Key, LedgerKey};
use super::coverage::CoveredRange;
use super::database::{Database, corrupt};
use super::{
    Digest, PRIVATE, RAW_DIRECTORY, Store, StoreError, acknowledged, format, log_files,
    stored_network,
};
use crate::domain::{LedgerRange, Network};

/// Where the checkpoints of a data directory are.
const CHECKPOINTS: &str = "checkpoints";

/// Numbers the checkpoints of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A state of a store, as files that do not change. They go when this is dropped.
#[derive(Debug)]
pub struct Checkpoint {
    directory: PathBuf,
}

impl Checkpoint {
    /// Holds `raw/` and `acknowledged`, as a data directory does.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.directory) {
            let path = self.directory.display();
            tracing::warn!(%path, %error, "a checkpoint cannot be removed");
        }
    }
}

impl Store {
    /// A state of everything that is on disk: what was acknowledged before is in it, and of what is written
    /// meanwhile all that came before something that is in it. Ledgers go on being stored.
    ///
    /// # Errors
    /// What the file system and the database say.
    pub fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let directory = self.directory.join(CHECKPOINTS).join(number);
        let io = |source| StoreError::Io { path: directory.clone(), source };
        DirBuilder::new().recursive(true).mode(PRIVATE).create(&directory).map_err(io)?;
        // From here on it is removed whatever happens.
        let checkpoint = Checkpoint { directory };
        // Read before: so it is never ahead of what the checkpoint holds.
        let promise = self.database.note(&self.directory)?;
        self.database.checkpoint(&checkpoint.directory.join(RAW_DIRECTORY))?;
        if let Some(promise) = promise {
            let path = checkpoint.directory.join(acknowledged::FILE);
            fs::write(&path, promise).map_err(|source| StoreError::Io { path, source })?;
        }
        Ok(checkpoint)
    }
}

impl Database {
    /// Links and copies all files into a new directory, as a crash at this moment would leave them.
    fn checkpoint(&self, to: &Path) -> Result<(), StoreError> {
        // Anything but 0 means without a flush, which would hold up who writes and leave small files.
        const COPY_THE_LOG: u64 = u64::MAX;
        let checkpoint = RocksCheckpoint::new(self.rocksdb())?;
        Ok(checkpoint.create_checkpoint_with_log_size(to, COPY_THE_LOG)?)
    }
}

/// Removes what an earlier process left. The caller holds the directory's lock.
pub(super) fn remove_leftovers(data_dir: &Path) {
    let directory = data_dir.join(CHECKPOINTS);
    if let Err(error) = remove(&directory) {
        tracing::warn!(path = %directory.display(), %error, "old checkpoints cannot be removed");
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What a data directory holds, as its records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The network.
    pub network: Network,
    /// Covered ranges in ascending order.
    pub ranges: Vec<HeldRange>,
}

/// Consecutive ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRange {
    /// First and last ledger.
    pub ledgers: LedgerRange,
    /// Events that were stored, including those that retention has removed since.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: Digest,
}

/// Reads what a data directory holds, which nobody else works in, and checks that all that was
/// acknowledged is there. Stores no ledgers and moves none, but RocksDB may leave files of its own log.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Lost`] and others, when it would not open.
pub fn held_in(directory: &Path) -> Result<Held, StoreError> {
    let read = || {
        let promise = acknowledged::read(directory)?;
        let raw = directory.join(RAW_DIRECTORY);
        log_files::check(&raw, promise)?;
        let database = Database::open_read_only(&raw, &[])?;
        acknowledged::check(directory, promise, database.sequence())?;
        match format::check(&database) {
            // Ranges have looked the same since 2.0, and the next start brings the rest up to date.
            Ok(()) | Err(StoreError::NotUpgraded { .. }) => {}
            Err(error) => return Err(error),
        }
        let empty = || StoreError::Empty(directory.to_owned());
        let network = stored_network(&database)?.ok_or_else(empty)?;
        let mut ranges = Vec::new();
        database.scan(Family::Ranges, |key, value| {
            let first = LedgerKey::decode(key).ok_or(Malformed);
            let range = first.and_then(|first| CoveredRange::decode(first.0, value));
            let CoveredRange { ledgers, sums, .. } = range.map_err(corrupt(Family::Ranges, key))?;
            ranges.push(HeldRange { ledgers, events: sums.events, digest: sums.digest });
            Ok(())
        })?;
        Ok(Held { network, ranges })
    };
    read().map_err(|error: StoreError| error.while_reading(directory))
}
