//! What the kernel says of this process (proc(5)).

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

use super::{Metrics, number};

impl Metrics {
    /// Reports the time at which the process started.
    pub(super) fn set_start_of_process(&self) {
        let system = fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted: Option<u64> =
            system.lines().find_map(|line| line.strip_prefix("btime ")?.parse().ok());
        if let (Some(booted), Some(stat)) = (booted, Stat::read()) {
            self.started_at.set(number(booted + stat.field(22) / clock_ticks_per_second()));
        }
    }

    /// Reports what the process uses now. What cannot be read stays as it was.
    pub(super) fn set_process(&self) {
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of them reads the directory.
            self.open_files.set(number(open.count().saturating_sub(1)));
        }
        if let Some(most) = getrlimit(Resource::Nofile).current {
            self.most_files.set(number(most));
        }
        let Some(stat) = Stat::read() else { return };
        let cpu_seconds = (stat.field(14) + stat.field(15)) / clock_ticks_per_second();
        self.cpu_seconds.inc_by(cpu_seconds.saturating_sub(self.cpu_seconds.get()));
        self.threads.set(number(stat.field(20)));
        self.virtual_memory.set(number(stat.field(23)));
        self.resident_memory.set(number(stat.field(24).saturating_mul(page_size() as u64)));
    }
}

/// `/proc/self/stat` from its third field on: the second one is the name, which may contain spaces.
struct Stat(Vec<u64>);

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        let fields = text.rsplit_once(')')?.1.split_whitespace();
        Some(Self(fields.map(|field| field.parse().unwrap_or_default()).collect()))
    }

    /// Returns a field by its number in proc(5); 0 for one that is no natural number.
    fn field(&self, number: usize) -> u64 {
        self.0.get(number - 3).copied().unwrap_or_default()
    }
}
