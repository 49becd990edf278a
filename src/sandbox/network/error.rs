//! Why a sandbox cannot be made or continued.

use std::fmt::Display;

use soroban_env_host::HostError;

/// Result of a step of a sandbox.
pub type Result<T, E = SandboxError> = std::result::Result<T, E>;

/// Message when the ledger has reached its size limits.
pub const FULL: &str =
    "this network has reached its size limit: start another with a new data directory";

/// Why a sandbox cannot be made or continued: a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SandboxError(pub(crate) String);

impl SandboxError {
    /// Returns the error for a step that the contract host failed.
    pub(super) fn host(step: &str, error: &HostError) -> Self {
        Self(format!("the contract host cannot {step}: {error}"))
    }

    /// Returns the error for bytes that are not a snapshot of this version.
    pub(super) fn snapshot(reason: &str) -> Self {
        Self(format!("these bytes are not a sandbox snapshot: {reason}"))
    }

    /// Returns the error for an inconsistent state, which is a defect of the sandbox.
    pub(crate) fn inconsistent(what: impl Display) -> Self {
        Self(format!("the state of the sandbox is inconsistent: {what}"))
    }
}

impl From<stellar_xdr::Error> for SandboxError {
    fn from(error: stellar_xdr::Error) -> Self {
        Self(format!("a ledger value cannot be encoded: {error}"))
    }
}
