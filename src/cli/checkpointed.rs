//! A checkpoint of a data directory to copy from, made by this process or by the service that runs on it.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use orrery::backup::{BackupError, Progress};
use orrery::config::Settings;
use orrery::control::{CHECKPOINT, Client, STATUS};
use orrery::domain::{LedgerSet, Network};
use orrery::priority::Priority;
use orrery::service::Node;

use super::Failure;
use super::open::{self, Opened};

/// Interval of the status requests that keep the control connection open while files are copied.
/// The service closes a connection that is idle for ten minutes, and removes its checkpoint.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the directory of a checkpoint, and the ledgers in it that are attested.
pub type MakeCheckpoint<'a> = Box<dyn FnOnce() -> Result<(PathBuf, LedgerSet), BackupError> + 'a>;
/// Copies from a checkpoint.
pub type Copy<'a, T> =
    &'a mut dyn FnMut(MakeCheckpoint<'_>, Progress<'_>) -> Result<T, BackupError>;

/// What makes checkpoints of a data directory.
pub enum Checkpointed {
    /// This process.
    Local(Box<Node>),
    /// The service that runs on it; holds the connection to it, and the data directory.
    Running(Client, PathBuf),
}

impl Checkpointed {
    /// Opens the data directory, or connects to the service.
    pub fn open(settings: &Settings) -> Result<Self, Failure> {
        Ok(match open::open_existing(settings)? {
            Opened::Local(node) => Self::Local(node),
            Opened::Running(client) => Self::Running(client, settings.config.data_dir.clone()),
        })
    }

    /// Returns the network of the data directory.
    pub fn network(&mut self) -> Result<Network, Failure> {
        Ok(match self {
            Self::Local(node) => node.store().network().clone(),
            Self::Running(client, _) => {
                Network::from_passphrase(client.ask(STATUS, &())?.network_passphrase)
            }
        })
    }

    /// Copies from a checkpoint, which is removed afterwards. Returns also the milliseconds that making it took.
    pub fn copied<T>(&mut self, bar: &ProgressBar, copy: Copy<'_, T>) -> Result<(T, u64), Failure> {
        match self {
            Self::Local(node) => of_node(node, bar, copy),
            Self::Running(client, data_dir) => of_service(client, data_dir, bar, copy),
        }
    }
}

fn of_node<T>(node: &Node, bar: &ProgressBar, copy: Copy<'_, T>) -> Result<(T, u64), Failure> {
    let store = node.store();
    // Removes the checkpoint when it is dropped, after the copy.
    let mut held = None;
    let took = Cell::new(0);
    let checkpoint = || {
        let begun = Instant::now();
        let attested = node.attestation().ledgers(store);
        let directory = held.insert(store.checkpoint()?).directory().to_owned();
        took.set(begun.elapsed().as_millis() as u64);
        Ok((directory, attested))
    };
    let mut progress = |bytes| {
        bar.inc(bytes);
        Ok(())
    };
    let copied = copy(Box::new(checkpoint), &mut progress)?;
    Ok((copied, took.get()))
}

fn of_service<T>(
    client: &mut Client,
    data_dir: &Path,
    bar: &ProgressBar,
    copy: Copy<'_, T>,
) -> Result<(T, u64), Failure> {
    // The copy gives way to the service, which stores new ledgers meanwhile.
    Priority::Prompt.apply_to_current_thread();
    let ended = |error: &dyn ToString| BackupError::Other(error.to_string());
    let client = RefCell::new(client);
    let took = Cell::new(0);
    let checkpoint = || {
        let report = client.borrow_mut().ask(CHECKPOINT, &()).map_err(|error| ended(&error))?;
        took.set(report.milliseconds);
        Ok((data_dir.join(report.directory), report.attested))
    };
    let mut last_keep_alive = Instant::now();
    let mut progress = |bytes| {
        bar.inc(bytes);
        if last_keep_alive.elapsed() > KEEP_ALIVE_INTERVAL {
            last_keep_alive = Instant::now();
            client.borrow_mut().ask(STATUS, &()).map_err(|error| ended(&error))?;
        }
        Ok(())
    };
    let copied = copy(Box::new(checkpoint), &mut progress)?;
    Ok((copied, took.get()))
}
