//! The lock of a data directory: nobody else works in it while it is held.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::StoreError;

/// The file that is locked.
const FILE: &str = "orrery.lock";

/// A directory, as long as this is not dropped. The operating system lets it go when the process ends,
/// however it ends.
pub(super) struct DirectoryLock {
    file: File,
    path: PathBuf,
}

impl DirectoryLock {
    /// Takes a directory.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when somebody has it.
    pub(super) fn take(directory: &Path) -> Result<Self, StoreError> {
        let path = directory.join(FILE);
        let io = |source| StoreError::Io { path: path.clone(), source };
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(io)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file, path }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    /// What the system says of the file, which whoever works in the directory has made.
    pub(super) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
}

impl Drop for DirectoryLock {
    /// Lets it go now. To close the file is not enough (flock(2)): when another thread begins a process just
    /// now, that has the file open, too, until it becomes a program of its own.
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
    fn a_directory_is_let_go_of_although_another_process_has_the_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let lock = DirectoryLock::take(directory.path()).unwrap();
        let again = DirectoryLock::take(directory.path());
        assert!(matches!(again, Err(StoreError::InUse(_))));
        // Handed down, as to a process that has just begun and is no program of its own yet.
        fcntl_setfd(&lock.file, FdFlags::empty()).unwrap();
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        drop(lock);
        let again = DirectoryLock::take(directory.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(again.is_ok(), "{}", again.err().unwrap());
    }
}
