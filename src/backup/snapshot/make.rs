//! Makes a snapshot from a checkpoint of the store and the other files of a data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::age::Sealing;
use super::claim::{CLAIM, Claim};
use super::description::{Description, key_of};
use super::doomed::{Doomed, Swept};
use super::marker::{KEY, Marker, create_key, existing_key};
use super::place::Place;
use super::upload::Uploader;
use super::{AskPassphrase, Progress, Snapshots, runtime};
use crate::auth::{DirectoryKey, revocations};
use crate::backup::copy::{self, Lock};
use crate::backup::make::refuse_inside;
use crate::backup::manifest::Manifest;
use crate::backup::names::{Treatment, treatment};
use crate::backup::{BackupError, LOCK, check, failed, new_name_after};
use crate::domain::{LedgerSet, Network};
use crate::sandbox::source::DIRECTORY as SANDBOX;
use crate::service::{ORDER_FILE, PROMOTED_FILE, Reader, SECRETS, secrets};
use crate::store::{DirectoryContents, RAW_DIRECTORY};

/// File of a data directory that is locked while a snapshot of it is made.
const OWN_LOCK: &str = "snapshot.lock";

/// What a snapshot is made of, and where it goes.
pub struct Options<'a> {
    /// The data directory.
    pub data_dir: &'a Path,
    /// Its network.
    pub network: Network,
    /// Whether they are encrypted, and then have keys and tokens.
    pub encrypt: bool,
    /// Number of newest snapshots to keep; all when `None`.
    pub keep: Option<usize>,
    /// Whether only to say what would be done.
    pub dry_run: bool,
    /// What distinguishes this machine and data directory from others.
    pub id: String,
}

/// A snapshot that was just made, or would be.
#[derive(Debug, Clone)]
pub struct Uploaded {
    /// Its location.
    pub place: String,
    /// Its description.
    pub description: Description,
    /// Public key of the data directory, in hexadecimal.
    pub writer: String,
    /// Number of objects that were not there.
    pub new_objects: u64,
    /// Their length in bytes.
    pub new_bytes: u64,
    /// Number of requests.
    pub requests: u64,
    /// Names of earlier snapshots that were removed.
    pub removed: Vec<String>,
    /// What was removed and listed of objects that no snapshot needs.
    pub swept: Swept,
}

/// Makes a snapshot. `checkpoint` returns the directory of a checkpoint of the store, which must not change until
/// this returns, and the ledgers in it that are attested. No snapshot is there before everything in it is.
///
/// # Errors
/// [`BackupError`]; what was uploaded stays, and the next snapshot finds it.
pub fn make(
    options: &Options<'_>,
    place: Place,
    ask: AskPassphrase<'_>,
    checkpoint: impl FnOnce() -> Result<(PathBuf, LedgerSet), BackupError>,
    progress: Progress<'_>,
) -> Result<Uploaded, BackupError> {
    let source = options.data_dir.canonicalize().map_err(failed(options.data_dir))?;
    if let Some(directory) = place.directory() {
        refuse_inside(&source, directory)?;
    }
    let _only = match options.dry_run {
        true => None,
        false => {
            let lock = Lock::take(&source.join(OWN_LOCK))?;
            Some(lock.ok_or_else(|| BackupError::InUse(source.clone()))?)
        }
    };
    let key = own_key(options)?;
    let writer = key.as_ref().map(DirectoryKey::public).unwrap_or_default();
    refuse_of_writer(options, &writer)?;
    let (mut snapshots, is_new) = begin(options, place, &writer, ask)?;
    let claim = match options.dry_run {
        true => None,
        false => {
            let taken = Claim::take(&snapshots.place, &options.id);
            Some(snapshots.runtime.block_on(taken)?)
        }
    };
    let begun = match (is_new, options.dry_run) {
        (false, _) => Ok(()),
        (true, false) => snapshots.create(ask),
        (true, true) => snapshots.pretend(),
    };
    let mut uploader = Uploader::new(&snapshots, claim);
    let made = begun
        .and_then(|()| work(&mut uploader, options, &source, key.as_ref(), checkpoint, progress));
    if let Some(claim) = uploader.claim.take() {
        snapshots.runtime.block_on(claim.release(&snapshots.place));
    }
    let more = if options.dry_run { snapshots.saved_requests(is_new, &uploader) } else { 0 };
    let requests = snapshots.place.requests() + more;
    made.map(|made| Uploaded { requests, ..made })
}

