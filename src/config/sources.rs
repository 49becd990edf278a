//! Derives the sources from the settings and the network: what is followed, what fills gaps, and
//! where an empty data directory begins. Contains the addresses of the networks' public sources.

use super::values::{Header, Secret, SecretUrl, SourceAddress, SourceKind};
use super::{Config, ConfigError};
use crate::domain::{Network, StartPoint};

/// Public RPC servers of the Stellar Development Foundation
/// (developers.stellar.org/docs/data/apis/rpc/providers).
const PUBLIC_RPC: [(&str, &str); 2] = [
    ("testnet", "https://soroban-testnet.stellar.org"),
    ("futurenet", "https://rpc-futurenet.stellar.org"),
];

/// Public lakes, in the order in which they are asked (registry.opendata.aws/stellar): those of the
/// networks on AWS, and one of the community.
const PUBLIC_LAKES: [(&str, &str); 3] = [
    ("mainnet", "s3://aws-public-blockchain/v1.1/stellar/ledgers/pubnet"),
    ("mainnet", "https://galexie.lightsail.network/v1"),
    ("testnet", "s3://aws-public-blockchain/v1.1/stellar/ledgers/testnet"),
];
/// Region of the public bucket on AWS.
const PUBLIC_REGION: &str = "us-east-2";

/// A source with everything that is needed to open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// The sandbox network.
    Sandbox,
    /// A lake.
    Lake(LakeSpec),
    /// An RPC server.
    Rpc {
        /// Address of the server.
        url: Secret,
        /// HTTP headers sent to the server.
        headers: Vec<Header>,
    },
    /// The stellar-core configured in `[core]`.
    Core,
}

/// A lake with everything that is needed to open it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LakeSpec {
    /// Directory or address of the lake.
    pub address: String,
    /// Region of the bucket; `None` when not configured.
    pub region: Option<String>,
    /// Address of a server that is not AWS; `None` when not configured.
    pub endpoint: Option<String>,
    /// Credentials for a bucket.
    pub credentials: LakeCredentials,
    /// Number of ledgers per file, for a lake without a manifest.
    pub ledgers_per_batch: Option<u32>,
    /// Number of files per directory, for a lake without a manifest.
    pub batches_per_partition: Option<u32>,
}

/// Credentials for a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LakeCredentials {
    /// Credentials of the environment, as other programs use them; requests are unsigned when it
    /// has none.
    #[default]
    Environment,
    /// No credentials: requests are not signed.
    Anonymous,
    /// An access key for S3.
    Key {
        /// Access key ID.
        id: String,
        /// Secret access key.
        secret: Secret,
    },
}

/// Sources of ledgers of a running service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlan {
    /// Source to follow; `None` to follow none.
    pub live: Option<SourceSpec>,
    /// Sources to ask for ledgers that `live` does not provide, in this order.
    pub gaps: Vec<SourceSpec>,
    /// First ledger of an empty data directory.
    pub start: StartPoint,
}

impl LakeSpec {
    /// Whether the lake is a directory on this machine.
    pub fn is_directory(&self) -> bool {
        !self.address.contains("://") || self.address.starts_with("file://")
    }

    fn public(address: &str) -> Self {
        let region = address.starts_with("s3://").then(|| PUBLIC_REGION.to_owned());
        let address = address.to_owned();
        Self { address, region, credentials: LakeCredentials::Anonymous, ..Self::default() }
    }
}

impl SourceSpec {
    /// Returns the kind of the source.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Sandbox => SourceKind::Sandbox,
            Self::Lake(_) => SourceKind::Lake,
            Self::Rpc { .. } => SourceKind::Rpc,
            Self::Core => SourceKind::Core,
        }
    }

    /// Returns the default start of an empty data directory: the newest ledger of a remote source,
    /// the oldest of a local one.
    fn default_start(&self) -> StartPoint {
        match self {
            Self::Sandbox | Self::Core => StartPoint::Oldest,
            Self::Lake(lake) if lake.is_directory() => StartPoint::Oldest,
            Self::Lake(_) | Self::Rpc { .. } => StartPoint::Tip,
        }
    }
}

