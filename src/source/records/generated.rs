//! Generates ledgers for tests that hold only a sequence number.

use stellar_xdr::{
    LedgerCloseMeta, LedgerCloseMetaV0, LedgerHeader, LedgerHeaderHistoryEntry, LedgerUpgrade,
    Limits, TransactionSet, UpgradeEntryMeta, WriteXdr,
};

/// Size in bytes of an upgrade that changes nothing.
const UPGRADE: usize = 12;

/// Returns an empty `LedgerCloseMeta` of version 0 with a sequence number, lengthened by `padding`
/// bytes, rounded up.
pub(crate) fn ledger(sequence: u32, padding: usize) -> Vec<u8> {
    let header = LedgerHeader { ledger_seq: sequence, ..Default::default() };
    let nothing =
        UpgradeEntryMeta { upgrade: LedgerUpgrade::BaseFee(100), changes: Default::default() };
    let upgrades = vec![nothing; padding.div_ceil(UPGRADE)];
    let meta = LedgerCloseMeta::V0(LedgerCloseMetaV0 {
        ledger_header: LedgerHeaderHistoryEntry { header, ..Default::default() },
        tx_set: TransactionSet::default(),
        tx_processing: Default::default(),
        upgrades_processing: upgrades.try_into().unwrap(),
        scp_info: Default::default(),
    });
    meta.to_xdr(Limits::none()).unwrap()
}

/// Returns a `LedgerCloseMetaBatch` that announces ledgers `first` to `last`.
pub(crate) fn batch(first: u32, last: u32, ledgers: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let ledgers: Vec<_> = ledgers.collect();
    let mut file = Vec::new();
    for word in [first, last, ledgers.len() as u32] {
        file.extend(word.to_be_bytes());
    }
    ledgers.iter().for_each(|ledger| file.extend(ledger));
    file
}
