//! `[source]`, what the settings know of each kind of source, how one is named, and what is needed to
//! open one: a new kind is one entry of `SourceKind`, one variant of `SourceSpec` and the settings of
//! its own.

use std::fmt;

use orrery_ledger::domain::StartPoint;
use serde::{Deserialize, Serialize};

use crate::section;
use crate::section::{ListItem, Setting};
use crate::values::{Header, Secret, SecretUrl, Start, check_http, half_a_key, is_http};

section! {
    /// `[source]`
    pub struct Source {
        /// Kind of the source to follow.
        pub kind: SourceKind = SourceKind::Auto;
        /// Directory or address of the lake; empty for the network's public one.
        pub path: String = String::new(),
            "a directory or an address, such as \"/srv/lake\" or \"s3://bucket/prefix\"";
        /// Address of the RPC server; empty for the network's public one.
        pub rpc_url: SecretUrl = SecretUrl::default(),
            "an address, such as \"https://rpc.example.org\"";
        /// HTTP headers sent to that server.
        pub rpc_headers: Vec<Header> = Vec::new();
        /// Sources to ask for ledgers that the followed source does not provide, in this order.
        pub gaps: Vec<SourceAddress> = Vec::new();
        /// First ledger of an empty data directory.
        pub start: Start = Start::default();
        /// Region of lakes at `s3://` addresses; empty uses the environment's.
        pub s3_region: String = String::new(), "a region, such as \"us-east-2\"";
        /// Address of an S3-compatible server; empty uses the environment's, else AWS.
        pub s3_endpoint: String = String::new(), "an address, such as \"https://s3.example.org\"";
        /// Access key ID; empty uses the environment's credentials, or unsigned requests when it
        /// has none.
        pub s3_access_key_id: String = String::new(), "the public half of an access key";
        /// Secret access key of `s3_access_key_id`.
        pub s3_secret_access_key: Secret = Secret::default(), "the secret half of an access key";
        /// Number of ledgers per file of a lake without a manifest; 0 when it has one.
        pub lake_ledgers_per_batch: u32 = 0,
            "a whole number from 0 (the lake has a manifest) to 4294967295";
        /// Number of files per directory of a lake without a manifest; 0 when it has one.
        pub lake_batches_per_partition: u32 = 0,
            "a whole number from 0 (the lake has a manifest) to 4294967295";
    }
}

/// What the settings know of a kind of source.
pub(crate) struct KindOfSource {
    /// How one is named.
    pub place: Place,
    /// Rank among the sources of older ledgers, the lowest first; `None` when it cannot produce
    /// past ledgers.
    pub backfill: Option<u8>,
    /// Whether it replays from its first ledger every time, so that a backfill from it is one
    /// piece.
    pub replays: bool,
    /// Whether it is asked for ledger entries.
    pub entries: Entries,
    /// Whether it runs as part of the service.
    pub is_part_of_service: bool,
}

/// How a source of a kind is named.
pub(crate) enum Place {
    /// There is one, without an address.
    Own(SourceSpec),
    /// By an address.
    At(AddressSetting),
}

/// The setting with the address of a source, and the sources that are known without it.
pub(crate) struct AddressSetting {
    /// Key of the setting, and the word for its value.
    pub key: &'static str,
    pub noun: &'static str,
    /// Keys of lists of settings that belong to the address.
    pub belongings: &'static [&'static str],
    /// What is at the address.
    pub what: &'static str,
    /// Returns the value of the setting; empty when it is not given.
    pub configured: fn(&Source) -> &str,
    /// Returns why a text is no address.
    pub check: fn(&str) -> Result<(), String>,
    /// Returns the source at an address.
    pub at: fn(&Source, &str) -> SourceSpec,
    /// Names of networks and the addresses of their public sources, in the order in which they are
    /// asked.
    pub public: &'static [(&'static str, &'static str)],
    /// Returns the public source at an address.
    pub public_at: fn(&str) -> SourceSpec,
}

