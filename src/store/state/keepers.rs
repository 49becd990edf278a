//! What consumers keep of transactions that retention removes: each has a function that is called for
//! every such transaction, and whose changes of rows are part of the write that removes it.

use std::fmt;

use parking_lot::MutexGuard;

use super::consumers::rows::{ConsumerEffects, RowsMut};
use super::store::Store;
use crate::db::database::Batch;
use crate::encoding::error::StoreError;
use crate::encoding::records::TransactionRecord;

/// How a consumer keeps what it needs of a transaction.
#[derive(Clone, Copy)]
pub struct Keeper {
    /// The consumer's name.
    pub consumer: &'static str,
    /// Changes the rows of the consumer. It is called for all transactions of a ledger in apply order,
    /// after the consumer has processed the ledger or lost it, and possibly for younger ledgers before
    /// older ones.
    pub keep: fn(&TransactionRecord<'_>, &mut dyn RowsMut) -> Result<(), StoreError>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keeper").field(&self.consumer).finish()
    }
}

/// What one consumer keeps in a round of retention. While this exists, its rows are not changed
/// otherwise.
pub(crate) struct Keeping<'s> {
    keep: fn(&TransactionRecord<'_>, &mut dyn RowsMut) -> Result<(), StoreError>,
    effects: ConsumerEffects<'s>,
    _guard: Option<MutexGuard<'s, ()>>,
}

impl Store {
    /// Begins to keep, for all consumers that do.
    pub(crate) fn begin_keeping(&self) -> Result<Vec<Keeping<'_>>, StoreError> {
        let begin = |keeper: &Keeper| {
            let guard = self.consumers.lock_of(keeper.consumer).map(|lock| lock.acquire());
            let effects = self.effects(keeper.consumer)?;
            Ok(Keeping { keep: keeper.keep, effects, _guard: guard })
        };
        self.keepers.iter().map(begin).collect()
    }
}

impl Keeping<'_> {
    pub(crate) fn keep(&mut self, transaction: &TransactionRecord<'_>) -> Result<(), StoreError> {
        (self.keep)(transaction, &mut self.effects)
    }

    /// Adds the changes to the batch that removes the transactions.
    pub(crate) fn write(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        self.effects.add_to(batch)
    }
}
