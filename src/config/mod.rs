//! Settings: the only place that knows files, environment, flags and defaults.
//!
//! A setting is looked up in the configuration file, then in the environment
//! (`ORRERY_SECTION_KEY`), then in the flags; the last one found wins, and each value remembers
//! where it came from. `schema/config.reference.toml` documents every key.

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
pub use sources::{LakeReader, LakeSpec, SourcePlan, SourceSpec};
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
    /// Directory of everything that is stored.
    pub data_dir: PathBuf,
    /// Name or passphrase of the network; empty for the one that the data directory belongs to.
    pub network: String,
    /// The HTTP server.
    pub http: Http,
    /// Which events are indexed.
    pub index: Index,
    /// How much a client may ask for.
    pub limits: Limits,
    /// What is kept, and for how long.
    pub retention: Retention,
    /// What stays free on the disk.
    pub disk: Disk,
    /// The export that goes on while the service runs.
    pub export: Export,
    /// Where ledgers come from while the service runs.
    pub source: Source,
    /// The stellar-core that this process runs, for that kind of source.
    pub core: Core,
    /// What indexing programs may use.
    pub programs: Programs,
    /// What queries over their tables may use.
    pub queries: Queries,
    /// Events that are pushed to those who want them.
    pub webhooks: Webhooks,
    /// The lookups of smart accounts and passkey wallets.
    pub indexers: Indexers,
    /// JSON-RPC.
    pub rpc: Rpc,
    /// Where messages about the service go.
    pub status: Status,
    /// Who may ask.
    pub auth: Auth,
    /// Log lines.
    pub log: Log,
}

/// `[http]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// Origins whose web pages may use routes that need a token.
    pub cors_origins: Vec<CorsOrigin>,
    /// Proxies whose `X-Forwarded-For` is believed when a client's address counts.
    pub trusted_proxies: Vec<IpAddr>,
    /// Connections at a time.
    pub connections: NonZeroU32,
    /// Who may read `/metrics`.
    pub metrics: MetricsReaders,
}

/// `[index]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Whether events of classic operations are indexed (CAP-67).
    pub classic_events: bool,
    /// Whether fee events are indexed.
    pub fee_events: bool,
    /// The only contracts whose events are indexed; all when empty.
    #[serde(with = "values::as_text")]
    pub contracts: Vec<ContractId>,
}

/// `[retention]`, in ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Newest raw ledgers that are kept; 0 for none.
    pub raw_ledgers: u32,
    /// Newest ledgers whose events are kept; 0 for all.
    pub events: u32,
    /// Newest ledgers whose transactions are kept; 0 for all.
    pub transactions: u32,
    /// How many ledgers more are kept while a program, or another consumer, has yet to see them.
    pub wait_for_consumers: u32,
}

/// `[source]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// What is followed.
    pub kind: SourceKind,
    /// Directory or address of the lake; empty for the network's public one.
    pub path: String,
    /// Address of the RPC server; empty for the network's public one.
    pub rpc_url: SecretUrl,
    /// Headers for that server.
    pub rpc_headers: Vec<Header>,
    /// What is asked for ledgers that the followed source does not yield, in this order.
    pub gaps: Vec<SourceAddress>,
    /// Where an empty data directory begins.
    pub start: Start,
    /// Region of lakes at `s3://` addresses; empty for that of the environment.
    pub s3_region: String,
    /// Address of an S3-compatible server that is not AWS; empty for AWS.
    pub s3_endpoint: String,
    /// Public half of an access key; empty for that of the environment, or nobody.
    pub s3_access_key_id: String,
    /// Its secret half.
    pub s3_secret_access_key: Secret,
    /// Ledgers in one file of a lake without a manifest; 0 when it has one.
    pub lake_ledgers_per_batch: u32,
    /// Files in one directory of a lake without a manifest; 0 when it has one.
    pub lake_batches_per_partition: u32,
}

/// `[core]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub binary: PathBuf,
    /// A directory for it alone; empty for one in the data directory.
    pub storage: PathBuf,
    /// The operator's own configuration file of core; empty for none.
    pub config: PathBuf,
    /// Port of its HTTP interface; 0 for none, or what its own configuration says.
    pub http_port: u16,
}

/// `[status]`: where messages go when the state of the service changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    /// Address of a Discord webhook.
    pub discord_webhook: SecretUrl,
    /// Address of a Slack webhook.
    pub slack_webhook: SecretUrl,
    /// Token of a Telegram bot, a colon, and the number or name of a chat.
    pub telegram_bot: Secret,
    /// An address that takes messages as JSON.
    pub generic_url: SecretUrl,
}

