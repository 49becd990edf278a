//! Index of smart accounts: contracts that are built on the OpenZeppelin `accounts` package. An
//! account has numbered *rules*. Each rule has *signers*, which may sign within the rule's context,
//! and *policies*, contracts that must approve.

mod account;
pub mod event;
mod fold;
mod keys;
pub mod lookup;
mod rows;
mod state;

pub use rows::{Logged, MAX_RULE_IDS, SmartAccounts, Summary};
pub use state::Rule;
