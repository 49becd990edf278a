//! Contract calls executed by the Soroban host: a simulation determines their footprint and
//! resources, and the execution is limited to them.

use std::rc::Rc;
use std::sync::Arc;

use orrery_ledger::domain::{has_lifetime, is_temporary, ttl_key};
use sha2::{Digest, Sha256};
use soroban_env_host::budget::Budget;
use soroban_env_host::e2e_invoke::{
    self, InvokeHostFunctionResult as HostResult, LedgerEntryChange as HostChange,
    RecordingInvocationAuthMode, TtlLedgerEntryMeta,
};
use stellar_xdr::{
    AccountId, ContractEvent, DiagnosticEvent, Hash, HostFunction, InvokeHostFunctionOp,
    InvokeHostFunctionResult, InvokeHostFunctionSuccessPreImage, LedgerEntry, LedgerEntryChange,
    LedgerKey, Limits, OperationResultTr, ReadXdr, ScVal, SorobanAuthorizationEntry,
    SorobanResources, SorobanTransactionData, SorobanTransactionDataExt, WriteXdr,
};

use super::error::{Result, SandboxError};
use super::execution::{Effects, Execution};
use super::fees::{ResourceFee, rent_fee, rent_size, resource_fee};
use super::footprint;
use super::host::{ledger_info, min_persistent_ttl};
use super::keys::ttl_entry;
use super::open_ledger::OpenLedger;
use super::state::{LedgerState, Snapshot};
use super::wasm::modules;

/// Resources, authorisation and rent of a call, as its simulation determined them.
pub(super) struct Simulation {
    pub(super) resources: SorobanResources,
    /// Required authorisation entries; those with an address are not signed yet.
    pub(super) auth: Vec<SorobanAuthorizationEntry>,
    /// Size of events and return value, in bytes.
    pub(super) event_bytes: usize,
    pub(super) rent_fee: i64,
}

/// Runs `function` in recording mode with all authorisation granted. Returns `None` when the call
/// fails or would have to restore an archived entry.
pub(super) fn simulate(
    state: &Arc<LedgerState>,
    ledger: &OpenLedger<'_>,
    function: &HostFunction,
    source: &AccountId,
    seed: [u8; 32],
) -> Result<Option<Simulation>> {
    let outcome = e2e_invoke::invoke_host_function_in_recording_mode(
        &Budget::default(),
        false,
        function,
        source,
        RecordingInvocationAuthMode::recording(false, seed[0].is_multiple_of(2)),
        ledger_info(ledger, false),
        Rc::new(Snapshot(Arc::clone(state))),
        seed,
        &mut Vec::new(),
    )
    .map_err(|error| SandboxError::host("simulate a call", &error))?;
    // The archived entry would have to be restored first, which calls of the sandbox's own accounts
    // never do.
    if outcome.invoke_result.is_err() || !outcome.restored_rw_entry_indices.is_empty() {
        return Ok(None);
    }
    let mut resources = outcome.resources;
    // The simulation does not meter signature checks, and a source account's entry grows with its
    // first transaction.
    resources.instructions += resources.instructions / 4 + 1_500_000;
    resources.disk_read_bytes += 400;
    resources.write_bytes += 400;
    Ok(Some(Simulation {
        resources,
        auth: outcome.auth,
        event_bytes: outcome.contract_events_and_return_value_size as usize,
        rent_fee: rent_fee(
            &e2e_invoke::extract_rent_changes(&outcome.ledger_changes),
            ledger.sequence,
        ),
    }))
}

/// A call with the parameters of its transaction.
pub(super) struct Call<'a> {
    pub(super) operation: &'a InvokeHostFunctionOp,
    pub(super) data: &'a SorobanTransactionData,
    pub(super) source: &'a AccountId,
    pub(super) transaction_bytes: usize,
    /// Seed of the pseudo-random numbers that the contracts draw.
    pub(super) seed: [u8; 32],
    /// Whether the transaction was submitted from outside.
    pub(super) is_submitted: bool,
}

/// Changes, events and return value of a call, as the host encodes them.
struct Outcome {
    changes: Vec<HostChange>,
    events: Vec<Vec<u8>>,
    value: Vec<u8>,
}

