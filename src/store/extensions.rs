//! What a store is opened with, of which it knows nothing by itself.

use std::sync::Arc;

use super::{ConsumerSpec, Gathers, Indexes, LedgerConsumer, UpgradeObserver};

/// What a store has besides what every store has.
#[derive(Default)]
pub struct Extensions {
    /// Indexes.
    pub indexes: Indexes,
    /// Consumers of the feed.
    pub consumers: Vec<ConsumerSpec>,
    /// What some of these take from the whole of each ledger.
    pub gathers: Vec<Gathers>,
    /// Who is told how far an upgrade of the directory is.
    pub upgrades: Option<UpgradeObserver>,
}

impl Extensions {
    /// Those of a store that feeds these consumers.
    pub fn for_consumers(consumers: &[Arc<dyn LedgerConsumer>]) -> Self {
        Self {
            indexes: Indexes::default(),
            consumers: consumers.iter().map(|consumer| consumer.spec()).collect(),
            gathers: consumers.iter().filter_map(|consumer| consumer.gathers()).collect(),
            upgrades: None,
        }
    }
}