fn work(
    uploader: &mut Uploader<'_>,
    options: &Options<'_>,
    source: &Path,
    key: Option<&DirectoryKey>,
    checkpoint: impl FnOnce() -> Result<(PathBuf, LedgerSet), BackupError>,
    progress: Progress<'_>,
) -> Result<Uploaded, BackupError> {
    let snapshots = uploader.snapshots;
    uploader.doomed = snapshots.runtime.block_on(Doomed::of(&snapshots.place))?;
    let newest = snapshots.names()?.pop();
    let name = new_name_after(newest.as_deref())?;
    uploader.find(newest_readable(snapshots, newest.as_deref())?.as_ref())?;
    let (contents, attested) = upload(uploader, source, options.encrypt, checkpoint, progress)?;
    let (files, pieces) = uploader.finish(progress)?;
    let manifest = Manifest::new(&name, &contents, &attested, files);
    let revoked = match options.encrypt {
        true => BTreeMap::new(),
        false => revocations(&secrets(source)).map_err(|it| BackupError::Other(it.to_string()))?,
    };
    let description = Description { manifest, pieces, secrets: options.encrypt, revoked };
    let (mut removed, mut swept) = (Vec::new(), Swept::default());
    if let (Some(key), false) = (key, options.dry_run) {
        let written = uploader.written.clone();
        let spare = uploader.doomed.spare(&snapshots.place, &written);
        snapshots.runtime.block_on(spare)?;
        uploader.renew()?;
        snapshots.write(&description, key)?;
        if let Some(keep) = options.keep {
            (removed, swept) = sweep(uploader, keep).map_err(|error| {
                BackupError::Other(format!(
                    "the snapshot {name} was made, but older ones were not removed: {error}"
                ))
            })?;
        }
    }
    Ok(Uploaded {
        place: snapshots.place.name(&key_of(&name, &snapshots.marker)),
        description,
        writer: key.map(DirectoryKey::public).unwrap_or_default(),
        new_objects: uploader.written.len() as u64,
        new_bytes: uploader.new_bytes,
        requests: 0,
        removed,
        swept,
    })
}

/// Returns the key of the data directory; `None` when there is none yet and nothing is to be written.
fn own_key(options: &Options<'_>) -> Result<Option<DirectoryKey>, BackupError> {
    let secrets = secrets(options.data_dir);
    let key = match options.dry_run {
        true => DirectoryKey::existing(&secrets),
        false => DirectoryKey::open(&secrets).map(Some),
    };
    key.map_err(|error| BackupError::Other(error.to_string()))
}

/// Refuses a reader that has its writer's key: the writer makes the snapshots.
fn refuse_of_writer(options: &Options<'_>, key: &str) -> Result<(), BackupError> {
    let reader = Reader::of(options.data_dir);
    let reader = reader.map_err(|error| BackupError::Other(error.to_string()))?;
    match reader.filter(|reader| reader.writer == key) {
        Some(reader) => Err(BackupError::Other(format!(
            "this data directory is a reader of {} with its writer's key: run `orrery promote` first, if that \
             writer is gone for good",
            reader.from
        ))),
        None => Ok(()),
    }
}

/// Opens the place. Returns also whether it is new, and nothing is there yet.
fn begin(
    options: &Options<'_>,
    place: Place,
    writer: &str,
    ask: AskPassphrase<'_>,
) -> Result<(Snapshots, bool), BackupError> {
    let runtime = runtime()?;
    let found = runtime.block_on(Marker::of(&place))?;
    let place = Arc::new(place);
    if let Some(marker) = found {
        marker.check_network(&options.network, &place)?;
        let mut snapshots = Snapshots { runtime, place, marker, sealing: None };
        snapshots.check_own(writer, options.encrypt)?;
        snapshots.unlock(ask)?;
        return Ok((snapshots, false));
    }
    runtime.block_on(refuse_other_objects(&place))?;
    let marker = Marker::new(&options.network, writer.to_owned(), options.encrypt);
    Ok((Snapshots { runtime, place, marker, sealing: None }, true))
}

