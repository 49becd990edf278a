//! Limits the number of concurrent runs. Each run has instances and a stack of its own, and memory
//! is reserved for a fixed number of them.

use orrery_runtime::budget::{Budget, Holder, Limits, Refusal, Share, Usage};
use orrery_runtime::priority::Priority;

use super::settings::EngineSettings;

/// Number of budgets for runs, one for each priority.
const BUDGETS: usize = 2;

/// Slots for runs, separate for threads of each priority, so that background runs do not delay the
/// others.
pub(super) struct RunSlots {
    prompt: Budget,
    background: Budget,
}

impl RunSlots {
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

    /// Waits for a slot. A thread must not hold two: it would wait for itself.
    ///
    /// # Errors
    /// [`Refusal`], which these limits never cause.
    pub(super) fn take(&self) -> Result<Share, Refusal> {
        let budget = if Priority::is_background() { &self.background } else { &self.prompt };
        budget.take_blocking(Holder::this_thread(), 1, None)
    }

    /// Returns the usage of both budgets.
    pub(super) fn usages(&self) -> [Usage; BUDGETS] {
        [&self.prompt, &self.background].map(Budget::usage)
    }
}
