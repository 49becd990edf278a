//! Fees of the sandbox: the fee schedule, and the computation of resource fees and rent.

use orrery_ledger::domain::has_lifetime;
use soroban_env_host::budget::Budget;
use soroban_env_host::e2e_invoke::entry_size_for_rent;
use soroban_env_host::fees::{
    FeeConfiguration, LedgerEntryRentChange, RentFeeConfiguration, TransactionResources,
    compute_rent_fee, compute_transaction_resource_fee,
};
use stellar_xdr::{LedgerEntry, LedgerEntryData, LedgerKey, Limits, SorobanResources, WriteXdr};

use super::error::{Result, SandboxError};

/// Inclusion fee of one operation, in stroops.
pub(super) const BASE_FEE: u32 = 100;
/// Unit of the minimum balance, in stroops: an account must keep two of them, and one more for each
/// of its subentries.
pub(super) const BASE_RESERVE: u32 = 5_000_000;
/// Rent of a kilobyte of contract state, in stroops; reported as `sorobanFeeWrite1KB` in the
/// metadata.
pub(super) const RENT_FEE_PER_1KB: i64 = 1_000;

/// Returns the public network's prices, rounded, in stroops.
pub(super) fn configuration() -> FeeConfiguration {
    FeeConfiguration {
        fee_per_instruction_increment: 25,
        fee_per_disk_read_entry: 6_250,
        fee_per_write_entry: 10_000,
        fee_per_disk_read_1kb: 1_786,
        fee_per_write_1kb: 3_500,
        fee_per_historical_1kb: 16_235,
        fee_per_contract_event_1kb: 10_000,
        fee_per_transaction_size_1kb: 1_624,
    }
}

/// The two parts of a resource fee, in stroops.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResourceFee {
    /// Fee for the declared resources, whether they are used or not.
    pub(super) fixed: i64,
    /// Fee for events, as used. The unused rest of the declared resource fee is refunded, less
    /// rent.
    pub(super) refundable: i64,
}

/// Returns the fee for declared resources and `event_bytes` of events and return value, without
/// rent.
pub(super) fn resource_fee(
    resources: &SorobanResources,
    event_bytes: usize,
    transaction_bytes: usize,
) -> ResourceFee {
    let footprint = &resources.footprint;
    let on_disk = |keys: &[LedgerKey]| keys.iter().filter(|key| !has_lifetime(key)).count();
    let (fixed, refundable) = compute_transaction_resource_fee(
        &TransactionResources {
            instructions: resources.instructions,
            disk_read_entries: saturate(
                on_disk(&footprint.read_only) + on_disk(&footprint.read_write),
            ),
            write_entries: saturate(footprint.read_write.len()),
            disk_read_bytes: resources.disk_read_bytes,
            write_bytes: resources.write_bytes,
            contract_events_size_bytes: saturate(event_bytes),
            transaction_size_bytes: saturate(transaction_bytes),
        },
        &configuration(),
    );
    ResourceFee { fixed, refundable }
}

/// Returns the rent, in stroops, for entries that ledger `sequence` creates, extends or enlarges.
pub(super) fn rent_fee(changes: &[LedgerEntryRentChange], sequence: u32) -> i64 {
    compute_rent_fee(changes, &rent_configuration(), sequence)
}

/// Returns the prices that rent is computed from, in stroops.
pub(super) fn rent_configuration() -> RentFeeConfiguration {
    let prices = configuration();
    RentFeeConfiguration {
        fee_per_write_1kb: prices.fee_per_write_1kb,
        fee_per_rent_1kb: RENT_FEE_PER_1KB,
        fee_per_write_entry: prices.fee_per_write_entry,
        persistent_rent_rate_denominator: 1_215,
        temporary_rent_rate_denominator: 2_430,
    }
}

pub(super) fn saturate(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// Returns the size in bytes that rent is charged for: that of the entry's XDR, plus for a module
/// its size in memory (CAP-62).
pub(super) fn rent_size(entry: &LedgerEntry) -> Result<u32> {
    let bytes = saturate(entry.to_xdr(Limits::none())?.len());
    if !matches!(entry.data, LedgerEntryData::ContractCode(_)) {
        return Ok(bytes);
    }
    entry_size_for_rent(&Budget::default(), entry, bytes)
        .map_err(|error| SandboxError::host("measure an entry", &error))
}