/// Refuses a place with objects of somebody else. Some are left by a command that was interrupted before it wrote the
/// marker.
async fn refuse_other_objects(place: &Place) -> Result<(), BackupError> {
    const OURS: [&str; 3] = [KEY, CLAIM, LOCK];
    let found = place.list("", OURS.len() + 1).await?;
    match found.iter().find(|object| !OURS.contains(&&*object.key)) {
        None => Ok(()),
        Some(object) => Err(BackupError::Other(format!(
            "{} holds {}, which is not a snapshot's: give a place that is empty, or has snapshots of this data \
             directory",
            place.name(""),
            object.key
        ))),
    }
}

impl Snapshots {
    /// Writes the marker, and before it the key, to a place that has none.
    fn create(&mut self, ask: AskPassphrase<'_>) -> Result<(), BackupError> {
        if self.marker.encrypted {
            let passphrase = ask(true)?;
            if let Some(weakness) = passphrase.weakness() {
                return Err(BackupError::Other(weakness));
            }
            let key = self.runtime.block_on(async {
                match existing_key(&self.place, &passphrase).await? {
                    Some(key) => Ok(key),
                    None => create_key(&self.place, &passphrase).await,
                }
            });
            self.sealing = Some(Arc::new(key?));
        }
        if self.runtime.block_on(self.marker.create(&self.place))? {
            return Ok(());
        }
        match self.runtime.block_on(Marker::of(&self.place))? {
            Some(other) if other == self.marker => Ok(()),
            _ => Err(BackupError::Other(format!(
                "another data directory has begun to write to {} meanwhile: give another place",
                self.place()
            ))),
        }
    }

    /// Encrypts with a key that nothing else has, so that a dry run of a new place knows the lengths.
    fn pretend(&mut self) -> Result<(), BackupError> {
        if self.marker.encrypted {
            self.sealing = Some(Arc::new(Sealing::of_nobody()?));
        }
        Ok(())
    }

    /// Returns the number of requests that a dry run has not sent, without those for `--keep`.
    fn saved_requests(&self, is_new: bool, uploader: &Uploader<'_>) -> u64 {
        // A claim is looked for, made and released; a key is looked for and made.
        let claim = if self.place.directory().is_some() { 0 } else { 3 };
        let new = match (is_new, self.marker.encrypted) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 3,
        };
        let description = 1;
        uploader.written.len() as u64 + description + claim + new
    }

    /// Refuses snapshots of another data directory, and to mix encrypted ones with others.
    fn check_own(&self, writer: &str, encrypt: bool) -> Result<(), BackupError> {
        let place = self.place();
        if self.marker.writer != writer {
            return Err(BackupError::Other(format!(
                "the snapshots in {place} are of another data directory, with the key {}: give a place for this \
                 one alone",
                self.marker.writer
            )));
        }
        match (self.marker.encrypted, encrypt) {
            (true, false) => Err(BackupError::Other(format!(
                "the snapshots in {place} are encrypted: add --encrypt, or give another place"
            ))),
            (false, true) => Err(BackupError::Other(format!(
                "the snapshots in {place} are not encrypted: give another place for encrypted ones"
            ))),
            _ => Ok(()),
        }
    }

    /// Writes the description, with which the snapshot is there.
    fn write(&self, description: &Description, key: &DirectoryKey) -> Result<(), BackupError> {
        let text = description.signed(key)?;
        let text = match &self.sealing {
            Some(sealing) => {
                sealing.seal(&text).map_err(|it| BackupError::Other(it.to_string()))?
            }
            None => text,
        };
        let name = key_of(&description.manifest.taken, &self.marker);
        self.runtime.block_on(self.place.put(&name, text.into()))
    }
}