/// Whether a kind of source is asked for ledger entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entries {
    Never,
    Always,
    /// Only the followed one, because one that only fills gaps does not run most of the time.
    WhileFollowed,
}

/// Defines the kinds: each with its name in settings and, if it is a source of its own, what the
/// settings know of it.
macro_rules! kinds {
    ($($(#[$of_kind:meta])* $Kind:ident = $word:literal, $source:expr;)*) => {
        /// Kind of source that delivers ledgers while the service runs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum SourceKind {
            $($(#[$of_kind])* $Kind,)*
        }

        impl SourceKind {
            pub(crate) const ALL: &[Self] = &[$(Self::$Kind),*];
            const ALL_WORDS: &[&str] = &[$($word),*];

            /// Returns the kind as it is written in settings.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$Kind => $word,)*
                }
            }

            /// Returns what the settings know of the kind; `None` for one that is no source of its
            /// own.
            pub(crate) fn source(self) -> Option<&'static KindOfSource> {
                match self {
                    $(Self::$Kind => {
                        static SOURCE: Option<KindOfSource> = $source;
                        SOURCE.as_ref()
                    })*
                }
            }
        }
    };
}

// The order counts: `auto` asks public sources in this order, and of several unused addresses the
// last one is reported.
kinds! {
    /// The public sources of the network, if it has any.
    Auto = "auto", None;
    /// No source: the service serves stored ledgers, and `orrery import` can add more.
    None = "none", None;
    /// A network of its own inside this process, for demonstrations.
    Sandbox = "sandbox", Some(KindOfSource {
        place: Place::Own(SourceSpec::Sandbox),
        backfill: None,
        replays: false,
        entries: Entries::Never,
        is_part_of_service: true,
    });
    /// An RPC server.
    Rpc = "rpc", Some(KindOfSource {
        place: Place::At(RPC_ADDRESS),
        backfill: Some(1),
        replays: false,
        entries: Entries::Always,
        is_part_of_service: false,
    });
    /// A ledger lake.
    Lake = "lake", Some(KindOfSource {
        place: Place::At(LAKE_ADDRESS),
        backfill: Some(0),
        replays: false,
        entries: Entries::Never,
        is_part_of_service: false,
    });
    /// A stellar-core that this process runs.
    Core = "core", Some(KindOfSource {
        place: Place::Own(SourceSpec::Core),
        backfill: Some(2),
        replays: true,
        entries: Entries::WhileFollowed,
        is_part_of_service: true,
    });
}

/// The addresses of RPC servers, and the public ones of the Stellar Development Foundation
/// (developers.stellar.org/docs/data/apis/rpc/providers).
const RPC_ADDRESS: AddressSetting = AddressSetting {
    key: "source.rpc_url",
    noun: "address",
    belongings: &["source.rpc_headers"],
    what: "RPC server",
    configured: |source| source.rpc_url.as_option().unwrap_or_default(),
    check: check_http,
    at: rpc,
    public: &[
        ("testnet", "https://soroban-testnet.stellar.org"),
        ("futurenet", "https://rpc-futurenet.stellar.org"),
    ],
    public_at: |url| SourceSpec::Rpc { url: url.into(), headers: Vec::new() },
};

/// The addresses of lakes, and the public ones (registry.opendata.aws/stellar): those of the
/// networks on AWS, and one of the community.
const LAKE_ADDRESS: AddressSetting = AddressSetting {
    key: "source.path",
    noun: "path",
    belongings: &[],
    what: "lake",
    configured: |source| &source.path,
    check: |_| Ok(()),
    at: lake,
    public: &[
        ("mainnet", "s3://aws-public-blockchain/v1.1/stellar/ledgers/pubnet"),
        ("mainnet", "https://galexie.lightsail.network/v1"),
        ("testnet", "s3://aws-public-blockchain/v1.1/stellar/ledgers/testnet"),
    ],
    public_at: |address| SourceSpec::Lake { address: address.to_owned(), is_public: true },
};

impl Setting for SourceKind {
    const EXPECTED: &'static str = "auto, none, sandbox, lake, rpc or core";
    const WORDS: &'static [&'static str] = Self::ALL_WORDS;
}

