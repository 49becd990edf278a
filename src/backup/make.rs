//! Makes a backup from a checkpoint of the store and the other files of a data directory.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::copy::{self, Content, Lock};
use super::manifest::{File, Manifest};
use super::names::{Treatment, treatment};
use super::{BackupError, LOCK, OTHER_FILES, Progress, UNFINISHED, check, failed, list, new_name};
use crate::domain::LedgerSet;
use crate::service::ORDER_FILE;
use crate::store::{DirectoryContents, RAW_DIRECTORY};

/// A backup that was just made.
#[derive(Debug, Clone)]
pub struct Made {
    /// Directory of the backup.
    pub directory: PathBuf,
    /// Manifest of the backup.
    pub manifest: Manifest,
    /// Number of files that are shared with the previous backup.
    pub shared_files: u64,
    /// Size of the shared files in bytes.
    pub shared_bytes: u64,
    /// Earlier backups that were removed.
    pub removed: Vec<PathBuf>,
}

/// Makes a backup in the directory of backups `into`. `checkpoint` returns the directory of a
/// checkpoint of the store of `data_dir`, which must not change until this returns, and the ledgers in
/// it that are attested; it is called once everything else is prepared. Then only the newest `keep` backups are kept. Everything is on
/// disk when this returns; before that, no backup with the new name exists.
///
/// # Errors
/// [`BackupError`], usually without a new backup. When the final sync or the removal of old backups
/// fails, the new one exists.
pub fn make(
    data_dir: &Path,
    into: &Path,
    keep: Option<usize>,
    checkpoint: impl FnOnce() -> Result<(PathBuf, LedgerSet), BackupError>,
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
    let previous = list(into)?.pop();
    let name = new_name(into)?;
    let draft = into.join(format!("{name}{UNFINISHED}"));
    copy::make_directory(&draft)?;
    let builder = BackupBuilder {
        previous: PreviousBackup::load(previous),
        draft,
        files: Vec::new(),
        shared: (0, 0),
    };
    let made =
        builder.make(&source, checkpoint, progress).and_then(|(builder, contents, attested)| {
            let manifest = Manifest::new(&name, &contents, &attested, builder.files);
            copy::sync_directories(&builder.draft)?;
            manifest.write(&builder.draft)?;
            let directory = into.join(&name);
            fs::rename(&builder.draft, &directory).map_err(failed(&directory))?;
            copy::sync_directory(into)?;
            let (shared_files, shared_bytes) = builder.shared;
            Ok(Made { directory, manifest, shared_files, shared_bytes, removed: Vec::new() })
        });
    let mut made = match made {
        Ok(made) => made,
        Err(error) => {
            // The original error matters more; otherwise the next backup removes the remainder.
            let _ = remove_unfinished(into);
            return Err(error);
        }
    };
    if let Some(keep) = keep {
        made.removed = remove_old(into, keep)?;
    }
    Ok(made)
}

