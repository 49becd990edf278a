//! What a transaction of one contract operation would do, on any state.

use std::rc::Rc;

use orrery_ledger::domain::{AuthMode, LedgerSeq, Simulation};
use soroban_env_host::e2e_invoke::RecordingInvocationAuthMode;
use soroban_env_host::storage::SnapshotSource;
use soroban_env_host::{HostError, LedgerInfo};
use soroban_simulation::NetworkConfig;
use soroban_simulation::simulation::{
    InvokeHostFunctionSimulationResult, SimulationAdjustmentConfig, simulate_extend_ttl_op,
    simulate_invoke_host_function_op, simulate_restore_op,
};
use stellar_xdr::{
    AccountId, InvokeHostFunctionOp, OperationBody, PublicKey, TransactionExt,
    TransactionV1Envelope, Uint256,
};

use super::envelope::operation_source;

/// Where a transaction is simulated.
pub(crate) struct Circumstances {
    /// The ledger on whose state it is.
    pub latest: LedgerSeq,
    /// The ledger in which it is, for the host.
    pub info: LedgerInfo,
    /// Prices and limits.
    pub config: NetworkConfig,
    /// Seed of the pseudo-random numbers that contracts draw.
    pub seed: [u8; 32],
}

/// How a transaction is simulated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// How authorisation is treated.
    pub mode: AuthMode,
    /// How much the declared instructions exceed the measured ones at least.
    pub leeway: u32,
}

/// Simulates a transaction of one contract operation.
pub(crate) fn simulate<S: SnapshotSource + 'static>(
    state: &Rc<S>,
    circumstances: &Circumstances,
    envelope: &TransactionV1Envelope,
    manner: Manner,
) -> Simulation {
    let (tx, Circumstances { latest, info, config, .. }) = (&envelope.tx, circumstances);
    let failed = |error: String| Simulation::failed(*latest, error, Vec::new());
    let [operation] = tx.operations.as_slice() else {
        return failed("Transaction contains more than one operation".to_owned());
    };
    let mut adjustment = SimulationAdjustmentConfig::default_adjustment();
    let instructions = &mut adjustment.instructions;
    instructions.additive_factor = instructions.additive_factor.max(manner.leeway);
    let footprint = match &tx.ext {
        TransactionExt::V1(data) => data.resources.footprint.clone(),
        TransactionExt::V0 => Default::default(),
    };
    let kept = match &operation.body {
        OperationBody::InvokeHostFunction(call) => {
            let source = operation_source(operation, tx);
            return simulate_call(state, circumstances, call, source, manner.mode, &adjustment);
        }
        OperationBody::ExtendFootprintTtl(op) => {
            // The library adds it to the ledger's number unchecked.
            if op.extend_to > config.max_entry_ttl {
                let (most, extend_to) = (config.max_entry_ttl, op.extend_to);
                return failed(format!(
                    "TTL extension is too large: {extend_to} ledgers, of at most {most}"
                ));
            }
            let keys = &footprint.read_only;
            simulate_extend_ttl_op(&**state, config, &adjustment, info, keys, op.extend_to)
                .map(|simulated| simulated.transaction_data)
        }
        OperationBody::RestoreFootprint(_) => {
            let keys = &footprint.read_write;
            simulate_restore_op(&**state, config, &adjustment, info, keys)
                .map(|simulated| simulated.transaction_data)
        }
        other => {
            let name = other.name();
            return failed(format!("Transaction contains unsupported operation type: {name}"));
        }
    };
    match kept {
        Ok(data) => Simulation::of(*latest, data),
        Err(error) => failed(format!("{error:#}")),
    }
}

fn simulate_call<S: SnapshotSource + 'static>(
    state: &Rc<S>,
    Circumstances { latest, info, config, seed }: &Circumstances,
    call: &InvokeHostFunctionOp,
    source: [u8; 32],
    mode: AuthMode,
    adjustment: &SimulationAdjustmentConfig,
) -> Simulation {
    let mode = match mode {
        AuthMode::Enforce => RecordingInvocationAuthMode::Enforcing(call.auth.to_vec()),
        AuthMode::Record { allow_nonroot, upgraded } => {
            RecordingInvocationAuthMode::recording(!allow_nonroot, upgraded)
        }
    };
    let simulated = simulate_invoke_host_function_op(
        Rc::clone(state) as Rc<dyn SnapshotSource>,
        config,
        adjustment,
        info,
        call.host_function.clone(),
        mode,
        &AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(source))),
        *seed,
        true,
    );
    let InvokeHostFunctionSimulationResult {
        invoke_result,
        auth,
        diagnostic_events,
        transaction_data,
        modified_entries,
        ..
    } = match simulated {
        Ok(simulated) => simulated,
        Err(error) => return Simulation::failed(*latest, format!("{error:#}"), Vec::new()),
    };
    let (value, data) = match (invoke_result, transaction_data) {
        (Ok(value), Some(data)) => (value, data),
        (Ok(_), None) => {
            let error = "the call cannot be simulated".to_owned();
            return Simulation::failed(*latest, error, diagnostic_events);
        }
        (Err(error), _) => {
            return Simulation::failed(*latest, failure(&error), diagnostic_events);
        }
    };
    let changes = modified_entries.into_iter().map(|diff| (diff.state_before, diff.state_after));
    Simulation {
        result: Some((value, auth)),
        events: diagnostic_events,
        changes: changes.filter(|(before, after)| before != after).collect(),
        ..Simulation::of(*latest, data)
    }
}

fn failure(error: &HostError) -> String {
    format!("host invocation failed\n\nCaused by:\n    {error}")
}
