//! Making a backup from a checkpoint of the store and the other files of a data directory.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::copy::{self, Content, Lock};
use super::manifest::{File, Manifest};
use super::{ALSO, BackupError, Progress, RAW, UNFINISHED, check, failed, list, new_name};
use crate::store::Held;

/// Held while a backup is made.
const LOCK: &str = "orrery-backup.lock";

/// A new backup.
#[derive(Debug, Clone)]
pub struct Made {
    /// Its directory.
    pub directory: PathBuf,
    /// What it holds.
    pub manifest: Manifest,
    /// Files that it shares with an earlier one.
    pub shared_files: u64,
    /// Bytes of these.
    pub shared_bytes: u64,
    /// Earlier backups that were removed.
    pub removed: Vec<PathBuf>,
}

/// Makes a backup in the directory of backups `into`. `checkpoint` gives the directory of a state of the
/// store of `data_dir`, which must not change until this returns; it is asked for when all else is ready.
/// Of all backups that are there then, the newest `keep` stay. Everything is on the disk when this returns,
/// and until then there is no backup of this name.
///
/// # Errors
/// [`BackupError`]; then no new backup is there.
pub fn make(
    data_dir: &Path,
    into: &Path,
    keep: Option<usize>,
    checkpoint: impl FnOnce() -> Result<PathBuf, BackupError>,
    progress: Progress<'_>,
) -> Result<Made, BackupError> {
    let source = data_dir.canonicalize().map_err(failed(data_dir))?;
    refuse_inside(&source, into)?;
    copy::make_directory(into)?;
    let lock_path = into.join(LOCK);
    let Some(_lock) = Lock::take(&lock_path)? else {
        return Err(BackupError::InUse(into.to_owned()));
    };
    remove_unfinished(into)?;
    let earlier = list(into)?.pop();
    let name = new_name(into)?;
    let draft = into.join(format!("{name}{UNFINISHED}"));
    copy::make_directory(&draft)?;
    let work = Work { earlier: Earlier::of(earlier), draft, files: Vec::new(), shared: (0, 0) };
    let made = work.make(&source, checkpoint, progress).and_then(|(work, held)| {
        let manifest = Manifest::new(&name, &held, work.files);
        copy::sync_directories(&work.draft)?;
        manifest.write(&work.draft)?;
        let directory = into.join(&name);
        fs::rename(&work.draft, &directory).map_err(failed(&directory))?;
        copy::sync_directory(into)?;
        let (shared_files, shared_bytes) = work.shared;
        Ok(Made { directory, manifest, shared_files, shared_bytes, removed: Vec::new() })
    });
    let mut made = match made {
        Ok(made) => made,
        Err(error) => {
            // What matters is why; the next backup removes it otherwise.
            let _ = remove_unfinished(into);
            return Err(error);
        }
    };
    if let Some(keep) = keep {
        made.removed = remove_old(into, keep)?;
    }
    Ok(made)
}

/// Refuses a directory of backups that is part of what is backed up.
fn refuse_inside(data_dir: &Path, into: &Path) -> Result<(), BackupError> {
    // It need not be there yet: then the nearest directory above it that is says where it will be.
    let absolute = std::path::absolute(into).map_err(failed(into))?;
    let there = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    match there.is_some_and(|there| there.starts_with(data_dir)) {
        true => Err(BackupError::Inside(into.to_owned())),
        false => Ok(()),
    }
}

