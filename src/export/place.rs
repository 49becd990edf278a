//! Where an export is: a directory or a bucket, and what both have in common.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::bucket::{Bucket, HeldBucket, Object};
use super::directory::{self, Draft, HeldDirectory};
use super::manifest::Manifest;
use super::{ExportError, files};
use crate::source::lake::LakeSettings;

/// Turns true when an export is to end early.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Option<watch::Receiver<bool>>);

impl Interrupt {
    /// When `stop` turns true.
    pub fn by(stop: watch::Receiver<bool>) -> Self {
        Self(Some(stop))
    }

    /// Whether it has.
    pub fn is_raised(&self) -> bool {
        self.0.as_ref().is_some_and(|stop| *stop.borrow())
    }

    /// Returns when it does.
    pub(super) async fn raised(&self) {
        if let Some(stop) = &self.0
            && stop.clone().wait_for(|stop| *stop).await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// Who exports, as others that write to the same bucket know it.
#[derive(Debug, Clone)]
pub struct Who {
    /// Tells it from others: after a kill, the same one goes on at once, others wait.
    pub id: String,
    /// UNIX seconds.
    pub clock: fn() -> u64,
    /// Makes numbers that are hardly ever the same.
    pub chance: fn() -> u32,
}

/// Where an export is. A clone is the same place.
#[derive(Clone)]
pub struct Place(Kind);

#[derive(Clone)]
enum Kind {
    Directory(PathBuf),
    Bucket(Arc<Bucket>),
}

impl Place {
    /// A directory.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self(Kind::Directory(path.into()))
    }

    /// What settings lead to: a directory, or a bucket at an `s3://` address. Asks nothing yet. What waits for a
    /// bucket's answer ends at an interruption.
    ///
    /// # Errors
    /// When it is neither, or the settings of a bucket make no sense.
    pub fn of(
        settings: &LakeSettings,
        who: Who,
        interrupt: Interrupt,
    ) -> Result<Self, ExportError> {
        let wrong = |place: &str, reason: &str| {
            Err(ExportError::Place { place: place.to_owned(), reason: reason.to_owned() })
        };
        match settings.address.split_once("://") {
            None if settings.address.is_empty() => {
                wrong("nothing", "give a directory or s3://bucket/prefix")
            }
            None if settings.endpoint.is_some() || settings.region.is_some() => wrong(
                &settings.address,
                "an endpoint and a region belong to s3:// addresses: remove them",
            ),
            None => Ok(Self::directory(&settings.address)),
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("s3") => {
                Ok(Self(Kind::Bucket(Arc::new(Bucket::open(settings, who, interrupt)?))))
            }
            Some(_) => wrong(
                "that address",
                "give a directory or s3://bucket/prefix (other stores speak S3 at an endpoint of theirs)",
            ),
        }
    }

    /// Whether it is on this machine.
    pub fn is_directory(&self) -> bool {
        matches!(self.0, Kind::Directory(_))
    }

    /// What the export there says of itself; none when there is nothing yet.
    ///
    /// # Errors
    /// When it cannot be read, or there is something else.
    pub fn peek(&self) -> Result<Option<Manifest>, ExportError> {
        match &self.0 {
            Kind::Directory(path) => directory::peek(path),
            Kind::Bucket(bucket) => Ok(bucket.peek()?.map(|(manifest, _)| manifest)),
        }
    }

    /// Takes the place, so that nobody else writes to it. Where there was a manifest, there must still be one: a disk
    /// that is not mounted looks like a new directory.
    pub(super) fn take(
        &self,
        passphrase: &str,
        is_begun: bool,
    ) -> Result<(Held, Manifest), ExportError> {
        if is_begun && matches!(self.peek(), Ok(None) | Err(ExportError::NotAnExport(_))) {
            return Err(ExportError::Vanished(self.to_string()));
        }
        Ok(match &self.0 {
            Kind::Directory(path) => {
                let (held, manifest) = HeldDirectory::take(path, passphrase)?;
                (Held::Directory(held), manifest)
            }
            Kind::Bucket(bucket) => {
                let (held, manifest) = HeldBucket::take(bucket, passphrase)?;
                (Held::Bucket(held), manifest)
            }
        })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Directory(path) => path.display().fmt(f),
            Kind::Bucket(bucket) => f.write_str(&bucket.place()),
        }
    }
}

/// A place to which nobody else writes.
pub enum Held {
    Directory(HeldDirectory),
    Bucket(HeldBucket),
}

/// A file that does not count yet.
pub enum Unfinished {
    Draft(Draft),
    Object(Object),
}

impl Held {
    /// Bytes after which a file is ended. One in a bucket is held in memory.
    pub fn most_bytes(&self) -> usize {
        match self {
            Self::Directory(_) => files::MOST_BYTES,
            Self::Bucket(_) => files::MOST_BYTES_IN_MEMORY,
        }
    }

    /// What names of files have at their end, to tell them from those of other openings of the export.
    pub fn mark(&self) -> Option<&str> {
        match self {
            Self::Directory(_) => None,
            Self::Bucket(bucket) => Some(bucket.mark()),
        }
    }

    /// Begins a file.
    pub fn begin(&self, path: &str) -> Result<Unfinished, ExportError> {
        Ok(match self {
            Self::Directory(directory) => Unfinished::Draft(directory.begin(path)?),
            Self::Bucket(bucket) => Unfinished::Object(bucket.begin(path)),
        })
    }

    /// Removes a file that the manifest does not name any more.
    pub fn remove(&self, path: &str) -> Result<(), ExportError> {
        match self {
            Self::Directory(directory) => directory.remove(path),
            Self::Bucket(bucket) => bucket.remove(path),
        }
    }

    /// Replaces the manifest.
    pub fn write_manifest(&mut self, manifest: &mut Manifest) -> Result<(), ExportError> {
        match self {
            Self::Directory(directory) => directory.write_manifest(manifest),
            Self::Bucket(bucket) => bucket.write_manifest(manifest),
        }
    }

    /// Lets others write.
    pub fn release(self, manifest: &mut Manifest) -> Result<(), ExportError> {
        match self {
            // With the lock.
            Self::Directory(_) => Ok(()),
            Self::Bucket(bucket) => bucket.release(manifest),
        }
    }
}

impl Unfinished {
    /// Ends the file, which is there to stay when this returns.
    pub fn keep(self) -> Result<(), ExportError> {
        match self {
            Self::Draft(draft) => draft.keep(),
            Self::Object(object) => object.keep(),
        }
    }
}

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Draft(draft) => draft.write(bytes),
            Self::Object(object) => object.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Draft(draft) => draft.flush(),
            Self::Object(object) => object.flush(),
        }
    }
}
