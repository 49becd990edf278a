//! Keeps two commands from writing to one place at a time: in a bucket an object that names the present writer and
//! until when, replaced only by whoever has read it; in a directory a lock.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::UtcDateTime;
use time::macros::format_description;
use tokio::time::timeout;

use super::description::{OBJECTS, SNAPSHOTS};
use super::place::Place;
use crate::backup::copy::Lock;
use crate::backup::{BackupError, LOCK, copy};
use crate::net::buckets::ObjectVersion;
use crate::steady::unix_now;

/// Key of the object.
pub const CLAIM: &str = "claim.json";
/// Time in seconds after a write of the object for which its writer keeps the claim.
const CLAIM_SECONDS: u64 = 600;
/// Time in seconds after which a claim is renewed.
const RENEW_SECONDS: u64 = 120;

/// Timeout of the request that releases the place.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Who writes, and until when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Claimed {
    id: String,
    /// UNIX time in seconds.
    until: u64,
}

/// The right to write to a place, until it is released.
pub struct Claim {
    id: String,
    version: Option<ObjectVersion>,
    /// UNIX time in seconds.
    until: u64,
    _lock: Option<Lock>,
}

impl Claim {
    /// Takes the place for the writer of this id. One that was killed goes on at once under the same id; others
    /// wait until its claim has ended.
    ///
    /// # Errors
    /// [`BackupError::Claimed`] or [`BackupError::InUse`] while another one writes there.
    pub async fn take(place: &Place, id: &str) -> Result<Self, BackupError> {
        if let Some(root) = place.directory() {
            copy::make_directory(root)?;
            let lock = Lock::take(&root.join(LOCK))?;
            let lock = lock.ok_or_else(|| BackupError::InUse(root.to_owned()))?;
            [OBJECTS, SNAPSHOTS].into_iter().try_for_each(|begin| place.remove_drafts(begin))?;
            return Ok(Self {
                id: id.to_owned(),
                version: None,
                until: u64::MAX,
                _lock: Some(lock),
            });
        }
        let found = place.versioned(CLAIM).await?;
        let mut before = None;
        if let Some((text, version)) = found {
            // What cannot be read claims nothing.
            let claimed: Option<Claimed> = serde_json::from_slice(&text).ok();
            let other = claimed.filter(|it| it.id != id && it.until > unix_now());
            if let Some(other) = other {
                return Err(claimed_until(place, other.until));
            }
            before = version;
        }
        let mut claim = Self { id: id.to_owned(), version: before, until: 0, _lock: None };
        if claim.write(place).await? {
            Ok(claim)
        } else {
            Err(claimed_until(place, unix_now().saturating_add(CLAIM_SECONDS)))
        }
    }

    /// Renews the claim if that is due.
    ///
    /// # Errors
    /// When another one has taken the place meanwhile.
    pub async fn renew(&mut self, place: &Place) -> Result<(), BackupError> {
        if place.directory().is_some()
            || unix_now().saturating_add(CLAIM_SECONDS - RENEW_SECONDS) < self.until
            || self.write(place).await?
        {
            return Ok(());
        }
        Err(BackupError::Other(format!(
            "another command has begun to write to {} meanwhile: run this one again later",
            place.name("")
        )))
    }

    async fn write(&mut self, place: &Place) -> Result<bool, BackupError> {
        let until = unix_now().saturating_add(CLAIM_SECONDS);
        let version = self.put(place, until).await?;
        let is_ours = version.is_some();
        if is_ours {
            (self.version, self.until) = (version, until);
        }
        Ok(is_ours)
    }

    async fn put(&self, place: &Place, until: u64) -> Result<Option<ObjectVersion>, BackupError> {
        let text = serde_json::to_vec(&Claimed { id: self.id.clone(), until });
        let text = text.map_err(|error| BackupError::Other(error.to_string()))?;
        place.replace(CLAIM, text.into(), self.version.as_ref()).await
    }

    /// Releases the place, so that others may write at once.
    pub async fn release(self, place: &Place) {
        if place.directory().is_none() {
            // If that fails, it ends by itself.
            let _ = timeout(RELEASE_TIMEOUT, self.put(place, 0)).await;
        }
    }
}

/// Returns the error for a place to which another command writes.
fn claimed_until(place: &Place, until: u64) -> BackupError {
    let format =
        format_description!("until [year]-[month]-[day] [hour]:[minute] UTC at the latest");
    let time = i64::try_from(until).ok().and_then(|at| UtcDateTime::from_unix_timestamp(at).ok());
    let until = time.and_then(|time| time.format(format).ok());
    BackupError::Claimed {
        place: place.name(""),
        until: until.unwrap_or_else(|| "without an end".to_owned()),
        claim: place.name(CLAIM),
    }
}
