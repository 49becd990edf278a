//! Following sources: what a source is and what it answers. The [`Follower`] keeps ledgers in order and
//! without gaps, drops repeats, waits at the tip, comes back after failures, and asks another source
//! where one fails. Knows nothing of what is in a ledger or where it goes.

mod flight;
mod follower;
mod member;
mod window;

use std::sync::Arc;
use std::time::Duration;

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

/// A source may ask for a longer wait than this; it is asked again nevertheless.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(60);

/// Something that yields the ledgers of one network.
pub trait LedgerSource: Send {
    /// How the source is called in messages, with its path or address.
    fn name(&self) -> String;

    /// Passphrase of the source's network, when the source says.
    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>>;

    /// The oldest and the newest ledger that the source has; none when it has none.
    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>>;

    /// Whether it may yield ledgers before its range all the same, so that asking is worth while.
    fn may_reach_back(&self) -> bool {
        false
    }

<<<<<<< main
    /// How long to wait at the tip between two questions, where the usual is too often.
    fn poll(&self) -> Option<Duration> {
        None
    }

=======
>>>>>>> FETCH_HEAD
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

/// How patient a follower is.
#[derive(Debug, Clone)]
pub struct Patience {
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

impl Default for Patience {
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
<<<<<<< main
    /// Name under which the sources report to health.
    pub component: &'static str,
=======
}

/// Follows one source. Time is tokio's clock; chance comes from `chance`.
pub struct Follower {
    source: Box<dyn LedgerSource>,
    network: Network,
    reports: Reports,
    patience: Patience,
    chance: StdRng,
    failures: u32,
    surveyed: Option<Survey>,
    /// When the source was last asked something.
    asked: Instant,
}

struct Survey {
    at: Instant,
    range: Option<LedgerRange>,
}

impl Follower {
    /// Will follow `source`, which must yield ledgers of `network`.
    pub fn new(
        source: Box<dyn LedgerSource>,
        network: Network,
        reports: Reports,
        patience: Patience,
        chance: StdRng,
    ) -> Self {
        let (failures, surveyed, asked) = (0, None, Instant::now());
        Self { source, network, reports, patience, chance, failures, surveyed, asked }
    }

    /// Sends every ledger from `next` on, in order and once, until the source ends, nobody receives,
    /// or it cannot go on. Without `next` it begins at the source's oldest ledger. Dropping the future
    /// stops it at once: a ledger is either sent or asked for again.
    pub async fn run(
        mut self,
        next: Option<LedgerSeq>,
        out: mpsc::Sender<RawLedger>,
    ) -> Result<Followed, FollowError> {
        let result = self.follow(next, &out).await;
        if let Err(error) = &result {
            self.reports.health.down(COMPONENT, error.to_string());
        }
        result
    }

    async fn follow(
        &mut self,
        next: Option<LedgerSeq>,
        out: &mpsc::Sender<RawLedger>,
    ) -> Result<Followed, FollowError> {
        self.check_network().await?;
        let mut next = match next {
            Some(next) => next,
            None => self.oldest().await?,
        };
        loop {
            if out.is_closed() {
                return Ok(Followed::ReceiverClosed);
            }
            if let Err(error) = self.survey(next).await {
                self.wait_after(error).await?;
                continue;
            }
            let timer = Instant::now();
            match self.call(|source| source.fetch(next)).await {
                Err(error) => self.wait_after(error).await?,
                Ok(Fetched::Ended) => return Ok(Followed::SourceEnded),
                Ok(Fetched::NotYet) => self.wait_at_tip(next).await?,
                Ok(Fetched::Ledgers(ledgers)) => {
                    self.reports.metrics.observe_step("fetch", timer.elapsed());
                    let before = next;
                    let skipped_to = match send_in_order(ledgers, &mut next, out).await {
                        Sent::Closed => return Ok(Followed::ReceiverClosed),
                        Sent::EndOfNumbers => return Err(FollowError::EndOfNumbers(next)),
                        Sent::All => None,
                        Sent::UntilGap(beyond) => Some(beyond),
                    };
                    self.after_sending(before, next, skipped_to).await?;
                }
            }
        }
    }

    async fn after_sending(
        &mut self,
        before: LedgerSeq,
        next: LedgerSeq,
        skipped_to: Option<LedgerSeq>,
    ) -> Result<(), FollowError> {
        if next > before {
            self.works();
            self.reports_tip(LedgerSeq(next.0 - 1));
            return Ok(());
        }
        match skipped_to {
            Some(beyond) => {
                let name = self.source.name();
                let skip = format!("{name} skips from ledger {next} to {beyond}");
                self.wait_after(SourceError::Retryable(skip)).await
            }
            // Only repeats: nothing new yet.
            None => self.wait_at_tip(next).await,
        }
    }

    async fn check_network(&mut self) -> Result<(), FollowError> {
        loop {
            match self.call(|source| source.passphrase()).await {
                Err(error) => self.wait_after(error).await?,
                Ok(None) => return Ok(()),
                Ok(Some(passphrase)) => {
                    let found = Network::from_passphrase(passphrase);
                    if found == self.network {
                        return Ok(());
                    }
                    let (found, wanted) = (found.to_string(), self.network.to_string());
                    let source_name = self.source.name();
                    return Err(FollowError::WrongNetwork { source_name, found, wanted });
                }
            }
        }
    }

    /// The source's oldest ledger, once it has one.
    async fn oldest(&mut self) -> Result<LedgerSeq, FollowError> {
        loop {
            match self.call(|source| source.range()).await {
                Err(error) => self.wait_after(error).await?,
                Ok(Some(range)) => return Ok(range.first),
                Ok(None) => {
                    self.works();
                    sleep(self.patience.poll).await;
                }
            }
        }
    }

