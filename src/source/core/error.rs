//! Why a captive stellar-core does not yield ledgers, each in one sentence for the operator.

use std::io;
use std::path::PathBuf;

use crate::domain::{LedgerSeq, Network};
use crate::source::follow::SourceError;
use crate::source::records::RecordError;

/// Why stellar-core does not yield ledgers.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The program is not there.
    #[error(
        "cannot find the program {}: install the package stellar-core from the Stellar project's \
         Debian repository, apt.stellar.org, or give core.binary the path of the program",
        .0.display()
    )]
    NotFound(PathBuf),
    /// The operating system does not start it.
    #[error("cannot start {command}: {source}")]
    NotStarted {
        /// The program and what it should do.
        command: String,
        /// What the operating system says.
        source: io::Error,
    },
    /// It does not say which protocol it knows.
    #[error("{} does not say its ledger protocol version ({found}): is it stellar-core?", binary.display())]
    NoVersion {
        /// The program.
        binary: PathBuf,
        /// What it said instead.
        found: String,
    },
    /// It is from before smart contracts.
    #[error(
        "stellar-core {build} knows protocols up to {protocol} only, but smart contracts began with \
         20: install a newer stellar-core"
    )]
    TooOld {
        /// What it calls itself.
        build: String,
        /// Its newest protocol.
        protocol: u32,
    },
    /// A file of the storage failed.
    #[error("the storage of stellar-core, {}: {source}", path.display())]
    Storage {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Another process works there.
    #[error("another process uses {} as storage of stellar-core: stop it, or give core.storage another directory", .0.display())]
    StorageInUse(PathBuf),
    /// It would be wiped, so it must not hold anything else.
    #[error("{} holds other files, so it cannot be the storage of stellar-core: give core.storage a directory of its own", .0.display())]
    ForeignStorage(PathBuf),
    /// A process that was left behind does not end.
    #[error("process {pid} is a stellar-core that was left behind in {}, and it cannot be stopped: {reason}", storage.display())]
    LeftBehind {
        /// Its process id.
        pid: i32,
        /// Where it works.
        storage: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The operator's own configuration file is wrong.
    #[error("the stellar-core configuration {}: {reason}", path.display())]
    OwnConfig {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Nobody knows whom to trust on that network.
    #[error(
        "the validators and archives of {0} are not known here: name them in a configuration file of \
         stellar-core and give its path as core.config"
    )]
    UnknownNetwork(Network),
    /// Another network than the configured one.
    #[error("{what} belongs to the network \"{found}\", not to {wanted}")]
    WrongNetwork {
        /// What says so.
        what: String,
        /// Its passphrase.
        found: String,
        /// The configured network.
        wanted: Network,
    },
    /// A command of it failed.
    #[error("{command} ended with {end}")]
    Command {
        /// The program and what it should do.
        command: String,
        /// Exit status and last lines of its log.
        end: String,
    },
    /// Its answer is not understood.
    #[error("the answer of {command} is not understood: {reason}")]
    Answer {
        /// The program and what it should do.
        command: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The stream of ledgers is damaged, or breaks off inside a ledger.
    #[error("the ledger stream of stellar-core broke: {source}; stellar-core ended with {end}")]
    Stream {
        /// What is wrong with it.
        source: RecordError,
        /// Exit status and last lines of its log.
        end: String,
    },
    /// It leaves out ledgers.
    #[error("stellar-core streams ledger {found} where ledger {expected} should come")]
    Skipped {
        /// The next ledger.
        expected: LedgerSeq,
        /// What came.
        found: LedgerSeq,
    },
    /// It ended although it should go on.
    #[error("stellar-core ended after ledger {last} with {end}")]
    Ended {
        /// The newest ledger that it streamed, or the one before the first.
        last: LedgerSeq,
        /// Exit status and last lines of its log.
        end: String,
        /// Whether it ended without an error.
        clean: bool,
    },
    /// The archive does not reach that far.
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
    /// The last ledger of a replay is not archived.
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
    /// Where to begin depends on the archive, and none answers.
    #[error(
        "no history archive of {0} answers, so it is not known at which ledger to begin: give \
         source.start, or check the connection"
    )]
    NoArchive(Network),
    /// A standalone network cannot show a ledger again.
    #[error(
        "the standalone network in {} {state}, so ledger {needed} will never come: remove that \
         directory and use a new data directory",
        storage.display()
    )]
    StandaloneLost {
        /// Its storage.
        storage: PathBuf,
        /// What it has.
        state: String,
        /// The next ledger that is needed.
        needed: LedgerSeq,
    },
    /// No port is free on this machine.
    #[error("no port is free for the questions to stellar-core about entries of the ledger: {0}")]
    NoPort(io::Error),
    /// It was told to stop.
    #[error("stellar-core was told to stop")]
    Stopped,
    /// The program itself is broken.
    #[error("the supervision of stellar-core stopped unexpectedly: {0}")]
    Internal(String),
}

impl CoreError {
    /// Whether core's own files may be wrong after it: then they are removed before the next start.
    pub(super) fn leaves_doubt(&self) -> bool {
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
