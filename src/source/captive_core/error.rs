//! Reasons why a captive stellar-core yields no ledgers, each as one sentence for the operator.

use std::fmt::Display;
use std::path::Path;

use orrery_ledger::domain::{LedgerSeq, Network, SourceError};

/// Name of the source in messages, and of the origin of its ledgers.
pub const NAME: &str = "stellar-core";

/// Why stellar-core yields no ledgers.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// Waiting cannot help: the settings are wrong, or something belongs to another network.
    #[error("{0}")]
    Fatal(String),
    /// A standalone network cannot stream a needed ledger again.
    #[error("{0}")]
    Gone(String),
    /// Core failed so that its own files may be damaged; they are removed before the next start.
    #[error("{0}")]
    StorageInDoubt(String),
    /// Anything else, which an operator or time may repair.
    #[error("{0}")]
    Other(String),
}

impl CoreError {
    pub(super) fn not_found(binary: &Path) -> Self {
        Self::Other(format!(
            "cannot find the program {}: install the package stellar-core from the Stellar project's \
             Debian repository, apt.stellar.org, or give core.binary the path of the program",
            binary.display()
        ))
    }

    pub(super) fn not_started(command: impl Display, error: impl Display) -> Self {
        Self::Other(format!("cannot start {command}: {error}"))
    }

    /// Creates the error of a file of the storage that cannot be read or written.
    pub(super) fn storage(path: &Path, error: impl Display) -> Self {
        Self::Other(format!("the storage of stellar-core, {}: {error}", path.display()))
    }

    /// Creates the error of something that belongs to a network with the passphrase `found`.
    pub(super) fn wrong_network(what: impl Display, found: &str, wanted: &Network) -> Self {
        Self::Fatal(format!("{what} belongs to the network \"{found}\", not to {wanted}"))
    }

    /// Creates the error of a standalone network that cannot stream ledger `needed`; `state` says
    /// which ledgers it has.
    pub(super) fn standalone_lost(storage: &Path, state: &str, needed: LedgerSeq) -> Self {
        Self::Gone(format!(
            "the standalone network in {} {state}, so ledger {needed} will never come: remove that \
             directory and use a new data directory",
            storage.display()
        ))
    }

    /// Creates the error of a session that was stopped.
    pub(super) fn stopped() -> Self {
        Self::Other("stellar-core is being stopped".to_owned())
    }

    /// Creates an internal error of the supervision of core.
    pub(super) fn internal(error: impl Display) -> Self {
        Self::Other(format!("the supervision of stellar-core stopped unexpectedly: {error}"))
    }
}

impl From<CoreError> for SourceError {
    fn from(error: CoreError) -> Self {
        match error {
            CoreError::Fatal(sentence) => Self::Fatal(sentence),
            CoreError::Gone(sentence) => Self::Gone(sentence),
            CoreError::StorageInDoubt(sentence) | CoreError::Other(sentence) => {
                Self::Retryable(sentence)
            }
        }
    }
}
