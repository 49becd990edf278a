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
mod sources;
mod values;
mod webhooks;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use disk::Disk;
pub use export::Export;
pub use indexers::Indexers;
pub use limits::Limits;
pub use load::{Layers, Origin, Settings};
pub use programs::{Programs, Queries};
pub use rpc::Rpc;
pub use sources::{LakeCredentials, LakeSpec, SourcePlan, SourceSpec};
pub use values::{
    CorsOrigin, Header, MetricsReaders, PublicKeyFile, Secret, SecretUrl, SourceAddress,
    SourceKind, Start,
};
pub use webhooks::Webhooks;

use crate::auth::Plan;
use crate::domain::{ContractId, Network};
use crate::observe::logs::{LogFormat, LogLevel};

const CONNECTIONS: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// All settings. [`Config::default`] holds the defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Directory of all stored data.
    pub data_dir: PathBuf,
    /// Name or passphrase of the network; empty uses the network of the data directory.
    pub network: String,
    /// The HTTP server.
    pub http: Http,
    /// Which events are indexed.
    pub index: Index,
    /// Limits on clients' requests.
    pub limits: Limits,
    /// Retention of stored data.
    pub retention: Retention,
    /// Free space to keep on the disk.
    pub disk: Disk,
    /// Continuous export of a running service.
    pub export: Export,
    /// Sources of ledgers of a running service.
    pub source: Source,
    /// The stellar-core child process, for sources of the kind `core`.
    pub core: Core,
    /// Limits of indexing programs.
    pub programs: Programs,
    /// Limits of SQL queries over programs' tables.
    pub queries: Queries,
    /// Webhooks.
    pub webhooks: Webhooks,
    /// Smart account and passkey wallet lookups.
    pub indexers: Indexers,
    /// The JSON-RPC interface.
    pub rpc: Rpc,
    /// Targets of messages about the service's state.
    pub status: Status,
    /// Plan of issued tokens, and keys of other accepted issuers.
    pub auth: Auth,
    /// Logging.
    pub log: Log,
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Origins whose web pages may use routes that need a token (CORS).
    pub cors_origins: Vec<CorsOrigin>,
    /// Proxies whose `X-Forwarded-For` is trusted for the client's address.
    pub trusted_proxies: Vec<IpAddr>,
    /// Maximum number of concurrent connections.
    pub connections: NonZeroU32,
    /// Clients that may read `/metrics`.
    pub metrics: MetricsReaders,
}

/// `[index]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Whether events of classic operations are indexed (CAP-67).
    pub classic_events: bool,
    /// Whether fee events are indexed.
    pub fee_events: bool,
    /// Contracts whose events are indexed; empty for all.
    #[serde(with = "values::as_text")]
    pub contracts: Vec<ContractId>,
}

/// `[retention]`. All values are numbers of ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Number of newest raw ledgers to keep; 0 keeps none.
    pub raw_ledgers: u32,
    /// Number of newest ledgers whose events are kept; 0 keeps all.
    pub events: u32,
    /// Number of newest ledgers whose transactions are kept; 0 keeps all.
    pub transactions: u32,
    /// Maximum number of additional ledgers kept for active consumers, such as programs, that have
    /// not processed them yet.
    pub wait_for_consumers: u32,
}

/// `[source]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Kind of the source to follow.
    pub kind: SourceKind,
    /// Directory or address of the lake; empty for the network's public one.
    pub path: String,
    /// Address of the RPC server; empty for the network's public one.
    pub rpc_url: SecretUrl,
    /// HTTP headers sent to that server.
    pub rpc_headers: Vec<Header>,
    /// Sources to ask for ledgers that the followed source does not provide, in this order.
    pub gaps: Vec<SourceAddress>,
    /// First ledger of an empty data directory.
    pub start: Start,
    /// Region of lakes at `s3://` addresses; empty uses the environment's.
    pub s3_region: String,
    /// Address of an S3-compatible server; empty uses the environment's, else AWS.
    pub s3_endpoint: String,
    /// Access key ID; empty uses the environment's credentials, or unsigned requests when it has
    /// none.
    pub s3_access_key_id: String,
    /// Secret access key of `s3_access_key_id`.
    pub s3_secret_access_key: Secret,
    /// Number of ledgers per file of a lake without a manifest; 0 when it has one.
    pub lake_ledgers_per_batch: u32,
    /// Number of files per directory of a lake without a manifest; 0 when it has one.
    pub lake_batches_per_partition: u32,
}

/// `[core]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The stellar-core program: a path, or a name that is looked up in `PATH`.
    pub binary: PathBuf,
    /// Directory used only by stellar-core; empty for one in the data directory.
    pub storage: PathBuf,
    /// Path of the operator's own stellar-core configuration file; empty for none.
    pub config: PathBuf,
    /// Port of core's HTTP interface. 0 uses the port in `config`, else 11626 for a standalone
    /// network and a free port for others.
    pub http_port: u16,
}

