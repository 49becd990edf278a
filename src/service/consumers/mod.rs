//! Consumers of the store's feed in a running service: their list, the threads that drive them, their
//! reports and their rebuilds. Indexing programs are consumers too, but run on threads of their own.

mod list;
mod rebuild;
mod reports;
mod threads;

pub(super) use list::registered;
pub use reports::lost_ranges;
pub(super) use reports::{describe, report};
pub(super) use threads::ConsumerThreads;
