//! An export in a bucket. The manifest names the current writer, and a writer replaces the manifest
//! only if it is still the version that this writer last read or wrote: of two concurrent writers,
//! one gets an error. Object names carry a mark that differs each time the export is opened, so
//! that writers never overwrite each other's objects.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::error::{ExportError, Result};
use super::interrupt::Interrupt;
use super::layout::{self, PROGRAMS, TABLES};
use super::manifest::{self, Manifest, Writer};
use orrery_net::buckets::{BucketSettings, ObjectVersion, Objects, ObjectsError};

/// Time in seconds after a write of the manifest for which its writer keeps the claim to the
/// bucket.
const CLAIM_SECONDS: u64 = 600;
/// Timeout of the request that releases the bucket.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Identifies this exporter to other writers of the same bucket.
#[derive(Debug, Clone)]
pub struct ExporterIdentity {
    /// Identifier that distinguishes the exporter from others. After a kill, an exporter with the
    /// same identifier continues at once; others wait until the claim has expired.
    pub id: String,
    /// Clock: the current UNIX time in seconds.
    pub clock: fn() -> u64,
    /// Source of random numbers, which mark the objects of one opening of an export.
    pub random: fn() -> u32,
}

/// A bucket, with a runtime for blocking requests from a thread.
pub struct Bucket {
    objects: Objects,
    /// `None` only while this is being dropped.
    runtime: Option<Runtime>,
    interrupt: Interrupt,
    identity: ExporterIdentity,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // In a task of another runtime, blocking until this runtime has shut down is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    pub fn open(
        settings: &BucketSettings,
        identity: ExporterIdentity,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let objects = Objects::open(settings)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            ExportError::Io(format!("requests to a bucket cannot be made: {error}"))
        })?;
        Ok(Self { objects, runtime: Some(runtime), interrupt, identity })
    }

    pub fn place(&self) -> String {
        self.objects.place("")
    }

    /// Waits for a response; fails with [`ExportError::Interrupted`] as soon as the interrupt is
    /// raised.
    fn request<T>(&self, answer: impl Future<Output = Result<T, ObjectsError>>) -> Result<T> {
        self.wait(async {
            tokio::select! {
                answer = answer => Ok(answer?),
                () = self.interrupt.raised() => Err(ExportError::Interrupted),
            }
        })
    }

    /// Waits for a response even if the interrupt is raised, for at most [`RELEASE_TIMEOUT`].
    fn request_with_timeout<T>(
        &self,
        answer: impl Future<Output = Result<T, ObjectsError>>,
    ) -> Result<T> {
        self.wait(async {
            Ok(timeout(RELEASE_TIMEOUT, answer).await.map_err(|_| ExportError::Interrupted)??)
        })
    }

    fn wait<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(answer),
            None => Err(ExportError::Interrupted),
        }
    }

    /// Returns the manifest of the bucket with its version; `None` when the bucket is empty. Fails
    /// when it has objects but no manifest.
    pub fn peek(&self) -> Result<Option<(Manifest, ObjectVersion)>> {
        let Some((text, version)) = self.request(self.objects.get(manifest::NAME))? else {
            return if self.request(self.objects.keys("", 1))?.is_empty() {
                Ok(None)
            } else {
                Err(ExportError::NotAnExport(self.place()))
            };
        };
        let manifest = Manifest::parse(&text, &self.objects.place(manifest::NAME))?;
        Ok(Some((manifest, version)))
    }
}

/// A bucket to which this exporter alone writes, as long as the manifest is not replaced by another
/// exporter.
pub struct LockedBucket {
    bucket: Arc<Bucket>,
    version: ObjectVersion,
    /// Suffix of object names that distinguishes objects of this opening from others.
    mark: String,
}

