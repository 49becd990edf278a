//! State of the ledger just before a transaction, as far as it is known.
//!
//! [`States`] answers from these sources, in this order: the changes made by the transaction itself
//! and by the others of its ledger ([`steps`]); the nearest stored transactions that changed the
//! entry, and for accounts the raw ledgers around it ([`neighbours`]); the answer of another server
//! ([`upstream`]). Every answer is either exact or [`EntryState::Unknown`]; ARCHITECTURE.md has the
//! rules.

mod ledger;
mod lookups;
mod neighbours;
mod raw;
mod steps;
mod upstream;

use std::rc::Rc;

use stellar_xdr::{LedgerEntry, LedgerKey};

use crate::domain::LedgerSeq;

pub use ledger::{LedgerStates, StateBefore, States, applied_protocol};
pub use lookups::{LookupFault, LookupLimits};
pub use upstream::{Upstream, UpstreamAnswer, UpstreamEntry, UpstreamError};

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
    /// The store failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
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
