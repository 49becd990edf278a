//! Passes the transactions that a round of retention removes to the consumers that keep something of
//! them.

use parking_lot::MutexGuard;

use crate::db::database::Batch;
use crate::encoding::error::StoreError;
use crate::encoding::records::TransactionRecord;
use crate::state::consumers::rows::{ConsumerEffects, RowsMut};
use crate::state::keepers::Keeper;
use crate::state::store::Store;

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
