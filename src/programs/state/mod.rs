//! The state of the ledger just before a transaction, as far as it is known.

use std::rc::Rc;

use stellar_xdr::{LedgerEntry, LedgerKey};

/// What is known of an entry. Unknown is never taken for absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It was there; with the last ledger in which it is live when that is known.
    Present(Rc<LedgerEntry>, Option<u32>),
    /// It was not there.
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

/// Why looking an entry up failed. It is our fault or the machine's, never the program's.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] crate::store::StoreError),
}
