//! An export in a bucket. The manifest names the current writer, and a writer replaces the manifest
//! only if it is still the version that this writer last read or wrote: of two concurrent writers,
//! one gets an error. Object names carry a mark that differs each time the export is opened, so
//! that writers never overwrite each other's objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::error::{ExportError, Result};
use super::interrupt::Interrupt;
use super::lake;
use super::layout::{self, DATA, KINDS, PROGRAMS, TABLES};
use super::manifest::{self, DataFile, Manifest, Writer};
use super::spool::{self, Spool};
use super::views;
use orrery_iceberg::layout as metadata;
use orrery_net::buckets::{BucketSettings, ObjectVersion, Objects, ObjectsError, PART};

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
    spool: Spool,
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
        spool: Spool,
        interrupt: Interrupt,
    ) -> Result<Self> {
        let objects = Objects::open(settings)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            ExportError::Io(format!("requests to a bucket cannot be made: {error}"))
        })?;
        Ok(Self { objects, runtime: Some(runtime), interrupt, identity, spool })
    }

    pub fn place(&self) -> String {
        self.objects.place("")
    }

    /// Returns the content of a small object; `None` if it is not there.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let found = self.request(self.objects.get(path))?;
        Ok(found.map(|(content, _)| content.to_vec()))
    }

    /// Writes an object that is new, or is there with this content.
    fn write_new(&self, path: &str, content: Bytes) -> Result<()> {
        match self.request(self.objects.replace(path, content.clone(), None)) {
            Err(ExportError::Objects(ObjectsError::Changed(_))) => match self.read(path)? {
                Some(found) if found == content => Ok(()),
                _ => Err(ExportError::TakenOver(self.place())),
            },
            written => written.map(drop),
        }
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
    /// UNIX time in seconds up to which the manifest claims the bucket for this exporter.
    claimed_until: u64,
    /// The texts with views, by path, as far as they are known to be in the bucket.
    views: BTreeMap<String, String>,
}

impl LockedBucket {
    /// Acquires the bucket for an export of this network. The bucket must be empty or hold an
    /// earlier export; with `rebase`, one that was elsewhere before. Returns whether the previous exporter did
    /// not release it.
    pub fn acquire(
        bucket: &Arc<Bucket>,
        passphrase: &str,
        rebase: bool,
    ) -> Result<(Self, Manifest, bool)> {
        let place = bucket.place();
        let found = bucket.peek()?;
        let now = (bucket.identity.clock)();
        let (mut manifest, version) = match found {
            None => (Manifest::new(passphrase), None),
            Some((manifest, version)) => (manifest, Some(version)),
        };
        manifest.check_network(passphrase, &place)?;
        if !rebase {
            lake::check_root(&manifest, &place)?;
        }
        let before = manifest.writer.take();
        if before.as_ref().is_some_and(|it| it.id != bucket.identity.id && it.until > now) {
            return Err(ExportError::InUse(place));
        }
        // The views of all tables are written last: if they are those of this manifest, the others are, too.
        let expected = views::texts(&manifest, &place);
        let written = bucket.read(views::NAME)?;
        let has_views = before.is_none()
            && written.as_deref() == expected.get(views::NAME).map(|text| text.as_bytes());
        let views = if has_views { expected } else { BTreeMap::new() };
        let (version, claimed_until) = replace(bucket, &mut manifest, version.as_ref())?;
        let mark = format!("{:08x}", (bucket.identity.random)());
        let bucket = Arc::clone(bucket);
        let held = Self { bucket, version, mark, claimed_until, views };
        Ok((held, manifest, before.is_some()))
    }

    /// Returns the address of the bucket and the prefix in it.
    pub fn root(&self) -> String {
        self.bucket.place()
    }

    /// Removes objects that the manifest does not name. None of them can become part of the export
    /// any more: the manifest was replaced, so an earlier exporter can no longer replace it.
    pub fn remove_strays(&self, manifest: &Manifest) -> Result<()> {
        let named: BTreeSet<&str> = manifest.paths().collect();
        let by_content = |parts: &[&str]| match parts {
            [kind, name] => KINDS.contains(kind) && layout::is_by_content(name),
            _ => false,
        };
        self.remove_unnamed(DATA, &named, by_content)?;
        let of_portion = |parts: &[&str]| matches!(parts, [name] if layout::is_older(name, true));
        for table in TABLES {
            self.remove_unnamed(table, &named, of_portion)?;
        }
        // Earlier files of programs are two directories deeper: program and table.
        let of_program =
            |parts: &[&str]| matches!(parts, [_, _, name] if layout::is_older(name, false));
        self.remove_unnamed(PROGRAMS, &named, of_program)?;
        let uuids: BTreeSet<&str> = manifest.identified().map(|(uuid, _)| uuid).collect();
        let of_table = |parts: &[&str]| match parts {
            [uuid, "metadata", metadata::POINTER] => !uuids.contains(uuid),
            [_, "metadata", name] => metadata::is_ours(name),
            _ => false,
        };
        self.remove_unnamed(metadata::DIRECTORY, &named, of_table)
    }

