//! Which code each contract had at each transaction, and the interface that this code declares.
//!
//! A feed consumer ([`ExecutableIndex`]) stores what the transactions of the stored ledgers say about
//! the executables of contracts (`facts`), one row per change or first sight (`rows`), and the
//! interfaces of uploaded code. Another one ([`CodeEvents`]) stores what events say of the same. [`lookup`] answers
//! from these rows, and from other servers' answers about ledger entries, what a contract's executable was before and
//! after a transaction: exactly, or not at all. [`Interfaces`] reads the interfaces that are asked for, on a thread of its own, and
//! keeps them in memory. [`transaction`] extracts what contracts were called with, and what came of it.

mod asking;
mod calls;
mod code_events;
mod consumer;
mod data_forms;
mod declared;
mod emitted;
pub mod facts;
mod findings;
mod held;
mod indexed;
mod instance;
mod interfaces;
mod knowledge;
mod listing;
pub mod lookup;
mod reader;
mod reading;
mod rows;
mod stays;
#[cfg(test)]
mod tests;
mod token;
mod told;
pub mod transaction;
mod updates;
mod upgrades;
mod value;

pub use asking::AskEntries;
pub use calls::{CallArgs, CallError, declared_function};
pub use code_events::{CODE_EVENTS, CodeEvents};
pub use consumer::{CONSUMER, ExecutableIndex};
pub use data_forms::{DataForm, DataForms};
pub use declared::DeclaredEvent;
pub use emitted::{Emitted, Emitter, Steps};
pub use findings::Findings;
pub use indexed::Waited;
pub use instance::Instance;
pub use interfaces::Interfaces;
pub use knowledge::{Lacking, News};
pub use listing::Listing;
pub use reader::{AllTried, InterfaceReader, Tried};
pub use reading::{read_new, unreadable};
pub use stays::{Stay, Stays};
pub use token::{ASSET_DECIMALS, TokenMetadata};
pub use updates::{Update, updated_codes};
pub use upgrades::{References, Upgrade};
pub use value::{Before, Executable};
