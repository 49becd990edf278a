//! The state of the ledger just before a transaction, as far as it is known.
//!
//! [`States`] answers from, in this order: what the transaction itself and the others of its ledger
//! say they found ([`steps`]); the nearest stored transactions that changed the entry, and for accounts
//! the raw ledgers around ([`neighbours`]); what another server says ([`upstream`]). Every answer is
//! either exact or [`Known::Unknown`]; ARCHITECTURE.md has the rules by which.

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

/// What is known of an entry. Unknown is never taken for absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It was there; with the last ledger in which it is live when that is known. Persistent data
    /// whose last ledger has passed is archived.
    Present(Rc<LedgerEntry>, Option<u32>),
    /// It was not there, or was temporary and had lived too long.
    Absent,
    /// Nobody can say.
    Unknown,
}

/// Where a run looks entries up.
pub trait PreState {
    /// The entry as it was just before the transaction.
    ///
    /// # Errors
    /// [`StateError`] when looking failed, which says nothing about the entry.
    fn entry(&self, key: &LedgerKey) -> Result<Known, StateError>;
}

/// Why looking an entry up failed. It is our fault or the machine's, and the program's only when it
/// is [`StateError::Lookups`].
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
    /// What is stored of a ledger cannot be read.
    #[error(
        "what is stored of ledger {0} cannot be decoded: check the data directory with orrery verify"
    )]
    Damaged(LedgerSeq),
    /// The other server failed.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The run asked for more than it may.
    #[error(transparent)]
    Lookups(#[from] LookupFault),
    /// A key cannot be written as XDR, which no key of a real program does.
    #[error("a ledger key is nested too deeply to be looked up")]
    Key,
}