/// `[status]`: targets of messages about changes of the service's state. Each is empty for none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Address of a Discord webhook.
    pub discord_webhook: SecretUrl,
    /// Address of a Slack webhook.
    pub slack_webhook: SecretUrl,
    /// Token of a Telegram bot, a colon, and the number or `@name` of a chat.
    pub telegram_bot: Secret,
    /// Address to which messages are sent as JSON.
    pub generic_url: SecretUrl,
}

/// `[auth]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// Plan of a token that is issued without one.
    pub default_plan: Plan,
    /// Public keys of other issuers whose tokens are accepted.
    pub public_keys: Vec<PublicKeyFile>,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// Format of log lines.
    pub format: LogFormat,
    /// Lowest level of the log lines that are written.
    pub level: LogLevel,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("orrery-data"),
            network: String::new(),
            http: Http {
                listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8484),
                cors_origins: Vec::new(),
                trusted_proxies: Vec::new(),
                connections: CONNECTIONS,
                metrics: MetricsReaders::default(),
            },
            index: Index { classic_events: false, fee_events: false, contracts: Vec::new() },
            limits: Limits::default(),
            // One week of the public network, as RPC nodes keep.
            retention: Retention {
                raw_ledgers: 120_960,
                events: 0,
                transactions: 0,
                // One day.
                wait_for_consumers: 17_280,
            },
            disk: Disk::default(),
            export: Export::default(),
            source: Source {
                kind: SourceKind::Auto,
                path: String::new(),
                rpc_url: SecretUrl::default(),
                rpc_headers: Vec::new(),
                gaps: Vec::new(),
                start: Start::default(),
                s3_region: String::new(),
                s3_endpoint: String::new(),
                s3_access_key_id: String::new(),
                s3_secret_access_key: Secret::default(),
                lake_ledgers_per_batch: 0,
                lake_batches_per_partition: 0,
            },
            core: Core {
                binary: PathBuf::from("stellar-core"),
                storage: PathBuf::new(),
                config: PathBuf::new(),
                http_port: 0,
            },
            programs: Programs::default(),
            queries: Queries::default(),
            webhooks: Webhooks::default(),
            indexers: Indexers::default(),
            rpc: Rpc::default(),
            status: Status::default(),
            auth: Auth { default_plan: Plan::Pro, public_keys: Vec::new() },
            log: Log { format: LogFormat::Auto, level: LogLevel::Info },
        }
    }
}

impl Config {
    /// Returns the configured network; `None` when none is named.
    pub fn network(&self) -> Option<Network> {
        (!self.network.is_empty()).then(|| Network::from_name_or_passphrase(&self.network))
    }

    /// Returns the directory used only by stellar-core.
    pub fn core_storage(&self) -> PathBuf {
        match self.core.storage.as_os_str().is_empty() {
            true => self.data_dir.join("core"),
            false => self.core.storage.clone(),
        }
    }
}

/// Whether a value is never shown, because it is or may contain a secret.
fn is_secret(key: &str) -> bool {
    key.starts_with("status.")
        || [
            "source.rpc_url",
            "source.rpc_headers",
            "source.s3_secret_access_key",
            "export.s3_secret_access_key",
            "rpc.upstream",
            "rpc.upstream_headers",
        ]
        .contains(&key)
}

