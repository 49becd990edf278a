//! All settings together: the only module that reads them from files, environment and flags. Their
//! sections are those of [`crate::settings`], and [`crate::auth::section`].
//!
//! A setting is looked up in the configuration file, then in the environment
//! (`ORRERY_SECTION_KEY`), then in the flags; the last one found wins. The origin of each value is
//! recorded. `schema/config.reference.toml` documents every key.

mod load;
mod sinks;
mod trust;

use std::fmt::Display;
use std::path::PathBuf;

pub use load::{Layers, Origin, Settings};

use crate::auth::section::Auth;
use crate::domain::Network;
use crate::settings::{
    Backup, Core, Disk, Export, Http, Index, Indexers, Limits, Log, NetworkName, Programs, Queries,
    Retention, Rpc, Sinks, Site, Source, Status, Trust, Webhooks, section,
};

section! {
    /// All settings. [`Config::default`] holds the defaults.
    pub struct Config {
        /// Directory of all stored data.
        pub data_dir: PathBuf = PathBuf::from("orrery-data"),
            "a directory, such as \"/var/lib/orrery\"";
        /// Name of the network; empty uses the network of the data directory.
        pub network: NetworkName = NetworkName::default();
        /// Passphrase of a network without a name, instead of `network`.
        pub network_passphrase: String = String::new(), "the passphrase of a network";
        /// The HTTP server.
        pub http: Http = Http::default();
        /// Which events are indexed.
        pub index: Index = Index::default();
        /// Limits on clients' requests.
        pub limits: Limits = Limits::default();
        /// Retention of stored data.
        pub retention: Retention = Retention::default();
        /// Free space to keep on the disk.
        pub disk: Disk = Disk::default();
        /// Continuous export of a running service.
        pub export: Export = Export::default();
        /// The bucket of snapshots.
        pub backup: Backup = Backup::default();
        /// Databases to which rows are copied, by their names.
        pub sinks: Sinks = Sinks::default();
        /// Sources of ledgers of a running service.
        pub source: Source = Source::default();
        /// What is checked of ledgers, and the validators that attest them.
        pub trust: Trust = Trust::default();
        /// The stellar-core child process, for sources of the kind `core`.
        pub core: Core = Core::default();
        /// Limits of indexing programs.
        pub programs: Programs = Programs::default();
        /// Limits of SQL queries over programs' tables.
        pub queries: Queries = Queries::default();
        /// Webhooks.
        pub webhooks: Webhooks = Webhooks::default();
        /// Smart account and passkey wallet lookups.
        pub indexers: Indexers = Indexers::default();
        /// The JSON-RPC interface.
        pub rpc: Rpc = Rpc::default();
        /// The web site.
        pub site: Site = Site::default();
        /// Targets of messages about the service's state.
        pub status: Status = Status::default();
        /// Plan of issued tokens, and keys of other accepted issuers.
        pub auth: Auth = Auth::default();
        /// Logging.
        pub log: Log = Log::default();
    }
}

impl Config {
    /// Returns the configured network; `None` when none is named.
    pub fn network(&self) -> Option<Network> {
        let passphrase = Some(&self.network_passphrase).filter(|text| !text.is_empty());
        passphrase.map(Network::from_passphrase).or_else(|| self.network.network())
    }

    fn network_error(&self) -> Option<String> {
        let both = self.network.network().is_some() && !self.network_passphrase.is_empty();
        both.then(|| "network and network_passphrase are both given: keep one of them".to_owned())
    }

    /// Returns the directory used only by stellar-core.
    pub fn core_storage(&self) -> PathBuf {
        if self.core.storage.as_os_str().is_empty() {
            self.data_dir.join("core")
        } else {
            self.core.storage.clone()
        }
    }
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The value of a flag is wrong.
    #[error("{0}")]
    Flag(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl ConfigError {
    /// Creates the error of a setting; `what` says what is wrong with it.
    fn of(origin: &Origin, what: impl Display) -> Self {
        let sentence = format!("{origin}: {what}");
        if matches!(origin, Origin::Flag(_)) { Self::Flag(sentence) } else { Self::Other(sentence) }
    }
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map(|key| format!(" (did you mean {key}?)")).unwrap_or_default()
}

/// Checks settings that are valid one by one but may contradict each other.
fn check_together(config: &Config) -> Result<(), ConfigError> {
    let reasons = [
        config.network_error(),
        config.source.validation_error(),
        config.trust_error(),
        config.rpc.validation_error(),
        config.export.validation_error(&config.retention),
        config.backup.validation_error(),
        config.sinks_error(),
        config.limits.validation_error(config.queries.answer_mib),
        config.programs.validation_error(),
        config.webhooks.validation_error(),
        config.status.validation_error(),
    ];
    reasons.into_iter().flatten().next().map_or(Ok(()), |it| Err(ConfigError::Other(it)))
}

#[cfg(test)]
mod tests;