impl Config {
    /// Returns the sources of a network's ledgers for a running service.
    ///
    /// # Errors
    /// When a source is named without its address, and the network has no public one.
    pub fn source_plan(&self, network: &Network) -> Result<SourcePlan, ConfigError> {
        let kind = self.source.kind;
        let mut sources = self.sources_of(&SourceAddress::Kind(kind), network)?.into_iter();
        let live = sources.next();
        let mut gaps = match kind {
            SourceKind::Auto if self.source.gaps.is_empty() => sources.collect(),
            _ => Vec::new(),
        };
        for address in &self.source.gaps {
            gaps.extend(self.sources_of(address, network)?);
        }
        gaps.retain(|gap| Some(gap) != live.as_ref());
        let usual = live.as_ref().map_or(StartPoint::Oldest, SourceSpec::default_start);
        Ok(SourcePlan { live, gaps, start: self.source.start.0.unwrap_or(usual) })
    }

    /// Returns the sources of older ledgers of a network: the named ones, or else the followed
    /// source and those that fill gaps, lakes first, then RPC servers, then core.
    ///
    /// # Errors
    /// As [`Self::source_plan`], or when there is none.
    pub fn backfill_sources(
        &self,
        network: &Network,
        named: &[SourceAddress],
    ) -> Result<Vec<SourceSpec>, ConfigError> {
        let mut sources = Vec::new();
        if named.is_empty() {
            let plan = self.source_plan(network)?;
            sources.extend(plan.live.into_iter().chain(plan.gaps));
            sources.sort_by_key(|source| match source.kind() {
                SourceKind::Lake => 0,
                SourceKind::Rpc => 1,
                _ => 2,
            });
        }
        for address in named {
            sources.extend(self.sources_of(address, network)?);
        }
        // A sandbox cannot produce its past ledgers again.
        sources.retain(|source| source.kind() != SourceKind::Sandbox);
        if sources.is_empty() {
            return Err(ConfigError::Contradiction(format!(
                "there is no source of older ledgers of {network}: name one, such as a directory with \
                 a ledger lake"
            )));
        }
        Ok(sources)
    }

    /// Returns the sources that an address stands for.
    pub(super) fn sources_of(
        &self,
        address: &SourceAddress,
        network: &Network,
    ) -> Result<Vec<SourceSpec>, ConfigError> {
        Ok(match address {
            SourceAddress::Lake(address) => vec![SourceSpec::Lake(self.lake(address))],
            SourceAddress::Rpc(url) => vec![self.rpc(url)],
            SourceAddress::Kind(kind) => match kind {
                SourceKind::None => Vec::new(),
                SourceKind::Sandbox => vec![SourceSpec::Sandbox],
                SourceKind::Core => vec![SourceSpec::Core],
                // An RPC server has closed ledgers seconds earlier; a lake reaches further back.
                SourceKind::Auto => {
                    public_rpc(network).into_iter().chain(public_lakes(network)).collect()
                }
                SourceKind::Lake if !self.source.path.is_empty() => {
                    vec![SourceSpec::Lake(self.lake(&self.source.path))]
                }
                SourceKind::Lake => named(public_lakes(network), network, "lake", "source.path")?,
                SourceKind::Rpc if self.source.rpc_url.as_option().is_some() => {
                    vec![self.rpc(&self.source.rpc_url)]
                }
                SourceKind::Rpc => {
                    named(public_rpc(network), network, "RPC server", "source.rpc_url")?
                }
            },
        })
    }

