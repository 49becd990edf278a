//! `Stellar-contract-config-setting.x`: the network's settings for smart contracts.

use super::blocks::*;
use super::common::*;
use super::{Cursor, Depth, XdrError};

schema! {
    typedef EncodedLedgerKey { VarOpaque }
    struct ConfigSettingContractExecutionLanesV0 { ledger_max_tx_count: Uint32 }
    struct ConfigSettingContractComputeV0 {
        ledger_max_instructions: Int64,
        tx_max_instructions: Int64,
        fee_rate_per_instructions_increment: Int64,
        tx_memory_limit: Uint32,
    }
    struct ConfigSettingContractParallelComputeV0 { ledger_max_dependent_tx_clusters: Uint32 }
    struct ConfigSettingContractLedgerCostV0 {
        ledger_max_disk_read_entries: Uint32,
        ledger_max_disk_read_bytes: Uint32,
        ledger_max_write_ledger_entries: Uint32,
        ledger_max_write_bytes: Uint32,
        tx_max_disk_read_entries: Uint32,
        tx_max_disk_read_bytes: Uint32,
        tx_max_write_ledger_entries: Uint32,
        tx_max_write_bytes: Uint32,
        fee_disk_read_ledger_entry: Int64,
        fee_write_ledger_entry: Int64,
        fee_disk_read_1kb: Int64,
        soroban_state_target_size_bytes: Int64,
        rent_fee_1kb_soroban_state_size_low: Int64,
        rent_fee_1kb_soroban_state_size_high: Int64,
        soroban_state_rent_fee_growth_factor: Uint32,
    }
    struct ConfigSettingContractLedgerCostExtV0 {
        tx_max_footprint_entries: Uint32,
        fee_write_1kb: Int64,
    }
    struct ConfigSettingContractHistoricalDataV0 { fee_historical_1kb: Int64 }
    struct ConfigSettingContractEventsV0 {
        tx_max_contract_events_size_bytes: Uint32,
        fee_contract_events_1kb: Int64,
    }
    struct ConfigSettingContractBandwidthV0 {
        ledger_max_txs_size_bytes: Uint32,
        tx_max_size_bytes: Uint32,
        fee_tx_size_1kb: Int64,
    }
    struct ContractCostParamEntry { ext: ExtensionPoint, const_term: Int64, linear_term: Int64 }
    struct StateArchivalSettings {
        max_entry_ttl: Uint32,
        min_temporary_ttl: Uint32,
        min_persistent_ttl: Uint32,
        persistent_rent_rate_denominator: Int64,
        temp_rent_rate_denominator: Int64,
        max_entries_to_archive: Uint32,
        live_soroban_state_size_window_sample_size: Uint32,
        live_soroban_state_size_window_sample_period: Uint32,
        eviction_scan_size: Uint32,
        starting_eviction_scan_level: Uint32,
    }
    struct EvictionIterator {
        bucket_list_level: Uint32,
        is_curr_bucket: Bool,
        bucket_file_offset: Uint64,
    }
    struct ConfigSettingScpTiming {
        ledger_target_close_time_milliseconds: Uint32,
        nomination_timeout_initial_milliseconds: Uint32,
        nomination_timeout_increment_milliseconds: Uint32,
        ballot_timeout_initial_milliseconds: Uint32,
        ballot_timeout_increment_milliseconds: Uint32,
    }
    struct FrozenLedgerKeys { keys: VarArray<EncodedLedgerKey> }
    struct FrozenLedgerKeysDelta {
        keys_to_freeze: VarArray<EncodedLedgerKey>,
        keys_to_unfreeze: VarArray<EncodedLedgerKey>,
    }
    struct FreezeBypassTxs { tx_hashes: VarArray<Hash> }
    struct FreezeBypassTxsDelta { add_txs: VarArray<Hash>, remove_txs: VarArray<Hash> }
    typedef ContractCostParams { VarArray<ContractCostParamEntry, 1024> }
    enum ConfigSettingId {
        CONTRACT_MAX_SIZE_BYTES = 0, CONTRACT_COMPUTE_V0 = 1, CONTRACT_LEDGER_COST_V0 = 2,
        CONTRACT_HISTORICAL_DATA_V0 = 3, CONTRACT_EVENTS_V0 = 4, CONTRACT_BANDWIDTH_V0 = 5,
        CONTRACT_COST_PARAMS_CPU_INSTRUCTIONS = 6, CONTRACT_COST_PARAMS_MEMORY_BYTES = 7,
        CONTRACT_DATA_KEY_SIZE_BYTES = 8, CONTRACT_DATA_ENTRY_SIZE_BYTES = 9, STATE_ARCHIVAL = 10,
        CONTRACT_EXECUTION_LANES = 11, LIVE_SOROBAN_STATE_SIZE_WINDOW = 12, EVICTION_ITERATOR = 13,
        CONTRACT_PARALLEL_COMPUTE_V0 = 14, CONTRACT_LEDGER_COST_EXT_V0 = 15, SCP_TIMING = 16,
        FROZEN_LEDGER_KEYS = 17, FROZEN_LEDGER_KEYS_DELTA = 18, FREEZE_BYPASS_TXS = 19,
        FREEZE_BYPASS_TXS_DELTA = 20,
    }
    union ConfigSettingEntry(ConfigSettingId) {
        CONTRACT_MAX_SIZE_BYTES => Uint32,
        CONTRACT_COMPUTE_V0 => ConfigSettingContractComputeV0,
        CONTRACT_LEDGER_COST_V0 => ConfigSettingContractLedgerCostV0,
        CONTRACT_HISTORICAL_DATA_V0 => ConfigSettingContractHistoricalDataV0,
        CONTRACT_EVENTS_V0 => ConfigSettingContractEventsV0,
        CONTRACT_BANDWIDTH_V0 => ConfigSettingContractBandwidthV0,
        CONTRACT_COST_PARAMS_CPU_INSTRUCTIONS => ContractCostParams,
        CONTRACT_COST_PARAMS_MEMORY_BYTES => ContractCostParams,
        CONTRACT_DATA_KEY_SIZE_BYTES => Uint32,
        CONTRACT_DATA_ENTRY_SIZE_BYTES => Uint32,
        STATE_ARCHIVAL => StateArchivalSettings,
        CONTRACT_EXECUTION_LANES => ConfigSettingContractExecutionLanesV0,
        LIVE_SOROBAN_STATE_SIZE_WINDOW => VarArray<Uint64>,
        EVICTION_ITERATOR => EvictionIterator,
        CONTRACT_PARALLEL_COMPUTE_V0 => ConfigSettingContractParallelComputeV0,
        CONTRACT_LEDGER_COST_EXT_V0 => ConfigSettingContractLedgerCostExtV0,
        SCP_TIMING => ConfigSettingScpTiming,
        FROZEN_LEDGER_KEYS => FrozenLedgerKeys,
        FROZEN_LEDGER_KEYS_DELTA => FrozenLedgerKeysDelta,
        FREEZE_BYPASS_TXS => FreezeBypassTxs,
        FREEZE_BYPASS_TXS_DELTA => FreezeBypassTxsDelta,
    }
}
