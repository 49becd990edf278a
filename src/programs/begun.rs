//! Ledgers that are done in part, between one turn of a program and the next. Nothing of them is written.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::runner::Effects;
use crate::domain::ProgramId;

/// Bytes of XDR that all of them may hold. What does not fit is written as a part of its ledger.
const MOST_BYTES: usize = 16 << 20;

/// One ledger of each program at the most.
#[derive(Default)]
pub(super) struct Begun {
    by_program: Mutex<HashMap<ProgramId, Effects>>,
}

impl Begun {
    /// What was begun of a program's ledger, if it can be gone on with.
    pub(super) fn take(
        &self,
        program: ProgramId,
        fits: impl FnOnce(&Effects) -> bool,
    ) -> Option<Effects> {
        self.by_program.lock().remove(&program).filter(fits)
    }

    /// Keeps what was begun, or gives it back when there is no room.
    pub(super) fn keep(&self, program: ProgramId, effects: Effects) -> Option<Effects> {
        let mut by_program = self.by_program.lock();
        let held: usize = by_program.values().map(|effects| effects.bytes).sum();
        if held + effects.bytes > MOST_BYTES || effects.is_part() {
            return Some(effects);
        }
        by_program.insert(program, effects);
        None
    }

    /// Forgets what was begun.
    pub(super) fn forget(&self, program: ProgramId) {
        self.by_program.lock().remove(&program);
    }
}
