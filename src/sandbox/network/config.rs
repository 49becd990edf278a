//! What a sandbox is generated from.

use std::ops::RangeInclusive;

use orrery_ledger::domain::Network;

/// Maximum of the range [`SandboxConfig::transactions_per_ledger`].
pub const MAX_TRANSACTIONS: usize = 45;

/// Configuration of a sandbox. The same values always yield the same ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Network that transactions are signed for.
    pub network: Network,
    /// Seed of all keys and pseudo-random numbers.
    pub seed: u64,
    /// Close time of ledger 2, the first one, in Unix seconds.
    pub start_time: u64,
    /// Seconds between two ledgers, at least 1.
    pub close_interval: u64,
    /// Range of the number of transactions in a regular ledger, at most [`MAX_TRANSACTIONS`]. Some
    /// ledgers are empty regardless, and the first five follow a script.
    pub transactions_per_ledger: RangeInclusive<usize>,
}
