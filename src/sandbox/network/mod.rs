//! A simulated Stellar network that is generated from a seed: valid, hash-linked ledgers whose
//! contract calls the Soroban host executes. Implements the protocol as far as its few accounts use
//! it. Performs no I/O and reads no clock.
//!
//! The same configuration always yields the same bytes. Accounts pay each other in the native asset
//! and in two issued ones, by classic operations and through Stellar asset contracts; some
//! transactions fail, some are fee bumps, some ledgers are empty. From a configurable ledger on,
//! the accounts also trade in a market, a WASM contract, and in the pools of an exchange. From another configurable ledger on, close
//! times are in milliseconds.
//!
//! Differences from a node: the bucket list hash is a chain of digests over all changes unless the
//! sandbox keeps [buckets](Sandbox::with_buckets), no header has upgrades (the metadata of the first ledger has the network's settings, as the changes
//! of one), there are no SCP messages, only failed calls have diagnostic events, and clusters that could
//! run in parallel are applied one after the other.

mod actors;
mod apply;
mod assets;
mod batch;
mod bootstrap;
mod buckets;
mod checkpoint;
mod classic;
mod close;
mod close_times;
mod config;
mod contracts;
mod control;
mod costs;
mod dice;
mod envelope;
mod error;
mod events;
mod exchange;
mod execution;
mod fees;
mod footprint;
mod host;
mod keys;
mod market;
mod open_ledger;
mod plan;
mod requests;
mod sandbox;
mod settings;
pub(crate) mod simulated;
mod simulation;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
mod traffic;
mod tx_set;
mod validation;
mod wallets;
mod wasm;

pub use batch::{Batch, Closed, FIRST_BATCH_LEDGER};
pub use checkpoint::Checkpoint;
pub use config::{MAX_TRANSACTIONS, SandboxConfig};
pub use error::{FULL, SandboxError};
pub use requests::Request;
pub use sandbox::{FIRST_LEDGER, FIRST_MARKET_LEDGER, MARKET_PROGRAM, Sandbox, SandboxWallets};
