//! Which records of ledgers are indexed and kept, as the settings say.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::store::{IndexOptions, IndexedAs, Retention};

/// Returns which records of each ledger are indexed.
pub(super) fn indexed_as(config: &Config) -> IndexedAs {
    IndexedAs::from(&index_options(config))
}

/// Returns how each ledger is stored.
pub(super) fn index_options(config: &Config) -> IndexOptions {
    let contracts: BTreeSet<_> = config.index.contracts.iter().copied().collect();
    IndexOptions {
        classic_events: config.index.classic_events,
        fee_events: config.index.fee_events,
        contracts: (!contracts.is_empty()).then_some(contracts),
        raw_ledgers: config.retention.raw_ledgers > 0,
    }
}

/// Converts the settings: 0 keeps no raw ledgers, but all events or transactions.
pub(super) fn retention(config: &Config) -> Retention {
    let unless_all = |kept: u32| (kept > 0).then_some(kept);
    Retention {
        raw_ledgers: Some(config.retention.raw_ledgers),
        events: unless_all(config.retention.events),
        transactions: unless_all(config.retention.transactions),
        wait_for_consumers: config.retention.wait_for_consumers,
    }
}
