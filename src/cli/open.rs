//! Opens the data directory in this process, or connects to the service that has it open.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use orrery::account;
use orrery::config::{Config, Settings};
use orrery::control::{Client, ControlError, STATUS};
use orrery::domain::Network;
use orrery::service::{Node, ServiceError};
use orrery::store::StoreError;

use super::Failure;

/// Maximum time to wait while the directory is locked but no service answers. A child process that
/// a killed service was just starting keeps the lock and the socket until it executes its own
/// program.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Interval between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Access to the ledgers of a data directory.
pub enum Opened {
    /// Opened by this process.
    Local(Box<Node>),
    /// Opened by a running service that answers; holds the connection to it.
    Running(Client),
}

/// A data directory that may not have existed before. What this process created is removed when this
/// is dropped, unless it is kept: a start that fails leaves no directory that belongs to a network.
pub struct NewDirectory {
    path: PathBuf,
    was_missing: bool,
    is_ours: bool,
}

impl NewDirectory {
    /// Remembers whether the directory exists, before it is opened.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), was_missing: !path.exists(), is_ours: false }
    }

    /// Whether the directory did not exist before.
    pub fn was_missing(&self) -> bool {
        self.was_missing
    }

    /// Remembers that this process has opened the directory, and so is the one that created it if it
    /// was missing and nothing is stored in it.
    pub fn created(&mut self, node: &Node) {
        self.is_ours = self.was_missing && node.store().status().latest().is_none();
    }

    /// Keeps the directory.
    pub fn keep(&mut self) {
        self.is_ours = false;
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        if self.is_ours {
            // Otherwise the directory stays, without any ledgers.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Opens an existing data directory, and never creates one.
pub fn open_existing(settings: &Settings) -> Result<Opened, Failure> {
    existing(settings, &|config| Node::open(config, None))
}

/// Opens an existing data directory for reading, and changes nothing in it.
pub fn look(settings: &Settings) -> Result<Opened, Failure> {
    existing(settings, &Node::open_read_only)
}

/// How this process opens a data directory.
type Open<'a> = &'a dyn Fn(&Config) -> Result<Node, ServiceError>;

fn existing(settings: &Settings, open: Open<'_>) -> Result<Opened, Failure> {
    let config = &settings.config;
    let open = |config: &Config| {
        open(config).map_err(|error| match error {
            ServiceError::Store(StoreError::Empty(directory)) => {
                OpenError::Other(nothing_in(&directory))
            }
            error => OpenError::of(error, config),
        })
    };
    with_network(open_or_reach(config, &open)?, config.network().as_ref())
}

/// Opens the data directory, or creates a new one of this network.
pub fn open(settings: &Settings, network: Option<&Network>) -> Result<Opened, Failure> {
    let opened = open_or_reach(&settings.config, &opening(network))?;
    with_network(opened, network.or(settings.config.network().as_ref()))
}

/// Opens the data directory in this process for a service. Fails when one is already running on it.
pub fn open_for_service(settings: &Settings, network: Option<&Network>) -> Result<Node, Failure> {
    let open = |config: &Config| {
        Node::open_for_service(config, network).map_err(|error| OpenError::of(error, config))
    };
    match open_or_reach(&settings.config, &open)? {
        Opened::Local(node) => Ok(*node),
        Opened::Running(_) => {
            let in_use = StoreError::InUse(settings.config.data_dir.clone());
            Err(Failure::in_use(in_use.to_string()))
        }
    }
}

fn opening(network: Option<&Network>) -> impl Fn(&Config) -> Result<Node, OpenError> {
    move |config| Node::open(config, network).map_err(|error| OpenError::of(error, config))
}

/// Why this process cannot open a data directory.
enum OpenError {
    InUse(StoreError),
    Other(Failure),
}

impl OpenError {
    fn of(error: ServiceError, config: &Config) -> Self {
        match error {
            ServiceError::Store(in_use @ StoreError::InUse(_)) => Self::InUse(in_use),
            ServiceError::Store(StoreError::Io { path, source })
                if path == config.data_dir && !path.exists() =>
            {
                Self::Other(Failure::failed(format!(
                    "cannot create the data directory {} ({source}): name one with --data-dir in a \
                     place where this account may write",
                    path.display()
                )))
            }
            error => Self::Other(explained(error, &config.data_dir)),
        }
    }
}

fn open_or_reach(
    config: &Config,
    open: &dyn Fn(&Config) -> Result<Node, OpenError>,
) -> Result<Opened, Failure> {
    check_place(&config.data_dir)?;
    let begun = Instant::now();
    loop {
        let in_use = match open(config) {
            Ok(node) => return Ok(Opened::Local(Box::new(node))),
            Err(OpenError::InUse(in_use)) => in_use,
            Err(OpenError::Other(failure)) => return Err(failure),
        };
        match Client::connect(&config.data_dir) {
            Ok(Some(client)) => return Ok(Opened::Running(client)),
            Ok(None) | Err(ControlError::Closed(_)) if begun.elapsed() < LOCK_WAIT => {
                thread::sleep(RETRY_INTERVAL);
            }
            Ok(None) => return Err(Failure::in_use(in_use.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Fails when a path neither is a directory nor can become one, because it leads through a file or
/// through a link to nothing.
pub fn check_place(path: &Path) -> Result<(), Failure> {
    // Only the nearest part that exists decides; whoever may not see it is told so later.
    let existing = path.ancestors().find_map(|part| {
        let found = fs::symlink_metadata(part).ok()?;
        Some((part, found.is_symlink()))
    });
    let Some((part, is_link)) = existing else { return Ok(()) };
    let cause = match fs::metadata(part) {
        Ok(found) if !found.is_dir() => "is not a directory".to_owned(),
        Err(error) if is_link && error.kind() == ErrorKind::NotFound => {
            let target = fs::read_link(part).unwrap_or_default();
            format!("is a link to {}, which does not exist", target.display())
        }
        _ => return Ok(()),
    };
    Err(Failure::failed(format!("{} {cause}: name a directory with --data-dir", part.display())))
}

/// Returns the failure of a verb that creates no data directory.
pub fn nothing_in(directory: &Path) -> Failure {
    let path = directory.display();
    Failure::failed(if directory.exists() {
        format!(
            "the data directory {path} holds nothing yet: `orrery serve` or `orrery import` with \
             --data-dir {path} and --network stores ledgers in it"
        )
    } else {
        format!("there is no data directory {path}: name an existing one with --data-dir")
    })
}

/// Converts an error about a data directory. If a file may not be used because it belongs to another
/// account, the failure names it.
pub fn explained(error: impl Into<Failure>, data_dir: &Path) -> Failure {
    let failure: Failure = error.into();
    let denied = failure.to_string().contains("Permission denied");
    let foreign = if denied { account::foreign_file(data_dir) } else { None };
    foreign.map_or(failure, Failure::from)
}

fn with_network(mut opened: Opened, wanted: Option<&Network>) -> Result<Opened, Failure> {
    let Some(wanted) = wanted else { return Ok(opened) };
    match &mut opened {
        Opened::Local(node) => check_network(node.store().network(), wanted)?,
        Opened::Running(client) => {
            let served = client.ask(STATUS, &())?.network_passphrase;
            check_network(&Network::from_passphrase(served), wanted)?;
        }
    }
    Ok(opened)
}

fn check_network(stored: &Network, wanted: &Network) -> Result<(), Failure> {
    if stored == wanted {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the data directory holds {stored}, not {wanted}: give another directory for {wanted}"
    )))
}
