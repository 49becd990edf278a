//! The object that says whose snapshots a place has: written once, before anything else.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::age::{AgeError, Passphrase, Sealing};
use super::place::Place;
use crate::auth::is_public_key;
use crate::backup::BackupError;
use crate::domain::Network;

/// Key of the object.
pub const MARKER: &str = "orrery.json";
/// Key of the object from whose header the key of all encrypted objects is read.
pub const KEY: &str = "key.age";
/// Content of that object, which no other one needs.
const KEY_CONTENT: &[u8] = b"The key of the snapshots here. Nothing else is in this file.\n";
/// Version of the layout that this build writes, and the newest that it reads.
const FORMAT: u32 = 1;

/// Whose snapshots a place has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Version of the layout.
    pub format: u32,
    /// Passphrase of the network.
    pub network_passphrase: String,
    /// Public key of the data directory that writes here, in hexadecimal.
    pub writer: String,
    /// Whether all other objects are encrypted.
    pub encrypted: bool,
}

/// A value with the SHA-256 of its compact JSON. It is accepted only if it is, byte for byte, what this
/// version would write.
#[derive(Serialize, Deserialize)]
struct Summed<T> {
    sha256: String,
    content: T,
}

/// Returns a value as the bytes of an object.
fn summed<T: Serialize + Clone>(content: &T) -> Result<Vec<u8>, serde_json::Error> {
    let sha256 = hex::encode(Sha256::digest(serde_json::to_vec(content)?));
    let mut text = serde_json::to_vec_pretty(&Summed { sha256, content: content.clone() })?;
    text.push(b'\n');
    Ok(text)
}

/// Reads such an object; `None` when a byte of it was changed.
fn read_summed<T: Serialize + DeserializeOwned + Clone>(text: &[u8]) -> Option<T> {
    let found: Summed<T> = serde_json::from_slice(text).ok()?;
    let same = summed(&found.content).ok()?;
    (same == text).then_some(found.content)
}

impl Marker {
    /// The marker of a place to which a data directory begins to write.
    pub fn new(network: &Network, writer: String, encrypted: bool) -> Self {
        let network_passphrase = network.passphrase().to_owned();
        Self { format: FORMAT, network_passphrase, writer, encrypted }
    }

    /// Reads the marker of a place; `None` when there is none.
    ///
    /// # Errors
    /// When it is damaged, or of a later version.
    pub async fn of(place: &Place) -> Result<Option<Self>, BackupError> {
        let Some(text) = place.get(MARKER).await? else { return Ok(None) };
        let name = place.name(MARKER);
        let damaged = || {
            BackupError::Other(format!(
                "{name} differs from what was written: use another backup, or write to another place"
            ))
        };
        let format = serde_json::from_slice::<serde_json::Value>(&text).ok();
        let format = format.and_then(|it| it["content"]["format"].as_u64());
        if format.is_some_and(|format| format > u64::from(FORMAT)) {
            return Err(BackupError::Other(format!(
                "{name} is of a later version of orrery: use the version that wrote it"
            )));
        }
        let marker: Self = read_summed(&text).ok_or_else(damaged)?;
        if is_public_key(&marker.writer) { Ok(Some(marker)) } else { Err(damaged()) }
    }

    /// Writes the marker to a place that has none. Returns whether no other one was written meanwhile.
    pub async fn create(&self, place: &Place) -> Result<bool, BackupError> {
        let text = summed(self).map_err(|error| BackupError::Other(error.to_string()))?;
        place.create(MARKER, text.into()).await
    }

    /// Refuses snapshots of another network.
    pub fn check_network(&self, network: &Network, place: &Place) -> Result<(), BackupError> {
        if self.network_passphrase == network.passphrase() {
            return Ok(());
        }
        let stored = Network::from_passphrase(self.network_passphrase.clone());
        Err(BackupError::Other(format!(
            "{} has snapshots of {stored}, not of {network}: give another place for {network}",
            place.name("")
        )))
    }
}

/// Reads the key of an encrypted place.
///
/// # Errors
/// When it is missing or damaged, or the passphrase is not that of the place.
pub async fn existing_key(
    place: &Place,
    passphrase: &Passphrase,
) -> Result<Option<Sealing>, BackupError> {
    let Some(sealed) = place.get(KEY).await? else { return Ok(None) };
    let name = place.name(KEY);
    let refused = |error: AgeError| {
        BackupError::Other(match error {
            AgeError::Passphrase => {
                format!(
                    "{name} is not opened by this passphrase: give the one with which the snapshots were \
                     encrypted"
                )
            }
            other => format!("{name} cannot be read: {other}"),
        })
    };
    let sealing = Sealing::of(&sealed, passphrase).map_err(refused)?;
    let content = sealing.open(&sealed).map_err(refused)?;
    if content == KEY_CONTENT { Ok(Some(sealing)) } else { Err(refused(AgeError::Content)) }
}

/// Creates the key of a place that is to be encrypted.
///
/// # Errors
/// When the passphrase is too short, or it cannot be written.
pub async fn create_key(place: &Place, passphrase: &Passphrase) -> Result<Sealing, BackupError> {
    let sealing = Sealing::begin(passphrase)?;
    let sealed = sealing.seal(KEY_CONTENT);
    let sealed = sealed.map_err(|error| BackupError::Other(error.to_string()))?;
    if place.create(KEY, sealed.into()).await? {
        return Ok(sealing);
    }
    let other = existing_key(place, passphrase).await?;
    other.ok_or_else(|| BackupError::Other(format!("{} has vanished", place.name(KEY))))
}
