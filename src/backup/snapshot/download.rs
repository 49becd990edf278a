//! Restores a data directory from a snapshot. What an interrupted restoration has left is used, as far as its
//! content is right.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

use super::description::Piece;
use super::{LONGEST_OBJECT, Progress, Snapshot, Snapshots};
use crate::auth::take_over;
use crate::backup::names::{Treatment, treatment};
use crate::backup::restore::{Leftovers, UNFINISHED_RAW, forget_acknowledged, into_place};
use crate::backup::{BackupError, check, copy, failed};
use crate::service::{DiskSpace, Reader, secrets};
use crate::store::RAW_DIRECTORY;

/// Maximum number of objects that are fetched at a time.
const MOST_AT_ONCE: usize = 8;
/// Unit of a file's blocks in bytes.
const BLOCK: u64 = 512;
/// What is wrong with an object, after its name.
const MISSING: &str = "is missing";
const DIFFERS: &str = "differs from what was written";
/// Mode of restored files: access for the owner only.
const PRIVATE_FILE: u32 = 0o600;

/// Gets the key of an object and its bytes.
type EachObject<'a> = &'a mut dyn FnMut(&str, Option<Bytes>) -> Result<(), BackupError>;

/// A piece of a file, and where it goes.
#[derive(Debug, Clone)]
struct Slice<'a> {
    /// Path of the file in the snapshot.
    file: &'a str,
    /// Position in the file.
    position: u64,
    piece: &'a Piece,
}

impl Snapshots {
    /// Restores a snapshot to the data directory `data_dir`, which must be empty or not exist. Every piece is compared with
    /// the description, and the ledgers are compared with it before the directory gets its name. `complete` gets
    /// the directory before that, and may open the store in it. The directory is a reader. Everything is on disk
    /// when this returns.
    ///
    /// # Errors
    /// [`BackupError`], with `data_dir` unchanged; what was fetched stays beside it for the next attempt.
    pub fn restore(
        &self,
        snapshot: &Snapshot,
        data_dir: &Path,
        complete: &dyn Fn(&Path) -> Result<(), BackupError>,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let mut fill = |draft: &Path| {
            self.fill(snapshot, draft, progress)?;
            let revoked = take_over(&secrets(draft), &snapshot.description.revoked);
            revoked.map_err(|error| BackupError::Other(error.to_string()))?;
            self.reader_of(snapshot).write(draft).map_err(|it| BackupError::Other(it.to_string()))
        };
        into_place(data_dir, Leftovers::Kept, &mut fill, complete)
    }

    fn reader_of(&self, snapshot: &Snapshot) -> Reader {
        let ranges = &snapshot.description.manifest.ranges;
        Reader {
            from: self.place(),
            snapshot: snapshot.name.clone(),
            latest_ledger: ranges.last().map(|range| range.summed.ledgers.last.0),
            writer: self.writer().to_owned(),
        }
    }

    fn fill(
        &self,
        snapshot: &Snapshot,
        draft: &Path,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let manifest = &snapshot.description.manifest;
        let own = PathBuf::from(self.place());
        for file in &manifest.files {
            if treatment(&file.path) != Treatment::Kept {
                return Err(BackupError::foreign_file(&own, &file.path));
            }
        }
        self.check_objects(snapshot)?;
        check_space(snapshot, draft)?;
        prepare(snapshot, draft)?;
        self.fetch(snapshot, draft, progress)?;
        for file in &manifest.files {
            let path = place_of(draft, &file.path);
            File::open(&path).and_then(|file| file.sync_all()).map_err(failed(&path))?;
        }
        if !manifest.matches(&check::read_contents(draft, UNFINISHED_RAW)?) {
            return Err(BackupError::ledger_mismatch(&own));
        }
        forget_acknowledged(draft)?;
        let raw = draft.join(RAW_DIRECTORY);
        fs::rename(draft.join(UNFINISHED_RAW), &raw).map_err(failed(&raw))
    }

