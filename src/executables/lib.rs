//! Which code each contract had at each transaction, and the interface that this code declares.
//!
//! A feed consumer ([`ExecutableIndex`]) stores what the transactions of the stored ledgers say about
//! the executables of contracts (`facts`), one row per change or first sight (`rows`), and the
//! interfaces of uploaded code. [`lookup`] answers from these rows, and from other servers' answers
//! about ledger entries, what a contract's executable was before and after a transaction: exactly, or
//! not at all. [`Interfaces`] reads the interfaces that are asked for, on a thread of its own, and
//! keeps them in memory.

mod asking;
mod consumer;
mod declared;
mod facts;
mod findings;
mod indexed;
mod instance;
mod interfaces;
mod knowledge;
mod listing;
pub mod lookup;
mod reader;
mod rows;
#[cfg(test)]
mod tests;
mod value;

pub use asking::AskEntries;
pub use consumer::{CONSUMER, ExecutableIndex};
pub use declared::DeclaredEvent;
pub use findings::Findings;
pub use indexed::Waited;
pub use instance::Instance;
pub use interfaces::Interfaces;
pub use knowledge::{Lacking, News};
pub use listing::Listing;
pub use reader::{AllTried, InterfaceReader, Tried};
pub use value::{Before, Executable};
