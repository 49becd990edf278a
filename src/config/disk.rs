//! Settings of the disk that the data directory is on.

use serde::{Deserialize, Serialize};

/// `[disk]`. The smaller of both counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// MiB that stay free.
    pub reserve_mib: u32,
    /// Hundredths of the disk that stay free.
    pub reserve_percent: u8,
}

impl Default for Disk {
    fn default() -> Self {
        Self { reserve_mib: 2048, reserve_percent: 5 }
    }
}

impl Disk {
    /// Bytes of a disk of `total` bytes that stay free.
    pub fn reserve(&self, total: u64) -> u64 {
        let share = u128::from(total) * u128::from(self.reserve_percent) / 100;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        share.min(u64::from(self.reserve_mib) << 20)
    }
}

/// What a key takes, to be read after "give".
pub(super) fn expectation(key: &str) -> &'static str {
    match key {
        "disk.reserve_mib" => "a number of MiB from 0 (no reserve) to 4294967295",
        _ => "a number of hundredths from 0 (no reserve) to 255",
    }
}
