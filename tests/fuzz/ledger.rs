//! Bytes of a `LedgerCloseMeta`: the decoder that walks the bytes and the full decoder give the
//! same verdict, and a ledger that both accept can be prepared for the store.

use orrery::decode::{decode, ledger_length};
use orrery::domain::LedgerSeq;
use orrery::store::{IndexOptions, PreparedLedger};

use orrery_testkit::full;
use orrery_testkit::sandbox::{ledgers, local, sandbox};

/// Returns ledgers of a sandbox network, which are too large for the repository.
pub fn seeds() -> Vec<Vec<u8>> {
    ledgers(sandbox(5, 1..=4).with_milliseconds(LedgerSeq(10), 3), 20)
}

pub fn check(bytes: &[u8]) {
    let network = local();
    let walked = decode(bytes, network.id());
    let decoded = full::decode(bytes, network.id());
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
