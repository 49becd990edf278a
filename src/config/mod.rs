//! Settings: the only place that knows files, environment, flags and defaults.
//!
//! A setting is looked up in the configuration file, then in the environment
//! (`ORRERY_SECTION_KEY`), then in the flags; the last one found wins, and each value remembers
//! where it came from. `schema/config.reference.toml` documents every key.

mod load;
mod values;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use load::{Layers, Origin, Settings};
pub use values::{CorsOrigin, PublicKeyFile, SourceKind};

use crate::auth::Plan;
use crate::domain::{ContractId, LedgerSeq, Network};
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
    /// Where ledgers come from while the service runs.
    pub source: Source,
    /// The stellar-core that this process runs, for that kind of source.
    pub core: Core,
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

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests a second for a token, or for an address on public routes; 0 for no limit.
    pub requests_per_second: u32,
    /// Requests that may come at once after a pause; 0 for no limit.
    pub burst: u32,
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
}

/// `[source]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// What kind of source.
    pub kind: SourceKind,
    /// Directory or address of the lake; empty for kinds without one.
    pub path: String,
    /// Address of an S3-compatible server that is not AWS; empty for AWS.
    pub s3_endpoint: String,
    /// Region of the bucket; empty where it does not matter.
    pub s3_region: String,
    /// Address of the RPC server; empty for other kinds.
    pub rpc_url: String,
    /// First ledger for an empty data directory; 0 for the oldest that the source has.
    pub start_ledger: u32,
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
            },
            index: Index { classic_events: false, fee_events: false, contracts: Vec::new() },
            limits: Limits { requests_per_second: 50, burst: 200 },
            // A week of the public network, what RPC nodes keep.
            retention: Retention { raw_ledgers: 120_960, events: 0, transactions: 0 },
            source: Source {
                kind: SourceKind::None,
                path: String::new(),
                s3_endpoint: String::new(),
                s3_region: String::new(),
                rpc_url: String::new(),
                start_ledger: 0,
            },
            core: Core {
                binary: PathBuf::from("stellar-core"),
                storage: PathBuf::new(),
                config: PathBuf::new(),
                http_port: 0,
            },
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
        match self.core.storage == Path::new("") {
            true => self.data_dir.join("core"),
            false => self.core.storage.clone(),
        }
    }

    /// The first ledger wanted from the source for an empty data directory, if it matters.
    pub fn start_ledger(&self) -> Option<LedgerSeq> {
        (self.source.start_ledger > 0).then_some(LedgerSeq(self.source.start_ledger))
    }
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
        "http.connections" => "a whole number from 1 to 4294967295",
        "index.classic_events" | "index.fee_events" => "true or false",
        "index.contracts" => "a list of contract IDs, strkeys of 56 characters that start with C",
        "limits.requests_per_second" => "a whole number from 0 (no limit) to 4294967295",
        "limits.burst" => "a whole number from 0 (no limit) to 4294967295",
        "retention.raw_ledgers" => "a number of ledgers from 0 (keep none) to 4294967295",
        "retention.events" | "retention.transactions" => {
            "a number of ledgers from 0 (keep all) to 4294967295"
        }
        "source.kind" => "none, sandbox, lake, rpc or core",
        "source.path" => {
            "a directory or an address, such as \"/srv/lake\" or \"s3://bucket/prefix\""
        }
        "source.s3_endpoint" => "an address, such as \"https://s3.example.org\"",
        "source.s3_region" => "a region, such as \"us-east-2\"",
        "source.rpc_url" => "an address, such as \"https://rpc.example.org\"",
        "source.start_ledger" => "a ledger from 0 (the oldest of the source) to 4294967295",
        "core.binary" => "a program, such as \"stellar-core\" or \"/usr/bin/stellar-core\"",
        "core.storage" => "a directory, such as \"/var/lib/orrery/core\"",
        "core.config" => "a file, such as \"/etc/orrery/stellar-core.toml\"",
        "core.http_port" => "a port from 0 (none) to 65535",
        "auth.default_plan" => "dev, builder, pro or protocol",
        "auth.public_keys" => {
            "a list of KID:EdDSA:FILE or KID:RS256:FILE, each a public key in PEM form"
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
    let Source { kind, path, s3_endpoint, s3_region, rpc_url, .. } = &config.source;
    let contradiction = |text: String| Err(ConfigError::Contradiction(text));
    let only_for = |key: &str, wanted: &str| {
        contradiction(format!(
            "{key} is set, but source.kind is {kind}: give {wanted}, or remove {key}"
        ))
    };
    match kind {
        SourceKind::Lake if path.is_empty() => contradiction(
            "source.kind is lake, so source.path must say in which directory or at which address it \
             lies"
                .to_owned(),
        ),
        SourceKind::Rpc if rpc_url.is_empty() => contradiction(
            "source.kind is rpc, so source.rpc_url must say at which address it answers".to_owned(),
        ),
        SourceKind::Lake => Ok(()),
        _ if !path.is_empty() => only_for("source.path", "lake"),
        _ if !s3_endpoint.is_empty() => only_for("source.s3_endpoint", "lake"),
        _ if !s3_region.is_empty() => only_for("source.s3_region", "lake"),
        _ => Ok(()),
    }?;
    match kind {
        SourceKind::Rpc => Ok(()),
        _ if !rpc_url.is_empty() => only_for("source.rpc_url", "rpc"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
