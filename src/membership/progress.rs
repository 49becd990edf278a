//! How far the facts have come: what transactions say, and what events say.

use orrery_executables::CODE_EVENTS;
use orrery_store::Store;

use super::rows::CONSUMER;

/// Returns whether the facts have what all ledgers up to a place in the feed say; `None` where nobody keeps them.
pub fn has_passed(store: &Store, place: u64) -> Option<bool> {
    let has_passed = store.has_passed(CONSUMER, place)?;
    Some(has_passed && store.has_passed(CODE_EVENTS, place) != Some(false))
}

/// Returns the place in the feed up to which the facts have what all ledgers say; `None` where nobody keeps them.
pub(crate) fn place(store: &Store) -> Option<u64> {
    let place = store.consumer(CONSUMER)?.place;
    Some(store.consumer(CODE_EVENTS).map_or(place, |events| place.min(events.place)))
}

/// Returns the number of stored ledgers of which the facts do not have all yet; `None` where nobody keeps them.
pub fn lag(store: &Store) -> Option<u64> {
    Some(store.last_place().saturating_sub(place(store)?))
}