    fn lake(&self, address: &str) -> LakeSpec {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let number = |number: u32| Some(number).filter(|number| *number > 0);
        let source = &self.source;
        let is_s3 = address.starts_with("s3://");
        LakeSpec {
            address: address.to_owned(),
            region: given(&source.s3_region).filter(|_| is_s3),
            endpoint: given(&source.s3_endpoint).filter(|_| is_s3),
            credentials: match (&source.s3_access_key_id, source.s3_secret_access_key.as_option()) {
                (id, Some(secret)) => {
                    LakeCredentials::Key { id: id.clone(), secret: secret.into() }
                }
                _ => LakeCredentials::Environment,
            },
            ledgers_per_batch: number(source.lake_ledgers_per_batch),
            batches_per_partition: number(source.lake_batches_per_partition),
        }
    }

    fn rpc(&self, url: &SecretUrl) -> SourceSpec {
        // Headers may contain a secret, so they are sent only to the server that they are
        // configured for.
        let own = *url == self.source.rpc_url;
        let headers = if own { self.source.rpc_headers.clone() } else { Vec::new() };
        SourceSpec::Rpc { url: url.as_option().unwrap_or_default().into(), headers }
    }
}

fn named(
    sources: Vec<SourceSpec>,
    network: &Network,
    what: &str,
    key: &str,
) -> Result<Vec<SourceSpec>, ConfigError> {
    if sources.is_empty() {
        return Err(ConfigError::Contradiction(format!(
            "{network} has no public {what}: give the address of one in {key}"
        )));
    }
    Ok(sources)
}

fn public_rpc(network: &Network) -> Vec<SourceSpec> {
    let known = PUBLIC_RPC.iter().filter(|(name, _)| *name == network.name());
    known.map(|(_, url)| SourceSpec::Rpc { url: (*url).into(), headers: Vec::new() }).collect()
}

