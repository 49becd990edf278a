//! Repetition and statistics: the sides are measured alternately (A/B/A/B), and the result is the
//! median of the repetitions with their range.

use std::time::{Duration, Instant};

/// Returns `full` in a bench, and `smallest` in the tests, which run every goal once, as fast as they
/// can: that it runs to its end, whatever it measures.
pub const fn sized<T: Copy>(full: T, smallest: T) -> T {
    if super::super::SMALLEST { smallest } else { full }
}

/// Number of measurements of either side of a ratio.
pub const REPETITIONS: usize = sized(5, 1);
/// Number of measurements of either side with something else running, whose effect is smaller than
/// the machine's noise.
pub const COMPARISON_REPETITIONS: usize = sized(9, 1);

/// Results of the repetitions of one side.
#[derive(Debug, Clone)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Creates a sample of one value that does not vary, such as a size.
    pub fn exact(value: f64) -> Self {
        Self(vec![value])
    }

    /// Returns the median.
    pub fn median(&self) -> f64 {
        quantile(&self.0, 0.5)
    }

    /// Returns the smallest and the largest value.
    pub fn range(&self) -> (f64, f64) {
        (quantile(&self.0, 0.0), quantile(&self.0, 1.0))
    }

    /// Returns all values in the order of measurement.
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

impl From<Vec<f64>> for Sample {
    fn from(values: Vec<f64>) -> Self {
        Self(values)
    }
}

/// Both sides of a ratio.
#[derive(Debug, Clone)]
pub struct Sides {
    /// Results of this software.
    pub ours: Sample,
    /// Results of the baseline.
    pub baseline: Sample,
}

impl Sides {
    /// Converts times to speeds per second. `units_per_second` is the number of time units in a
    /// second.
    pub fn to_rates(&self, units_per_second: f64) -> Self {
        let inverse = |sample: &Sample| {
            Sample(sample.0.iter().map(|value| units_per_second / value).collect())
        };
        Self { ours: inverse(&self.ours), baseline: inverse(&self.baseline) }
    }

    /// Returns the ratio of each pair of consecutive repetitions.
    pub fn ratios(&self) -> Sample {
        let pairs = self.ours.0.iter().zip(self.baseline.0.iter().cycle());
        Sample(pairs.map(|(ours, baseline)| ours / baseline).collect())
    }
}

impl FromIterator<(f64, f64)> for Sides {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(pairs: I) -> Self {
        let (ours, baseline) = pairs.into_iter().unzip();
        Self { ours: Sample(ours), baseline: Sample(baseline) }
    }
}

/// Measures both sides in turn.
pub fn alternate(mut ours: impl FnMut() -> f64, mut baseline: impl FnMut() -> f64) -> Sides {
    (0..REPETITIONS).map(|_| (ours(), baseline())).collect()
}

/// Measures both sides in turn, [`COMPARISON_REPETITIONS`] times.
pub fn compare(mut beside: impl FnMut() -> f64, mut alone: impl FnMut() -> f64) -> Sides {
    (0..COMPARISON_REPETITIONS).map(|_| (beside(), alone())).collect()
}

/// Measures one side alone.
pub fn repeat(side: impl FnMut() -> f64) -> Sample {
    Sample(std::iter::repeat_with(side).take(REPETITIONS).collect())
}

/// Returns the quantile of the values, where `share` ranges from 0 to 1.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Returns the duration of `work`.
pub fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Returns the duration of each call, in microseconds.
pub fn micros<T>(arguments: &[T], mut call: impl FnMut(&T)) -> Vec<f64> {
    arguments.iter().map(|argument| time(|| call(argument)).as_secs_f64() * 1e6).collect()
}
