//! An export in a directory. A file lock excludes other exporters; files are written under
//! temporary names, synced and renamed.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::{ExportError, Result, at};
use super::lake;
use super::layout::{self, DATA, KINDS, PROGRAMS, TABLES};
use super::manifest::{self, DataFile, Manifest};
use super::views;
use orrery_iceberg::layout as metadata;
use orrery_runtime::durable::{create_draft, open_lock};

const LOCK: &str = "export.lock";
/// Suffix of a file's name while it is being written.
const DRAFT_SUFFIX: &str = ".new";

/// A directory to which this exporter alone writes.
pub struct LockedDirectory {
    directory: PathBuf,
    /// Its absolute path.
    root: String,
    /// Held open for its lock; never read.
    _lock: File,
    /// Number of drafts that were begun.
    drafts: Cell<u64>,
}

/// Returns the manifest of a directory; `None` when the directory is missing or empty. Fails when
/// it has other files but no manifest.
pub fn peek(directory: &Path) -> Result<Option<Manifest>> {
    let found = read_manifest(directory)?;
    if found.is_none() && !is_fresh(directory)? {
        return Err(ExportError::NotAnExport(directory.display().to_string()));
    }
    Ok(found)
}

fn read_manifest(directory: &Path) -> Result<Option<Manifest>> {
    let path = directory.join(manifest::NAME);
    let text = read(&path)?;
    text.map(|text| Manifest::parse(&text, &path.display().to_string())).transpose()
}

/// Returns the content of a file; `None` if it is not there.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path)(error)),
    }
}

/// Returns the absolute path of a directory, which is the same whatever links lead to it; of one that is not
/// there yet, the path as it is given.
pub fn root(directory: &Path) -> Result<String> {
    let root = match fs::canonicalize(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(directory),
        found => found,
    };
    let root = root.map_err(at(directory))?.into_os_string().into_string();
    root.map_err(|root| {
        ExportError::Place(format!(
            "{} is not a valid export destination: its path is not UTF-8, as tables need it",
            Path::new(&root).display()
        ))
    })
}

