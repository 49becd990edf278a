//! Opens the data directory in this process, or connects to the service that has it open.

use std::thread;
use std::time::{Duration, Instant};

use orrery::config::Settings;
use orrery::control::{Client, ControlError};
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

/// Opens an existing data directory, and never creates one.
pub fn open_existing(settings: &Settings) -> Result<Opened, Failure> {
    let opened = open(settings, None)?;
    if let (Opened::Local(node), Some(wanted)) = (&opened, settings.config.network()) {
        check_network(node.store().network(), &wanted)?;
    }
    Ok(opened)
}

/// Opens the data directory, or creates a new one of this network.
pub fn open(settings: &Settings, network: Option<&Network>) -> Result<Opened, Failure> {
    let mut opened = open_or_reach(settings, network)?;
    if let (Opened::Running(client), Some(wanted)) =
        (&mut opened, network.cloned().or(settings.config.network()))
    {
        let served = client.status()?.network_passphrase;
        check_network(&Network::from_passphrase(served), &wanted)?;
    }
    Ok(opened)
}

/// Opens the data directory in this process. Fails when a service is already running on it.
pub fn open_exclusive(settings: &Settings, network: Option<&Network>) -> Result<Node, Failure> {
    match open_or_reach(settings, network)? {
        Opened::Local(node) => Ok(*node),
        Opened::Running(_) => {
            let in_use = StoreError::InUse(settings.config.data_dir.clone());
            Err(Failure::in_use(in_use.to_string()))
        }
    }
}

fn open_or_reach(settings: &Settings, network: Option<&Network>) -> Result<Opened, Failure> {
    let config = &settings.config;
    let begun = Instant::now();
    loop {
        let in_use = match Node::open(config, network) {
            Ok(node) => return Ok(Opened::Local(Box::new(node))),
            Err(ServiceError::Store(in_use @ StoreError::InUse(_))) => in_use,
            Err(error) => return Err(error.into()),
        };
        match Client::connect(&config.data_dir) {
            Ok(Some(client)) => return Ok(Opened::Running(client)),
            Ok(None) | Err(ControlError::Closed) if begun.elapsed() < LOCK_WAIT => {
                thread::sleep(RETRY_INTERVAL);
            }
            Ok(None) => return Err(Failure::in_use(in_use.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
}

fn check_network(stored: &Network, wanted: &Network) -> Result<(), Failure> {
    if stored == wanted {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the data directory holds {stored}, not {wanted}: give another directory for {wanted}"
    )))
}
