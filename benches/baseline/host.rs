//! Invokes the contract host as a node does: `invoke_host_function` on encoded entries, with the
//! contract's own code in the host's interpreter. Runs no program, produces no rows and compares
//! nothing with the recorded result.

use std::collections::BTreeSet;

use orrery::programs::engine::Invocation;
use orrery::programs::engine::{EntryState, PreState};
use soroban_env_host::budget::{AsBudget, Budget};
use soroban_env_host::e2e_invoke::{TtlLedgerEntryMeta, invoke_host_function};
use soroban_env_host::storage::Storage;
use soroban_env_host::{Host, HostError, LedgerInfo, ModuleCache, meta};
use stellar_xdr::{
    LedgerEntryChange, LedgerEntryData, LedgerFootprint, LedgerKey, Limits, ScVal,
    SorobanResources, VecM, WriteXdr,
};

/// A contract call with all inputs of `invoke_host_function`, encoded as XDR.
pub struct BareCall {
    function: Vec<u8>,
    resources: Vec<u8>,
    source: Vec<u8>,
    authorization: Vec<Vec<u8>>,
    entries: Vec<(Option<Vec<u8>>, Option<u32>)>,
    seed: Vec<u8>,
    ledger: LedgerInfo,
    codes: Vec<Vec<u8>>,
}

impl BareCall {
    /// Encodes the call as the network executed it, on the entries as they were before it. Panics
    /// if the call has no recorded result, which determines the keys that it may write.
    pub fn new(call: &Invocation, state: &dyn PreState) -> Self {
        let (read_only, read_write) = footprint(call);
        let mut entries = Vec::new();
        let mut codes = Vec::new();
        for key in read_only.iter().chain(&read_write) {
            entries.push(match state.entry(key).expect("it is in memory") {
                EntryState::Present(entry, live_until) => {
                    if let LedgerEntryData::ContractCode(code) = &entry.data {
                        codes.push(code.code.to_vec());
                    }
                    let has_life = matches!(
                        entry.data,
                        LedgerEntryData::ContractData(_) | LedgerEntryData::ContractCode(_)
                    );
                    let life = has_life.then(|| live_until.unwrap_or(call.ledger.0 + 100_000));
                    (Some(xdr(&*entry)), life)
                }
                EntryState::Absent | EntryState::Unknown => (None, None),
            });
        }
        let footprint =
            LedgerFootprint { read_only: list(read_only), read_write: list(read_write) };
        let resources = SorobanResources {
            footprint,
            instructions: 100_000_000,
            disk_read_bytes: 200_000,
            write_bytes: 200_000,
        };
        Self {
            function: xdr(&call.host_function),
            resources: xdr(&resources),
            source: xdr(&call.source_account),
            authorization: call.authorization.iter().map(xdr).collect(),
            entries,
            seed: call.seed().to_vec(),
            ledger: LedgerInfo {
                protocol_version: meta::INTERFACE_VERSION.protocol,
                sequence_number: call.ledger.0,
                timestamp: call.closed_at,
                network_id: *call.network_id.as_bytes(),
                base_reserve: call.base_reserve,
                min_temp_entry_ttl: 17_280,
                min_persistent_entry_ttl: 2_073_600,
                max_entry_ttl: 3_110_400,
            },
            codes,
        }
    }

    /// Parses the contracts of the calls in advance, as a node does.
    pub fn cache<'a>(calls: impl IntoIterator<Item = &'a Self>) -> Result<ModuleCache, HostError> {
        let budget = Budget::default();
        budget.reset_unlimited()?;
        let host = Host::with_storage_and_budget(Storage::default(), budget);
        host.as_budget().reset_unlimited()?;
        let cache = ModuleCache::new(&host)?;
        for code in calls.into_iter().flat_map(|call| &call.codes) {
            cache.parse_and_cache_module_simple(&host, meta::INTERFACE_VERSION.protocol, code)?;
        }
        Ok(cache)
    }

    /// Invokes the call and returns its result as XDR.
    pub fn invoke(&self, cache: Option<&ModuleCache>) -> Result<Vec<u8>, HostError> {
        let budget = Budget::default();
        budget.reset_limits(1_000_000_000, 400 << 20)?;
        let entries = self.entries.iter().map(|(entry, life)| {
            let size = entry.as_ref().map_or(0, |xdr| u32::try_from(xdr.len()).unwrap_or(u32::MAX));
            let life = life.map(|live_until_ledger| TtlLedgerEntryMeta {
                live_until_ledger,
                entry_size_for_rent: size,
            });
            (entry.as_ref(), life)
        });
        let result = invoke_host_function(
            &budget,
            false,
            &self.function,
            &self.resources,
            &[],
            &self.source,
            self.authorization.iter(),
            self.ledger.clone(),
            entries,
            &self.seed,
            &mut Vec::new(),
            None,
            cache.cloned(),
        )?;
        result.encoded_invoke_result
    }
}

/// Splits the keys of the call's footprint into those that it only reads and those that it changes.
/// Nonces count as changed.
fn footprint(call: &Invocation) -> (Vec<LedgerKey>, Vec<LedgerKey>) {
    let recorded = call.recorded.as_ref().expect("a call that was recorded");
    let changed: BTreeSet<LedgerKey> = recorded
        .changes
        .iter()
        .map(|change| match change {
            LedgerEntryChange::State(entry)
            | LedgerEntryChange::Created(entry)
            | LedgerEntryChange::Updated(entry)
            | LedgerEntryChange::Restored(entry) => entry.to_key(),
            LedgerEntryChange::Removed(key) => key.clone(),
        })
        .collect();
    let is_nonce = |key: &LedgerKey| matches!(key, LedgerKey::ContractData(data) if matches!(data.key, ScVal::LedgerKeyNonce(_)));
    let written = |key: &LedgerKey| changed.contains(key) || is_nonce(key);
    let (read_write, read_only) = call.footprint.iter().cloned().partition(written);
    (read_only, read_write)
}

fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).expect("it was XDR before")
}

fn list<T>(items: Vec<T>) -> VecM<T> {
    items.try_into().unwrap_or_else(|_| unreachable!("it is as long as it was"))
}
