//! A program on the transactions of one ledger: which it is run on, what each run leaves, and how all
//! of it is written at once. Knows neither threads nor turns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerEntryChanges;

use super::ProgramError;
use super::backfill::Order;
use super::engine::{Engine, Invocation, Outcome, Program, Recorded, RunError};
use super::manifest::{Manifest, Progress};
use super::older::put_order;
use super::questions::Questions;
use super::records::{Execution, LedgerStats, LedgerSums, Likeness, RunSource};
use super::registry::{Entry, put_manifest, put_progress};
use super::rows::RunRows;
use super::state::{LedgerStates, StateError, States, Upstream, applied_protocol};
use super::transaction::HostCall;
use super::waiting::{MOST_WAITING, Waiting};
use super::{Settings, records};
use crate::domain::{ContractId, Direction, LedgerRange, LedgerSeq, Page, ProgramId, TxHash};
use crate::store::{Store, TransactionPosition, TransactionQuery, WaitingRun, program_consumer};
use crate::tables::schema::ProgramSchema;

/// Base reserve of the public networks since 2019, in stroops. A transaction's ledger says what it was,
/// but is kept for a while only; it matters to contracts that create trustlines.
const BASE_RESERVE: u32 = 5_000_000;
/// Failures in a row after which a program is no longer run, or a backfill stopped.
pub(super) const MOST_ERRORS_IN_A_ROW: u32 = 100;
/// Bytes of XDR that the runs on one ledger emit before what there is of them is written and the rest of
/// the ledger becomes a part of its own. In memory they take five to six times as much.
pub(super) const PART_BYTES: usize = 4 << 20;

/// What runs programs, and what they are run on.
pub(super) struct Runner {
    pub store: Arc<Store>,
    pub engine: Engine,
    pub settings: Settings,
    /// Who is asked for entries that nothing stored tells of.
    pub questions: Option<Questions>,
    /// UNIX milliseconds now.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// What the runs of one program on one ledger leave.
pub(super) struct Effects {
    pub ledger: LedgerSeq,
    pub source: RunSource,
    /// The ledger's place in the feed; 0 when it is not from there.
    pub place: u64,
    /// The contracts that were registered when it was begun.
    pub contracts: Vec<ContractId>,
    pub schema: ProgramSchema,
    pub runs: Vec<Run>,
    /// Bytes of what the runs emitted, as XDR.
    pub bytes: usize,
    /// The first of the ledgers that were stored without a gap up to this one, before the first run.
    pub stored_from: Option<LedgerSeq>,
    /// The first transaction that is left, when there was no time for it.
    pub rest: Option<TransactionPosition>,
    /// Whether everything was there that the program is run on, as far as the runs have got.
    pub whole: bool,
    /// The transactions that are wanted in a trial; without this all of them are.
    pub only: Option<BTreeSet<TxHash>>,
    /// The runs that are made again; without this all are made.
    pub again: Option<BTreeSet<TransactionPosition>>,
}

/// What one run leaves.
pub(super) struct Run {
    pub position: TransactionPosition,
    pub execution: Execution,
    pub fuel: u64,
    /// Empty when it failed, and when it emitted nothing.
    pub rows: RunRows,
    /// The rows in their stored form, when there are some.
    pub encoded: Vec<u8>,
}

impl Effects {
    /// Nothing yet.
    pub(super) fn none(manifest: &Manifest, ledger: LedgerSeq, source: RunSource) -> Self {
        Self {
            ledger,
            source,
            place: 0,
            contracts: manifest.contracts.clone(),
            schema: manifest.schema.clone(),
            runs: Vec::new(),
            bytes: 0,
            stored_from: None,
            rest: None,
            whole: false,
            only: None,
            again: None,
        }
    }

    /// Whether what there is has to be written before there is more. A trial writes nothing and has limits
    /// of its own.
    pub(super) fn is_part(&self) -> bool {
        self.bytes >= PART_BYTES && self.only.is_none()
    }

    fn add(&mut self, run: Run) {
        self.bytes += run.encoded.len();
        self.runs.push(run);
    }
}

impl Runner {
    /// Whether an owner has as many rows as an owner may have.
    pub(super) fn is_full(&self, entry: &Entry) -> bool {
        entry.owner_bytes() >= self.settings.owner_bytes
    }

