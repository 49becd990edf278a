//! RocksDB checkpoints from which a store is copied while it is written to, and reading what a copy
//! holds. A checkpoint consists of hard links to the SST files, which never change, and a copy of
//! the WAL, and is laid out as a data directory.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_ledger::domain::{Network, SummedLedgers};
use rocksdb::checkpoint::Checkpoint as RocksCheckpoint;

use super::format;
use super::format::migrations;
use super::network::stored_network;
use crate::db::database::Database;
use crate::db::directory::RAW_DIRECTORY;
use crate::db::privacy::PRIVATE;
use crate::db::{acknowledged, log_files};
use crate::encoding::bytes::Malformed;
use crate::encoding::columns::{Family, Key, LedgerKey};
use crate::encoding::error::{StoreError, corrupt};
use crate::state::coverage::CoveredRange;
use crate::state::store::Store;

/// Subdirectory of the data directory that contains the checkpoints.
const CHECKPOINTS: &str = "checkpoints";

/// Number of this process's next checkpoint, which names its directory.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A state of a store as files that do not change. Dropping it deletes the files.
#[derive(Debug)]
pub struct Checkpoint {
    directory: PathBuf,
}

impl Checkpoint {
    /// Directory of the checkpoint; contains `raw/` and `acknowledged`, as a data directory does.
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
    /// Creates a checkpoint of everything that is durable: all writes acknowledged before the call,
    /// and of the writes made during it an initial part without gaps. Ledgers can be stored
    /// meanwhile.
    pub fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let directory = self.directory.join(CHECKPOINTS).join(number);
        let io = |source| StoreError::Io { path: directory.clone(), source };
        DirBuilder::new().recursive(true).mode(PRIVATE).create(&directory).map_err(io)?;
        // From here on the directory is removed on every path.
        let checkpoint = Checkpoint { directory };
        // Otherwise whoever restores it does not know what consumers have passed without writing anything.
        self.write_cursors()?;
        // Read before the checkpoint, so that it is never ahead of what that contains.
        let last_write = self.database.read_acknowledged(&self.directory)?;
        self.database.checkpoint(&checkpoint.directory.join(RAW_DIRECTORY))?;
        if let Some(last_write) = last_write {
            let path = checkpoint.directory.join(acknowledged::FILE);
            fs::write(&path, last_write).map_err(|source| StoreError::Io { path, source })?;
        }
        Ok(checkpoint)
    }
}

impl Database {
    /// Links and copies all files into a new directory, in the state that a crash at this moment
    /// would leave.
    fn checkpoint(&self, to: &Path) -> Result<(), StoreError> {
        // RocksDB flushes first when the WAL has at least this many bytes. A flush would delay
        // writers and leave small files, so it never does.
        const COPY_THE_LOG: u64 = u64::MAX;
        let checkpoint = RocksCheckpoint::new(self.rocksdb())?;
        Ok(checkpoint.create_checkpoint_with_log_size(to, COPY_THE_LOG)?)
    }
}

/// Removes the checkpoints that an earlier process left. The caller holds the directory's lock.
pub(crate) fn remove_leftovers(data_dir: &Path) {
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

/// Content of a data directory according to its records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryContents {
    /// Network of the ledgers.
    pub network: Network,
    /// Covered ranges in ascending order.
    pub ranges: Vec<SummedLedgers>,
}

/// Reads what a data directory holds, and checks that everything acknowledged is there. No other
/// process may use the directory. Changes nothing in it.
///
/// # Errors
/// The error that would prevent the store from being opened, such as damage.
pub fn read_contents(directory: &Path) -> Result<DirectoryContents, StoreError> {
    let read = || {
        let last_write = acknowledged::read(directory)?;
        let raw = directory.join(RAW_DIRECTORY);
        log_files::check(&raw, last_write)?;
        let database = Database::open_read_only(&raw, &[])?;
        acknowledged::check(directory, last_write, database.sequence())?;
        match format::check(&database, migrations::ALL) {
            // The encoding of ranges is the same in all formats, and the next start upgrades the
            // rest.
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
            ranges.push(SummedLedgers { ledgers, events: sums.events, digest: sums.digest });
            Ok(())
        })?;
        Ok(DirectoryContents { network, ranges })
    };
    read().map_err(|error: StoreError| error.while_reading(directory))
}