/// Returns the newest snapshot's description, so that its small files are not sent again; `None` without a snapshot,
/// or if that is damaged.
fn newest_readable(
    snapshots: &Snapshots,
    newest: Option<&str>,
) -> Result<Option<Description>, BackupError> {
    let Some(newest) = newest else { return Ok(None) };
    let found = snapshots.undamaged(newest)?;
    if found.is_none() {
        let key = key_of(newest, &snapshots.marker);
        tracing::warn!("{} differs from what was written", snapshots.place.name(&key));
    }
    Ok(found.map(|found| found.description))
}

/// Uploads everything that belongs to a snapshot. Returns what the checkpoint has, and what is attested of it.
fn upload(
    uploader: &mut Uploader<'_>,
    data_dir: &Path,
    secrets: bool,
    checkpoint: impl FnOnce() -> Result<(PathBuf, LedgerSet), BackupError>,
    progress: Progress<'_>,
) -> Result<(DirectoryContents, LedgerSet), BackupError> {
    // In the same order as a backup, for the same reasons. An order names sources, perhaps with passwords; a
    // sandbox has the key of its validator.
    if secrets {
        add(uploader, data_dir, ORDER_FILE, progress)?;
    }
    let (checkpoint, attested) = checkpoint()?;
    add(uploader, data_dir, PROMOTED_FILE, progress)?;
    if secrets {
        for name in [SECRETS, SANDBOX, ORDER_FILE] {
            if !uploader.has(name) {
                add(uploader, data_dir, name, progress)?;
            }
        }
    }
    let contents = check::read_contents(&checkpoint, RAW_DIRECTORY)?;
    for path in copy::files_below(&checkpoint)? {
        uploader.add(&checkpoint, &path, progress)?;
    }
    Ok((contents, attested))
}

/// Adds a file, or all files of a directory, if it exists.
fn add(
    uploader: &mut Uploader<'_>,
    data_dir: &Path,
    name: &str,
    progress: Progress<'_>,
) -> Result<(), BackupError> {
    let path = data_dir.join(name);
    if path.is_file() {
        return uploader.add(data_dir, Path::new(name), progress);
    }
    if path.is_dir() {
        for below in copy::files_below(&path)? {
            let below = Path::new(name).join(below);
            if below.to_str().is_some_and(|path| treatment(path) == Treatment::Kept) {
                uploader.add(data_dir, &below, progress)?;
            }
        }
    }
    Ok(())
}

/// Removes all but the newest snapshots, and in two steps what only they need.
fn sweep(uploader: &mut Uploader<'_>, keep: usize) -> Result<(Vec<String>, Swept), BackupError> {
    let snapshots = uploader.snapshots;
    let mut old = snapshots.names()?;
    let kept = old.split_off(old.len().saturating_sub(keep.max(1)));
    let mut needed = BTreeSet::new();
    for name in &kept {
        let snapshot = snapshots.undamaged(name)?.ok_or_else(|| {
            // It is not known what it needs.
            BackupError::Other(format!(
                "{} differs from what was written; remove it, and the next backup with --keep goes on",
                snapshots.place.name(&key_of(name, &snapshots.marker))
            ))
        })?;
        needed.extend(snapshot.description.objects().into_iter().map(str::to_owned));
    }
    let (runtime, place) = (&snapshots.runtime, &snapshots.place);
    for name in &old {
        uploader.renew()?;
        runtime.block_on(place.remove(&key_of(name, &snapshots.marker)))?;
    }
    uploader.renew()?;
    // As it is now: this snapshot has taken off the list what it wrote again.
    let mut doomed = runtime.block_on(Doomed::of(place))?;
    let (listed, due) = runtime.block_on(doomed.list(place, uploader.objects(), &needed))?;
    for object in &due {
        // Whoever takes the place over may write it again.
        uploader.renew()?;
        runtime.block_on(doomed.remove(place, object))?;
    }
    if !due.is_empty() {
        runtime.block_on(doomed.write(place))?;
    }
    Ok((old, Swept { listed, removed: due.len() as u64 }))
}
