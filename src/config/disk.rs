//! Settings of the free space on the disk of the data directory.

use super::section::section;

section! {
    /// `[disk]`. The smaller of the two reserves applies.
    #[derive(Copy)]
    pub struct Disk {
        /// Space to keep free, in MiB.
        pub reserve_mib: u32 = 2048, "a number of MiB from 0 (no reserve) to 4294967295";
        /// Space to keep free, in percent of the disk.
        pub reserve_percent: u8 = 5, "a percentage from 0 (no reserve) to 255";
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