    /// From time to time, asks what the source has, and compares that with the ledger needed.
    async fn survey(&mut self, next: LedgerSeq) -> Result<(), SurveyError> {
        let due = self.surveyed.as_ref().is_none_or(|s| s.at.elapsed() >= self.patience.survey);
        if !due {
            return Ok(());
        }
        let range = self.call(|source| source.range()).await?;
        self.surveyed = Some(Survey { at: Instant::now(), range });
        let Some(range) = range else { return Ok(()) };
        let source_name = self.source.name();
        if range.first > next && !self.source.may_reach_back() {
            let error = FollowError::TooLate { source_name, oldest: range.first, needed: next };
            return Err(SurveyError::Final(error));
        }
        self.reports_tip(range.last);
        if range.last.0.saturating_add(ORDINARY_LAG) < next.0 {
            self.surveyed = None;
            return Err(SurveyError::Source(SourceError::Retryable(format!(
                "{source_name} ends at ledger {}, but ledger {} is stored already: it lags behind, or \
                 its network was reset and needs an empty data directory",
                range.last,
                next.0 - 1
            ))));
        }
        Ok(())
    }

    /// Waits for the network to close the next ledger. A source that announced it must have it.
    async fn wait_at_tip(&mut self, next: LedgerSeq) -> Result<(), FollowError> {
        let announced = self.surveyed.as_ref().and_then(|survey| survey.range);
        if let Some(range) = announced.filter(|range| range.last >= next) {
            let name = self.source.name();
            let gap = format!("{name} has ledger {} but not ledger {next}", range.last);
            self.surveyed = None;
            return self.wait_after(SourceError::Retryable(gap)).await;
        }
        self.works();
        sleep(self.patience.poll).await;
        Ok(())
    }

    async fn call<T>(
        &mut self,
        question: impl for<'s> FnOnce(&'s mut dyn LedgerSource) -> BoxFuture<'s, Result<T, SourceError>>,
    ) -> Result<T, SourceError> {
        let limit = self.patience.call;
        self.asked = Instant::now();
        match timeout(limit, question(self.source.as_mut())).await {
            Ok(answer) => answer,
            Err(_) => {
                let (name, seconds) = (self.source.name(), limit.as_secs());
                Err(SourceError::Retryable(format!("{name} did not answer within {seconds} s")))
            }
        }
    }

    /// Waits after a failure, longer each time, unless it is final. The time that the failed call took
    /// counts as waited: a source that heals is asked as soon after a hang as after a refusal.
    async fn wait_after(&mut self, error: impl Into<SurveyError>) -> Result<(), FollowError> {
        let (reason, asked_wait) = match error.into() {
            SurveyError::Final(error) => return Err(error),
            SurveyError::Source(SourceError::Gone(reason) | SourceError::Fatal(reason)) => {
                return Err(FollowError::Source(reason));
            }
            SurveyError::Source(SourceError::Retryable(reason)) => (reason, Duration::ZERO),
            SurveyError::Source(SourceError::RetryAfter { reason, delay }) => (reason, delay),
        };
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let longest = self.patience.longest_retry;
        let delay = self.patience.first_retry.saturating_mul(1 << doublings).min(longest);
        let delay = delay.mul_f64(self.chance.random_range(0.5..=1.0));
        let delay = delay.saturating_sub(self.asked.elapsed());
        let delay = delay.max(asked_wait.min(LONGEST_ASKED_WAIT));
        if self.failures >= FAILURES_UNTIL_DOWN || delay > longest {
            self.reports.health.down(COMPONENT, reason.clone());
        }
        tracing::warn!(
            failures = self.failures,
            retry_in_ms = delay.as_millis() as u64,
            "the source failed: {reason}"
        );
        sleep(delay).await;
        Ok(())
    }

    fn works(&mut self) {
        self.failures = 0;
        self.reports.health.up(COMPONENT);
    }

    /// The tip never falls back: a source that lags says nothing about the network.
    fn reports_tip(&self, ledger: LedgerSeq) {
        let known = self.reports.health.network_latest();
        if known.is_none_or(|known| known < ledger) {
            self.reports.health.network_latest_is(ledger);
            self.reports.metrics.network_latest_is(ledger);
        }
    }
}

/// A failure of a survey: of the source, or of what it can offer.
enum SurveyError {
    Source(SourceError),
    Final(FollowError),
}

impl From<SourceError> for SurveyError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

enum Sent {
    All,
    /// The next ledger after the last one sent is missing; this one comes after the gap.
    UntilGap(LedgerSeq),
    Closed,
    EndOfNumbers,
}

/// Sends what continues at `next` without a gap, and moves `next` behind it.
async fn send_in_order(
    mut ledgers: Vec<RawLedger>,
    next: &mut LedgerSeq,
    out: &mpsc::Sender<RawLedger>,
) -> Sent {
    ledgers.sort_by_key(|ledger| ledger.sequence);
    for ledger in ledgers {
        if ledger.sequence < *next {
            continue;
        }
        if ledger.sequence > *next {
            return Sent::UntilGap(ledger.sequence);
        }
        if out.send(ledger).await.is_err() {
            return Sent::Closed;
        }
        match next.next() {
            Some(following) => *next = following,
            None => return Sent::EndOfNumbers,
        }
    }
    Sent::All
>>>>>>> FETCH_HEAD
}

#[cfg(test)]
mod tests;