fn public_lakes(network: &Network) -> Vec<SourceSpec> {
    let known = PUBLIC_LAKES.iter().filter(|(name, _)| *name == network.name());
    known.map(|(_, address)| SourceSpec::Lake(LakeSpec::public(address))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &str) -> Network {
        Network::from_name_or_passphrase(name)
    }

    fn plan(name: &str, change: impl FnOnce(&mut Config)) -> Result<SourcePlan, ConfigError> {
        let mut config = Config::default();
        change(&mut config);
        config.source_plan(&network(name))
    }

    fn shown(specs: &[SourceSpec]) -> Vec<String> {
        let show = |spec: &SourceSpec| match spec {
            SourceSpec::Lake(lake) => format!("lake {}", lake.address),
            SourceSpec::Rpc { url, .. } => format!("rpc {}", url.reveal()),
            other => other.kind().to_string(),
        };
        specs.iter().map(show).collect()
    }

    fn address(text: &str) -> SourceAddress {
        SourceAddress::try_from(text.to_owned()).unwrap()
    }

    const AWS: &str = "lake s3://aws-public-blockchain/v1.1/stellar/ledgers";

    #[test]
    fn public_networks_need_no_settings() {
        let testnet = plan("testnet", |_| {}).unwrap();
        assert_eq!(shown(testnet.live.as_slice()), ["rpc https://soroban-testnet.stellar.org"]);
        assert_eq!(shown(&testnet.gaps), [format!("{AWS}/testnet")]);
        assert_eq!(testnet.start, StartPoint::Tip);

        let mainnet = plan("mainnet", |_| {}).unwrap();
        assert_eq!(shown(mainnet.live.as_slice()), [format!("{AWS}/pubnet")]);
        assert_eq!(shown(&mainnet.gaps), ["lake https://galexie.lightsail.network/v1"]);
        let Some(SourceSpec::Lake(lake)) = mainnet.live else { panic!("a lake") };
        assert_eq!(
            (lake.region.as_deref(), lake.credentials),
            (Some("us-east-2"), LakeCredentials::Anonymous)
        );

        let futurenet = plan("futurenet", |_| {}).unwrap();
        assert_eq!(shown(futurenet.live.as_slice()), ["rpc https://rpc-futurenet.stellar.org"]);
        for own in ["local", "a network of mine"] {
            let plan = plan(own, |_| {}).unwrap();
            assert_eq!((plan.live, plan.gaps), (None, Vec::new()));
        }
    }

    #[test]
    fn only_configured_sources_are_used() {
        let own = plan("testnet", |config| {
            config.source.kind = SourceKind::Lake;
            config.source.path = "/srv/lake".to_owned();
        })
        .unwrap();
        assert_eq!(shown(own.live.as_slice()), ["lake /srv/lake"]);
        assert_eq!((own.gaps, own.start), (Vec::new(), StartPoint::Oldest));

        let own = plan("testnet", |config| {
            config.source.kind = SourceKind::Rpc;
            config.source.rpc_url =
                SecretUrl::try_from("http://localhost:8000".to_owned()).unwrap();
            config.source.rpc_headers =
                vec![Header::try_from("Authorization: Bearer x".to_owned()).unwrap()];
            config.source.gaps = vec![address("s3://mine/lake"), address("auto"), address("core")];
            config.source.s3_region = "eu-west-1".to_owned();
        })
        .unwrap();
        assert_eq!(
            shown(&own.gaps),
            [
                "lake s3://mine/lake",
                "rpc https://soroban-testnet.stellar.org",
                &format!("{AWS}/testnet"),
                "core"
            ]
        );
        let Some(SourceSpec::Rpc { headers, .. }) = &own.live else { panic!("an RPC server") };
        assert_eq!(headers.len(), 1);
        let SourceSpec::Rpc { headers, .. } = &own.gaps[1] else { panic!("an RPC server") };
        assert!(headers.is_empty(), "a key goes to its own server only");
        let SourceSpec::Lake(lake) = &own.gaps[0] else { panic!("a lake") };
        assert_eq!(lake.region.as_deref(), Some("eu-west-1"));

        let none = plan("testnet", |config| config.source.gaps = vec![address("none")]).unwrap();
        assert!(none.live.is_some() && none.gaps.is_empty());
        let error = plan("mainnet", |config| config.source.kind = SourceKind::Rpc).unwrap_err();
        assert!(error.to_string().contains("give the address of one in source.rpc_url"), "{error}");
        let error = plan("local", |config| config.source.gaps = vec![address("lake")]).unwrap_err();
        assert!(error.to_string().contains("local has no public lake"), "{error}");
    }

    #[test]
    fn backfills_prefer_lakes() {
        let mut config = Config::default();
        let of = |config: &Config, name: &str, named: &[&str]| {
            let named: Vec<_> = named.iter().map(|text| address(text)).collect();
            config.backfill_sources(&network(name), &named).map(|specs| shown(&specs))
        };
        assert_eq!(
            of(&config, "testnet", &[]).unwrap(),
            [format!("{AWS}/testnet"), "rpc https://soroban-testnet.stellar.org".to_owned()]
        );
        assert_eq!(of(&config, "mainnet", &[]).unwrap()[0], format!("{AWS}/pubnet"));
        assert_eq!(of(&config, "local", &["./lake"]).unwrap(), ["lake ./lake"]);
        config.source.kind = SourceKind::Sandbox;
        for named in [&[][..], &["sandbox"]] {
            let error = of(&config, "local", named).unwrap_err().to_string();
            assert!(error.contains("no source of older ledgers of local"), "{error}");
        }
    }

    #[test]
    fn source_addresses_round_trip() {
        for text in
            ["auto", "core", "lake:https://a.example/x", "rpc:http://b.example", "lake:/srv/x"]
        {
            assert_eq!(String::from(address(text)), text);
        }
        assert_eq!(address("s3://b/x"), SourceAddress::Lake("s3://b/x".to_owned()));
        for (wrong, reason) in [
            ("https://a.example", "its kind is not clear: write lake: or rpc: before the address"),
            ("laek", "neither a kind of source nor an address"),
            ("", "neither a kind"),
            ("rpc:", "neither a kind"),
            ("rpc:ftp://x", "neither with http://"),
        ] {
            let error = SourceAddress::try_from(wrong.to_owned()).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
