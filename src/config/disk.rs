//! Settings of the free space on the disk of the data directory.

use serde::{Deserialize, Serialize};

/// `[disk]`. The smaller of the two reserves applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Space to keep free, in MiB.
    pub reserve_mib: u32,
    /// Space to keep free, in percent of the disk.
    pub reserve_percent: u8,
}

impl Default for Disk {
    fn default() -> Self {
        Self { reserve_mib: 2048, reserve_percent: 5 }
    }
}

impl Disk {
    /// Returns the space to keep free on a disk of `total` bytes, in bytes.
    pub fn reserve(&self, total: u64) -> u64 {
        let share = u128::from(total) * u128::from(self.reserve_percent) / 100;
        let share = u64::try_from(share).unwrap_or(u64::MAX);
        share.min(u64::from(self.reserve_mib) << 20)
    }
}

/// Returns the description of a key's valid values; it follows "give" in an error message.
pub(super) fn expected_value(key: &str) -> &'static str {
    match key {
        "disk.reserve_mib" => "a number of MiB from 0 (no reserve) to 4294967295",
        _ => "a percentage from 0 (no reserve) to 255",
    }
}
