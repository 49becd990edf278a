//! The data directory: where the database is in it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use orrery_runtime::account;
use rustix::process::{getegid, geteuid};

use crate::encoding::error::StoreError;

/// Directory of the database, below the data directory.
pub const RAW_DIRECTORY: &str = "raw";

/// Returns whether a data directory holds a database.
///
/// # Errors
/// When this process may not see it.
pub fn holds_database(directory: &Path) -> Result<bool, StoreError> {
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
    let path = directory.display();
    // What root has restored or copied may be for a service that is not root's.
    let or = if fs::metadata(directory).is_ok_and(|seen| seen.uid() == 0) {
        let (own, group) = (geteuid().as_raw(), getegid().as_raw());
        format!(
            ", or, if the service is to run as {}, run `sudo chown -R {} {path}`",
            account::name(own),
            account::for_chown(own, group)
        )
    } else {
        String::new()
    };
    StoreError::Other(format!(
        "the data directory {path} belongs to {owner} and cannot be read: run this as {owner}, for example \
         with sudo -u {owner}{or}"
    ))
}
