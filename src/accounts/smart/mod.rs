//! Index of smart accounts: contracts that are built on the OpenZeppelin `accounts` package. An
//! account has numbered *rules*. Each rule has *signers*, which may sign within the rule's context,
//! and *policies*, contracts that must approve.

pub mod event;
pub mod fold;
pub mod lookup;
mod rows;

pub use rows::{Logged, SmartAccounts, Summary};
