//! Settings of the lookups of smart accounts and passkey wallets.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// `[indexers]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indexers {
    /// Accounts that a lookup lists.
    pub most_accounts: NonZeroU32,
    /// UNIX seconds at which it is read whether a signer's time is over; 0 for now.
    pub fixed_clock: u64,
    /// The network's newest ledger for the same; 0 for the one that is known.
    pub fixed_network_ledger: u32,
}

impl Default for Indexers {
    fn default() -> Self {
        // What clients read that take a mebibyte at the most.
        let most_accounts = NonZeroU32::new(3000).unwrap_or(NonZeroU32::MIN);
        Self { most_accounts, fixed_clock: 0, fixed_network_ledger: 0 }
    }
}

/// What a key takes, to be read after "give".
pub(super) fn expectation(key: &str) -> &'static str {
    match key {
        "indexers.fixed_clock" => "UNIX seconds, or 0 for the clock",
        "indexers.fixed_network_ledger" => "a ledger up to 4294967295, or 0 for the network's",
        _ => "a whole number from 1 to 4294967295",
    }
}
