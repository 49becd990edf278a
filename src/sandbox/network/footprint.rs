//! The two operations that keep contract entries live: extending and restoring a footprint.

use orrery_ledger::domain::is_temporary;
use soroban_env_host::fees::LedgerEntryRentChange;
use stellar_xdr::{
    ExtendFootprintTtlResult, LedgerEntryChange, LedgerKey, OperationResultTr,
    RestoreFootprintResult, SorobanTransactionData,
};

use super::error::Result;
use super::execution::{Effects, Execution};
use super::fees::{rent_fee, rent_size, resource_fee};
use super::keys::ttl_entry;
use super::open_ledger::OpenLedger;
use super::state::LedgerState;

/// Returns the rent change of extending `key` to ledger `until`; `None` when the entry does not
/// exist, has expired, or lives that long already.
pub(super) fn extension_rent(
    state: &LedgerState,
    sequence: u32,
    key: &LedgerKey,
    until: u32,
) -> Result<Option<LedgerEntryRentChange>> {
    let (Some(entry), Some(old)) = (state.get(key), state.live_until(key)?) else {
        return Ok(None);
    };
    if old < sequence || old >= until {
        return Ok(None);
    }
    let size = rent_size(entry)?;
    Ok(Some(rent_change(key, size, (size, old), until)))
}

/// Returns the rent change of restoring `key` for `lifetime` ledgers; `None` when the entry is live
/// or does not exist.
pub(super) fn restoration_rent(
    state: &LedgerState,
    sequence: u32,
    key: &LedgerKey,
    lifetime: u32,
) -> Result<Option<LedgerEntryRentChange>> {
    let (Some(entry), Some(old)) = (state.get(key), state.live_until(key)?) else {
        return Ok(None);
    };
    if old >= sequence {
        return Ok(None);
    }
    let size = rent_size(entry)?;
    Ok(Some(rent_change(key, size, (0, 0), sequence.saturating_add(lifetime - 1))))
}

/// Applies ExtendFootprintTTL: every live entry of the read-only footprint lives for at least
/// `extend_to` more ledgers.
pub(super) fn extend(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    extend_to: u32,
    data: &SorobanTransactionData,
    transaction_bytes: usize,
) -> Result<Execution> {
    let until = ledger.sequence.saturating_add(extend_to);
    let (mut keys, mut rents) = (Vec::new(), Vec::new());
    for key in data.resources.footprint.read_only.iter() {
        if let Some(rent) = extension_rent(state, ledger.sequence, key, until)? {
            keys.push(key);
            rents.push(rent);
        }
    }
    let Some(rent_fee) = affordable_rent(&rents, ledger.sequence, data, transaction_bytes) else {
        let result = ExtendFootprintTtlResult::InsufficientRefundableFee;
        return Ok(Execution::failed(OperationResultTr::ExtendFootprintTtl(result)));
    };
    let mut changes = Vec::new();
    for key in keys {
        changes.extend(state.write(ttl_entry(key, until)?, ledger.sequence)?);
    }
    let result = OperationResultTr::ExtendFootprintTtl(ExtendFootprintTtlResult::Success);
    Ok(succeeded_with_rent(result, changes, rent_fee))
}

/// Applies RestoreFootprint: every expired entry of the read-write footprint becomes live again.
/// The metadata shows the new TTL and the unchanged entry as RESTORED, without a STATE before them.
pub(super) fn restore(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    data: &SorobanTransactionData,
    transaction_bytes: usize,
    lifetime: u32,
) -> Result<Execution> {
    let (mut keys, mut rents) = (Vec::new(), Vec::new());
    for key in data.resources.footprint.read_write.iter() {
        if let Some(rent) = restoration_rent(state, ledger.sequence, key, lifetime)? {
            keys.push(key);
            rents.push(rent);
        }
    }
    let Some(rent_fee) = affordable_rent(&rents, ledger.sequence, data, transaction_bytes) else {
        let result = RestoreFootprintResult::InsufficientRefundableFee;
        return Ok(Execution::failed(OperationResultTr::RestoreFootprint(result)));
    };
    let until = ledger.sequence.saturating_add(lifetime - 1);
    let changes = restore_entries(state, ledger.sequence, keys, until)?;
    let result = OperationResultTr::RestoreFootprint(RestoreFootprintResult::Success);
    Ok(succeeded_with_rent(result, changes, rent_fee))
}

/// Makes expired entries live until `until`. Returns their new TTLs and then the entries
/// themselves, as RESTORED. Skips live entries.
pub(super) fn restore_entries<'k>(
    state: &mut LedgerState,
    sequence: u32,
    keys: impl IntoIterator<Item = &'k LedgerKey>,
    until: u32,
) -> Result<Vec<LedgerEntryChange>> {
    let (mut lifetimes, mut restored) = (Vec::new(), Vec::new());
    for key in keys {
        if state.live_until(key)?.is_none_or(|last| last >= sequence) {
            continue;
        }
        let written = state.write(ttl_entry(key, until)?, sequence)?;
        lifetimes.extend(written.into_iter().filter_map(|change| match change {
            LedgerEntryChange::Updated(ttl) => Some(LedgerEntryChange::Restored(ttl)),
            _ => None,
        }));
        restored.extend(state.get(key).cloned().map(LedgerEntryChange::Restored));
    }
    lifetimes.append(&mut restored);
    Ok(lifetimes)
}

fn rent_change(
    key: &LedgerKey,
    size: u32,
    (old_size_bytes, old_live_until_ledger): (u32, u32),
    new_live_until_ledger: u32,
) -> LedgerEntryRentChange {
    LedgerEntryRentChange {
        is_persistent: !is_temporary(key),
        is_code_entry: matches!(key, LedgerKey::ContractCode(_)),
        old_size_bytes,
        new_size_bytes: size,
        old_live_until_ledger,
        new_live_until_ledger,
    }
}

fn affordable_rent(
    rents: &[LedgerEntryRentChange],
    sequence: u32,
    data: &SorobanTransactionData,
    transaction_bytes: usize,
) -> Option<i64> {
    let fee = rent_fee(rents, sequence);
    let fixed = resource_fee(&data.resources, 0, transaction_bytes).fixed;
    (fee <= data.resource_fee - fixed).then_some(fee)
}

fn succeeded_with_rent(
    result: OperationResultTr,
    changes: Vec<LedgerEntryChange>,
    rent_fee: i64,
) -> Execution {
    let effects = Effects { changes, events: Vec::new(), return_value: None };
    Execution {
        result,
        effects: Some(effects),
        refundable_used: rent_fee,
        rent_fee,
        diagnostics: Vec::new(),
    }
}
