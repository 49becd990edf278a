//! Sources with everything that is needed to open them.

use orrery_ledger::domain::StartPoint;

use crate::values::{Header, Secret};

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

impl SourceSpec {
    /// Returns the default start of an empty data directory: the newest ledger of a remote source,
    /// the oldest of a local one.
    pub(crate) fn default_start(&self) -> StartPoint {
        match self {
            Self::Sandbox | Self::Core => StartPoint::Oldest,
            Self::Lake(lake) if lake.is_directory() => StartPoint::Oldest,
            Self::Lake(_) | Self::Rpc { .. } => StartPoint::Tip,
        }
    }
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

impl LakeSpec {
    /// Whether the lake is a directory on this machine.
    pub fn is_directory(&self) -> bool {
        !self.address.contains("://") || self.address.starts_with("file://")
    }

    /// Returns a public lake, which is read without credentials.
    pub(crate) fn public(address: &str) -> Self {
        let region = address.starts_with("s3://").then(|| PUBLIC_REGION.to_owned());
        let address = address.to_owned();
        Self { address, region, credentials: LakeCredentials::Anonymous, ..Self::default() }
    }
}
