//! Programs on new ledgers: takes them from the feed, one program at a turn, and of a program that is behind as many
//! ledgers as a turn has time for. What their runs left is one write.

use std::sync::Arc;
use std::time::Instant;

use super::ProgramError;
use super::begun::Begun;
use super::feeder::Feeder;
use super::lanes::{Lane, SHORT_TURN, Turn, TurnClock};
use super::manifest::{Manifest, Part, Progress};
use super::records::RunSource;
use super::registry::{Entry, Registry, put_progress};
use super::runner::{Effects, PART_BYTES, RETRY, Runner, TurnLimits};
use super::trouble::Trouble;
use super::waiting::Due;
use super::writing::{MOST_ERRORS_IN_A_ROW, WrittenRuns, Wrote, errors_in_a_row};
use crate::domain::{LedgerRange, LedgerSet, ProgramId};
use crate::store::{FedLedger, TransactionPosition, program_consumer};

/// Ledgers that are looked at in one turn.
const LOOKED_AT: usize = 256;
/// Ledgers that are looked at for the next one with runs once there was one in a turn.
const LOOKED_AT_AHEAD: usize = 32;
/// Ledgers without runs after which it is written how far a program has got.
const UNWRITTEN: usize = 1000;

/// Runs programs on new ledgers.
pub(super) struct Live {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    begun: Begun,
    trouble: Arc<Trouble>,
}

/// What comes next for a program.
enum Next {
    /// A ledger in which one of its contracts was touched.
    Ledger(FedLedger),
    /// There are more ledgers to look at, in another turn.
    More,
    /// It has seen all that is stored.
    Nothing,
}

impl Live {
    pub(super) fn new(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Self {
        if runner.questions.is_some() {
            // Whoever can be asked now may know what was missing.
            registry.all().iter().for_each(|entry| entry.lock().waiting.are_all_due());
        }
        Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            begun: Begun::default(),
            trouble: Arc::clone(trouble),
        }
    }

    /// One turn of a program, on a thread for programs of this lane.
    pub(super) fn turn(&self, program: ProgramId, lane: Lane) -> Turn {
        let Some(entry) = self.registry.get(program) else {
            self.begun.forget(program);
            self.trouble.is_over(RunSource::Live, program);
            return Turn::Idle;
        };
        match self.next_ledger(&entry, lane) {
            Ok(turn) => {
                self.trouble.is_over(RunSource::Live, program);
                turn
            }
            Err(error) if error.asks() => Turn::Asks,
            Err(error) => {
                self.trouble.has(RunSource::Live, program, &error);
                Turn::Failed(RETRY)
            }
        }
    }

    fn next_ledger(&self, entry: &Entry, lane: Lane) -> Result<Turn, ProgramError> {
        let (manifest, progress) = {
            let mut cell = entry.lock();
            cell.settle(&self.runner.store)?;
            if cell.deleted {
                // Of its delete it was said that it failed.
                self.registry.remove(entry.id);
                return Ok(Turn::Idle);
            }
            (cell.manifest.clone(), cell.progress)
        };
        if !manifest.running {
            return Ok(Turn::Idle);
        }
        if self.registry.make_ready(entry)?.is_some() {
            return Ok(Turn::Idle);
        }
        if self.runner.is_full(entry) {
            return self.stop_full(entry, &manifest);
        }
        let goes_on = |effects: &Effects| {
            effects.place > progress.place && effects.contracts == manifest.contracts
        };
        let first = match self.begun.take(entry.id, goes_on) {
            Some(begun) => begun,
            None => match self.next_with_transactions(entry, &manifest, progress.place)? {
                Next::Ledger(fed) => effects_of(&manifest, fed, progress.part),
                Next::More => return Ok(Turn::Worked { held_up: false }),
                Next::Nothing => return self.run_again(entry, &manifest, lane),
            },
        };
        let clock = TurnClock::start();
        let limits = TurnLimits { until: clock.end(), may_ask: lane.may_ask() };
        let mut ran = Vec::new();
        // What has been run is written whatever comes after it.
        let failed = self.run_turn(entry, &manifest, &progress, first, limits, &mut ran).err();
        if !ran.is_empty() {
            self.write(entry, &ran)?;
        }
        failed.map_or(Ok(Turn::Worked { held_up: clock.held_up() }), Err)
    }

