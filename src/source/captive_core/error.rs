//! Reasons why a captive stellar-core yields no ledgers, each as one sentence for the operator.

use std::io;
use std::path::PathBuf;

use orrery_ledger::domain::{LedgerSeq, Network, SourceError};

use crate::records::RecordError;

/// Name of the source in messages, and of the origin of its ledgers.
pub const NAME: &str = "stellar-core";

/// Why stellar-core yields no ledgers.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The executable does not exist.
    #[error(
        "cannot find the program {}: install the package stellar-core from the Stellar project's \
         Debian repository, apt.stellar.org, or give core.binary the path of the program",
        .0.display()
    )]
    NotFound(PathBuf),
    /// The operating system could not start the process.
    #[error("cannot start {command}: {source}")]
    NotStarted {
        /// The executable and its arguments.
        command: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The executable does not report its protocol version.
    #[error("{} does not say its ledger protocol version ({found}): is it stellar-core?", binary.display())]
    NoVersion {
        /// Path of the executable.
        binary: PathBuf,
        /// First line of its output.
        found: String,
    },
    /// The executable does not support smart contracts.
    #[error(
        "stellar-core {build} knows protocols up to {protocol} only, but smart contracts began with \
         20: install a newer stellar-core"
    )]
    TooOld {
        /// Its release.
        build: String,
        /// Newest protocol that it supports.
        protocol: u32,
    },
    /// A file of the storage cannot be read or written.
    #[error("the storage of stellar-core, {}: {source}", path.display())]
    Storage {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Another process uses the storage.
    #[error("another process uses {} as storage of stellar-core: stop it, or give core.storage another directory", .0.display())]
    StorageInUse(PathBuf),
    /// The storage directory contains other files, which a wipe would remove.
    #[error("{} holds other files, so it cannot be the storage of stellar-core: give core.storage a directory of its own", .0.display())]
    ForeignStorage(PathBuf),
    /// A stellar-core that an earlier process left behind cannot be stopped.
    #[error("process {pid} is a stellar-core of an earlier run in {}, and it cannot be stopped: {reason}", storage.display())]
    LeftBehind {
        /// Its process id.
        pid: i32,
        /// Its storage.
        storage: PathBuf,
        /// Why it cannot be stopped.
        reason: String,
    },
    /// The operator's configuration file is invalid.
    #[error("the stellar-core configuration {}: {reason}", path.display())]
    OwnConfig {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Validators and archives of the network are neither built in nor configured.
    #[error(
        "the validators and archives of {0} are not built into orrery: name them in a \
         configuration file of stellar-core and give its path as core.config"
    )]
    UnknownNetwork(Network),
    /// A file, an archive or a core belongs to another network than the configured one.
    #[error("{what} belongs to the network \"{found}\", not to {wanted}")]
    WrongNetwork {
        /// What belongs to the other network.
        what: String,
        /// Passphrase of the other network.
        found: String,
        /// The configured network.
        wanted: Network,
    },
    /// A stellar-core command failed.
    #[error("{command} ended with {end}")]
    Command {
        /// The executable and its arguments.
        command: String,
        /// Exit status and last lines of its log.
        end: String,
    },
    /// The output of a stellar-core command cannot be parsed.
    #[error("the answer of {command} is not understood: {reason}")]
    Answer {
        /// The executable and its arguments.
        command: String,
        /// What is wrong with the output.
        reason: String,
    },
    /// The stream of ledgers is damaged, or ends inside a ledger.
    #[error("the ledger stream of stellar-core broke: {source}; stellar-core ended with {end}")]
    Stream {
        /// What is wrong with the stream.
        source: RecordError,
        /// Exit status and last lines of its log.
        end: String,
    },
    /// The stream skips ledgers.
    #[error("stellar-core streams ledger {found} where ledger {expected} should come")]
    Skipped {
        /// The ledger that should have come.
        expected: LedgerSeq,
        /// The ledger that came.
        found: LedgerSeq,
    },
    /// Core ended although it should have continued.
    #[error("stellar-core ended after ledger {last} with {end}")]
    Ended {
        /// The newest ledger that it streamed, or the one before the first.
        last: LedgerSeq,
        /// Exit status and last lines of its log.
        end: String,
        /// Whether its exit status was 0.
        clean: bool,
    },
    /// The archive does not reach far enough to begin at the needed ledger.
    #[error(
        "stellar-core cannot begin at ledger {needed}: the newest checkpoint of the history archive \
         is {newest}, more than two checkpoints before it; source.start is wrong, the archive is \
         old, or the network was reset and needs an empty data directory"
    )]
    TooFarAhead {
        /// The next ledger that is needed.
        needed: LedgerSeq,
        /// Newest checkpoint of the archive.
        newest: LedgerSeq,
    },
    /// The last ledger of a replay is not archived yet.
    #[error(
        "stellar-core cannot replay to ledger {to}: the newest checkpoint of the history archive is \
         {newest}; choose an earlier last ledger, or wait for the next checkpoint"
    )]
    NotArchived {
        /// Last ledger of the replay.
        to: LedgerSeq,
        /// Newest checkpoint of the archive.
        newest: LedgerSeq,
    },
    /// The first ledger depends on the archive, and no archive answers.
    #[error(
        "no history archive of {0} answers, so the first ledger cannot be determined: give \
         source.start, or check the connection"
    )]
    NoArchive(Network),
    /// A standalone network cannot stream a needed ledger again.
    #[error(
        "the standalone network in {} {state}, so ledger {needed} will never come: remove that \
         directory and use a new data directory",
        storage.display()
    )]
    StandaloneLost {
        /// Its storage.
        storage: PathBuf,
        /// Which ledgers it has.
        state: String,
        /// The next ledger that is needed.
        needed: LedgerSeq,
    },
    /// No free port was found on this machine.
    #[error("no port is free for stellar-core's ledger entry queries: {0}")]
    NoPort(io::Error),
    /// The session was stopped.
    #[error("stellar-core is being stopped")]
    Stopped,
    /// An internal error of the supervision of core.
    #[error("the supervision of stellar-core stopped unexpectedly: {0}")]
    Internal(String),
}

impl CoreError {
    /// Returns whether core's own files may be damaged after this error; they are then removed
    /// before the next start.
    pub(super) fn leaves_storage_in_doubt(&self) -> bool {
        match self {
            Self::Command { .. } | Self::Stream { .. } | Self::Skipped { .. } => true,
            Self::Ended { clean, .. } => !clean,
            _ => false,
        }
    }
}

impl From<CoreError> for SourceError {
    fn from(error: CoreError) -> Self {
        let sentence = error.to_string();
        match error {
            CoreError::StandaloneLost { .. } => Self::Gone(sentence),
            CoreError::WrongNetwork { .. }
            | CoreError::OwnConfig { .. }
            | CoreError::UnknownNetwork(_) => Self::Fatal(sentence),
            _ => Self::Retryable(sentence),
        }
    }
}