impl ListItem for SourceAddress {
    const EXPECTED: &'static str = "a list of auto, none, lake, rpc, core, lake:ADDRESS, \
        rpc:ADDRESS, s3://BUCKET/PREFIX or directories with a slash in them";
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl SourceKind {
    /// Returns whether sources of this kind run as part of the service.
    pub fn is_part_of_service(self) -> bool {
        self.source().is_some_and(|source| source.is_part_of_service)
    }

    /// Returns whether a source of this kind replays from its first ledger every time.
    pub fn replays(self) -> bool {
        self.source().is_some_and(|source| source.replays)
    }

    /// Returns whether sources of this kind are asked for ledger entries.
    pub(crate) fn entries(self) -> Entries {
        self.source().map_or(Entries::Never, |source| source.entries)
    }

    /// Returns the setting with the address of a source of this kind, if it has one.
    pub(crate) fn address(self) -> Option<&'static AddressSetting> {
        match &self.source()?.place {
            Place::At(setting) => Some(setting),
            Place::Own(_) => None,
        }
    }
}

/// A source given by its kind, or by kind and address: `rpc`, `lake`, `lake:https://…`,
/// `rpc:https://…`, `s3://…`, `/srv/lake`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SourceAddress {
    /// The configured source of this kind, or the public ones of the network.
    Kind(SourceKind),
    /// The source of this kind at an address, which may contain a password.
    At(SourceKind, Secret),
}

impl Setting for SourceAddress {
    const EXPECTED: &'static str = "a kind of source, or its address";
}

impl TryFrom<String> for SourceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(kind) = SourceKind::ALL.iter().find(|kind| kind.word() == text) {
            return Ok(Self::Kind(*kind));
        }
        for kind in SourceKind::ALL {
            let Some(setting) = kind.address() else { continue };
            let address = text.strip_prefix(kind.word()).and_then(|rest| rest.strip_prefix(':'));
            let Some(address) = address else { continue };
            if address.is_empty() {
                return Err(nameless());
            }
            (setting.check)(address)?;
            return Ok(Self::At(*kind, address.into()));
        }
        if is_http(&text) {
            // The text is not quoted, because it may contain a password.
            return Err("its kind is not clear: write lake: or rpc: before the address".to_owned());
        }
        // A word without a slash is more likely a typing error than a directory.
        if text.contains('/') {
            Ok(Self::At(SourceKind::Lake, text.as_str().into()))
        } else {
            Err(nameless())
        }
    }
}

impl SourceAddress {
    /// Returns the kind of the source.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Kind(kind) | Self::At(kind, _) => *kind,
        }
    }

    /// Returns `text`, which should name a source, in a form fit for a message: addresses are
    /// replaced, because they may contain passwords.
    pub fn redacted(text: &str) -> &str {
        if text.contains("://") { "that address" } else { text }
    }

    /// Returns the settings with addresses that this source replaces as the only one: the key of
    /// each, its value, and the keys of lists that belong to it. A kind without an address keeps
    /// the configured source of the kind.
    pub fn replaced_addresses(&self) -> Vec<(&'static str, String, &'static [&'static str])> {
        let others = SourceKind::ALL.iter().filter(|kind| Self::Kind(**kind) != *self);
        others
            .filter_map(|kind| {
                let setting = kind.address()?;
                let address = match self {
                    Self::At(own, address) if own == kind => address.reveal().to_owned(),
                    _ => String::new(),
                };
                Some((setting.key, address, setting.belongings))
            })
            .collect()
    }
}

fn nameless() -> String {
    "it names neither a kind of source nor an address".to_owned()
}

impl From<SourceAddress> for String {
    fn from(source: SourceAddress) -> Self {
        match source {
            SourceAddress::Kind(kind) => kind.word().to_owned(),
            SourceAddress::At(kind, address) => format!("{kind}:{}", address.reveal()),
        }
    }
}

