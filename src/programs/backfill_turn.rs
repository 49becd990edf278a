//! Results of one turn of a backfill before they are written: the ledgers with runs, and the
//! ledgers passed over between them.

use super::backfill::{Backfill, State};
use super::effects::{Effects, PART_BYTES};
use super::records::Execution;
use super::writing::{MAX_ERRORS_IN_A_ROW, WrittenRuns, errors_in_a_row, stopped_because};
use orrery_ledger::domain::{LedgerRange, LedgerSeq};

/// Ledgers that need no run, or on which none is possible.
pub(super) struct SkippedLedgers {
    /// Ledgers on which no run is possible, because they are not stored.
    pub missing: Option<LedgerRange>,
    /// Ledgers of which something is not stored that the program needs.
    pub partial: Option<LedgerRange>,
    /// Ledger that follows; `None` when there is none.
    pub next: Option<LedgerSeq>,
}

/// Results of a turn.
pub(super) struct BackfillTurn {
    /// The backfill as far as the turn has advanced it. Its counts are those from the beginning of
    /// the turn: the new counts are known only after the write.
    pub backfill: Backfill,
    /// Results on the ledgers with runs.
    pub ledgers: Vec<Effects>,
    /// Ledgers passed over before each ledger of `ledgers`.
    pub skipped_before: Vec<Vec<SkippedLedgers>>,
    /// Ledgers passed over after the last ledger of `ledgers`.
    pub skipped_after: Vec<SkippedLedgers>,
    /// Reason why the backfill cannot continue.
    pub stop_reason: Option<String>,
    /// Whether the turn has to end, because it has no more time or too many results.
    pub must_end: bool,
    bytes: usize,
}

impl BackfillTurn {
    /// Starts an empty turn.
    pub(super) fn of(backfill: &Backfill) -> Self {
        Self {
            backfill: backfill.clone(),
            ledgers: Vec::new(),
            skipped_before: Vec::new(),
            skipped_after: Vec::new(),
            stop_reason: None,
            must_end: false,
            bytes: 0,
        }
    }

    /// Returns whether the turn may continue.
    pub(super) fn may_continue(&self) -> bool {
        !self.must_end && self.backfill.state == State::Running
    }

    /// Records ledgers that were passed over.
    pub(super) fn record_skipped(&mut self, skipped: SkippedLedgers) {
        skipped.apply_to(&mut self.backfill);
        self.skipped_after.push(skipped);
    }

    /// Records the runs on a ledger. If they cover only a part of it, the turn ends.
    pub(super) fn record_runs(&mut self, effects: Effects) {
        let executions = effects.runs.iter().map(|run| &run.execution);
        self.backfill.errors_in_a_row = errors_in_a_row(self.backfill.errors_in_a_row, executions);
        self.bytes += effects.bytes;
        self.must_end = effects.rest.is_some()
            || self.bytes >= PART_BYTES
            || self.backfill.errors_in_a_row >= MAX_ERRORS_IN_A_ROW;
        self.add_ledger(effects);
    }

    /// Adds a ledger to the turn without counting the results of its runs, which may not have been
    /// made yet.
    pub(super) fn add_ledger(&mut self, effects: Effects) {
        self.backfill.advance_to(effects.ledger.next());
        self.skipped_before.push(std::mem::take(&mut self.skipped_after));
        self.ledgers.push(effects);
    }

    /// Records the reason why the backfill cannot continue, and ends the turn.
    pub(super) fn stop(&mut self, because: String) {
        self.must_end = true;
        self.stop_reason = Some(because);
    }
}

impl SkippedLedgers {
    /// Advances a backfill past these ledgers.
    pub(super) fn apply_to(&self, backfill: &mut Backfill) {
        if let Some(missing) = self.missing {
            backfill.add_missing(missing);
        }
        if let Some(partial) = self.partial {
            backfill.add_partial(partial);
        }
        backfill.advance_to(self.next);
    }
}

impl Backfill {
    /// Advances the backfill past a ledger whose runs have been written, or to the part of it that
    /// remains.
    pub(super) fn advance_past_runs(
        &mut self,
        effects: &Effects,
        written: &WrittenRuns,
        executions: &[Execution],
    ) {
        self.executions += written.executions;
        self.errors += written.errors;
        self.rows += written.rows;
        self.errors_in_a_row = errors_in_a_row(self.errors_in_a_row, executions);
        match effects.rest {
            Some(rest) => self.part = Some(rest.application_order),
            None => {
                if !effects.complete {
                    self.add_partial(LedgerRange::only(effects.ledger));
                }
                self.advance_to(effects.ledger.next());
            }
        }
        if self.state == State::Running && self.errors_in_a_row >= MAX_ERRORS_IN_A_ROW {
            self.state = State::Stopped;
            self.message = Some(stopped_because(executions));
        }
    }
}
