//! One source of the list and what the follower knows of it: what it last said, what is wrong with it,
//! and when it may be asked again.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tokio::time::Instant;

use super::{Candidate, LedgerSource, Timing};
use crate::domain::{LedgerRange, LedgerSeq};

/// Failures in a row before a source counts as down; fewer are ordinary on a network.
pub(super) const FAILURES_UNTIL_DOWN: u32 = 3;
/// A source may ask for a longer wait than this; it is asked again nevertheless.
pub(super) const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(60);
/// Good answers in a row, one with each survey, before a source that failed is used again while another
/// one works: so that two sources are not used by turns.
const GOOD_PROBES_UNTIL_BACK: u32 = 2;
/// The same for a source that had another chain than the stored one.
const GOOD_PROBES_AFTER_DISPUTE: u32 = 30;
/// A source may lag this many ledgers behind what is stored without being suspected of a reset.
pub(super) const ORDINARY_LAG: u32 = 16;

/// Whether a source with these ledgers ends further before the one that is needed than one that works does.
pub(super) fn ends_far_before(range: LedgerRange, next: LedgerSeq) -> bool {
    range.last.0.saturating_add(ORDINARY_LAG) < next.0
}
/// What a source has lost once may soon be lost again at the edge of its window: it is used again this
/// many ledgers inside, or a tenth of the window.
const MOST_MARGIN: u64 = 4096;
/// The longest wait between two probes, in surveys.
const LONGEST_PROBE_WAIT: u32 = 8;

/// A source of the list.
pub(super) struct Member {
    pub label: String,
    pub source: Box<dyn LedgerSource>,
    /// Whether it was asked for its network, which is the right one.
    pub network_checked: bool,
    pub survey: Option<Survey>,
    /// What keeps it from being used.
    trouble: Option<Trouble>,
    failures: u32,
    /// It is not asked before.
    rests_until: Instant,
    /// A stored ledger to ask it for again, to see whether it has the same one.
    pub compare: Option<LedgerSeq>,
    /// When it is next looked at while another source is in use.
    probe_at: Instant,
    probe_wait: Duration,
    good_probes: u32,
    /// Whether the ledger that it lacks lies outside what it says it has.
    out_of_range: bool,
    /// Why it is never asked again.
    over: Option<String>,
}

/// What a source said it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Survey {
    pub at: Instant,
    pub range: Option<LedgerRange>,
}

