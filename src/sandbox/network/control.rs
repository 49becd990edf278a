//! Checks and applies the classic operations that change data and sequence number of an account, and
//! those with which an issuer controls the trustlines of its asset.

use stellar_xdr::{
    AccountFlags, AccountId, Asset, BumpSequenceOp, BumpSequenceResult, ClawbackOp, ClawbackResult,
    DataEntry, DataEntryExt, LedgerEntryData, LedgerKey, LedgerKeyData, ManageDataOp,
    ManageDataResult, OperationBody, OperationResult, OperationResultTr, SetTrustLineFlagsOp,
    SetTrustLineFlagsResult, TrustLineFlags,
};

use super::assets::is_asset;
use super::classic::{
    Applied, Effects, Outcome, Stop, account_id, finish, is_authorized, require_account, spendable,
};
use super::error::{Result, SandboxError};
use super::events;
use super::fees::BASE_RESERVE;
use super::open_ledger::OpenLedger;
use super::state::LedgerState;

const AUTHORIZED: u32 = TrustLineFlags::AuthorizedFlag as u32;
const MAINTAINS: u32 = TrustLineFlags::AuthorizedToMaintainLiabilitiesFlag as u32;
const CLAWBACK: u32 = TrustLineFlags::TrustlineClawbackEnabledFlag as u32;

/// Returns why an operation of this account is invalid regardless of the ledger state; `None` when it
/// is valid.
pub(super) fn check(operation: &OperationBody, source: &AccountId) -> Option<OperationResult> {
    let (is_malformed, result) = match operation {
        OperationBody::ManageData(op) => {
            let name = op.data_name.as_slice();
            let is_name = !name.is_empty() && name.iter().all(|byte| (0x20..0x7f).contains(byte));
            (!is_name, OperationResultTr::ManageData(ManageDataResult::InvalidName))
        }
        OperationBody::BumpSequence(op) => {
            let bad = OperationResultTr::BumpSequence(BumpSequenceResult::BadSeq);
            (op.bump_to.0 < 0, bad)
        }
        OperationBody::SetTrustLineFlags(op) => {
            let (set, clear) = (op.set_flags, op.clear_flags);
            let both = AUTHORIZED | MAINTAINS;
            let is_wrong = !is_issued_by(&op.asset, source)
                || op.trustor == *source
                || set & clear != 0
                || set & !both != 0
                || clear & !(both | CLAWBACK) != 0
                || set & both == both;
            let malformed = SetTrustLineFlagsResult::Malformed;
            (is_wrong, OperationResultTr::SetTrustLineFlags(malformed))
        }
        OperationBody::Clawback(op) => {
            let is_wrong = !is_issued_by(&op.asset, source)
                || account_id(&op.from) == *source
                || op.amount <= 0;
            (is_wrong, OperationResultTr::Clawback(ClawbackResult::Malformed))
        }
        _ => return Some(OperationResult::OpNotSupported),
    };
    is_malformed.then_some(OperationResult::OpInner(result))
}

/// Returns the result of a valid operation in a transaction with invalid ones; `None` for one that is
/// not of this file.
pub(super) fn succeeded(operation: &OperationBody) -> Option<OperationResultTr> {
    Some(match operation {
        OperationBody::ManageData(_) => OperationResultTr::ManageData(ManageDataResult::Success),
        OperationBody::BumpSequence(_) => {
            OperationResultTr::BumpSequence(BumpSequenceResult::Success)
        }
        OperationBody::SetTrustLineFlags(_) => {
            OperationResultTr::SetTrustLineFlags(SetTrustLineFlagsResult::Success)
        }
        OperationBody::Clawback(_) => OperationResultTr::Clawback(ClawbackResult::Success),
        _ => return None,
    })
}

/// Applies one operation of `source`'s transaction.
pub(super) fn apply(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    operation: &OperationBody,
) -> Result<Applied> {
    match operation {
        OperationBody::ManageData(op) => finish(
            manage_data(state, ledger, source, op).map(|e| (ManageDataResult::Success, e)),
            OperationResultTr::ManageData,
        ),
        OperationBody::BumpSequence(op) => finish(
            bump_sequence(state, ledger, source, op).map(|e| (BumpSequenceResult::Success, e)),
            OperationResultTr::BumpSequence,
        ),
        OperationBody::SetTrustLineFlags(op) => finish(
            set_flags(state, ledger, source, op).map(|e| (SetTrustLineFlagsResult::Success, e)),
            OperationResultTr::SetTrustLineFlags,
        ),
        OperationBody::Clawback(op) => finish(
            claw_back(state, ledger, op).map(|e| (ClawbackResult::Success, e)),
            OperationResultTr::Clawback,
        ),
        other => {
            Err(SandboxError::inconsistent(format_args!("operation {} in traffic", other.name())))
        }
    }
}