/// `[auth]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auth {
    /// Plan of a token that is issued without one.
    pub default_plan: Plan,
    /// Keys of other issuers whose tokens are accepted.
    pub public_keys: Vec<PublicKeyFile>,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// How lines look.
    pub format: LogFormat,
    /// Which lines are written.
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
            // A week of the public network, what RPC nodes keep.
            retention: Retention {
                raw_ledgers: 120_960,
                events: 0,
                transactions: 0,
                // A day.
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
    /// The network that was named, if one was.
    pub fn network(&self) -> Option<Network> {
        (!self.network.is_empty()).then(|| Network::from_name_or_passphrase(&self.network))
    }

    /// The directory for stellar-core alone.
    pub fn core_storage(&self) -> PathBuf {
        match self.core.storage.as_os_str().is_empty() {
            true => self.data_dir.join("core"),
            false => self.core.storage.clone(),
        }
    }
}

/// Whether a value is never shown, because it is or may hold a password.
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

/// What a key takes, to be read after "give". Every key has one.
fn expectation(key: &str) -> &'static str {
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
        key if key.starts_with("disk.") => disk::expectation(key),
        key if key.starts_with("export.") => export::expectation(key),
        key if key.starts_with("limits.") => limits::expectation(key),
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
        "core.http_port" => "a port from 0 (none) to 65535",
        key if key.starts_with("programs.") || key.starts_with("queries.") => {
            programs::expectation(key)
        }
        key if key.starts_with("webhooks.") => webhooks::expectation(key),
        key if key.starts_with("indexers.") => indexers::expectation(key),
        key if key.starts_with("rpc.") => rpc::expectation(key),
        "status.discord_webhook" | "status.slack_webhook" | "status.generic_url" => {
            "an address that starts with https:// or http://"
        }
        "status.telegram_bot" => "the token of a bot, a colon, and the number or @name of a chat",
        "auth.default_plan" => "dev, builder, pro or protocol",
        "auth.public_keys" => {
            "a list of KID:EdDSA:FILE or KID:RS256:FILE, each a public key in PEM form, and after a \
             further colon how the owners of its tokens must begin"
        }
        "log.format" => "auto, human or json",
        "log.level" => "error, warn, info, debug or trace",
        _ => "another value",
    }
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}, line {line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// There is no such key.
    #[error("{origin}: there is no setting {key}{}", did_you_mean(suggestion))]
    UnknownKey {
        /// Where it stands.
        origin: Origin,
        /// As it was written.
        key: String,
        /// The nearest that exists.
        suggestion: Option<String>,
    },
    /// The value does not fit.
    #[error("{origin}: {key} cannot be {value}: give {expected}")]
    WrongValue {
        /// Where it stands.
        origin: Origin,
        /// The key, with its section.
        key: String,
        /// As it was written.
        value: String,
        /// What the key takes.
        expected: &'static str,
    },
    /// Two settings do not go together.
    #[error("{0}")]
    Contradiction(String),
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    suggestion.as_ref().map(|key| format!(" (did you mean {key}?)")).unwrap_or_default()
}

/// Settings that are right one by one but not together.
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
    if source.rpc_url.given().is_some() && !uses(SourceKind::Rpc) {
        return contradiction(format!(
            "source.rpc_url is set, but source.kind is {kind}: give rpc, or remove the address"
        ));
    }
    if !source.rpc_headers.is_empty() && source.rpc_url.given().is_none() {
        return contradiction(
            "source.rpc_headers are set without source.rpc_url: only a server that is named gets \
             them"
                .to_owned(),
        );
    }
    if !config.rpc.upstream_headers.is_empty() && config.rpc.upstream.given().is_none() {
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
    if source.s3_access_key_id.is_empty() != source.s3_secret_access_key.given().is_none() {
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
    if let Some(reason) = config.export.contradiction(&config.retention) {
        return contradiction(reason);
    }
    if let Some(reason) = config.limits.contradiction(config.queries.answer_mib) {
        return contradiction(reason);
    }
    if let Some(reason) = config.programs.contradiction() {
        return contradiction(reason);
    }
    if let Some(reason) = config.webhooks.contradiction() {
        return contradiction(reason);
    }
    let telegram = config.status.telegram_bot.given();
    if telegram.is_some_and(|bot| bot.split(':').filter(|part| !part.is_empty()).count() < 3) {
        return contradiction(
            "status.telegram_bot lacks a part: give the token of a bot, which holds a colon itself, \
             a colon, and the number or @name of a chat"
            .to_owned(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests;
