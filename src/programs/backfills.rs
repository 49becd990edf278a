//! Executes backfills, which run programs on ledgers that were stored before, alongside their runs
//! on new ledgers. Backfills take turns as programs do on new ledgers, so that one that loops does
//! not hold up the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::backfill::{Backfill, State, put_backfill};
use super::backfill_table::{Table, Work};
use super::backfill_turn::{BackfillTurn, SkippedLedgers};
use super::effects::Effects;
use super::events::{EventProject, Looked};
use super::failures::Trouble;
use super::feeder::Feeder;
use super::incomplete_results::IncompleteResults;
use super::lanes::{Lane, Lanes, Turn, TurnClock};
use super::manifest::Manifest;
use super::records::RunSource;
use super::registry::{Cell, Entry, Registry};
use super::runner::{RETRY_DELAY, Runner};
use super::writing::WriteOutcome;
use super::{ProgramError, concurrent_runs, storage};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, ProgramId};
use orrery_runtime::supervision::OnPanic;
use orrery_store::{Store, TransactionPosition};

/// Interval at which the progress of a backfill is written when no results of runs are.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of ledgers that are examined before the program is run on them concurrently.
const MAX_CONCURRENT_LEDGERS: usize = 32;

/// The backfills of all programs.
pub(super) struct Backfills {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    table: Mutex<Table>,
    lanes: Lanes,
    incomplete: IncompleteResults,
    trouble: Arc<Trouble>,
    stopped: AtomicBool,
}

impl Backfills {
    /// Reads the stored backfills.
    pub(super) fn open(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Result<Self, ProgramError> {
        let mut table = Table::default();
        let lanes = Lanes::default();
        for entry in registry.all() {
            if entry.snapshot().manifest.events.as_ref().is_some_and(EventProject::must_derive) {
                lanes.add(entry.id);
            }
            let Some(backfill) = stored_backfill(&runner.store, entry.id)? else { continue };
            if backfill.state == State::Running {
                lanes.add(entry.id);
            }
            table.insert(backfill);
        }
        Ok(Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            table: Mutex::new(table),
            lanes,
            incomplete: IncompleteResults::default(),
            trouble: Arc::clone(trouble),
            stopped: AtomicBool::new(false),
        })
    }

    /// Looks for the members of a project.
    pub(super) fn look_for_members(&self, entry: &Entry) -> Result<(), ProgramError> {
        if self.runner.sync_members(entry)?.has_rows {
            self.feeder.notify_more_rows(entry);
        }
        Ok(())
    }

    /// Creates a backfill, which is on disk when this returns.
    pub(super) fn begin(
        &self,
        entry: &Entry,
        ledgers: LedgerRange,
    ) -> Result<Backfill, ProgramError> {
        self.begin_with(
            entry,
            Backfill::new(entry.id, ledgers, self.runner.store.status().latest()),
        )
    }

    /// Creates a backfill of exactly these stored ledgers.
    pub(super) fn begin_only(
        &self,
        entry: &Entry,
        ledgers: LedgerSet,
    ) -> Result<Backfill, ProgramError> {
        self.begin_with(entry, Backfill::of_stored(entry.id, ledgers))
    }

    fn begin_with(&self, entry: &Entry, mut backfill: Backfill) -> Result<Backfill, ProgramError> {
        let program = entry.id;
        let mut cell = entry.lock();
        let mut table = self.lock_table(program)?;
        if table.running(program).is_some() {
            return Err(ProgramError::BackfillRunning(program));
        }
        if let Some(known) = table.tracked.get(&program) {
            backfill.earlier = known.backfill.covered();
        }
        self.put(&mut cell, &mut table, &backfill)?;
        table.insert(backfill.clone());
        // Incomplete results of an earlier backfill of the program do not belong to this one.
        self.incomplete.forget(program);
        self.lanes.add(program);
        self.lanes.wake(Some(program));
        Ok(backfill)
    }

    /// Cancels the program's backfill if it is running, and returns the most recent one.
    pub(super) fn cancel(&self, entry: &Entry) -> Result<Backfill, ProgramError> {
        let program = entry.id;
        let mut cell = entry.lock();
        let mut table = self.lock_table(program)?;
        if let Some(Work { backfill, .. }) = table.running(program) {
            let cancelled = Backfill { state: State::Cancelled, ..backfill };
            self.put(&mut cell, &mut table, &cancelled)?;
            table.insert(cancelled);
        }
        let known = table.tracked.get(&program).ok_or(ProgramError::NoBackfill(program))?;
        Ok(known.backfill.clone())
    }

