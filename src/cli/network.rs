//! The flags that name a network.

use clap::Args;

use super::{FlagValue, flag};

/// The network of a data directory.
#[derive(Debug, Args)]
pub struct NetworkFlags {
    /// testnet, mainnet, futurenet or local; needed for a new data directory
    #[arg(long, global = true, value_name = "NAME")]
    network: Option<String>,
    /// Passphrase of a network without a name, instead of --network
    #[arg(long, global = true, value_name = "TEXT", conflicts_with = "network")]
    network_passphrase: Option<String>,
}

impl NetworkFlags {
    /// Returns the settings of the flags. Each replaces the other one, which a file or the
    /// environment may give.
    pub fn settings(&self) -> Vec<Option<FlagValue>> {
        const NAME: &str = "--network";
        const PASSPHRASE: &str = "--network-passphrase";
        let (name, passphrase) = (self.network.clone(), self.network_passphrase.clone());
        let instead = |given: &Option<String>| given.as_ref().map(|_| String::new());
        vec![
            flag("network", PASSPHRASE, instead(&passphrase)),
            flag("network_passphrase", NAME, instead(&name)),
            flag("network", NAME, name),
            flag("network_passphrase", PASSPHRASE, passphrase),
        ]
    }
}
