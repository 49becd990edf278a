//! The loop that keeps ledgers coming, and the choice of the source that is asked next.

mod asking;
mod reporting;

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::flight::{Flight, Sent};
use super::member::{Kind, Member, Trouble};
use super::window::Window;
use super::{Candidate, Covered, Refusal, Reports, SourceError, Timing};
use crate::domain::{LedgerSeq, Network, StartPoint};
use crate::source::RawLedger;

/// Why following ended for good.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The sequence numbers of the network are used up.
    #[error("ledger {0} is the last that a sequence number can count")]
    EndOfNumbers(LedgerSeq),
    /// A ledger inside a bounded task is nowhere to be had.
    #[error("no source has ledger {ledger}: {reasons}")]
    Lacking {
        /// The ledger.
        ledger: LedgerSeq,
        /// What each source says.
        reasons: String,
    },
    /// No source can answer any more, or none has for too long.
    #[error("{0}")]
    Source(String),
}

/// How following ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Followed {
    /// The last ledger of the task was sent, or is stored already.
    Done,
    /// The source has no more ledgers.
    SourceEnded,
    /// Nobody takes ledgers any more.
    ReceiverClosed,
}

/// Which ledgers are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// The first one; without it, where `start` says.
    pub next: Option<LedgerSeq>,
    /// Where to begin when no first ledger is given.
    pub start: StartPoint,
    /// The last one; without it, there is no end.
    pub last: Option<LedgerSeq>,
}

/// Follows a list of sources: the first while it works, and the others in their order for what it does
/// not yield. Time is tokio's clock; chance comes from `chance`.
pub struct Follower {
    members: Vec<Member>,
    /// The one that was asked last.
    active: Option<usize>,
    network: Network,
    covered: Arc<dyn Covered>,
    reports: Reports,
    timing: Timing,
    chance: StdRng,
    task: Task,
    /// The next ledger to send, once it is known where to begin.
    next: Option<LedgerSeq>,
    flight: Arc<Flight>,
    window: Window,
    /// When the last new ledger was sent.
    progress: Option<Instant>,
}

/// Why a source's answer is no use.
enum Fault {
    /// It may have a better one after a rest, which it may ask for.
    Trouble(Trouble, Duration),
    /// It did not answer at all.
    Hung(String),
    /// It will never answer.
    Over(String),
}

/// What came of asking a source.
enum Outcome {
    Answered,
    Ended(Followed),
    EndOfNumbers(LedgerSeq),
}

impl Follower {
    /// Will follow `sources`, which must yield ledgers of `network`, and pass over what is `covered`.
    pub fn new(
        sources: Vec<Candidate>,
        task: Task,
        network: Network,
        covered: Arc<dyn Covered>,
        reports: Reports,
        timing: Timing,
        chance: StdRng,
    ) -> Self {
        let members: Vec<Member> = sources.into_iter().map(Member::new).collect();
        Self {
            members,
            active: None,
            network,
            covered,
            reports,
            timing,
            chance,
            task,
            next: task.next,
            flight: Arc::default(),
            window: Window::default(),
            progress: None,
        }
    }

    /// Goes on with other ledgers. The last task must have ended.
    pub fn turn_to(&mut self, task: Task) {
        self.flight.abandon();
        (self.task, self.next, self.progress) = (task, task.next, None);
        for member in &mut self.members {
            member.turns_to_others();
        }
    }

    /// The ledgers that were sent and are not known to be stored. Whoever stores them says so there.
    pub fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Sends every ledger of the task in order and once, until the last one is sent, the source ends,
    /// nobody receives, or no source can go on. Dropping the future stops it at once: a ledger is either
    /// sent or asked for again. It may be called again, after [`Self::refused`] or [`Self::interrupted`].
    ///
    /// # Errors
    /// [`FollowError`]; everything that may pass is waited for instead, and reported to health.
    pub async fn run(&mut self, out: mpsc::Sender<RawLedger>) -> Result<Followed, FollowError> {
        let result = self.follow(&out).await;
        if let Err(error) = &result {
            self.reports.health.down(self.reports.component, error.to_string());
        }
        result
    }

