//! Changes the states of consumers on a thread of normal priority.

use std::sync::Arc;

use crate::db::database::Batch;
use crate::encoding::error::StoreError;
use crate::state::consumers::states::{ConsumerStates, Update};
use crate::state::store::Store;

impl Store {
    /// Calls `Consumers::change` on a thread of normal priority.
    pub(crate) fn change_consumers(
        &self,
        batch: Batch<'_>,
        decide: impl FnOnce(&ConsumerStates, &mut Batch<'_>) -> Result<Option<Vec<Update>>, StoreError>
        + Send
        + 'static,
    ) -> Result<bool, StoreError> {
        let (consumers, batch) = (Arc::clone(&self.consumers), batch.detach());
        self.writer_thread
            .run(move |database| consumers.change(database, database.attach(batch), decide))
    }

    /// Calls `Consumers::change_in_memory` on a thread of normal priority.
    pub(crate) fn change_consumers_in_memory(
        &self,
        decide: impl FnOnce(&ConsumerStates) -> Result<Option<Vec<Update>>, StoreError> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let consumers = Arc::clone(&self.consumers);
        self.writer_thread.run(move |database| consumers.change_in_memory(database, decide))
    }
}
