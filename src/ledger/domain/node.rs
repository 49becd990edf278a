//! What a node tells of the present state of its network: current ledger entries, whether it accepts
//! a transaction, what a transaction would do, and what its friendbot sends. Those who ask a node and those who are one use
//! the same types.

use futures_util::future::BoxFuture;
use stellar_xdr::{
    DiagnosticEvent, LedgerEntry, LedgerKey, ScVal, SorobanAuthorizationEntry,
    SorobanTransactionData, TransactionEnvelope, TransactionMeta, TransactionResult,
};

use super::LedgerSeq;

/// Current ledger entries under a list of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEntries {
    /// The ledger after whose close the entries have these values.
    pub as_of: LedgerSeq,
    /// One element for each key, in the order of the keys; `None` when there is no such entry.
    pub entries: Vec<Option<LiveEntry>>,
}

/// A current ledger entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveEntry {
    /// The entry, with the ledger in which it was last modified.
    pub entry: LedgerEntry,
    /// The last ledger in which contract data or code is live; 0 when it is archived, `None` for
    /// entries without a time to live, or when it is not known.
    pub live_until: Option<u32>,
}

/// A server of current ledger entries.
pub trait LiveState: Send + Sync {
    /// Looks up the entries under `keys`.
    ///
    /// # Errors
    /// When the server does not answer, or says that it cannot: one sentence.
    fn look_up<'a>(&'a self, keys: &'a [LedgerKey]) -> BoxFuture<'a, Result<LiveEntries, String>>;
}

/// Whether a node accepted a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// The transaction waits for a ledger.
    Pending,
    /// The transaction waited already.
    Duplicate,
    /// The transaction is not accepted now, and may be submitted again later.
    TryAgainLater,
    /// The transaction is invalid.
    Invalid {
        /// The result that says why.
        result: Box<TransactionResult>,
        /// Diagnostic events of the contract host.
        events: Vec<DiagnosticEvent>,
    },
}

/// A transaction that has funded accounts or a contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funding {
    /// Hash of the transaction.
    pub hash: [u8; 32],
    /// Signed envelope of the transaction.
    pub envelope: TransactionEnvelope,
    /// Metadata of the transaction: the changes that it made.
    pub meta: TransactionMeta,
}

/// Why an account or contract is not funded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFunded {
    /// The account already exists.
    Exists,
    /// Too many requests are waiting, or the transaction was not applied in time.
    Busy,
    /// The request cannot be met. Contains the sentence for the client.
    Refused(&'static str),
}

/// How a simulation treats authorisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Checks the authorisation entries of the operation.
    Enforce,
    /// Records the authorisation entries that the operation requires.
    Record {
        /// Whether calls below the root invocation may require authorisation of their own; when
        /// `false`, such a call fails.
        allow_nonroot: bool,
        /// Whether recorded entries have the form of protocol 27 that contains the address
        /// (CAP-71).
        upgraded: bool,
    },
}

/// What a transaction would do in the next ledger.
#[derive(Debug)]
pub struct Simulation {
    /// The newest ledger, on whose state the transaction was simulated.
    pub latest_ledger: LedgerSeq,
    /// Why the transaction would fail; `None` when it would succeed.
    pub error: Option<String>,
    /// Data for the transaction, with footprint, resources and the resource fee; `None` when the
    /// transaction would fail.
    pub data: Option<SorobanTransactionData>,
    /// Return value of a call and the authorisation entries that it requires; `None` for other
    /// operations and on failure.
    pub result: Option<(ScVal, Vec<SorobanAuthorizationEntry>)>,
    /// Events, including diagnostic ones.
    pub events: Vec<DiagnosticEvent>,
    /// Changed entries, each before and after; `None` where there is no such entry.
    pub changes: Vec<(Option<LedgerEntry>, Option<LedgerEntry>)>,
}

impl Simulation {
    /// Returns the simulation of a transaction that would succeed, without what it returns and
    /// changes.
    #[must_use]
    pub fn of(latest_ledger: LedgerSeq, data: SorobanTransactionData) -> Self {
        let data = Some(data);
        let (result, events, changes) = (None, Vec::new(), Vec::new());
        Self { latest_ledger, error: None, data, result, events, changes }
    }

    /// Returns the simulation of a transaction that would fail.
    #[must_use]
    pub fn failed(latest_ledger: LedgerSeq, error: String, events: Vec<DiagnosticEvent>) -> Self {
        let (data, result, changes) = (None, None, Vec::new());
        Self { latest_ledger, error: Some(error), data, result, events, changes }
    }
}
