//! Settings: the only module that reads them from files, environment, flags and defaults.
//!
//! A setting is looked up in the configuration file, then in the environment
//! (`ORRERY_SECTION_KEY`), then in the flags; the last one found wins. The origin of each value is
//! recorded. `schema/config.reference.toml` documents every key.

mod disk;
mod export;
mod indexers;
mod limits;
mod load;
mod programs;
mod rpc;
mod section;
mod source_kinds;
mod source_spec;
mod sources;
mod trust;
mod values;
mod webhooks;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

pub use disk::Disk;
pub use export::Export;
pub use indexers::Indexers;
pub use limits::Limits;
pub use load::{Layers, Origin, Settings};
pub use programs::{Programs, Queries};
pub use rpc::Rpc;
use section::{nonzero, section};
pub use source_kinds::{Source, SourceAddress, SourceKind};
pub use source_spec::{LakeCredentials, LakeSpec, SourceSpec};
pub use sources::SourcePlan;
pub use trust::{RewrittenEvents, Trust, TrustError, TrustedValidators, UnboundEvents};
pub use values::{
    CorsOrigin, Header, MetricsReaders, NetworkName, Proxies, PublicKeyFile, Secret, SecretUrl,
    Start, UnknownParameters,
};
pub use webhooks::Webhooks;

use crate::auth::Plan;
use crate::domain::{ContractId, Network};
use crate::observe::logs::{LogFormat, LogLevel};

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
        /// Targets of messages about the service's state.
        pub status: Status = Status::default();
        /// Plan of issued tokens, and keys of other accepted issuers.
        pub auth: Auth = Auth::default();
        /// Logging.
        pub log: Log = Log::default();
    }
}

section! {
    /// `[http]`
    pub struct Http {
        /// Address and port to listen on.
        pub listen: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8484);
        /// Origins whose web pages may use routes that need a token (CORS).
        pub cors_origins: Vec<CorsOrigin> = Vec::new();
        /// Proxies whose `X-Forwarded-For` is trusted for the client's address.
        pub trusted_proxies: Vec<Proxies> = Vec::new();
        /// Maximum number of concurrent connections.
        pub connections: NonZeroU32 = nonzero!(1024);
        /// Clients that may read `/metrics`.
        pub metrics: MetricsReaders = MetricsReaders::default();
        /// What becomes of a request with a parameter that its route does not have.
        pub unknown_parameters: UnknownParameters = UnknownParameters::default();
    }
}

section! {
    /// `[index]`
    pub struct Index {
        /// Whether events of classic operations are indexed (CAP-67).
        pub classic_events: bool = false;
        /// Whether fee events are indexed.
        pub fee_events: bool = false;
        /// Contracts whose events are indexed; empty for all.
        #[serde(with = "values::as_text")]
        pub contracts: Vec<ContractId> = Vec::new();
    }
}

section! {
    /// `[retention]`. All values are numbers of ledgers.
    pub struct Retention {
        /// Number of newest raw ledgers to keep; 0 keeps none.
        // One week of the public network, as RPC nodes keep.
        pub raw_ledgers: u32 = 120_960, "a number of ledgers from 0 (keep none) to 4294967295";
        /// Number of newest ledgers whose events are kept; 0 keeps all.
        pub events: u32 = 0, "a number of ledgers from 0 (keep all) to 4294967295";
        /// Number of newest ledgers whose transactions are kept; 0 keeps all.
        pub transactions: u32 = 0, "a number of ledgers from 0 (keep all) to 4294967295";
        /// Maximum number of additional ledgers kept for active consumers, such as programs, that
        /// have not processed them yet.
        // One day.
        pub wait_for_consumers: u32 = 17_280,
            "a number of ledgers from 0 (do not wait) to 4294967295";
    }
}

section! {
    /// `[core]`
    pub struct Core {
        /// The stellar-core program: a path, or a name that is looked up in `PATH`.
        pub binary: PathBuf = PathBuf::from("stellar-core"),
            "a program, such as \"stellar-core\" or \"/usr/bin/stellar-core\"";
        /// Directory used only by stellar-core; empty for one in the data directory.
        pub storage: PathBuf = PathBuf::new(), "a directory, such as \"/var/lib/orrery/core\"";
        /// Path of the operator's own stellar-core configuration file; empty for none.
        pub config: PathBuf = PathBuf::new(), "a file, such as \"/etc/orrery/stellar-core.toml\"";
        /// Port of core's HTTP interface. 0 uses the port in `config`, else 11626 for a standalone
        /// network and a free port for others.
        pub http_port: u16 = 0,
            "a port from 1 to 65535, or 0 for the one in 'core.config' or the default";
    }
}

