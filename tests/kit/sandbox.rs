//! Simulated networks, and the ledgers that they close.

use std::ops::RangeInclusive;

use orrery_ledger::domain::Network;
use orrery_sandbox::network::{Sandbox, SandboxConfig};
use stellar_xdr::{LedgerCloseMeta, LedgerEntry, LedgerEntryChange, Limits, ReadXdr};

/// The network `local`.
pub fn local() -> Network {
    Network::from_name_or_passphrase("local")
}

/// A sandbox of the network [`local`] with this many transactions per ledger.
pub fn sandbox(seed: u64, transactions_per_ledger: RangeInclusive<usize>) -> Sandbox {
    sandbox_of(local(), seed, transactions_per_ledger)
}

/// As [`sandbox`], for any network.
pub fn sandbox_of(
    network: Network,
    seed: u64,
    transactions_per_ledger: RangeInclusive<usize>,
) -> Sandbox {
    let (start_time, close_interval) = (1_750_000_000, 5);
    let config =
        SandboxConfig { network, seed, start_time, close_interval, transactions_per_ledger };
    Sandbox::new(config).unwrap()
}

/// The settings of a sandbox's network, which come with its first ledger.
pub fn settings() -> Vec<LedgerEntry> {
    let ledger = sandbox(1, 0..=0).next_ledger().unwrap();
    let LedgerCloseMeta::V2(ledger) = LedgerCloseMeta::from_xdr(ledger, Limits::none()).unwrap()
    else {
        panic!("a sandbox makes ledgers of the newest version")
    };
    let upgrades = ledger.upgrades_processing.iter();
    let changes = upgrades.flat_map(|upgrade| upgrade.changes.iter());
    let created = changes.map(|change| match change {
        LedgerEntryChange::Created(entry) => entry.clone(),
        other => panic!("{other:?}"),
    });
    created.collect()
}

/// The next ledgers of a sandbox.
pub fn ledgers(mut sandbox: Sandbox, count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|_| sandbox.next_ledger().unwrap()).collect()
}
