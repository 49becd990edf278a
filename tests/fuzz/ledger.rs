//! Bytes of a `LedgerCloseMeta`: the decoder that walks the bytes and the full decoder give the
//! same verdict, and a ledger that both accept can be prepared for the store.

use std::sync::LazyLock;

use orrery::decode::{decode, ledger_length};
use orrery::domain::{LedgerSeq, Network};
use orrery::sandbox::network::{Sandbox, SandboxConfig};
use orrery::store::{IndexOptions, PreparedLedger};

use orrery_testkit::full;

static NETWORK: LazyLock<Network> = LazyLock::new(|| Network::from_name_or_passphrase("local"));

/// Returns ledgers of a sandbox network, which are too large for the repository.
pub fn seeds() -> Vec<Vec<u8>> {
    let config = SandboxConfig {
        network: NETWORK.clone(),
        seed: 5,
        start_time: 1_750_000_000,
        close_interval: 5,
        transactions_per_ledger: 1..=4,
    };
    let sandbox = Sandbox::new(config).unwrap();
    let mut sandbox = sandbox.with_milliseconds(LedgerSeq(10), 3);
    (0..20).map(|_| sandbox.next_ledger().unwrap()).collect()
}

pub fn check(bytes: &[u8]) {
    let walked = decode(bytes, NETWORK.id());
    let decoded = full::decode(bytes, NETWORK.id());
    assert_eq!(walked.is_ok(), decoded.is_ok(), "{:?}", walked.err());
    if let Ok(length) = ledger_length(bytes) {
        assert!(length <= bytes.len());
    }
    let (Ok(walked), Ok(decoded)) = (walked, decoded) else { return };
    assert_eq!(walked.header.hash, decoded.hash);
    assert_eq!(walked.events.len(), decoded.events.len());
    assert_eq!(walked.transactions.len(), decoded.transactions.len());
    let options = IndexOptions { classic_events: true, fee_events: true, ..Default::default() };
    let prepared = PreparedLedger::new(&walked, &options).unwrap();
    assert!(prepared.counts().events() <= decoded.events.len() as u64);
}
