//! The way into a running service from the same machine: a Unix socket in the data directory, over
//! which `orrery import` hands over ledgers and `orrery status` asks. Knows bytes and sentences;
//! what a ledger is and where it goes is the [`Service`]'s business.

mod client;
mod protocol;
mod server;

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use client::Client;
pub use server::Listener;

use crate::domain::LedgerRange;

/// What the socket gives access to.
pub trait Service: Send + Sync + 'static {
    /// Stores `LedgerCloseMeta`s in their order, each completely or not at all, and returns when they
    /// are durable. May block.
    fn store(&self, ledgers: Vec<Vec<u8>>) -> Result<Stored, NotStored>;

    /// What is stored, and how the service is. An error is one sentence. May block.
    fn status(&self) -> Result<StatusReport, String>;

    /// Begins, ends or tells about the filling of older ledgers. An error is one sentence. May block.
    fn backfill(&self, request: BackfillRequest) -> Result<BackfillReport, String>;

    /// Begins to build what a consumer keeps anew, or tells about it. An error is one sentence. May block.
    fn rebuild(&self, request: RebuildRequest) -> Result<RebuildReport, String>;

    /// Makes a state of what is stored that can be copied. An error is one sentence. May block.
    fn checkpoint(&self) -> Result<HeldCheckpoint, String>;
}

/// A state of what is stored, for as long as this lives.
pub struct HeldCheckpoint {
    /// Where it is.
    pub report: CheckpointReport,
    /// Removes it when dropped, which may block.
    pub held: Box<dyn Any + Send>,
}

/// Where a state of what is stored can be copied from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Its directory, below the data directory.
    pub directory: PathBuf,
    /// How long it took to make, in milliseconds.
    pub milliseconds: u64,
}

/// What is asked about building what a consumer keeps anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildRequest {
    /// Name of the consumer.
    pub name: String,
    /// Begin, unless it is under way; else only tell.
    pub begin: bool,
}

/// How far building what a consumer keeps anew is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RebuildReport {
    /// Whether it is under way.
    pub running: bool,
    /// Ledgers that it has been through.
    pub done: u64,
    /// Ledgers that the consumer has been through.
    pub of: u64,
    /// Ledgers that are lost to what is read now, as first and last.
    pub lost: Vec<(u32, u32)>,
    /// Digest of all that is read now, once nothing is under way: the same as that of another build of it.
    #[serde(default)]
    pub digest: Option<String>,
}

/// How a consumer of ledgers is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConsumerReport {
    /// Its name; `programs/ID` is an indexing program.
    pub name: String,
    /// Whether it takes ledgers now, so that retention waits for it.
    pub active: bool,
    /// Stored ledgers that it has yet to see.
    pub lag: u64,
    /// Ledgers that it did not see, or not in full, as first and last: retention removed them first, or they
    /// were stored without what it needs.
    pub lost: Vec<(u32, u32)>,
    /// While what it keeps is built anew: ledgers that are done, and of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<(u64, u64)>,
}

/// What is asked about the filling of older ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackfillRequest {
    /// Begin.
    Start(BackfillOrder),
    /// How far is it?
    Status,
    /// End it; what is stored stays.
    Cancel,
}

/// Which ledgers are to be filled in, from where.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillOrder {
    /// First ledger.
    pub from: u32,
    /// Last ledger.
    pub to: u32,
    /// Sources in the order in which they are asked, as the command line writes them; the usual ones
    /// when empty.
    #[serde(default)]
    pub sources: Vec<String>,
}

impl fmt::Debug for BackfillOrder {
    /// Without the sources, whose addresses may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, sources } = self;
        let sources = sources.len();
        write!(f, "BackfillOrder {{ from: {from}, to: {to}, sources: {sources} }}")
    }
}

/// How far the filling of older ledgers is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BackfillReport {
    /// What it is doing.
    pub state: BackfillState,
    /// First ledger of the order; 0 when there is none.
    pub from: u32,
    /// Last ledger of the order.
    pub to: u32,
    /// Ledgers that were missing when it began.
    pub missing: u64,
    /// Those of them that are stored now.
    pub stored: u64,
    /// Events stored with them.
    pub events: u64,
    /// The ledger that was stored last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<u32>,
    /// Speed over the last half minute.
    pub ledgers_per_second: f64,
    /// Seconds until the end at that speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Why it failed, or what it is waiting for, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What the filling of older ledgers is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackfillState {
    /// Nothing was asked for since the service began.
    #[default]
    None,
    /// It works.
    Running,
    /// All ledgers of the order are stored.
    Done,
    /// It was ended before.
    Cancelled,
    /// It cannot go on.
    Failed,
}

