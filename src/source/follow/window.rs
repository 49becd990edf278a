//! Measures the distance of the next ledger from the edge of a source's window. Providers keep a
//! moving window of ledgers; a follower that falls out of it has a gap.

use std::collections::VecDeque;
use std::time::Duration;

use orrery_ledger::domain::{LedgerRange, LedgerSeq};
use tokio::time::Instant;

use super::member::ORDINARY_LAG;

/// Minimum time over which movement is judged, so that a single slow ledger has no effect.
const SHORTEST_TREND: Duration = Duration::from_secs(60);
/// Approximate maximum time over which movement is judged.
const LONGEST_TREND: Duration = Duration::from_secs(600);
/// Time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// The edge is near when it will reach the next ledger within this time.
const NEAR: Duration = Duration::from_secs(6 * 3600);

/// Samples of a source's window.
#[derive(Debug, Default)]
pub(super) struct Window {
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    first: LedgerSeq,
    left: u32,
}

/// The edge of the window approaches the next ledger and is near.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Alarm {
    /// Ledgers between the edge and the next ledger.
    pub left: u32,
    /// Estimated time until the edge reaches the next ledger; `None` when the distance has not
    /// shrunk.
    pub time: Option<Duration>,
}

impl Window {
    /// Records that the source has `range` and that `next` is needed. Returns an alarm when the
    /// edge approaches and either less than a quarter of the window is left or the edge will reach
    /// `next` within `NEAR`.
    pub fn observe(&mut self, now: Instant, range: LedgerRange, next: LedgerSeq) -> Option<Alarm> {
        let left = next.0.saturating_sub(range.first.0);
        let sample = Sample { at: now, first: range.first, left };
        if self.samples.back().is_none_or(|last| now - last.at >= SAMPLE_EVERY) {
            self.samples.push_back(sample);
        }
        // One sample older than the longest trend is kept, to cover that time.
        while self.samples.get(1).is_some_and(|second| now - second.at >= LONGEST_TREND) {
            self.samples.pop_front();
        }
        let lag = range.last.0.saturating_sub(next.0);
        let before = self.samples.front().filter(|first| now - first.at >= SHORTEST_TREND)?;
        let moves = range.first > before.first;
        if lag <= ORDINARY_LAG || !moves || left > before.left {
            return None;
        }
        let lost = f64::from(before.left - left);
        let seconds = (now - before.at).as_secs_f64() * f64::from(left) / lost;
        let time = Duration::try_from_secs_f64(seconds).ok();
        let few = u64::from(left) * 4 < range.len();
        (few || time.is_some_and(|time| time < NEAR)).then_some(Alarm { left, time })
    }

    /// Clears the samples when another source is used.
    pub fn clear(&mut self) {
        self.samples.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Observes the window every 10 s for `seconds`; both ends move by `network` ledgers per
    /// minute, and the next ledger by `own`.
    fn after(seconds: u64, left: u32, lag: u32, network: u32, own: u32) -> Option<Alarm> {
        let mut window = Window::default();
        let start = Instant::now();
        let (first, mut last_word) = (1000, None);
        for second in (0..=seconds).step_by(10) {
            let minutes = |rate: u32| (u64::from(rate) * second / 60) as u32;
            let range =
                LedgerRange::new(first + minutes(network), first + left + lag + minutes(network));
            let next = LedgerSeq(first + left + minutes(own));
            last_word = window.observe(start + Duration::from_secs(second), range, next);
        }
        last_word
    }

    #[test]
    fn warnings_come_in_time_and_only_for_an_approaching_edge() {
        // A week's window at one ledger every five seconds; storing has stopped.
        assert_eq!(after(300, 100_000, 20_960, 12, 0), None, "five days are left");
        let alarm = after(300, 30_000, 90_960, 12, 0).expect("less than a quarter");
        assert_eq!((alarm.left, alarm.time.unwrap().as_secs() / 3600), (29_940, 41));
        // A day's window, of which more than a quarter is left, but only a few hours.
        let alarm = after(300, 4_330, 12_950, 12, 0).expect("the hours are few");
        assert_eq!(alarm.time.unwrap().as_secs() / 3600, 5);
        assert_eq!(after(300, 4_330, 12_950, 12, 20), None, "it catches up");
        assert_eq!(after(300, 100, 100_000, 0, 0), None, "this window does not move");
        assert_eq!(after(300, 5, 10, 12, 12), None, "a small window, and hardly any lag");
        assert_eq!(after(50, 30_000, 90_960, 12, 0), None, "too early to say");
        let alarm = after(300, 1_000, 90_960, 12, 12).expect("near, and no further away");
        assert_eq!(alarm.time, None);
    }
}
