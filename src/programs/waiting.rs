//! Tracks runs for which state was missing because ledgers before theirs were not stored yet: which
//! runs these are, and when to repeat them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::storage::WaitingRun;
use orrery_ledger::domain::{LedgerRange, LedgerSeq};
use orrery_store::{Store, TransactionPosition};

/// Maximum number of waiting runs per program. Further ones are given up and counted.
pub(super) const MAX_WAITING: usize = 10_000;
/// Delay after a pass, as a multiple of the duration of the pass and up to [`MAX_PASS_DELAY`].
/// Without it, an import that runs backwards would repeat all waiting runs after each ledger.
const PASS_BACKOFF_FACTOR: u32 = 4;
const MAX_PASS_DELAY: Duration = Duration::from_secs(60);

/// The runs of one program that are to be repeated.
#[derive(Debug, Default)]
pub struct WaitingRuns {
    /// For each transaction, the first ledger of the gapless range that ended at its own when it
    /// was run.
    runs: BTreeMap<TransactionPosition, LedgerSeq>,
    /// The pass in progress.
    pass: Option<Pass>,
    /// First ledgers of the stored ranges at the last time when no run was due.
    examined_firsts: Option<Vec<LedgerSeq>>,
    not_before: Option<Instant>,
}

/// A pass repeats, once, every run that benefits from the ranges stored at its start.
#[derive(Debug)]
struct Pass {
    ranges: Vec<LedgerRange>,
    begun: Instant,
}

/// Runs to repeat now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// No run is due.
    Nothing,
    /// Ask again after this delay.
    Later(Duration),
    /// These transactions of this ledger are due.
    Now(LedgerSeq, BTreeSet<TransactionPosition>),
}

impl WaitingRuns {
    /// Takes the waiting runs read from the store.
    pub(super) fn from_stored(stored: Vec<WaitingRun>) -> Self {
        let runs = stored.into_iter().map(|run| (run.position, run.from)).collect();
        Self { runs, ..Self::default() }
    }

    /// Returns the number of waiting runs.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns whether the run of this transaction is waiting.
    pub(super) fn contains(&self, position: TransactionPosition) -> bool {
        self.runs.contains_key(&position)
    }

    /// Returns the transactions of the waiting runs, in chain order.
    pub(super) fn positions(&self) -> Vec<TransactionPosition> {
        self.runs.keys().copied().collect()
    }

    /// Makes all runs due, because state that was missing may be available now.
    pub(super) fn mark_all_due(&mut self) {
        self.runs.values_mut().for_each(|from| *from = LedgerSeq(u32::MAX));
        self.examined_firsts = None;
    }

    /// Applies a finished write: adds the runs in `added` and removes those in `removed`.
    pub(super) fn apply_write(&mut self, added: &[WaitingRun], removed: &[TransactionPosition]) {
        for position in removed {
            self.runs.remove(position);
        }
        self.runs.extend(added.iter().map(|run| (run.position, run.from)));
        if !added.is_empty() {
            self.examined_firsts = None;
        }
    }

    /// Returns the runs worth repeating, because ledgers before them were stored since: those of
    /// one ledger at a time.
    pub(super) fn due(&mut self, store: &Store, now: Instant) -> Due {
        if self.runs.is_empty() {
            self.pass = None;
            return Due::Nothing;
        }
        let pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let ranges = store.status().ranges;
                if self.examined_firsts.as_ref() == Some(&firsts(&ranges)) {
                    return Due::Nothing;
                }
                if let Some(not_before) = self.not_before.filter(|not_before| *not_before > now) {
                    return Due::Later(not_before - now);
                }
                Pass { ranges, begun: now }
            }
        };
        let is_due = |(position, from): &(&TransactionPosition, &LedgerSeq)| {
            let after = pass.ranges.partition_point(|range| range.first <= position.ledger);
            let range = after.checked_sub(1).and_then(|at| pass.ranges.get(at));
            range.is_some_and(|range| range.first < **from)
        };
        let mut due = self.runs.iter().filter(is_due).map(|(position, _)| *position).peekable();
        match due.peek().map(|position| position.ledger) {
            Some(ledger) => {
                let due = due.take_while(|position| position.ledger == ledger).collect();
                self.pass = Some(pass);
                Due::Now(ledger, due)
            }
            None => {
                drop(due);
                let took = now.saturating_duration_since(pass.begun);
                self.not_before = Some(now + (took * PASS_BACKOFF_FACTOR).min(MAX_PASS_DELAY));
                self.examined_firsts = Some(firsts(&pass.ranges));
                // More ledgers may have been stored during the pass.
                if self.examined_firsts == Some(firsts(&store.status().ranges)) {
                    Due::Nothing
                } else {
                    Due::Later((took * PASS_BACKOFF_FACTOR).min(MAX_PASS_DELAY))
                }
            }
        }
    }
}

fn firsts(ranges: &[LedgerRange]) -> Vec<LedgerSeq> {
    ranges.iter().map(|range| range.first).collect()
}

#[cfg(test)]
impl WaitingRuns {
    /// Skips the delay before the next pass.
    pub(super) fn skip_delay(&mut self) {
        self.not_before = None;
    }
}