    /// What was sent last could not be stored, for a reason that lies in the oldest ledger on its way: the
    /// other sources are asked for it, and its own after a rest. The receiver must be gone.
    pub fn refused(&mut self, refusal: &Refusal) {
        let (culprit, again) = self.flight.abandon();
        self.next = again.or(self.next);
        let Some(Sent { ledger, source, .. }) = culprit else { return };
        let Some(member) = self.members.get_mut(source) else { return };
        let (kind, compare) = match refusal {
            Refusal::Data(_) => (Kind::Refused(ledger), None),
            // Whose fault it is shows in the ledger before: does this source have the same one?
            Refusal::Link(_) => (Kind::Refused(ledger), ledger.previous()),
            Refusal::Conflict(_) => (Kind::Disputes(ledger), Some(ledger)),
        };
        member.compare = compare.filter(|compare| self.covered.range_of(*compare).is_some());
        let trouble = Trouble::new(kind, refusal.reason());
        self.fault(source, Fault::Trouble(trouble, Duration::ZERO), Instant::now());
    }

    /// What was sent last could not be stored, for a reason that does not lie in the ledgers: they are sent
    /// again. The receiver must be gone.
    pub fn interrupted(&mut self) {
        let (_, again) = self.flight.abandon();
        self.next = again.or(self.next);
    }

    async fn follow(&mut self, out: &mpsc::Sender<RawLedger>) -> Result<Followed, FollowError> {
        loop {
            if out.is_closed() {
                return Ok(Followed::ReceiverClosed);
            }
            self.note_what_was_stored();
            if let Some(next) = self.next {
                let next = self.first_missing(next).ok_or(FollowError::EndOfNumbers(next))?;
                self.next = Some(next);
                if self.task.last.is_some_and(|last| next > last) {
                    return Ok(Followed::Done);
                }
                self.give_up_if_hopeless(next)?;
            }
            let Some(index) = self.choose() else {
                return Err(FollowError::Source(self.reasons()));
            };
            let now = Instant::now();
            let probe = self.next_probe(index);
            if let Some((other, at)) = probe
                && at <= now
            {
                self.probe(other).await;
                continue;
            }
            let rests_until = self.members[index].rests_until();
            if rests_until > now {
                sleep_until(probe.map_or(rests_until, |(_, at)| at.min(rests_until))).await;
                continue;
            }
            self.activate(index);
            let asked = Instant::now();
            match self.ask(index, out).await {
                Ok(Outcome::Answered) => {}
                Ok(Outcome::Ended(followed)) => return Ok(followed),
                Ok(Outcome::EndOfNumbers(last)) => return Err(FollowError::EndOfNumbers(last)),
                Err(fault) => self.fault(index, fault, asked),
            }
        }
    }

    /// The source to ask: the first that has no trouble. When all have, the one that has rested longest.
    fn choose(&self) -> Option<usize> {
        let usable = |index: &usize| !self.members[*index].is_over();
        let mut all = 0..self.members.len();
        if self.next.is_none() && self.task.start == StartPoint::Oldest {
            // What is oldest elsewhere is another beginning.
            return all.next().filter(usable);
        }
        let good = all.clone().find(|index| !self.members[*index].is_troubled());
        good.or_else(|| all.filter(usable).min_by_key(|i| self.members[*i].rests_until()))
    }

    /// A source that comes before the one in use, and when it is to be looked at.
    fn next_probe(&self, in_use: usize) -> Option<(usize, Instant)> {
        if self.members[in_use].is_troubled() {
            return None;
        }
        let next = self.next.unwrap_or_default();
        let before = self.members[..in_use].iter().enumerate();
        before.filter_map(|(i, member)| Some((i, member.probe_at(next)?))).min_by_key(|(_, at)| *at)
    }

    /// The first ledger from `next` on that is not stored.
    fn first_missing(&self, mut next: LedgerSeq) -> Option<LedgerSeq> {
        while let Some(range) = self.covered.range_of(next) {
            next = range.last.next()?;
        }
        Some(next)
    }

    fn note_what_was_stored(&mut self) {
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Some(newest) = self.flight.newest_stored(index) {
                member.stored(newest);
            }
        }
    }

    /// Ends a bounded task that nobody can fulfil.
    fn give_up_if_hopeless(&mut self, next: LedgerSeq) -> Result<(), FollowError> {
        if self.task.last.is_some() && self.members.iter().all(Member::lacks_for_good) {
            return Err(FollowError::Lacking { ledger: next, reasons: self.reasons() });
        }
        let since = *self.progress.get_or_insert_with(Instant::now);
        match self.timing.give_up {
            Some(longest) if since.elapsed() > longest => Err(FollowError::Source(self.reasons())),
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
            SourceError::Fatal(reason) => Self::Over(reason),
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
