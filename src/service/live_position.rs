//! The ledger at which the live source goes on. Ledgers beyond it may be stored already, by an import
//! beside the service: what is missing before them is not passed over.

use crate::domain::{LedgerSeq, StartPoint};
use crate::store::{Store, StoreError};

/// Returns the next ledger that the live source has to yield; `None` when the store is empty, and
/// the source begins at `start`. A sequence number as `start` that lies in the stored ledgers beyond a
/// gap gives the ledgers of the gap up.
pub(super) fn next_live_ledger(
    store: &Store,
    start: StartPoint,
) -> Result<Option<LedgerSeq>, StoreError> {
    let Some(latest) = store.status().latest() else { return Ok(None) };
    let next = match store.live_position()? {
        Some(position) => first_missing(store, position),
        None => latest.next(),
    };
    Ok(match start {
        StartPoint::At(start) if Some(start) > next && store.range_of(start).is_some() => {
            first_missing(store, start)
        }
        _ => next,
    })
}

/// Returns the first ledger from `from` on that is not stored; `None` after the last sequence number.
fn first_missing(store: &Store, from: LedgerSeq) -> Option<LedgerSeq> {
    match store.range_of(from) {
        Some(range) => range.last.next(),
        None => Some(from),
    }
}
