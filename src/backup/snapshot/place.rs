//! Where snapshots are: a bucket of S3, Google or Azure, or a directory, which holds the same objects as files.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::backup::{BackupError, copy, failed};
use crate::durable::write_atomically;
use crate::net::buckets::{
    BucketSettings, Listed, MAX_DOWNLOADED, ObjectVersion, Objects, ObjectsError,
};

/// Maximum number of objects of one kind in a place: with content, they have 64 TiB. Whoever can write there
/// decides how many there are, and their names are held in memory.
const MOST_OBJECTS: usize = 4 << 20;
/// Suffix of a file that is being written to a directory.
const DRAFT: &str = ".new";

/// A place with objects, and the number of requests to it.
pub struct Place {
    kind: Kind,
    requests: AtomicU64,
}

enum Kind {
    Bucket(Box<Objects>),
    Directory(PathBuf),
}

impl From<ObjectsError> for BackupError {
    fn from(error: ObjectsError) -> Self {
        Self::Other(error.to_string())
    }
}

impl Place {
    /// Opens the place that the settings describe. Sends no request.
    ///
    /// # Errors
    /// When the address is neither a directory nor that of a bucket, or the settings do not fit it.
    pub fn of(settings: &BucketSettings) -> Result<Self, BackupError> {
        let kind = if settings.address.contains("://") {
            Kind::Bucket(Box::new(Objects::open(settings)?))
        } else if settings.address.is_empty() {
            return Err(BackupError::Other(
                "give a directory, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
                    .to_owned(),
            ));
        } else {
            Kind::Directory(PathBuf::from(&settings.address))
        };
        Ok(Self { kind, requests: AtomicU64::new(0) })
    }