    /// Returns the most recent backfill of a program.
    pub(super) fn backfill(&self, program: ProgramId) -> Result<Option<Backfill>, ProgramError> {
        Ok(self.lock_table(program)?.tracked.get(&program).map(|known| known.backfill.clone()))
    }

    /// Removes the backfill of a deleted program.
    pub(super) fn forget(&self, program: ProgramId) {
        self.lanes.remove(program);
        self.table.lock().tracked.remove(&program);
        self.incomplete.forget(program);
        self.trouble.clear_waiting(RunSource::Backfill, program);
    }

    /// Locks the table, after reading the program's backfill from the store again if it is in
    /// doubt.
    fn lock_table(&self, program: ProgramId) -> Result<MutexGuard<'_, Table>, ProgramError> {
        let mut table = self.table.lock();
        if table.in_doubt.contains(&program) {
            match stored_backfill(&self.runner.store, program)? {
                Some(backfill) => {
                    if backfill.state == State::Running {
                        self.lanes.add(program);
                        self.lanes.wake(Some(program));
                    }
                    table.insert(backfill);
                }
                None => drop(table.tracked.remove(&program)),
            }
            table.in_doubt.remove(&program);
        }
        Ok(table)
    }

    /// Makes [`Self::work`] return.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.lanes.stop();
    }

    /// Executes turns of one lane until stopped, and calls `before` at the beginning of each.
    pub(super) fn work(&self, lane: Lane, before: impl Fn()) {
        self.lanes.work(lane, |program| {
            before();
            self.turn(program)
        });
    }

    /// Executes one turn of a program's backfill.
    pub(super) fn turn(&self, program: ProgramId) -> Turn {
        let _doubt = OnPanic::new(|| {
            if let Some(entry) = self.registry.get(program) {
                entry.lock().in_doubt = true;
            }
            self.table.lock().in_doubt.insert(program);
            self.incomplete.forget(program);
        });
        let turn = match self.next_ledgers(program) {
            Ok(turn) => {
                self.trouble.clear_waiting(RunSource::Backfill, program);
                turn
            }
            Err(error) => {
                self.trouble.set_waiting(RunSource::Backfill, program, &error);
                Turn::Failed(RETRY_DELAY)
            }
        };
        if !matches!(turn, Turn::Worked { .. })
            && let Some(entry) = self.registry.get(program)
        {
            self.feeder.notify_last_rows(&entry);
            if entry.snapshot().manifest.schema.has_storage() {
                self.feeder.notify_new_rows(&entry);
            }
        }
        turn
    }

    /// Processes as many ledgers of a backfill as fit into a turn, or a part of one.
    fn next_ledgers(&self, program: ProgramId) -> Result<Turn, ProgramError> {
        let Some(entry) = self.registry.get(program) else {
            self.forget(program);
            return Ok(Turn::Idle);
        };
        self.look_for_members(&entry)?;
        let Some(mut work) = self.lock_table(program)?.running(program) else {
            let clock = TurnClock::start();
            return Ok(match self.runner.derive_if_more_is_known(&entry, &self.registry)? {
                Looked::Nothing => Turn::Idle,
                Looked::InPart => Turn::Worked { delayed_others: clock.delayed_others() },
                Looked::Again(wait) => Turn::Later(wait),
                Looked::Derived => {
                    self.feeder.notify_new_rows(&entry);
                    Turn::Idle
                }
            });
        };
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(&self.runner.store)?;
        if cell.deleted {
            return Ok(Turn::Idle);
        }
        drop(cell);
        let clock = TurnClock::start();
        let worked = self.process_ledgers(&entry, &mut work, clock.end());
        if worked.is_err() && self.table.lock().in_doubt.contains(&program) {
            return worked.map(|()| Turn::Idle);
        }
        // Keeps the progress that was made before a failure, so that ledgers passed over are not
        // examined again.
        let recorded = self.record_progress(&entry, &work);
        worked.and(recorded)?;
        Ok(Turn::Worked { delayed_others: clock.delayed_others() })
    }

    /// Processes ledgers of a backfill until it is over or its time is. The results of the runs are
    /// written in one batch; the backfill advances only past ledgers whose results are on disk or
    /// that need no run.
    fn process_ledgers(
        &self,
        entry: &Entry,
        work: &mut Work,
        deadline: Instant,
    ) -> Result<(), ProgramError> {
        let manifest = entry.snapshot().manifest;
        let mut turn = BackfillTurn::of(&work.backfill);
        let mut ran = Ok(());
        while ran.is_ok()
            && turn.may_continue()
            && Instant::now() < deadline
            && self.still_wanted(work)
        {
            ran = self.run_next_ledgers(entry, &manifest, &mut turn, deadline);
        }
        ran.and(self.write(entry, &manifest, work, turn))
    }

    /// Records the progress over ledgers without runs. The results of runs are on disk and recorded
    /// already.
    fn record_progress(&self, entry: &Entry, work: &Work) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        let mut table = self.table.lock();
        let Some(known) = table.current(work).filter(|_| !cell.deleted) else { return Ok(()) };
        // Ledgers without runs do not justify a write each.
        if work.backfill.state == State::Running && known.written.elapsed() < WRITE_EVERY {
            known.backfill = work.backfill.clone();
            return Ok(());
        }
        self.put(&mut cell, &mut table, &work.backfill)?;
        if let Some(known) = table.current(work) {
            known.backfill = work.backfill.clone();
            known.written = Instant::now();
        }
        Ok(())
    }

    /// Passes over ledgers and runs the program on the next one, or on a part of it when time runs
    /// out. Once a run has left time in the turn, runs on several ledgers concurrently.
    fn run_next_ledgers(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        turn: &mut BackfillTurn,
        deadline: Instant,
    ) -> Result<(), ProgramError> {
        // If one run takes the whole turn, concurrent runs would be wasted.
        let most = if turn.ledgers.is_empty() { 1 } else { MAX_CONCURRENT_LEDGERS };
        let mut ahead = BackfillTurn::of(&turn.backfill);
        let mut planning = Ok(());
        while planning.is_ok()
            && ahead.may_continue()
            && ahead.ledgers.len() < most
            && Instant::now() < deadline
        {
            planning = self.plan_next_ledger(entry, manifest, &mut ahead);
        }
        let BackfillTurn { ledgers, skipped_before, skipped_after, stop_reason, .. } = ahead;
        let planned = ledgers.len();
        let ran = concurrent_runs::run(&self.runner, entry, &manifest.contracts, ledgers, deadline);
        let all_ran = ran.len() == planned;
        for (skipped, effects) in skipped_before.into_iter().zip(ran) {
            skipped.into_iter().for_each(|ledgers| turn.record_skipped(ledgers));
            let effects = effects?;
            match effects.rest {
                None => turn.record_runs(effects),
                Some(_) => match self.incomplete.keep(entry.id, effects) {
                    None => turn.must_end = true,
                    Some(effects) => turn.record_runs(effects),
                },
            }
            if turn.must_end {
                return Ok(());
            }
        }
        if !all_ran {
            return Ok(());
        }
        skipped_after.into_iter().for_each(|skipped| turn.record_skipped(skipped));
        stop_reason.into_iter().for_each(|because| turn.stop(because));
        planning
    }

    /// Examines the next ledger of a backfill: passes over it, or plans runs on it.
    fn plan_next_ledger(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        ahead: &mut BackfillTurn,
    ) -> Result<(), ProgramError> {
        let store = &self.runner.store;
        let ledger = ahead.backfill.next;
        let next = ahead.backfill.next_wanted(ledger);
        if next != Some(ledger) {
            ahead.record_skipped(SkippedLedgers { missing: None, partial: None, next });
            return Ok(());
        }
        if store.range_of(ledger).is_none() {
            ahead.record_skipped(self.not_stored(&ahead.backfill));
            return Ok(());
        }
        if !self.runner.concerns(ledger, manifest)? {
            let is_complete = self.runner.is_complete(ledger, manifest)?;
            let partial = (!is_complete).then_some(LedgerRange::only(ledger));
            let next = ledger.next();
            ahead.record_skipped(SkippedLedgers { missing: None, partial, next });
            return Ok(());
        }
        if self.runner.is_full(entry) {
            ahead.stop(ProgramError::Full(manifest.owner.to_string()).to_string());
            return Ok(());
        }
        if let Some(because) = self.registry.load_module(entry)? {
            ahead.stop(because);
            return Ok(());
        }
        let still_applies =
            |effects: &Effects| effects.ledger == ledger && effects.contracts == manifest.contracts;
        let effects = self.incomplete.take(entry.id, still_applies).unwrap_or_else(|| {
            let mut effects = Effects::none(manifest, ledger, RunSource::Backfill);
            let part = ahead.backfill.part;
            effects.rest = part.map(|from| TransactionPosition { ledger, application_order: from });
            effects
        });
        ahead.add_ledger(effects);
        Ok(())
    }

    /// Returns the next ledger of a backfill, which is not stored, with all before the next stored one.
    fn not_stored(&self, backfill: &Backfill) -> SkippedLedgers {
        let (first, last) = (backfill.next, backfill.ledgers.last);
        let next = self.next_stored(first).filter(|next| *next <= last);
        let end = next.map_or(u64::from(last.0) + 1, |next| u64::from(next.0));
        // `end` is above `first` and at most one above the highest sequence number, so the conversion is
        // exact.
        let range = LedgerRange::new(first, (end - 1) as u32);
        // Those of a backfill of stored ledgers were stored when it was begun.
        let (missing, partial) = match backfill.only {
            Some(_) => (None, Some(range)),
            None => (Some(range), None),
        };
        SkippedLedgers { missing, partial, next }
    }

    /// Writes the results of a turn together with the progress of the backfill, and updates both in
    /// memory.
    fn write(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        work: &mut Work,
        turn: BackfillTurn,
    ) -> Result<(), ProgramError> {
        let BackfillTurn { ledgers, skipped_before, skipped_after, stop_reason, .. } = turn;
        let mut backfill = work.backfill.clone();
        if ledgers.is_empty() {
            // If contracts were registered meanwhile, ledgers that were passed over may need runs.
            if entry.lock().manifest.contracts != manifest.contracts {
                return Ok(());
            }
        } else {
            let mut skipped = skipped_before.iter();
            let begun_with = &*work;
            let moved = &mut backfill;
            let outcome = self.runner.write(entry, &ledgers, |_, effects, written, executions| {
                skipped.next().into_iter().flatten().for_each(|skipped| skipped.apply_to(moved));
                moved.advance_past_runs(effects, written, executions);
                self.table.lock().current(begun_with).is_some().then(|| moved.clone())
            });
            let mut table = self.table.lock();
            if outcome.is_err() {
                table.in_doubt.insert(entry.id);
            }
            let WriteOutcome::Runs(written) = outcome? else { return Ok(()) };
            if let Some(known) = table.current(work) {
                known.backfill = backfill.clone();
                known.written = Instant::now();
            }
            drop(table);
            if written.rows > 0 {
                self.feeder.notify_more_rows(entry);
            }
            if written.waiting_changed {
                self.trouble.report();
            }
            if written.ledgers < ledgers.len() {
                work.backfill = backfill;
                return Ok(());
            }
        }
        skipped_after.iter().for_each(|skipped| skipped.apply_to(&mut backfill));
        if let Some(because) = stop_reason {
            backfill.state = State::Stopped;
            backfill.message = Some(because);
        }
        work.backfill = backfill;
        Ok(())
    }

    fn next_stored(&self, after: LedgerSeq) -> Option<LedgerSeq> {
        let ranges = self.runner.store.status().ranges;
        ranges.iter().map(|range| range.first).find(|first| *first > after)
    }

    fn still_wanted(&self, work: &Work) -> bool {
        !self.stopped.load(Ordering::Relaxed) && self.table.lock().current(work).is_some()
    }

    /// Writes a backfill to the store. Lock order: the program's cell first, then the table of
    /// backfills.
    fn put(
        &self,
        cell: &mut Cell,
        table: &mut Table,
        backfill: &Backfill,
    ) -> Result<(), ProgramError> {
        cell.reload_if_in_doubt(&self.runner.store)?;
        if cell.deleted {
            return Err(ProgramError::Unknown(backfill.program));
        }
        let (store, progress) = (&self.runner.store, &cell.progress);
        let written =
            storage::change(store, |changes| put_backfill(changes, store, progress, backfill));
        if written.is_err() {
            table.in_doubt.insert(backfill.program);
        }
        Ok(written?)
    }
}

/// Reads the backfill of a program from the store.
pub(super) fn stored_backfill(
    store: &Store,
    program: ProgramId,
) -> Result<Option<Backfill>, ProgramError> {
    let Some(stored) = store.shared_row(&storage::backfill(program))? else {
        return Ok(None);
    };
    let backfill = serde_json::from_slice(&stored);
    backfill.map(Some).map_err(|_| ProgramError::Damaged("the backfill of a program"))
}