fn manage_data(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    op: &ManageDataOp,
) -> Outcome<ManageDataResult> {
    let (account_id, data_name) = (source.clone(), op.data_name.clone());
    let key = LedgerKey::Data(LedgerKeyData { account_id: account_id.clone(), data_name });
    let exists = state.get(&key).is_some();
    let mut account = require_account(state, source)?;
    let Some(value) = &op.data_value else {
        if !exists {
            return Err(Stop::Refused(ManageDataResult::NameNotFound));
        }
        account.num_sub_entries -= 1;
        let mut changes = state.write(LedgerEntryData::Account(account), ledger.sequence)?;
        changes.extend(state.remove(&key)?);
        return Ok(Effects { changes, events: Vec::new() });
    };
    let mut changes = Vec::new();
    if !exists {
        if spendable(&account) < i64::from(BASE_RESERVE) {
            return Err(Stop::Refused(ManageDataResult::LowReserve));
        }
        account.num_sub_entries += 1;
        changes = state.write(LedgerEntryData::Account(account), ledger.sequence)?;
    }
    let entry = LedgerEntryData::Data(DataEntry {
        account_id,
        data_name: op.data_name.clone(),
        data_value: value.clone(),
        ext: DataEntryExt::V0,
    });
    changes.extend(state.write(entry, ledger.sequence)?);
    Ok(Effects { changes, events: Vec::new() })
}

fn bump_sequence(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    op: &BumpSequenceOp,
) -> Outcome<BumpSequenceResult> {
    let mut account = require_account(state, source)?;
    // A lower number changes nothing, and is no failure.
    if op.bump_to <= account.seq_num {
        return Ok(Effects::default());
    }
    account.seq_num = op.bump_to.clone();
    let changes = state.write(LedgerEntryData::Account(account), ledger.sequence)?;
    Ok(Effects { changes, events: Vec::new() })
}

fn set_flags(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    op: &SetTrustLineFlagsOp,
) -> Outcome<SetTrustLineFlagsResult> {
    use SetTrustLineFlagsResult as Failure;
    let both = AUTHORIZED | MAINTAINS;
    let may_revoke =
        require_account(state, source)?.flags & AccountFlags::RevocableFlag as u32 != 0;
    if !may_revoke && op.clear_flags & both != 0 {
        return Err(Stop::Refused(Failure::CantRevoke));
    }
    let line = state.trustline(&op.trustor, &op.asset).cloned();
    let mut line = line.ok_or(Stop::Refused(Failure::NoTrustLine))?;
    let was_authorized = is_authorized(&line);
    line.flags = line.flags & !op.clear_flags | op.set_flags;
    if line.flags & both == both {
        return Err(Stop::Refused(Failure::InvalidState));
    }
    let is_authorized = is_authorized(&line);
    let changes = state.write(LedgerEntryData::Trustline(line), ledger.sequence)?;
    let events = if is_authorized == was_authorized {
        Vec::new()
    } else {
        vec![events::authorization(ledger.assets, &op.asset, &op.trustor, is_authorized)?]
    };
    Ok(Effects { changes, events })
}

fn claw_back(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    op: &ClawbackOp,
) -> Outcome<ClawbackResult> {
    use ClawbackResult as Failure;
    let from = account_id(&op.from);
    let line = state.trustline(&from, &op.asset).cloned();
    let mut line = line.ok_or(Stop::Refused(Failure::NoTrust))?;
    if line.flags & CLAWBACK == 0 {
        return Err(Stop::Refused(Failure::NotClawbackEnabled));
    }
    if op.amount > line.balance {
        return Err(Stop::Refused(Failure::Underfunded));
    }
    line.balance -= op.amount;
    let changes = state.write(LedgerEntryData::Trustline(line), ledger.sequence)?;
    let event = events::clawback(ledger.assets, &op.asset, &from, op.amount)?;
    Ok(Effects { changes, events: vec![event] })
}

/// Whether an asset is valid and issued by this account.
fn is_issued_by(asset: &Asset, issuer: &AccountId) -> bool {
    let of = match asset {
        Asset::Native => return false,
        Asset::CreditAlphanum4(asset) => &asset.issuer,
        Asset::CreditAlphanum12(asset) => &asset.issuer,
    };
    of == issuer && is_asset(asset)
}
