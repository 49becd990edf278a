//! An export in a bucket. Who writes to it is named in the manifest, which is replaced only by whoever read it last: of
//! two that write, one is told. Objects have names that no other opening of the export gives to its own.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::manifest::{self, Manifest, Writer};
use super::place::{Interrupt, Who};
use super::{ExportError, PROGRAMS, TABLES, files};
use crate::source::lake::{LakeSettings, ObjectVersion, Objects, ObjectsError};

/// How long whoever has written the manifest may write to the bucket without a word, in seconds.
const HELD_FOR: u64 = 600;
/// How long the last word to a bucket may take.
const LAST_WORD: Duration = Duration::from_secs(10);

/// A bucket, with what is needed to ask it from a thread that waits.
pub struct Bucket {
    objects: Objects,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
    interrupt: Interrupt,
    who: Who,
}

impl Drop for Bucket {
    fn drop(&mut self) {
        // Where this is a task of another runtime, waiting for this one is not allowed.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Bucket {
    pub fn open(
        settings: &LakeSettings,
        who: Who,
        interrupt: Interrupt,
    ) -> Result<Self, ExportError> {
        let objects = Objects::open(settings)?;
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(ExportError::Runtime)?;
        Ok(Self { objects, runtime: Some(runtime), interrupt, who })
    }

    pub fn place(&self) -> String {
        self.objects.place("")
    }

    /// Waits for an answer, but not beyond an interruption.
    fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, ObjectsError>>,
    ) -> Result<T, ExportError> {
        self.wait(async {
            tokio::select! {
                answer = answer => Ok(answer?),
                () = self.interrupt.raised() => Err(ExportError::Interrupted),
            }
        })
    }

    /// Waits for an answer also when it is interrupted, but not for long.
    fn tell<T>(
        &self,
        answer: impl Future<Output = Result<T, ObjectsError>>,
    ) -> Result<T, ExportError> {
        self.wait(async {
            Ok(timeout(LAST_WORD, answer).await.map_err(|_| ExportError::Interrupted)??)
        })
    }

    fn wait<T>(
        &self,
        answer: impl Future<Output = Result<T, ExportError>>,
    ) -> Result<T, ExportError> {
        match &self.runtime {
            Some(runtime) => runtime.block_on(answer),
            None => Err(ExportError::Interrupted),
        }
    }

    /// The manifest of the bucket; none when nothing is there that it could be of.
    pub fn peek(&self) -> Result<Option<(Manifest, ObjectVersion)>, ExportError> {
        let Some((text, version)) = self.ask(self.objects.get(manifest::NAME))? else {
            return match self.ask(self.objects.keys("", 1))?.is_empty() {
                true => Ok(None),
                false => Err(ExportError::NotAnExport(self.place())),
            };
        };
        let manifest = Manifest::parse(&text, &self.objects.place(manifest::NAME))?;
        Ok(Some((manifest, version)))
    }
}

/// A bucket to which nobody else writes, as long as nobody else has replaced the manifest.
pub struct HeldBucket {
    bucket: Arc<Bucket>,
    version: ObjectVersion,
    /// Tells objects of this opening from those of others.
    mark: String,
}

impl HeldBucket {
    /// Takes a bucket for an export of this network, an empty place or that of an earlier export. After one that did
    /// not end by itself, objects that the manifest does not name are removed.
    pub fn take(bucket: &Arc<Bucket>, passphrase: &str) -> Result<(Self, Manifest), ExportError> {
        let place = bucket.place();
        let found = bucket.peek()?;
        let now = (bucket.who.clock)();
        let (mut manifest, version) = match found {
            None => (Manifest::new(passphrase), None),
            Some((manifest, version)) => (manifest, Some(version)),
        };
        manifest.check_network(passphrase, &place)?;
        let before = manifest.writer.take();
        if before.as_ref().is_some_and(|it| it.id != bucket.who.id && it.until > now) {
            return Err(ExportError::InUse(place));
        }
        let version = replace(bucket, &mut manifest, version.as_ref())?;
        let mark = format!("{:08x}", (bucket.who.chance)());
        let held = Self { bucket: Arc::clone(bucket), version, mark };
        if before.is_some() {
            held.remove_strays(&manifest)?;
        }
        Ok((held, manifest))
    }

    /// Removes objects that the manifest does not name. Nobody adds any meanwhile that will be named: the manifest was
    /// replaced, and whoever wrote before will not be able to.
    fn remove_strays(&self, manifest: &Manifest) -> Result<(), ExportError> {
        let named: BTreeSet<&str> = manifest.paths().collect();
        // Below programs stand a program and a table.
        let places = TABLES.map(|table| (table, 0)).into_iter().chain([(PROGRAMS, 2)]);
        for (table, between) in places {
            let begin = format!("{table}/");
            for key in self.bucket.ask(self.bucket.objects.keys(&begin, usize::MAX))? {
                let rest = key.strip_prefix(&*begin).unwrap_or_default();
                let parts: Vec<_> = rest.split('/').collect();
                let is_ours = match parts.as_slice() {
                    [before @ .., name] => {
                        before.len() == between && files::is_ours(name, between == 0)
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
    pub fn remove(&self, path: &str) -> Result<(), ExportError> {
        self.bucket.ask(self.bucket.objects.remove(path))
    }

    /// What an object's name has at its end.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Begins an object.
    pub fn begin(&self, path: &str) -> Object {
        Object { bucket: Arc::clone(&self.bucket), path: path.to_owned(), bytes: Vec::new() }
    }

    /// Replaces the manifest.
    pub fn write_manifest(&mut self, manifest: &mut Manifest) -> Result<(), ExportError> {
        self.version = replace(&self.bucket, manifest, Some(&self.version))?;
        Ok(())
    }

    /// Lets others write.
    pub fn release(self, manifest: &mut Manifest) -> Result<(), ExportError> {
        manifest.writer = None;
        let bucket = &self.bucket;
        let text = manifest.text(&bucket.objects.place(manifest::NAME))?;
        let written = bucket.objects.replace(manifest::NAME, text.into(), Some(&self.version));
        bucket.tell(written).map(drop).map_err(|error| taken_over(bucket, error))
    }
}

/// An object that is not written yet: in memory.
pub struct Object {
    bucket: Arc<Bucket>,
    path: String,
    bytes: Vec<u8>,
}

impl Object {
    /// Writes it to the bucket.
    pub fn keep(self) -> Result<(), ExportError> {
        self.bucket.ask(self.bucket.objects.put(&self.path, self.bytes.into()))
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

/// Writes the manifest, with who has the bucket now, over the version that was read or written last.
fn replace(
    bucket: &Bucket,
    manifest: &mut Manifest,
    before: Option<&ObjectVersion>,
) -> Result<ObjectVersion, ExportError> {
    let until = (bucket.who.clock)().saturating_add(HELD_FOR);
    manifest.writer = Some(Writer { id: bucket.who.id.clone(), until });
    let text = manifest.text(&bucket.objects.place(manifest::NAME))?;
    let written = bucket.objects.replace(manifest::NAME, text.into(), before);
    bucket.ask(written).map_err(|error| taken_over(bucket, error))
}

fn taken_over(bucket: &Bucket, error: ExportError) -> ExportError {
    match error {
        ExportError::Objects(ObjectsError::Changed(_)) => ExportError::TakenOver(bucket.place()),
        other => other,
    }
}
