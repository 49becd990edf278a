//! The ledger as the contract host is told about it.

use soroban_env_host::LedgerInfo;
use soroban_env_host::xdr::{
    ConfigSettingEntry, ConfigSettingId, LedgerEntryData, LedgerKey, LedgerKeyConfigSetting,
    StateArchivalSettings,
};

use super::interface::PROTOCOL;
use super::invocation::Invocation;
use super::state::{EntryState, PreState, StateError};

/// Lifetimes of entries in ledgers, used where the network's settings are unknown: those of the
/// public network.
const MIN_TEMPORARY_TTL: u32 = 17_280;
const MIN_PERSISTENT_TTL: u32 = 2_073_600;
const MAX_TTL: u32 = 3_110_400;

/// Returns the ledger information for the host, which accepts no protocol but its own.
pub(super) fn ledger_info(
    invocation: &Invocation,
    rules: Option<&StateArchivalSettings>,
) -> LedgerInfo {
    LedgerInfo {
        protocol_version: PROTOCOL,
        sequence_number: invocation.ledger.0,
        timestamp: invocation.closed_at,
        network_id: *invocation.network_id.as_bytes(),
        base_reserve: invocation.base_reserve,
        min_temp_entry_ttl: rules.map_or(MIN_TEMPORARY_TTL, |rules| rules.min_temporary_ttl),
        min_persistent_entry_ttl: rules
            .map_or(MIN_PERSISTENT_TTL, |rules| rules.min_persistent_ttl),
        max_entry_ttl: rules.map_or(MAX_TTL, |rules| rules.max_entry_ttl),
    }
}

/// Returns the network's settings for entry lifetimes, if they are known.
pub(super) fn archival_settings(
    state: &dyn PreState,
) -> Result<Option<StateArchivalSettings>, StateError> {
    let key = LedgerKey::ConfigSetting(LedgerKeyConfigSetting {
        config_setting_id: ConfigSettingId::StateArchival,
    });
    Ok(match state.entry(&key)? {
        EntryState::Present(entry, _) => match &entry.data {
            LedgerEntryData::ConfigSetting(ConfigSettingEntry::StateArchival(settings)) => {
                Some(settings.clone())
            }
            _ => None,
        },
        EntryState::Absent | EntryState::Unknown => None,
    })
}
