//! What one turn of a backfill has done before any of it is written: ledgers whose runs were made, and those
//! that were passed over between them.

use super::backfill::{Backfill, State};
use super::records::Execution;
use super::runner::{Effects, PART_BYTES};
use super::writing::{MOST_ERRORS_IN_A_ROW, WrittenRuns, errors_in_a_row, stopped_because};
use crate::domain::{LedgerRange, LedgerSeq};

/// Ledgers that need no run, or cannot have one.
pub(super) struct Passed {
    /// Those that cannot.
    pub missing: Option<LedgerRange>,
    /// The ledger after them, if there is one.
    pub next: Option<LedgerSeq>,
}

/// A turn.
pub(super) struct BackfillTurn {
    /// The backfill as far as the turn has got with it. Its counts are those at the beginning: what is counted
    /// is known when it is written.
    pub backfill: Backfill,
    /// Ledgers with runs.
    pub ledgers: Vec<Effects>,
    /// What was passed over before each of them.
    pub before: Vec<Vec<Passed>>,
    /// What was passed over after the last one.
    pub after: Vec<Passed>,
    /// Why the backfill cannot go on.
    pub stops: Option<String>,
    /// There is no time for more, or no room.
    pub is_over: bool,
    bytes: usize,
}

impl BackfillTurn {
    /// One in which nothing was done.
    pub(super) fn of(backfill: &Backfill) -> Self {
        Self {
            backfill: backfill.clone(),
            ledgers: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
            stops: None,
            is_over: false,
            bytes: 0,
        }
    }

    /// Whether there may be more to do.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_over && self.backfill.state == State::Running
    }

    /// Ledgers were passed over.
    pub(super) fn passes(&mut self, passed: Passed) {
        passed.of(&mut self.backfill);
        self.after.push(passed);
    }

    /// Runs were made on a ledger, or on a part of it, which ends the turn.
    pub(super) fn ran(&mut self, effects: Effects) {
        let executions = effects.runs.iter().map(|run| &run.execution);
        self.backfill.errors_in_a_row = errors_in_a_row(self.backfill.errors_in_a_row, executions);
        self.bytes += effects.bytes;
        self.is_over = effects.rest.is_some()
            || self.bytes >= PART_BYTES
            || self.backfill.errors_in_a_row >= MOST_ERRORS_IN_A_ROW;
        self.plans(effects);
    }

    /// A ledger comes next on which runs are made.
    pub(super) fn plans(&mut self, effects: Effects) {
        self.backfill.reached(effects.ledger.next());
        self.before.push(std::mem::take(&mut self.after));
        self.ledgers.push(effects);
    }

    /// The backfill cannot go on.
    pub(super) fn stops(&mut self, because: String) {
        self.is_over = true;
        self.stops = Some(because);
    }
}

impl Passed {
    /// Moves a backfill past them.
    pub(super) fn of(&self, backfill: &mut Backfill) {
        if let Some(missing) = self.missing {
            backfill.misses(missing);
        }
        backfill.reached(self.next);
    }
}

impl Backfill {
    /// Moves it past a ledger whose runs are written, or to the part of the ledger that is left.
    pub(super) fn ran(
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
                if !effects.whole {
                    self.misses(LedgerRange { first: effects.ledger, last: effects.ledger });
                }
                self.reached(effects.ledger.next());
            }
        }
        if self.state == State::Running && self.errors_in_a_row >= MOST_ERRORS_IN_A_ROW {
            self.state = State::Stopped;
            self.message = Some(stopped_because(executions));
        }
    }
}
