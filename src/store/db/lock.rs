//! Lock of a data directory, which excludes other processes.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{FlockType, fcntl_getlk};

use crate::db::directory::RAW_DIRECTORY;
use crate::encoding::error::StoreError;

/// Name of the file that is locked.
const FILE: &str = "orrery.lock";
/// Name of the file that RocksDB locks while a process may write to the database.
const DATABASE_LOCK: &str = "LOCK";

/// Lock of a directory, held until this is dropped. The operating system releases it when the
/// process ends, even after a crash.
pub(crate) struct DirectoryLock {
    file: File,
    path: PathBuf,
}

impl DirectoryLock {
    /// Locks a directory.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process or another handle holds the lock.
    pub(crate) fn take(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(io)?;
        match file.try_lock() {
            Ok(()) => Self { file, path }.unless_database_is_open(directory),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    /// Returns the lock unless another process has the database open all the same: somebody may have
    /// removed the file that it has locked, and nothing in the directory may be touched then.
    fn unless_database_is_open(self, directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(RAW_DIRECTORY).join(DATABASE_LOCK);
        let io = |source: io::Error| StoreError::Io { path: path.clone(), source };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self),
            opened => opened.map_err(io)?,
        };
        let holder = fcntl_getlk(&file, &FlockType::ReadLock.into());
        match holder.map_err(|error| io(error.into()))? {
            None => Ok(self),
            Some(_) => Err(StoreError::InUse(directory.to_owned())),
        }
    }

    /// Locks a directory for reading, beside other readers, and creates no file. In a copy without
    /// a lock file, the directory itself is locked.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process or another handle may write to it.
    pub(crate) fn take_shared(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => File::open(directory),
            opened => opened,
        };
        let file = file.map_err(io)?;
        match file.try_lock_shared() {
            Ok(()) => Self { file, path }.unless_database_is_open(directory),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    /// Returns the metadata of the lock file, which the account that works in the directory
    /// created.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
}

impl Drop for DirectoryLock {
    /// Unlocks explicitly. Closing the file is not enough (flock(2)): a child process that another
    /// thread is forking has the same open file until it calls exec.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::warn!(path = %self.path.display(), %error, "cannot be unlocked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::*;

    #[test]
    fn the_lock_is_released_although_a_child_inherited_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        let again = DirectoryLock::take(directory.path());
        assert!(matches!(again, Err(StoreError::InUse(_))));
        // Inherited by the child, as between fork and exec.
        fcntl_setfd(&lock.file, FdFlags::empty()).unwrap();
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        drop(lock);
        let again = DirectoryLock::take(directory.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(again.is_ok(), "{}", again.err().unwrap());
    }
}
