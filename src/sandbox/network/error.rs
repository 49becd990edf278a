//! Why a sandbox cannot be made or continued.

use orrery_ledger::domain::LedgerSeq;
use soroban_env_host::HostError;

use super::config::MAX_TRANSACTIONS;

/// Result of a step of a sandbox.
pub type Result<T, E = SandboxError> = std::result::Result<T, E>;

/// Message when the ledger has reached its size limits.
pub const FULL: &str =
    "this network has reached its size limit: start another with a new data directory";

/// Why a sandbox cannot be made or continued.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The configuration asks for an impossible number of transactions.
    #[error(
        "a sandbox ledger cannot hold {first} to {last} transactions: give a range within 0 to {MAX_TRANSACTIONS}"
    )]
    TransactionRange {
        /// Start of the range.
        first: usize,
        /// End of the range.
        last: usize,
    },
    /// The close interval is 0, so that close times would not increase.
    #[error("a close interval of 0 seconds is not possible: give at least 1")]
    CloseInterval,
    /// The ledger has reached its size limits.
    #[error("{FULL}")]
    Full,
    /// The ledger sequences are exhausted.
    #[error("ledger {0} is the last one a network can have")]
    LastLedger(u32),
    /// [`Sandbox::skip_to`](super::Sandbox::skip_to) was called with a ledger before the latest.
    #[error("the sandbox is at ledger {latest} and cannot go back to {wanted}")]
    Passed {
        /// Latest ledger that was made.
        latest: LedgerSeq,
        /// Ledger that was requested.
        wanted: LedgerSeq,
    },
    /// The bytes are not a snapshot of this version.
    #[error("these bytes are not a sandbox snapshot: {0}")]
    Snapshot(&'static str),
    /// The snapshot belongs to a sandbox with another configuration.
    #[error(
        "the snapshot was taken of a sandbox with another configuration: continue it with the one it was started with"
    )]
    OtherConfiguration,
    /// A request cannot be added to the next ledger: the request and the reason.
    #[error("the sandbox cannot add {0} to its next ledger: {1}")]
    Refused(String, &'static str),
    /// The contract host failed for a reason other than the call itself.
    #[error("the contract host cannot {step}: {reason}")]
    Host {
        /// Step that failed.
        step: &'static str,
        /// The host's error message.
        reason: String,
    },
    /// A value does not fit its XDR type.
    #[error("a ledger value cannot be encoded: {0}")]
    Xdr(#[from] stellar_xdr::Error),
    /// The sandbox's state is inconsistent, which is a defect of the sandbox.
    #[error("the state of the sandbox is inconsistent: {0}")]
    Inconsistent(String),
}

impl SandboxError {
    /// Returns the error for a step that the contract host failed.
    pub(super) fn host(step: &'static str, error: &HostError) -> Self {
        Self::Host { step, reason: error.to_string() }
    }
}
