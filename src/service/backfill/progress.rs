//! Progress of a backfill order: ledgers stored, speed, and estimated time to completion.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::control::BackfillReport;
use crate::domain::{LedgerRange, LedgerSeq};
use crate::pipeline::Ingested;
use crate::store::Committed;

/// Period over which the speed is averaged.
const SPEED_OVER: Duration = Duration::from_secs(30);
/// Minimum interval between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// Progress of one order, shared by the task that runs it and its readers.
#[derive(Debug, Default)]
pub struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    range: Option<LedgerRange>,
    missing: u64,
    without_records: u64,
    stored: u64,
    events: u64,
    ledger: Option<LedgerSeq>,
    /// Numbers of stored ledgers over time, oldest sample first.
    samples: VecDeque<(Instant, u64)>,
}

impl Progress {
    /// Creates the progress of an order for a range of which `missing` ledgers are not stored, and
    /// others are stored `without_records`.
    pub fn new(range: LedgerRange, missing: u64, without_records: u64) -> Self {
        let samples = VecDeque::from([(Instant::now(), 0)]);
        let range = Some(range);
        Self(Mutex::new(State { range, missing, without_records, samples, ..State::default() }))
    }

    /// Counts a stored ledger.
    pub fn stored(&self, ingested: &Ingested) {
        let mut state = self.0.lock();
        state.ledger = Some(ingested.sequence);
        if ingested.committed == Committed::New {
            state.stored += 1;
            state.events += ingested.counts.events();
        }
        state.sample(Instant::now());
    }

    /// Returns the progress with the current speed.
    pub fn report(&self) -> BackfillReport {
        let mut state = self.0.lock();
        let now = Instant::now();
        state.sample(now);
        let speed = state.speed(now);
        let left = state.missing.saturating_sub(state.stored);
        let seconds = left as f64 / speed;
        BackfillReport {
            from: state.range.map_or(0, |range| range.first.0),
            to: state.range.map_or(0, |range| range.last.0),
            missing: state.missing,
            without_records: state.without_records,
            stored: state.stored,
            events: state.events,
            ledger: state.ledger.map(|ledger| ledger.0),
            ledgers_per_second: speed,
            seconds_left: (speed > 0.0).then(|| seconds.ceil() as u64),
            ..BackfillReport::default()
        }
    }
}

impl State {
    fn sample(&mut self, now: Instant) {
        if self.samples.back().is_none_or(|(at, _)| now - *at >= SAMPLE_EVERY) {
            self.samples.push_back((now, self.stored));
        }
        while self.samples.get(1).is_some_and(|(at, _)| now - *at >= SPEED_OVER) {
            self.samples.pop_front();
        }
    }

    fn speed(&self, now: Instant) -> f64 {
        let Some((at, stored)) = self.samples.front() else { return 0.0 };
        (self.stored - stored) as f64 / (now - *at).as_secs_f64().max(0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_remaining_time_are_estimated() {
        let start = Instant::now();
        let mut state = State { missing: 10_000, ..State::default() };
        state.samples.push_back((start, 0));
        for second in 1..=100u64 {
            // Ten ledgers per second, then a hundred per second.
            state.stored += if second <= 60 { 10 } else { 100 };
            state.sample(start + Duration::from_secs(second));
        }
        let speed = state.speed(start + Duration::from_secs(100));
        assert!((speed - 100.0).abs() < 1.0, "{speed}");
        assert!(state.samples.len() < 70);
        let none = Progress::default().report();
        assert_eq!((none.from, none.seconds_left, none.percent()), (0, None, 100));
    }
}