impl BackfillReport {
    /// Hundredths of the ledgers that were missing.
    pub fn percent(&self) -> u64 {
        (self.stored.min(self.missing) * 100).checked_div(self.missing).unwrap_or(100)
    }
}

/// What became of some ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Ledgers that were not there before.
    pub new: u64,
    /// Ledgers that were stored already.
    pub known: u64,
    /// Events stored with the new ones.
    pub events: u64,
    /// Smart-contract transactions stored with the new ones.
    pub transactions: u64,
}

impl Stored {
    /// Adds what became of further ledgers.
    pub fn add(&mut self, more: &Self) {
        self.new += more.new;
        self.known += more.known;
        self.events += more.events;
        self.transactions += more.transactions;
    }

    /// All ledgers together.
    pub fn ledgers(&self) -> u64 {
        self.new + self.known
    }
}

/// Why not all ledgers were stored. What came before the first bad one is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}")]
pub struct NotStored {
    /// What became of the ledgers before it.
    pub before: Stored,
    /// Why it was refused, in one sentence.
    pub reason: String,
}

/// What is stored, and how a running service is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of the program that answers.
    pub version: String,
    /// Version of the store's format.
    pub format_version: String,
    /// Whether a service runs, as opposed to a report from the directory itself.
    pub running: bool,
    /// Address of its HTTP server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Short name of the network, or `custom`.
    pub network: String,
    /// Its passphrase.
    pub network_passphrase: String,
    /// Covered ranges, ascending, each as first and last ledger.
    pub ranges: Vec<(u32, u32)>,
    /// The same ranges, with what compares them with those of another installation.
    #[serde(default)]
    pub covered: Vec<CoveredRange>,
    /// Newest ledger stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_ledger: Option<u32>,
    /// Its close time, UNIX seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_close_time: Option<u64>,
    /// Newest ledger that the source knows of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_latest_ledger: Option<u32>,
    /// Events stored.
    pub events: u64,
    /// Smart-contract transactions stored.
    pub transactions: u64,
    /// Those that follow ledgers.
    #[serde(default)]
    pub consumers: Vec<ConsumerReport>,
    /// The first component that does not work, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
}

/// Consecutive ledgers that are stored. Hashes and digests are in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CoveredRange {
    /// First ledger.
    pub first_ledger: u32,
    /// Last ledger.
    pub last_ledger: u32,
    /// Hash of the first ledger.
    pub first_hash: String,
    /// Hash of the last ledger.
    pub last_hash: String,
    /// Hash of the ledger before the first.
    pub previous_hash: String,
    /// Events that were stored, including those that retention has removed.
    pub events: u64,
    /// Sum of the ledgers' digests.
    pub digest: String,
}

impl CoveredRange {
    /// First and last ledger.
    pub fn ledgers(&self) -> LedgerRange {
        LedgerRange::new(self.first_ledger, self.last_ledger)
    }
}

/// Why the socket could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The operating system refused.
    #[error("the control socket {}: {source}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The other side ended the conversation.
    #[error("the running service ended the connection")]
    Closed,
    /// The other side refused, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The other side does not keep to the protocol.
    #[error("the control socket is not understood: {0}")]
    Protocol(String),
}

/// The socket's path, in a form that is short enough for the operating system (108 bytes) however deep
/// the data directory lies: through the open directory.
struct SocketPath {
    directory: PathBuf,
    handle: File,
}

impl SocketPath {
    const NAME: &'static str = "control.sock";

    fn new(data_dir: &Path) -> Result<Self, ControlError> {
        let handle = File::open(data_dir)
            .map_err(|source| ControlError::Io { path: data_dir.to_owned(), source })?;
        Ok(Self { directory: data_dir.to_owned(), handle })
    }

    fn short(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.handle.as_raw_fd()))
    }

    fn full(&self) -> PathBuf {
        self.directory.join(Self::NAME)
    }

    fn error(&self, source: io::Error) -> ControlError {
        ControlError::Io { path: self.full(), source }
    }
}

#[cfg(test)]
mod tests;
