//! What the store takes on the disk, and what is left of it.

use std::collections::BTreeMap;

use super::{RAW_DIRECTORY, Store, StoreError, log_files};

/// The part of what the store takes that no family has yet.
const LOG: &str = "write_ahead_log";

impl Store {
    /// Bytes on disk, by family, and of the write-ahead logs, from which rows come into families later.
    ///
    /// # Errors
    /// What the database or the operating system says.
    pub fn sizes(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut sizes = self.database.sizes_on_disk()?;
        sizes.insert(LOG.to_owned(), log_files::bytes(&self.directory.join(RAW_DIRECTORY))?);
        Ok(sizes)
    }

    /// Bytes that are free for this process where the data directory is.
    ///
    /// # Errors
    /// [`StoreError::Io`] with what the operating system says.
    pub fn disk_free(&self) -> Result<u64, StoreError> {
        let path = self.directory();
        let disk = rustix::fs::statvfs(path)
            .map_err(|error| StoreError::Io { path: path.to_owned(), source: error.into() })?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}