/// Runs the call of a signed transaction and writes its changes.
pub(super) fn execute(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    call: &Call<'_>,
) -> Result<Execution> {
    let failed = |failure| Ok(Execution::failed(invoked(failure)));
    let lifetime = min_persistent_ttl(call.is_submitted);
    let Some(entries) = load_footprint(state, ledger.sequence, call.data, lifetime)? else {
        return failed(InvokeHostFunctionResult::EntryArchived);
    };
    let mut diagnostics = Vec::new();
    let outcome = match invoke(state, ledger, call, entries, &mut diagnostics)? {
        Ok(outcome) => outcome,
        Err(failure) => {
            return Ok(Execution { diagnostics, ..Execution::failed(invoked(failure)) });
        }
    };

    let rent = rent_fee(&e2e_invoke::extract_rent_changes(&outcome.changes), ledger.sequence);
    let refundable = match refundable_fee(call, &outcome, rent) {
        Ok(refundable) => refundable,
        Err(failure) => return failed(failure),
    };
    let (result, effects) = write_outcome(state, ledger, call, outcome)?;
    Ok(Execution {
        result: invoked(result),
        effects: Some(effects),
        refundable_used: refundable + rent,
        rent_fee: rent,
        diagnostics: Vec::new(),
    })
}

/// Runs a call in the host, with the encoded entries of its footprint, and appends what the host tells
/// of it. The inner error is the failure of the transaction.
fn invoke(
    state: &LedgerState,
    ledger: &OpenLedger<'_>,
    call: &Call<'_>,
    entries: Vec<EncodedEntry>,
    diagnostics: &mut Vec<DiagnosticEvent>,
) -> Result<Result<Outcome, InvokeHostFunctionResult>> {
    let Call { operation, data, source, seed, is_submitted, .. } = *call;
    let auth = operation
        .auth
        .iter()
        .map(|entry| entry.to_xdr(Limits::none()))
        .collect::<Result<Vec<_>, _>>()?;
    let budget = Budget::default();
    let outcome = e2e_invoke::invoke_host_function(
        &budget,
        true,
        operation.host_function.to_xdr(Limits::none())?,
        data.resources.to_xdr(Limits::none())?,
        restored_indices(data),
        source.to_xdr(Limits::none())?,
        auth.into_iter(),
        ledger_info(ledger, is_submitted),
        entries.into_iter(),
        seed.to_vec(),
        diagnostics,
        None,
        modules(state, &data.resources)?,
    );
    let used =
        budget.get_cpu_insns_consumed().map_err(|error| SandboxError::host("meter", &error))?;
    if used > u64::from(data.resources.instructions) {
        return Ok(Err(InvokeHostFunctionResult::ResourceLimitExceeded));
    }
    let outcome = match outcome {
        Ok(outcome) => outcome,
        // A submitted transaction may contain input that the host rejects as a whole.
        Err(_) if is_submitted => return Ok(Err(InvokeHostFunctionResult::Trapped)),
        Err(error) => return Err(SandboxError::host("execute a call", &error)),
    };
    let HostResult { encoded_invoke_result, ledger_changes, encoded_contract_events } = outcome;
    Ok(match encoded_invoke_result {
        Ok(value) => {
            Ok(Outcome { changes: ledger_changes, events: encoded_contract_events, value })
        }
        Err(_) => Err(InvokeHostFunctionResult::Trapped),
    })
}

/// Returns the refundable fee of a call without its rent. The error is the failure of a transaction
/// whose fee is too low, or whose call wrote too much.
fn refundable_fee(
    call: &Call<'_>,
    outcome: &Outcome,
    rent: i64,
) -> Result<i64, InvokeHostFunctionResult> {
    let Call { data, transaction_bytes, .. } = *call;
    let event_bytes = outcome.value.len() + outcome.events.iter().map(Vec::len).sum::<usize>();
    let ResourceFee { fixed, refundable } =
        resource_fee(&data.resources, event_bytes, transaction_bytes);
    if refundable + rent > data.resource_fee - fixed {
        return Err(InvokeHostFunctionResult::InsufficientRefundableFee);
    }
    let new_values = outcome.changes.iter().filter_map(|change| change.encoded_new_value.as_ref());
    if new_values.map(Vec::len).sum::<usize>() > data.resources.write_bytes as usize {
        return Err(InvokeHostFunctionResult::ResourceLimitExceeded);
    }
    Ok(refundable)
}