    /// Returns the directory; `None` for a bucket.
    pub fn directory(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Directory(root) => Some(root),
            Kind::Bucket(_) => None,
        }
    }

    /// Returns the full name of a key, or of the place for an empty key, for messages. Holds no secrets.
    pub fn name(&self, key: &str) -> String {
        match &self.kind {
            Kind::Bucket(objects) => objects.place(key),
            Kind::Directory(root) if key.is_empty() => root.display().to_string(),
            Kind::Directory(root) => root.join(key).display().to_string(),
        }
    }

    /// Returns the number of requests so far, not counting those that were repeated.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns an object; `None` when there is none.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>, BackupError> {
        Ok(self.versioned(key).await?.map(|(bytes, _)| bytes))
    }

    /// Returns an object with its version; files have none.
    pub async fn versioned(
        &self,
        key: &str,
    ) -> Result<Option<(Bytes, Option<ObjectVersion>)>, BackupError> {
        self.count();
        match &self.kind {
            Kind::Bucket(objects) => {
                Ok(objects.get(key).await?.map(|(bytes, version)| (bytes, Some(version))))
            }
            Kind::Directory(root) => Ok(read_file(&root.join(key))?.map(|bytes| (bytes, None))),
        }
    }

    /// Writes an object, in place of an existing one.
    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), BackupError> {
        self.count();
        match &self.kind {
            Kind::Bucket(objects) => Ok(objects.put(key, bytes).await?),
            Kind::Directory(root) => write_file(root, key, &bytes),
        }
    }

    /// Writes an object if its version is still `before`, or if there is none when that is `None`. Returns the new
    /// version; `None` when somebody else has written it meanwhile. In a directory the caller holds a lock
    /// instead, and an existing file is replaced only if `before` is that of [`Self::versioned`].
    pub async fn replace(
        &self,
        key: &str,
        bytes: Bytes,
        before: Option<&ObjectVersion>,
    ) -> Result<Option<ObjectVersion>, BackupError> {
        self.count();
        match &self.kind {
            Kind::Bucket(objects) => match objects.replace(key, bytes, before).await {
                Ok(version) => Ok(Some(version)),
                Err(ObjectsError::Changed(_)) => Ok(None),
                Err(error) => Err(error.into()),
            },
            Kind::Directory(root) => {
                write_file(root, key, &bytes)?;
                Ok(None)
            }
        }
    }

    /// Writes an object if there is none. Returns whether it was written.
    pub async fn create(&self, key: &str, bytes: Bytes) -> Result<bool, BackupError> {
        match &self.kind {
            Kind::Bucket(_) => Ok(self.replace(key, bytes, None).await?.is_some()),
            Kind::Directory(root) => {
                self.count();
                if root.join(key).exists() {
                    return Ok(false);
                }
                write_file(root, key, &bytes).map(|()| true)
            }
        }
    }

    /// Removes an object; succeeds when there is none.
    pub async fn remove(&self, key: &str) -> Result<(), BackupError> {
        self.count();
        match &self.kind {
            Kind::Bucket(objects) => Ok(objects.remove(key).await?),
            Kind::Directory(root) => {
                let path = root.join(key);
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path)(error)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Removes what writers that were killed have begun to write below `begin`, in a directory. The place must be
    /// claimed.
    pub fn remove_drafts(&self, begin: &str) -> Result<(), BackupError> {
        let Some(directory) = self.directory().map(|root| root.join(begin)) else { return Ok(()) };
        if !directory.exists() {
            return Ok(());
        }
        let is_draft = |below: &Path| below.to_str().is_some_and(|name| name.ends_with(DRAFT));
        for draft in copy::files_below(&directory)?.into_iter().filter(|below| is_draft(below)) {
            let path = directory.join(draft);
            fs::remove_file(&path).map_err(failed(&path))?;
        }
        Ok(())
    }

    /// Returns all objects whose keys begin with `begin`, which ends with a slash.
    ///
    /// # Errors
    /// When there are more than [`MOST_OBJECTS`], which no backup writes.
    pub async fn all(&self, begin: &str) -> Result<Vec<Listed>, BackupError> {
        let listed = self.list(begin, MOST_OBJECTS + 1).await?;
        if listed.len() <= MOST_OBJECTS {
            return Ok(listed);
        }
        Err(BackupError::Other(format!(
            "{} holds more than {MOST_OBJECTS} objects, which are not all a snapshot's: begin with another place",
            self.name(begin)
        )))
    }

    /// Returns up to `most` objects whose keys begin with `begin`, which is empty or ends with a slash.
    pub async fn list(&self, begin: &str, most: usize) -> Result<Vec<Listed>, BackupError> {
        self.count();
        match &self.kind {
            Kind::Bucket(objects) => {
                let listed = objects.list(begin, most).await?;
                // A bucket answers with pages of this many objects.
                self.requests.fetch_add(listed.len() as u64 / 1000, Ordering::Relaxed);
                Ok(listed)
            }
            Kind::Directory(root) => list_files(root, begin, most),
        }
    }
}

/// Reads a file as an object, which has no more bytes than one that is fetched from a bucket; `None` when there is
/// none.
fn read_file(path: &Path) -> Result<Option<Bytes>, BackupError> {
    // What is no file, such as a pipe, is not opened: reading it might never end.
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path)(error)),
        Ok(found) if !found.is_file() => {
            return Err(BackupError::Other(format!(
                "{} is not a file, and no snapshot has anything else: remove it, or use another place",
                path.display()
            )));
        }
        Ok(_) => {}
    }
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed(path))?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_DOWNLOADED + 1).read_to_end(&mut bytes).map_err(failed(path))?;
    if bytes.len() as u64 > MAX_DOWNLOADED {
        return Err(BackupError::Other(format!(
            "{} has more than {} MiB, and no object of a snapshot has as many: remove it, or use another place",
            path.display(),
            MAX_DOWNLOADED >> 20
        )));
    }
    Ok(Some(bytes.into()))
}

fn write_file(root: &Path, key: &str, bytes: &[u8]) -> Result<(), BackupError> {
    let path = root.join(key);
    copy::make_directory(copy::parent(&path))?;
    write_atomically(&path, |file| file.write_all(bytes)).map_err(failed(&path))
}

fn list_files(root: &Path, begin: &str, most: usize) -> Result<Vec<Listed>, BackupError> {
    let directory = root.join(begin);
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut listed = Vec::new();
    for below in copy::files_below(&directory)? {
        let path = directory.join(&below);
        let Some(name) = below.to_str().filter(|name| !name.ends_with(DRAFT)) else { continue };
        match fs::metadata(&path) {
            // Removed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            found => {
                let bytes = found.map_err(failed(&path))?.len();
                listed.push(Listed { key: format!("{begin}{name}"), bytes });
            }
        }
        if listed.len() >= most {
            break;
        }
    }
    Ok(listed)
}
