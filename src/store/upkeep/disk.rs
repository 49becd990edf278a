//! Disk space that the store uses, and disk space that is free.

use std::collections::BTreeMap;

use crate::db::directory::RAW_DIRECTORY;
use crate::db::family_writes::FamilyWrites;
use crate::db::log_files;
use crate::encoding::error::StoreError;
use crate::state::store::Store;

/// Key for the size of the write-ahead logs, whose rows are in no family's files yet.
const LOG: &str = "write_ahead_log";

impl Store {
    /// Returns the bytes on disk of each column family, and of the write-ahead logs, whose rows
    /// reach the families' files with a later flush.
    pub fn sizes(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut sizes = self.database.sizes_on_disk()?;
        sizes.insert(LOG.to_owned(), log_files::bytes(&self.directory.join(RAW_DIRECTORY))?);
        Ok(sizes)
    }

    /// Returns what flushes and compactions have written for each column family since the store was
    /// opened, by the family's name.
    pub fn writes(&self) -> Result<BTreeMap<String, FamilyWrites>, StoreError> {
        Ok(self.database.writes_of_families()?.into_iter().collect())
    }

    /// Returns the bytes available to this process on the file system of the data directory.
    ///
    /// # Errors
    /// [`StoreError::Io`] with the error of the operating system.
    pub fn disk_free(&self) -> Result<u64, StoreError> {
        let path = self.directory();
        let disk = rustix::fs::statvfs(path)
            .map_err(|error| StoreError::Io { path: path.to_owned(), source: error.into() })?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    /// Flushes and compacts all families, which gives an imported store its smallest size. Takes a
    /// while; reads and writes continue.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.flush()?;
        self.database.flush()?;
        self.database.compact_all()
    }
}
