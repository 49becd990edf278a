//! Why a lake could not be read, and what that means to whoever follows it.

use std::time::Duration;

use super::Manifest;
use crate::domain::{LedgerRange, LedgerSeq};
use crate::source::follow::SourceError;
use crate::source::records::RecordError;

/// Why a lake could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The settings of the lake cannot be used.
    #[error("the lake address {address} cannot be used: {reason}")]
    Address {
        /// As it was given, without secrets.
        address: String,
        /// What is wrong, and what to give.
        reason: String,
    },
    /// The manifest is missing.
    #[error("{place} is not a ledger lake: it has no {file}{hint}", file = Manifest::FILE_NAME)]
    NoManifest {
        /// The root of the lake.
        place: String,
        /// What may help, with what leads to it.
        hint: &'static str,
    },
    /// The manifest is wrong.
    #[error("the lake manifest {place} is wrong: {reason}")]
    Manifest {
        /// Where it lies.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// The manifest and the settings name different layouts.
    #[error(
        "the lake manifest {place} says {found}, but the settings say {given}: remove the settings"
    )]
    OtherLayout {
        /// The manifest.
        place: String,
        /// Its layout, in words.
        found: String,
        /// Layout of the settings, in words.
        given: String,
    },
    /// It holds another network.
    #[error("{place} holds ledgers of the network {found}, not of {wanted}")]
    WrongNetwork {
        /// The manifest.
        place: String,
        /// Network of the lake.
        found: String,
        /// Network that was asked for.
        wanted: String,
    },
    /// A younger directory has taken the place of the one that is read.
    #[error(
        "the network of the lake {place} was reset: its ledgers now come from {newer}, and begin \
         anew; start again with an empty data directory"
    )]
    Reset {
        /// The directory that is read.
        place: String,
        /// The one that has taken its place.
        newer: String,
    },
    /// A file in the middle is missing.
    #[error("the lake {place} has a gap: ledger {ledger} is missing (expected in {key})")]
    Gap {
        /// The lake.
        place: String,
        /// First ledger that is missing.
        ledger: LedgerSeq,
        /// Where it should be.
        key: String,
    },
    /// It begins later.
    #[error("the lake {place} begins at ledger {oldest} and does not have ledger {ledger}")]
    BeginsLater {
        /// The lake.
        place: String,
        /// Its first ledger.
        oldest: LedgerSeq,
        /// The ledger that was asked for.
        ledger: LedgerSeq,
    },
    /// It cannot be listed, and no file is where one was looked for.
    #[error(
        "the lake {place} cannot be listed, and no ledger was found near {near}: wait until there \
         is one, or say with which ledger of the lake to start"
    )]
    NothingNear {
        /// The lake.
        place: String,
        /// Where the search began.
        near: LedgerSeq,
    },
    /// A file's content is wrong.
    #[error("cannot take ledgers from {place}: {source}")]
    Content {
        /// The file.
        place: String,
        /// What is wrong with it.
        source: RecordError,
    },
    /// A file does not hold the ledgers that its name promises.
    #[error("{place} holds {found}, but its name promises {promised}")]
    OtherLedgers {
        /// The file.
        place: String,
        /// What it holds, in words.
        found: String,
        /// What its name says.
        promised: LedgerRange,
    },
    /// A file is larger than is read.
    #[error("{place} {verb} more than {} MiB, the most that is read of one file", most >> 20)]
    TooLarge {
        /// The file.
        place: String,
        /// Whether it is that long, or unpacks to that much.
        verb: &'static str,
        /// The limit, in bytes.
        most: u64,
    },
    /// The store says that this may not be read.
    #[error("{place} may not be read: {reason}")]
    Refused {
        /// What was asked for.
        place: String,
        /// What the store says, and what to do.
        reason: String,
    },
    /// The bucket lies in another region.
    #[error(
        "the bucket {bucket} is not in the region {given}{}",
        right.as_ref().map_or_else(
            || ": set the region that it is in".to_owned(),
            |right| format!(" but in {right}: set that region"),
        )
    )]
    WrongRegion {
        /// The bucket.
        bucket: String,
        /// Region of the settings.
        given: String,
        /// Its region, when the store names it.
        right: Option<String>,
    },
    /// The transport failed.
    #[error("cannot read {place}: {reason}")]
    Transport {
        /// What was asked for.
        place: String,
        /// What the transport says.
        reason: String,
        /// The shortest wait that the store asks for, when it does.
        delay: Option<Duration>,
    },
}

impl LakeError {
    /// A failure of the transport that says nothing about how long to wait.
    pub(super) fn transport(place: String, reason: impl ToString) -> Self {
        Self::Transport { place, reason: reason.to_string(), delay: None }
    }

    /// Whether it shows in a file's content: the newest file of a lake may still be on its way.
    pub(super) fn is_of_content(&self) -> bool {
        matches!(self, Self::Content { .. } | Self::OtherLedgers { .. } | Self::TooLarge { .. })
    }
}

impl From<LakeError> for SourceError {
    /// Only what waiting cannot heal ends the following: an operator may repair the rest, such as
    /// permissions and damaged files, while the service runs.
    fn from(error: LakeError) -> Self {
        match error {
            LakeError::Address { .. }
            | LakeError::OtherLayout { .. }
            | LakeError::WrongNetwork { .. }
            | LakeError::Reset { .. } => Self::Fatal(error.to_string()),
            LakeError::BeginsLater { .. } => Self::Gone(error.to_string()),
            LakeError::Transport { delay: Some(delay), .. } => {
                Self::RetryAfter { reason: error.to_string(), delay }
            }
            _ => Self::Retryable(error.to_string()),
        }
    }
}
