//! How often a table gets a snapshot. As none expires before a day, a table that gets portions every second
//! would have metadata without bounds: portions wait for the next snapshot then. They are part of the export
//! meanwhile. A table that gets a snapshot may get a second one at once, which merges its files.

use crate::metadata::SNAPSHOT_BYTES;
use crate::snapshot::{SNAPSHOT_MS, expired};
use crate::state::TableState;

/// Size of a table's metadata in bytes that its snapshots stay below.
const METADATA_BYTES: u64 = 960_000;
/// Share of that which is left to snapshots at least, however many columns the table has.
const LEAST_BYTES: u64 = 100_000;
/// Least time in milliseconds between two snapshots while an export goes on.
pub const LEAST_MS: i64 = 60_000;

/// Snapshots that a table may get when it is due.
const AT_ONCE: u64 = 2;

/// Returns whether a table may get a snapshot at the time `now_ms`, in milliseconds since the UNIX epoch, and
/// another one that merges its files. `is_last` says that the export has nothing to add after it: then it need
/// not wait, as long as this has not happened often within a day.
pub fn is_due(state: &TableState, root: &str, now_ms: i64, is_last: bool) -> bool {
    let schemas = state.schemas.iter().map(|schema| schema.json().to_string().len() as u64);
    // Beside each schema there may be a mapping of names, which is about as large.
    let left = METADATA_BYTES.saturating_sub(2 * schemas.sum::<u64>()).max(LEAST_BYTES);
    let most = (left / (SNAPSHOT_BYTES + root.len() as u64)).max(16);
    let kept = (state.snapshots.len() - expired(&state.snapshots, now_ms)) as u64;
    if is_last && kept < most / 4 {
        return true;
    }
    // What is left beside the quarter and those of one time is spread over the day.
    let times = (most - most / 4 - AT_ONCE).max(AT_ONCE) / AT_ONCE;
    let interval = i64::try_from(times).map_or(LEAST_MS, |times| SNAPSHOT_MS / times);
    let interval = interval.saturating_add(1).max(LEAST_MS);
    let is_old = |since: i64| now_ms.saturating_sub(since) >= interval;
    kept + AT_ONCE <= most && state.newest().is_none_or(|newest| is_old(newest.timestamp_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Amount, Operation, Snapshot};

    fn snapshot(commit: u64, timestamp_ms: i64) -> Snapshot {
        let none = Amount::default();
        Snapshot {
            commit,
            parent: None,
            timestamp_ms,
            operation: Operation::Append,
            schema: 0,
            list: String::new(),
            added: none,
            deleted: none,
            total: none,
        }
    }

    /// Returns the greatest number of snapshots of a table that gets one whenever it may.
    fn most(root: &str, is_last: bool, step_ms: i64) -> (usize, usize) {
        let (mut state, mut most, mut all) = (TableState::default(), 0, 0);
        for now in (0..4 * SNAPSHOT_MS).step_by(step_ms as usize) {
            if is_due(&state, root, now, is_last) {
                state.snapshots.drain(..expired(&state.snapshots, now));
                all += 1;
                for number in 0..AT_ONCE {
                    let place = all as u64 * AT_ONCE + number;
                    state.snapshots.push(snapshot(place, now + number as i64));
                }
                most = most.max(state.snapshots.len());
            }
        }
        (most, all)
    }

    #[test]
    fn snapshots_of_a_day_fit_into_the_metadata() {
        for (root, is_last) in
            [("/srv/lake", false), ("/srv/lake", true), (&*"x".repeat(600), true)]
        {
            let (most, all) = most(root, is_last, 7_000);
            let bytes = most as u64 * (SNAPSHOT_BYTES + root.len() as u64);
            assert!(bytes <= METADATA_BYTES, "{most}");
            assert!(all > 1000, "none waits for long: {all}");
        }
    }

    #[test]
    fn the_last_portion_need_not_wait() {
        let mut state = TableState::default();
        assert!(is_due(&state, "/lake", 1_000, false));
        state.snapshots.push(snapshot(1, 1_000));
        assert!(!is_due(&state, "/lake", 2_000, false) && is_due(&state, "/lake", 2_000, true));
        assert!(is_due(&state, "/lake", 400_000, false));
    }
}