/// Restores the archived entries that a successful call used, and writes its changes.
fn write_outcome(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    call: &Call<'_>,
    outcome: Outcome,
) -> Result<(InvokeHostFunctionResult, Effects)> {
    let Call { data, is_submitted, .. } = *call;
    let return_value = ScVal::from_xdr(outcome.value, Limits::none())?;
    let events = outcome
        .events
        .into_iter()
        .map(|event| ContractEvent::from_xdr(event, Limits::none()))
        .collect::<Result<Vec<_>, _>>()?;
    let preimage = InvokeHostFunctionSuccessPreImage {
        return_value: return_value.clone(),
        events: events.as_slice().try_into()?,
    };
    let digest = Sha256::digest(preimage.to_xdr(Limits::none())?);
    let footprint = &data.resources.footprint.read_write;
    let restored = restored_indices(data).iter();
    let mut changes = footprint::restore_entries(
        state,
        ledger.sequence,
        restored.filter_map(|index| footprint.get(*index as usize)),
        ledger.sequence.saturating_add(min_persistent_ttl(is_submitted) - 1),
    )?;
    changes.extend(write_changes(state, ledger.sequence, outcome.changes)?);
    let result = InvokeHostFunctionResult::Success(Hash(digest.into()));
    Ok((result, Effects { changes, events, return_value: Some(return_value) }))
}

fn invoked(result: InvokeHostFunctionResult) -> OperationResultTr {
    OperationResultTr::InvokeHostFunction(result)
}

type EncodedEntry = (Option<Vec<u8>>, Option<TtlLedgerEntryMeta>);

/// Returns the indices in the read-write footprint of entries that are restored before the call
/// (CAP-66).
fn restored_indices(data: &SorobanTransactionData) -> &[u32] {
    match &data.ext {
        SorobanTransactionDataExt::V0 => &[],
        SorobanTransactionDataExt::V1(resources) => &resources.archived_soroban_entries,
    }
}

/// Encodes the entries of a footprint in its order, with a TTL of `lifetime` ledgers for those that
/// the call restores. Returns `None` when a persistent entry is archived and the call does not
/// restore it.
fn load_footprint(
    state: &LedgerState,
    sequence: u32,
    data: &SorobanTransactionData,
    lifetime: u32,
) -> Result<Option<Vec<EncodedEntry>>> {
    let (footprint, restored) = (&data.resources.footprint, restored_indices(data));
    let mut entries = Vec::new();
    let places = (0u32..).map(Some).zip(footprint.read_write.iter());
    let keys = footprint.read_only.iter().map(|key| (None, key));
    for (place, key) in keys.chain(places) {
        let mut live_until = state.live_until(key)?;
        let mut expired = live_until.is_some_and(|last| last < sequence);
        if expired && !is_temporary(key) {
            if place.is_none_or(|place| !restored.contains(&place)) {
                return Ok(None);
            }
            expired = false;
            live_until = Some(sequence.saturating_add(lifetime - 1));
        }
        let Some(entry) = state.get(key).filter(|_| !expired) else {
            entries.push((None, None));
            continue;
        };
        let ttl = match live_until {
            Some(live_until_ledger) => {
                let entry_size_for_rent = rent_size(entry)?;
                Some(TtlLedgerEntryMeta { live_until_ledger, entry_size_for_rent })
            }
            None => None,
        };
        entries.push((Some(entry.to_xdr(Limits::none())?), ttl));
    }
    Ok(Some(entries))
}

/// Writes the changes that the host reports. A node keeps them in a hash map, so their order in the
/// metadata is arbitrary; the order used here, last key first and each TTL before its entry, is the
/// most common one.
fn write_changes(
    state: &mut LedgerState,
    sequence: u32,
    host_changes: Vec<HostChange>,
) -> Result<Vec<LedgerEntryChange>> {
    let mut changes = Vec::new();
    for change in host_changes.into_iter().rev() {
        let key = LedgerKey::from_xdr(&change.encoded_key, Limits::none())?;
        if let Some(ttl) = &change.ttl_change
            && state.live_until(&key)?.is_none_or(|last| last < ttl.new_live_until_ledger)
        {
            let entry = ttl_entry(&key, ttl.new_live_until_ledger)?;
            changes.extend(state.write(entry, sequence)?);
        }
        if let Some(value) = change.encoded_new_value {
            let entry = LedgerEntry::from_xdr(value, Limits::none())?;
            changes.extend(state.write(entry.data, sequence)?);
        } else if !change.read_only {
            changes.extend(state.remove(&key)?);
            if has_lifetime(&key) {
                changes.extend(state.remove(&ttl_key(&key)?)?);
            }
        }
    }
    Ok(changes)
}
