//! Ids of events that must not be given out again. A store that was restored from a backup, or that has
//! lost its record of acknowledged writes, may have given out ids beyond its last event: clients
//! that resume after an id, or drop the ids that they know, would miss the events that got such an id
//! again. It goes on far beyond them.

use orrery_ledger::domain::EventId;

use crate::db::database::Database;
use crate::encoding::bytes::{Malformed, Reader, put_varint};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

pub(crate) const UNUSED_FROM_ROW: &[u8] = b"unused_event_ids";

/// Ids skipped at once: more than were given out between a backup and its restoration (with 10,000
/// events per ledger, in a month). A JSON number holds the ids of two million restorations.
const IDS_PER_EPOCH: u64 = 1 << 32;

/// Returns the id before which all ids may have been given out; 1 in a store that was never
/// restored.
pub(crate) fn load(database: &Database) -> Result<EventId, StoreError> {
    let Some(bytes) = database.get(Family::Meta, UNUSED_FROM_ROW)? else { return Ok(EventId(1)) };
    let decode = || {
        let mut reader = Reader::new(&bytes);
        let first = reader.varint()?;
        reader.end()?;
        if is_beginning(EventId(first)) { Ok(EventId(first)) } else { Err(Malformed) }
    };
    decode().map_err(corrupt(Family::Meta, UNUSED_FROM_ROW))
}

/// Returns whether ids may begin anew at this one.
pub(crate) fn is_beginning(id: EventId) -> bool {
    id.0 > 0 && id.0.is_multiple_of(IDS_PER_EPOCH)
}

/// Records that ids up to `last`, and an unknown number beyond it, may have been given out.
pub(crate) fn skip(database: &Database, last: EventId) -> Result<(), StoreError> {
    let first = (last.0 / IDS_PER_EPOCH + 1) * IDS_PER_EPOCH;
    let mut bytes = Vec::new();
    put_varint(&mut bytes, first);
    let mut batch = database.batch();
    batch.put_raw(Family::Meta, UNUSED_FROM_ROW, &bytes)?;
    database.write_synced(batch)
}
