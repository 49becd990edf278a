//! Works off backfills: programs on ledgers that were stored before, beside the new ones. Backfills
//! have turns as programs have on new ledgers: one that loops does not hold up the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::ProgramError;
use super::abreast;
use super::backfill::{Backfill, State};
use super::backfill_turn::{BackfillTurn, Passed};
use super::begun::Begun;
use super::feeder::Feeder;
use super::lanes::{Lane, Lanes, Turn, TurnClock};
use super::manifest::Manifest;
use super::records::RunSource;
use super::registry::{Cell, Entry, Registry};
use super::runner::{Effects, RETRY, Runner};
use super::trouble::Trouble;
use super::writing::Wrote;
use crate::domain::{LedgerRange, LedgerSeq, ProgramId};
use crate::store::{ProgramChanges, StoreError, TransactionPosition};

/// How often it is written how far a backfill has got, when nothing else is.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// Ledgers that are looked at before a program is run on them, on several at the same time.
const MOST_ABREAST: usize = 32;

/// All backfills.
pub(super) struct Backfills {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    table: Mutex<Table>,
    lanes: Lanes,
    begun: Begun,
    trouble: Arc<Trouble>,
    stopped: AtomicBool,
}

/// The last backfill of each program.
#[derive(Default)]
struct Table {
    known: BTreeMap<ProgramId, Known>,
    /// Programs of which a write failed that may have been made all the same: what is known of their backfills
    /// is read again before it is used.
    in_doubt: BTreeSet<ProgramId>,
    /// Backfills that were known so far.
    count: u64,
}

/// A backfill, and what of it is on disk.
struct Known {
    /// Tells it from others for the same ledgers.
    number: u64,
    backfill: Backfill,
    /// When it was last written.
    written: Instant,
}

/// A backfill in somebody's hands.
struct Work {
    number: u64,
    backfill: Backfill,
}

impl Table {
    /// Takes over a backfill that is on disk.
    fn insert(&mut self, backfill: Backfill) {
        self.count += 1;
        let known = Known { number: self.count, backfill, written: Instant::now() };
        self.known.insert(known.backfill.program, known);
    }

    fn running(&self, program: ProgramId) -> Option<Work> {
        let known =
            self.known.get(&program).filter(|known| known.backfill.state == State::Running)?;
        Some(Work { number: known.number, backfill: known.backfill.clone() })
    }

    /// What is known of a backfill that somebody works on, unless it was cancelled or replaced.
    fn of(&mut self, work: &Work) -> Option<&mut Known> {
        let known = self.known.get_mut(&work.backfill.program)?;
        let is_same = known.number == work.number && known.backfill.state == State::Running;
        is_same.then_some(known)
    }
}

impl Backfills {
    /// Reads the backfills that are stored.
    pub(super) fn open(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Result<Self, ProgramError> {
        let mut table = Table::default();
        let lanes = Lanes::default();
        for entry in registry.all() {
            let Some(backfill) = stored_backfill(runner, entry.id)? else { continue };
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
            begun: Begun::default(),
            trouble: Arc::clone(trouble),
            stopped: AtomicBool::new(false),
        })
    }

    /// A new backfill. It is on disk when this returns.
    pub(super) fn begin(
        &self,
        entry: &Entry,
        ledgers: LedgerRange,
    ) -> Result<Backfill, ProgramError> {
        let program = entry.id;
        let mut cell = entry.lock();
        let mut table = self.settled(program)?;
        if table.running(program).is_some() {
            return Err(ProgramError::BackfillRuns(program));
        }
        let backfill = Backfill::new(program, ledgers, self.runner.store.status().latest());
        self.put(&mut cell, &mut table, &backfill)?;
        table.insert(backfill.clone());
        // What another backfill of the program left half done is not for this one.
        self.begun.forget(program);
        self.lanes.add(program);
        self.lanes.wake(Some(program));
        Ok(backfill)
    }

    /// Ends a backfill.
    pub(super) fn cancel(&self, entry: &Entry) -> Result<Backfill, ProgramError> {
        let program = entry.id;
        let mut cell = entry.lock();
        let mut table = self.settled(program)?;
        if let Some(Work { backfill, .. }) = table.running(program) {
            let cancelled = Backfill { state: State::Cancelled, ..backfill };
            self.put(&mut cell, &mut table, &cancelled)?;
            table.insert(cancelled);
        }
        let known = table.known.get(&program).ok_or(ProgramError::NoBackfill(program))?;
        Ok(known.backfill.clone())
    }

    /// The last backfill of a program.
    pub(super) fn backfill(&self, program: ProgramId) -> Result<Option<Backfill>, ProgramError> {
        Ok(self.settled(program)?.known.get(&program).map(|known| known.backfill.clone()))
    }

    /// A program is gone.
    pub(super) fn forget(&self, program: ProgramId) {
        self.lanes.remove(program);
        self.table.lock().known.remove(&program);
        self.begun.forget(program);
        self.trouble.is_over(RunSource::Backfill, program);
    }