/// A source with what is needed to open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSpec {
    /// The sandbox network.
    Sandbox,
    /// A lake.
    Lake {
        /// Directory or address of the lake.
        address: String,
        /// Whether it is a public one, which is read without credentials.
        is_public: bool,
    },
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

impl SourceSpec {
    /// Returns the kind of the source.
    pub fn kind(&self) -> SourceKind {
        match self {
            Self::Sandbox => SourceKind::Sandbox,
            Self::Lake { .. } => SourceKind::Lake,
            Self::Rpc { .. } => SourceKind::Rpc,
            Self::Core => SourceKind::Core,
        }
    }

    /// Returns the default start of an empty data directory: the newest ledger of a remote source,
    /// the oldest of a local one.
    pub(crate) fn default_start(&self) -> StartPoint {
        match self {
            Self::Sandbox | Self::Core => StartPoint::Oldest,
            Self::Lake { address, .. } if is_directory(address) => StartPoint::Oldest,
            Self::Lake { .. } | Self::Rpc { .. } => StartPoint::Tip,
        }
    }
}

/// Whether a lake's address is that of a directory on this machine.
pub fn is_directory(address: &str) -> bool {
    !address.contains("://") || address.starts_with("file://")
}

fn lake(_: &Source, address: &str) -> SourceSpec {
    SourceSpec::Lake { address: address.to_owned(), is_public: false }
}

fn rpc(source: &Source, url: &str) -> SourceSpec {
    // Headers may contain a secret, so they are sent only to the server that they are configured
    // for.
    let own = Some(url) == source.rpc_url.as_option();
    let headers = if own { source.rpc_headers.clone() } else { Vec::new() };
    SourceSpec::Rpc { url: url.into(), headers }
}

impl Source {
    /// Returns an error message when settings contradict each other.
    pub fn validation_error(&self) -> Option<String> {
        self.unused_address().or_else(|| self.gaps_error()).or_else(|| self.incomplete_pair())
    }

    /// Returns an error message when an address, or what belongs to one, would have no effect.
    fn unused_address(&self) -> Option<String> {
        let kind = self.kind;
        let uses = |wanted| kind == wanted || self.gaps.contains(&SourceAddress::Kind(wanted));
        for other in SourceKind::ALL.iter().rev().filter(|other| !uses(**other)) {
            let Some(setting) = other.address() else { continue };
            if !(setting.configured)(self).is_empty() {
                let AddressSetting { key, noun, .. } = setting;
                let own = kind.address().map(|own| format!(", whose address is {}", own.key));
                return Some(format!(
                    "{key} is set, but source.kind is {kind}{}: give {other}, or remove the {noun}",
                    own.unwrap_or_default()
                ));
            }
        }
        (!self.rpc_headers.is_empty() && self.rpc_url.as_option().is_none()).then(|| {
            "source.rpc_headers are set without source.rpc_url: they are sent only to a server that \
             is given there"
                .to_owned()
        })
    }

    /// Returns an error message when sources that fill gaps are named in vain.
    fn gaps_error(&self) -> Option<String> {
        let kind = self.kind;
        let has_no_past = |kind: SourceKind| kind.source().is_some_and(|it| it.backfill.is_none());
        if (kind == SourceKind::None || has_no_past(kind)) && !self.gaps.is_empty() {
            return Some(format!(
                "source.gaps is set, but source.kind is {kind}, which leaves no gaps: remove one of them"
            ));
        }
        let vain = self.gaps.iter().map(SourceAddress::kind).find(|kind| has_no_past(*kind));
        vain.map(|kind| format!("source.gaps holds {kind}, which has no older ledgers"))
    }

    /// Returns an error message when one of two settings that belong together is missing.
    fn incomplete_pair(&self) -> Option<String> {
        let half = half_a_key("source", &self.s3_access_key_id, &self.s3_secret_access_key);
        if half.is_some() {
            return half;
        }
        ((self.lake_ledgers_per_batch == 0) != (self.lake_batches_per_partition == 0)).then(|| {
            "source.lake_ledgers_per_batch and source.lake_batches_per_partition belong together: \
             give both or none"
                .to_owned()
        })
    }
}
