//! RocksDB, and the only place that knows it. One atomic, synced batch per ledger.

mod query;

pub use query::{
    EventQuery, EventRecord, QueryCost, StoreStatus, TopicFilter, TransactionPosition,
    TransactionQuery, TransactionRecord,
};

use crate::domain::TxHash;

/// Why the store could not answer or write.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the directory open.
    #[error("the data directory is in use by another process")]
    InUse,
}

/// An open store.
pub struct Store {}

#[allow(unused_variables)]
impl Store {
    /// Visits the events of a page in its order.
    pub fn events(
        &self,
        query: &EventQuery,
        visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        unimplemented!()
    }

    /// Visits all events of a transaction, found by outer or inner hash: operation events in
    /// `event_index` order, fee events around them as the chain orders them.
    pub fn events_of_transaction(
        &self,
        hash: &TxHash,
        visit: impl FnMut(&EventRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        unimplemented!()
    }

    /// Visits the smart-contract transactions of a page in its order.
    pub fn transactions(
        &self,
        query: &TransactionQuery,
        visit: impl FnMut(&TransactionRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        unimplemented!()
    }

    /// Visits the smart-contract transaction with this outer or inner hash, if it is stored.
    pub fn transaction(
        &self,
        hash: &TxHash,
        visit: impl FnMut(&TransactionRecord<'_>),
    ) -> Result<QueryCost, StoreError> {
        unimplemented!()
    }

    /// Where the smart-contract transaction with this outer or inner hash stands, if it is stored.
    pub fn transaction_position(
        &self,
        hash: &TxHash,
    ) -> Result<Option<TransactionPosition>, StoreError> {
        unimplemented!()
    }

    /// What the store holds.
    pub fn status(&self) -> StoreStatus {
        unimplemented!()
    }
}
