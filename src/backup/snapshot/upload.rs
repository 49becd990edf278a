//! Uploads files as objects named by their content: those that are there already are not sent again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::claim::Claim;
use super::description::{Description, Piece, object_of};
use super::doomed::Doomed;
use super::{PART_BYTES, Progress, Snapshots};
use crate::backup::manifest::File;
use crate::backup::names::{Treatment, treatment};
use crate::backup::{BackupError, failed};

/// Length in bytes below which files share an object.
const SMALL_BYTES: u64 = 1 << 20;
/// Length in bytes at which an object with small files is sent.
const PACK_BYTES: usize = 8 << 20;
/// Maximum number of objects that are sent at a time.
const MOST_AT_ONCE: usize = 4;
/// Longest time for which nothing is reported while objects are sent.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Uploads files.
pub struct Uploader<'a> {
    pub snapshots: &'a Snapshots,
    pub claim: Option<Claim>,
    pub doomed: Doomed,
    /// Lengths of the objects that are there, or on their way.
    objects: BTreeMap<String, u64>,
    /// Objects of this upload.
    pub written: BTreeSet<String>,
    /// Pieces of small files of the newest snapshot, by their hash.
    known: HashMap<String, Piece>,
    files: Vec<File>,
    pieces: Vec<Vec<Piece>>,
    pack: Pack,
    sending: JoinSet<Result<(), BackupError>>,
    /// Length of the objects of this upload in bytes.
    pub new_bytes: u64,
}

/// Small files that are sent together.
#[derive(Default)]
struct Pack {
    content: Vec<u8>,
    /// Files by their index, with their place in the content and their hash.
    files: Vec<(usize, u64, u64, String)>,
}

impl<'a> Uploader<'a> {
    /// Begins to upload. Nothing is sent without a claim.
    pub fn new(snapshots: &'a Snapshots, claim: Option<Claim>) -> Self {
        Self {
            snapshots,
            claim,
            doomed: Doomed::default(),
            objects: BTreeMap::new(),
            written: BTreeSet::new(),
            known: HashMap::new(),
            files: Vec::new(),
            pieces: Vec::new(),
            pack: Pack::default(),
            sending: JoinSet::new(),
            new_bytes: 0,
        }
    }

    /// Finds out what is there already; `newest` is the newest snapshot.
    pub fn find(&mut self, newest: Option<&Description>) -> Result<(), BackupError> {
        self.objects = self.snapshots.objects()?;
        let (objects, doomed) = (&self.objects, &self.doomed);
        let pieces = newest.into_iter().flat_map(|newest| newest.pieces.iter());
        let single = pieces.filter_map(|pieces| <&[Piece; 1]>::try_from(&**pieces).ok());
        // Of an object that is gone, or may be at any time, nothing is known.
        let there =
            |piece: &Piece| objects.contains_key(&piece.object) && !doomed.contains(&piece.object);
        let known = single.filter(|[piece]| piece.size < SMALL_BYTES && there(piece));
        self.known = known.map(|[piece]| (piece.sha256.clone(), piece.clone())).collect();
        Ok(())
    }

    /// Uploads a file below `root`.
    pub fn add(
        &mut self,
        root: &Path,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let from = root.join(path);
        let name = path.to_str().filter(|name| treatment(name) == Treatment::Kept);
        let Some(name) = name else {
            // Restoring would refuse it.
            return Err(BackupError::foreign_file(
                Path::new(&self.snapshots.place()),
                &path.to_string_lossy(),
            ));
        };
        let mut file = fs::File::open(&from).map_err(failed(&from))?;
        let is_small = file.metadata().map_err(failed(&from))?.len() < SMALL_BYTES;
        let (mut size, mut whole) = (0u64, Sha256::new());
        let index = self.files.len();
        self.pieces.push(Vec::new());
        loop {
            let mut part = Vec::new();
            let most = PART_BYTES as u64;
            (&mut file).take(most).read_to_end(&mut part).map_err(failed(&from))?;
            if part.is_empty() {
                break;
            }
            self.renew()?;
            whole.update(&part);
            size += part.len() as u64;
            let length = part.len() as u64;
            if is_small && length < SMALL_BYTES && self.pieces[index].is_empty() {
                self.add_small(index, part, progress)?;
            } else {
                let (object, sha256) = self.send(part, progress)?;
                self.pieces[index].push(Piece { object, at: 0, size: length, sha256 });
            }
            progress(length)?;
            if length < most {
                break;
            }
        }
        let sha256 = hex::encode(whole.finalize());
        self.files.push(File { path: name.to_owned(), size, sha256 });
        Ok(())
    }