    /// Removes the objects below a directory that are not `named` and of which the parts of the path are
    /// those of an export.
    fn remove_unnamed(
        &self,
        directory: &str,
        named: &BTreeSet<&str>,
        is_ours: impl Fn(&[&str]) -> bool,
    ) -> Result<()> {
        let begin = format!("{directory}/");
        for key in self.bucket.request(self.bucket.objects.keys(&begin, usize::MAX))? {
            let rest = key.strip_prefix(&*begin).unwrap_or_default();
            let parts: Vec<_> = rest.split('/').collect();
            if is_ours(&parts) && !named.contains(&*key) {
                self.remove(&key)?;
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

    /// Begins an object.
    pub fn begin(&self) -> Result<Object> {
        let file = self.bucket.spool.file()?;
        Ok(Object { bucket: Arc::clone(&self.bucket), file })
    }

    /// Copies an object to a file, which nothing else has, and returns that.
    pub fn open(&self, named: &DataFile) -> Result<File> {
        let mut file = self.bucket.spool.file()?;
        let bucket = &self.bucket;
        bucket.request(bucket.objects.download(&named.path, named.bytes, &mut file))?;
        Ok(file)
    }

    /// Returns the content of a small object; `None` if it is not there.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        self.bucket.read(path)
    }

    /// Writes a small object that is new, or is there with this content.
    pub fn write_new(&self, path: &str, content: &[u8]) -> Result<()> {
        self.bucket.write_new(path, Bytes::copy_from_slice(content))
    }

    /// Replaces a small object that names another one.
    pub fn point(&mut self, manifest: &mut Manifest, path: &str, content: &[u8]) -> Result<()> {
        self.keep_claim(manifest)?;
        let content = Bytes::copy_from_slice(content);
        self.bucket.request(self.bucket.objects.put(path, content))
    }

    /// Renews the claim to the bucket if it ends soon: an exporter that was presumed dead must not replace
    /// what another one has written.
    fn keep_claim(&mut self, manifest: &mut Manifest) -> Result<()> {
        let now = (self.bucket.identity.clock)();
        if now.saturating_add(CLAIM_SECONDS / 2) > self.claimed_until {
            self.write_manifest(manifest)?;
        }
        Ok(())
    }

    /// Replaces the manifest.
    pub fn write_manifest(&mut self, manifest: &mut Manifest) -> Result<()> {
        (self.version, self.claimed_until) = replace(&self.bucket, manifest, Some(&self.version))?;
        Ok(())
    }

    /// Makes the views those of the files that the manifest names.
    pub fn write_views(&mut self, manifest: &mut Manifest) -> Result<()> {
        let texts = views::texts(manifest, &self.bucket.place());
        for (path, text) in texts {
            if self.views.get(&path) == Some(&text) {
                continue;
            }
            self.keep_claim(manifest)?;
            let body = text.clone().into_bytes().into();
            self.bucket.request(self.bucket.objects.put(&path, body))?;
            self.views.insert(path, text);
        }
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

/// An object that has not been written to the bucket yet; its content is in a file, which nothing else has.
pub struct Object {
    bucket: Arc<Bucket>,
    file: File,
}

impl Object {
    /// Writes the object to the bucket.
    pub fn commit(self, path: &str) -> Result<()> {
        let bytes = self.file.metadata().map_err(spool::unusable)?.len();
        if bytes > PART {
            return self.bucket.request(self.bucket.objects.upload(path, &self.file));
        }
        let mut content = vec![0; bytes as usize];
        self.file.read_exact_at(&mut content, 0).map_err(spool::unusable)?;
        self.bucket.write_new(path, content.into())
    }

    /// Opens what was written so far for reading.
    pub fn written(&self) -> Result<File> {
        self.file.try_clone().map_err(spool::unusable)
    }
}

impl Write for Object {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the manifest, with this exporter as its writer, if it is still the version `before`; if
/// that is `None`, only if there is no manifest yet. Returns its version, and until when it claims the
/// bucket.
fn replace(
    bucket: &Bucket,
    manifest: &mut Manifest,
    before: Option<&ObjectVersion>,
) -> Result<(ObjectVersion, u64)> {
    let until = (bucket.identity.clock)().saturating_add(CLAIM_SECONDS);
    manifest.writer = Some(Writer { id: bucket.identity.id.clone(), until });
    let text = manifest.text(&bucket.objects.place(manifest::NAME))?;
    let written = bucket.objects.replace(manifest::NAME, text.into(), before);
    let version = bucket.request(written).map_err(|error| taken_over(bucket, error))?;
    Ok((version, until))
}

fn taken_over(bucket: &Bucket, error: ExportError) -> ExportError {
    match error {
        ExportError::Objects(ObjectsError::Changed(_)) => ExportError::TakenOver(bucket.place()),
        other => other,
    }
}
