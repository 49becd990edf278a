//! Resource use of a service, measured from outside its process.

use std::fs;
use std::time::Duration;

/// Resource use of a process at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceSample {
    /// Time since the process was started.
    pub seconds: f64,
    /// Resident memory, in bytes.
    pub memory: u64,
    /// Resident memory of all its child processes, in bytes.
    pub workers: u64,
    /// Number of open file descriptors.
    pub files: usize,
    pub threads: usize,
}

impl ResourceSample {
    /// Measures a process; `None` when it has ended.
    pub fn measure(process: u32, age: Duration) -> Option<Self> {
        let place = format!("/proc/{process}");
        let status = fs::read_to_string(format!("{place}/status")).ok()?;
        Some(Self {
            seconds: age.as_secs_f64(),
            memory: figure(&status, "VmRSS:")? << 10,
            workers: children(process).into_iter().filter_map(memory).sum(),
            files: fs::read_dir(format!("{place}/fd")).ok()?.count(),
            threads: figure(&status, "Threads:")? as usize,
        })
    }
}

/// Returns a number from proc_pid_status(5).
fn figure(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn memory(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    Some(figure(&status, "VmRSS:")? << 10)
}

fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

/// Samples taken between a start and a stop.
#[derive(Default)]
pub struct Life {
    pub samples: Vec<ResourceSample>,
}

impl Life {
    pub fn median(&self, of: impl Fn(&ResourceSample) -> u64) -> u64 {
        let mut values: Vec<_> = self.samples.iter().map(of).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    }

    /// Returns the sample at the end of each tenth of the time.
    pub fn tenths(&self, of: impl Fn(&ResourceSample) -> u64) -> Vec<u64> {
        let count = self.samples.len();
        (1..=10)
            .filter_map(|part| self.samples.get((count * part / 10).checked_sub(1)?))
            .map(of)
            .collect()
    }

    /// Returns the highest sampled value.
    pub fn most<T: Ord + Default>(&self, of: impl Fn(&ResourceSample) -> T) -> T {
        self.samples.iter().map(of).max().unwrap_or_default()
    }

    /// Returns the growth of the process's resident memory in MiB per hour, by least squares over
    /// the second half of the samples.
    pub fn slope(&self) -> f64 {
        let half = &self.samples[self.samples.len() / 2..];
        let count = half.len() as f64;
        let mean = |of: &dyn Fn(&ResourceSample) -> f64| half.iter().map(of).sum::<f64>() / count;
        let (x, y) = (
            |it: &ResourceSample| it.seconds / 3600.0,
            |it: &ResourceSample| it.memory as f64 / 1048576.0,
        );
        let (middle, level) = (mean(&x), mean(&y));
        let both = mean(&|it| (x(it) - middle) * (y(it) - level));
        both / mean(&|it| (x(it) - middle).powi(2))
    }
}
