//! How many runs there are at a time. Each has instances and a stack of its own, and there is room for
//! so many.

use super::settings::EngineSettings;
use crate::budget::{Budget, Holder, Limits, Refusal, Share, Usage};
use crate::priority::Priority;

/// Budgets of runs, one for each priority.
const BUDGETS: usize = 2;

/// Places for runs, for threads of each priority apart: those that can wait do not hold up the others.
pub(super) struct Places {
    prompt: Budget,
    background: Budget,
}

impl Places {
    pub(super) fn new(settings: &EngineSettings) -> Self {
        let budget = |name, runs: usize| {
            let runs = u64::try_from(runs).unwrap_or(u64::MAX).max(1);
            Budget::new(name, Limits::with_any_waiting(runs, 1))
        };
        Self {
            prompt: budget("runs", settings.concurrent_runs),
            background: budget("background_runs", settings.background_runs),
        }
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
