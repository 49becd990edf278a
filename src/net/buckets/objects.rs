//! Reads and writes objects of a bucket in S3 or an S3-compatible store, at Google or in Azure. Objects are
//! written as a whole; a conditional write replaces an object only if no other writer has changed it meanwhile.
//! Requests are repeated for a while where the server, or the way to it, fails for a moment.

use std::sync::Arc;

use bytes::Bytes;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use super::patience::Patience;
use super::transport::{Refusal, refusal};
use super::{AddressError, BucketSettings};

const S3: &str = "s3";
/// Schemes of addresses of buckets.
const SCHEMES: [&str; 3] = [S3, "gs", "az"];

/// Error while reading or writing objects.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The settings of the bucket cannot be used.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The object was changed since it was read, or exists already.
    #[error("{0} was changed by another writer in the meantime")]
    Changed(String),
    /// The request failed, perhaps temporarily, or the bucket cannot be used so.
    #[error("{0}")]
    Failed(String),
}

/// Version of an object when it was read or written: its entity tag (RFC 9110 section 8.8.3), and the number
/// by which Google compares versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion {
    tag: String,
    number: Option<String>,
}

/// An object as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its key, without the prefix of the bucket's settings.
    pub key: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A bucket and the prefix of all its keys.
pub struct Objects {
    store: Arc<dyn ObjectStore>,
    listing: Arc<dyn PaginatedListStore>,
    parts: Arc<dyn MultipartStore>,
    /// Whether this is a bucket of S3 or an S3-compatible store.
    is_s3: bool,
    /// Empty, or ends with a slash.
    prefix: String,
    /// Location for messages, without a trailing slash.
    place: String,
    patience: Patience,
}

impl Objects {
    /// Opens the bucket that the settings and the process's environment describe. Sends no request.
    ///
    /// # Errors
    /// [`ObjectsError::Address`] when the settings are invalid or belong to another kind of store.
    pub fn open(settings: &BucketSettings) -> Result<Self, ObjectsError> {
        let environment = |name: &str| std::env::var(name).ok();
        let given = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let none = || {
            settings.wrong(
                "write s3://bucket/prefix, gs://bucket/prefix or az://container/prefix".to_owned(),
            )
        };
        let scheme = settings.address.split_once("://").map(|(scheme, _)| scheme.to_lowercase());
        let scheme = scheme.filter(|scheme| SCHEMES.contains(&&**scheme)).ok_or_else(none)?;
        let root = settings.open(given)?;
        Ok(Self {
            store: root.store,
            listing: root.listing.ok_or_else(none)?,
            parts: root.parts.ok_or_else(none)?,
            is_s3: scheme == S3,
            prefix: root.prefix,
            place: root.place,
            patience: settings.patience,
        })
    }

