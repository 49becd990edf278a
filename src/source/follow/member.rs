//! State of one source in the follower's list: its last reported range, its trouble, and when it
//! may be asked again.

use std::time::Duration;

use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSource};
use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::Instant;

use super::{Candidate, Timing};

/// Consecutive failures before a source counts as down; fewer are ordinary on a network.
pub(super) const FAILURES_UNTIL_DOWN: u32 = 3;
/// Maximum delay that a source can impose; it is asked again after this time even if it asks for
/// more.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Consecutive good probes before a source that failed is used again while another one works.
/// Prevents two sources from alternating.
const GOOD_PROBES_UNTIL_BACK: u32 = 2;
/// Consecutive good probes before a source whose chain differed from the stored one is used again.
const GOOD_PROBES_AFTER_DISPUTE: u32 = 30;
/// Number of ledgers that a source may lag behind the stored ones without being suspected of a
/// reset.
pub(super) const ORDINARY_LAG: u32 = 16;

/// Returns whether a source with this range ends more than [`ORDINARY_LAG`] ledgers before the one
/// that is needed.
pub(super) fn ends_far_before(range: LedgerRange, next: LedgerSeq) -> bool {
    range.last.0.saturating_add(ORDINARY_LAG) < next.0
}
/// A source that lacked a ledger is used again when the needed ledger is this many ledgers inside
/// its window, or a tenth of the window if that is less: ledgers at the edge may soon be lost
/// again.
const MAX_MARGIN: u64 = 4096;
/// Maximum delay between two probes, in survey intervals.
const LONGEST_PROBE_WAIT: u32 = 8;

/// A source of the list with its state.
pub(super) struct Member {
    pub label: String,
    pub source: Box<dyn LedgerSource>,
    /// Whether the source's network was checked and is the right one.
    pub network_checked: bool,
    pub survey: Option<Survey>,
    /// Trouble that keeps the source from being used.
    trouble: Option<Trouble>,
    failures: u32,
    /// Time before which the source is not asked.
    next_request_at: Instant,
    /// Stored ledger to request again, to compare the source's copy with the stored one.
    pub compare: Option<LedgerSeq>,
    /// Time of the next probe while another source is in use.
    probe_at: Instant,
    probe_wait: Duration,
    good_probes: u32,
    /// Whether the ledger that the source lacks lies outside its reported range.
    out_of_range: bool,
    /// Why the source is never asked again; `None` while it is usable.
    fatal: Option<String>,
}

/// The range that a source reported, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Survey {
    pub at: Instant,
    pub range: Option<LedgerRange>,
}

/// What keeps a source from being used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub kind: Kind,
    /// The reason, one sentence.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The source fails, perhaps temporarily.
    Fails,
    /// The source leaves out a ledger between others.
    Skips,
    /// The source does not have the ledger; other sources may.
    Lacks,
    /// The source ends far before the stored ledgers.
    Behind,
    /// The source yields ledgers of another network.
    OtherNetwork,
    /// This ledger of the source could not be stored.
    Refused(LedgerSeq),
    /// The source's ledger with this sequence number differs from the stored one.
    Disputes(LedgerSeq),
}

impl Trouble {
    pub fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }
}

impl Member {
    pub fn new(candidate: Candidate) -> Self {
        let Candidate { label, source } = candidate;
        let now = Instant::now();
        Self {
            label,
            source,
            network_checked: false,
            survey: None,
            trouble: None,
            failures: 0,
            next_request_at: now,
            compare: None,
            probe_at: now,
            probe_wait: Duration::ZERO,
            good_probes: 0,
            out_of_range: false,
            fatal: None,
        }
    }

    /// Returns whether another source is to be asked instead, if there is one.
    pub fn is_troubled(&self) -> bool {
        self.fatal.is_some()
            || self.trouble.as_ref().is_some_and(|trouble| match trouble.kind {
                Kind::Fails => self.failures >= FAILURES_UNTIL_DOWN,
                _ => true,
            })
    }

    /// Returns whether the source is to be reported as down when there is no other source.
    pub fn is_down(&self) -> bool {
        self.fatal.is_some()
            || self.trouble.as_ref().is_some_and(|trouble| match trouble.kind {
                Kind::Fails | Kind::Skips => self.failures >= FAILURES_UNTIL_DOWN,
                _ => true,
            })
    }

    /// Returns whether the source will never answer.
    pub fn is_fatal(&self) -> bool {
        self.fatal.is_some()
    }

    /// Returns why the source is not used.
    pub fn reason(&self) -> Option<&str> {
        self.fatal.as_deref().or(self.trouble.as_ref().map(|trouble| trouble.reason.as_str()))
    }

    /// Returns the kind of the current trouble.
    pub fn kind(&self) -> Option<Kind> {
        self.trouble.as_ref().map(|trouble| trouble.kind)
    }

    /// Returns whether the source has repeatedly lacked the ledger, or will never answer.
    pub fn lacks_permanently(&self) -> bool {
        let lacks = matches!(self.kind(), Some(Kind::Lacks | Kind::Skips));
        self.fatal.is_some() || (lacks && self.failures >= FAILURES_UNTIL_DOWN)
    }

    /// Returns the number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the time before which the source is not asked.
    pub fn next_request_at(&self) -> Instant {
        self.next_request_at
    }

    /// Delays the next request without counting a failure.
    pub fn delay_until(&mut self, until: Instant) {
        self.next_request_at = until;
    }

    /// Returns when the source should next be asked for its range.
    pub fn survey_due(&self, timing: &Timing) -> Instant {
        self.survey.map_or_else(Instant::now, |survey| survey.at + timing.survey)
    }