    /// All backfills, with that of a program as the store has it.
    fn settled(&self, program: ProgramId) -> Result<MutexGuard<'_, Table>, ProgramError> {
        let mut table = self.table.lock();
        if table.in_doubt.contains(&program) {
            match stored_backfill(&self.runner, program)? {
                Some(backfill) => {
                    if backfill.state == State::Running {
                        self.lanes.add(program);
                        self.lanes.wake(Some(program));
                    }
                    table.insert(backfill);
                }
                None => drop(table.known.remove(&program)),
            }
            table.in_doubt.remove(&program);
        }
        Ok(table)
    }

    /// Ends [`Self::work`].
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.lanes.stop();
    }

    /// Works until stopped.
    pub(super) fn work(&self, lane: Lane) {
        self.lanes.work(lane, |program| self.turn(program));
    }

    /// One turn of a program's backfill.
    pub(super) fn turn(&self, program: ProgramId) -> Turn {
        match self.next_ledgers(program) {
            Ok(turn) => {
                self.trouble.is_over(RunSource::Backfill, program);
                turn
            }
            Err(error) => {
                self.trouble.has(RunSource::Backfill, program, &error);
                Turn::Failed(RETRY)
            }
        }
    }

    /// As many ledgers of a backfill as there is time for, or a part of one.
    fn next_ledgers(&self, program: ProgramId) -> Result<Turn, ProgramError> {
        let Some(entry) = self.registry.get(program) else {
            self.forget(program);
            return Ok(Turn::Idle);
        };
        let Some(mut work) = self.settled(program)?.running(program) else {
            return Ok(Turn::Idle);
        };
        let mut cell = entry.lock();
        cell.settle(&self.runner.store)?;
        if cell.deleted {
            return Ok(Turn::Idle);
        }
        drop(cell);
        let clock = TurnClock::start();
        let worked = self.ledgers(&entry, &mut work, clock.end());
        if worked.is_err() && self.table.lock().in_doubt.contains(&program) {
            return worked.map(|()| Turn::Idle);
        }
        // What was passed over before something failed is not looked at again.
        let kept = self.keep(&entry, &work);
        worked.and(kept)?;
        Ok(Turn::Worked { held_up: clock.held_up() })
    }

    /// Ledgers of a backfill until it is over, or its time is. What their runs left is written at once; the
    /// backfill moves only past what is done and on disk, or needs no run.
    fn ledgers(&self, entry: &Entry, work: &mut Work, until: Instant) -> Result<(), ProgramError> {
        let manifest = entry.shown().manifest;
        let mut turn = BackfillTurn::of(&work.backfill);
        let mut ran = Ok(());
        while ran.is_ok() && turn.goes_on() && Instant::now() < until && self.still_wanted(work) {
            ran = self.go_on(entry, &manifest, &mut turn, until);
        }
        ran.and(self.write(entry, &manifest, work, turn))
    }

    /// Takes over how far a backfill has got over ledgers without runs; what came of runs is on disk, and
    /// known, already.
    fn keep(&self, entry: &Entry, work: &Work) -> Result<(), ProgramError> {
        let mut cell = entry.lock();
        let mut table = self.table.lock();
        let Some(known) = table.of(work).filter(|_| !cell.deleted) else { return Ok(()) };
        // Ledgers without runs are not worth a write each.
        if work.backfill.state == State::Running && known.written.elapsed() < WRITE_EVERY {
            known.backfill = work.backfill.clone();
            return Ok(());
        }
        self.put(&mut cell, &mut table, &work.backfill)?;
        if let Some(known) = table.of(work) {
            known.backfill = work.backfill.clone();
            known.written = Instant::now();
        }
        Ok(())
    }

    /// Passes over ledgers and runs the program on the next one, or on a part of it when there is no more time.
    /// Once that was quick, on several at the same time.
    fn go_on(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        turn: &mut BackfillTurn,
        until: Instant,
    ) -> Result<(), ProgramError> {
        // Where one run takes all of a turn's time, those beside it would be made in vain.
        let most = if turn.ledgers.is_empty() { 1 } else { MOST_ABREAST };
        let mut ahead = BackfillTurn::of(&turn.backfill);
        let mut looked = Ok(());
        while looked.is_ok()
            && ahead.goes_on()
            && ahead.ledgers.len() < most
            && Instant::now() < until
        {
            looked = self.look_ahead(entry, manifest, &mut ahead);
        }
        let BackfillTurn { ledgers, before, after, stops, .. } = ahead;
        let planned = ledgers.len();
        let ran = abreast::run(&self.runner, entry, &manifest.contracts, ledgers, until);
        let all_ran = ran.len() == planned;
        for (before, effects) in before.into_iter().zip(ran) {
            before.into_iter().for_each(|passed| turn.passes(passed));
            let effects = effects?;
            match effects.rest {
                None => turn.ran(effects),
                Some(_) => match self.begun.keep(entry.id, effects) {
                    None => turn.is_over = true,
                    Some(effects) => turn.ran(effects),
                },
            }
            if turn.is_over {
                return Ok(());
            }
        }
        if !all_ran {
            return Ok(());
        }
        after.into_iter().for_each(|passed| turn.passes(passed));
        stops.into_iter().for_each(|because| turn.stops(because));
        looked
    }

    /// Looks at the next ledger of a backfill: passes over it, or plans its runs.
    fn look_ahead(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        ahead: &mut BackfillTurn,
    ) -> Result<(), ProgramError> {
        let store = &self.runner.store;
        let ledger = ahead.backfill.next;
        if store.range_of(ledger).is_none() {
            // Everything up to the next stored ledger is missing.
            let next = self.next_stored(ledger).filter(|next| *next <= ahead.backfill.ledgers.last);
            let last = ahead.backfill.ledgers.last;
            let end = next.map_or(u64::from(last.0) + 1, |next| u64::from(next.0));
            // One more than a sequence number, which has a predecessor.
            let missing = Some(LedgerRange::new(ledger, (end - 1) as u32));
            ahead.passes(Passed { missing, next });
            return Ok(());
        }
        if !store.touches(ledger, &manifest.contracts)? {
            let is_whole = self.runner.is_whole(ledger, &manifest.contracts)?;
            let missing = (!is_whole).then_some(LedgerRange { first: ledger, last: ledger });
            ahead.passes(Passed { missing, next: ledger.next() });
            return Ok(());
        }
        if self.runner.is_full(entry) {
            ahead.stops(ProgramError::Full(manifest.owner.to_string()).to_string());
            return Ok(());
        }
        if let Some(because) = self.registry.make_ready(entry)? {
            ahead.stops(because);
            return Ok(());
        }
        let goes_on =
            |effects: &Effects| effects.ledger == ledger && effects.contracts == manifest.contracts;
        let effects = self.begun.take(entry.id, goes_on).unwrap_or_else(|| {
            let mut effects = Effects::none(manifest, ledger, RunSource::Backfill);
            let part = ahead.backfill.part;
            effects.rest = part.map(|from| TransactionPosition { ledger, application_order: from });
            effects
        });
        ahead.plans(effects);
        Ok(())
    }

    /// Writes what the runs of a turn left together with the backfill as it is then, and takes over both.
    fn write(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        work: &mut Work,
        turn: BackfillTurn,
    ) -> Result<(), ProgramError> {
        let BackfillTurn { ledgers, before, after, stops, .. } = turn;
        let mut backfill = work.backfill.clone();
        if ledgers.is_empty() {
            // With other contracts there may be runs in what was passed over.
            if entry.lock().manifest.contracts != manifest.contracts {
                return Ok(());
            }
        } else {
            let mut passed = before.iter();
            let begun_with = &*work;
            let moved = &mut backfill;
            let wrote = self.runner.write(entry, &ledgers, |_, effects, written, executions| {
                passed.next().into_iter().flatten().for_each(|passed| passed.of(moved));
                moved.ran(effects, written, executions);
                self.table.lock().of(begun_with).is_some().then(|| moved.clone())
            });
            let mut table = self.table.lock();
            if wrote.is_err() {
                table.in_doubt.insert(entry.id);
            }
            let Wrote::Runs(written) = wrote? else { return Ok(()) };
            if let Some(known) = table.of(work) {
                known.backfill = backfill.clone();
                known.written = Instant::now();
            }
            drop(table);
            if written.rows > 0 {
                self.feeder.has_rows(entry);
            }
            if written.waiting_changed {
                self.trouble.report();
            }
            if written.ledgers < ledgers.len() {
                work.backfill = backfill;
                return Ok(());
            }
        }
        after.iter().for_each(|passed| passed.of(&mut backfill));
        if let Some(because) = stops {
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
        !self.stopped.load(Ordering::Relaxed) && self.table.lock().of(work).is_some()
    }

    /// Whoever changes a backfill holds the program's cell first and the backfills second.
    fn put(
        &self,
        cell: &mut Cell,
        table: &mut Table,
        backfill: &Backfill,
    ) -> Result<(), ProgramError> {
        cell.settle(&self.runner.store)?;
        if cell.deleted {
            return Err(ProgramError::Unknown(backfill.program));
        }
        let written = self.runner.store.change_programs(|changes| put_backfill(changes, backfill));
        if written.is_err() {
            table.in_doubt.insert(backfill.program);
        }
        Ok(written?)
    }
}

/// The backfill of a program that is on disk.
fn stored_backfill(runner: &Runner, program: ProgramId) -> Result<Option<Backfill>, ProgramError> {
    let Some(stored) = runner.store.program_backfill(program)? else { return Ok(None) };
    let backfill = serde_json::from_slice(&stored).map(Backfill::revised);
    backfill.map(Some).map_err(|_| ProgramError::Damaged("the backfill of a program"))
}

/// Puts a backfill in its stored form. Once it is over, the ledgers that it was done with are not missing to
/// the program any more.
pub(super) fn put_backfill(
    changes: &mut ProgramChanges<'_>,
    backfill: &Backfill,
) -> Result<(), StoreError> {
    let seen = backfill.seen();
    if !seen.is_empty() {
        changes.put_seen(backfill.program, &seen, true);
    }
    let json = serde_json::to_vec(backfill).expect("numbers and texts serialize");
    changes.put_backfill(backfill.program, &json)
}
