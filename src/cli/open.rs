//! The data directory: opened here, or reached through the service that has it open.

use std::thread;
use std::time::{Duration, Instant};

use orrery::config::Settings;
use orrery::control::{Client, ControlError};
use orrery::domain::Network;
use orrery::service::{Ledgers, ServiceError};
use orrery::store::StoreError;

use super::Failure;

/// How long a directory may seem to be in use without anybody who answers. The lock and the socket of a
/// service that was killed live on in a child that it was just starting, until that is a program of its own.
const LETS_GO_WITHIN: Duration = Duration::from_secs(1);
/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A way to the ledgers of a data directory.
pub enum Opened {
    /// This process has it open.
    Here(Box<Ledgers>),
    /// A running service has it open and answers.
    Running(Client),
}

/// Opens what exists already, and nothing else.
pub fn existing(settings: &Settings) -> Result<Opened, Failure> {
    let opened = open(settings, None)?;
    if let (Opened::Here(ledgers), Some(wanted)) = (&opened, settings.config.network()) {
        check_network(ledgers.store().network(), &wanted)?;
    }
    Ok(opened)
}

/// Opens the directory, or makes a new one of this network.
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

/// Opens the directory for a service of its own: one that runs already is in the way.
pub fn alone(settings: &Settings, network: Option<&Network>) -> Result<Ledgers, Failure> {
    match open_or_reach(settings, network)? {
        Opened::Here(ledgers) => Ok(*ledgers),
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
        let in_use = match Ledgers::open(config, network) {
            Ok(ledgers) => return Ok(Opened::Here(Box::new(ledgers))),
            Err(ServiceError::Store(in_use @ StoreError::InUse(_))) => in_use,
            Err(error) => return Err(error.into()),
        };
        match Client::connect(&config.data_dir) {
            Ok(Some(client)) => return Ok(Opened::Running(client)),
            Ok(None) | Err(ControlError::Closed) if begun.elapsed() < LETS_GO_WITHIN => {
                thread::sleep(LOOK_EVERY);
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
