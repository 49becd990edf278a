//! The destination of an export: a directory or a bucket, and their common interface.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use super::bucket::{Bucket, ExporterIdentity, LockedBucket, Object};
use super::directory::{self, Draft, LockedDirectory};
use super::error::{ExportError, Result};
use super::interrupt::Interrupt;
use super::lake;
use super::manifest::{DataFile, Manifest};
use super::spool::Spool;
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
    /// raised; files for it are made in the directory `spool` first.
    ///
    /// # Errors
    /// When the address is neither, or the settings of a bucket are invalid.
    pub fn of(
        settings: &BucketSettings,
        identity: ExporterIdentity,
        spool: Spool,
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
            Some((scheme, _)) if scheme.eq_ignore_ascii_case("s3") => Ok(Self(Kind::Bucket(
                Arc::new(Bucket::open(settings, identity, spool, interrupt)?),
            ))),
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
    /// manifest: a disk that is not mounted looks like a new directory. With `rebase`, the destination may
    /// have another address than before.
    pub(super) fn acquire(
        &self,
        passphrase: &str,
        must_exist: bool,
        rebase: bool,
    ) -> Result<(LockedDestination, Manifest)> {
        if must_exist && matches!(self.peek(), Ok(None) | Err(ExportError::NotAnExport(_))) {
            return Err(ExportError::Vanished(self.to_string()));
        }
        let (mut held, mut manifest, may_lack) = match &self.0 {
            Kind::Directory(path) => {
                let (held, manifest, is_new) = LockedDirectory::acquire(path, passphrase, rebase)?;
                (LockedDestination::Directory(held), manifest, !is_new)
            }
            Kind::Bucket(bucket) => {
                let (held, manifest, was_killed) =
                    LockedBucket::acquire(bucket, passphrase, rebase)?;
                (LockedDestination::Bucket(held), manifest, was_killed)
            }
        };
        if may_lack {
            held.restore(&mut manifest)?;
        }
        Ok((held, manifest))
    }

    /// Fails if the tables of the export at this destination name another place than it has now.
    ///
    /// # Errors
    /// When they do, or the place of a directory cannot be found out.
    pub(super) fn check_root(&self, manifest: &Manifest) -> Result<()> {
        match &self.0 {
            Kind::Directory(path) => lake::check_root(manifest, &directory::root(path)?),
            Kind::Bucket(bucket) => lake::check_root(manifest, &bucket.place()),
        }
    }

    /// Returns the address of the destination, as the metadata of tables has it.
    ///
    /// # Errors
    /// When the place of a directory cannot be found out.
    pub(super) fn root(&self) -> Result<String> {
        match &self.0 {
            Kind::Directory(path) => directory::root(path),
            Kind::Bucket(bucket) => Ok(bucket.place()),
        }
    }

    /// Returns the content of a small file; `None` if it is not there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match &self.0 {
            Kind::Directory(directory) => directory::read(&directory.join(path)),
            Kind::Bucket(bucket) => bucket.read(path),
        }
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
    /// Returns the address of the destination, as the metadata of tables has it.
    pub fn root(&self) -> String {
        match self {
            Self::Directory(directory) => directory.root().to_owned(),
            Self::Bucket(bucket) => bucket.root(),
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
            Self::Bucket(bucket) => PendingFile::Object(bucket.begin()?),
        })
    }

    /// Opens a file of the export for reading.
    pub fn open(&self, file: &DataFile) -> Result<File> {
        match self {
            Self::Directory(directory) => directory.open(file),
            Self::Bucket(bucket) => bucket.open(file),
        }
    }

    /// Returns the content of a small file; `None` if it is not there.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Directory(directory) => directory.read(path),
            Self::Bucket(bucket) => bucket.read(path),
        }
    }

    /// Writes a small file that is new. If it is there, it has the same content, because its name says what
    /// it contains.
    pub fn write_new(&self, path: &str, content: &[u8]) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.write_small(path, content),
            Self::Bucket(bucket) => bucket.write_new(path, content),
        }
    }

    /// Replaces a small file that names another one.
    pub fn point(&mut self, manifest: &mut Manifest, path: &str, content: &[u8]) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.write_small(path, content),
            Self::Bucket(bucket) => bucket.point(manifest, path, content),
        }
    }

    /// Removes a file that the manifest no longer names.
    pub fn remove(&self, path: &str) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.remove(path),
            Self::Bucket(bucket) => bucket.remove(path),
        }
    }

    /// Removes the files of the export that the manifest does not name.
    pub fn remove_strays(&self, manifest: &Manifest) -> Result<()> {
        match self {
            Self::Directory(directory) => directory.remove_strays(manifest),
            Self::Bucket(bucket) => bucket.remove_strays(manifest),
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
    /// Opens what was written so far for reading.
    pub fn written(&self) -> Result<File> {
        match self {
            Self::Draft(draft) => draft.written(),
            Self::Object(object) => object.written(),
        }
    }

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
