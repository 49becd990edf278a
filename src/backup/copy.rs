//! Copies, links and hashes files, and syncs directory trees to disk.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};

use super::{BackupError, Progress, failed};
use crate::durable::open_lock;

/// Modes of created files and directories: access for the owner only.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIRECTORY: u32 = 0o700;
/// Number of bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Length and SHA-256 (hexadecimal) of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub size: u64,
    pub sha256: String,
}

/// Reads a file to its end and returns its length and hash.
pub(super) fn hash(path: &Path, progress: Progress<'_>) -> Result<Content, BackupError> {
    read_chunks(path, progress, |_| Ok(()))
}

/// Copies a file to a path that must not exist. The copy is on disk when this returns; its
/// directory entry may not be.
pub(super) fn copy(from: &Path, to: &Path, progress: Progress<'_>) -> Result<Content, BackupError> {
    let mut options = File::options();
    let mut made =
        options.write(true).create_new(true).mode(PRIVATE_FILE).open(to).map_err(failed(to))?;
    // Each chunk is synced before the next is written. A service that writes ledgers to the same
    // disk then waits behind one chunk at most, instead of a table file of 64 MiB.
    let mut begun = false;
    let content = read_chunks(from, progress, |chunk| {
        let before = if std::mem::replace(&mut begun, true) { made.sync_data() } else { Ok(()) };
        before.and_then(|()| made.write_all(chunk)).map_err(failed(to))
    })?;
    made.sync_all().map_err(failed(to))?;
    // Leaves the page cache to what the service reads again and again. A failure is harmless.
    let _ = fadvise(&made, 0, None, Advice::DontNeed);
    Ok(content)
}

fn read_chunks(
    path: &Path,
    progress: Progress<'_>,
    mut each: impl FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<Content, BackupError> {
    let mut file = File::open(path).map_err(failed(path))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut hasher = Sha256::new();
    let mut size = 0;
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(path)(error)),
        };
        hasher.update(&chunk[..read]);
        each(&chunk[..read])?;
        size += read as u64;
        progress(read as u64)?;
    }
    Ok(Content { size, sha256: hex::encode(hasher.finalize()) })
}

/// Creates a directory and its parents if they do not exist.
pub(super) fn make_directory(path: &Path) -> Result<(), BackupError> {
    let created = DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path);
    created.map_err(|error| {
        BackupError::Other(format!(
            "cannot create the directory {} ({error}): name one in a place where this account may \
             write",
            path.display()
        ))
    })
}

/// Returns all files below a directory, recursively, as sorted relative paths. Other entries, such
/// as sockets and symbolic links, are left out.
pub(super) fn files_below(root: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(failed(&directory))? {
            let entry = entry.map_err(failed(&directory))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(failed(&path))?;
            if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file()
                && let Ok(below) = path.strip_prefix(root)
            {
                found.push(below.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Syncs a directory and all directories below it to disk.
pub(super) fn sync_directories(root: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(root).map_err(failed(root))? {
        let entry = entry.map_err(failed(root))?;
        if entry.file_type().map_err(failed(root))?.is_dir() {
            sync_directories(&entry.path())?;
        }
    }
    sync_directory(root)
}

/// Syncs a directory to disk.
pub(super) fn sync_directory(path: &Path) -> Result<(), BackupError> {
    File::open(path).and_then(|directory| directory.sync_all()).map_err(failed(path))
}

/// Returns the parent directory of a path.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Removes a directory tree if it exists.
pub(super) fn remove(path: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// A file that is locked until this is dropped.
pub(super) struct Lock(File);

impl Lock {
    /// Locks a file, and creates it first if it does not exist; `None` when another process holds
    /// the lock.
    pub(super) fn take(path: &Path) -> Result<Option<Self>, BackupError> {
        let file = open_lock(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                BackupError::Other(format!(
                    "cannot write in the directory {} ({error}): name one in a place where this account \
                     may write",
                    parent(path).display()
                ))
            }
            _ => failed(path)(error),
        })?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(failed(path)(error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The operating system releases the lock when the process ends, at the latest.
        let _ = self.0.unlock();
    }
}
