//! How long looks of one project are apart: they take a small part of the time only.

use std::time::{Duration, Instant};

/// Time after which a look is made again that could not be made because another thread was at it.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Time from a look to the next, in multiples of what it took. Unit tests, which give turns themselves,
/// would wait in vain.
const PAUSE: u32 = if cfg!(test) { 0 } else { 20 };

/// Returns how long to wait after a look, of which it is known when it ended and how long it took.
pub(super) fn pause_after(last: Option<(Instant, Duration)>, now: Instant) -> Duration {
    let next = last.map(|(ended, took)| ended + PAUSE * took);
    next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now))
}
