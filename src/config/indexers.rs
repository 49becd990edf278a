//! Settings of the smart account and passkey wallet lookups.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// `[indexers]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indexers {
    /// Maximum number of accounts in the response of a lookup.
    pub most_accounts: NonZeroU32,
    /// UNIX time in seconds against which expirations of signers are compared; 0 uses the clock.
    pub fixed_clock: u64,
    /// Ledger sequence against which expirations of signers are compared; 0 uses the newest known
    /// ledger.
    pub fixed_network_ledger: u32,
}

impl Default for Indexers {
    fn default() -> Self {
        // Clients accept responses of at most 1 MiB, which more than 3000 accounts may exceed.
        let most_accounts = NonZeroU32::new(3000).unwrap_or(NonZeroU32::MIN);
        Self { most_accounts, fixed_clock: 0, fixed_network_ledger: 0 }
    }
}

/// Returns the description of a key's valid values; it follows "give" in an error message.
pub(super) fn expected_value(key: &str) -> &'static str {
    match key {
        "indexers.fixed_clock" => "UNIX seconds, or 0 for the clock",
        "indexers.fixed_network_ledger" => "a ledger up to 4294967295, or 0 for the network's",
        _ => "a whole number from 1 to 4294967295",
    }
}
