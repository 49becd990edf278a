//! The index of smart accounts: contracts that are built on the OpenZeppelin `accounts` package. An account has
//! numbered *rules*; each has *signers*, who may sign for what the rule is for, and *policies*, contracts that
//! have to agree.

mod consumer;
pub mod event;
pub mod fold;
pub mod lookup;
mod rows;

pub use consumer::{CONSUMER, SmartAccounts};
pub use rows::{FAMILIES, Logged, Summary, take};
