//! History of the lag behind the network over one day. Stores samples that others take.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use orrery_ledger::domain::LedgerSeq;
use parking_lot::Mutex;

/// Interval between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of samples: those of one day. Each takes 40 bytes.
pub const MAX_SAMPLES: usize = 8640;

/// Lag of the store behind the network. Both fields are `None` when no source is followed, or while
/// the values are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lag {
    /// Number of ledgers between the newest stored one and the network's newest one.
    pub ledgers: Option<u32>,
    /// Seconds since the close time of the newest stored ledger.
    pub seconds: Option<u64>,
}

/// The lag at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// UNIX time in seconds.
    pub at: u64,
    /// Newest stored ledger; `None` while the store is empty.
    pub latest: Option<LedgerSeq>,
    /// Lag at that time.
    pub lag: Lag,
}

/// The samples of the last day, oldest first.
#[derive(Debug)]
pub struct History {
    began: Instant,
    samples: Mutex<VecDeque<Sample>>,
}

impl Default for History {
    fn default() -> Self {
        Self { began: Instant::now(), samples: Mutex::default() }
    }
}

impl History {
    /// Adds a sample, and removes the oldest one when [`MAX_SAMPLES`] is exceeded.
    pub fn record(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Returns the time since the history was created.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns at most `most` samples, oldest first. When there are more, each returned sample
    /// represents a group: it is the newest of the group, with the longest lags in it, so that an
    /// outage of a minute stays visible in a day.
    pub fn thinned(&self, most: usize) -> Vec<Sample> {
        let mut samples = self.samples.lock();
        let samples = samples.make_contiguous();
        let group = samples.len().div_ceil(most.max(1)).max(1);
        // Groups are counted from the newest sample, so that only the oldest group may be smaller.
        let mut thinned: Vec<_> = samples.rchunks(group).filter_map(summary).collect();
        thinned.reverse();
        thinned
    }
}

fn summary(group: &[Sample]) -> Option<Sample> {
    let last = group.last()?;
    let lag = Lag {
        ledgers: group.iter().filter_map(|sample| sample.lag.ledgers).max(),
        seconds: group.iter().filter_map(|sample| sample.lag.seconds).max(),
    };
    Some(Sample { lag, ..*last })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, lag: Option<u32>) -> Sample {
        let seconds = lag.map(u64::from);
        Sample { at, latest: Some(LedgerSeq(at as u32)), lag: Lag { ledgers: lag, seconds } }
    }

    #[test]
    fn the_history_covers_one_day() {
        let history = History::default();
        assert!(history.thinned(10).is_empty());
        for at in 0..MAX_SAMPLES as u64 + 5 {
            history.record(sample(at, Some(1)));
        }
        let kept = history.thinned(usize::MAX);
        assert_eq!(kept.len(), MAX_SAMPLES);
        assert_eq!((kept[0].at, kept[MAX_SAMPLES - 1].at), (5, MAX_SAMPLES as u64 + 4));
    }

    #[test]
    fn thinning_keeps_the_newest_sample_and_the_largest_lag() {
        let history = History::default();
        for at in 0..10 {
            history.record(sample(at, (at != 9).then_some(if at == 4 { 70 } else { 1 })));
        }
        let ats = |most| history.thinned(most).iter().map(|it| it.at).collect::<Vec<_>>();
        assert_eq!(ats(10), (0..10).collect::<Vec<_>>());
        assert_eq!(ats(4), [0, 3, 6, 9]);
        assert_eq!(ats(1), [9]);
        assert_eq!(ats(0), [9]);
        let lags: Vec<_> = history.thinned(4).iter().map(|it| it.lag.ledgers).collect();
        assert_eq!(lags, [Some(1), Some(1), Some(70), Some(1)]);
        assert_eq!(history.thinned(10)[9].lag, Lag::default(), "unknown stays unknown");
    }
}
