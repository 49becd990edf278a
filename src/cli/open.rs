//! The data directory: opened here, or reached through the service that has it open.

use orrery::config::Settings;
use orrery::control::Client;
use orrery::domain::Network;
use orrery::service::{Ledgers, ServiceError};
use orrery::store::StoreError;

use super::Failure;

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
    let config = &settings.config;
    match Ledgers::open(config, network) {
        Ok(ledgers) => Ok(Opened::Here(Box::new(ledgers))),
        Err(ServiceError::Store(in_use @ StoreError::InUse(_))) => {
            let Some(mut client) = Client::connect(&config.data_dir)? else {
                return Err(Failure::in_use(in_use.to_string()));
            };
            if let Some(wanted) = network.cloned().or(config.network()) {
                let served = client.status()?.network_passphrase;
                check_network(&Network::from_passphrase(served), &wanted)?;
            }
            Ok(Opened::Running(client))
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens the directory for a service of its own: one that runs already is in the way.
pub fn alone(settings: &Settings, network: Option<&Network>) -> Result<Ledgers, Failure> {
    Ok(Ledgers::open(&settings.config, network)?)
}

fn check_network(stored: &Network, wanted: &Network) -> Result<(), Failure> {
    if stored == wanted {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the data directory holds {stored}, not {wanted}: give another directory for {wanted}"
    )))
}
