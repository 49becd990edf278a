//! State of the ledger just before a transaction, as far as it is known.
//!
//! [`States`] answers from these sources, in this order: the changes made by the transaction itself
//! and by the others of its ledger ([`changes`]); the nearest stored transactions that changed the
//! entry, and for accounts the raw ledgers around it ([`neighbours`]); the answer of another server
//! ([`upstream`]). Every answer is either exact or [`EntryState::Unknown`];
//! docs/architecture/programs.md has the rules. [`LedgerStates::entry_after`] answers for the end of a
//! ledger, from what is stored alone.

mod after;
mod changes;
mod ledger;
mod lookups;
mod neighbours;
mod raw;
mod upstream;

use super::engine::{EntryState, LookupFault, PreState, StateError, UpstreamError};
pub use ledger::{LedgerStates, StateBefore, States, applied_protocol};
pub use lookups::LookupLimits;
pub use upstream::{Upstream, look_up_and_store};