/// Returns the description of a key's valid values; it follows "give" in an error message. Every
/// key has one.
fn expected_value(key: &str) -> &'static str {
    match key {
        "data_dir" => "a directory, such as \"/var/lib/orrery\"",
        "network" => "testnet, mainnet, futurenet, local or a network passphrase",
        "http.listen" => "an IP address and a port, such as \"127.0.0.1:8484\"",
        "http.cors_origins" => {
            "a list of origins, such as [\"https://app.example.org\"], or [\"*\"]"
        }
        "http.trusted_proxies" => "a list of IP addresses, such as [\"10.0.0.1\"]",
        "http.metrics" => "loopback, all or off",
        "http.connections" => "a whole number from 1 to 4294967295",
        "index.classic_events" | "index.fee_events" => "true or false",
        "index.contracts" => "a list of contract IDs, strkeys of 56 characters that start with C",
        key if key.starts_with("disk.") => disk::expected_value(key),
        key if key.starts_with("export.") => export::expected_value(key),
        key if key.starts_with("limits.") => limits::expected_value(key),
        "retention.raw_ledgers" => "a number of ledgers from 0 (keep none) to 4294967295",
        "retention.events" | "retention.transactions" => {
            "a number of ledgers from 0 (keep all) to 4294967295"
        }
        "retention.wait_for_consumers" => "a number of ledgers from 0 (do not wait) to 4294967295",
        "source.kind" => "auto, none, sandbox, lake, rpc or core",
        "source.path" => {
            "a directory or an address, such as \"/srv/lake\" or \"s3://bucket/prefix\""
        }
        "source.rpc_url" => "an address, such as \"https://rpc.example.org\"",
        "source.rpc_headers" => "a list of headers, such as [\"Authorization: Bearer …\"]",
        "source.gaps" => {
            "a list of auto, none, lake, rpc, core, lake:ADDRESS, rpc:ADDRESS, s3://BUCKET/PREFIX or \
             directories with a slash in them"
        }
        "source.start" => "tip, genesis, oldest, a ledger from 1 to 4294967295, or nothing",
        "source.s3_region" => "a region, such as \"us-east-2\"",
        "source.s3_endpoint" => "an address, such as \"https://s3.example.org\"",
        "source.s3_access_key_id" => "the public half of an access key",
        "source.s3_secret_access_key" => "the secret half of an access key",
        "source.lake_ledgers_per_batch" | "source.lake_batches_per_partition" => {
            "a whole number from 0 (the lake has a manifest) to 4294967295"
        }
        "core.binary" => "a program, such as \"stellar-core\" or \"/usr/bin/stellar-core\"",
        "core.storage" => "a directory, such as \"/var/lib/orrery/core\"",
        "core.config" => "a file, such as \"/etc/orrery/stellar-core.toml\"",
        "core.http_port" => {
            "a port from 1 to 65535, or 0 for the one in 'core.config' or the default"
        }
        key if key.starts_with("programs.") || key.starts_with("queries.") => {
            programs::expected_value(key)
        }
        key if key.starts_with("webhooks.") => webhooks::expected_value(key),
        key if key.starts_with("indexers.") => indexers::expected_value(key),
        key if key.starts_with("rpc.") => rpc::expected_value(key),
        "status.discord_webhook" | "status.slack_webhook" | "status.generic_url" => {
            "an address that starts with https:// or http://"
        }
        "status.telegram_bot" => "the token of a bot, a colon, and the number or @name of a chat",
        "auth.default_plan" => "dev, builder, pro or protocol",
        "auth.public_keys" => {
            "a list of KID:EdDSA:FILE or KID:RS256:FILE, each a public key in PEM form, optionally \
             followed by a colon and a prefix that the owners of its tokens must have"
        }
        "log.format" => "auto, human or json",
        "log.level" => "error, warn, info, debug or trace",
        _ => "another value",
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
    #[error("{origin}: {key} cannot be {value}: give {expected}")]
    WrongValue {
        /// Origin of the value.
        origin: Origin,
        /// The key, with its section.
        key: String,
        /// The value as given; a placeholder when it may contain a secret.
        value: String,
        /// Description of the valid values.
        expected: &'static str,
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
    let source = &config.source;
    let kind = source.kind;
    let uses = |wanted| kind == wanted || source.gaps.contains(&SourceAddress::Kind(wanted));
    let contradiction = |text: String| Err(ConfigError::Contradiction(text));
    if !source.path.is_empty() && !uses(SourceKind::Lake) {
        return contradiction(format!(
            "source.path is set, but source.kind is {kind}: give lake, or remove the path"
        ));
    }
    if source.rpc_url.as_option().is_some() && !uses(SourceKind::Rpc) {
        return contradiction(format!(
            "source.rpc_url is set, but source.kind is {kind}: give rpc, or remove the address"
        ));
    }
    if !source.rpc_headers.is_empty() && source.rpc_url.as_option().is_none() {
        return contradiction(
            "source.rpc_headers are set without source.rpc_url: they are sent only to a \
             server that is given there"
                .to_owned(),
        );
    }
    if !config.rpc.upstream_headers.is_empty() && config.rpc.upstream.as_option().is_none() {
        return contradiction("rpc.upstream_headers are set without rpc.upstream".to_owned());
    }
    if matches!(kind, SourceKind::None | SourceKind::Sandbox) && !source.gaps.is_empty() {
        return contradiction(format!(
            "source.gaps is set, but source.kind is {kind}, which leaves no gaps: remove one of them"
        ));
    }
    if source.gaps.contains(&SourceAddress::Kind(SourceKind::Sandbox)) {
        return contradiction("source.gaps holds sandbox, which has no older ledgers".to_owned());
    }
    if source.s3_access_key_id.is_empty() != source.s3_secret_access_key.as_option().is_none() {
        return contradiction(
            "source.s3_access_key_id and source.s3_secret_access_key belong together: give both or \
             none"
            .to_owned(),
        );
    }
    if (source.lake_ledgers_per_batch == 0) != (source.lake_batches_per_partition == 0) {
        return contradiction(
            "source.lake_ledgers_per_batch and source.lake_batches_per_partition belong together: \
             give both or none"
                .to_owned(),
        );
    }
    if let Some(reason) = config.export.validation_error(&config.retention) {
        return contradiction(reason);
    }
    if let Some(reason) = config.limits.validation_error(config.queries.answer_mib) {
        return contradiction(reason);
    }
    if let Some(reason) = config.programs.validation_error() {
        return contradiction(reason);
    }
    if let Some(reason) = config.webhooks.validation_error() {
        return contradiction(reason);
    }
    let telegram = config.status.telegram_bot.as_option();
    if telegram.is_some_and(|bot| bot.split(':').filter(|part| !part.is_empty()).count() < 3) {
        return contradiction(
            "status.telegram_bot is incomplete: give the token of a bot, which itself contains a colon, \
             then a colon and the number or @name of a chat"
            .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