    /// Writes what the runs on some ledgers left, and how far the program has got.
    fn write(&self, entry: &Entry, ran: &[Effects]) -> Result<(), ProgramError> {
        let wrote = self.runner.write(entry, ran, |progress, effects, _, _| {
            let place = effects.place;
            progress.part = effects.rest.map(|rest| Part { place, from: rest.application_order });
            if progress.part.is_none() {
                progress.place = progress.place.max(place);
            }
            None
        });
        if !matches!(&wrote, Ok(Wrote::Runs(written)) if written.ledgers == ran.len()) {
            // What was begun comes after a ledger whose runs are made again.
            self.begun.forget(entry.id);
        }
        self.wrote(entry, &wrote?);
        Ok(())
    }

    /// Runs a program on a ledger, and on those after it while there is time and room. What is to be written of
    /// each is added to `ran`.
    fn run_turn(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        progress: &Progress,
        first: Effects,
        limits: TurnLimits,
        ran: &mut Vec<Effects>,
    ) -> Result<(), ProgramError> {
        let consumer = program_consumer(entry.id);
        let (mut errors, mut bytes) = (progress.errors_in_a_row, 0);
        let mut next = Some(first);
        while let Some(effects) = next.take() {
            let effects = self.runner.run(entry, &manifest.contracts, effects, limits)?;
            if self.runner.store.is_lost(&consumer, effects.ledger) {
                // Retention was here first: what was read may not be all there was. A turn that has ledgers to write
                // leaves this one to the next turn.
                if ran.is_empty() {
                    self.passed(entry, manifest, effects.place, 1, &LedgerSet::default())?;
                }
                return Ok(());
            }
            let is_whole_ledger = effects.rest.is_none();
            let effects = match is_whole_ledger {
                true => effects,
                false => match self.begun.keep(entry.id, effects) {
                    None => return Ok(()),
                    Some(effects) => effects,
                },
            };
            errors = errors_in_a_row(errors, effects.runs.iter().map(|run| &run.execution));
            bytes += effects.bytes;
            let (place, schema) = (effects.place, effects.schema.clone());
            ran.push(effects);
            if !is_whole_ledger
                || bytes >= PART_BYTES
                || self.runner.is_full_with(entry, bytes)
                || errors >= MOST_ERRORS_IN_A_ROW
                || Instant::now() >= limits.until
            {
                return Ok(());
            }
            next = self.next_in_turn(&consumer, manifest, place)?.map(|fed| {
                let mut effects = effects_of(manifest, fed, None);
                effects.schema = schema;
                effects
            });
        }
        Ok(())
    }

