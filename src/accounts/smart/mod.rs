//! Index of smart accounts: contracts that are built on the OpenZeppelin `accounts` package. An
//! account has numbered *rules*. Each rule has *signers*, which may sign within the rule's context,
//! and *policies*, contracts that must approve.

mod account;
pub mod event;
mod fold;
pub mod lookup;
mod rows;
mod state;
mod tables;

pub use account::Logged;
pub use rows::{SmartAccounts, Summary};
pub use state::Rule;
