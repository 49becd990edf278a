//! What a run asks about the state before its transaction, and the answers. Does not depend on where
//! they come from.

use std::rc::Rc;
use std::time::Duration;

use orrery_ledger::domain::LedgerSeq;
use stellar_xdr::{LedgerEntry, LedgerKey};

/// Knowledge about an entry. An unknown entry is never treated as absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryState {
    /// The entry existed. Contains the last ledger in which it is live, if that is known.
    /// Persistent data beyond that ledger is archived.
    Present(Rc<LedgerEntry>, Option<u32>),
    /// The entry did not exist, or was temporary and had expired.
    Absent,
    /// The sources do not determine the entry.
    Unknown,
}

/// Source of entries for a run.
pub trait PreState {
    /// Returns the entry as it was just before the transaction.
    ///
    /// # Errors
    /// [`StateError`] when the lookup failed, which says nothing about the entry.
    fn entry(&self, key: &LedgerKey) -> Result<EntryState, StateError>;
}

/// Why the lookup of an entry failed. The program is at fault only for [`StateError::Lookups`];
/// otherwise the service or the machine is.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed. Contains its error.
    #[error(transparent)]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// Stored data of a ledger cannot be decoded.
    #[error(
        "what is stored of ledger {0} cannot be decoded: check the data directory with orrery verify"
    )]
    Damaged(LedgerSeq),
    /// The upstream server failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The run exceeded its limits for lookups.
    #[error(transparent)]
    Lookups(#[from] LookupFault),
    /// A key cannot be serialised as XDR; keys of real programs always can.
    #[error("a ledger key is nested too deeply to be looked up")]
    Key,
}

impl StateError {
    /// Returns the error of a store that failed.
    pub fn store(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Store(Box::new(error))
    }
}

/// Why a server did not answer. The messages are for the operator: they may contain the server's
/// address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// The server does not answer this request, but does answer others.
    #[error("{0}")]
    Refused(String),
    /// The server answers no request.
    #[error("{0}")]
    Unreachable(String),
    /// The server has not reached the ledger that is run: its latest ledger, and the ledger that is
    /// run.
    #[error("the server has reached ledger {0} only, and ledger {1} is being run")]
    Behind(LedgerSeq, LedgerSeq),
    /// The answer contradicts itself.
    #[error("{0}")]
    Inconsistent(String),
    /// The server is not queried on this thread, because the answer would hold up other programs.
    #[error("the request to the server is postponed")]
    NotNow,
    /// Too many requests to the server are in flight.
    #[error("too many requests to the server are in progress")]
    Busy,
}

/// Limit that a program exceeded with its lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LookupFault {
    /// Too many entries. Contains the limit.
    #[error("the program asked for more than {0} entries that are not stored")]
    Entries(u32),
    /// Too much time. Contains the limit.
    #[error("looking up entries that are not stored took more than {} s", .0.as_secs_f64())]
    Time(Duration),
}
