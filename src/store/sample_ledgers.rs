//! Ledgers of a sandbox for unit tests, and stores of them.

use std::ops::RangeInclusive;
use std::path::Path;

use orrery_ledger::decode::decode;
use orrery_ledger::domain::LedgerSeq;
use orrery_testkit::sandbox::{ledgers, local, sandbox};

use crate::ingest::commit::Durability;
use crate::ingest::prepare::{IndexOptions, PreparedLedger};
use crate::state::store::Store;

/// Raw ledgers, beginning with sequence 2. From ledger 12 on, three share each second.
pub(crate) fn chain(
    seed: u64,
    transactions_per_ledger: RangeInclusive<usize>,
    count: u32,
) -> Vec<Vec<u8>> {
    ledgers(sandbox(seed, transactions_per_ledger).with_milliseconds(LedgerSeq(12), 3), count)
}

pub(crate) fn everything() -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: true }
}

pub(crate) fn open(directory: &Path) -> Store {
    Store::open(directory, Some(&local())).unwrap()
}

pub(crate) fn commit(store: &Store, xdr: &[u8], options: &IndexOptions) {
    let view = decode(xdr, local().id()).unwrap();
    let prepared = PreparedLedger::new(&view, options).unwrap();
    store.commit(prepared, Durability::Deferred).unwrap();
}

/// A store of these ledgers, committed in this order.
pub(crate) fn store_of<'a>(
    directory: &Path,
    ledgers: impl IntoIterator<Item = &'a Vec<u8>>,
    options: &IndexOptions,
) -> Store {
    let store = open(directory);
    ledgers.into_iter().for_each(|xdr| commit(&store, xdr, options));
    store.flush().unwrap();
    store
}
