//! Runs programs on new ledgers of the feed, one program per turn. A program that is behind
//! processes as many ledgers as fit into a turn, whose results are committed in one write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::effects::{Effects, PART_BYTES};
use super::events::{CaughtUp, Looked, Versions};
use super::failures::Trouble;
use super::feeder::Feeder;
use super::incomplete_results::IncompleteResults;
use super::lanes::{Lane, SHORT_TURN, Turn, TurnClock};
use super::manifest::{Manifest, Part, Progress};
use super::records::RunSource;
use super::registry::{Entry, Registry};
use super::runner::{RETRY_DELAY, Runner, TurnLimits};
use super::waiting::Due;
use super::writing::{MAX_ERRORS_IN_A_ROW, WriteOutcome, WrittenRuns, errors_in_a_row};
use super::{ProgramError, storage};
use orrery_ledger::domain::{LedgerRange, LedgerSet, ProgramId};
use orrery_runtime::supervision::OnPanic;
use orrery_store::{FedLedger, TransactionPosition};

/// Number of ledgers read from the feed at once when looking for the next one with transactions.
const FEED_PAGE: usize = 256;
/// Maximum number of ledgers examined for further transactions after the first ledger of a turn.
const MAX_LEDGERS_AHEAD: usize = 32;
/// Number of ledgers without transactions after which a program's progress is written.
const MAX_UNWRITTEN_LEDGERS: usize = 1000;
/// Time after which a project looks for members again that are about to be known.
const LOOK_FOR_MEMBERS: Duration = Duration::from_millis(100);

/// Runs programs on new ledgers.
pub(super) struct Live {
    runner: Arc<Runner>,
    registry: Arc<Registry>,
    feeder: Arc<Feeder>,
    incomplete: IncompleteResults,
    trouble: Arc<Trouble>,
}

/// What a program has to do next.
enum Next {
    /// A ledger with a transaction that touches one of the program's contracts.
    Ledger(FedLedger),
    /// More ledgers remain to be examined, in another turn.
    More,
    /// The program has processed every stored ledger.
    Nothing,
}

impl Live {
    pub(super) fn new(
        runner: &Arc<Runner>,
        registry: &Arc<Registry>,
        feeder: &Arc<Feeder>,
        trouble: &Arc<Trouble>,
    ) -> Self {
        if runner.upstream.is_some() {
            // The upstream server may have the state that was missing for these runs.
            registry.all().iter().for_each(|entry| entry.lock().waiting.mark_all_due());
        }
        Self {
            runner: Arc::clone(runner),
            registry: Arc::clone(registry),
            feeder: Arc::clone(feeder),
            incomplete: IncompleteResults::default(),
            trouble: Arc::clone(trouble),
        }
    }

    /// Runs one turn of a program, on a thread of this lane.
    pub(super) fn turn(&self, program: ProgramId, lane: Lane) -> Turn {
        let Some(entry) = self.registry.get(program) else {
            self.incomplete.forget(program);
            self.trouble.clear_waiting(RunSource::Live, program);
            return Turn::Idle;
        };
        let _doubt = OnPanic::new(|| {
            entry.lock().in_doubt = true;
            self.incomplete.forget(program);
        });
        match self.next_ledger(&entry, lane) {
            Ok(turn) => {
                self.trouble.clear_waiting(RunSource::Live, program);
                turn
            }
            Err(error) if error.needs_upstream() => Turn::NeedsUpstream,
            Err(error) => {
                self.trouble.set_waiting(RunSource::Live, program, &error);
                Turn::Failed(RETRY_DELAY)
            }
        }
    }