    /// The next ledger in which one of the contracts was touched, where nothing has to be noted of those before it.
    fn next_in_turn(
        &self,
        consumer: &str,
        manifest: &Manifest,
        after: u64,
    ) -> Result<Option<FedLedger>, ProgramError> {
        let store = &self.runner.store;
        for fed in store.fed_after(after, LOOKED_AT_AHEAD) {
            if store.is_lost(consumer, fed.ledger) {
                return Ok(None);
            }
            if store.touches(fed.ledger, &manifest.contracts)? {
                return Ok(Some(fed));
            }
            if !self.runner.is_whole(fed.ledger, &manifest.contracts)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Makes runs again for which there was not enough stored when they were made first.
    fn run_again(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        lane: Lane,
    ) -> Result<Turn, ProgramError> {
        let clock = TurnClock::start();
        let due = entry.lock().waiting.due(&self.runner.store, Instant::now());
        let (ledger, due) = match due {
            Due::Nothing => return Ok(Turn::Idle),
            Due::Later(wait) => return Ok(Turn::Later(wait)),
            Due::Now(ledger, due) => (ledger, due),
        };
        let mut effects = Effects::none(manifest, ledger, RunSource::Backfill);
        effects.again = Some(due);
        let limits = TurnLimits { until: clock.end(), may_ask: lane.may_ask() };
        let effects = self.runner.run(entry, &manifest.contracts, effects, limits)?;
        if !effects.whole {
            // What waited for it may be gone with it.
            let missing = LedgerRange { first: ledger, last: ledger }.into();
            self.runner.store.passed(&program_consumer(entry.id), 0, &missing);
        }
        self.wrote(entry, &self.runner.write(entry, &[effects], |_, _, _, _| None)?);
        Ok(Turn::Worked { held_up: clock.held_up() })
    }

    fn wrote(&self, entry: &Entry, wrote: &Wrote) {
        let Wrote::Runs(WrittenRuns { rows, waiting_changed, stopped, .. }) = wrote else { return };
        if *rows > 0 {
            self.feeder.has_rows(entry);
        }
        if *waiting_changed || *stopped {
            self.trouble.report();
        }
    }

    /// The next ledger of the feed in which one of the contracts was touched. Those before it are done with.
    fn next_with_transactions(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        mut after: u64,
    ) -> Result<Next, ProgramError> {
        let store = &self.runner.store;
        let consumer = program_consumer(entry.id);
        let begun = Instant::now();
        loop {
            let fed = store.fed_after(after, LOOKED_AT);
            let Some(last) = fed.last().copied() else { return Ok(Next::Nothing) };
            let mut missing = LedgerSet::default();
            for next in &fed {
                let ledger = next.ledger;
                // Of one that is lost nothing may be left, or a part.
                if store.is_lost(&consumer, ledger) {
                    continue;
                }
                if store.touches(ledger, &manifest.contracts)? {
                    store.passed(&consumer, 0, &missing);
                    return Ok(Next::Ledger(*next));
                }
                if !self.runner.is_whole(ledger, &manifest.contracts)? {
                    missing.insert(LedgerRange { first: ledger, last: ledger });
                }
            }
            after = last.place;
            if !self.passed(entry, manifest, after, fed.len(), &missing)?
                || begun.elapsed() > SHORT_TURN
            {
                return Ok(Next::More);
            }
        }
    }

    /// A program has seen the feed up to a place, and there was nothing for it to do, or to do with. Says
    /// whether that is so: contracts may have been registered since.
    pub(super) fn passed(
        &self,
        entry: &Entry,
        seen_with: &Manifest,
        place: u64,
        ledgers: usize,
        missing: &LedgerSet,
    ) -> Result<bool, ProgramError> {
        let store = &self.runner.store;
        let mut cell = entry.lock();
        cell.settle(store)?;
        if cell.deleted || cell.manifest.contracts != seen_with.contracts {
            return Ok(false);
        }
        cell.progress.place = cell.progress.place.max(place);
        store.passed(&program_consumer(entry.id), cell.progress.place, missing);
        cell.unwritten += ledgers;
        if cell.unwritten >= UNWRITTEN {
            let progress = cell.progress;
            cell.write(store, |changes| {
                changes.put_cursor(entry.id, progress.place);
                put_progress(changes, entry.id, &progress)
            })?;
            cell.unwritten = 0;
        }
        Ok(true)
    }

    fn stop_full(&self, entry: &Entry, manifest: &Manifest) -> Result<Turn, ProgramError> {
        let because = ProgramError::Full(manifest.owner.to_string()).to_string();
        let mut cell = entry.lock();
        if !cell.deleted {
            self.registry.change_manifest(&mut cell, |manifest| {
                manifest.running = false;
                manifest.stopped_because = Some(because);
            })?;
        }
        drop(cell);
        self.trouble.report();
        Ok(Turn::Idle)
    }
}

/// The runs on a ledger of the feed before they are made: on all of it, or on the part that is left.
fn effects_of(manifest: &Manifest, fed: FedLedger, part: Option<Part>) -> Effects {
    let FedLedger { place, ledger, .. } = fed;
    let mut effects = Effects::none(manifest, ledger, RunSource::Live);
    effects.place = place;
    let part = part.filter(|part| part.place == place);
    effects.rest = part.map(|part| TransactionPosition { ledger, application_order: part.from });
    effects
}
