//! The operations that the control socket offers, and how their requests and answers become bytes.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{
    BackfillReport, BackfillRequest, CheckpointReport, NotStored, RebuildReport, RebuildRequest,
    StateReport, StateRequest, StatusReport, Stored,
};
use crate::domain::{LAST_FRAGMENT, LONGEST_LEDGER};
use crate::sinks::{
    SinkCheckedTable, SinkProjectReport, SinkProjectRequest, SinkRemoval, SinkReport, SinkRequest,
    SinkTestReport,
};

/// An operation, which is asked for with a `Q` at the path `/control/NAME` and answered with an `A`.
pub struct Verb<Q, A> {
    pub(super) name: &'static str,
    types: PhantomData<fn(Q) -> A>,
}

impl<Q: Body, A: Body> Verb<Q, A> {
    const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }
}

/// What is stored and the state of the service.
pub const STATUS: Verb<(), StatusReport> = Verb::new("status");
/// Starts or cancels a backfill, or returns its progress.
pub const BACKFILL: Verb<BackfillRequest, BackfillReport> = Verb::new("backfill");
/// Starts or cancels completing what contracts hold from a history archive, or returns the progress.
pub const STATE_BACKFILL: Verb<StateRequest, StateReport> = Verb::new("state-backfill");
/// Starts rebuilding a consumer's rows, or returns the progress.
pub const REBUILD: Verb<RebuildRequest, RebuildReport> = Verb::new("rebuild");
/// The raw form of the ledger with this sequence number.
pub const RAW_LEDGER: Verb<u32, RawXdr> = Verb::new("raw-ledger");
/// Creates a checkpoint of the store to copy from. It is removed when the connection ends, which the
/// service ends when it is idle for ten minutes, and when another one is requested.
pub const CHECKPOINT: Verb<(), CheckpointReport> = Verb::new("checkpoint");
/// Stores ledgers in their order, each completely or not at all, and answers when those that may be
/// stored are durable. Others wait for the next ledgers of the same connection.
pub const STORE: Verb<Ledgers, Result<Stored, NotStored>> = Verb::new("ledgers");
/// Says that no more ledgers follow on this connection, and answers when those that waited are stored,
/// or cannot be.
pub const STORE_LAST: Verb<(), Result<Stored, NotStored>> = Verb::new("last-ledgers");
/// The sinks of the service, with their projects, sorted by name.
pub const SINKS: Verb<(), Vec<SinkReport>> = Verb::new("sinks");
/// What a sink's server is, and what is missing there. Changes nothing.
pub const SINK_TEST: Verb<SinkRequest, SinkTestReport> = Verb::new("sink-test");
/// Compares the tables of a project in a sink with the project's log. Takes as long as they are large.
pub const SINK_CHECK: Verb<SinkProjectRequest, Vec<SinkCheckedTable>> = Verb::new("sink-check");
/// Fills the tables of a project in a sink again, and drops what others made and cannot be kept. Answers when that is
/// ordered: the progress is in [`SINKS`].
pub const SINK_REPLACE: Verb<SinkProjectRequest, SinkProjectReport> = Verb::new("sink-replace");
/// Removes a project from the database of a sink that does not have it any more.
pub const SINK_REMOVE: Verb<SinkRemoval, ()> = Verb::new("sink-remove");

/// Maximum number of ledgers that are sent at once.
pub(super) const MAX_LEDGERS: usize = 256;
/// Maximum size of an answer in bytes: a ledger, or the status of a hundred thousand ranges.
pub(super) const LONGEST_ANSWER: usize = LONGEST_LEDGER as usize;

/// Body of a request or an answer. Most are JSON.
pub trait Body: Sized {
    /// Maximum size of a request in bytes.
    const LONGEST: u64;

    /// Returns the body.
    ///
    /// # Errors
    /// When the value cannot be written, in one sentence.
    fn to_bytes(&self) -> Result<Vec<u8>, String>;

    /// Reads the body.
    ///
    /// # Errors
    /// Why it cannot be read, in one sentence.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String>;
}

impl<T: Serialize + DeserializeOwned> Body for T {
    /// Enough for a backfill order with hundreds of sources.
    const LONGEST: u64 = 64 << 10;

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    /// An empty body is `null`, so that a request without anything in it needs no body.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        let bytes = if bytes.is_empty() { b"null" } else { &bytes[..] };
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// `LedgerCloseMeta`s, XDR, at most 256. In a body, each is a record of one fragment (RFC 5531, section
/// 11), as in a file of ledgers.
pub struct Ledgers(pub Vec<Vec<u8>>);

impl Body for Ledgers {
    /// One that is as long as a ledger may be, after others of 32 MiB.
    const LONGEST: u64 = LONGEST_LEDGER + (32 << 20);

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(self.0.iter().map(|ledger| ledger.len() + 4).sum());
        for ledger in &self.0 {
            let length = u32::try_from(ledger.len()).ok().filter(|it| it & LAST_FRAGMENT == 0);
            let length = length.ok_or("a ledger is longer than a record can be")?;
            bytes.extend_from_slice(&(LAST_FRAGMENT | length).to_be_bytes());
            bytes.extend_from_slice(ledger);
        }
        Ok(bytes)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        let (mut ledgers, mut rest) = (Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let (header, after) = rest.split_first_chunk().ok_or("a record's header is cut off")?;
            let length = u32::from_be_bytes(*header) ^ LAST_FRAGMENT;
            let ledger = usize::try_from(length).ok().and_then(|it| after.split_at_checked(it));
            let (ledger, after) = ledger.ok_or("a record is cut off, or has several fragments")?;
            ledgers.push(ledger.to_vec());
            if ledgers.len() > MAX_LEDGERS {
                return Err(format!("more than {MAX_LEDGERS} ledgers were sent at once"));
            }
            rest = after;
        }
        Ok(Self(ledgers))
    }
}

/// A stored raw ledger, XDR; `None` when it is not stored, which is an empty body.
pub struct RawXdr(pub Option<Vec<u8>>);

impl Body for RawXdr {
    const LONGEST: u64 = LONGEST_LEDGER;

    fn to_bytes(&self) -> Result<Vec<u8>, String> {
        Ok(self.0.clone().unwrap_or_default())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, String> {
        Ok(Self(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }
}