impl LockedBucket {
    /// Acquires the bucket for an export of this network. The bucket must be empty or hold an
    /// earlier export. If the previous exporter did not release it, objects that the manifest does
    /// not name are removed.
    pub fn acquire(bucket: &Arc<Bucket>, passphrase: &str) -> Result<(Self, Manifest)> {
        let place = bucket.place();
        let found = bucket.peek()?;
        let now = (bucket.identity.clock)();
        let (mut manifest, version) = match found {
            None => (Manifest::new(passphrase), None),
            Some((manifest, version)) => (manifest, Some(version)),
        };
        manifest.check_network(passphrase, &place)?;
        let before = manifest.writer.take();
        if before.as_ref().is_some_and(|it| it.id != bucket.identity.id && it.until > now) {
            return Err(ExportError::InUse(place));
        }
        let version = replace(bucket, &mut manifest, version.as_ref())?;
        let mark = format!("{:08x}", (bucket.identity.random)());
        let held = Self { bucket: Arc::clone(bucket), version, mark };
        if before.is_some() {
            held.remove_strays(&manifest)?;
        }
        Ok((held, manifest))
    }

    /// Removes objects that the manifest does not name. None of them can become part of the export
    /// any more: the manifest was replaced, so an earlier exporter can no longer replace it.
    fn remove_strays(&self, manifest: &Manifest) -> Result<()> {
        let named: BTreeSet<&str> = manifest.paths().collect();
        // Files of programs are two directories deeper: program and table.
        let places = TABLES.map(|table| (table, 0)).into_iter().chain([(PROGRAMS, 2)]);
        for (table, between) in places {
            let begin = format!("{table}/");
            for key in self.bucket.request(self.bucket.objects.keys(&begin, usize::MAX))? {
                let rest = key.strip_prefix(&*begin).unwrap_or_default();
                let parts: Vec<_> = rest.split('/').collect();
                let is_ours = match parts.as_slice() {
                    [before @ .., name] => {
                        before.len() == between && layout::is_ours(name, between == 0)
                    }
                    [] => false,
                };
                if is_ours && !named.contains(&*key) {
                    self.remove(&key)?;
                }
            }
        }
        Ok(())
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) -> Result<()> {
        self.bucket.request(self.bucket.objects.remove(path))
    }

    /// Returns the suffix of object names.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Begins an object at `path`.
    pub fn begin(&self, path: &str) -> Object {
        Object { bucket: Arc::clone(&self.bucket), path: path.to_owned(), bytes: Vec::new() }
    }

    /// Replaces the manifest.
    pub fn write_manifest(&mut self, manifest: &mut Manifest) -> Result<()> {
        self.version = replace(&self.bucket, manifest, Some(&self.version))?;
        Ok(())
    }

    /// Releases the bucket, so that other exporters may write at once.
    pub fn release(self, manifest: &mut Manifest) -> Result<()> {
        manifest.writer = None;
        let bucket = &self.bucket;
        let text = manifest.text(&bucket.objects.place(manifest::NAME))?;
        let written = bucket.objects.replace(manifest::NAME, text.into(), Some(&self.version));
        bucket.request_with_timeout(written).map(drop).map_err(|error| taken_over(bucket, error))
    }
}

/// An object that has not been written to the bucket yet; its content is in memory.
pub struct Object {
    bucket: Arc<Bucket>,
    path: String,
    bytes: Vec<u8>,
}

impl Object {
    /// Writes the object to the bucket.
    pub fn commit(self) -> Result<()> {
        self.bucket.request(self.bucket.objects.put(&self.path, self.bytes.into()))
    }
}

impl Write for Object {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the manifest, with this exporter as its writer, if it is still the version `before`; if
/// that is `None`, only if there is no manifest yet.
fn replace(
    bucket: &Bucket,
    manifest: &mut Manifest,
    before: Option<&ObjectVersion>,
) -> Result<ObjectVersion> {
    let until = (bucket.identity.clock)().saturating_add(CLAIM_SECONDS);
    manifest.writer = Some(Writer { id: bucket.identity.id.clone(), until });
    let text = manifest.text(&bucket.objects.place(manifest::NAME))?;
    let written = bucket.objects.replace(manifest::NAME, text.into(), before);
    bucket.request(written).map_err(|error| taken_over(bucket, error))
}

fn taken_over(bucket: &Bucket, error: ExportError) -> ExportError {
    match error {
        ExportError::Objects(ObjectsError::Changed(_)) => ExportError::TakenOver(bucket.place()),
        other => other,
    }
}
