//! The sinks of a running service, and the name by which it writes into databases.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::{Node, READER_OFF, ServiceError, secrets};
use crate::config::Config;
use crate::durable;
use crate::programs::Programs;
use crate::sinks::{SinkDeps, Sinks, component};
use crate::steady::unix_now_ms;
use crate::tables::CHAIN;

/// File with random bytes, by which databases tell a data directory from others. A backup does not have it: what is
/// restored is another one.
const WRITER_FILE: &str = "sink-writer";
/// Number of its bytes.
const WRITER_BYTES: usize = 32;
/// Identifies the machine, where there is one. A container gets the host's name anew each time it is made.
const MACHINE: &str = "/etc/machine-id";
const HOST: &str = "/etc/hostname";
/// Length of a writer's identifier, in hexadecimal digits.
const ID_DIGITS: usize = 32;

/// Starts the sinks of the settings.
///
/// # Errors
/// When the file that identifies the data directory cannot be read or written, or a thread cannot be started.
pub(super) fn start(
    node: &Node,
    config: &Config,
    programs: &Arc<Programs>,
    stop: watch::Receiver<bool>,
    runtime: Handle,
) -> Result<Arc<Sinks>, ServiceError> {
    if programs.copied().iter().any(|it| it.manifest.project_name.eq_ignore_ascii_case(CHAIN)) {
        tracing::warn!(
            "a project has the name {CHAIN}, which is that of the tables of the whole chain now: it keeps its name, \
             and new projects cannot have it"
        );
    }
    let directory = node.store().directory();
    let mut sinks = config.sinks.clone();
    if node.reader().is_some() {
        // What is in the databases is the writer's.
        for name in std::mem::take(&mut sinks.0).into_keys() {
            node.health().up_with(component(&name), READER_OFF);
        }
    }
    let writer = match sinks.0.is_empty() {
        true => String::new(),
        false => writer_id(&secrets(directory)).map_err(|error| {
            ServiceError::Other(format!("the file {WRITER_FILE} among the secrets: {error}"))
        })?,
    };
    let deps = SinkDeps {
        programs: Arc::clone(programs),
        store: Arc::clone(node.store()),
        health: Arc::clone(node.health()),
        metrics: Arc::clone(node.metrics()),
        writer,
        writer_name: writer_name(directory),
        clock: Arc::new(unix_now_ms),
        runtime,
        stop,
    };
    Sinks::start(&sinks, &deps).map(Arc::new).map_err(ServiceError::thread)
}

/// Returns what people know the service by: its host and data directory.
fn writer_name(directory: &Path) -> String {
    let host = fs::read_to_string(HOST).unwrap_or_default();
    let host = match host.trim() {
        "" => "a host without a name",
        host => host,
    };
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    format!("{host}, {}", directory.display())
}

/// Returns what distinguishes the data directory from all others: random bytes in a file, and which file it is on
/// which machine, so that a copy of the directory has another one.
fn writer_id(secrets: &Path) -> io::Result<String> {
    let path = secrets.join(WRITER_FILE);
    if fs::read(&path).map_or(true, |bytes| bytes.len() != WRITER_BYTES) {
        let bytes: [u8; WRITER_BYTES] = rand::random();
        durable::write_atomically(&path, |file| file.write_all(&bytes))?;
    }
    let mut hash = Sha256::new_with_prefix(fs::read(&path)?);
    hash.update(File::open(&path)?.metadata()?.ino().to_be_bytes());
    hash.update(fs::read(MACHINE).unwrap_or_default());
    let mut id = hex::encode(hash.finalize());
    id.truncate(ID_DIGITS);
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_directory_is_another_writer() {
        let (one, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let id = writer_id(one.path()).unwrap();
        assert_eq!((writer_id(one.path()).unwrap(), id.len()), (id.clone(), ID_DIGITS));
        fs::copy(one.path().join(WRITER_FILE), copy.path().join(WRITER_FILE)).unwrap();
        assert_ne!(writer_id(copy.path()).unwrap(), id);
        let moved = copy.path().join("moved");
        fs::create_dir(&moved).unwrap();
        fs::rename(one.path().join(WRITER_FILE), moved.join(WRITER_FILE)).unwrap();
        assert_eq!(writer_id(&moved).unwrap(), id);
        fs::write(moved.join(WRITER_FILE), "cut off").unwrap();
        assert_ne!(writer_id(&moved).unwrap(), id);
    }
}