    /// Returns the last reported range, if any.
    pub fn range(&self) -> Option<LedgerRange> {
        self.survey.and_then(|survey| survey.range)
    }

    /// Records a correct answer. A refusal or dispute stays, because what the source sent may be
    /// refused again.
    pub fn record_success(&mut self) {
        if !matches!(self.kind(), Some(Kind::Refused(_) | Kind::Disputes(_))) {
            self.clear_trouble();
        }
    }

    /// Clears all trouble.
    pub fn clear_trouble(&mut self) {
        self.failures = 0;
        self.trouble = None;
        self.compare = None;
        self.good_probes = 0;
    }

    /// Clears a lack of ledgers, because other ledgers are needed from now on.
    pub fn reset_for_new_task(&mut self) {
        if matches!(self.kind(), Some(Kind::Lacks | Kind::Skips)) {
            self.clear_trouble();
        }
    }

    /// Clears a refusal or dispute once the refused ledger, or a later one of this source, is
    /// stored.
    pub fn record_stored(&mut self, newest: LedgerSeq) {
        if let Some(Kind::Refused(ledger) | Kind::Disputes(ledger)) = self.kind()
            && newest >= ledger
        {
            self.clear_trouble();
        }
    }

    /// Records whether the needed ledger is lacking because it lies outside the reported range.
    pub fn update_out_of_range(&mut self, next: LedgerSeq) {
        self.out_of_range = self.kind() == Some(Kind::Lacks) && !self.reaches(next);
    }

    /// Records a failure and delays the next request, longer each time. The time since the source
    /// was `asked` counts towards the delay, so that a source that recovers is asked as soon after
    /// a hang as after a refusal. Returns the remaining delay.
    pub fn record_failure(
        &mut self,
        trouble: Trouble,
        asked: Instant,
        retry_after: Duration,
        timing: &Timing,
        rng: &mut StdRng,
    ) -> Duration {
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let longest = timing.longest_retry;
        let delay = timing.first_retry.saturating_mul(1 << doublings).min(longest);
        let delay = delay.mul_f64(rng.random_range(0.5..=1.0));
        let delay = delay.saturating_sub(asked.elapsed());
        let delay = delay.max(retry_after.min(MAX_RETRY_AFTER));
        if delay > longest {
            // After such a long delay the source counts as down.
            self.failures = self.failures.max(FAILURES_UNTIL_DOWN);
        }
        let disputes = matches!(self.kind(), Some(Kind::Disputes(_)));
        // Ending early says less than having other ledgers, so a dispute stays.
        if !(disputes && trouble.kind == Kind::Behind) {
            self.trouble = Some(trouble);
        }
        let now = Instant::now();
        self.next_request_at = now + delay;
        self.good_probes = 0;
        self.probe_wait = timing.survey;
        self.probe_at = now + self.probe_wait;
        delay
    }

    /// Raises the failure count before [`Self::record_failure`], so that a single request without an answer
    /// makes the source count as down.
    pub fn record_timeout(&mut self) {
        self.failures = self.failures.max(FAILURES_UNTIL_DOWN - 1);
    }

    /// Marks the source as one that will never answer.
    pub fn set_fatal(&mut self, reason: String) {
        self.fatal = Some(reason);
    }

    /// Returns when to probe the source while another one is in use; `None` when it needs no probe.
    /// The probe need not wait for its interval when the ledger needed now lies inside the reported
    /// range and the one before did not.
    pub fn probe_at(&self, next: LedgerSeq) -> Option<Instant> {
        let waits = self.is_troubled() && !self.is_fatal();
        let inside = self.out_of_range && self.reaches(next);
        let at =
            if inside { self.next_request_at } else { self.probe_at.max(self.next_request_at) };
        waits.then_some(at)
    }

    /// Records the result of a probe while another source is in use; `next` is the ledger needed.
    pub fn record_probe(&mut self, answer: Result<(), String>, next: LedgerSeq, timing: &Timing) {
        let now = Instant::now();
        match answer {
            Ok(()) if self.reaches(next) => {
                self.good_probes += 1;
                self.probe_wait = timing.survey;
                let enough = match self.kind() {
                    // A ledger that was outside the window and is now inside was not a failure of
                    // the source.
                    Some(Kind::Lacks) if self.out_of_range => 1,
                    Some(Kind::Disputes(_)) => GOOD_PROBES_AFTER_DISPUTE,
                    _ => GOOD_PROBES_UNTIL_BACK,
                };
                if self.good_probes >= enough {
                    self.clear_trouble();
                }
            }
            Ok(()) => self.good_probes = 0,
            Err(reason) => {
                self.out_of_range = false;
                self.good_probes = 0;
                self.probe_wait = (self.probe_wait * 2).min(timing.survey * LONGEST_PROBE_WAIT);
                if let Some(trouble) = &mut self.trouble
                    && trouble.kind == Kind::Fails
                {
                    trouble.reason = reason;
                }
            }
        }
        self.probe_at = now + self.probe_wait;
    }

    /// Returns whether the ledger lies inside the reported range, or soon will.
    fn reaches(&self, next: LedgerSeq) -> bool {
        let Some(range) = self.range() else { return true };
        let margin = if self.kind() == Some(Kind::Lacks) { range.len() / 10 } else { 0 };
        let from = u64::from(range.first.0) + margin.min(MAX_MARGIN);
        let ends_before = ends_far_before(range, next);
        // Once the source lacked a ledger, only its reported range counts.
        let reaches_back = self.kind() != Some(Kind::Lacks) && self.source.may_reach_back();
        (from <= u64::from(next.0) || reaches_back) && !ends_before
    }
}