    fn next_ledger(&self, entry: &Entry, lane: Lane) -> Result<Turn, ProgramError> {
        let (manifest, progress) = {
            let mut cell = entry.lock();
            cell.reload_if_in_doubt(&self.runner.store)?;
            if cell.deleted {
                // An earlier delete was reported as failed, but reached the store.
                self.registry.remove(entry.id);
                return Ok(Turn::Idle);
            }
            (cell.manifest.clone(), cell.progress)
        };
        if !manifest.running {
            // The events that a paused project has are still named by what becomes known of them.
            return Ok(self.look_for_code(entry)?.unwrap_or(Turn::Idle));
        }
        if self.registry.load_module(entry)?.is_some() {
            return Ok(Turn::Idle);
        }
        if self.runner.is_full(entry) {
            return self.stop_full(entry, &manifest);
        }
        let (turn, look_again) = self.read_members(entry)?;
        if let Some(turn) = turn {
            return Ok(turn);
        }
        let members = entry.members.versions();
        let still_applies = |effects: &Effects| {
            effects.place > progress.place && effects.contracts == manifest.contracts
        };
        let first = match self.incomplete.take(entry.id, still_applies) {
            Some(incomplete) => incomplete,
            None => match self.next_with_transactions(entry, &manifest, members, progress.place)? {
                Next::Ledger(fed) => effects_of(&manifest, fed, progress.part),
                Next::More => return Ok(Turn::Worked { delayed_others: false }),
                Next::Nothing => {
                    return match (self.look_for_code(entry)?, look_again) {
                        (Some(Turn::Later(wait)), Some(again)) => Ok(Turn::Later(wait.min(again))),
                        (Some(turn), _) => Ok(turn),
                        (None, Some(wait)) => Ok(Turn::Later(wait)),
                        (None, None) if self.runner.may_have_more_members(entry) => {
                            Ok(Turn::Later(LOOK_FOR_MEMBERS))
                        }
                        (None, None) => self.repeat_waiting_runs(entry, &manifest, lane),
                    };
                }
            },
        };
        let clock = TurnClock::start();
        let limits =
            TurnLimits { deadline: clock.end(), may_query_upstream: lane.may_query_upstream() };
        let mut ran = Vec::new();
        // Results are written even if a later ledger fails.
        let first = Effects { members: first.members.or(Some(members)), ..first };
        let failed = self.run_turn(entry, &manifest, &progress, first, limits, &mut ran).err();
        if !ran.is_empty() {
            self.write(entry, &ran)?;
        }
        failed.map_or(Ok(Turn::Worked { delayed_others: clock.delayed_others() }), Err)
    }

