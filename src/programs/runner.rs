//! A program on the transactions of one ledger: which it is run on, what each run leaves, and how all
//! of it is written at once. Knows neither threads nor turns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerEntryChanges;

use super::ProgramError;
use super::engine::{Engine, Invocation, Outcome, Program, Recorded, RunError};
use super::manifest::{Manifest, Progress};
use super::records::{Execution, LedgerStats, LedgerSums, RunSource};
use super::registry::{Cell, Entry, Registry, put_manifest, put_progress};
use super::rows::RunRows;
use super::state::{LedgerStates, States, Upstream};
use super::transaction::HostCall;
use super::{Settings, records};
use crate::domain::{
    ContractId, Direction, LedgerRange, LedgerSeq, Owner, Page, ProgramId, TxHash,
};
use crate::store::{Store, TransactionPosition, TransactionQuery};
use crate::tables::schema::ProgramSchema;

/// Base reserve of the public networks since 2019, in stroops. A transaction's ledger says what it was,
/// but is kept for a while only; it matters to contracts that create trustlines.
const BASE_RESERVE: u32 = 5_000_000;
/// Failures in a row after which a program is no longer run.
const MOST_ERRORS_IN_A_ROW: u32 = 100;

/// What runs programs, and what they are run on.
pub(super) struct Runner {
    pub store: Arc<Store>,
    pub engine: Engine,
    pub settings: Settings,
    /// Who is asked for entries that nothing stored tells of.
    pub upstream: Option<Arc<dyn Upstream + Send + Sync>>,
    /// UNIX milliseconds now.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

/// What the runs of one program on one ledger leave.
pub(super) struct Effects {
    pub ledger: LedgerSeq,
    pub source: RunSource,
    pub schema: ProgramSchema,
    pub runs: Vec<Run>,
    /// The first transaction that is left, when there was no time for it.
    pub rest: Option<TransactionPosition>,
    /// The transactions that are wanted; without this all of them are.
    pub only: Option<BTreeSet<TxHash>>,
}

/// What one run leaves.
pub(super) struct Run {
    pub position: TransactionPosition,
    pub execution: Execution,
    pub fuel: u64,
    /// Empty when it failed, and when it emitted nothing.
    pub rows: RunRows,
}

impl Effects {
    /// Nothing yet.
    pub(super) fn none(manifest: &Manifest, ledger: LedgerSeq, source: RunSource) -> Self {
        let schema = manifest.schema.clone();
        Self { ledger, source, schema, runs: Vec::new(), rest: None, only: None }
    }
}

impl Runner {
    /// Whether an owner has as many rows as an owner may have.
    pub(super) fn is_full(&self, registry: &Registry, owner: &Owner) -> bool {
        registry.row_bytes(owner) >= self.settings.owner_bytes
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
        let protocol = self.store.ledger(effects.ledger)?.map_or(0, |row| row.protocol);
        let calls = self.transactions(effects.ledger, contracts)?;
        let concerned = |call: &HostCall| call.called.all().any(|id| contracts.contains(id));
        let only = effects.only.clone();
        let left = |call: &HostCall| {
            from.is_none_or(|from| call.position >= from)
                && only.as_ref().is_none_or(|only| only.contains(&call.hash))
        };
        let states =
            States::new(&self.store, self.upstream.as_deref().map(|it| it as &dyn Upstream));
        let mut of_ledger = None;
        let mut first = true;
        for call in calls.iter().filter(|call| concerned(call) && left(call)) {
            // One at least, or it would never end.
            if !first && until.is_some_and(|until| Instant::now() > until) {
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
            effects.runs.extend(run);
        }
        Ok(effects)
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
        let mut execution = Execution::of(effects.ledger, &call.hash, effects.source, at);
        let closed_at = call.closed_at;
        let mut rows = RunRows { transaction: call.hash, closed_at, emits: Vec::new() };
        let mut fuel = 0;
        match self.engine.run(&invocation, &state, program, limits) {
            Ok(Outcome { entered: false, .. }) => return Ok(None),
            Ok(outcome) => {
                execution.micros = outcome.micros;
                execution.likeness = outcome.fidelity.into();
                fuel = outcome.fuel;
                match outcome.result {
                    Ok(emits) => {
                        match effects.schema.admit(&emits, self.settings.schema_limits()) {
                            Ok(grown) => {
                                execution.rows = u32::try_from(emits.len()).unwrap_or(u32::MAX);
                                rows.emits = emits;
                                effects.schema = grown.unwrap_or_else(|| effects.schema.clone());
                            }
                            Err(error) => execution.error = Some(error.to_string()),
                        }
                    }
                    Err(fault) => execution.error = Some(fault.to_string()),
                }
            }
            Err(unknown @ RunError::StateUnavailable(_)) => {
                execution.error = Some(format!("state unavailable: {unknown}"));
                execution.state_unavailable = true;
            }
            Err(error) => return Err(ProgramError::Run(error.to_string())),
        }
        Ok(Some(Run { position: call.position, execution, fuel, rows }))
    }

    fn invocation(&self, call: &HostCall, protocol: u32) -> Invocation {
        let recorded = call.recorded.return_value.clone().and_then(|return_value| {
            let events = call.recorded.events.clone();
            let changes = LedgerEntryChanges(call.recorded.changes.clone().try_into().ok()?);
            Some(Recorded { return_value, events, changes })
        });
        Invocation {
            ledger: call.position.ledger,
            closed_at: call.closed_at,
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

    /// Writes what runs left, and what `also` says about the program, at once. Says how many rows are
    /// new; `None` when the program is gone.
    pub(super) fn write(
        &self,
        entry: &Entry,
        effects: &Effects,
        also: impl FnOnce(&mut Progress, &WrittenRuns) -> Option<Vec<u8>>,
    ) -> Result<Option<WrittenRuns>, ProgramError> {
        let mut cell = entry.cell.lock();
        if cell.deleted {
            return Ok(None);
        }
        let mut new = self.new_runs(entry.id, effects)?;
        let Cell { manifest, progress, .. } = &*cell;
        let (mut manifest, mut progress) = (manifest.clone(), *progress);
        let changed = self.account(&mut manifest, &mut progress, effects, &mut new)?;
        let order = also(&mut progress, &new.written);
        self.store.change_programs(|changes| {
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
                changes.put_backfill(entry.id, order)?;
            }
            if changed {
                put_manifest(changes, &manifest)?;
            }
            put_progress(changes, entry.id, &progress)
        })?;
        if !manifest.running && cell.manifest.running {
            let because = manifest.stopped_because.as_deref();
            tracing::warn!(program = %entry.id, because, "a program is no longer run");
        }
        cell.manifest = manifest;
        cell.progress = progress;
        Ok(Some(new.written))
    }

    /// What of the runs is not stored yet.
    fn new_runs(&self, program: ProgramId, effects: &Effects) -> Result<NewRuns, ProgramError> {
        let mut new = NewRuns::default();
        for run in &effects.runs {
            let mut execution = run.execution.clone();
            if !run.rows.emits.is_empty() {
                // A backfill and live ledgers may overlap.
                if self.store.rows_of_run(program, run.position)?.is_some() {
                    execution.rows = 0;
                } else {
                    let bytes = run.rows.encode();
                    let bytes = bytes.map_err(|_| ProgramError::Damaged("what a run emitted"))?;
                    new.rows.push((run.position, bytes));
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
        new: &mut NewRuns,
    ) -> Result<bool, ProgramError> {
        let mut changed = false;
        if !new.rows.is_empty() {
            // A backfill and live ledgers may have made different tables grow meanwhile.
            let emits = effects.runs.iter().flat_map(|run| run.rows.emits.iter().cloned());
            let grown =
                manifest.schema.admit(&emits.collect::<Vec<_>>(), self.settings.schema_limits());
            let grown = grown.map_err(|error| ProgramError::Run(error.to_string()))?;
            if let Some(grown) = grown {
                manifest.schema = grown;
                changed = true;
            }
        }
        progress.log += new.rows.len() as u64;
        progress.executions += new.executions.len() as u64;
        progress.row_bytes += new.rows.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        for execution in &new.executions {
            match &execution.error {
                None => progress.errors_in_a_row = 0,
                Some(_) if execution.state_unavailable => {}
                Some(_) => progress.errors_in_a_row += 1,
            }
        }
        if manifest.running && progress.errors_in_a_row >= MOST_ERRORS_IN_A_ROW {
            let last = new.executions.iter().rev().find_map(|it| it.error.as_deref());
            manifest.running = false;
            manifest.stopped_because = Some(format!(
                "stopped after {MOST_ERRORS_IN_A_ROW} failures in a row, the last one being: {}",
                last.unwrap_or("unknown")
            ));
            changed = true;
        }
        Ok(changed)
    }
}

/// What is to be written.
#[derive(Default)]
struct NewRuns {
    rows: Vec<(TransactionPosition, Vec<u8>)>,
    executions: Vec<Execution>,
    stats: Option<LedgerStats>,
    written: WrittenRuns,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct WrittenRuns {
    pub executions: u64,
    pub errors: u64,
    pub rows: u64,
}

/// A wait before our own trouble is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
