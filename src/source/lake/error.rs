//! Errors of reading a lake, and their meaning for the follower.

use std::fmt::Display;
use std::time::Duration;

use orrery_ledger::domain::SourceError;
use orrery_net::buckets::AddressError;

/// Error while reading a lake.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// Waiting cannot help: the settings are wrong, or the lake is not of the network.
    #[error("{0}")]
    Fatal(String),
    /// The lake begins after the requested ledger.
    #[error("{0}")]
    Gone(String),
    /// The lake cannot be listed, and probing found no file.
    #[error("{0}")]
    NothingNear(String),
    /// The lake holds files of another layout where those of its own end.
    #[error("{sentence}")]
    OtherFiles {
        /// Key of such a file.
        key: String,
        /// What the operator is told.
        sentence: String,
    },
    /// The content of a file is invalid: the newest file of a lake may be unfinished.
    #[error("{0}")]
    Content(String),
    /// The store denies access.
    #[error("{0}")]
    Refused(String),
    /// The store asks for a delay.
    #[error("{sentence}")]
    RetryAfter {
        /// What the operator is told.
        sentence: String,
        /// Minimum delay before the next request.
        delay: Duration,
    },
    /// Anything else, which an operator or time may repair.
    #[error("{0}")]
    Other(String),
}

impl LakeError {
    /// Creates the error of a request or a read that failed.
    pub(super) fn transport(place: &str, reason: impl Display) -> Self {
        Self::Other(format!("cannot read {place}: {reason}"))
    }

    /// Creates the error of a file that exceeds the limit of `most` bytes. `verb` is "is" for a limit
    /// on the stored file, "unpacks to" for one on the unpacked ledgers.
    pub(super) fn too_large(place: &str, verb: &str, most: u64) -> Self {
        let most = most >> 20;
        Self::Content(format!(
            "{place} {verb} more than {most} MiB, the most that is read of one file"
        ))
    }
}

impl From<AddressError> for LakeError {
    fn from(AddressError { address, reason }: AddressError) -> Self {
        Self::Fatal(format!("the lake address {address} cannot be used: {reason}"))
    }
}

impl From<LakeError> for SourceError {
    /// Only errors that waiting cannot resolve are fatal: an operator may repair the rest, such as
    /// permissions and damaged files, while the service runs.
    fn from(error: LakeError) -> Self {
        match error {
            LakeError::Fatal(sentence) => Self::Fatal(sentence),
            LakeError::Gone(sentence) => Self::Gone(sentence),
            LakeError::RetryAfter { sentence, delay } => {
                Self::RetryAfter { reason: sentence, delay }
            }
            error => Self::Retryable(error.to_string()),
        }
    }
}
