//! Reads current ledger entries and simulates transactions, for clients that prepare one.

use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use orrery_ledger::domain::{AuthMode, LiveEntry, Simulation, is_temporary};
use soroban_env_host::budget::Budget;
use soroban_env_host::e2e_invoke::RecordingInvocationAuthMode;
use soroban_env_host::xdr::{ContractCostParamEntry, ContractCostParams, ContractCostType};
use soroban_env_host::{HostError, LedgerInfo};
use soroban_simulation::NetworkConfig;
use soroban_simulation::simulation::{
    InvokeHostFunctionSimulationResult, SimulationAdjustmentConfig, simulate_extend_ttl_op,
    simulate_invoke_host_function_op, simulate_restore_op,
};
use stellar_xdr::{
    AccountId, ExtensionPoint, LedgerKey, Operation, OperationBody, PublicKey, TransactionExt,
    TransactionV1Envelope, Uint256,
};

use super::envelope::operation_source;
use super::error::{Result, SandboxError};
use super::fees;
use super::host::ledger_info;
use super::open_ledger::OpenLedger;
use super::sandbox::Sandbox;
use super::state::Snapshot;
use super::validation::MAX_INSTRUCTIONS;

/// Memory limit of a call in bytes, the host's default.
pub(super) const MEMORY_LIMIT: u32 = 41_943_040;

impl Sandbox {
    /// Returns an entry in its current state.
    ///
    /// # Errors
    /// Only on a defect of the sandbox.
    pub fn entry(&self, key: &LedgerKey) -> Result<Option<LiveEntry>> {
        let Some(entry) = self.state.get(key) else { return Ok(None) };
        let live_until = self.state.live_until(key)?;
        let is_expired = live_until.is_some_and(|last| last < self.tip.header.ledger_seq);
        if is_expired && is_temporary(key) {
            return Ok(None);
        }
        let live_until = live_until.map(|last| if is_expired { 0 } else { last });
        Ok(Some(LiveEntry { entry: entry.clone(), live_until }))
    }

    /// Returns the number of ledger entries, and the size of contract data and code in bytes.
    pub fn size(&self) -> (usize, u64) {
        (self.state.count(), self.state.contract_bytes())
    }

    /// Simulates a transaction of one contract operation in the next ledger. The declared
    /// instructions exceed those measured by at least `leeway`.
    ///
    /// # Errors
    /// Only on a defect of the sandbox; a failure of the operation is part of the result.
    pub fn simulate(
        &self,
        envelope: &TransactionV1Envelope,
        mode: AuthMode,
        leeway: u32,
    ) -> Result<Simulation> {
        let (tx, latest) = (&envelope.tx, self.latest_ledger());
        let [operation] = tx.operations.as_slice() else {
            return Ok(Simulation::failed(
                latest,
                "Transaction contains more than one operation".to_owned(),
                Vec::new(),
            ));
        };
        let header = &self.tip.header;
        let ledger = OpenLedger {
            network: self.config.network.id(),
            assets: &self.assets,
            sequence: header.ledger_seq.saturating_add(1),
            close_time: header.scp_value.close_time.0.saturating_add(1),
            close_time_ms: None,
            dropped: false,
        };
        let info = ledger_info(&ledger, true);
        let config = network_config(&info)?;
        let mut adjustment = SimulationAdjustmentConfig::default_adjustment();
        let instructions = &mut adjustment.instructions;
        instructions.additive_factor = instructions.additive_factor.max(leeway);
        let snapshot = Snapshot(Arc::clone(&self.state));
        let footprint = match &tx.ext {
            TransactionExt::V1(data) => data.resources.footprint.clone(),
            TransactionExt::V0 => Default::default(),
        };
        let kept = match &operation.body {
            OperationBody::InvokeHostFunction(_) => {
                return self.simulate_call(operation, tx, mode, &config, &adjustment, &info);
            }
            OperationBody::ExtendFootprintTtl(op) => {
                let keys = &footprint.read_only;
                simulate_extend_ttl_op(&snapshot, &config, &adjustment, &info, keys, op.extend_to)
                    .map(|simulated| simulated.transaction_data)
            }
            OperationBody::RestoreFootprint(_) => {
                let keys = &footprint.read_write;
                simulate_restore_op(&snapshot, &config, &adjustment, &info, keys)
                    .map(|simulated| simulated.transaction_data)
            }
            other => {
                let error =
                    format!("Transaction contains unsupported operation type: {}", other.name());
                return Ok(Simulation::failed(latest, error, Vec::new()));
            }
        };
        Ok(match kept {
            Ok(data) => Simulation::of(latest, data),
            Err(error) => Simulation::failed(latest, format!("{error:#}"), Vec::new()),
        })
    }

