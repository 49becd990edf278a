//! A bucket of S3, or of a store that is like it, that is written to. It is reached with the settings, the client and
//! the words for refusals of a lake's; objects are written as a whole, and one may be replaced only if nobody else has
//! changed it meanwhile.

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use super::buckets::Bucket;
use super::remote::refusal;
use super::transport::Refusal;
use super::{LakeError, LakeSettings};

const SCHEME: &str = "s3";

/// Why objects cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The settings of the bucket cannot be used.
    #[error("the address {address} cannot be used: {reason}")]
    Address {
        /// As it was given, without secrets.
        address: String,
        /// What is wrong, and what to give.
        reason: String,
    },
    /// The object is not the one that it was, or is there already.
    #[error("{0} was changed by somebody else meanwhile")]
    Changed(String),
    /// The store does not allow it.
    #[error(
        "{place} may not be used: {reason}; check bucket and prefix, and that the credentials may read, \
         write, delete and list objects there (s3:GetObject, s3:PutObject, s3:DeleteObject, s3:ListBucket)"
    )]
    Refused {
        /// What was asked for.
        place: String,
        /// What the store says.
        reason: String,
    },
    /// The bucket lies in another region.
    #[error(
        "{place} is not in the region that was given{}",
        right.as_ref().map_or_else(
            || ": set the one that it is in".to_owned(),
            |right| format!(" but in {right}: set that region"),
        )
    )]
    WrongRegion {
        /// What was asked for.
        place: String,
        /// The region, when the store names it.
        right: Option<String>,
    },
    /// It did not work, and may work later.
    #[error("cannot use {place}: {reason}")]
    Failed {
        /// What was asked for.
        place: String,
        /// What the store or the transport says.
        reason: String,
    },
}

/// What an object was when it was read or written (its entity tag, RFC 9110 section 8.8.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectVersion(String);

/// A bucket and what is before every key in it.
pub struct Objects {
    store: AmazonS3,
    /// Empty, or with a slash at its end.
    prefix: String,
    /// For messages, without a slash at its end.
    place: String,
}

impl Objects {
    /// The bucket that settings lead to, with what the process's environment adds. Asks nothing yet.
    ///
    /// # Errors
    /// [`ObjectsError::Address`] when the settings make no sense, or are those of another kind of store.
    pub fn open(settings: &LakeSettings) -> Result<Self, ObjectsError> {
        let environment = |name: &str| std::env::var(name).ok();
        let given = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let path = match settings.address.split_once("://") {
            Some((scheme, path)) if scheme.eq_ignore_ascii_case(SCHEME) => path,
            _ => return Err(settings.wrong("write s3://bucket/prefix").into()),
        };
        let bucket = Bucket::read(settings, SCHEME, path)?;
        let (prefix, place) = bucket.prefix_and_place(SCHEME);
        Ok(Self { store: bucket.writable_s3(given)?, prefix, place })
    }

    /// The full name of a key, or of the whole place for an empty one, for messages. Holds no secrets.
    pub fn place(&self, key: &str) -> String {
        if key.is_empty() { self.place.clone() } else { format!("{}/{key}", self.place) }
    }

