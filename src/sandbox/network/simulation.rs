//! Reads current ledger entries and simulates transactions, for clients that prepare one.

use std::rc::Rc;
use std::sync::Arc;

use orrery_ledger::domain::{AuthMode, LiveEntry, Simulation, is_temporary};
use soroban_env_host::LedgerInfo;
use soroban_simulation::NetworkConfig;
use stellar_xdr::{LedgerKey, TransactionV1Envelope};

use super::costs::{MEMORY_LIMIT, cost_params};
use super::error::Result;
use super::fees;
use super::host::ledger_info;
use super::open_ledger::OpenLedger;
use super::sandbox::Sandbox;
use super::simulated::{Circumstances, Manner, simulate};
use super::state::Snapshot;
use super::validation::MAX_INSTRUCTIONS;

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
        let circumstances = Circumstances {
            latest: self.latest_ledger(),
            config: network_config(&info)?,
            info,
            // The hash of the latest ledger is not predictable.
            seed: self.tip.hash,
        };
        let state = Rc::new(Snapshot(Arc::clone(&self.state)));
        Ok(simulate(&state, &circumstances, envelope, Manner { mode, leeway }))
    }
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