fn remove_unfinished(into: &Path) -> Result<(), BackupError> {
    for entry in fs::read_dir(into).map_err(failed(into))? {
        let entry = entry.map_err(failed(into))?;
        let name = entry.file_name();
        let of = name.to_str().and_then(|name| name.strip_suffix(UNFINISHED));
        if of.is_some_and(super::is_name) {
            copy::remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes all but the newest backups. Each stops to be one before its first file goes.
fn remove_old(into: &Path, keep: usize) -> Result<Vec<PathBuf>, BackupError> {
    let mut old = list(into)?;
    old.truncate(old.len().saturating_sub(keep.max(1)));
    for backup in &old {
        let mut name = backup.clone().into_os_string();
        name.push(UNFINISHED);
        fs::rename(backup, &name).map_err(failed(backup))?;
        copy::sync_directory(into)?;
        copy::remove(Path::new(&name))?;
    }
    Ok(old)
}

/// The backup before, whose files are used again.
#[derive(Default)]
struct Earlier {
    directory: PathBuf,
    files: HashMap<String, Content>,
}

impl Earlier {
    /// A damaged one has nothing to use again.
    fn of(backup: Option<PathBuf>) -> Self {
        let Some(directory) = backup else { return Self::default() };
        let Ok(manifest) = Manifest::read(&directory) else { return Self::default() };
        let entry = |File { path, size, sha256 }| (path, Content { size, sha256 });
        Self { directory, files: manifest.files.into_iter().map(entry).collect() }
    }
}

struct Work {
    earlier: Earlier,
    draft: PathBuf,
    files: Vec<File>,
    /// Files and bytes that are the earlier backup's.
    shared: (u64, u64),
}

impl Work {
    fn make(
        mut self,
        data_dir: &Path,
        checkpoint: impl FnOnce() -> Result<PathBuf, BackupError>,
        progress: Progress<'_>,
    ) -> Result<(Self, Held), BackupError> {
        let checkpoint = checkpoint()?;
        // After the checkpoint, so that a sandbox's journal is never behind the ledgers, and before all that
        // takes long, so that it is not far ahead. What is half written at the end of such a file was
        // relied on by nobody.
        for name in ALSO {
            self.take(data_dir, Path::new(name), progress)?;
        }
        let held = check::held_in(&checkpoint, RAW)?;
        for path in copy::files_below(&checkpoint)? {
            self.take_file(&checkpoint, &path, progress)?;
        }
        Ok((self, held))
    }

    /// Takes a file or all files of a directory, if there is one.
    fn take(
        &mut self,
        root: &Path,
        name: &Path,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let path = root.join(name);
        if path.is_dir() {
            for below in copy::files_below(&path)? {
                // Drafts of files that are replaced as a whole come and go.
                if below.extension().is_some_and(|extension| extension == "new") {
                    continue;
                }
                self.take_file(root, &name.join(below), progress)?;
            }
        } else if path.is_file() {
            self.take_file(root, name, progress)?;
        }
        Ok(())
    }

    fn take_file(
        &mut self,
        root: &Path,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let (from, to) = (root.join(path), self.draft.join(path));
        let Some(name) = path.to_str() else {
            return Err(failed(&from)(std::io::ErrorKind::InvalidFilename.into()));
        };
        copy::make_directory(copy::parent(&to))?;
        let content = match self.link(name, &from, &to, progress)? {
            Some(content) => {
                self.shared.0 += 1;
                self.shared.1 += content.size;
                content
            }
            None => copy::copy(&from, &to, progress)?,
        };
        let Content { size, sha256 } = content;
        self.files.push(File { path: name.to_owned(), size, sha256 });
        Ok(())
    }

    /// Links the earlier backup's file, if it is the same: by what both hold now, not by names. So a file
    /// that was damaged there is copied again.
    fn link(
        &self,
        name: &str,
        from: &Path,
        to: &Path,
        progress: Progress<'_>,
    ) -> Result<Option<Content>, BackupError> {
        let Some(recorded) = self.earlier.files.get(name) else { return Ok(None) };
        let size = fs::metadata(from).map_err(failed(from))?.len();
        if size != recorded.size || copy::hash(from, progress)? != *recorded {
            return Ok(None);
        }
        let there = self.earlier.directory.join(name);
        match copy::hash(&there, progress) {
            Ok(content) if content == *recorded => {}
            Ok(_) | Err(BackupError::Io { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
        // Where a file system has no links, it is copied.
        Ok(fs::hard_link(&there, to).is_ok().then(|| recorded.clone()))
    }
}
