//! How many runs there are at a time. Each has instances and a stack of its own, and there is room for
//! so many.

use crate::budget::{Budget, Holder, Limits, Refusal, Share, Usage};
use crate::priority::Priority;

/// Budgets of runs. Each has as many places as there may be runs of one priority.
pub(super) const BUDGETS: usize = 2;

/// Places for runs, for threads of each priority apart: those that can wait do not hold up the others.
pub(super) struct Places {
    prompt: Budget,
    background: Budget,
}

impl Places {
    pub(super) fn new(at_a_time: usize) -> Self {
        let all = u64::try_from(at_a_time).unwrap_or(u64::MAX).max(1);
        let budget = |name| Budget::new(name, Limits::with_any_waiting(all, 1));
        Self { prompt: budget("runs"), background: budget("background_runs") }
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// When a thread that has one asks for another.
    pub(super) fn take(&self) -> Result<Share, Refusal> {
        let budget = if Priority::is_background() { &self.background } else { &self.prompt };
        budget.take_blocking(Holder::this_thread(), 1, None)
    }

    /// What is taken of them.
    pub(super) fn usages(&self) -> [Usage; BUDGETS] {
        [&self.prompt, &self.background].map(Budget::usage)
    }
}