/// Refuses a directory of backups inside the data directory.
pub(super) fn refuse_inside(data_dir: &Path, into: &Path) -> Result<(), BackupError> {
    // `into` may not exist yet; its nearest existing ancestor tells where it will be.
    let absolute = std::path::absolute(into).map_err(failed(into))?;
    let there = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    if there.is_some_and(|there| there.starts_with(data_dir)) {
        Err(BackupError::Other(format!(
            "{} is inside the data directory: give a directory elsewhere, on another disk if possible",
            into.display()
        )))
    } else {
        Ok(())
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

/// Removes all but the newest backups. Each is renamed before its first file is removed, so that it
/// does not count as a backup any more.
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

/// The previous backup, whose files are shared where they are unchanged.
#[derive(Default)]
struct PreviousBackup {
    directory: PathBuf,
    files: HashMap<String, Content>,
}

impl PreviousBackup {
    /// Reads the previous backup's manifest. Nothing is shared without a backup or with a damaged
    /// manifest.
    fn load(backup: Option<PathBuf>) -> Self {
        let Some(directory) = backup else { return Self::default() };
        let Ok(manifest) = Manifest::read(&directory) else { return Self::default() };
        let entry = |File { path, size, sha256 }| (path, Content { size, sha256 });
        Self { directory, files: manifest.files.into_iter().map(entry).collect() }
    }
}

struct BackupBuilder {
    previous: PreviousBackup,
    draft: PathBuf,
    files: Vec<File>,
    /// Number and size of the files that are shared with the previous backup.
    shared: (u64, u64),
}

impl BackupBuilder {
    fn make(
        mut self,
        data_dir: &Path,
        checkpoint: impl FnOnce() -> Result<(PathBuf, LedgerSet), BackupError>,
        progress: Progress<'_>,
    ) -> Result<(Self, DirectoryContents, LedgerSet), BackupError> {
        // Before the checkpoint: an order ends once its ledgers are durable, so the ledgers of one
        // that has ended by now are in the checkpoint. An order that ends while the backup is made
        // is copied nevertheless: a service that resumes it looks for what is missing.
        self.add(data_dir, Path::new(ORDER_FILE), progress)?;
        let (checkpoint, attested) = checkpoint()?;
        // Copied after the checkpoint, so that a sandbox's journal is never behind the ledgers, and
        // before everything that takes long, so that it is not far ahead of them. An incomplete
        // record at the end of such a file had not been acknowledged.
        for name in OTHER_FILES {
            if self.files.iter().any(|file| file.path == name) {
                continue;
            }
            self.add(data_dir, Path::new(name), progress)?;
        }
        let contents = check::read_contents(&checkpoint, RAW_DIRECTORY)?;
        for path in copy::files_below(&checkpoint)? {
            self.add_file(&checkpoint, &path, progress)?;
        }
        Ok((self, contents, attested))
    }

    /// Adds a file, or all files of a directory, if it exists.
    fn add(&mut self, root: &Path, name: &Path, progress: Progress<'_>) -> Result<(), BackupError> {
        let path = root.join(name);
        if path.is_dir() {
            for below in copy::files_below(&path)? {
                // Others are drafts, which may disappear at any time, or can be made again.
                let below = name.join(below);
                if below.to_str().is_some_and(|path| treatment(path) == Treatment::Kept) {
                    self.add_file(root, &below, progress)?;
                }
            }
        } else if path.is_file() {
            self.add_file(root, name, progress)?;
        }
        Ok(())
    }

    fn add_file(
        &mut self,
        root: &Path,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let (from, to) = (root.join(path), self.draft.join(path));
        let Some(name) = path.to_str() else {
            return Err(failed(&from)(std::io::ErrorKind::InvalidFilename.into()));
        };
        if treatment(name) != Treatment::Kept {
            // Restoring would refuse it.
            return Err(BackupError::foreign_file(&self.draft, name));
        }
        copy::make_directory(copy::parent(&to))?;
        let content = match self.link_unchanged(name, &from, &to, progress)? {
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

    /// Links the previous backup's file if it has the same content now. The content of both files
    /// is compared with the manifest, so a file that was damaged in the previous backup is copied
    /// again.
    fn link_unchanged(
        &self,
        name: &str,
        from: &Path,
        to: &Path,
        progress: Progress<'_>,
    ) -> Result<Option<Content>, BackupError> {
        let Some(recorded) = self.previous.files.get(name) else { return Ok(None) };
        let size = fs::metadata(from).map_err(failed(from))?.len();
        if size != recorded.size || copy::hash(from, progress)? != *recorded {
            return Ok(None);
        }
        let there = self.previous.directory.join(name);
        match copy::hash(&there, progress) {
            Ok(content) if content == *recorded => {}
            Ok(_) | Err(BackupError::Io(_)) => return Ok(None),
            Err(error) => return Err(error),
        }
        // If the file system does not support hard links, the caller copies the file.
        Ok(fs::hard_link(&there, to).is_ok().then(|| recorded.clone()))
    }
}
