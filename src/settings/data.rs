//! Settings of what is stored, for how long, and how much of the disk stays free.

use orrery_ledger::domain::ContractId;

use crate::values::RecordedStorage;
use crate::{section, values};

section! {
    /// `[index]`
    pub struct Index {
        /// Whether events of classic operations are indexed (CAP-67).
        pub classic_events: bool = false;
        /// Whether fee events are indexed.
        pub fee_events: bool = false;
        /// Contracts whose events are indexed; empty for all.
        #[serde(with = "values::as_text")]
        pub contracts: Vec<ContractId> = Vec::new();
        /// Contracts of which it is recorded what they hold.
        pub storage: RecordedStorage = RecordedStorage::All;
    }
}

impl Index {
    /// Whether the events of a contract are indexed.
    pub fn includes(&self, contract: &ContractId) -> bool {
        self.contracts.is_empty() || self.contracts.contains(contract)
    }
}

section! {
    /// `[retention]`. All values are numbers of ledgers.
    pub struct Retention {
        /// Number of newest raw ledgers to keep; 0 keeps none.
        // One week of the public network, as RPC nodes keep.
        pub raw_ledgers: u32 = 120_960, "a number of ledgers from 0 (keep none) to 4294967295";
        /// Number of newest ledgers whose events are kept; 0 keeps all.
        pub events: u32 = 0, "a number of ledgers from 0 (keep all) to 4294967295";
        /// Number of newest ledgers whose transactions are kept; 0 keeps all.
        pub transactions: u32 = 0, "a number of ledgers from 0 (keep all) to 4294967295";
        /// Maximum number of additional ledgers kept for active consumers, such as programs, that
        /// have not processed them yet.
        // One day.
        pub wait_for_consumers: u32 = 17_280,
            "a number of ledgers from 0 (do not wait) to 4294967295";
    }
}

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
