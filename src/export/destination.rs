//! The destination of an export: a directory or a bucket, and their common interface.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::bucket::{Bucket, ExporterIdentity, LockedBucket, Object};
use super::directory::{self, Draft, LockedDirectory};
use super::error::{ExportError, Result};
use super::interrupt::Interrupt;
use super::layout;
use super::manifest::Manifest;
use orrery_net::buckets::BucketSettings;

/// The destination of an export. Clones refer to the same destination.
#[derive(Clone)]
pub struct Destination(Kind);

#[derive(Clone)]
enum Kind {
    Directory(PathBuf),
    Bucket(Arc<Bucket>),
}

impl Destination {
    /// Creates a destination in a directory.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        Self(Kind::Directory(path.into()))
    }

    /// Creates the destination that `settings` describe: a directory, or a bucket at an `s3://`
    /// address. Sends no request yet. Requests to a bucket are cancelled when `interrupt` is
    /// raised.
    ///
    /// # Errors
    /// When the address is neither, or the settings of a bucket are invalid.
    pub fn of(
        settings: &BucketSettings,
        identity: ExporterIdentity,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let wrong = |place: &str, reason: &str| {
            Err(ExportError::Place(format!("{place} is not a valid export destination: {reason}")))
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
                Ok(Self(Kind::Bucket(Arc::new(Bucket::open(settings, identity, interrupt)?))))
            }
            Some(_) => wrong(
                "that address",
                "give a directory or s3://bucket/prefix (for other S3-compatible stores, also give their endpoint)",
            ),
        }
    }

    /// Returns whether the destination is a local directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.0, Kind::Directory(_))
    }

    /// Returns the manifest of the export, or `None` when there is no export yet.
    ///
    /// # Errors
    /// When it cannot be read, or the destination holds other files.
    pub fn peek(&self) -> Result<Option<Manifest>> {
        match &self.0 {
            Kind::Directory(path) => directory::peek(path),
            Kind::Bucket(bucket) => Ok(bucket.peek()?.map(|(manifest, _)| manifest)),
        }
    }

    /// Acquires exclusive write access to the destination. With `must_exist`, fails when there is no
    /// manifest: a disk that is not mounted looks like a new directory.
    pub(super) fn acquire(
        &self,
        passphrase: &str,
        must_exist: bool,
    ) -> Result<(LockedDestination, Manifest)> {
        if must_exist && matches!(self.peek(), Ok(None) | Err(ExportError::NotAnExport(_))) {
            return Err(ExportError::Vanished(self.to_string()));
        }
        Ok(match &self.0 {
            Kind::Directory(path) => {
                let (held, manifest) = LockedDirectory::acquire(path, passphrase)?;
                (LockedDestination::Directory(held), manifest)
            }
            Kind::Bucket(bucket) => {
                let (held, manifest) = LockedBucket::acquire(bucket, passphrase)?;
                (LockedDestination::Bucket(held), manifest)
            }
        })
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::Directory(path) => path.display().fmt(f),
            Kind::Bucket(bucket) => f.write_str(&bucket.place()),
        }
    }
}

/// A destination with exclusive write access.
pub enum LockedDestination {
    Directory(LockedDirectory),
    Bucket(LockedBucket),
}

/// A file that is not part of the export yet.
pub enum PendingFile {
    Draft(Draft),
    Object(Object),
}

impl LockedDestination {
    /// Returns the size in bytes at which a file is finished. It is lower for a bucket, because
    /// there a file is held in memory.
    pub fn most_bytes(&self) -> usize {
        match self {
            Self::Directory(_) => layout::MAX_BYTES,
            Self::Bucket(_) => layout::MAX_BYTES_IN_MEMORY,
        }
    }

    /// Returns the suffix of file names that distinguishes them from those of other openings of the
    /// export; `None` for a directory, which needs none, because a lock excludes other exports.
    pub fn mark(&self) -> Option<&str> {
        match self {
            Self::Directory(_) => None,
            Self::Bucket(bucket) => Some(bucket.mark()),
        }
    }

    /// Begins a file of this kind, whose path is known when it is complete.
    pub fn begin(&self, kind: &str) -> Result<PendingFile> {
        Ok(match self {
            Self::Directory(directory) => PendingFile::Draft(directory.begin(kind)?),
            Self::Bucket(bucket) => PendingFile::Object(bucket.begin()),
        })
    }

    /// Removes a file that the manifest no longer names.
    pub fn remove(&self, path: &str) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.remove(path),
            Self::Bucket(bucket) => bucket.remove(path),
        }
    }

    /// Replaces the manifest.
    pub fn write_manifest(&mut self, manifest: &mut Manifest) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.write_manifest(manifest),
            Self::Bucket(bucket) => bucket.write_manifest(manifest),
        }
    }

    /// Makes the views those of the files that the manifest names.
    pub fn write_views(&mut self, manifest: &mut Manifest) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.write_views(manifest),
            Self::Bucket(bucket) => bucket.write_views(manifest),
        }
    }

    /// Releases the write access.
    pub fn release(self, manifest: &mut Manifest) -> Result<()> {
        match self {
            // Dropping it releases the lock.
            Self::Directory(_) => Ok(()),
            Self::Bucket(bucket) => bucket.release(manifest),
        }
    }
}

impl PendingFile {
    /// Completes the file at this path. It is durable when this returns.
    pub fn commit(self, path: &str) -> Result<()> {
        match self {
            Self::Draft(draft) => draft.commit(path),
            Self::Object(object) => object.commit(path),
        }
    }
}

impl Write for PendingFile {
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
