//! Why the state at a checkpoint cannot be read.

use std::fmt::Display;
use std::io;

/// Result of a step.
pub(crate) type Result<T, E = CheckpointError> = std::result::Result<T, E>;

/// Why the state at a checkpoint cannot be read: a sentence that names the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The archive has no checkpoint at this ledger; it may have others.
    #[error("{0}")]
    Absent(String),
    /// What the archive has is not the state that the header names, or is not well formed. The same
    /// archive will not be right the next time.
    #[error("{0}")]
    Refused(String),
    /// The caller asked to stop ([`super::Work::observe`]).
    #[error("the state was not read to its end, because it was cancelled")]
    Stopped,
    /// Anything else: disk, network, or an address that cannot be used. A later attempt goes on with
    /// the files that were downloaded.
    #[error("{0}")]
    Failed(String),
}

impl CheckpointError {
    pub(crate) fn refused(file: impl Display, reason: impl Display) -> Self {
        Self::Refused(format!("{file} is refused: {reason}"))
    }

    pub(crate) fn unreadable(file: impl Display, reason: impl Display) -> Self {
        Self::Failed(format!("{file} cannot be read: {reason}"))
    }

    /// The error for a directory of this machine in which something cannot be written.
    pub(crate) fn disk(directory: impl Display, error: &io::Error) -> Self {
        Self::Failed(format!("the state cannot be sorted in {directory}: {error}"))
    }
}