section! {
    /// `[status]`: targets of messages about changes of the service's state. Each is empty for
    /// none.
    pub struct Status {
        /// Address of a Discord webhook.
        pub discord_webhook: SecretUrl = SecretUrl::default();
        /// Address of a Slack webhook.
        pub slack_webhook: SecretUrl = SecretUrl::default();
        /// Token of a Telegram bot, a colon, and the number or `@name` of a chat.
        pub telegram_bot: Secret = Secret::default(),
            "the token of a bot, a colon, and the number or @name of a chat";
        /// Address to which messages are sent as JSON.
        pub generic_url: SecretUrl = SecretUrl::default();
    }
}

impl Status {
    /// Returns an error message when the target of a Telegram bot is incomplete.
    fn validation_error(&self) -> Option<String> {
        let bot = self.telegram_bot.as_option()?;
        (bot.split(':').filter(|part| !part.is_empty()).count() < 3).then(|| {
            "status.telegram_bot is incomplete: give the token of a bot, which itself contains a colon, \
             then a colon and the number or @name of a chat"
                .to_owned()
        })
    }
}

section! {
    /// `[auth]`
    pub struct Auth {
        /// Plan of a token that is issued without one.
        pub default_plan: Plan = Plan::Pro;
        /// Public keys of other issuers whose tokens are accepted.
        pub public_keys: Vec<PublicKeyFile> = Vec::new();
    }
}

section! {
    /// `[log]`
    pub struct Log {
        /// Format of log lines.
        pub format: LogFormat = LogFormat::Auto;
        /// Lowest level of the log lines that are written.
        pub level: LogLevel = LogLevel::Info;
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
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The configuration file is not valid TOML.
    #[error("{}, line {line}: {reason}", path.display())]
    Syntax {
        /// Path of the file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Error message of the parser.
        reason: String,
    },
    /// The key does not exist.
    #[error("{origin}: there is no setting {key}{}", did_you_mean(suggestion))]
    UnknownKey {
        /// Origin of the setting.
        origin: Origin,
        /// The key as given.
        key: String,
        /// The most similar existing key; `None` when none is similar enough.
        suggestion: Option<String>,
    },
    /// The value is invalid for its key.
    #[error("{origin}: {key} cannot be {value}{}: give {expected}", did_you_mean(suggestion))]
    WrongValue {
        /// Origin of the value.
        origin: Origin,
        /// The key, with its section.
        key: String,
        /// The value as given; a placeholder when it may contain a secret.
        value: String,
        /// The valid word that is most similar, in quotation marks; `None` when none is similar
        /// enough.
        suggestion: Option<String>,
        /// Description of the valid values.
        expected: &'static str,
    },
    /// The text is valid for its key, and not what was meant.
    #[error("{origin}: {key} {reason}: write the value without that")]
    Unintended {
        /// Origin of the value.
        origin: Origin,
        /// The key, with its section.
        key: String,
        /// What is wrong with the text.
        reason: &'static str,
    },
    /// Settings contradict each other, or name no usable source; the text is the error message.
    #[error("{0}")]
    Contradiction(String),
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|key| format!(" (did you mean {key}?)")).unwrap_or_default()
}

/// Checks settings that are valid one by one but may contradict each other.
fn check_together(config: &Config) -> Result<(), ConfigError> {
    let reasons = [
        config.network_error(),
        config.source.validation_error(),
        config.trust_error(),
        config.rpc.validation_error(),
        config.export.validation_error(&config.retention),
        config.limits.validation_error(config.queries.answer_mib),
        config.programs.validation_error(),
        config.webhooks.validation_error(),
        config.status.validation_error(),
    ];
    reasons.into_iter().flatten().next().map_or(Ok(()), |it| Err(ConfigError::Contradiction(it)))
}

#[cfg(test)]
mod tests;
