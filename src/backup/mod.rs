//! Backups of a data directory: which files belong to one (`make`), the description of its content
//! (`manifest`), and the checks before it is used (`check`, `restore`). Handles files only; their
//! content belongs to the store.
//!
//! A directory of backups has one directory per backup, named after the time at which it was begun:
//!
//! ```text
//! DIR/2026-11-24T10-45-00.123Z/manifest.json      written last; without it there is no backup
//! DIR/2026-11-24T10-45-00.123Z/raw/…              RocksDB's checkpoint
//! DIR/2026-11-24T10-45-00.123Z/acknowledged
//! DIR/2026-11-24T10-45-00.123Z/secrets/…          and the other files of `OTHER_FILES`
//! DIR/2026-11-24T10-46-00.000Z.unfinished/        left by a backup that was stopped; the next removes it
//! DIR/orrery-backup.lock                          held while a backup is made
//! ```
//!
//! A file with the same content as in the previous backup is linked instead of copied.

mod check;
mod copy;
mod make;
mod manifest;
mod names;
mod restore;
pub mod snapshot;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{PrimitiveDateTime, UtcDateTime};

pub use check::{Checked, check};
pub use make::{Made, make};
pub use manifest::{File, Manifest, Range};
pub use restore::{Restored, restore};

use crate::sandbox::source::DIRECTORY as SANDBOX;
use crate::service::{ORDER_FILE, PROMOTED_FILE, READER_FILE, SECRETS};
use crate::store::StoreError;

/// Files and directories of a data directory, beside the store, that cannot be derived from others.
/// `tables/` and `compiled/` are derived, and a stellar-core fetches the content of `core/` again.
const OTHER_FILES: [&str; 5] = [SECRETS, SANDBOX, ORDER_FILE, READER_FILE, PROMOTED_FILE];
/// Name of the file that is locked while a backup is made.
const LOCK: &str = "orrery-backup.lock";
/// Suffix of the name of an unfinished backup.
const UNFINISHED: &str = ".unfinished";
/// Format of the names of backups. Their alphabetical order is that of time.
const NAME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]Z");

/// Why a backup could not be made, or cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file operation failed.
    #[error("{0}")]
    Io(String),
    /// The store of a data directory or of a copy failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another backup is being made, or another restore is running.
    #[error("{} is in use by another orrery backup or restore: wait until it has ended", .0.display())]
    InUse(PathBuf),
    /// Another command writes to the place of snapshots, or was killed on another machine a short while ago.
    #[error(
        "{place} is in use by another orrery backup, {until}: wait until it has ended, or remove \
         {claim} if it is gone for good"
    )]
    Claimed {
        /// The place.
        place: String,
        /// Until when, in words.
        until: String,
        /// The object that says so.
        claim: String,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl BackupError {
    /// Returns the error for a directory without a backup.
    pub fn not_found(directory: &Path) -> Self {
        Self::Other(format!("there is no backup in {}", directory.display()))
    }

    /// Returns the error for a manifest that names a file that no backup has.
    fn foreign_file(backup: &Path, file: &str) -> Self {
        Self::Other(format!(
            "{} names {file}, which orrery backup never writes: use another backup",
            backup.display()
        ))
    }

    /// Returns the error for files whose ledgers are not those in the manifest.
    fn ledger_mismatch(backup: &Path) -> Self {
        Self::Other(format!(
            "the ledgers in {} are not those in its manifest: use another backup",
            backup.display()
        ))
    }
}

/// Callback for progress. It receives the number of bytes read since the last call; an error ends
/// the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> Result<(), BackupError>;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    move |error| BackupError::Io(format!("{}: {error}", path.display()))
}

/// Returns all directories with the name of a backup in a directory of backups, oldest first.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let entry = entry.map_err(failed(directory))?;
        let is_one = entry.file_name().to_str().is_some_and(is_name);
        if is_one && entry.file_type().map_err(failed(directory))?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the backup at `path`, or all backups in a directory of backups, oldest first.
///
/// # Errors
/// When `path` is no directory, cannot be read, or is neither a backup nor a directory with backups.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let found = fs::metadata(path);
    let is_missing = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    };
    if found.as_ref().map_or_else(is_missing, |found| !found.is_dir()) {
        return Err(BackupError::Other(format!(
            "there is no directory {}: name a backup, or a directory of backups",
            path.display()
        )));
    }
    let named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_name);
    if named || path.join(manifest::FILE).exists() {
        return Ok(vec![path.to_owned()]);
    }
    let found = list(path)?;
    if found.is_empty() { Err(BackupError::not_found(path)) } else { Ok(found) }
}

fn is_name(name: &str) -> bool {
    PrimitiveDateTime::parse(name, NAME).is_ok()
}

/// Returns a name that no backup in the directory has.
fn new_name(directory: &Path) -> Result<String, BackupError> {
    loop {
        let name = present_name()?;
        if !directory.join(&name).exists() {
            return Ok(name);
        }
        // A backup was begun in this millisecond.
        std::thread::yield_now();
    }
}

/// Returns a name after that of the newest snapshot. A clock that was set back does not make an older one.
fn new_name_after(newest: Option<&str>) -> Result<String, BackupError> {
    let begun = std::time::Instant::now();
    loop {
        let name = present_name()?;
        if newest.is_none_or(|newest| newest < &*name) {
            return Ok(name);
        }
        if begun.elapsed() > std::time::Duration::from_secs(1) {
            return Err(BackupError::Other(format!(
                "the newest snapshot is of {}, which is in the future: set the clock of this machine, or \
                 remove that snapshot",
                newest.unwrap_or_default()
            )));
        }
        std::thread::yield_now();
    }
}

fn present_name() -> Result<String, BackupError> {
    let name = UtcDateTime::now().format(NAME);
    name.map_err(|error| BackupError::Other(format!("the time of day cannot be written: {error}")))
}
