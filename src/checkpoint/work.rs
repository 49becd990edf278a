//! What the owner of the work decides: where it is done, within which bounds, and whether it goes on.

use std::collections::BTreeSet;
use std::path::Path;

use orrery_ledger::domain::ContractId;

use crate::error::{CheckpointError, Result};

/// How a state is read.
pub struct Work<'a> {
    /// Directory for downloaded buckets, and for the sort. It must exist, and nobody else may use it
    /// meanwhile. Files of buckets of other checkpoints in it are removed.
    pub directory: &'a Path,
    /// Contracts whose data is wanted; `None` for all.
    pub contracts: Option<&'a BTreeSet<ContractId>>,
    /// Limits on what the archive can make this process spend.
    pub bounds: Bounds,
    /// Is told about each step, at least once for each piece of a file. Returns whether to go on.
    pub observe: &'a dyn Fn(Step) -> bool,
}

impl Work<'_> {
    /// Tells about a step.
    ///
    /// # Errors
    /// [`CheckpointError::Stopped`] when the owner does not want to go on.
    pub(crate) fn tell(&self, step: Step) -> Result<()> {
        if (self.observe)(step) { Ok(()) } else { Err(CheckpointError::Stopped) }
    }

    /// Whether data of this contract is wanted.
    pub(crate) fn wants(&self, contract: &ContractId) -> bool {
        self.contracts.is_none_or(|contracts| contracts.contains(contract))
    }
}

/// Limits, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum size of a bucket's file as it is stored.
    pub stored: u64,
    /// Maximum size of a bucket after decompression.
    pub bucket: u64,
    /// Maximum size of all buckets together after decompression.
    pub total: u64,
    /// Memory in which records are sorted before they go to disk; everything else takes less than
    /// 64 MiB.
    pub memory: usize,
    /// Bytes of the disk that stay free.
    pub spare: u64,
}

impl Default for Bounds {
    /// Several times the state of the public network: its largest bucket has some 10 GB, all together
    /// some 20 GB.
    fn default() -> Self {
        Self {
            stored: 32 << 30,
            bucket: 96 << 30,
            total: 192 << 30,
            memory: 128 << 20,
            spare: 256 << 20,
        }
    }
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// So many bytes have to be downloaded, and as far as is known there is disk for them.
    Download {
        /// Bytes as the server announces them; files whose size it does not announce are not counted.
        bytes: u64,
    },
    /// Buckets are downloaded and checked.
    Check {
        /// Buckets that are done.
        done: u32,
        /// All buckets.
        of: u32,
        /// Bytes read so far, after decompression.
        bytes: u64,
    },
    /// All buckets are there and right. The sort takes at most so many bytes of the directory's disk,
    /// and they are free.
    Sort {
        /// Bytes on disk, until the last entry has been yielded.
        disk: u64,
    },
    /// The sort reads the buckets.
    Sorting {
        /// Records that were read.
        records: u64,
        /// All records.
        of: u64,
    },
}
