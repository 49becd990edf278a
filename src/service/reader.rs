//! What a data directory says that was restored from a snapshot: it is a reader, whose writer goes on
//! elsewhere, until it is promoted. Whatever reaches others (webhooks, the export, sinks, status messages)
//! is the writer's until then.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ServiceError;
use crate::durable::write_atomically;

/// Name of the file that makes a data directory a reader.
pub const READER_FILE: &str = "reader.json";
/// Name of the file that says of which writers a data directory was a reader.
pub const PROMOTED_FILE: &str = "promoted.json";
/// What a part of the service that is off in a reader tells health.
pub const READER_OFF: &str =
    "off: this data directory is a reader of a snapshot until `orrery promote`";

/// From where a data directory was restored, while it is a reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reader {
    /// Location of the snapshots, without secrets.
    pub from: String,
    /// Name of the snapshot, which is the time at which it was begun.
    pub snapshot: String,
    /// Newest ledger of the snapshot; `None` when it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_ledger: Option<u32>,
    /// The writer's public key, in hexadecimal, with which the snapshot was signed.
    pub writer: String,
}

impl Reader {
    /// Returns what a data directory says; `None` when it is no reader.
    ///
    /// # Errors
    /// When its file cannot be read, or does not hold what this program writes: a directory of which it is
    /// not known whether it is a reader must not act as a writer.
    pub fn of(data_dir: &Path) -> Result<Option<Self>, ServiceError> {
        let path = file(data_dir);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|error| failed("read", &path, error))?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            ServiceError::Other(format!(
                "{} does not say of what the data directory is a reader ({error}): restore the snapshot \
                 again, into another directory",
                path.display()
            ))
        })
    }

    /// Makes a data directory a reader. The file is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, data_dir: &Path) -> Result<(), ServiceError> {
        let path = file(data_dir);
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| failed("write", &path, error.into()))?;
        text.push(b'\n');
        write_atomically(&path, |file| file.write_all(&text))
            .map_err(|error| failed("write", &path, error))
    }

    /// Returns the public keys of the writers whose tokens a data directory accepts: of the one of which it is a reader,
    /// and of those of which it was one.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn writers(data_dir: &Path) -> Result<BTreeSet<String>, ServiceError> {
        let mut writers = promoted(data_dir)?;
        writers.extend(Self::of(data_dir)?.map(|reader| reader.writer));
        Ok(writers)
    }

    /// Makes a data directory a writer. The change is on disk when this returns.
    ///
    /// # Errors
    /// When a file cannot be written or removed.
    pub fn end(data_dir: &Path) -> Result<(), ServiceError> {
        let (path, promoted) = (file(data_dir), data_dir.join(PROMOTED_FILE));
        let writers = Promoted { writers: Self::writers(data_dir)? };
        let text = serde_json::to_vec_pretty(&writers)
            .map_err(|error| failed("write", &promoted, error.into()))?;
        write_atomically(&promoted, |file| file.write_all(&text))
            .map_err(|error| failed("write", &promoted, error))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed("remove", &path, error))
            }
            _ => fs::File::open(data_dir)
                .and_then(|directory| directory.sync_all())
                .map_err(|error| failed("remove", &path, error)),
        }
    }

    /// Returns whether a data directory has the file of a reader, whatever it holds.
    pub fn is_named_in(data_dir: &Path) -> bool {
        file(data_dir).exists()
    }

    /// Says in one sentence what this is.
    pub fn words(&self) -> String {
        let Self { from, snapshot, .. } = self;
        format!(
            "a reader of {from}, snapshot {snapshot}: webhooks, export, sinks and status messages are off \
             until `orrery promote`"
        )
    }
}

/// Content of [`PROMOTED_FILE`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct Promoted {
    /// Public keys in hexadecimal.
    writers: BTreeSet<String>,
}

fn promoted(data_dir: &Path) -> Result<BTreeSet<String>, ServiceError> {
    let path = data_dir.join(PROMOTED_FILE);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeSet::new()),
        read => read.map_err(|error| failed("read", &path, error))?,
    };
    let promoted: Promoted = serde_json::from_slice(&text).map_err(|error| {
        ServiceError::Other(format!(
            "{} does not name the writers whose tokens are accepted ({error}): remove it, and their tokens are \
             void here",
            path.display()
        ))
    })?;
    Ok(promoted.writers)
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join(READER_FILE)
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> ServiceError {
    ServiceError::Other(format!("cannot {what} {}: {error}", path.display()))
}