    fn add_small(
        &mut self,
        index: usize,
        content: Vec<u8>,
        progress: Progress<'_>,
    ) -> Result<(), BackupError> {
        let sha256 = hex::encode(Sha256::digest(&content));
        if let Some(piece) = self.known.get(&sha256) {
            self.pieces[index].push(piece.clone());
            return Ok(());
        }
        let (at, size) = (self.pack.content.len() as u64, content.len() as u64);
        self.pack.content.extend_from_slice(&content);
        self.pack.files.push((index, at, size, sha256));
        if self.pack.content.len() >= PACK_BYTES { self.send_pack(progress) } else { Ok(()) }
    }

    fn send_pack(&mut self, progress: Progress<'_>) -> Result<(), BackupError> {
        let Pack { content, files } = std::mem::take(&mut self.pack);
        if files.is_empty() {
            return Ok(());
        }
        let (object, _) = self.send(content, progress)?;
        for (index, at, size, sha256) in files {
            let piece = Piece { object: object.clone(), at, size, sha256 };
            self.pieces[index].push(piece);
        }
        Ok(())
    }

    /// Sends an object, unless it is there. Returns its key, and the hash of its content.
    fn send(
        &mut self,
        content: Vec<u8>,
        progress: Progress<'_>,
    ) -> Result<(String, String), BackupError> {
        let sealing = self.snapshots.sealing.as_deref();
        let sha256 = Sha256::digest(&content);
        let key = object_of(&sha256, sealing)?;
        let length = sealing.map_or(content.len(), |it| it.sealed_length(content.len())) as u64;
        let named = (key.clone(), hex::encode(sha256));
        let is_safe = !self.doomed.contains(&key) || self.written.contains(&key);
        if is_safe && self.objects.get(&key) == Some(&length) {
            return Ok(named);
        }
        self.objects.insert(key.clone(), length);
        self.written.insert(key.clone());
        self.new_bytes += length;
        if self.claim.is_none() {
            return Ok(named);
        }
        let bytes = match sealing {
            Some(sealing) => {
                sealing.seal(&content).map_err(|error| BackupError::Other(error.to_string()))?
            }
            None => content,
        };
        self.wait_until(MOST_AT_ONCE - 1, progress)?;
        let place = Arc::clone(&self.snapshots.place);
        let task = async move { place.put(&key, bytes.into()).await };
        self.sending.spawn_on(task, self.snapshots.runtime.handle());
        Ok(named)
    }

    /// Waits until at most `most` objects are being sent.
    fn wait_until(&mut self, most: usize, progress: Progress<'_>) -> Result<(), BackupError> {
        let runtime = &self.snapshots.runtime;
        while self.sending.len() > most {
            let next = async { timeout(REPORT_EVERY, self.sending.join_next()).await };
            match runtime.block_on(next) {
                Ok(Some(sent)) => sent.map_err(|error| {
                    BackupError::Other(format!("an upload was not finished: {error}"))
                })??,
                Ok(None) => {}
                Err(_) => progress(0)?,
            }
            self.renew()?;
        }
        Ok(())
    }

    /// Renews the claim to the place if that is due.
    pub fn renew(&mut self) -> Result<(), BackupError> {
        match &mut self.claim {
            Some(claim) => self.snapshots.runtime.block_on(claim.renew(&self.snapshots.place)),
            None => Ok(()),
        }
    }

    /// Waits until everything is there, and returns the files with their pieces, ordered by path.
    pub fn finish(
        &mut self,
        progress: Progress<'_>,
    ) -> Result<(Vec<File>, Vec<Vec<Piece>>), BackupError> {
        self.send_pack(progress)?;
        self.wait_until(0, progress)?;
        let files = std::mem::take(&mut self.files).into_iter();
        let mut both: Vec<_> = files.zip(std::mem::take(&mut self.pieces)).collect();
        both.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
        Ok(both.into_iter().unzip())
    }

    /// Returns the keys of all objects that are there.
    pub fn objects(&self) -> impl Iterator<Item = String> + '_ {
        self.objects.keys().cloned()
    }

    /// Whether a file was added.
    pub fn has(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
    }
}