    pub(super) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }

    /// Returns the client for objects that are sent in parts.
    pub(super) fn parts(&self) -> &dyn MultipartStore {
        &*self.parts
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// Returns the full name of a key, or of the bucket and prefix for an empty key, for messages.
    /// Holds no secrets.
    pub fn place(&self, key: &str) -> String {
        if key.is_empty() { self.place.clone() } else { format!("{}/{key}", self.place) }
    }

    /// Returns an object with its version; `None` when the key does not exist.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn get(&self, key: &str) -> Result<Option<(Bytes, ObjectVersion)>, ObjectsError> {
        let reading = self.patience.ask(|| async {
            let found = self.store.get(&self.path(key)?).await?;
            let version = (found.meta.e_tag.clone(), found.meta.version.clone());
            Ok::<_, StoreError>((found.bytes().await?, version))
        });
        match reading.await {
            Ok((bytes, version)) => Ok(Some((bytes, self.version(key, version)?))),
            Err(error) => match self.error(key, &error) {
                (Refusal::Missing, _) => Ok(None),
                (_, error) => Err(error),
            },
        }
    }

    /// Writes an object, and replaces an existing one.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectsError> {
        self.write(key, bytes, PutMode::Overwrite).await.map(drop)
    }

    /// Writes an object if its version is still `before`, or if it does not exist when `before` is
    /// `None`. After any error except [`ObjectsError::Changed`], the caller cannot tell whether the
    /// object was written.
    ///
    /// # Errors
    /// All.
    pub async fn replace(
        &self,
        key: &str,
        bytes: Bytes,
        before: Option<&ObjectVersion>,
    ) -> Result<ObjectVersion, ObjectsError> {
        let update = |ObjectVersion { tag, number }: &ObjectVersion| {
            PutMode::Update(UpdateVersion { e_tag: Some(tag.clone()), version: number.clone() })
        };
        self.write(key, bytes, before.map_or(PutMode::Create, update)).await
    }

    /// Deletes an object; succeeds when it does not exist.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn remove(&self, key: &str) -> Result<(), ObjectsError> {
        let removed =
            self.patience.ask(|| async { self.store.delete(&self.path(key)?).await }).await;
        match removed.map_err(|error| self.error(key, &error)) {
            Ok(()) | Err((Refusal::Missing, _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Returns up to `most` keys that begin with `begin`.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn keys(&self, begin: &str, most: usize) -> Result<Vec<String>, ObjectsError> {
        let listed = self.list(begin, most).await?;
        Ok(listed.into_iter().map(|object| object.key).collect())
    }

    /// Returns up to `most` objects whose keys begin with `begin`, in the order of their keys.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn list(&self, begin: &str, most: usize) -> Result<Vec<Listed>, ObjectsError> {
        let prefix = format!("{}{begin}", self.prefix);
        let prefix = Some(&*prefix).filter(|prefix| !prefix.is_empty());
        let mut options = PaginatedListOptions::default();
        let mut listed = Vec::new();
        loop {
            let list = || async { self.listing.list_paginated(prefix, options.clone()).await };
            let page = self.patience.ask(list).await;
            let page = page.map_err(|error| self.error(begin, &error).1)?;
            let below = page.result.objects.iter().filter_map(|object| {
                let key = object.location.as_ref().strip_prefix(&*self.prefix)?.to_owned();
                Some(Listed { key, bytes: object.size })
            });
            listed.extend(below.take(most - listed.len()));
            options.page_token = page.page_token;
            if listed.len() >= most || options.page_token.is_none() {
                return Ok(listed);
            }
        }
    }

    async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<ObjectVersion, ObjectsError> {
        let (replaces, is_conditional) =
            (matches!(mode, PutMode::Update(_)), !matches!(mode, PutMode::Overwrite));
        let mut sent = 0;
        let written = self.patience.ask(|| {
            sent += 1;
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            let payload = PutPayload::from_bytes(bytes.clone());
            async move { self.store.put_opts(&self.path(key)?, payload, options).await }
        });
        let error = match written.await {
            Ok(written) => return self.version(key, (written.e_tag, written.version)),
            Err(error) => error,
        };
        let error = match self.error(key, &error) {
            // The object to replace no longer exists.
            (Refusal::Missing, _) if replaces => ObjectsError::Changed(self.place(key)),
            (Refusal::NoSuchMethod(words), _) if is_conditional => ObjectsError::Failed(format!(
                "{} cannot be written: {words} to a conditional write (If-Match, \
                     If-None-Match), by which two writers of one place notice each other: update the \
                     store, or give one that has conditional writes",
                self.place(key)
            )),
            (_, error) => error,
        };
        if sent > 1 && matches!(error, ObjectsError::Changed(_)) {
            // The write that failed before may have been this one.
            if let Some((found, version)) = self.get(key).await?
                && found == bytes
            {
                return Ok(version);
            }
        }
        Err(error)
    }

    pub(super) fn path(&self, key: &str) -> object_store::Result<Path> {
        Ok(Path::parse(format!("{}{key}", self.prefix))?)
    }

    fn version(
        &self,
        key: &str,
        (tag, number): (Option<String>, Option<String>),
    ) -> Result<ObjectVersion, ObjectsError> {
        tag.map(|tag| ObjectVersion { tag, number }).ok_or_else(|| {
            ObjectsError::Failed(format!(
                "cannot use {}: the server sends no ETag for its objects, so that concurrent writers \
                 cannot be detected",
                self.place(key)
            ))
        })
    }

    pub(super) fn error(&self, key: &str, error: &StoreError) -> (Refusal, ObjectsError) {
        let (refusal, place) = (refusal(error), self.place(key));
        let error = match refusal.clone() {
            Refusal::Changed(_) => ObjectsError::Changed(place),
            Refusal::Forbidden(reason) | Refusal::Credentials(reason) => {
                let rights = match self.is_s3 {
                    true => " (s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket)",
                    false => "",
                };
                ObjectsError::Failed(format!(
                    "{place} may not be used: {reason}; check bucket and prefix, and that the \
                     credentials may read, write, delete and list objects there{rights}"
                ))
            }
            Refusal::OtherRegion { right, .. } => {
                let right = right.map_or_else(
                    || ": set the one that it is in".to_owned(),
                    |right| format!(" but in {right}: set that region"),
                );
                ObjectsError::Failed(format!("{place} is not in the region that was given{right}"))
            }
            other => ObjectsError::Failed(format!("cannot use {place}: {other}")),
        };
        (refusal, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_not_buckets_are_refused() {
        for (address, reason) in [
            ("/srv/lake", "write s3://bucket/prefix"),
            ("https://host/x", "write s3://bucket/prefix, gs://bucket/prefix or az://"),
            ("s3://", "the address s3:// cannot be used: it names no bucket"),
            ("s3://id:secret@bucket/x", "and nothing else"),
            ("s3://bucket/a/../b", "without . and .."),
        ] {
            let error =
                Objects::open(&BucketSettings::at(address)).err().expect(address).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn object_addresses_are_displayed() {
        let objects = Objects::open(&BucketSettings::at("s3://bucket/a/b/")).unwrap();
        assert_eq!(objects.place(""), "s3://bucket/a/b");
        assert_eq!(objects.place("manifest.json"), "s3://bucket/a/b/manifest.json");
    }
}