    /// The successful calls of a ledger that touch one of the contracts, in apply order.
    pub(super) fn transactions(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<Vec<HostCall>, ProgramError> {
        let query = TransactionQuery {
            ledgers: Some(LedgerRange { first: ledger, last: ledger }),
            contracts: contracts.to_vec(),
            page: Page { direction: Direction::OldestFirst, ..Page::first(usize::MAX) },
        };
        let network = self.store.network().id();
        let mut found = Vec::new();
        self.store.transactions(&query, |record| {
            if record.successful {
                found.push(HostCall::read(record, network));
            }
        })?;
        let calls = found.into_iter().filter_map(Result::transpose);
        Ok(calls.collect::<Result<_, _>>()?)
    }

    /// Runs a program on a ledger, or on what is left of it, until `until`. Nothing is written.
    pub(super) fn run(
        &self,
        entry: &Entry,
        contracts: &[ContractId],
        mut effects: Effects,
        until: Option<Instant>,
    ) -> Result<Effects, ProgramError> {
        let module = entry.module.get().ok_or(ProgramError::NotReady(entry.id))?;
        let from = effects.rest.take();
        // Before anything is looked up: what is stored meanwhile may be what a run was missing.
        let stored_from = || self.store.range_of(effects.ledger).map(|range| range.first);
        effects.stored_from = effects.stored_from.or_else(stored_from);
        let protocol = applied_protocol(&self.store, effects.ledger)?.unwrap_or(0);
        let calls = self.transactions(effects.ledger, contracts)?;
        let concerned = |call: &HostCall| call.called.all().any(|id| contracts.contains(id));
        let (only, again) = (effects.only.clone(), effects.again.clone());
        let left = |call: &HostCall| {
            from.is_none_or(|from| call.position >= from)
                && only.as_ref().is_none_or(|only| only.contains(&call.hash))
                && again.as_ref().is_none_or(|again| again.contains(&call.position))
        };
        let owner = entry.shown().manifest.owner.clone();
        let asks = self.questions.as_ref().map(|questions| questions.of(owner));
        let upstream = asks.as_ref().map(|asks| asks as &dyn Upstream);
        let states = States::new(&self.store, upstream).within(self.settings.lookups);
        let mut of_ledger = None;
        let mut first = true;
        for call in calls.iter().filter(|call| concerned(call) && left(call)) {
            // One at least, or it would never end.
            let time_is_over = until.is_some_and(|until| Instant::now() > until);
            if !first && (time_is_over || effects.is_part()) {
                effects.rest = Some(call.position);
                break;
            }
            first = false;
            let of_ledger = match &mut of_ledger {
                Some(of_ledger) => of_ledger,
                None => of_ledger.insert(states.at(effects.ledger)?),
            };
            let program = Program { module, contracts };
            let run = self.run_one(program, (call, protocol), of_ledger, &mut effects)?;
            if let Some(run) = run {
                effects.add(run);
            }
        }
        effects.whole = self.is_whole(effects.ledger, contracts)?;
        Ok(effects)
    }

    /// Whether everything of a stored ledger is there that a program of these contracts is run on: its
    /// transactions were not left out when it was stored, and retention has not removed any. What was read
    /// before this says yes was all there.
    pub(super) fn is_whole(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<bool, ProgramError> {
        let now = self.settings.indexed.as_ref();
        Ok(!self.store.leaves_out(ledger, contracts, now)?
            && self.store.has_all_transactions(ledger)?)
    }

    fn run_one(
        &self,
        program: Program<'_>,
        (call, protocol): (&HostCall, u32),
        states: &LedgerStates<'_>,
        effects: &mut Effects,
    ) -> Result<Option<Run>, ProgramError> {
        let invocation = Arc::new(self.invocation(call, protocol));
        let state = states.before(call.position.application_order, &invocation.footprint);
        let limits = &self.settings.limits;
        let at = (self.clock)();
        let begun = Instant::now();
        let mut execution = Execution::of(effects.ledger, &call.hash, effects.source, at);
        let closed_at = call.closed_at;
        let mut rows = RunRows { transaction: call.hash, closed_at, emits: Vec::new() };
        let mut fuel = 0;
        match self.engine.run(&invocation, &state, program, limits) {
            Ok(Outcome { entered: false, .. }) => return Ok(None),
            Ok(outcome) => {
                execution.micros = outcome.micros;
                execution.likeness = Likeness::from(outcome.fidelity).shortened();
                fuel = outcome.fuel;
                match outcome.result {
                    Ok(emits) => {
                        match effects.schema.admit(&emits, self.settings.schema_limits()) {
                            Ok(grown) => {
                                execution.rows = u32::try_from(emits.len()).unwrap_or(u32::MAX);
                                rows.emits = emits;
                                effects.schema = grown.unwrap_or_else(|| effects.schema.clone());
                            }
                            Err(error) => execution.fails(&error),
                        }
                    }
                    Err(fault) => execution.fails(&fault),
                }
            }
            Err(unknown @ RunError::StateUnavailable(_)) => {
                execution.fails(&format_args!("state unavailable: {unknown}"));
                execution.state_unavailable = true;
            }
            Err(RunError::State(StateError::Lookups(fault))) => {
                execution.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                execution.fails(&fault);
            }
            Err(error) => return Err(error.into()),
        }
        let encoded = match rows.emits.is_empty() {
            true => Vec::new(),
            false => rows.encode().map_err(|_| ProgramError::Damaged("what a run emitted"))?,
        };
        Ok(Some(Run { position: call.position, execution, fuel, rows, encoded }))
    }

    fn invocation(&self, call: &HostCall, protocol: u32) -> Invocation {
        let recorded = call.recorded.return_value.clone().and_then(|return_value| {
            let events = call.recorded.events.clone();
            let changes = LedgerEntryChanges(call.recorded.changes.clone().try_into().ok()?);
            Some(Recorded { return_value, events, changes })
        });
        Invocation {
            ledger: call.position.ledger,
            closed_at: call.closed_at.seconds(),
            network_id: *self.store.network().id(),
            protocol,
            base_reserve: BASE_RESERVE,
            transaction: call.hash,
            application_order: call.position.application_order,
            source_account: call.source_account.clone(),
            host_function: call.function.clone(),
            authorization: call.authorization.clone(),
            footprint: call.footprint_keys().cloned().collect(),
            recorded,
        }
    }

    /// Writes what runs left, and what `also` says about the program, at once. Nothing in memory changes
    /// unless it is [`Wrote::Runs`]: that is also the rule for what `also` has a hand in.
    ///
    /// # Errors
    /// When nothing was written, or nobody knows.
    pub(super) fn write(
        &self,
        entry: &Entry,
        effects: &Effects,
        also: impl FnOnce(&mut Progress, &WrittenRuns, &[Execution]) -> Option<Order>,
    ) -> Result<Wrote, ProgramError> {
        let mut cell = entry.lock();
        cell.settle(&self.store)?;
        if cell.deleted {
            return Ok(Wrote::Nothing);
        }
        if cell.manifest.contracts != effects.contracts {
            return Ok(Wrote::Nothing);
        }
        let mut new = self.new_runs(entry.id, effects)?;
        let (mut manifest, mut progress) = (Manifest::clone(&cell.manifest), cell.progress);
        let changed = self.account(&mut manifest, &mut progress, effects, &mut new)?;
        let (waits, over, given_up) = again(effects, &cell.waiting);
        progress.given_up += given_up;
        new.written.waiting_changed = !waits.is_empty() || !over.is_empty() || given_up > 0;
        let order = also(&mut progress, &new.written, &new.executions);
        cell.write(&self.store, |changes| {
            let log = progress.log - new.rows.len() as u64;
            for (number, (position, bytes)) in (log + 1..).zip(&new.rows) {
                changes.put_rows(entry.id, *position, number, bytes)?;
            }
            let first = progress.executions - new.executions.len() as u64;
            for (number, execution) in (first + 1..).zip(&new.executions) {
                records::put_execution(changes, entry.id, number, execution)?;
            }
            if let Some(stats) = &new.stats {
                records::put_sums(changes, entry.id, stats)?;
            }
            if let Some(order) = &order {
                put_order(changes, order)?;
            }
            if changed {
                put_manifest(changes, &manifest)?;
            }
            changes.put_cursor(entry.id, progress.place);
            if effects.place > 0 && effects.rest.is_none() {
                let ledger = LedgerRange { first: effects.ledger, last: effects.ledger };
                changes.put_seen(entry.id, &ledger.into(), effects.whole);
            }
            waits.iter().try_for_each(|run| changes.put_waiting_run(entry.id, *run))?;
            over.iter().try_for_each(|position| changes.delete_waiting_run(entry.id, *position))?;
            put_progress(changes, entry.id, &progress)
        })?;
        new.written.stopped = !manifest.running && cell.manifest.running;
        if new.written.stopped {
            let because = manifest.stopped_because.as_deref();
            tracing::warn!(program = %entry.id, because, "a program is no longer run");
            self.store.set_active(&program_consumer(entry.id), false);
        }
        if changed {
            cell.manifest = Arc::new(manifest);
        }
        cell.progress = progress;
        cell.waiting.written(&waits, &over);
        Ok(Wrote::Runs(new.written))
    }

    /// What of the runs is not stored yet.
    fn new_runs<'e>(
        &self,
        program: ProgramId,
        effects: &'e Effects,
    ) -> Result<NewRuns<'e>, ProgramError> {
        let mut new = NewRuns::default();
        for run in &effects.runs {
            let mut execution = run.execution.clone();
            if !run.rows.emits.is_empty() {
                // A backfill and live ledgers may overlap.
                if self.store.rows_of_run(program, run.position)?.is_some() {
                    execution.rows = 0;
                } else {
                    new.rows.push((run.position, &run.encoded));
                }
            }
            new.written.executions += 1;
            new.written.errors += u64::from(execution.error.is_some());
            new.written.rows += u64::from(execution.rows);
            new.executions.push(execution);
        }
        if !new.executions.is_empty() {
            let (ledger, source) = (effects.ledger, effects.source);
            let mut sums: LedgerSums = records::sums_of(&self.store, program, ledger, source)?;
            new.executions.iter().for_each(|execution| sums.add(execution));
            new.stats = Some(LedgerStats { ledger, source, sums });
        }
        Ok(new)
    }