    /// Looks for the members of a project, and reads earlier events of those that became known late. Returns
    /// the turn that this was, if it was one, and when more is to be done, if there is more.
    fn read_members(
        &self,
        entry: &Entry,
    ) -> Result<(Option<Turn>, Option<Duration>), ProgramError> {
        let clock = TurnClock::start();
        let synced = self.runner.sync_members(entry)?;
        if synced.has_rows {
            self.feeder.notify_new_rows(entry);
        }
        let turn = match self.runner.catch_up(entry)? {
            CaughtUp::Nothing => None,
            CaughtUp::Some { has_rows } => {
                if has_rows {
                    self.feeder.notify_new_rows(entry);
                }
                Some(Turn::Worked { delayed_others: clock.delayed_others() })
            }
        };
        let look_again = match (synced.has_more, synced.is_waiting) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => Some(LOOK_FOR_MEMBERS),
            (false, false) => None,
        };
        Ok((turn, look_again))
    }

    /// Looks whether the code has become known of which a project has read events while it was not.
    /// Returns the turn that this was; `None` when there is nothing to do before the next wake-up.
    fn look_for_code(&self, entry: &Entry) -> Result<Option<Turn>, ProgramError> {
        let clock = TurnClock::start();
        Ok(match self.runner.derive_if_more_is_known(entry, &self.registry)? {
            Looked::Nothing => None,
            Looked::InPart => Some(Turn::Worked { delayed_others: clock.delayed_others() }),
            Looked::Again(wait) => Some(Turn::Later(wait)),
            Looked::Derived => {
                self.feeder.notify_new_rows(entry);
                // There may be more.
                Some(Turn::Later(Duration::ZERO))
            }
        })
    }

    /// Writes the results of the runs on some ledgers, and the program's progress.
    fn write(&self, entry: &Entry, ran: &[Effects]) -> Result<(), ProgramError> {
        let outcome = self.runner.write(entry, ran, |progress, effects, _, _| {
            let place = effects.place;
            progress.part = effects.rest.map(|rest| Part { place, from: rest.application_order });
            if progress.part.is_none() {
                progress.place = progress.place.max(place);
            }
            None
        });
        if !matches!(&outcome, Ok(WriteOutcome::Runs(written)) if written.ledgers == ran.len()) {
            // A partly processed ledger follows one whose runs must be repeated.
            self.incomplete.forget(entry.id);
        }
        self.report_write(entry, &outcome?);
        Ok(())
    }

    /// Runs a program on a ledger, and on the ledgers after it while the turn has time and
    /// capacity. Adds to `ran` what is to be written of each.
    fn run_turn(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        progress: &Progress,
        first: Effects,
        limits: TurnLimits,
        ran: &mut Vec<Effects>,
    ) -> Result<(), ProgramError> {
        let consumer = storage::consumer(entry.id);
        let (mut errors, mut bytes) = (progress.errors_in_a_row, 0);
        let (mut next, mut members) = (Some(first), None);
        while let Some(effects) = next.take() {
            members = members.or(effects.members);
            let effects = self.runner.run(entry, &manifest.contracts, effects, limits)?;
            if self.runner.store.is_lost(&consumer, effects.ledger) {
                // Retention has removed data of the ledger, so the read may be incomplete. If other
                // ledgers of this turn are still to be written, the next turn skips this one.
                if ran.is_empty() {
                    let examined = (manifest, members.unwrap_or_default());
                    self.mark_processed(entry, examined, effects.place, 1, &LedgerSet::default())?;
                }
                return Ok(());
            }
            let is_whole_ledger = effects.rest.is_none();
            let effects = if is_whole_ledger {
                effects
            } else {
                match self.incomplete.keep(entry.id, effects) {
                    None => return Ok(()),
                    Some(effects) => effects,
                }
            };
            errors = errors_in_a_row(errors, effects.runs.iter().map(|run| &run.execution));
            bytes += effects.bytes;
            let (place, schema) = (effects.place, effects.schema.clone());
            ran.push(effects);
            if !is_whole_ledger
                || bytes >= PART_BYTES
                || self.runner.is_full_with(entry, bytes)
                || errors >= MAX_ERRORS_IN_A_ROW
                || Instant::now() >= limits.deadline
            {
                return Ok(());
            }
            next = self.next_in_turn(&consumer, manifest, place)?.map(|fed| {
                let mut effects = effects_of(manifest, fed, None);
                (effects.schema, effects.members) = (schema, members);
                effects
            });
        }
        Ok(())
    }

    /// Returns the next ledger with a transaction that touches one of the contracts, unless a
    /// ledger before it is lost or incomplete.
    fn next_in_turn(
        &self,
        consumer: &str,
        manifest: &Manifest,
        after: u64,
    ) -> Result<Option<FedLedger>, ProgramError> {
        let store = &self.runner.store;
        for fed in store.fed_after(after, MAX_LEDGERS_AHEAD) {
            if store.is_lost(consumer, fed.ledger) {
                return Ok(None);
            }
            if self.runner.concerns(fed.ledger, manifest)? {
                return Ok(Some(fed));
            }
            if !self.runner.is_complete(fed.ledger, manifest)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Repeats runs for which state was missing when they were first made.
    fn repeat_waiting_runs(
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
        effects.repeated = Some(due);
        let limits =
            TurnLimits { deadline: clock.end(), may_query_upstream: lane.may_query_upstream() };
        let effects = self.runner.run(entry, &manifest.contracts, effects, limits)?;
        if !effects.complete {
            // The ledger counts as lost: retention may have removed transactions whose runs were
            // waiting.
            let missing = LedgerRange { first: ledger, last: ledger }.into();
            self.runner.store.mark_passed(&storage::consumer(entry.id), 0, &missing);
        }
        self.report_write(entry, &self.runner.write(entry, &[effects], |_, _, _, _| None)?);
        Ok(Turn::Worked { delayed_others: clock.delayed_others() })
    }

    fn report_write(&self, entry: &Entry, outcome: &WriteOutcome) {
        let WriteOutcome::Runs(WrittenRuns { rows, waiting_changed, stopped, .. }) = outcome else {
            return;
        };
        // What the contracts of a project hold, holds one ledger longer.
        if *rows > 0 || entry.snapshot().manifest.schema.has_storage() {
            self.feeder.notify_new_rows(entry);
        }
        if *waiting_changed || *stopped {
            self.trouble.report();
        }
    }

    /// Returns the next ledger of the feed with a transaction that touches one of the contracts,
    /// and marks those before it as processed.
    fn next_with_transactions(
        &self,
        entry: &Entry,
        manifest: &Manifest,
        members: Versions,
        mut after: u64,
    ) -> Result<Next, ProgramError> {
        let store = &self.runner.store;
        let consumer = storage::consumer(entry.id);
        let begun = Instant::now();
        loop {
            let fed = store.fed_after(after, FEED_PAGE);
            let Some(last) = fed.last().copied() else { return Ok(Next::Nothing) };
            let mut missing = LedgerSet::default();
            for next in &fed {
                let ledger = next.ledger;
                // A lost ledger may be removed in full or in part.
                if store.is_lost(&consumer, ledger) {
                    continue;
                }
                if self.runner.concerns(ledger, manifest)? {
                    store.mark_passed(&consumer, 0, &missing);
                    return Ok(Next::Ledger(*next));
                }
                if !self.runner.is_complete(ledger, manifest)? {
                    missing.insert(LedgerRange { first: ledger, last: ledger });
                }
            }
            after = last.place;
            let examined = (manifest, members);
            if !self.mark_processed(entry, examined, after, fed.len(), &missing)?
                || begun.elapsed() > SHORT_TURN
            {
                return Ok(Next::More);
            }
        }
    }

    /// Records that a program has processed the feed up to `place` without any runs, and that it
    /// lost the ledgers in `missing`. Returns false, and records nothing, when the program was
    /// deleted or contracts were registered, or have become members, since.
    pub(super) fn mark_processed(
        &self,
        entry: &Entry,
        (examined_with, members): (&Manifest, Versions),
        place: u64,
        ledgers: usize,
        missing: &LedgerSet,
    ) -> Result<bool, ProgramError> {
        let store = &self.runner.store;
        let mut cell = entry.lock();
        cell.reload_if_in_doubt(store)?;
        if cell.deleted
            || cell.manifest.contracts != examined_with.contracts
            || !entry.members.accept(members, true)
        {
            return Ok(false);
        }
        cell.progress.place = cell.progress.place.max(place);
        store.mark_passed(&storage::consumer(entry.id), cell.progress.place, missing);
        cell.unwritten += ledgers;
        if cell.unwritten >= MAX_UNWRITTEN_LEDGERS {
            let progress = cell.progress;
            cell.write(store, |changes| {
                changes.put_cursor(entry.id, progress.place);
                storage::put_json(changes, &storage::progress(entry.id), &progress)
            })?;
            cell.unwritten = 0;
        }
        drop(cell);
        if examined_with.schema.has_storage() {
            self.feeder.notify_new_rows(entry);
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

/// Prepares the runs on a ledger of the feed: on all of it, or on the part that remains.
fn effects_of(manifest: &Manifest, fed: FedLedger, part: Option<Part>) -> Effects {
    let FedLedger { place, ledger, arrival } = fed;
    let mut effects = Effects::none(manifest, ledger, RunSource::Live);
    (effects.place, effects.arrival) = (place, arrival);
    let part = part.filter(|part| part.place == place);
    effects.rest = part.map(|part| TransactionPosition { ledger, application_order: part.from });
    effects
}