/// What is wrong with a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    pub kind: Kind,
    /// One sentence.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It does not answer as it should, which may pass.
    Fails,
    /// It leaves out a ledger that lies between others.
    Skips,
    /// It does not have the ledger, and others may.
    Lacks,
    /// It ends far before what is stored.
    Behind,
    /// It yields another network.
    OtherNetwork,
    /// This ledger of it could not be stored.
    Refused(LedgerSeq),
    /// It has another ledger than the stored one under this number.
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
            rests_until: now,
            compare: None,
            probe_at: now,
            probe_wait: Duration::ZERO,
            good_probes: 0,
            out_of_range: false,
            over: None,
        }
    }

    /// Whether another source is to be asked instead, if there is one.
    pub fn is_troubled(&self) -> bool {
        self.over.is_some()
            || self.trouble.as_ref().is_some_and(|trouble| match trouble.kind {
                Kind::Fails => self.failures >= FAILURES_UNTIL_DOWN,
                _ => true,
            })
    }

    /// Whether that is to be reported when there is no other source.
    pub fn is_down(&self) -> bool {
        self.over.is_some()
            || self.trouble.as_ref().is_some_and(|trouble| match trouble.kind {
                Kind::Fails | Kind::Skips => self.failures >= FAILURES_UNTIL_DOWN,
                _ => true,
            })
    }

    /// Whether it said that it will never answer.
    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Why it is not used.
    pub fn reason(&self) -> Option<&str> {
        self.over.as_deref().or(self.trouble.as_ref().map(|trouble| trouble.reason.as_str()))
    }

    /// What keeps it from being used.
    pub fn kind(&self) -> Option<Kind> {
        self.trouble.as_ref().map(|trouble| trouble.kind)
    }

    /// Whether it has repeatedly said that it does not have the ledger.
    pub fn lacks_for_good(&self) -> bool {
        let lacks = matches!(self.kind(), Some(Kind::Lacks | Kind::Skips));
        self.over.is_some() || (lacks && self.failures >= FAILURES_UNTIL_DOWN)
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When it may be asked again.
    pub fn rests_until(&self) -> Instant {
        self.rests_until
    }

    /// Lets it rest without blame.
    pub fn rest(&mut self, until: Instant) {
        self.rests_until = until;
    }

    /// When it should next be asked for its range.
    pub fn survey_due(&self, timing: &Timing) -> Instant {
        self.survey.map_or_else(Instant::now, |survey| survey.at + timing.survey)
    }

    /// The range that it last said, if it says one.
    pub fn range(&self) -> Option<LedgerRange> {
        self.survey.and_then(|survey| survey.range)
    }

    /// It answered as it should. What it sent may still be refused, so a refusal stays.
    pub fn works(&mut self) {
        if !matches!(self.kind(), Some(Kind::Refused(_) | Kind::Disputes(_))) {
            self.is_good();
        }
    }

    /// Nothing is wrong with it any more.
    pub fn is_good(&mut self) {
        self.failures = 0;
        self.trouble = None;
        self.compare = None;
        self.good_probes = 0;
    }

    /// Other ledgers are needed: what it lacked says nothing about them.
    pub fn turns_to_others(&mut self) {
        if matches!(self.kind(), Some(Kind::Lacks | Kind::Skips)) {
            self.is_good();
        }
    }

    /// A ledger of it that was refused before has been stored.
    pub fn stored(&mut self, newest: LedgerSeq) {
        if let Some(Kind::Refused(ledger) | Kind::Disputes(ledger)) = self.kind()
            && newest >= ledger
        {
            self.is_good();
        }
    }

    /// Notes whether the ledger that it was asked for lies outside what it says it has.
    pub fn lacks(&mut self, next: LedgerSeq) {
        self.out_of_range = self.kind() == Some(Kind::Lacks) && !self.reaches(next);
    }

    /// It failed: it rests, longer each time. The time since it was `asked` counts as rested: a source
    /// that heals is asked as soon after a hang as after a refusal. Returns the rest that is left.
    pub fn fails(
        &mut self,
        trouble: Trouble,
        asked: Instant,
        asked_wait: Duration,
        timing: &Timing,
        chance: &mut StdRng,
    ) -> Duration {
        let doublings = self.failures.min(16);
        self.failures = self.failures.saturating_add(1);
        let longest = timing.longest_retry;
        let delay = timing.first_retry.saturating_mul(1 << doublings).min(longest);
        let delay = delay.mul_f64(chance.random_range(0.5..=1.0));
        let delay = delay.saturating_sub(asked.elapsed());
        let delay = delay.max(asked_wait.min(LONGEST_ASKED_WAIT));
        if delay > longest {
            // It will be away for long.
            self.failures = self.failures.max(FAILURES_UNTIL_DOWN);
        }
        let disputes = matches!(self.kind(), Some(Kind::Disputes(_)));
        // That it ends early says less than that it has other ledgers.
        if !(disputes && trouble.kind == Kind::Behind) {
            self.trouble = Some(trouble);
        }
        let now = Instant::now();
        self.rests_until = now + delay;
        self.good_probes = 0;
        self.probe_wait = timing.survey;
        self.probe_at = now + self.probe_wait;
        delay
    }

    /// It did not answer at all: one such failure counts as several.
    pub fn hung(&mut self) {
        self.failures = self.failures.max(FAILURES_UNTIL_DOWN - 1);
    }

    /// It will never answer.
    pub fn ends(&mut self, reason: String) {
        self.over = Some(reason);
    }

    /// When it is next looked at, while another source is in use: at once when the ledger needed now lies
    /// inside what it last said it has, and the one before did not.
    pub fn probe_at(&self, next: LedgerSeq) -> Option<Instant> {
        let waits = self.is_troubled() && !self.is_over();
        let inside = self.out_of_range && self.reaches(next);
        let at = if inside { self.rests_until } else { self.probe_at.max(self.rests_until) };
        waits.then_some(at)
    }

    /// It was looked at while another source is in use, and the next ledger is `next`.
    pub fn probed(&mut self, answer: Result<(), String>, next: LedgerSeq, timing: &Timing) {
        let now = Instant::now();
        match answer {
            Ok(()) if self.reaches(next) => {
                self.good_probes += 1;
                self.probe_wait = timing.survey;
                let enough = match self.kind() {
                    // What was out of its window, and is inside now, was no failure of the source.
                    Some(Kind::Lacks) if self.out_of_range => 1,
                    Some(Kind::Disputes(_)) => GOOD_PROBES_AFTER_DISPUTE,
                    _ => GOOD_PROBES_UNTIL_BACK,
                };
                if self.good_probes >= enough {
                    self.is_good();
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

    /// Whether the ledger lies inside what it says it has, or soon will.
    fn reaches(&self, next: LedgerSeq) -> bool {
        let Some(range) = self.range() else { return true };
        let margin = if self.kind() == Some(Kind::Lacks) { range.len() / 10 } else { 0 };
        let from = u64::from(range.first.0) + margin.min(MOST_MARGIN);
        let ends_before = ends_far_before(range, next);
        // Once it said that it does not have a ledger, only what it says it has counts.
        let reaches_back = self.kind() != Some(Kind::Lacks) && self.source.may_reach_back();
        (from <= u64::from(next.0) || reaches_back) && !ends_before
    }
}
