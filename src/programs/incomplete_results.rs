//! Incomplete results on ledgers, kept in memory between two turns of a program. None of them has
//! been written.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::effects::Effects;
use orrery_ledger::domain::ProgramId;

/// Maximum size of all kept results, in bytes of XDR. Results that exceed it are written as a part
/// of their ledger.
const MAX_BYTES: usize = 16 << 20;

/// Incomplete results of at most one ledger per program.
#[derive(Default)]
pub(super) struct IncompleteResults {
    by_program: Mutex<HashMap<ProgramId, Effects>>,
}

impl IncompleteResults {
    /// Removes and returns the incomplete results of a program, if `fits` accepts them.
    pub(super) fn take(
        &self,
        program: ProgramId,
        fits: impl FnOnce(&Effects) -> bool,
    ) -> Option<Effects> {
        self.by_program.lock().remove(&program).filter(fits)
    }

    /// Keeps incomplete results, or returns them if there is no room or they are large enough to be
    /// written as a part.
    pub(super) fn keep(&self, program: ProgramId, effects: Effects) -> Option<Effects> {
        let mut by_program = self.by_program.lock();
        let held: usize = by_program.values().map(|effects| effects.bytes).sum();
        if held + effects.bytes > MAX_BYTES || effects.is_part() {
            return Some(effects);
        }
        by_program.insert(program, effects);
        None
    }

    /// Discards the incomplete results of a program.
    pub(super) fn forget(&self, program: ProgramId) {
        self.by_program.lock().remove(&program);
    }
}
