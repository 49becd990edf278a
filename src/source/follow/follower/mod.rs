//! The follower's main loop, and the choice of the source to ask next.

mod reporting;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use orrery_ledger::domain::{LedgerSeq, Network, RawLedger, SourceError, StartPoint};
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::in_flight::{InFlight, Sent};
use super::member::{Kind, Member, Trouble};
use super::window::Window;
use super::{Candidate, RangeOf, Refusal, Reports, Timing};

/// Why following has ended for good: the numbers of ledgers are used up, no source has a ledger of a
/// bounded task or can answer any more, or none has yielded a new ledger for too long.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FollowError(String);

impl FollowError {
    fn end_of_numbers(last: LedgerSeq) -> Self {
        Self(format!("ledger {last} has the largest possible sequence number"))
    }
}

/// How following ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// The last ledger of the task was sent, or is stored already.
    Done,
    /// The source has no more ledgers.
    SourceEnded,
    /// The receiver of the ledgers was dropped.
    ReceiverClosed,
}

/// The ledgers that a follower has to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// First ledger; `None` begins where `start` says.
    pub next: Option<LedgerSeq>,
    /// Where to begin when `next` is `None`.
    pub start: StartPoint,
    /// Last ledger; `None` for a task without an end.
    pub last: Option<LedgerSeq>,
}

/// Follows a list of sources: uses the first while it works, and the others in their order for
/// ledgers that it does not yield. Uses tokio's clock, and `rng` for random numbers.
pub struct Follower {
    members: Vec<Member>,
    /// Index of the source that was asked last.
    active: Option<usize>,
    /// Index of the source that the log names as the one in use: the last one that answered.
    announced: Option<usize>,
    /// Whether the log says that the task has received all ledgers that were closed before it.
    has_caught_up: bool,
    network: Network,
    range_of: RangeOf,
    reports: Reports,
    timing: Timing,
    rng: StdRng,
    task: Task,
    /// Next ledger to send; `None` until the start is determined.
    next: Option<LedgerSeq>,
    in_flight: Arc<InFlight>,
    window: Window,
    /// Time at which the last new ledger was sent, or at which the task started.
    progress: Option<Instant>,
}

/// Why a source's answer cannot be used.
enum Fault {
    /// A retry may succeed; with the minimum delay that the source asks for.
    Trouble(Trouble, Duration),
    /// The source did not answer before the timeout.
    TimedOut(String),
    /// The source will never answer.
    Fatal(String),
}

/// Result of a request to a source.
enum Outcome {
    Answered,
    Ended(Followed),
    EndOfNumbers(LedgerSeq),
}

impl Follower {
    /// Creates a follower of `sources`, which must yield ledgers of `network`. It skips ledgers
    /// that are stored according to `range_of`.
    pub fn new(
        sources: Vec<Candidate>,
        task: Task,
        network: Network,
        range_of: RangeOf,
        reports: Reports,
        timing: Timing,
        rng: StdRng,
    ) -> Self {
        let members: Vec<Member> = sources.into_iter().map(Member::new).collect();
        Self {
            members,
            active: None,
            announced: None,
            has_caught_up: false,
            network,
            range_of,
            reports,
            timing,
            rng,
            task,
            next: task.next,
            in_flight: Arc::default(),
            window: Window::default(),
            progress: None,
        }
    }

    /// Ends this follower and returns its sources, for another one.
    pub fn into_sources(self) -> Vec<Candidate> {
        self.members.into_iter().map(|it| Candidate::new(it.label, it.source)).collect()
    }

    /// Starts another task. The previous task must have ended.
    pub fn start_task(&mut self, task: Task) {
        self.in_flight.abandon(None);
        (self.task, self.next, self.progress) = (task, task.next, None);
        for member in &mut self.members {
            member.reset_for_new_task();
        }
    }

    /// Returns the ledgers that were sent and are not known to be stored. The code that stores them
    /// reports it there.
    pub fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// Sends every ledger of the task once and in order, until the last one is sent, the source
    /// ends, the receiver is dropped, or no source can go on. Dropping the future stops it at once:
    /// each ledger is either sent or requested again. May be called again, after [`Self::refused`]
    /// or [`Self::interrupted`].
    ///
    /// # Errors
    /// When no source can go on; temporary failures are waited for instead, and reported to health.
    pub async fn run(&mut self, out: mpsc::Sender<RawLedger>) -> Result<Followed, FollowError> {
        let result = self.follow(&out).await;
        if let Err(error) = &result {
            self.reports.health.down(self.reports.component, error.to_string());
        }
        result
    }

    /// Records that the oldest ledger in flight, or the one that the refusal names, could not be stored,
    /// for a reason that lies in that ledger: other sources are asked for it, and its own source after a delay. The receiver must
    /// have been dropped.
    pub fn refused(&mut self, refusal: &Refusal) {
        let wrong = match refusal {
            Refusal::Waiting { wrong, .. } => Some(*wrong),
            Refusal::Data(_) | Refusal::Link(_) | Refusal::Conflict(_) => None,
        };
        let (culprit, resend_from) = self.in_flight.abandon(wrong);
        self.next = resend_from.or(self.next);
        let Some(Sent { ledger, source, .. }) = culprit else { return };
        let Some(member) = self.members.get_mut(source) else { return };
        let (kind, compare) = match refusal {
            Refusal::Data(_) | Refusal::Waiting { .. } => (Kind::Refused(ledger), None),
            // Comparing the ledger before with the stored one shows which side is wrong.
            Refusal::Link(_) => (Kind::Refused(ledger), ledger.previous()),
            Refusal::Conflict(_) => (Kind::Disputes(ledger), Some(ledger)),
        };
        member.compare = compare.filter(|compare| (self.range_of)(*compare).is_some());
        let trouble = Trouble::new(kind, refusal.reason());
        self.record_fault(source, Fault::Trouble(trouble, Duration::ZERO), Instant::now());
    }

