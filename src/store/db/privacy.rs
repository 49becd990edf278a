//! Who can access the data directory.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::lock::DirectoryLock;

/// Mode of the data directory: accessible to its owner only.
pub(crate) const PRIVATE: u32 = 0o700;
/// Permission bits of the group and of others.
const NOT_OWNER: u32 = 0o077;
/// Mode bit of a directory in which every account may create files, such as `/tmp`.
const STICKY: u32 = 0o1000;

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
