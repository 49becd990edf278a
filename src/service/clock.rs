//! The clock of the service.

use std::time::{SystemTime, UNIX_EPOCH};

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