    fn simulate_call(
        &self,
        operation: &Operation,
        tx: &stellar_xdr::Transaction,
        mode: AuthMode,
        config: &NetworkConfig,
        adjustment: &SimulationAdjustmentConfig,
        info: &LedgerInfo,
    ) -> Result<Simulation> {
        let OperationBody::InvokeHostFunction(call) = &operation.body else {
            return Err(SandboxError::inconsistent("a call that is none"));
        };
        let mode = match mode {
            AuthMode::Enforce => RecordingInvocationAuthMode::Enforcing(call.auth.to_vec()),
            AuthMode::Record { allow_nonroot, upgraded } => {
                RecordingInvocationAuthMode::recording(!allow_nonroot, upgraded)
            }
        };
        let (source, latest) = (operation_source(operation, tx), self.latest_ledger());
        let simulated = simulate_invoke_host_function_op(
            Rc::new(Snapshot(Arc::clone(&self.state))),
            config,
            adjustment,
            info,
            call.host_function.clone(),
            mode,
            &AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(source))),
            // Seed of the pseudo-random numbers: the hash of the latest ledger, which is not
            // predictable.
            self.tip.hash,
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
            Err(error) => return Ok(Simulation::failed(latest, format!("{error:#}"), Vec::new())),
        };
        let (value, data) = match (invoke_result, transaction_data) {
            (Ok(value), Some(data)) => (value, data),
            (Ok(_), None) => {
                let error = "the call cannot be simulated".to_owned();
                return Ok(Simulation::failed(latest, error, diagnostic_events));
            }
            (Err(error), _) => {
                return Ok(Simulation::failed(latest, failure(&error), diagnostic_events));
            }
        };
        let changes =
            modified_entries.into_iter().map(|diff| (diff.state_before, diff.state_after));
        Ok(Simulation {
            result: Some((value, auth)),
            events: diagnostic_events,
            changes: changes.filter(|(before, after)| before != after).collect(),
            ..Simulation::of(latest, data)
        })
    }
}

fn failure(error: &HostError) -> String {
    format!("host invocation failed\n\nCaused by:\n    {error}")
}

/// Returns the sandbox's prices and limits in the form that the simulation takes.
fn network_config(info: &LedgerInfo) -> Result<NetworkConfig> {
    let (cpu, memory) = cost_params()?;
    Ok(NetworkConfig {
        fee_configuration: fees::configuration(),
        rent_fee_configuration: fees::rent_configuration(),
        tx_max_instructions: i64::from(MAX_INSTRUCTIONS),
        tx_memory_limit: MEMORY_LIMIT,
        cpu_cost_params: cpu,
        memory_cost_params: memory,
        min_temp_entry_ttl: info.min_temp_entry_ttl,
        min_persistent_entry_ttl: info.min_persistent_entry_ttl,
        max_entry_ttl: info.max_entry_ttl,
    })
}

/// Determines the host's default cost parameters, which it does not expose: charges a budget for 0
/// and for 128 units of each kind of work, 128 being the unit of the linear term.
pub(super) fn cost_params() -> Result<(ContractCostParams, ContractCostParams)> {
    type Both = (ContractCostParams, ContractCostParams);
    static KNOWN: OnceLock<Both> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let charged = |kind, input| -> Result<(u64, u64), HostError> {
        let budget = Budget::default();
        budget.reset_unlimited()?;
        budget.charge(kind, input)?;
        Ok((budget.get_cpu_insns_consumed()?, budget.get_mem_bytes_consumed()?))
    };
    let measured = || -> Result<(Vec<_>, Vec<_>), HostError> {
        let (mut cpu, mut memory) = (Vec::new(), Vec::new());
        let entry = |nothing: u64, units: u64| ContractCostParamEntry {
            ext: ExtensionPoint::V0,
            const_term: i64::try_from(nothing).unwrap_or(i64::MAX),
            linear_term: i64::try_from(units - nothing).unwrap_or(i64::MAX),
        };
        for kind in ContractCostType::variants() {
            // A kind of work with constant cost takes no input; every other kind requires one.
            let (nothing, units) = match charged(kind, None) {
                Ok(always) => (always, always),
                Err(_) => (charged(kind, Some(0))?, charged(kind, Some(128))?),
            };
            cpu.push(entry(nothing.0, units.0));
            memory.push(entry(nothing.1, units.1));
        }
        Ok((cpu, memory))
    };
    let (cpu, memory) =
        measured().map_err(|error| SandboxError::host("say what it charges", &error))?;
    let both = (ContractCostParams(cpu.try_into()?), ContractCostParams(memory.try_into()?));
    Ok(KNOWN.get_or_init(|| both).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget with the determined parameters charges the same as the host's own, for every kind
    /// of work and any amount.
    #[test]
    fn budget_charges_equal_those_of_the_host() {
        let (cpu, memory) = cost_params().unwrap();
        for kind in ContractCostType::variants() {
            for amount in [None, Some(0), Some(1), Some(127), Some(128), Some(1_000_003)] {
                let (own, found) = (
                    Budget::default(),
                    Budget::try_from_configs(u64::MAX, u64::MAX, cpu.clone(), memory.clone()),
                );
                let found = found.unwrap();
                own.reset_unlimited().unwrap();
                let charged =
                    (own.charge(kind, amount).is_ok(), found.charge(kind, amount).is_ok());
                assert_eq!(charged.0, charged.1, "{kind:?} {amount:?}");
                let counts = |budget: &Budget| {
                    let (cpu, memory) =
                        (budget.get_cpu_insns_consumed(), budget.get_mem_bytes_consumed());
                    (cpu.unwrap(), memory.unwrap())
                };
                assert_eq!(counts(&own), counts(&found), "{kind:?} {amount:?}");
            }
        }
    }
}