    /// Refuses a snapshot of which an object is missing, or has a length that none has, before anything is fetched.
    pub(super) fn check_objects(&self, snapshot: &Snapshot) -> Result<(), BackupError> {
        let objects = self.objects()?;
        for slice in slices(snapshot) {
            let object = &slice.piece.object;
            match objects.get(object) {
                None => return Err(self.damaged(&slice, MISSING)),
                Some(bytes) if *bytes > LONGEST_OBJECT => {
                    return Err(self.damaged(&slice, "is longer than what was written"));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Fetches what the draft does not have yet.
    fn fetch(
        &self,
        snapshot: &Snapshot,
        draft: &Path,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let mut wanted: BTreeMap<&str, Vec<Slice<'_>>> = BTreeMap::new();
        for slice in slices(snapshot) {
            if is_there(draft, &slice)? {
                progress(slice.piece.size)?;
            } else {
                wanted.entry(&slice.piece.object).or_default().push(slice);
            }
        }
        let mut open = OpenFiles::default();
        let objects = wanted.keys().map(|object| (*object).to_owned());
        self.each_object(objects, &mut |object, bytes| {
            let slices = wanted.get(object).map(Vec::as_slice).unwrap_or_default();
            let Some(first) = slices.first() else { return Ok(()) };
            let bytes = bytes.ok_or_else(|| self.damaged(first, MISSING))?;
            let content = self.opened(bytes).ok_or_else(|| self.damaged(first, DIFFERS))?;
            for slice in slices {
                let bytes = self.checked(slice, &content)?;
                open.write(draft, slice, bytes)?;
                progress(slice.piece.size)?;
            }
            Ok(())
        })
    }

    /// Calls `each` with the bytes of each object, several of which are fetched at a time, and `None` for one that is
    /// missing.
    fn each_object(
        &self,
        mut objects: impl Iterator<Item = String>,
        each: EachObject<'_>,
    ) -> Result<(), BackupError> {
        let mut fetching = JoinSet::new();
        loop {
            while fetching.len() < MOST_AT_ONCE
                && let Some(object) = objects.next()
            {
                let place = Arc::clone(&self.place);
                let task = async move { (place.get(&object).await, object) };
                fetching.spawn_on(task, self.runtime.handle());
            }
            let Some(fetched) = self.runtime.block_on(fetching.join_next()) else { return Ok(()) };
            let (bytes, object) = fetched.map_err(|error| {
                BackupError::Other(format!("a download was not finished: {error}"))
            })?;
            each(&object, bytes?)?;
        }
    }

    /// Returns the bytes of a piece in the content of its object, if they are those of the description.
    fn checked<'c>(&self, slice: &Slice<'_>, content: &'c Bytes) -> Result<&'c [u8], BackupError> {
        let differs = || self.damaged(slice, DIFFERS);
        let Piece { at, size, sha256, .. } = slice.piece;
        let from = usize::try_from(*at).map_err(|_| differs())?;
        let length = usize::try_from(*size).map_err(|_| differs())?;
        let bytes = content.get(from..).and_then(|rest| rest.get(..length)).ok_or_else(differs)?;
        let is_same = hex::encode(Sha256::digest(bytes)) == *sha256;
        if is_same { Ok(bytes) } else { Err(differs()) }
    }

    fn damaged(&self, slice: &Slice<'_>, what: &str) -> BackupError {
        // The next backup does not read what is there.
        let mend = match what {
            MISSING => "the next backup",
            _ => "remove that object, and the next backup",
        };
        BackupError::Other(format!(
            "{} cannot be restored: {} {what}; use another snapshot ({mend} writes the object again, if the data \
             directory still has its content)",
            slice.file,
            self.place.name(&slice.piece.object)
        ))
    }

    /// Fetches objects, all or as many as `sample`, and compares every piece in them with the descriptions. Calls
    /// `damaged` with the index of each snapshot that has a piece that differs, and the reason.
    pub(super) fn compare(
        &self,
        snapshots: &[Snapshot],
        choose: impl FnOnce(Vec<&str>) -> Vec<String>,
        damaged: &mut dyn FnMut(usize, BackupError),
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let mut by_object: HashMap<&str, Vec<(usize, Slice<'_>)>> = HashMap::new();
        for (index, snapshot) in snapshots.iter().enumerate() {
            for slice in slices(snapshot) {
                by_object.entry(&slice.piece.object).or_default().push((index, slice));
            }
        }
        let mut names: Vec<&str> = by_object.keys().copied().collect();
        names.sort_unstable();
        self.each_object(choose(names).into_iter(), &mut |object, fetched| {
            let reason = if fetched.is_some() { DIFFERS } else { MISSING };
            let content = fetched.and_then(|bytes| self.opened(bytes));
            for (index, slice) in by_object.get(object).map(Vec::as_slice).unwrap_or_default() {
                let checked = match &content {
                    Some(content) => self.checked(slice, content).map(<[u8]>::len),
                    None => Err(self.damaged(slice, reason)),
                };
                match checked {
                    Ok(bytes) => progress(bytes as u64)?,
                    Err(error) => damaged(*index, error),
                }
            }
            Ok(())
        })
    }
}

/// Returns all pieces of a snapshot.
fn slices(snapshot: &Snapshot) -> impl Iterator<Item = Slice<'_>> {
    let description = &snapshot.description;
    let files = description.manifest.files.iter().zip(&description.pieces);
    files.flat_map(|(file, pieces)| {
        let mut position = 0;
        pieces.iter().map(move |piece| {
            let slice = Slice { file: &file.path, position, piece };
            position += piece.size;
            slice
        })
    })
}

/// Returns where a file of a snapshot lies in a draft: the database not at its usual place.
fn place_of(draft: &Path, file: &str) -> PathBuf {
    match Path::new(file).strip_prefix(RAW_DIRECTORY) {
        Ok(below) => draft.join(UNFINISHED_RAW).join(below),
        Err(_) => draft.join(file),
    }
}

/// Refuses a snapshot for which the disk has too little space, before anything is fetched: whoever can write to the
/// place decides how long the files are.
fn check_space(snapshot: &Snapshot, draft: &Path) -> Result<(), BackupError> {
    copy::make_directory(draft)?;
    let manifest = &snapshot.description.manifest;
    let mut there = 0u64;
    for file in copy::files_below(draft)? {
        let path = draft.join(file);
        let metadata = fs::metadata(&path).map_err(failed(&path))?;
        there = there.saturating_add(metadata.blocks().saturating_mul(BLOCK));
    }
    let needed = manifest.bytes().saturating_sub(there);
    let DiskSpace { free, total } = DiskSpace::of(draft).map_err(failed(draft))?;
    // Some file systems do not say.
    if needed <= free || total == 0 {
        return Ok(());
    }
    Err(BackupError::Other(format!(
        "snapshot {} needs {} MiB more, and the disk of {} has {} MiB left: make space there, or restore to another \
         disk",
        snapshot.name,
        needed.div_ceil(1 << 20),
        draft.display(),
        free >> 20
    )))
}

/// Makes a draft that may have files of an earlier attempt: those of the snapshot get their length, and others are
/// removed.
fn prepare(snapshot: &Snapshot, draft: &Path) -> Result<(), BackupError> {
    copy::make_directory(draft)?;
    let (raw, unfinished) = (draft.join(RAW_DIRECTORY), draft.join(UNFINISHED_RAW));
    if raw.exists() {
        if unfinished.exists() {
            copy::remove(&raw)?;
        } else {
            fs::rename(&raw, &unfinished).map_err(failed(&raw))?;
        }
    }
    let files = &snapshot.description.manifest.files;
    let known: BTreeSet<PathBuf> = files.iter().map(|file| place_of(draft, &file.path)).collect();
    for path in copy::files_below(draft)? {
        let path = draft.join(path);
        if !known.contains(&path) {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
    }
    for file in files {
        let path = place_of(draft, &file.path);
        copy::make_directory(copy::parent(&path))?;
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(false).mode(PRIVATE_FILE);
        let made = options.open(&path).and_then(|made| made.set_len(file.size));
        made.map_err(failed(&path))?;
    }
    Ok(())
}

/// Whether a draft has a piece already.
fn is_there(draft: &Path, slice: &Slice<'_>) -> Result<bool, BackupError> {
    let path = place_of(draft, slice.file);
    let length = usize::try_from(slice.piece.size).unwrap_or(usize::MAX);
    if slice.piece.size > LONGEST_OBJECT {
        return Ok(false);
    }
    let file = File::open(&path).map_err(failed(&path))?;
    // A file that was only just made takes no space, and has nothing.
    if file.metadata().map_err(failed(&path))?.blocks() == 0 {
        return Ok(false);
    }
    let mut bytes = vec![0; length];
    match file.read_exact_at(&mut bytes, slice.position) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(failed(&path)(error)),
        Ok(()) => Ok(hex::encode(Sha256::digest(&bytes)) == slice.piece.sha256),
    }
}

/// The file that was written to last, which is kept open for its next piece.
#[derive(Default)]
struct OpenFiles {
    last: Option<(PathBuf, File)>,
}

impl OpenFiles {
    fn write(&mut self, draft: &Path, slice: &Slice<'_>, bytes: &[u8]) -> Result<(), BackupError> {
        let path = place_of(draft, slice.file);
        if self.last.as_ref().is_none_or(|(last, _)| *last != path) {
            let file = OpenOptions::new().write(true).open(&path).map_err(failed(&path))?;
            self.last = Some((path.clone(), file));
        }
        match &self.last {
            Some((_, file)) => file.write_all_at(bytes, slice.position).map_err(failed(&path)),
            None => Ok(()),
        }
    }
}