    /// Counts new runs; says whether the manifest has changed.
    fn account(
        &self,
        manifest: &mut Manifest,
        progress: &mut Progress,
        effects: &Effects,
        new: &mut NewRuns<'_>,
    ) -> Result<bool, ProgramError> {
        let mut changed = false;
        if !new.rows.is_empty() {
            // A backfill and live ledgers may have made different tables grow meanwhile.
            let emits = effects.runs.iter().flat_map(|run| run.rows.emits.iter().cloned());
            let grown =
                manifest.schema.admit(&emits.collect::<Vec<_>>(), self.settings.schema_limits());
            let grown = grown.map_err(|error| ProgramError::Outgrown(error.to_string()))?;
            if let Some(grown) = grown {
                manifest.schema = grown;
                changed = true;
            }
        }
        progress.log += new.rows.len() as u64;
        progress.executions += new.executions.len() as u64;
        progress.row_bytes += new.rows.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        if effects.source == RunSource::Live {
            progress.errors_in_a_row = errors_in_a_row(progress.errors_in_a_row, &new.executions);
            if manifest.running && progress.errors_in_a_row >= MOST_ERRORS_IN_A_ROW {
                manifest.running = false;
                manifest.stopped_because = Some(stopped_because(&new.executions));
                changed = true;
            }
        }
        Ok(changed)
    }
}

/// How many runs have failed since the last that did not. One for which state was missing is neither.
pub(super) fn errors_in_a_row(before: u32, executions: &[Execution]) -> u32 {
    executions.iter().fold(before, |count, execution| match &execution.error {
        None => 0,
        Some(_) if execution.state_unavailable => count,
        Some(_) => count.saturating_add(1),
    })
}

/// Why something is no longer run after these.
pub(super) fn stopped_because(executions: &[Execution]) -> String {
    let last = executions.iter().rev().filter(|it| !it.state_unavailable);
    let last = last.filter_map(|it| it.error.as_deref()).next();
    format!(
        "stopped after {MOST_ERRORS_IN_A_ROW} failures in a row, the last one being: {}",
        last.unwrap_or("unknown")
    )
}

/// Which runs are to be made again, which of those that waited are not, and how many there is no room for.
fn again(effects: &Effects, waiting: &Waiting) -> (Vec<WaitingRun>, Vec<TransactionPosition>, u64) {
    let from = effects.stored_from.unwrap_or(effects.ledger);
    let (mut waits, mut over, mut given_up) = (Vec::new(), Vec::new(), 0);
    let mut room = MOST_WAITING.saturating_sub(waiting.len());
    for run in &effects.runs {
        let (position, known) = (run.position, waiting.has(run.position));
        match run.execution.state_unavailable {
            true if known => waits.push(WaitingRun { position, from }),
            true if room == 0 => given_up += 1,
            true => {
                room -= 1;
                waits.push(WaitingRun { position, from });
            }
            false if known => over.push(position),
            false => {}
        }
    }
    // Those of which nothing came: they are not stored any more, or call none of the contracts.
    if let Some(again) = effects.again.as_ref() {
        let made: BTreeSet<_> = effects.runs.iter().map(|run| run.position).collect();
        let left =
            |position: &&TransactionPosition| effects.rest.is_none_or(|rest| **position < rest);
        let gone = again.iter().filter(left).filter(|position| !made.contains(position));
        over.extend(gone.filter(|position| waiting.has(**position)));
    }
    (waits, over, given_up)
}

/// What is to be written.
#[derive(Default)]
struct NewRuns<'e> {
    rows: Vec<(TransactionPosition, &'e Vec<u8>)>,
    executions: Vec<Execution>,
    stats: Option<LedgerStats>,
    written: WrittenRuns,
}

/// What came of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrote {
    /// What the runs left is on disk.
    Runs(WrittenRuns),
    /// Nothing: the program is gone, or contracts were registered since, and what was run and passed over
    /// was so without them.
    Nothing,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WrittenRuns {
    pub executions: u64,
    pub errors: u64,
    pub rows: u64,
    /// There are others, more or fewer runs that wait for ledgers.
    pub waiting_changed: bool,
    /// The program is no longer run since.
    pub stopped: bool,
}

/// A wait before our own trouble is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
