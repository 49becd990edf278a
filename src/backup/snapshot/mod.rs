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
use crate::domain::Network;
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

/// What the snapshots of a place must be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected<'a> {
    /// The public key that has signed them, in hexadecimal.
    pub writer: Option<&'a str>,
    /// Their network.
    pub network: Option<&'a Network>,
    /// Whether they must be encrypted.
    pub encrypted: bool,
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
    /// When there are none, they are not what is expected, or they cannot be read.
    pub fn open(
        place: Place,
        expected: &Expected<'_>,
        ask: AskPassphrase<'_>,
    ) -> Result<Self, BackupError> {
        let runtime = runtime()?;
        let Some(marker) = runtime.block_on(Marker::of(&place))? else {
            return Err(BackupError::Other(format!(
                "there is no snapshot in {}: name the place that `orrery backup --to` was given",
                place.name("")
            )));
        };
        let place = Arc::new(place);
        let mut opened = Self { runtime, place, marker, sealing: None };
        // Before anybody types a passphrase, and a key is derived from it.
        opened.check(expected)?;
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

    /// Refuses snapshots that are not what is expected.
    fn check(&self, expected: &Expected<'_>) -> Result<(), BackupError> {
        let Marker { writer, encrypted, .. } = &self.marker;
        if let Some(trusted) = expected.writer.filter(|trusted| trusted != writer) {
            return Err(BackupError::Other(format!(
                "the snapshots in {} are signed by {writer}, not by {trusted}: use the place of that writer, or \
                 give the key that it prints when it makes a snapshot",
                self.place(),
            )));
        }
        if let Some(network) = expected.network {
            self.marker.check_network(network, &self.place)?;
        }
        if expected.encrypted && !encrypted {
            // Otherwise whoever can write there could put others in place of those that only the passphrase makes.
            return Err(BackupError::Other(format!(
                "the snapshots in {} are not encrypted, and a passphrase is given: use the place of the encrypted \
                 ones, or leave the passphrase out if these are the right ones",
                self.place()
            )));
        }
        Ok(())
    }

    /// Returns the names of all snapshots, oldest first.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, BackupError> {
        let listed = self.runtime.block_on(self.place.all(description::SNAPSHOTS))?;
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
        self.undamaged(name)?.ok_or_else(|| {
            BackupError::Other(format!(
                "{} differs from what was written: use another snapshot",
                self.place.name(&description::key_of(name, &self.marker))
            ))
        })
    }

    /// Reads a snapshot; `None` when its description was changed or removed.
    fn undamaged(&self, name: &str) -> Result<Option<Snapshot>, BackupError> {
        let key = description::key_of(name, &self.marker);
        let text = self.runtime.block_on(self.place.get(&key))?;
        let text = text.and_then(|text| self.opened(text));
        let description = text.and_then(|text| Description::read(&text, &self.marker));
        let description = description.filter(|it| it.manifest.taken == name);
        Ok(description.map(|description| Snapshot { name: name.to_owned(), description }))
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
        let listed = self.runtime.block_on(self.place.all(description::OBJECTS))?;
        Ok(listed.into_iter().map(|it| (it.key, it.bytes)).collect())
    }
}

#[cfg(test)]
mod tests;
