//! Optional parts with which a store is opened.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::upgrade::UpgradeObserver;
use crate::db::database::Database;
use crate::db::tuning::Tuning;
use crate::encoding::columns::{Family, SharedFamily};
use crate::encoding::error::StoreError;
use crate::feed::worker::LedgerConsumer;
use crate::indexes::registry::Indexes;
use crate::state::consumers::spec::{ConsumerKind, ConsumerSpec};
use crate::state::extracts::Gathers;
use crate::state::keepers::Keeper;

/// Indexes, consumers and callbacks with which a store is opened.
#[derive(Default)]
pub struct Extensions {
    /// Indexes, including the built-in ones.
    pub indexes: Indexes,
    /// Consumers of the feed.
    pub consumers: Vec<ConsumerSpec>,
    /// Kinds of consumers that are created while the store is open.
    pub kinds: Vec<ConsumerKind>,
    /// What some of the consumers gather from each whole ledger.
    pub gathers: Vec<Gathers>,
    /// How some of the consumers keep what they need of removed transactions.
    pub keepers: Vec<Keeper>,
    /// Names of those of the consumers that are left out where a directory exists and does not have them.
    pub only_if_known: Vec<&'static str>,
    /// Callback for the progress of an upgrade of the directory.
    pub upgrade_observer: Option<UpgradeObserver>,
    /// Options of RocksDB that a bench tries out; none in the product.
    #[doc(hidden)]
    pub tuning: Tuning,
}

impl Extensions {
    /// Returns the extensions of a store that feeds these consumers.
    pub fn for_consumers(consumers: &[Arc<dyn LedgerConsumer>]) -> Self {
        Self {
            consumers: consumers.iter().map(|consumer| consumer.spec()).collect(),
            gathers: consumers.iter().filter_map(|consumer| consumer.gathers()).collect(),
            keepers: consumers.iter().filter_map(|consumer| consumer.keeps()).collect(),
            ..Self::default()
        }
    }

    /// Registers one more kind of consumers.
    #[must_use]
    pub fn with_kind(mut self, kind: ConsumerKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Returns the extensions without the consumers that are to be left out of an existing directory.
    pub(crate) fn without_unknown(mut self, database: &Database) -> Result<Self, StoreError> {
        for name in std::mem::take(&mut self.only_if_known) {
            if database.get(Family::Consumers, name)?.is_none() {
                self.consumers.retain(|consumer| consumer.name != name);
                self.gathers.retain(|gathers| gathers.consumer != name);
                self.keepers.retain(|keeper| keeper.consumer != name);
            }
        }
        Ok(self)
    }

    /// Returns the families of all kinds of consumers.
    pub(crate) fn shared_families(&self) -> impl Iterator<Item = SharedFamily> {
        self.kinds.iter().flat_map(|kind| kind.families).copied()
    }

    /// Fails when the name of a family is built in or occurs twice.
    pub(crate) fn check_families(&self) -> Result<(), StoreError> {
        let mut taken: BTreeSet<_> = Family::ALL.into_iter().map(Family::name).collect();
        let kinds = self.shared_families().map(|family| ("a kind of consumers", family.name));
        let indexes = self.indexes.registered().map(|(name, _)| ("an index", name));
        let mut names = kinds.chain(indexes);
        match names.find(|(_, name)| !taken.insert(name)) {
            Some((registered, name)) => Err(StoreError::Other(format!(
                "{registered} is registered for the family '{name}', which is already in use"
            ))),
            None => Ok(()),
        }
    }
}
