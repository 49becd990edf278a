//! The entries of the public network that its protocol 23 archived with a value other than their last one
//! (CAP-76). Protocol 24 has put the last values back for those that had not been restored until then; what
//! a restore brought back before, the network has kept.

use std::collections::HashSet;
use std::sync::LazyLock;

use orrery_ledger::domain::{Hash32, Network};

use super::rows::KeyTag;

/// Short name of the network.
const NETWORK: &str = "mainnet";
/// The protocol that has archived wrong values.
pub const PROTOCOL: u32 = 23;

/// SHA-256 of the XDR `LedgerKey` of each, in hexadecimal. They are the keys of the 478 entries that
/// stellar-core lists in `src/ledger/P23HotArchiveBugData.cpp`.
const KEYS: &str = include_str!("disputed_keys");

static TAGS: LazyLock<HashSet<KeyTag>> = LazyLock::new(|| {
    let hashes = KEYS.lines().filter_map(|line| line.parse::<Hash32>().ok());
    hashes.map(|hash| KeyTag::of(&hash)).collect()
});

/// Whether the archived value of an entry was another one than its last value while a network had
/// [`PROTOCOL`].
pub fn is_disputed(network: &Network, tag: &KeyTag) -> bool {
    network.name() == NETWORK && TAGS.contains(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_key_of_its_own() {
        assert_eq!((KEYS.lines().count(), TAGS.len()), (478, 478));
        let first: Hash32 = KEYS.lines().next().unwrap().parse().unwrap();
        let of = |name: &str| Network::from_name_or_passphrase(name);
        assert!(is_disputed(&of("mainnet"), &KeyTag::of(&first)));
        assert!(!is_disputed(&of("testnet"), &KeyTag::of(&first)));
        assert!(!is_disputed(&of("mainnet"), &KeyTag::of(&Hash32([7; 32]))));
    }
}
