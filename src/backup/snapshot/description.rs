//! What a snapshot consists of: an object that is written last, and signed with the writer's key.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::PART_BYTES;
use super::age::Sealing;
use super::marker::Marker;
use crate::auth::{DirectoryKey, is_signed_by};
use crate::backup::BackupError;
use crate::backup::manifest::Manifest;

/// Directory of the objects with content.
pub const OBJECTS: &str = "objects/";
/// Directory of the descriptions.
pub const SNAPSHOTS: &str = "snapshots/";
/// Suffix of encrypted objects.
const ENCRYPTED: &str = ".age";
/// What precedes a description when it is signed, so that the signature is of nothing else.
const SIGNED: &[u8] = b"orrery snapshot 1\n";
/// Digits of a SHA-256.
const HASH_DIGITS: usize = 64;

/// What a snapshot consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its files, as those of a backup.
    pub manifest: Manifest,
    /// For each file, in the same order, the pieces that make it up.
    pub pieces: Vec<Vec<Piece>>,
    /// Whether it has keys and tokens.
    pub secrets: bool,
    /// Ids of the tokens that are revoked, each with the UNIX time in seconds; empty in a snapshot with keys and tokens,
    /// where the list itself is a file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revoked: BTreeMap<String, u64>,
}

/// A piece of a file, which is an object or a part of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Key of the object, below [`OBJECTS`].
    pub object: String,
    /// Position in the object's content, in bytes.
    pub at: u64,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

impl Piece {
    /// Whether an object can have it.
    fn is_sound(&self) -> bool {
        let end = self.at.checked_add(self.size);
        self.size > 0
            && end.is_some_and(|end| end <= PART_BYTES as u64)
            && is_hash(&self.sha256)
            && is_object(&self.object)
    }
}

/// Layout of the object.
#[derive(Serialize, Deserialize)]
struct Signed {
    key: String,
    signature: String,
    description: Description,
}

impl Description {
    /// Whether pieces make up the files, of which each is there once, and their objects are ones that this program
    /// writes.
    fn is_sound(&self) -> bool {
        let files = self.manifest.files.iter().zip(&self.pieces);
        self.manifest.is_sound()
            && self.manifest.files.len() == self.pieces.len()
            && self.manifest.files.is_sorted_by(|a, b| a.path < b.path)
            && files.clone().all(|(file, pieces)| {
                let sizes = pieces.iter().try_fold(0u64, |sum, piece| sum.checked_add(piece.size));
                sizes == Some(file.size)
            })
            && files.flat_map(|(_, pieces)| pieces).all(Piece::is_sound)
    }

    /// Returns the objects that the snapshot needs.
    pub fn objects(&self) -> BTreeSet<&str> {
        self.pieces.iter().flatten().map(|piece| &*piece.object).collect()
    }

    /// Returns the bytes of the object, signed.
    pub fn signed(&self, key: &DirectoryKey) -> Result<Vec<u8>, BackupError> {
        let failed = |error: serde_json::Error| BackupError::Other(error.to_string());
        let signature = key.sign(&self.message().map_err(failed)?);
        let signed = Signed { key: key.public(), signature, description: self.clone() };
        signed.text().map_err(failed)
    }

    fn message(&self) -> Result<Vec<u8>, serde_json::Error> {
        Ok([SIGNED, &serde_json::to_vec(self)?].concat())
    }

    /// Reads the bytes of the object; `None` when a byte of it was changed, or it is not signed by the writer of
    /// the place.
    pub fn read(text: &[u8], marker: &Marker) -> Option<Self> {
        let found: Signed = serde_json::from_slice(text).ok()?;
        let is_same = found.text().is_ok_and(|same| same == text);
        let message = found.description.message().ok()?;
        let is_signed =
            found.key == marker.writer && is_signed_by(&found.key, &message, &found.signature);
        let description = found.description;
        let is_of_network = description.manifest.network_passphrase == marker.network_passphrase;
        (is_same && is_signed && is_of_network && description.is_sound()).then_some(description)
    }
}

impl Signed {
    fn text(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Returns the key of the description of a snapshot.
pub fn key_of(name: &str, marker: &Marker) -> String {
    format!("{SNAPSHOTS}{name}.json{}", suffix(marker.encrypted))
}

/// Returns the name of the snapshot that a key is the description of.
pub fn name_of<'a>(key: &'a str, marker: &Marker) -> Option<&'a str> {
    let name = key.strip_prefix(SNAPSHOTS)?.strip_suffix(suffix(marker.encrypted))?;
    name.strip_suffix(".json").filter(|name| crate::backup::is_name(name))
}

/// Returns the key of an object whose content has this hash.
pub fn object_of(sha256: &[u8], sealing: Option<&Sealing>) -> Result<String, BackupError> {
    let name = match sealing {
        Some(sealing) => sealing.name(sha256).map_err(|it| BackupError::Other(it.to_string()))?,
        None => hex::encode(sha256),
    };
    Ok(format!("{OBJECTS}{}/{name}{}", &name[..2], suffix(sealing.is_some())))
}

fn suffix(is_encrypted: bool) -> &'static str {
    if is_encrypted { ENCRYPTED } else { "" }
}

fn is_hash(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == HASH_DIGITS && text.bytes().all(is_digit)
}

/// Whether a key is one that [`object_of`] returns: no other object is read or removed.
pub fn is_object(key: &str) -> bool {
    let Some(rest) = key.strip_prefix(OBJECTS) else { return false };
    let Some((directory, name)) = rest.split_once('/') else { return false };
    let name = name.strip_suffix(ENCRYPTED).unwrap_or(name);
    is_hash(name) && directory == &name[..2]
}
