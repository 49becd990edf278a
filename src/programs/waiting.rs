//! Runs for which something of the state before was missing, because ledgers before theirs were not stored
//! yet: which they are, and when it is worth making them again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::domain::{LedgerRange, LedgerSeq};
use crate::store::{Store, TransactionPosition, WaitingRun};

/// Runs that are kept for one program. More are given up, and counted.
pub(super) const MOST_WAITING: usize = 10_000;
/// After a pass over them a program waits so many times as long as that took, within limits: ledgers that
/// are imported backwards would else have all of them made again with each.
const WAITS: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The runs of one program that are to be made again.
#[derive(Debug, Default)]
pub struct Waiting {
    /// By transaction: the first of the ledgers that were stored without a gap up to its own.
    runs: BTreeMap<TransactionPosition, LedgerSeq>,
    /// The pass that is under way.
    pass: Option<Pass>,
    /// First ledgers of the stored ranges when nothing was due.
    looked_at: Option<Vec<LedgerSeq>>,
    not_before: Option<Instant>,
}

/// Making everything again, once, that the ledgers of one moment are good for.
#[derive(Debug)]
struct Pass {
    ranges: Vec<LedgerRange>,
    begun: Instant,
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
        self.runs.extend(waits.iter().map(|run| (run.position, run.from)));
        if !waits.is_empty() {
            self.looked_at = None;
        }
    }

    /// What is worth another try: runs before which ledgers were stored since, those of one ledger at a
    /// time.
    pub(super) fn due(&mut self, store: &Store, now: Instant) -> Due {
        if self.runs.is_empty() {
            self.pass = None;
            return Due::Nothing;
        }
        let pass = match self.pass.take() {
            Some(pass) => pass,
            None => {
                let ranges = store.status().ranges;
                if self.looked_at.as_ref() == Some(&firsts(&ranges)) {
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
                self.not_before = Some(now + (took * WAITS).min(LONGEST_WAIT));
                self.looked_at = Some(firsts(&pass.ranges));
                // There may be more ledgers by now.
                match self.looked_at == Some(firsts(&store.status().ranges)) {
                    true => Due::Nothing,
                    false => Due::Later((took * WAITS).min(LONGEST_WAIT)),
                }
            }
        }
    }
}

fn firsts(ranges: &[LedgerRange]) -> Vec<LedgerSeq> {
    ranges.iter().map(|range| range.first).collect()
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
