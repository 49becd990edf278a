//! Members of projects of events: contracts whose events become rows although no list names them. Which
//! these are follows from the project's selectors and from what the stored ledgers say: who created a
//! contract and which codes it has named (the crate `membership`), and the events of factories.
//!
//! Membership is a function of what is stored, never of its order: [`sync`](Syncing) takes what was learnt
//! since it last looked, and a member that becomes known late has its earlier events read by the index of
//! events by contract, and earlier changes of what it holds by that of contract data ([`catching_up`]). A contract that may have run a code is asked about at each of its
//! transactions ([`Selection`]); what is not known there is kept beside the rows, and looked at again.

mod adding;
mod announcing;
mod candidates;
mod catching_up;
mod changes;
mod checking;
mod counts;
mod factories;
mod found;
mod in_ledger;
mod index;
mod inheriting;
mod joining;
mod learning;
mod ledgers;
mod limiting;
mod logged;
mod looking;
mod name_looks;
mod naming;
mod newly_known;
mod of_ledger;
mod rank;
mod reading_again;
mod recorded;
mod recording;
mod replacing;
mod selection;
mod selectors;
mod slow;
mod state;
mod stored;
mod syncing;

pub use catching_up::CaughtUp;
pub use counts::MembersStatus;
pub use index::{Flags, MemberIndex};
pub use inheriting::announcements_lost;
pub use logged::{LoggedMember, LoggedMembers};
pub(super) use selection::{Selected, Selection, Updates};
pub use selectors::{CreatorAddress, FactorySelector, Selectors};
pub use state::{MembersOf, Versions};
pub use stored::members;
pub use syncing::{Synced, in_memory};
