//! Checks a backup: every file against the manifest, and the ledgers that the files contain.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::copy::{self, Content};
use super::manifest::{File, Manifest};
use super::{BackupError, Progress, failed};
use crate::store::{self, ACKNOWLEDGED_FILE, DirectoryContents, RAW_DIRECTORY};

/// A backup that has been checked and is intact.
#[derive(Debug, Clone)]
pub struct Checked {
    /// Directory of the backup.
    pub directory: PathBuf,
    /// Manifest of the backup.
    pub manifest: Manifest,
}

/// Reads a whole backup and compares it with its manifest. Changes nothing in it.
///
/// # Errors
/// [`BackupError`] for the first file that differs from the manifest.
pub fn check(backup: &Path, progress: Progress<'_>) -> Result<Checked, BackupError> {
    let manifest = Manifest::read(backup)?;
    for file in &manifest.files {
        let path = backup.join(&file.path);
        verify_file(file, &path, || copy::hash(&path, progress))?;
    }
    if manifest.matches(&read_contents(backup, RAW_DIRECTORY)?) {
        Ok(Checked { directory: backup.to_owned(), manifest })
    } else {
        Err(BackupError::ledger_mismatch(backup))
    }
}

/// Compares a file of a backup with its manifest entry; `read` reads its content.
pub(super) fn verify_file(
    file: &File,
    path: &Path,
    read: impl FnOnce() -> Result<Content, BackupError>,
) -> Result<(), BackupError> {
    let damaged = |what: &str| {
        let path = path.display();
        BackupError::Other(format!(
            "{path} differs from what was backed up ({what}): use another backup"
        ))
    };
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged("it is missing"));
        }
        metadata => metadata.map_err(failed(path))?,
    };
    if !metadata.is_file() {
        return Err(damaged("it is not a file"));
    }
    if metadata.len() != file.size {
        return Err(damaged("its length differs"));
    }
    let Content { size, sha256 } = read()?;
    if (size, &sha256) == (file.size, &file.sha256) {
        Ok(())
    } else {
        Err(damaged("its content differs"))
    }
}

/// Reads what the store in a directory holds. `raw` is the name of the database's directory, which
/// symbolic links in a temporary directory give its usual one.
pub(super) fn read_contents(directory: &Path, raw: &str) -> Result<DirectoryContents, BackupError> {
    let directory = directory.canonicalize().map_err(failed(directory))?;
    let links = tempfile::tempdir().map_err(failed(&std::env::temp_dir()))?;
    let link = |from: &Path, to: &Path| symlink(from, to).map_err(failed(to));
    let (from, to) = (directory.join(raw), links.path().join(RAW_DIRECTORY));
    copy::make_directory(&to)?;
    for path in copy::files_below(&from)? {
        link(&from.join(&path), &to.join(&path))?;
    }
    let note = directory.join(ACKNOWLEDGED_FILE);
    if note.exists() {
        link(&note, &links.path().join(ACKNOWLEDGED_FILE))?;
    }
    Ok(store::read_contents(links.path())?)
}
