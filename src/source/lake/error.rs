//! Errors of reading a lake, and their meaning for the follower.

use std::time::Duration;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, SourceError};
use orrery_net::buckets::AddressError;

use crate::records::RecordError;

/// Error while reading a lake.
#[derive(Debug, thiserror::Error)]
pub enum LakeError {
    /// The settings of the lake cannot be used.
    #[error("the lake address {address} cannot be used: {reason}")]
    Address {
        /// The address as given, without secrets.
        address: String,
        /// The reason, and what to give instead.
        reason: String,
    },
    /// The manifest is missing.
    #[error("{place} is not a ledger lake: it has no {file}{hint}")]
    NoManifest {
        /// The root of the lake.
        place: String,
        /// Key of the manifest.
        file: &'static str,
        /// Advice that is appended to the message, including its punctuation.
        hint: &'static str,
    },
    /// The manifest is invalid.
    #[error("the lake manifest {place} is wrong: {reason}")]
    Manifest {
        /// Location of the manifest.
        place: String,
        /// The reason.
        reason: String,
    },
    /// The manifest and the settings name different layouts.
    #[error(
        "the lake manifest {place} says {found}, but the settings say {given}: remove the settings"
    )]
    OtherLayout {
        /// Location of the manifest.
        place: String,
        /// Its layout, in words.
        found: String,
        /// Layout of the settings, in words.
        given: String,
    },
    /// The lake holds ledgers of another network.
    #[error("{place} holds ledgers of the network {found}, not of {wanted}")]
    WrongNetwork {
        /// Location of the manifest.
        place: String,
        /// Network of the lake.
        found: String,
        /// Network that was asked for.
        wanted: String,
    },
    /// A newer reset directory has replaced the one that is read.
    #[error(
        "the network of the lake {place} was reset: its ledgers now come from {newer}; start again \
         with an empty data directory"
    )]
    Reset {
        /// The directory that is read.
        place: String,
        /// The directory that replaced it.
        newer: String,
    },
    /// A file inside the range that is read is missing.
    #[error("the lake {place} has a gap: ledger {ledger} is missing (expected in {key})")]
    Gap {
        /// The lake.
        place: String,
        /// First ledger that is missing.
        ledger: LedgerSeq,
        /// Key of the missing file.
        key: String,
    },
    /// The lake begins after the requested ledger.
    #[error("the lake {place} begins at ledger {oldest} and does not have ledger {ledger}")]
    BeginsLater {
        /// The lake.
        place: String,
        /// Its first ledger.
        oldest: LedgerSeq,
        /// The requested ledger.
        ledger: LedgerSeq,
    },
    /// The lake cannot be listed, and probing found no file.
    #[error(
        "the lake {place} cannot be listed, and no ledger was found near {near} in {expected}: wait \
         until there is one, say with which ledger of the lake to start (--start LEDGER, or `start` \
         in [source]), or correct {advice} if its files have other sizes"
    )]
    NothingNear {
        /// The lake.
        place: String,
        /// Ledger at which the search began.
        near: LedgerSeq,
        /// Its layout, in words.
        expected: String,
        /// Where the layout is to be corrected.
        advice: &'static str,
    },
    /// The lake holds files of another layout where those of its own end.
    #[error(
        "the lake {place} has {key}, {files}, but {source_of_layout} says {expected}: correct {advice}, \
         or follow a lake of which all files have the same sizes"
    )]
    OtherFiles {
        /// The lake.
        place: Box<str>,
        /// Key of such a file.
        key: Box<str>,
        /// The file, in words.
        files: Box<str>,
        /// What says which layout it has.
        source_of_layout: &'static str,
        /// That layout, in words.
        expected: Box<str>,
        /// Where the layout is to be corrected.
        advice: &'static str,
    },
    /// The lake has no batch file, but another one that may hold ledgers.
    #[error(
        "the lake {place} has {key}, but no file of ledgers that is named as SEP-54 says, at its root or in a \
         directory of it: give the directory or prefix that the exporter writes to"
    )]
    Misnamed {
        /// The lake.
        place: String,
        /// Key of that file.
        key: String,
    },
    /// The content of a file is invalid.
    #[error("cannot take ledgers from {place}: {source}")]
    Content {
        /// The file.
        place: String,
        /// Error of the parser.
        source: RecordError,
    },
    /// A file does not hold the ledgers that its name promises.
    #[error("{place} holds {found}, but its name promises {promised}")]
    OtherLedgers {
        /// The file.
        place: String,
        /// The ledgers that it holds, in words.
        found: String,
        /// The ledgers that its name promises.
        promised: LedgerRange,
    },
    /// A file exceeds a size limit.
    #[error("{place} {verb} more than {} MiB, the most that is read of one file", most >> 20)]
    TooLarge {
        /// The file.
        place: String,
        /// "is" for a limit on the stored file, "unpacks to" for one on the unpacked ledgers.
        verb: &'static str,
        /// The limit, in bytes.
        most: u64,
    },
    /// The store denies access.
    #[error("{place} may not be read: {reason}")]
    Refused {
        /// Location of the request.
        place: String,
        /// The store's answer, with advice.
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
        /// The configured region.
        given: String,
        /// The bucket's region, when the store names it.
        right: Option<String>,
    },
    /// The transport failed.
    #[error("cannot read {place}: {reason}")]
    Transport {
        /// Location of the request.
        place: String,
        /// The reason that the transport gives.
        reason: String,
        /// Minimum delay that the store asks for, if any.
        delay: Option<Duration>,
    },
}

impl LakeError {
    /// Creates an error of the transport without a retry delay.
    pub(super) fn transport(place: String, reason: impl ToString) -> Self {
        Self::Transport { place, reason: reason.to_string(), delay: None }
    }

    /// Returns whether the error lies in a file's content: the newest file of a lake may be
    /// unfinished.
    pub(super) fn is_content_error(&self) -> bool {
        matches!(self, Self::Content { .. } | Self::OtherLedgers { .. } | Self::TooLarge { .. })
    }
}

impl From<AddressError> for LakeError {
    fn from(AddressError { address, reason }: AddressError) -> Self {
        Self::Address { address, reason }
    }
}

impl From<LakeError> for SourceError {
    /// Only errors that waiting cannot resolve are fatal: an operator may repair the rest, such as
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
