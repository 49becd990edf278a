//! Follows ledger sources, and defines what a source is and what it answers. The [`Follower`] keeps
//! ledgers in order and without gaps, drops repeats, waits at the tip, retries after failures, and
//! uses another source where one fails. Does not depend on the content of a ledger or on where it
//! goes.

mod flight;
mod follower;
mod member;
mod window;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use flight::InFlight;
pub use follower::{FollowError, Followed, Follower, Task};

use super::RawLedger;
use crate::domain::{LedgerRange, LedgerSeq};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;

/// Component name under which the sources of live ledgers report to [`Health`].
pub const COMPONENT: &str = "source";
/// Component name under which [`Health`] shows the alarm that the next ledger may soon leave the
/// source's window.
pub const WINDOW: &str = "window";

/// A source of the ledgers of one network.
pub trait LedgerSource: Send {
    /// Returns the name of the source for messages, with its path or address.
    fn name(&self) -> String;

    /// Returns the passphrase of the source's network; `None` when the source does not report one.
    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>>;

    /// Returns the oldest and the newest ledger that the source has; `None` when it has none.
    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>>;

    /// Returns the first ledger that the source yields, when its reported range begins at `reported`.
    /// Called only to determine the start of a task that begins at the oldest ledger.
    fn first_available(
        &mut self,
        reported: LedgerSeq,
    ) -> BoxFuture<'_, Result<LedgerSeq, SourceError>> {
        async move { Ok(reported) }.boxed()
    }

    /// Returns whether the source may yield ledgers before its reported range, so that the follower
    /// asks for them anyway.
    fn may_reach_back(&self) -> bool {
        false
    }

    /// Returns whether the source replays old ledgers on request, so that a ledger it does not have
    /// yet may still come.
    fn replays(&self) -> bool {
        false
    }

    /// Returns the interval between polls at the tip, where [`Timing::poll`] would be too frequent;
    /// `None` uses [`Timing::poll`].
    fn poll(&self) -> Option<Duration> {
        None
    }

    /// Returns some ledgers from `from` on. The follower sorts them, drops repeats and asks again
    /// for missing ones. Dropping the future must not lose ledgers.
    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>>;
}

/// Answer to [`LedgerSource::fetch`].
#[derive(Debug)]
pub enum Fetched {
    /// Some ledgers, in any order.
    Ledgers(Vec<RawLedger>),
    /// The network has not closed that ledger yet, or the source does not have it yet.
    NotYet,
    /// The source will never have more.
    Ended,
}

/// Error of a source. Each message is a whole sentence.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// Temporary failure; a retry may succeed.
    #[error("{0}")]
    Retryable(String),
    /// Temporary failure with a minimum delay that the source asks for.
    #[error("{reason}")]
    RetryAfter {
        /// Message, a whole sentence.
        reason: String,
        /// Minimum delay before the next request.
        delay: Duration,
    },
    /// The source no longer has the requested ledger; another source may have it.
    #[error("{0}")]
    Gone(String),
    /// The source will never answer.
    #[error("{0}")]
    Fatal(String),
}

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

/// Read access of a follower to the ranges of ledgers that are already stored.
pub trait Covered: Send + Sync {
    /// Returns the stored range that contains `ledger`; `None` when it is not stored.
    fn range_of(&self, ledger: LedgerSeq) -> Option<LedgerRange>;
}

/// Why a ledger that the follower sent was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The ledger is invalid or cannot be decoded.
    Data(String),
    /// It does not link to the stored ledger before it.
    Link(String),
    /// Another ledger is stored under its sequence number.
    Conflict(String),
}

impl Refusal {
    /// Returns the reason as one sentence.
    pub fn reason(&self) -> &str {
        match self {
            Self::Data(reason) | Self::Link(reason) | Self::Conflict(reason) => reason,
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
