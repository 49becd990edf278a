//! Following sources: what a source is and what it answers. The [`Follower`] keeps ledgers in order and
//! without gaps, drops repeats, waits at the tip, comes back after failures, and asks another source
//! where one fails. Knows nothing of what is in a ledger or where it goes.

mod flight;
mod follower;
mod member;
mod window;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

pub use flight::Flight;
pub use follower::{FollowError, Followed, Follower, Task};

use super::RawLedger;
use crate::domain::{LedgerRange, LedgerSeq};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;

/// Name under which the sources of live ledgers report to [`Health`].
pub const COMPONENT: &str = "source";
/// Name under which it is reported that the next ledger may soon be gone.
pub const WINDOW: &str = "window";

/// Something that yields the ledgers of one network.
pub trait LedgerSource: Send {
    /// How the source is called in messages, with its path or address.
    fn name(&self) -> String;

    /// Passphrase of the source's network, when the source says.
    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>>;

    /// The oldest and the newest ledger that the source has; none when it has none.
    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>>;

    /// The first ledger that it yields, where its range begins at `said`. Asked once, when following is to
    /// begin at the oldest ledger.
    fn first_there(&mut self, said: LedgerSeq) -> BoxFuture<'_, Result<LedgerSeq, SourceError>> {
        async move { Ok(said) }.boxed()
    }

    /// Whether it may yield ledgers before its range all the same, so that asking is worth while.
    fn may_reach_back(&self) -> bool {
        false
    }

    /// Whether it makes old ledgers again when it is asked, so that what is not there yet may still come.
    fn replays(&self) -> bool {
        false
    }

    /// How long to wait at the tip between two questions, where the usual is too often.
    fn poll(&self) -> Option<Duration> {
        None
    }

    /// Some ledgers from `from` on. The follower sorts them, drops repeats and asks again for what is
    /// missing; a source that is dropped while it works loses nothing.
    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>>;
}

/// What a source answers.
#[derive(Debug)]
pub enum Fetched {
    /// Some ledgers.
    Ledgers(Vec<RawLedger>),
    /// The network has not closed that ledger yet, or the source does not have it yet.
    NotYet,
    /// The source will never have more.
    Ended,
}

/// Why a source did not answer. Each is a whole sentence.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It may answer later.
    #[error("{0}")]
    Retryable(String),
    /// It may answer later, and asks for a wait until then.
    #[error("{reason}")]
    RetryAfter {
        /// The sentence.
        reason: String,
        /// The shortest wait that it asks for.
        delay: Duration,
    },
    /// It no longer has the ledger that was asked for; another source may have it.
    #[error("{0}")]
    Gone(String),
    /// It will never answer.
    #[error("{0}")]
    Fatal(String),
}

/// A source in a list of sources. The first of a list is the usual one.
pub struct Candidate {
    /// Short word for metrics, unlike that of the others in the list.
    pub label: String,
    /// The source.
    pub source: Box<dyn LedgerSource>,
}

impl Candidate {
    /// A source under a label.
    pub fn new(label: impl Into<String>, source: Box<dyn LedgerSource>) -> Self {
        Self { label: label.into(), source }
    }
}

/// What a follower may know of the store that it feeds.
pub trait Covered: Send + Sync {
    /// The stored range that holds a ledger.
    fn range_of(&self, ledger: LedgerSeq) -> Option<LedgerRange>;
}

/// Why a ledger that was sent was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is not what it says, or not understood.
    Data(String),
    /// It does not link to the stored ledger before it.
    Link(String),
    /// Another ledger is stored under its number.
    Conflict(String),
}

impl Refusal {
    /// The reason, in one sentence.
    pub fn reason(&self) -> &str {
        match self {
            Self::Data(reason) | Self::Link(reason) | Self::Conflict(reason) => reason,
        }
    }
}

/// How long a follower waits, and for what.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Between questions at the tip.
    pub poll: Duration,
    /// Until a call that does not answer counts as failed.
    pub call: Duration,
    /// Until a call that does not answer is reported.
    pub silence: Duration,
    /// After the first failure; doubles with each further one, less up to half by chance.
    pub first_retry: Duration,
    /// The longest wait after a failure.
    pub longest_retry: Duration,
    /// Between questions for the range of the source in use.
    pub survey: Duration,
    /// Until a question to a source that is not in use counts as failed.
    pub probe: Duration,
    /// Without a new ledger until a bounded task is given up; `None` goes on for ever.
    pub give_up: Option<Duration>,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(500),
            call: Duration::from_secs(60),
            silence: Duration::from_secs(15),
            first_retry: Duration::from_millis(250),
            // A source that heals is noticed within ten seconds.
            longest_retry: Duration::from_secs(8),
            survey: Duration::from_secs(10),
            probe: Duration::from_secs(5),
            give_up: None,
        }
    }
}

/// What a follower reports to.
#[derive(Clone)]
pub struct Reports {
    /// Whether the source works, and the network's tip.
    pub health: Arc<Health>,
    /// Times and counts.
    pub metrics: Arc<Metrics>,
    /// Name under which the sources report to health.
    pub component: &'static str,
}

#[cfg(test)]
mod tests;
