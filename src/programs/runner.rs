//! Runs a program on the transactions of one ledger: selects the transactions and collects what
//! each run leaves. Does not depend on threads or turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerEntryChanges;

use super::ProgramError;
use super::effects::{Effects, Run};
use super::engine::StateError;
use super::engine::{Engine, Invocation, Limits, Outcome, Program, Recorded, RunError};
use super::events::{EventInterfaces, Kinds};
use super::manifest::Manifest;
use super::records::{Execution, Likeness};
use super::registry::Entry;
use super::rows::RunRows;
use super::state::{LedgerStates, LookupLimits, States, Upstream, applied_protocol};
use super::transaction::HostCall;
use super::upstream_limiter::{RefusingUpstream, UpstreamLimiter};
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, Page};
use orrery_settings as settings;
use orrery_store::{Store, TransactionQuery};
use orrery_tables::schema::SchemaLimits;

/// Base reserve of the public networks since 2019, in stroops. The ledger header has the actual
/// value, but is not kept for long; it matters to contracts that create trustlines.
const BASE_RESERVE: u32 = 5_000_000;

/// Dependencies of running programs.
pub(super) struct Runner {
    pub store: Arc<Store>,
    pub engine: Engine,
    pub settings: settings::Programs,
    /// Server that is asked for entries that the store cannot determine; `None` without one.
    pub upstream: Option<UpstreamLimiter>,
    /// Returns the current time in UNIX milliseconds.
    pub clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Interfaces by which the events of projects are declared.
    pub events: EventInterfaces,
}

/// Limits of a program's turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct TurnLimits {
    /// No run is started after this time.
    pub deadline: Instant,
    /// Whether runs may wait for the upstream server. If not, a run that needs it ends the turn
    /// with an error for which [`ProgramError::needs_upstream`] is true.
    pub may_query_upstream: bool,
}

impl TurnLimits {
    /// Creates limits with this deadline, under which runs may wait for the upstream server.
    pub(super) fn with_deadline(deadline: Instant) -> Self {
        Self { deadline, may_query_upstream: true }
    }
}

impl Runner {
    /// Returns whether the rows of the program's owner have reached the size limit.
    pub(super) fn is_full(&self, entry: &Entry) -> bool {
        self.is_full_with(entry, 0)
    }

    /// Returns whether the limit is reached once `more` bytes of rows are added.
    pub(super) fn is_full_with(&self, entry: &Entry, more: usize) -> bool {
        entry.owner_bytes().saturating_add(more as u64) >= self.settings.owner_mib.bytes()
    }

