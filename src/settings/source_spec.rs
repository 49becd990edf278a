//! Sources with what is needed to open them, besides what `[source]` says of all lakes.

use orrery_ledger::domain::StartPoint;

use crate::values::{Header, Secret};

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
