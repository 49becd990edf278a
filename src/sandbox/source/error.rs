//! Why the sandbox as a source could not start or resume.

use std::io;
use std::path::PathBuf;

use orrery_ledger::domain::{LedgerSeq, Network};

use crate::network::SandboxError;

/// Why the sandbox could not start or resume.
#[derive(Debug, thiserror::Error)]
pub enum SandboxNetworkError {
    /// The network is a public one, which a sandbox must not imitate.
    #[error(
        "a sandbox cannot make ledgers of {0}: give the network local, or a passphrase of its own"
    )]
    PublicNetwork(Network),
    /// A file of the sandbox could not be read or written.
    #[error("the sandbox's file {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file with the network's initial parameters, or the journal, is damaged.
    #[error("the sandbox's file {} is damaged: {reason}; use a new data directory", path.display())]
    Beginning {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A stored ledger cannot be regenerated, because the journal has no entry for it.
    #[error("the sandbox's journal has no entry for ledger {0}: use a new data directory")]
    Journal(LedgerSeq),
    /// The sandbox itself failed.
    #[error("the sandbox failed: {0}")]
    Sandbox(#[from] SandboxError),
}
