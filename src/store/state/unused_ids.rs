//! Ids of events that must not be given out again. A store may have given out ids beyond its last event:
//! clients that resume after an id, or drop the ids that they know, would miss the events that got such
//! an id again. It goes on beyond all of them.
//!
//! After a crash during an import, these are the ids that were reserved ([`crate::db::acknowledged`]).
//! In a store that was restored from a backup, or that has lost its record of acknowledged writes, their
//! number is unknown, also because the same backup may have been restored before. So the next id
//! follows from the time: more ids become free in a millisecond than can be given out.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use orrery_ledger::domain::EventId;

use crate::db::database::Database;
use crate::db::writes::RESERVED_IDS;
use crate::encoding::bytes::{Malformed, Reader, put_varint};
use crate::encoding::columns::Family;
use crate::encoding::error::{StoreError, corrupt};

pub(crate) const UNUSED_FROM_ROW: &[u8] = b"unused_event_ids";

/// Ids that become free in a millisecond: twice as many as ledgers bring when they are imported.
const IDS_PER_MS: u64 = 1 << 10;
/// The time of id 0, UNIX: 2026-01-01. A JSON number holds the ids of the 278 years after it.
const BEGINNING: Duration = Duration::from_secs(1_767_225_600);
/// Longest wait for the clock: twice the time in which the ids that are reserved at once become free.
const LONGEST_WAIT: Duration = Duration::from_millis(2 * RESERVED_IDS / IDS_PER_MS);
/// Ids are divided into parts of this many. With a clock that is wrong, the next id is in the part after
/// that of the last one.
const PART: u64 = 1 << 32;

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
    id.0 > 0 && id.0.is_multiple_of(IDS_PER_MS)
}

/// Returns the first id that cannot have been given out by a store whose last event had the id
/// `last` at some time before `now`, the time since 1970.
fn first_unused(last: EventId, now: Duration) -> EventId {
    let ids_until = |time: Duration| {
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_mul(IDS_PER_MS)
    };
    let by_time = ids_until(now.saturating_sub(BEGINNING));
    if by_time > last.0 {
        return EventId(by_time);
    }
    // The store is ahead of the clock. The place in the part still follows the clock, because the same
    // backup may have been restored before.
    EventId((last.0 / PART + 1) * PART + ids_until(now) % PART)
}

/// Records that ids up to `last`, and an unknown number beyond it, may have been given out.
pub(crate) fn skip(database: &Database, last: EventId) -> Result<(), StoreError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    skip_to(database, first_unused(last, now))
}

/// Waits until the clock has reached an id, if that is soon: a restored store, whose ids follow the clock,
/// goes on after a kill at the end of what was reserved. Were that ahead of the clock, another
/// restoration of the same backup could give out the same ids.
pub(crate) fn wait_for_clock(id: EventId) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    thread::sleep(wait_until(id, now));
}

/// Returns the time until the clock has reached an id; nothing for a store that is far ahead, because it
/// has met a wrong clock.
fn wait_until(id: EventId, now: Duration) -> Duration {
    let time = BEGINNING + Duration::from_millis(id.0.div_ceil(IDS_PER_MS));
    Some(time.saturating_sub(now)).filter(|ahead| *ahead <= LONGEST_WAIT).unwrap_or_default()
}

/// Records that all ids before `first`, at which ids may begin anew, may have been given out.
pub(crate) fn skip_to(database: &Database, first: EventId) -> Result<(), StoreError> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, first.0);
    let mut batch = database.batch();
    batch.put_raw(Family::Meta, UNUSED_FROM_ROW, &bytes)?;
    database.write_synced(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_time_and_never_go_back() {
        let year = Duration::from_secs(365 * 24 * 3600);
        let at = |last, years| first_unused(EventId(last), BEGINNING + year * years).0;
        assert_eq!(at(0, 1), 365 * 24 * 3_600_000 * 1024);
        assert!(at(5, 1) < at(5, 2));
        assert!(at(0, 200) < 1 << 53, "a JSON number holds it");
        // With a clock that stands at its beginning, and for a store that is ahead of the time.
        assert_eq!(first_unused(EventId(7), Duration::ZERO), EventId(1 << 32));
        assert!(((1 << 50) + (1 << 32)..(1 << 50) + (2 << 32)).contains(&at(1 << 50, 1)));
        for first in [at(0, 1), at(1 << 50, 1), at(9, 0)] {
            assert!(is_beginning(EventId(first)));
        }
    }

    /// Of the same backup, or of one that was made soon after a restoration: whatever was given out
    /// between two restorations lies before the ids after the second one.
    #[test]
    fn a_later_restoration_goes_on_beyond_an_earlier_one() {
        let hour = Duration::from_secs(3600);
        let laters = [Duration::from_millis(1), Duration::from_secs(60), hour];
        let base = BEGINNING + 7_919 * hour;
        // At least a millisecond passes after the last id was given out.
        let now = base + Duration::from_millis(1);
        for last in [0, 1 << 31, first_unused(EventId(0), base).0 + 5] {
            for later in laters {
                let [earlier, later] =
                    [now, now + later].map(|now| first_unused(EventId(last), now));
                assert!(earlier < later, "{last}: {earlier}, then {later}");
            }
        }
        // With a wrong clock, they are at least not the same ids.
        for (last, now) in [(0, Duration::ZERO), (1 << 50, base)] {
            for later in laters {
                let [earlier, later] =
                    [now, now + later].map(|now| first_unused(EventId(last), now));
                assert!(earlier.0 > last && later.0 > last && earlier != later);
            }
        }
    }

    /// Restored, killed, and restored again at any time after that: what was given out at the end of what
    /// was reserved lies before the ids of the second restoration.
    #[test]
    fn a_killed_store_is_not_ahead_of_the_clock() {
        let restored_at = BEGINNING + Duration::from_secs(7_919 * 3600);
        let reserved = EventId(first_unused(EventId(0), restored_at).0 + RESERVED_IDS);
        for killed_after in [0, 1, 100, 255, 256, 257, 10_000].map(Duration::from_millis) {
            let killed_at = restored_at + killed_after;
            let opened_at = killed_at + wait_until(reserved, killed_at);
            let again = first_unused(EventId(0), opened_at + Duration::from_millis(1));
            assert!(again > reserved, "{killed_after:?}: {again}, {reserved}");
        }
        // A store whose ids are dense does not wait, nor one that is far ahead.
        for id in [EventId(1 << 20), EventId(1 << 52)] {
            assert_eq!(wait_until(id, restored_at), Duration::ZERO);
        }
    }
}
