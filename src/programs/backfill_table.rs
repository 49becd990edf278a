//! The most recent backfill of each program, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::backfill::{Backfill, State};
use orrery_ledger::domain::ProgramId;

/// The most recent backfill of each program.
#[derive(Default)]
pub(super) struct Table {
    /// By program.
    pub tracked: BTreeMap<ProgramId, TrackedBackfill>,
    /// Programs for which a write failed whose outcome is unknown: their backfills are read from
    /// the store again before they are used.
    pub in_doubt: BTreeSet<ProgramId>,
    /// Number of backfills inserted so far.
    count: u64,
}

/// A backfill, with its progress in memory.
pub(super) struct TrackedBackfill {
    /// Distinguishes this backfill from others of the same program.
    pub number: u64,
    /// The backfill, as far as it has come.
    pub backfill: Backfill,
    /// Time of the last write.
    pub written: Instant,
}

/// A copy of a backfill that a worker thread is executing.
pub(super) struct Work {
    /// Number of the [`TrackedBackfill`].
    pub number: u64,
    /// The backfill, as far as the thread has come.
    pub backfill: Backfill,
}

impl Table {
    /// Inserts a backfill that is on disk.
    pub(super) fn insert(&mut self, backfill: Backfill) {
        self.count += 1;
        let known = TrackedBackfill { number: self.count, backfill, written: Instant::now() };
        self.tracked.insert(known.backfill.program, known);
    }

    /// Returns the backfill of a program to be executed, if it is running.
    pub(super) fn running(&self, program: ProgramId) -> Option<Work> {
        let known =
            self.tracked.get(&program).filter(|known| known.backfill.state == State::Running)?;
        Some(Work { number: known.number, backfill: known.backfill.clone() })
    }

    /// Returns the entry of the backfill being executed, unless it was cancelled or replaced.
    pub(super) fn current(&mut self, work: &Work) -> Option<&mut TrackedBackfill> {
        let known = self.tracked.get_mut(&work.backfill.program)?;
        let is_same = known.number == work.number && known.backfill.state == State::Running;
        is_same.then_some(known)
    }
}
