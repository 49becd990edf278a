//! The sandbox's prices and limits as settings of a network. They come with its first ledger, and are
//! part of the state that it publishes; the sandbox never changes them.

use stellar_xdr::{
    ConfigSettingContractBandwidthV0, ConfigSettingContractComputeV0,
    ConfigSettingContractEventsV0, ConfigSettingContractHistoricalDataV0,
    ConfigSettingContractLedgerCostExtV0, ConfigSettingContractLedgerCostV0, ConfigSettingEntry,
    LedgerEntry, LedgerEntryChange, LedgerEntryChanges, LedgerEntryData, LedgerEntryExt,
    LedgerUpgrade, StateArchivalSettings, UpgradeEntryMeta, VecM,
};

use super::costs::{MEMORY_LIMIT, cost_params};
use super::error::Result;
use super::fees::{RENT_FEE_PER_1KB, configuration, rent_configuration};
use super::host::{MAX_TTL, MIN_PERSISTENT_TTL, MIN_TEMPORARY_TTL, PROTOCOL};
use super::validation::MAX_INSTRUCTIONS;

/// A limit that the sandbox does not have: large, and far from overflowing in sums.
const UNLIMITED: u32 = 1 << 30;

/// The ledger that brings the settings.
const FIRST: u32 = 2;

/// Returns the changes by upgrades in the metadata of a ledger: the first one brings the settings, as on
/// a network the upgrade to the first protocol with contracts does.
pub(super) fn upgrades(ledger: u32) -> Result<VecM<UpgradeEntryMeta>> {
    if ledger != FIRST {
        return Ok(VecM::default());
    }
    let changes: Vec<_> = entries()?.map(LedgerEntryChange::Created).collect();
    let changes = LedgerEntryChanges(changes.try_into()?);
    Ok(vec![UpgradeEntryMeta { upgrade: LedgerUpgrade::Version(PROTOCOL), changes }].try_into()?)
}

/// Returns the settings from which the contract host's prices and limits follow.
pub(super) fn entries() -> Result<impl Iterator<Item = LedgerEntry>> {
    let (cpu, memory) = cost_params()?;
    let (fees, rent) = (configuration(), rent_configuration());
    let settings = [
        ConfigSettingEntry::ContractComputeV0(ConfigSettingContractComputeV0 {
            ledger_max_instructions: i64::from(MAX_INSTRUCTIONS) * 100,
            tx_max_instructions: i64::from(MAX_INSTRUCTIONS),
            fee_rate_per_instructions_increment: fees.fee_per_instruction_increment,
            tx_memory_limit: MEMORY_LIMIT,
        }),
        ConfigSettingEntry::ContractLedgerCostV0(ConfigSettingContractLedgerCostV0 {
            ledger_max_disk_read_entries: UNLIMITED,
            ledger_max_disk_read_bytes: UNLIMITED,
            ledger_max_write_ledger_entries: UNLIMITED,
            ledger_max_write_bytes: UNLIMITED,
            tx_max_disk_read_entries: UNLIMITED,
            tx_max_disk_read_bytes: UNLIMITED,
            tx_max_write_ledger_entries: UNLIMITED,
            tx_max_write_bytes: UNLIMITED,
            fee_disk_read_ledger_entry: fees.fee_per_disk_read_entry,
            fee_write_ledger_entry: fees.fee_per_write_entry,
            fee_disk_read1_kb: fees.fee_per_disk_read_1kb,
            soroban_state_target_size_bytes: i64::from(UNLIMITED),
            rent_fee1_kb_soroban_state_size_low: RENT_FEE_PER_1KB,
            rent_fee1_kb_soroban_state_size_high: RENT_FEE_PER_1KB,
            soroban_state_rent_fee_growth_factor: 1,
        }),
        ConfigSettingEntry::ContractLedgerCostExtV0(ConfigSettingContractLedgerCostExtV0 {
            tx_max_footprint_entries: UNLIMITED,
            fee_write1_kb: fees.fee_per_write_1kb,
        }),
        ConfigSettingEntry::ContractHistoricalDataV0(ConfigSettingContractHistoricalDataV0 {
            fee_historical1_kb: fees.fee_per_historical_1kb,
        }),
        ConfigSettingEntry::ContractEventsV0(ConfigSettingContractEventsV0 {
            tx_max_contract_events_size_bytes: UNLIMITED,
            fee_contract_events1_kb: fees.fee_per_contract_event_1kb,
        }),
        ConfigSettingEntry::ContractBandwidthV0(ConfigSettingContractBandwidthV0 {
            ledger_max_txs_size_bytes: UNLIMITED,
            tx_max_size_bytes: UNLIMITED,
            fee_tx_size1_kb: fees.fee_per_transaction_size_1kb,
        }),
        ConfigSettingEntry::ContractCostParamsCpuInstructions(cpu),
        ConfigSettingEntry::ContractCostParamsMemoryBytes(memory),
        ConfigSettingEntry::StateArchival(StateArchivalSettings {
            max_entry_ttl: MAX_TTL,
            min_temporary_ttl: MIN_TEMPORARY_TTL,
            min_persistent_ttl: MIN_PERSISTENT_TTL,
            persistent_rent_rate_denominator: rent.persistent_rent_rate_denominator,
            temp_rent_rate_denominator: rent.temporary_rent_rate_denominator,
            max_entries_to_archive: UNLIMITED,
            live_soroban_state_size_window_sample_size: 1,
            live_soroban_state_size_window_sample_period: 1,
            eviction_scan_size: UNLIMITED,
            starting_eviction_scan_level: 0,
        }),
        ConfigSettingEntry::LiveSorobanStateSizeWindow(vec![0].try_into()?),
    ];
    Ok(settings.into_iter().map(|setting| LedgerEntry {
        last_modified_ledger_seq: FIRST,
        data: LedgerEntryData::ConfigSetting(setting),
        ext: LedgerEntryExt::V0,
    }))
}
