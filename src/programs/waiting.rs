//! Runs for which something of the state before was missing, because ledgers before theirs were not stored
//! yet: which they are, and when it is worth making them again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::domain::LedgerSeq;
use crate::store::{Store, TransactionPosition, WaitingRun};

/// Runs that are kept for one program. More are given up, and counted.
pub(super) const MOST_WAITING: usize = 10_000;
/// How long a program waits after a run that was made again in vain: at first, and at the most. Ledgers that
/// are imported backwards would else have all of them made again with each.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The runs of one program that are to be made again.
#[derive(Debug, Default)]
pub struct Waiting {
    /// By transaction: the first of the ledgers that were stored without a gap up to its own.
    runs: BTreeMap<TransactionPosition, LedgerSeq>,
    /// First ledgers of the stored ranges when nothing was due.
    looked_at: Option<Vec<LedgerSeq>>,
    wait: Duration,
    not_before: Option<Instant>,
}

/// What is to be made again now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// Something, after a while.
    Later(Duration),
    /// These transactions of a ledger.
    Now(LedgerSeq, BTreeSet<TransactionPosition>),
}

impl Waiting {
    /// Those that are stored.
    pub(super) fn of(stored: Vec<WaitingRun>) -> Self {
        let runs = stored.into_iter().map(|run| (run.position, run.from)).collect();
        Self { runs, ..Self::default() }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether a run is one of them.
    pub(super) fn has(&self, position: TransactionPosition) -> bool {
        self.runs.contains_key(&position)
    }

    /// All of them are to be made again, because more may be known than when they failed.
    pub(super) fn are_all_due(&mut self) {
        self.runs.values_mut().for_each(|from| *from = LedgerSeq(u32::MAX));
        self.looked_at = None;
    }

    /// Takes over what was written: runs that wait, and those that do no longer.
    pub(super) fn written(&mut self, waits: &[WaitingRun], over: &[TransactionPosition]) {
        for position in over {
            self.runs.remove(position);
        }
        for run in waits {
            if self.runs.insert(run.position, run.from).is_some() {
                self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
                self.not_before = Some(Instant::now() + self.wait);
            }
            self.looked_at = None;
        }
        if !over.is_empty() {
            (self.wait, self.not_before) = (Duration::ZERO, None);
        }
    }

    /// What is worth another try: runs before which ledgers were stored since, those of one ledger at a
    /// time.
    pub(super) fn due(&mut self, store: &Store, now: Instant) -> Due {
        if self.runs.is_empty() {
            return Due::Nothing;
        }
        let ranges = store.status().ranges;
        let firsts: Vec<LedgerSeq> = ranges.iter().map(|range| range.first).collect();
        if self.looked_at.as_ref() == Some(&firsts) {
            return Due::Nothing;
        }
        let is_due = |(position, from): &(&TransactionPosition, &LedgerSeq)| {
            let after = ranges.partition_point(|range| range.first <= position.ledger);
            let range = after.checked_sub(1).and_then(|at| ranges.get(at));
            range.is_some_and(|range| range.first < **from)
        };
        let Some(ledger) = self.runs.iter().find(is_due).map(|(position, _)| position.ledger)
        else {
            self.looked_at = Some(firsts);
            return Due::Nothing;
        };
        if let Some(not_before) = self.not_before.filter(|not_before| *not_before > now) {
            return Due::Later(not_before - now);
        }
        let of_ledger =
            |(position, _): &(&TransactionPosition, &LedgerSeq)| position.ledger == ledger;
        let due = self.runs.iter().filter(of_ledger).filter(is_due);
        let due = due.map(|(position, _)| *position).collect();
        Due::Now(ledger, due)
    }
}

#[cfg(test)]
impl Waiting {
    /// Does not wait for the next try.
    pub(super) fn hurry(&mut self) {
        self.not_before = None;
    }

    /// The transactions.
    pub(super) fn positions(&self) -> Vec<TransactionPosition> {
        self.runs.keys().copied().collect()
    }
}
