//! Visits the rows of an index.

use orrery_ledger::domain::EventId;

use crate::encoding::bytes::Malformed;
use crate::encoding::error::{StoreError, corrupt};
use crate::encoding::positions::Positions;
use crate::indexes::index::{Index, Indexed};
use crate::state::store::Store;

impl Store {
    /// Visits the rows of an index whose tags begin with `tag`, in the order of tags: the tag, the
    /// record, and the value, which is empty when the record is an event.
    pub fn index_rows(
        &self,
        index: &Index,
        tag: &[u8],
        mut visit: impl FnMut(&[u8], Indexed, &[u8]),
    ) -> Result<(), StoreError> {
        let snapshot = self.database.snapshot();
        let mut rows = snapshot.rows(index.family)?;
        rows.seek(tag);
        while let Some((key, value)) = rows.item().filter(|(key, _)| key.starts_with(tag)) {
            let damaged = |malformed| corrupt(index.family, key)(malformed);
            let found = index.leads_to(key).map_err(damaged)?;
            let tag = &key[..index.tag_len];
            if let Indexed::Event(block) = found {
                let positions = Positions::decode(value).ok_or(Malformed);
                let mut positions = positions.map_err(damaged)?;
                while let Some(position) = positions.pop_lowest() {
                    visit(tag, Indexed::Event(EventId(block.0 + position as u64)), &[]);
                }
            } else {
                visit(tag, found, value);
            }
            rows.next();
        }
        Ok(rows.status()?)
    }
}