    /// Records that the ledgers in flight could not be stored, for a reason that does not lie in
    /// them: they are sent again. The receiver must have been dropped.
    pub fn interrupted(&mut self) {
        let (_, resend_from) = self.in_flight.abandon(None);
        self.next = resend_from.or(self.next);
    }

    async fn follow(&mut self, out: &mpsc::Sender<RawLedger>) -> Result<Followed, FollowError> {
        loop {
            if out.is_closed() {
                return Ok(Followed::ReceiverClosed);
            }
            self.note_stored_ledgers();
            if let Some(next) = self.next {
                let missing = self.first_missing(next);
                let next = missing.ok_or_else(|| FollowError::end_of_numbers(next))?;
                self.next = Some(next);
                if self.task.last.is_some_and(|last| next > last) {
                    return Ok(Followed::Done);
                }
                self.give_up_if_hopeless(next)?;
            }
            let Some(index) = self.choose() else {
                return Err(FollowError(self.reasons()));
            };
            let now = Instant::now();
            let probe = self.next_probe(index);
            if let Some((other, at)) = probe
                && at <= now
            {
                self.probe(other).await;
                continue;
            }
            let next_request_at = self.members[index].next_request_at();
            if next_request_at > now {
                sleep_until(probe.map_or(next_request_at, |(_, at)| at.min(next_request_at))).await;
                continue;
            }
            self.activate(index);
            let asked = Instant::now();
            match self.fetch_next(index, out).await {
                Ok(Outcome::Answered) => {}
                Ok(Outcome::Ended(followed)) => return Ok(followed),
                Ok(Outcome::EndOfNumbers(last)) => return Err(FollowError::end_of_numbers(last)),
                Err(fault) => self.record_fault(index, fault, asked),
            }
        }
    }

    /// Chooses the source to ask: the first without trouble, otherwise the one that may be retried
    /// first. Returns `None` when no source is usable.
    fn choose(&self) -> Option<usize> {
        let usable = |index: &usize| !self.members[*index].is_fatal();
        let mut all = 0..self.members.len();
        if self.next.is_none() && self.task.start == StartPoint::Oldest {
            // Another source's oldest ledger would be a different start.
            return all.next().filter(usable);
        }
        let good = all.clone().find(|index| !self.members[*index].is_troubled());
        good.or_else(|| all.filter(usable).min_by_key(|i| self.members[*i].next_request_at()))
    }

    /// Returns the next preferred source to probe while `in_use` is used, and when to probe it.
    fn next_probe(&self, in_use: usize) -> Option<(usize, Instant)> {
        if self.members[in_use].is_troubled() {
            return None;
        }
        let next = self.next.unwrap_or_default();
        let before = self.members[..in_use].iter().enumerate();
        before.filter_map(|(i, member)| Some((i, member.probe_at(next)?))).min_by_key(|(_, at)| *at)
    }

    /// Returns the first ledger from `next` on that is not stored; `None` after the last sequence
    /// number.
    fn first_missing(&self, mut next: LedgerSeq) -> Option<LedgerSeq> {
        while let Some(range) = (self.range_of)(next) {
            next = range.last.next()?;
        }
        Some(next)
    }

    fn note_stored_ledgers(&mut self) {
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Some(newest) = self.in_flight.newest_stored(index) {
                member.record_stored(newest);
            }
        }
    }

    /// Fails when no source has the next ledger of a bounded task, or when a task has not
    /// progressed within [`Timing::give_up`].
    fn give_up_if_hopeless(&mut self, next: LedgerSeq) -> Result<(), FollowError> {
        if self.task.last.is_some() && self.members.iter().all(Member::lacks_permanently) {
            let reasons = self.reasons();
            return Err(FollowError(format!("no source has ledger {next}: {reasons}")));
        }
        let since = *self.progress.get_or_insert_with(Instant::now);
        match self.timing.give_up {
            Some(longest) if since.elapsed() > longest => Err(FollowError(self.reasons())),
            _ => Ok(()),
        }
    }
}

impl From<SourceError> for Fault {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Retryable(reason) => Self::fails(reason),
            SourceError::RetryAfter { reason, delay } => {
                Self::Trouble(Trouble::new(Kind::Fails, reason), delay)
            }
            SourceError::Gone(reason) => {
                Self::Trouble(Trouble::new(Kind::Lacks, reason), Duration::ZERO)
            }
            SourceError::Fatal(reason) => Self::Fatal(reason),
        }
    }
}

impl Fault {
    fn fails(reason: String) -> Self {
        Self::of(Kind::Fails, reason)
    }

    fn of(kind: Kind, reason: String) -> Self {
        Self::Trouble(Trouble::new(kind, reason), Duration::ZERO)
    }
}
