//! Control socket of a running service: a Unix socket in the data directory, which speaks HTTP.
//! `orrery import` sends ledgers through it, and `orrery status` and other commands send requests.
//! Transfers bytes and messages; does not depend on what a ledger is or how it is stored.
//!
//! A new operation is a [`Verb`] with the types of its request and its answer, and a line where the
//! service adds it to its [`Verbs`].

mod client;
mod server;
mod verb;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

pub use client::Client;
pub use server::{Listener, Verbs};
pub use verb::{
    BACKFILL, Body, CHECKPOINT, Ledgers, RAW_LEDGER, REBUILD, RawXdr, SINK_CHECK, SINK_REMOVE,
    SINK_REPLACE, SINK_TEST, SINKS, STATE_BACKFILL, STATUS, STORE, STORE_LAST, Verb,
};

use crate::domain::{ContractId, CoveredLedgers, LedgerRange, LedgerSeq, LedgerSet};

/// Version of the protocol, which increases when one side would misunderstand the other: since 3 it is
/// HTTP.
const PROTOCOL: u32 = 3;
/// Header with [`PROTOCOL`].
const PROTOCOL_HEADER: HeaderName = HeaderName::from_static("orrery-protocol");
/// Header with the release of the sender.
const RELEASE_HEADER: HeaderName = HeaderName::from_static("orrery-release");

/// What the other side says of itself; protocol 0 when it says nothing.
#[derive(Debug, Default)]
struct Peer {
    protocol: u32,
    release: String,
}

impl Peer {
    /// Returns who has sent these headers; `None` when they do not say.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name)?.to_str().ok();
        let protocol = text(PROTOCOL_HEADER)?.parse().unwrap_or_default();
        Some(Self { protocol, release: text(RELEASE_HEADER).unwrap_or_default().to_owned() })
    }

    /// Adds what this program says of itself.
    fn name_own(headers: &mut HeaderMap) {
        headers.insert(PROTOCOL_HEADER, HeaderValue::from(PROTOCOL));
        headers.insert(RELEASE_HEADER, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    }

    /// Returns why the two sides cannot talk to each other.
    fn refusal(&self) -> String {
        let other = match self.release.as_str() {
            "" => "another release".to_owned(),
            release => format!("release {release}"),
        };
        format!(
            "{other} and release {} of Orrery cannot talk to each other: use the release of the \
             running service",
            env!("CARGO_PKG_VERSION")
        )
    }
}

/// Location of a checkpoint that can be copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Directory of the checkpoint, relative to the data directory.
    pub directory: PathBuf,
    /// Time that creating the checkpoint took, in milliseconds.
    pub milliseconds: u64,
    /// Ledgers in it that are attested.
    #[serde(default)]
    pub attested: LedgerSet,
}

/// Request to rebuild a consumer's rows, or for the progress of a rebuild.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildRequest {
    /// Name of the consumer.
    pub name: String,
    /// Whether to start a rebuild unless one is under way; otherwise only the progress is returned.
    pub begin: bool,
    /// Whether the new rows may lack ledgers that the present ones include.
    #[serde(default)]
    pub allow_loss: bool,
}

/// Progress of rebuilding a consumer's rows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RebuildReport {
    /// Whether a rebuild is under way.
    pub running: bool,
    /// Number of ledgers that the rebuild has processed.
    pub done: u64,
    /// Number of ledgers that the consumer has processed, which the rebuild has to process again.
    pub of: u64,
    /// Ledgers that are missing from the rows that are read now.
    pub lost: LedgerSet,
    /// Digest of the consumer's rows, for comparison with another build of them. `None` while a
    /// rebuild is under way, when the request started one, and for indexing programs.
    pub digest: Option<String>,
}

/// State of a consumer of the feed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConsumerReport {
    /// Name of the consumer; `programs/ID` for an indexing program.
    pub name: String,
    /// Whether the consumer currently takes ledgers, so that retention waits for it.
    pub active: bool,
    /// Number of stored ledgers that the consumer has yet to process.
    pub lag: u64,
    /// Ledgers that the consumer did not see completely, because retention removed them first or they
    /// were stored without data that the consumer needs.
    pub lost: LedgerSet,
    /// Number of processed ledgers and number of ledgers in total while the consumer's rows are
    /// being rebuilt; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<(u64, u64)>,
}

/// Request about the backfill of older ledgers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackfillRequest {
    /// Starts a backfill.
    Start(BackfillOrder),
    /// Requests the progress.
    Status,
    /// Cancels the backfill; ledgers that it has stored stay.
    Cancel,
}

