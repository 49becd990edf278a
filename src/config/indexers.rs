//! Settings of the smart account and passkey wallet lookups.

use std::num::NonZeroU32;

use super::section::{nonzero, section};

section! {
    /// `[indexers]`
    pub struct Indexers {
        /// Maximum number of accounts in the response of a lookup.
        // Clients accept responses of at most 1 MiB, which more than 3000 accounts may exceed.
        pub most_accounts: NonZeroU32 = nonzero!(3000);
        /// UNIX time in seconds against which expirations of signers are compared; 0 uses the
        /// clock.
        pub fixed_clock: u64 = 0, "UNIX seconds, or 0 for the clock";
        /// Ledger sequence against which expirations of signers are compared; 0 uses the newest
        /// known ledger.
        pub fixed_network_ledger: u32 = 0, "a ledger up to 4294967295, or 0 for the network's";
    }
}