impl LockedDirectory {
    /// Acquires a directory for an export of this network. The directory must be new or empty, or hold an
    /// earlier export; with `rebase`, one that was elsewhere before. Returns whether it is new.
    pub fn acquire(
        directory: &Path,
        passphrase: &str,
        rebase: bool,
    ) -> Result<(Self, Manifest, bool)> {
        let place = directory.display().to_string();
        fs::create_dir_all(directory).map_err(at(directory))?;
        peek(directory)?;
        let lock_path = directory.join(LOCK);
        let lock = open_lock(&lock_path).map_err(at(&lock_path))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ExportError::InUse(place.clone()),
            TryLockError::Error(source) => at(&lock_path)(source),
        })?;
        let drafts = Cell::new(0);
        let root = root(directory)?;
        let held = Self { directory: directory.to_owned(), root, _lock: lock, drafts };
        // Read under the lock, because another exporter may have created the manifest meanwhile.
        let found = read_manifest(directory)?;
        let is_new = found.is_none();
        let manifest = match found {
            Some(manifest) => {
                manifest.check_network(passphrase, &place)?;
                if !rebase {
                    lake::check_root(&manifest, &held.root)?;
                }
                manifest
            }
            None => {
                let mut manifest = Manifest::new(passphrase);
                held.write_manifest(&mut manifest)?;
                manifest
            }
        };
        held.create_directories()?;
        File::open(directory).and_then(|opened| opened.sync_all()).map_err(at(directory))?;
        Ok((held, manifest, is_new))
    }

    /// Returns the absolute path of the directory.
    pub fn root(&self) -> &str {
        &self.root
    }

    fn create_directories(&self) -> Result<()> {
        let create = |kind| create_all(&self.directory, &self.directory.join(DATA).join(kind));
        KINDS.into_iter().try_for_each(create)?;
        create_all(&self.directory, &self.directory.join(metadata::DIRECTORY))
    }

    /// Removes files that the manifest does not name, directories of earlier versions that are empty, and those
    /// of tables that are not there any more.
    pub fn remove_strays(&self, manifest: &Manifest) -> Result<()> {
        let named: BTreeSet<&str> = manifest.paths().collect();
        let remove = |below: &str, is_ours: fn(&str) -> bool| {
            let is_named = |name: &str| named.contains(&*format!("{below}/{name}"));
            remove_strays(&self.directory.join(below), is_ours, is_named)
        };
        for kind in KINDS {
            remove(&format!("{DATA}/{kind}"), |name| {
                layout::is_by_content(name) || is_draft(name)
            })?;
        }
        for table in TABLES {
            remove(table, |name| layout::is_older(name, true))?;
            remove_if_empty(&self.directory.join(table))?;
        }
        let programs = self.directory.join(PROGRAMS);
        for program in directories(&programs)? {
            for table in directories(&programs.join(&program))? {
                remove(&format!("{PROGRAMS}/{program}/{table}"), |name| {
                    layout::is_older(name, false)
                })?;
                remove_if_empty(&programs.join(&program).join(table))?;
            }
            remove_if_empty(&programs.join(&program))?;
        }
        remove_if_empty(&programs)?;
        let uuids: BTreeSet<&str> = manifest.identified().map(|(uuid, _)| uuid).collect();
        let metadata = self.directory.join(metadata::DIRECTORY);
        for uuid in directories(&metadata)? {
            let is_known = uuids.contains(&*uuid);
            let below = metadata::directory(&uuid);
            let is_ours = |name: &str| metadata::is_ours(name) || name == metadata::POINTER;
            let is_named = |name: &str| {
                is_known && name == metadata::POINTER || named.contains(&*format!("{below}/{name}"))
            };
            remove_strays(&self.directory.join(&below), is_ours, is_named)?;
            remove_if_empty(&self.directory.join(&below))?;
            remove_if_empty(&metadata.join(&uuid))?;
        }
        Ok(())
    }

    /// Opens a file of the export for reading.
    pub fn open(&self, named: &DataFile) -> Result<File> {
        let path = self.directory.join(&named.path);
        File::open(&path).map_err(at(&path))
    }

    /// Returns the content of a small file; `None` if it is not there.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        read(&self.directory.join(path))
    }

    /// Creates or replaces a small file at once.
    pub fn write_small(&self, path: &str, content: &[u8]) -> Result<()> {
        let path = self.directory.join(path);
        if let Some(parent) = path.parent() {
            create_all(&self.directory, parent)?;
        }
        write_whole(&path, content)
    }

    /// Begins a file of this kind.
    pub fn begin(&self, kind: &str) -> Result<Draft> {
        let number = self.drafts.get();
        self.drafts.set(number + 1);
        let path = self.directory.join(DATA).join(kind).join(format!("{number}{DRAFT_SUFFIX}"));
        let file = create_draft(&path).map_err(at(&path))?;
        Ok(Draft { file, path, directory: self.directory.clone() })
    }

    /// Makes the views those of the files that the manifest names.
    pub fn write_views(&self, manifest: &Manifest) -> Result<()> {
        for (path, text) in views::texts(manifest, &self.root) {
            let before = fs::read(self.directory.join(&path));
            if !before.is_ok_and(|before| before == text.as_bytes()) {
                self.write_small(&path, text.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Removes a file, if it exists. Of a program's table of an earlier version, the directories of the
    /// table and the program are removed, too, if nothing is left in them.
    pub fn remove(&self, path: &str) -> Result<()> {
        let path = self.directory.join(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        let programs = self.directory.join(PROGRAMS);
        let inside = |it: &&Path| it.starts_with(&programs);
        path.ancestors().skip(1).take_while(inside).try_for_each(remove_if_empty)
    }

    /// Replaces the manifest.
    pub fn write_manifest(&self, manifest: &mut Manifest) -> Result<()> {
        let path = self.directory.join(manifest::NAME);
        let text = manifest.text(&path.display().to_string())?;
        write_whole(&path, &text)
    }
}

/// Replaces the content of a file at once.
fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let draft = draft_of(path);
    let written = create_draft(&draft).and_then(|mut file| {
        file.write_all(content)?;
        file.sync_all()
    });
    written.map_err(at(&draft))?;
    rename_into_place(&draft, path)
}

/// A file that still has its temporary name.
pub struct Draft {
    file: File,
    /// Its temporary path.
    path: PathBuf,
    /// Directory of the export.
    directory: PathBuf,
}

impl Draft {
    /// Opens what was written so far for reading.
    pub fn written(&self) -> Result<File> {
        File::open(&self.path).map_err(at(&self.path))
    }

    /// Syncs the file and renames it to this path below the directory of the export.
    pub fn commit(self, path: &str) -> Result<()> {
        self.file.sync_all().map_err(at(&self.path))?;
        rename_into_place(&self.path, &self.directory.join(path))
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Returns whether [`LockedDirectory::begin`] could have given a file this name.
fn is_draft(name: &str) -> bool {
    let number = name.strip_suffix(DRAFT_SUFFIX).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
}

/// Creates the missing directories from `top` down to `wanted`, and syncs their parents, so that
/// they survive a power failure. Below `top`, no link is followed: whoever put it there would decide
/// where files are written and removed.
fn create_all(top: &Path, wanted: &Path) -> Result<()> {
    if wanted == top {
        return Ok(());
    }
    let parent = wanted.parent().unwrap_or(top);
    create_all(top, parent)?;
    match fs::symlink_metadata(wanted) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            return Err(ExportError::Place(format!(
                "{} is not a directory of the export: remove it; to keep the export on another disk, \
                 give a directory there as its destination",
                wanted.display()
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(at(wanted)(error)),
    }
    fs::create_dir(wanted).map_err(at(wanted))?;
    File::open(parent).and_then(|opened| opened.sync_all()).map_err(at(parent))
}

/// Returns the names of the directories in `path`, which may be missing.
fn directories(path: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(at(path)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(at(path))?;
        if entry.file_type().map_err(at(path))?.is_dir()
            && let Ok(name) = entry.file_name().into_string()
        {
            found.push(name);
        }
    }
    Ok(found)
}

fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(DRAFT_SUFFIX);
    draft.into()
}

/// Renames a synced temporary file to its final name, and syncs the directory, so that the name
/// survives a power failure.
fn rename_into_place(draft: &Path, path: &Path) -> Result<()> {
    fs::rename(draft, path).map_err(at(path))?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory).and_then(|opened| opened.sync_all()).map_err(at(directory))
}

/// Removes files that a killed export has left, and no others. The directory may be missing.
fn remove_strays(
    directory: &Path,
    is_ours: impl Fn(&str) -> bool,
    is_named: impl Fn(&str) -> bool,
) -> Result<()> {
    // A link could lead to files that are not the export's.
    match fs::symlink_metadata(directory) {
        Ok(found) if found.is_dir() => {}
        _ => return Ok(()),
    }
    for entry in fs::read_dir(directory).map_err(at(directory))? {
        let name = entry.map_err(at(directory))?.file_name();
        let Some(name) = name.to_str() else { continue };
        let whole = name.strip_suffix(DRAFT_SUFFIX).unwrap_or(name);
        if (is_ours(name) || is_ours(whole)) && !is_named(name) {
            let path = directory.join(name);
            fs::remove_file(&path).map_err(at(&path))?;
        }
    }
    Ok(())
}

/// Removes a directory in which nothing is, and no other.
fn remove_if_empty(directory: &Path) -> Result<()> {
    match fs::remove_dir(directory) {
        Err(error)
            if !matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::DirectoryNotEmpty
                    | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(at(directory)(error))
        }
        _ => Ok(()),
    }
}

/// Returns whether the directory is missing, or contains at most what an export leaves that was
/// killed before it wrote a manifest.
fn is_fresh(directory: &Path) -> Result<bool> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(at(directory)(error)),
    };
    for entry in entries {
        let name = entry.map_err(at(directory))?.file_name();
        if name != LOCK && name != *draft_of(Path::new(manifest::NAME)).as_os_str() {
            return Ok(false);
        }
    }
    Ok(true)
}