/// Ledgers to backfill, and the sources to read them from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackfillOrder {
    /// First ledger.
    pub from: u32,
    /// Last ledger.
    pub to: u32,
    /// Sources in the order in which they are tried, as written on the command line; the configured
    /// ones when empty.
    pub sources: Vec<String>,
}

impl fmt::Debug for BackfillOrder {
    /// Leaves out the addresses of the sources, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, sources } = self;
        let sources = sources.len();
        write!(f, "BackfillOrder {{ from: {from}, to: {to}, sources: {sources} }}")
    }
}

/// Progress of the backfill of older ledgers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct BackfillReport {
    /// State of the backfill.
    pub state: BackfillState,
    /// First ledger of the order; 0 when there is no order.
    pub from: u32,
    /// Last ledger of the order; 0 when there is no order.
    pub to: u32,
    /// Number of ledgers that were missing when the backfill began.
    pub missing: u64,
    /// Number of those ledgers that are stored now.
    pub stored: u64,
    /// Number of events that were stored with them.
    pub events: u64,
    /// Number of ledgers of the order that are stored without events or transactions, because
    /// retention has removed these. They are not fetched again.
    #[serde(default)]
    pub without_records: u64,
    /// Ledger that was stored last; `None` before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<u32>,
    /// Rate over the last half minute.
    pub ledgers_per_second: f64,
    /// Estimated seconds until the end at that rate; `None` while the rate is zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Why the backfill failed, or what it is waiting for, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of a backfill of older ledgers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackfillState {
    /// No backfill was requested since the service started.
    #[default]
    None,
    /// The backfill is under way.
    Running,
    /// All ledgers of the order are stored.
    Done,
    /// The backfill was cancelled before it was complete.
    Cancelled,
    /// The backfill cannot continue.
    Failed,
}

impl BackfillReport {
    /// Returns the percentage of the missing ledgers that is stored; 100 when none were missing.
    pub fn percent(&self) -> u64 {
        (self.stored.min(self.missing) * 100).checked_div(self.missing).unwrap_or(100)
    }
}

/// Request about completing what contracts hold from a history archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateRequest {
    /// Starts it.
    Start(StateOrder),
    /// Requests the progress.
    Status,
    /// Cancels it; nothing is recorded.
    Cancel,
}

/// The state that is recorded, and where it is read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOrder {
    /// The history archive: its address, or the absolute path of a directory.
    pub archive: String,
    /// The ledger of the checkpoint; the newest one if it is not given.
    pub at: Option<u32>,
    /// Contracts whose state is recorded; all of them when empty.
    pub contracts: Vec<ContractId>,
    /// Whether validators need not have attested the ledger.
    pub unattested: bool,
}

impl fmt::Debug for StateOrder {
    /// Leaves out the address of the archive, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, contracts, unattested, .. } = self;
        let contracts = contracts.len();
        write!(f, "StateOrder {{ at: {at:?}, contracts: {contracts}, unattested: {unattested} }}")
    }
}

/// Progress of completing what contracts hold from a history archive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StateReport {
    /// Its state.
    pub state: BackfillState,
    /// The ledger of the checkpoint; `None` while it is not chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u32>,
    /// Whether validators attest that ledger.
    pub attested: bool,
    /// What is being done, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Percentage of that step which is done; `None` when it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percent: Option<u64>,
    /// Bytes of the disk of the data directory that the sort takes at most; `None` before it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Entries of contracts that were compared with the stored ledgers.
    pub entries: u64,
    /// Those that no stored ledger says, and that are recorded.
    pub found: u64,
    /// Those of contracts of which not all transactions are stored.
    pub skipped: u64,
    /// Why it failed, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Counts of ledgers that were passed to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Number of ledgers that were not stored before.
    pub new: u64,
    /// Number of ledgers that were stored already.
    pub known: u64,
    /// Number of those that are stored without events or transactions, because retention has removed
    /// these.
    #[serde(default)]
    pub without_records: u64,
    /// Number of events that were stored with the new ledgers.
    pub events: u64,
    /// Number of smart-contract transactions that were stored with the new ledgers.
    pub transactions: u64,
    /// Number of ledgers, of all that the client has sent, that wait until validators attest them.
    #[serde(default)]
    pub waiting: u64,
}

impl Stored {
    /// Adds the counts of further ledgers.
    pub fn add(&mut self, more: &Self) {
        self.new += more.new;
        self.known += more.known;
        self.without_records += more.without_records;
        self.events += more.events;
        self.transactions += more.transactions;
        self.waiting = more.waiting;
    }

    /// Returns the number of all ledgers, new and already stored.
    pub fn ledgers(&self) -> u64 {
        self.new + self.known
    }
}

