//! Snapshots of a data directory in a bucket, or in a directory with the same objects:
//!
//! ```text
//! PREFIX/orrery.json                            whose snapshots these are; written once
//! PREFIX/key.age                                the key of all other objects, if they are encrypted
//! PREFIX/objects/ab/abcd…                       content, named by its SHA-256; many small files share one
//! PREFIX/snapshots/2026-11-24T10-45-00.123Z.json    what a snapshot consists of, signed; written last
//! PREFIX/claim.json                             who writes at present
//! PREFIX/doomed.json                            objects that no snapshot needs, until they are removed
//! ```
//!
//! An object has at most 16 MiB, so that none is uploaded in parts: what an interrupted command leaves is
//! whole objects, which the next one finds.

mod age;
mod claim;
mod description;
mod doomed;
mod download;
mod make;
mod marker;
mod place;
mod upload;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};

pub use age::Passphrase;
pub use description::Description;
pub use doomed::Swept;
pub use make::{Options, Uploaded, make};
pub use marker::MARKER;
pub use place::Place;
pub use verify::Verified;

use super::{BackupError, Progress};
use age::Sealing;
use marker::Marker;

/// Length of the content of an object in bytes, at most.
const PART_BYTES: usize = 16 << 20;
/// Maximum length of an object in bytes, with what encryption adds.
const LONGEST_OBJECT: u64 = PART_BYTES as u64 + (1 << 20);
/// Number of threads for requests.
const THREADS: usize = 2;

/// Asks for the passphrase; the argument says whether a new place is encrypted with it.
pub type AskPassphrase<'a> = &'a mut dyn FnMut(bool) -> Result<Passphrase, BackupError>;

/// A place that has snapshots, and what opens them.
pub struct Snapshots {
    runtime: Runtime,
    place: Arc<Place>,
    marker: Marker,
    sealing: Option<Arc<Sealing>>,
}

/// A snapshot of a place.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its name, which is the time at which it was begun.
    pub name: String,
    /// What it consists of.
    pub description: Description,
}

fn runtime() -> Result<Runtime, BackupError> {
    let built = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    built.map_err(|error| BackupError::Other(format!("cannot start threads: {error}")))
}

impl Snapshots {
    /// Opens a place that has snapshots. `ask` is called when they are encrypted.
    ///
    /// # Errors
    /// When there are none, or they cannot be read.
    pub fn open(place: Place, ask: AskPassphrase<'_>) -> Result<Self, BackupError> {
        let runtime = runtime()?;
        let Some(marker) = runtime.block_on(Marker::of(&place))? else {
            return Err(BackupError::Other(format!(
                "there is no snapshot in {}: name the place that `orrery backup --to` was given",
                place.name("")
            )));
        };
        let place = Arc::new(place);
        let mut opened = Self { runtime, place, marker, sealing: None };
        opened.unlock(ask)?;
        Ok(opened)
    }

    /// Reads the key of an encrypted place.
    fn unlock(&mut self, ask: AskPassphrase<'_>) -> Result<(), BackupError> {
        if !self.marker.encrypted {
            return Ok(());
        }
        let key = self.runtime.block_on(marker::existing_key(&self.place, &ask(false)?))?;
        let missing = || {
            BackupError::Other(format!(
                "{} is missing, without which nothing can be decrypted: use another backup",
                self.place.name(marker::KEY)
            ))
        };
        self.sealing = Some(Arc::new(key.ok_or_else(missing)?));
        Ok(())
    }

    /// Returns the location for messages.
    pub fn place(&self) -> String {
        self.place.name("")
    }

    /// Returns the writer's public key, in hexadecimal.
    pub fn writer(&self) -> &str {
        &self.marker.writer
    }

    /// Returns the passphrase of the network.
    pub fn network_passphrase(&self) -> &str {
        &self.marker.network_passphrase
    }

    /// Refuses snapshots that another key has signed.
    ///
    /// # Errors
    /// When that is so.
    pub fn check_writer(&self, trusted: &str) -> Result<(), BackupError> {
        if self.marker.writer == trusted {
            return Ok(());
        }
        Err(BackupError::Other(format!(
            "the snapshots in {} are signed by {}, not by {trusted}: use the place of that writer, or give \
             the key that it prints when it makes a snapshot",
            self.place(),
            self.marker.writer
        )))
    }

    /// Returns the names of all snapshots, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, BackupError> {
        let listed = self.runtime.block_on(self.place.list(description::SNAPSHOTS, usize::MAX))?;
        let names = listed.iter().filter_map(|it| description::name_of(&it.key, &self.marker));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Reads the snapshot of this name, or the newest.
    ///
    /// # Errors
    /// When there is none, or it was changed.
    pub fn find(&self, name: Option<&str>) -> Result<Snapshot, BackupError> {
        let names = self.names()?;
        let found = match name {
            Some(name) => names.iter().find(|it| *it == name),
            None => names.last(),
        };
        match (found, name) {
            (Some(found), _) => self.read(found),
            (None, Some(name)) => Err(BackupError::Other(format!(
                "there is no snapshot {name} in {}: its snapshots are {}",
                self.place(),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            ))),
            (None, None) => Err(BackupError::Other(format!(
                "there is no complete snapshot in {}: make one with `orrery backup --to`",
                self.place()
            ))),
        }
    }

    /// Reads a snapshot.
    fn read(&self, name: &str) -> Result<Snapshot, BackupError> {
        let key = description::key_of(name, &self.marker);
        let damaged = || {
            BackupError::Other(format!(
                "{} differs from what was written: use another snapshot",
                self.place.name(&key)
            ))
        };
        let text = self.runtime.block_on(self.place.get(&key))?.ok_or_else(damaged)?;
        let text = self.opened(text).ok_or_else(damaged)?;
        let description = Description::read(&text, &self.marker).ok_or_else(damaged)?;
        if description.manifest.taken != name {
            return Err(damaged());
        }
        Ok(Snapshot { name: name.to_owned(), description })
    }

    /// Returns the content of an object; `None` when it was changed.
    fn opened(&self, bytes: Bytes) -> Option<Bytes> {
        match &self.sealing {
            Some(sealing) => sealing.open(&bytes).ok().map(Bytes::from),
            None => Some(bytes),
        }
    }

    /// Returns the lengths of all objects by their keys.
    fn objects(&self) -> Result<BTreeMap<String, u64>, BackupError> {
        let listed = self.runtime.block_on(self.place.list(description::OBJECTS, usize::MAX))?;
        Ok(listed.into_iter().map(|it| (it.key, it.bytes)).collect())
    }
}
