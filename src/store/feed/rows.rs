//! Views of a consumer's rows, and changes on top of them.

use crate::encoding::error::StoreError;
use crate::state::consumers::rows::{ConsumerEffects, ConsumerView, RowBounds};
use crate::state::store::Store;

impl Store {
    /// Takes a snapshot of a consumer's rows, of which no more is read than `bounds` allow.
    pub fn consumer_view<'a>(
        &'a self,
        name: &str,
        bounds: RowBounds<'a>,
    ) -> Result<ConsumerView<'a>, StoreError> {
        ConsumerView::take(&self.database, name, bounds)
    }

    /// Returns empty changes on top of a snapshot of a consumer's rows.
    pub(crate) fn effects(&self, name: &str) -> Result<ConsumerEffects<'_>, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let families = self.consumers.lock().spec(name).ok_or_else(unknown)?.families;
        Ok(ConsumerEffects::new(
            self.consumer_view(name, RowBounds::none())?,
            families,
            self.database.batch(),
        ))
    }
}
