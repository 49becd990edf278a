//! Backups of a data directory: which files belong to one (`make`), how it says what it holds (`manifest`),
//! and what is checked before it is used (`check`, `restore`). Knows files; what is in them knows the store.
//!
//! A directory of backups has one directory for each, named after the time when it was begun:
//!
//! ```text
//! DIR/2026-11-24T10-45-00.123Z/manifest.json      written last; without it there is no backup
//! DIR/2026-11-24T10-45-00.123Z/raw/…              RocksDB's checkpoint
//! DIR/2026-11-24T10-45-00.123Z/acknowledged
//! DIR/2026-11-24T10-45-00.123Z/secrets/…          and the other files of `ALSO`
//! DIR/2026-11-24T10-46-00.000Z.unfinished/        left by a backup that was stopped; the next removes it
//! DIR/orrery-backup.lock                          held while a backup is made
//! ```
//!
//! A file that an earlier backup has with the same content is linked, not copied.

mod check;
mod copy;
mod make;
mod manifest;
mod restore;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{PrimitiveDateTime, UtcDateTime};

pub use check::{Checked, check};
pub use make::{Made, make};
pub use manifest::{File, Manifest, Range};
pub use restore::restore;

use crate::store::StoreError;

/// Files and directories of a data directory, beside those of the store, that cannot be made again from
/// others. `tables/` and `compiled/` are derived, and what a stellar-core keeps in `core/` it fetches again.
const ALSO: [&str; 3] = ["secrets", "sandbox", "backfill.json"];
/// What of a data directory is the store's: its database, and the note of what was acknowledged.
const RAW: &str = "raw";
const ACKNOWLEDGED: &str = "acknowledged";
/// End of the name of what is not finished.
const UNFINISHED: &str = ".unfinished";
/// How backups are named. The order of names is that of time.
const NAME: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]-[minute]-[second].[subsecond digits:3]Z");

/// Why a backup could not be made, or is not used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The store of a data directory, or of what was copied.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is none.
    #[error("there is no backup in {}", .0.display())]
    None(PathBuf),
    /// The manifest is missing: the backup was not finished, or is not one.
    #[error("{} has no manifest.json: it is no backup, or is not whole", .0.display())]
    NoManifest(PathBuf),
    /// The manifest is not what was written.
    #[error("{} is damaged: use another backup", .0.display())]
    Manifest(PathBuf),
    /// A later version made it.
    #[error("the backup {} has format {found}, this version of orrery reads {supported}: use the version that made it", path.display())]
    Format {
        /// The backup.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The one of this build.
        supported: u32,
    },
    /// A file is not what was written.
    #[error("{} is not what was backed up ({what}): use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, in a few words.
        what: &'static str,
    },
    /// What the files hold is not what the manifest says.
    #[error("the ledgers in {} are not those that its manifest names: use another backup", .0.display())]
    Different(PathBuf),
    /// Another backup is being made, or another restore.
    #[error("{} is in use by another orrery backup or restore: wait for its end", .0.display())]
    InUse(PathBuf),
    /// A backup would be part of what is backed up.
    #[error("{} lies in the data directory: give a directory elsewhere, on another disk if possible", .0.display())]
    Inside(PathBuf),
    /// A data directory is never written over.
    #[error("{} is not empty: restore into a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// Where a directory cannot be put at once.
    #[error("{} cannot be replaced, for example because something is mounted there: restore into a new directory below it", .0.display())]
    NotReplaceable(PathBuf),
    /// Whoever asked for it ended it.
    #[error("{0}")]
    Ended(String),
}

/// What is being done, for whoever waits: bytes that were read since the last call. An error ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> Result<(), BackupError>;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { path, source }
}

/// All that look like backups in a directory of backups, the oldest first.
///
/// # Errors
/// [`BackupError::Io`]
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

/// One backup, or all of a directory of backups, the oldest first.
///
/// # Errors
/// [`BackupError::None`] when there is none.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_name);
    if named || path.join(manifest::FILE).exists() {
        return Ok(vec![path.to_owned()]);
    }
    let found = list(path)?;
    match found.is_empty() {
        true => Err(BackupError::None(path.to_owned())),
        false => Ok(found),
    }
}

fn is_name(name: &str) -> bool {
    PrimitiveDateTime::parse(name, NAME).is_ok()
}

/// A name that no backup in the directory has.
fn new_name(directory: &Path) -> Result<String, BackupError> {
    loop {
        let name = UtcDateTime::now().format(NAME);
        let name = name.map_err(|error| failed(directory)(io::Error::other(error)))?;
        if !directory.join(&name).exists() {
            return Ok(name);
        }
        // One was made in this millisecond.
        std::thread::yield_now();
    }
}
