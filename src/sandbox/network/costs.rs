//! What the host charges for each kind of work.

use std::sync::OnceLock;

use soroban_env_host::HostError;
use soroban_env_host::budget::Budget;
use soroban_env_host::xdr::{ContractCostParamEntry, ContractCostParams, ContractCostType};
use stellar_xdr::ExtensionPoint;

use super::error::{Result, SandboxError};

/// Memory limit of a call in bytes, the host's default.
pub(super) const MEMORY_LIMIT: u32 = 41_943_040;

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