    /// Returns the successful calls in a ledger that touch one of the contracts, in apply order.
    pub(super) fn transactions(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<Vec<HostCall>, ProgramError> {
        let query = TransactionQuery {
            ledgers: Some(LedgerRange::only(ledger)),
            contracts: contracts.to_vec(),
            page: Page::all(),
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

    /// Whether a stored ledger has something that the program is run on.
    pub(super) fn concerns(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
    ) -> Result<bool, ProgramError> {
        match &manifest.events {
            Some(project) => self.has_events(ledger, manifest, project),
            None => Ok(self.store.touches(ledger, &manifest.contracts)?),
        }
    }

    /// Whether everything of a stored ledger that the program is run on is present: nothing was left
    /// out when the ledger was stored, and retention has removed nothing. Data read before a call that
    /// returns true was complete.
    pub(super) fn is_complete(
        &self,
        ledger: LedgerSeq,
        manifest: &Manifest,
    ) -> Result<bool, ProgramError> {
        match &manifest.events {
            Some(project) if project.has_storage => Ok(self
                .has_all_events(ledger, &manifest.contracts)?
                && self.store.has_all_transactions(ledger)?),
            Some(_) => self.has_all_events(ledger, &manifest.contracts),
            None => self.is_complete_for(ledger, &manifest.contracts),
        }
    }

    /// Runs a program on a ledger, or on the rest of it, within these limits. Writes nothing.
    pub(super) fn run(
        &self,
        entry: &Entry,
        contracts: &[ContractId],
        mut effects: Effects,
        limits: TurnLimits,
    ) -> Result<Effects, ProgramError> {
        let TurnLimits { deadline, may_query_upstream } = limits;
        let manifest = entry.snapshot().manifest;
        if manifest.events.is_some() {
            let manifest = Manifest { contracts: contracts.to_vec(), ..Manifest::clone(&manifest) };
            effects.members = effects.members.or(Some(entry.members.versions()));
            return self.read_events(&manifest, effects, deadline);
        }
        let module = entry.module.get().ok_or(ProgramError::NotReady(entry.id))?;
        let from = effects.rest.take();
        // Read before any lookup: ledgers that are stored during the runs may contain what a run
        // was missing.
        let stored_from = || self.store.range_of(effects.ledger).map(|range| range.first);
        effects.stored_from = effects.stored_from.or_else(stored_from);
        let protocol = applied_protocol(&self.store, effects.ledger)?.unwrap_or(0);
        let calls = self.transactions(effects.ledger, contracts)?;
        let concerned = |call: &HostCall| call.called.all().any(|id| contracts.contains(id));
        let (selected, repeated) = (effects.selected.clone(), effects.repeated.clone());
        let left = |call: &HostCall| {
            from.is_none_or(|from| call.position >= from)
                && selected.as_ref().is_none_or(|selected| selected.contains(&call.hash))
                && repeated.as_ref().is_none_or(|repeated| repeated.contains(&call.position))
        };
        let owner = entry.snapshot().manifest.owner.clone();
        let owner_upstream = self.upstream.as_ref().map(|limiter| limiter.for_owner(owner));
        let upstream = owner_upstream.as_ref().map(|owner_upstream| {
            if may_query_upstream { owner_upstream as &dyn Upstream } else { &RefusingUpstream }
        });
        let states = States::new(&self.store, upstream).within(LookupLimits::from(&self.settings));
        let mut of_ledger = None;
        let mut first = true;
        for call in calls.iter().filter(|call| concerned(call) && left(call)) {
            // At least one run per turn, so that the program makes progress.
            let time_is_over = Instant::now() > deadline;
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
        effects.complete = self.is_complete_for(effects.ledger, contracts)?;
        Ok(effects)
    }

    /// Returns whether all transactions of a stored ledger that a program of these contracts is run
    /// on are present: none was left out when the ledger was stored, and retention has removed
    /// none. Data read before a call that returns true was complete.
    pub(super) fn is_complete_for(
        &self,
        ledger: LedgerSeq,
        contracts: &[ContractId],
    ) -> Result<bool, ProgramError> {
        Ok(!self.store.leaves_out(ledger, contracts)? && self.store.has_all_transactions(ledger)?)
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
        let limits = &Limits::from(&self.settings);
        let at = (self.clock)();
        let begun = Instant::now();
        let mut execution = Execution::of(effects.ledger, &call.hash, effects.source, at);
        let mut rows = RunRows::none(call.hash, call.closed_at);
        let mut fuel = 0;
        match self.engine.run(&invocation, &state, program, limits) {
            Ok(Outcome { entered: false, .. }) => return Ok(None),
            Ok(outcome) => {
                execution.micros = outcome.micros;
                execution.likeness = Likeness::from(outcome.fidelity).shortened();
                fuel = outcome.fuel;
                match outcome.result {
                    Ok(emits) => {
                        match effects.schema.admit(&emits, SchemaLimits::from(&self.settings)) {
                            Ok(grown) => {
                                execution.rows = u32::try_from(emits.len()).unwrap_or(u32::MAX);
                                rows.emits = emits;
                                effects.schema = grown.unwrap_or_else(|| effects.schema.clone());
                            }
                            Err(error) => execution.set_error(&error),
                        }
                    }
                    Err(fault) => execution.set_error(&fault),
                }
            }
            Err(unknown @ RunError::StateUnavailable(_)) => {
                execution.set_error(&format_args!("state unavailable: {unknown}"));
                execution.state_unavailable = true;
            }
            Err(RunError::State(StateError::Lookups(fault))) => {
                execution.micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                execution.set_error(&fault);
            }
            Err(error) => return Err(error.into()),
        }
        let encoded = if rows.emits.is_empty() {
            Vec::new()
        } else {
            rows.encode().map_err(|_| ProgramError::Damaged("what a run emitted"))?
        };
        let kinds = Kinds::default();
        Ok(Some(Run { position: call.position, execution, fuel, rows, kinds, encoded }))
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

/// Delay before a failure that is not the program's fault is retried.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);
