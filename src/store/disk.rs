//! What the store takes on the disk, and what is left of it.

use std::collections::BTreeMap;

use super::{Store, StoreError};

impl Store {
    /// Bytes on disk, by family.
    ///
    /// # Errors
    /// What the database says.
    pub fn sizes(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        self.database.sizes_on_disk()
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