/// Reason why not all ledgers were stored. Ledgers before the first invalid one are stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{reason}")]
pub struct NotStored {
    /// Counts of the ledgers that were stored nevertheless.
    pub before: Stored,
    /// Why the ledger was refused, in one sentence.
    pub reason: String,
    /// 0-based position of the refused ledger among all that the client has sent; `None` if it is the one
    /// after those that are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// Content of the store, and state of the service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of the program that sent the report.
    pub version: String,
    /// Version of the store's format.
    pub format_version: String,
    /// Whether a service is running; false in a report that was read from the data directory
    /// without one.
    pub running: bool,
    /// Listening address of the HTTP server; `None` when no service is running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Short name of the network, or `custom`.
    pub network: String,
    /// Passphrase of the network.
    pub network_passphrase: String,
    /// Every covered range, ascending.
    pub ranges: Vec<LedgerRange>,
    /// The same ranges, with hashes and digests for comparison with another installation.
    pub covered: Vec<CoveredRange>,
    /// Newest stored ledger; `None` in an empty store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_ledger: Option<u32>,
    /// Close time of the newest stored ledger, in UNIX seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_close_time: Option<u64>,
    /// What is attested of the newest covered range; `None` in an empty store, and in the report of
    /// a service that checks no signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestation: Option<AttestationReport>,
    /// Newest ledger that the source has reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_latest_ledger: Option<u32>,
    /// Number of stored events.
    pub events: u64,
    /// Number of stored smart-contract transactions.
    pub transactions: u64,
    /// State of every consumer of the feed.
    pub consumers: Vec<ConsumerReport>,
    /// Of what the data directory is a reader, in one sentence; `None` when it is a writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reader: Option<String>,
    /// First component that is down, and the reason; `None` when all work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<String>,
}

/// What is attested of the newest covered range.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttestationReport {
    /// Newest attested ledger; `None` when none is.
    pub attested_ledger: Option<u32>,
    /// Whose word it is: `core` for the stellar-core that is followed, else `validators`; `None` when
    /// no ledger is attested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attested_by: Option<String>,
    /// Why no ledger is attested, in one sentence; `None` when some are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unattested_because: Option<String>,
    /// Number of organisations whose validators attest the ledger; 0 when it is attested by core.
    pub organisations: usize,
    /// Number of trusted organisations.
    pub of: usize,
    /// Number of organisations that must have signed.
    pub needed: usize,
    /// Ledgers that wait until validators attest them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<LedgerRange>,
}

/// A range of consecutive stored ledgers, and what is attested of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredRange {
    /// The ledgers.
    #[serde(flatten)]
    pub covered: CoveredLedgers,
    /// Newest attested ledger of the range; `None` when none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attested_ledger: Option<LedgerSeq>,
    /// Why no ledger is attested, in one sentence; `None` when some are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattested_because: Option<String>,
    /// Ledgers that are not as their header says.
    #[serde(default, skip_serializing_if = "MarkedLedgers::is_empty")]
    pub reported: MarkedLedgers,
    /// Ledgers with rewritten events that are not proven.
    #[serde(default, skip_serializing_if = "MarkedLedgers::is_empty")]
    pub unproven: MarkedLedgers,
    /// Ledgers that were restored from a backup without their raw form.
    #[serde(default, skip_serializing_if = "MarkedLedgers::is_empty")]
    pub from_backup: MarkedLedgers,
}

/// Ledgers of a range of which less is known than of others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MarkedLedgers {
    /// Their number.
    pub ledgers: u64,
    /// The first ranges of them, as [`LedgerSet::first_ranges`] returns them.
    pub ranges: Vec<LedgerRange>,
}

impl MarkedLedgers {
    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ledgers == 0
    }
}

impl From<&LedgerSet> for MarkedLedgers {
    fn from(set: &LedgerSet) -> Self {
        Self { ledgers: set.ledgers(), ranges: set.first_ranges().collect() }
    }
}

/// Reasons why the control socket could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// An operation failed in the operating system.
    #[error("the control socket {}: {source}", path.display())]
    Io {
        /// Path of the socket or of the data directory.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The service ended the connection; contains why, after a colon, if that is known.
    #[error("the running service ended the connection{0}")]
    Closed(&'static str),
    /// The peer refused the request; contains its message.
    #[error("{0}")]
    Refused(String),
    /// The peer violated the protocol.
    #[error("invalid message on the control socket: {0}")]
    Protocol(String),
}

/// Path of the socket. Addresses the socket through an open descriptor of the data directory, so
/// that the path is short enough for the operating system (108 bytes) at any depth.
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
