//! Follows ledger sources. The [`Follower`] keeps ledgers in order and without gaps, drops repeats,
//! waits at the tip, retries after failures, and uses another source where one fails. Does not
//! depend on the content of a ledger or on where it goes.

mod follower;
mod in_flight;
mod member;
mod window;

use std::sync::Arc;
use std::time::Duration;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSource};
use orrery_runtime::observe::health::Health;
use orrery_runtime::observe::metrics::Metrics;

pub use follower::{FollowError, Followed, Follower, Task};
pub use in_flight::InFlight;

/// Component name under which the sources of live ledgers report to [`Health`].
pub const COMPONENT: &str = "source";
/// Component name under which [`Health`] shows the alarm that the next ledger may soon leave the
/// source's window.
pub const WINDOW: &str = "window";

/// A source in a follower's list. The first of the list is preferred.
pub struct Candidate {
    /// Short label for metrics, unique in the list.
    pub label: String,
    /// The source.
    pub source: Box<dyn LedgerSource>,
}

impl Candidate {
    /// Creates a candidate from a metrics label and a source.
    pub fn new(label: impl Into<String>, source: Box<dyn LedgerSource>) -> Self {
        Self { label: label.into(), source }
    }
}

/// Returns the stored range that contains a ledger; `None` when it is not stored.
pub type RangeOf = Arc<dyn Fn(LedgerSeq) -> Option<LedgerRange> + Send + Sync>;

/// Why a ledger that the follower sent was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The ledger is invalid or cannot be decoded.
    Data(String),
    /// It does not link to the stored ledger before it.
    Link(String),
    /// Another ledger is stored under its sequence number.
    Conflict(String),
    /// Ledgers that waited to be stored do not fit together: one of them is presumably wrong.
    Waiting {
        /// That ledger.
        wrong: LedgerSeq,
        /// Whether one of them does not link to the other; else they waited for too long.
        is_broken: bool,
        /// What does not fit.
        reason: String,
    },
}

impl Refusal {
    /// Returns the reason as one sentence.
    pub fn reason(&self) -> &str {
        match self {
            Self::Data(reason)
            | Self::Link(reason)
            | Self::Conflict(reason)
            | Self::Waiting { reason, .. } => reason,
        }
    }
}

/// Intervals, timeouts and retry delays of a follower.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Interval between polls at the tip.
    pub poll: Duration,
    /// Timeout after which a call without an answer counts as failed.
    pub call: Duration,
    /// Time after which a call without an answer is reported to health.
    pub silence: Duration,
    /// Delay after the first failure; doubles with each further one, minus up to half at random.
    pub first_retry: Duration,
    /// Maximum delay after a failure, unless the source asks for more.
    pub longest_retry: Duration,
    /// Interval between requests for the range of the source in use.
    pub survey: Duration,
    /// Timeout of a probe of a source that is not in use.
    pub probe: Duration,
    /// Time without a new ledger after which a task is given up; `None` never gives up.
    pub give_up: Option<Duration>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(500),
            call: Duration::from_secs(60),
            silence: Duration::from_secs(15),
            first_retry: Duration::from_millis(250),
            // Short enough to notice within ten seconds that a source works again.
            longest_retry: Duration::from_secs(8),
            survey: Duration::from_secs(10),
            probe: Duration::from_secs(5),
            give_up: None,
        }
    }
}

/// Targets of a follower's reports.
#[derive(Clone)]
pub struct Reports {
    /// Health: the state of the sources, and the network's tip.
    pub health: Arc<Health>,
    /// Metrics: durations and counts.
    pub metrics: Arc<Metrics>,
    /// Component name under which the sources report to health.
    pub component: &'static str,
}

#[cfg(test)]
mod tests;
