//! Making a data directory from a backup.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::check::{self, Checked};
use super::copy::{self, Lock};
use super::manifest::Manifest;
use super::{BackupError, Progress, RAW, failed};

/// What a data directory is called until all of it is there and checked: nothing opens it by accident, as
/// its store is not where one is looked for.
const UNFINISHED: &str = ".restoring";
const UNFINISHED_RAW: &str = "raw.unfinished";

/// Makes the data directory `data_dir`, which is not there or empty, from a backup. Every file is compared
/// with the manifest while it is copied, and the ledgers that the copy holds are compared before it gets its
/// name. Everything is on the disk when this returns.
///
/// # Errors
/// [`BackupError`]; then `data_dir` is as it was.
pub fn restore(
    backup: &Path,
    data_dir: &Path,
    progress: Progress<'_>,
) -> Result<Checked, BackupError> {
    let data_dir = &std::path::absolute(data_dir).map_err(failed(data_dir))?;
    refuse_used(data_dir)?;
    let manifest = Manifest::read(backup)?;
    let parent = copy::parent(data_dir).to_owned();
    copy::make_directory(&parent)?;
    let draft = beside(data_dir, UNFINISHED);
    let lock = beside(data_dir, ".restoring.lock");
    let Some(_held) = Lock::take(&lock)? else {
        return Err(BackupError::InUse(data_dir.to_owned()));
    };
    // What a restore that was killed has left.
    copy::remove(&draft)?;
    let restored = fill(&draft, backup, &manifest, progress).and_then(|()| {
        refuse_used(data_dir)?;
        match fs::rename(&draft, data_dir) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Err(BackupError::NotReplaceable(data_dir.to_owned()))
            }
            renamed => renamed.map_err(failed(data_dir)),
        }
    });
    if let Err(error) = restored {
        // What matters is why; the next restore removes it otherwise.
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
        check::is_as_written(file, &from, || copy::copy(&from, &to, progress))?;
    }
    if !manifest.is_of(&check::held_in(draft, UNFINISHED_RAW)?) {
        return Err(BackupError::Different(backup.to_owned()));
    }
    let raw = draft.join(RAW);
    fs::rename(draft.join(UNFINISHED_RAW), &raw).map_err(failed(&raw))?;
    copy::sync_directories(draft)
}

/// A data directory is never written over.
fn refuse_used(data_dir: &Path) -> Result<(), BackupError> {
    match fs::read_dir(data_dir) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(BackupError::NotEmpty(data_dir.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(data_dir)(error)),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    // Without a slash at its end, which would make it a path below.
    let path: PathBuf = path.components().collect();
    let mut name = path.into_os_string();
    name.push(suffix);
    name.into()
}
