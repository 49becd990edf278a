//! The data directory: where the database is in it, and who can access it.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use orrery_runtime::account;

use super::lock::DirectoryLock;
use crate::encoding::error::StoreError;

pub(crate) const RAW_DIRECTORY: &str = "raw";
/// Mode of the data directory: accessible to its owner only.
pub(crate) const PRIVATE: u32 = 0o700;
/// Permission bits of the group and of others.
const NOT_OWNER: u32 = 0o077;
/// Mode bit of a directory in which every account may create files, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Returns whether a data directory holds a database.
///
/// # Errors
/// [`StoreError::Forbidden`] when this process may not see it.
pub(crate) fn holds_database(directory: &Path) -> Result<bool, StoreError> {
    let raw = directory.join(RAW_DIRECTORY);
    raw.try_exists().map_err(|source| match source.kind() {
        ErrorKind::PermissionDenied => forbidden(directory),
        _ => StoreError::Io { path: raw, source },
    })
}

/// Returns the error for a directory that another account owns.
fn forbidden(directory: &Path) -> StoreError {
    // The directory itself may be out of reach, below one that is forbidden.
    let seen = directory.ancestors().find_map(|path| fs::metadata(path).ok());
    let owner = seen.map_or_else(|| "its owner".to_owned(), |seen| account::name(seen.uid()));
    StoreError::Forbidden { directory: directory.to_owned(), owner }
}

/// Removes other accounts' access to an existing data directory. Only logs a warning when that
/// fails, or when the directory is shared between accounts (sticky bit, or an owner other than that
/// of the lock file): the account that created `lock` must keep its access.
pub(crate) fn make_private(directory: &Path, lock: &DirectoryLock) {
    let outcome = fs::metadata(directory).and_then(|metadata| {
        let mode = metadata.permissions().mode();
        if mode & NOT_OWNER == 0 {
            return Ok(None);
        }
        if mode & STICKY != 0 || lock.metadata()?.uid() != metadata.uid() {
            return Ok(Some("is shared with other accounts: give orrery a directory of its own"));
        }
        fs::set_permissions(directory, Permissions::from_mode(mode & 0o7777 & !NOT_OWNER))?;
        Ok(Some("was accessible to other accounts: now only its owner can access it"))
    });
    match outcome {
        Ok(None) => {}
        Ok(Some(what)) => tracing::warn!("the data directory {} {what}", directory.display()),
        Err(error) => tracing::warn!(
            "the data directory {} is accessible to other accounts, and its mode cannot be changed \
             ({error}): set it to 0700",
            directory.display()
        ),
    }
}
