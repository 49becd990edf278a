//! Optional parts with which a store is opened.

use std::sync::Arc;

use super::upgrade::UpgradeObserver;
use crate::feed::worker::LedgerConsumer;
use crate::indexes::registry::Indexes;
use crate::state::consumers::spec::ConsumerSpec;
use crate::state::extracts::Gathers;

/// Indexes, consumers and callbacks with which a store is opened.
#[derive(Default)]
pub struct Extensions {
    /// Indexes, including the built-in ones.
    pub indexes: Indexes,
    /// Consumers of the feed.
    pub consumers: Vec<ConsumerSpec>,
    /// What some of the consumers gather from each whole ledger.
    pub gathers: Vec<Gathers>,
    /// Callback for the progress of an upgrade of the directory.
    pub upgrade_observer: Option<UpgradeObserver>,
}

impl Extensions {
    /// Returns the extensions of a store that feeds these consumers.
    pub fn for_consumers(consumers: &[Arc<dyn LedgerConsumer>]) -> Self {
        Self {
            indexes: Indexes::default(),
            consumers: consumers.iter().map(|consumer| consumer.spec()).collect(),
            gathers: consumers.iter().filter_map(|consumer| consumer.gathers()).collect(),
            upgrade_observer: None,
        }
    }
}
