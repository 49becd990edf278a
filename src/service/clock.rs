//! The clock of the service.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::steady::Milliseconds;

/// Returns the UNIX time in milliseconds.
pub fn unix_now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_millis() as u64)
}

/// Returns the UNIX time in seconds.
pub fn unix_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

/// Returns the time that passes from now on, which no setting of the machine's clock changes.
pub(super) fn elapsed_ms() -> Milliseconds {
    let begun = Instant::now();
    Arc::new(move || u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
}
