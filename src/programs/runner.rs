//! A program on the transactions of one ledger: which it is run on, and what each run leaves. Knows
//! neither threads nor turns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerEntryChanges;

use super::ProgramError;
use super::Settings;
use super::engine::{Engine, Invocation, Outcome, Program, Recorded, RunError};
use super::manifest::Manifest;
use super::questions::{AskedLater, Questions};
use super::records::{Execution, Likeness, RunSource};
use super::registry::Entry;
use super::rows::RunRows;
use super::state::{LedgerStates, StateError, States, Upstream, applied_protocol};
use super::transaction::HostCall;
use crate::domain::{ContractId, Direction, LedgerRange, LedgerSeq, Page, TxHash};
use crate::store::{Store, TransactionPosition, TransactionQuery};
use crate::tables::schema::ProgramSchema;

/// Base reserve of the public networks since 2019, in stroops. A transaction's ledger says what it was,
/// but is kept for a while only; it matters to contracts that create trustlines.
const BASE_RESERVE: u32 = 5_000_000;
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

/// What a program may do in its turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnLimits {
    /// No run is begun any more from then on.
    pub until: Instant,
    /// Whether the server that knows entries may be waited for. Else a run that needs it ends the turn with an error
    /// of which [`ProgramError::asks`] is true.
    pub may_ask: bool,
}

impl TurnLimits {
    /// Until then, and the server may be waited for.
    pub(super) fn until(until: Instant) -> Self {
        Self { until, may_ask: true }
    }
}

impl Runner {
    /// Whether an owner has as many rows as an owner may have.
    pub(super) fn is_full(&self, entry: &Entry) -> bool {
        self.is_full_with(entry, 0)
    }

    /// The same once so many more bytes of rows are written.
    pub(super) fn is_full_with(&self, entry: &Entry, more: usize) -> bool {
        entry.owner_bytes().saturating_add(more as u64) >= self.settings.owner_bytes
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

    /// Runs a program on a ledger, or on what is left of it, within these limits. Nothing is written.
    pub(super) fn run(
        &self,
        entry: &Entry,
        contracts: &[ContractId],
        mut effects: Effects,
        limits: TurnLimits,
    ) -> Result<Effects, ProgramError> {
        let TurnLimits { until, may_ask } = limits;
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
        let upstream = asks.as_ref().map(|asks| match may_ask {
            true => asks as &dyn Upstream,
            false => &AskedLater,
        });
        let states = States::new(&self.store, upstream).within(self.settings.lookups);
        let mut of_ledger = None;
        let mut first = true;
        for call in calls.iter().filter(|call| concerned(call) && left(call)) {
            // One at least, or it would never end.
            let time_is_over = Instant::now() > until;
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
}

/// A wait before our own trouble is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(1);
