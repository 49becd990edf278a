//! Restores a data directory from a backup.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::check::{self, Checked};
use super::copy::{self, Lock};
use super::manifest::Manifest;
use super::{ACKNOWLEDGED, BackupError, Progress, RAW, failed};

/// Names of a data directory and its store until they are complete and checked. An incomplete one
/// is not opened by accident, because its store is not at the expected path.
const UNFINISHED: &str = ".restoring";
const UNFINISHED_RAW: &str = "raw.unfinished";

/// Restores a backup to the data directory `data_dir`, which must be empty or not exist. Every file
/// is compared with the manifest while it is copied, and the ledgers in the copy are compared with
/// the manifest before the directory gets its name. Everything is on disk when this returns.
///
/// # Errors
/// [`BackupError`], usually with `data_dir` unchanged. When the removal of the lock file or the
/// final sync fails, `data_dir` has been replaced.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    progress: Progress<'_>,
) -> Result<Checked, BackupError> {
    let data_dir = &std::path::absolute(data_dir).map_err(failed(data_dir))?;
    refuse_nonempty(data_dir)?;
    let manifest = Manifest::read(backup)?;
    let parent = copy::parent(data_dir).to_owned();
    copy::make_directory(&parent)?;
    let draft = sibling(data_dir, UNFINISHED);
    let lock = sibling(data_dir, ".restoring.lock");
    let Some(_lock) = Lock::take(&lock)? else {
        return Err(BackupError::InUse(data_dir.to_owned()));
    };
    // Left by a restore that was killed.
    copy::remove(&draft)?;
    let restored = fill(&draft, backup, &manifest, progress).and_then(|()| {
        refuse_nonempty(data_dir)?;
        match fs::rename(&draft, data_dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Err(BackupError::NotReplaceable(data_dir.to_owned()))
            }
            renamed => renamed.map_err(failed(data_dir)),
        }
    });
    if let Err(error) = restored {
        // The original error matters more; otherwise the next restore removes the remainder.
        let _ = copy::remove(&draft);
        let _ = fs::remove_file(&lock);
        return Err(error);
    }
    fs::remove_file(&lock).map_err(failed(&lock))?;
    copy::sync_directory(&parent)?;
    Ok(Checked { directory: backup.to_owned(), manifest })
}

fn fill(
    draft: &Path,
    backup: &Path,
    manifest: &Manifest,
    progress: Progress<'_>,
) -> Result<(), BackupError> {
    copy::make_directory(draft)?;
    for file in &manifest.files {
        let from = backup.join(&file.path);
        let to = match Path::new(&file.path).strip_prefix(RAW) {
            Ok(below) => draft.join(UNFINISHED_RAW).join(below),
            Err(_) => draft.join(&file.path),
        };
        copy::make_directory(copy::parent(&to))?;
        check::verify_file(file, &from, || copy::copy(&from, &to, progress))?;
    }
    if !manifest.matches(&check::read_contents(draft, UNFINISHED_RAW)?) {
        return Err(BackupError::LedgerMismatch(backup.to_owned()));
    }
    // What was acknowledged after the backup is unknown, and so are the ids that were given out: the
    // store takes the missing record for that.
    let acknowledged = draft.join(ACKNOWLEDGED);
    match fs::remove_file(&acknowledged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&acknowledged)(error));
        }
        _ => {}
    }
    let raw = draft.join(RAW);
    fs::rename(draft.join(UNFINISHED_RAW), &raw).map_err(failed(&raw))?;
    copy::sync_directories(draft)
}

/// Refuses a data directory that is not empty, so that none is overwritten.
fn refuse_nonempty(data_dir: &Path) -> Result<(), BackupError> {
    match fs::read_dir(data_dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(BackupError::NotEmpty(data_dir.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(data_dir)(error)),
    }
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    // Without a trailing slash, after which the suffix would be a name inside the directory.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}
