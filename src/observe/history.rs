//! How far behind the network the process was, for a day. Knows numbers and when they were taken; others take them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::domain::LedgerSeq;

/// Between two samples.
pub const EVERY: Duration = Duration::from_secs(10);

/// Samples that are kept: those of a day. Each takes 40 bytes.
pub const MOST: usize = 8640;

/// How far what is stored is behind the network. Both are none when nothing is followed, or nothing is known yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lag {
    /// Ledgers from the newest that is stored to the network's newest.
    pub ledgers: Option<u32>,
    /// Seconds since the newest that is stored was closed.
    pub seconds: Option<u64>,
}

/// What was so at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// UNIX seconds.
    pub at: u64,
    /// Newest ledger that was stored, if there was one.
    pub latest: Option<LedgerSeq>,
    /// How far it was behind.
    pub lag: Lag,
}

/// The samples of the last day, the oldest first.
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
    /// Keeps a sample, and forgets the oldest when there are too many.
    pub fn record(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        if samples.len() == MOST {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// How long this has been kept.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// At most `most` samples, the oldest first. When there are more, each stands for its neighbours before it, with
    /// the longest lags of all of them: an outage of a minute stays visible in a day.
    pub fn thinned(&self, most: usize) -> Vec<Sample> {
        let mut samples = self.samples.lock();
        let samples = samples.make_contiguous();
        let group = samples.len().div_ceil(most.max(1)).max(1);
        // Counted from the newest, so that only the oldest group is a smaller one.
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
    fn keeps_a_day() {
        let history = History::default();
        assert!(history.thinned(10).is_empty());
        for at in 0..MOST as u64 + 5 {
            history.record(sample(at, Some(1)));
        }
        let kept = history.thinned(usize::MAX);
        assert_eq!(kept.len(), MOST);
        assert_eq!((kept[0].at, kept[MOST - 1].at), (5, MOST as u64 + 4));
    }

    #[test]
    fn thinning_keeps_the_newest_and_the_worst() {
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