    /// An object with its version; none when there is no such key.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn get(&self, key: &str) -> Result<Option<(Bytes, ObjectVersion)>, ObjectsError> {
        let reading = async {
            let found = self.store.get(&self.path(key)?).await?;
            let version = found.meta.e_tag.clone();
            Ok::<_, StoreError>((found.bytes().await?, version))
        };
        match reading.await {
            Ok((bytes, version)) => Ok(Some((bytes, self.version(key, version)?))),
            Err(error) => match self.error(key, &error) {
                (Refusal::Missing, _) => Ok(None),
                (_, error) => Err(error),
            },
        }
    }

    /// Writes an object, whether it is there or not.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), ObjectsError> {
        self.write(key, bytes, PutMode::Overwrite).await.map(drop)
    }

    /// Writes an object that must be what it was at `before`, or must not be there when that is none. Who gets an
    /// error, but for [`ObjectsError::Changed`], does not know whether it was written.
    ///
    /// # Errors
    /// All.
    pub async fn replace(
        &self,
        key: &str,
        bytes: Bytes,
        before: Option<&ObjectVersion>,
    ) -> Result<ObjectVersion, ObjectsError> {
        let update = |ObjectVersion(tag): &ObjectVersion| {
            PutMode::Update(UpdateVersion { e_tag: Some(tag.clone()), version: None })
        };
        self.write(key, bytes, before.map_or(PutMode::Create, update)).await
    }

    /// Removes an object, if it is there.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn remove(&self, key: &str) -> Result<(), ObjectsError> {
        let removed = async { self.store.delete(&self.path(key)?).await }.await;
        match removed.map_err(|error| self.error(key, &error)) {
            Ok(()) | Err((Refusal::Missing, _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// All keys that begin with these letters, up to so many.
    ///
    /// # Errors
    /// All but [`ObjectsError::Changed`].
    pub async fn keys(&self, begin: &str, most: usize) -> Result<Vec<String>, ObjectsError> {
        let prefix = format!("{}{begin}", self.prefix);
        let prefix = Some(&*prefix).filter(|prefix| !prefix.is_empty());
        let mut options = PaginatedListOptions::default();
        let mut keys = Vec::new();
        loop {
            let page = self.store.list_paginated(prefix, options.clone()).await;
            let page = page.map_err(|error| self.error(begin, &error).1)?;
            let paths = page.result.objects.iter().map(|object| object.location.as_ref());
            let below = paths.filter_map(|path| path.strip_prefix(&*self.prefix));
            keys.extend(below.take(most - keys.len()).map(str::to_owned));
            options.page_token = page.page_token;
            if keys.len() >= most || options.page_token.is_none() {
                return Ok(keys);
            }
        }
    }

    async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        mode: PutMode,
    ) -> Result<ObjectVersion, ObjectsError> {
        let replaces = matches!(mode, PutMode::Update(_));
        let options = PutOptions { mode, ..PutOptions::default() };
        let payload = PutPayload::from_bytes(bytes);
        let written = async { self.store.put_opts(&self.path(key)?, payload, options).await }.await;
        match written {
            Ok(written) => self.version(key, written.e_tag),
            Err(error) => Err(match self.error(key, &error) {
                // What was to be replaced is gone.
                (Refusal::Missing, _) if replaces => ObjectsError::Changed(self.place(key)),
                (_, error) => error,
            }),
        }
    }

    fn path(&self, key: &str) -> object_store::Result<Path> {
        Ok(Path::parse(format!("{}{key}", self.prefix))?)
    }

    fn version(&self, key: &str, tag: Option<String>) -> Result<ObjectVersion, ObjectsError> {
        let reason = "the server names no version of its objects (ETag), without which two that write \
                      cannot be told apart";
        let unknown = || ObjectsError::Failed { place: self.place(key), reason: reason.to_owned() };
        tag.map(ObjectVersion).ok_or_else(unknown)
    }

    fn error(&self, key: &str, error: &StoreError) -> (Refusal, ObjectsError) {
        let (refusal, place) = (refusal(error), self.place(key));
        let told = match refusal.clone() {
            Refusal::Changed(_) => ObjectsError::Changed(place),
            Refusal::Forbidden(reason) | Refusal::Credentials(reason) => {
                ObjectsError::Refused { place, reason }
            }
            Refusal::OtherRegion { right, .. } => ObjectsError::WrongRegion { place, right },
            other => ObjectsError::Failed { place, reason: other.to_string() },
        };
        (refusal, told)
    }
}

impl From<LakeError> for ObjectsError {
    fn from(error: LakeError) -> Self {
        match error {
            LakeError::Address { address, reason } => Self::Address { address, reason },
            other => Self::Address { address: SCHEME.to_owned(), reason: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_no_bucket_in_one_sentence() {
        for (address, reason) in [
            ("/srv/lake", "write s3://bucket/prefix"),
            ("gs://bucket/x", "write s3://bucket/prefix"),
            ("s3://", "the address s3:// cannot be used: it names no bucket"),
            ("s3://id:secret@bucket/x", "and nothing else"),
            ("s3://bucket/a/../b", "without . and .."),
        ] {
            let error = Objects::open(&LakeSettings::at(address)).err().expect(address).to_string();
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn names_places() {
        let objects = Objects::open(&LakeSettings::at("s3://bucket/a/b/")).unwrap();
        assert_eq!(objects.place(""), "s3://bucket/a/b");
        assert_eq!(objects.place("manifest.json"), "s3://bucket/a/b/manifest.json");
    }
}
