//! Applies the classic operations that the sandbox supports, with the results that the protocol
//! prescribes.

use stellar_xdr::{
    AccountEntry, AccountEntryExt, AccountFlags, AccountId, AccountMergeResult, Asset,
    ChangeTrustAsset, ChangeTrustOp, ChangeTrustResult, ContractEvent, CreateAccountOp,
    CreateAccountResult, LedgerEntryChange, LedgerEntryData, Memo, MuxedAccount, OperationBody,
    OperationResultTr, PaymentOp, PaymentResult, PublicKey, SequenceNumber, SetOptionsOp,
    SetOptionsResult, Thresholds, TrustLineEntry, TrustLineEntryExt, TrustLineFlags, Uint256,
};

use super::envelope::ed25519;
use super::error::{Result, SandboxError};
use super::events;
use super::fees::BASE_RESERVE;
use super::keys::{account_key, trustline_asset, trustline_key};
use super::open_ledger::OpenLedger;
use super::state::LedgerState;

/// Outcome of one operation.
pub(super) struct Applied {
    pub(super) result: OperationResultTr,
    /// `None` when the operation failed and changed nothing.
    pub(super) effects: Option<Effects>,
}

/// Changes and events of a successful operation.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) changes: Vec<LedgerEntryChange>,
    pub(super) events: Vec<ContractEvent>,
}

/// An operation's failure, or an error of the sandbox itself.
pub(super) enum Stop<R> {
    Refused(R),
    Broken(SandboxError),
}

impl<R> From<SandboxError> for Stop<R> {
    fn from(error: SandboxError) -> Self {
        Self::Broken(error)
    }
}

pub(super) type Outcome<R, T = Effects> = Result<T, Stop<R>>;

/// Applies one operation of `source`'s transaction; `None` for one of another kind.
pub(super) fn apply(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    memo: &Memo,
    operation: &OperationBody,
) -> Result<Option<Applied>> {
    let applied = match operation {
        OperationBody::CreateAccount(op) => finish(
            create_account(state, ledger, source, op).map(|e| (CreateAccountResult::Success, e)),
            OperationResultTr::CreateAccount,
        ),
        OperationBody::Payment(op) => finish(
            pay(state, ledger, source, memo, op).map(|e| (PaymentResult::Success, e)),
            OperationResultTr::Payment,
        ),
        OperationBody::ChangeTrust(op) => finish(
            change_trust(state, ledger, source, op).map(|e| (ChangeTrustResult::Success, e)),
            OperationResultTr::ChangeTrust,
        ),
        OperationBody::SetOptions(op) => finish(
            set_flags(state, ledger, source, op).map(|e| (SetOptionsResult::Success, e)),
            OperationResultTr::SetOptions,
        ),
        OperationBody::AccountMerge(to) => finish(
            merge(state, ledger, source, to)
                .map(|(balance, e)| (AccountMergeResult::Success(balance), e)),
            OperationResultTr::AccountMerge,
        ),
        _ => return Ok(None),
    };
    applied.map(Some)
}

/// Turns the outcome of an operation into what is recorded of it.
pub(super) fn finish<R>(
    outcome: Outcome<R, (R, Effects)>,
    wrap: impl Fn(R) -> OperationResultTr,
) -> Result<Applied> {
    match outcome {
        Ok((result, effects)) => Ok(Applied { result: wrap(result), effects: Some(effects) }),
        Err(Stop::Refused(result)) => Ok(Applied { result: wrap(result), effects: None }),
        Err(Stop::Broken(error)) => Err(error),
    }
}

fn create_account(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    op: &CreateAccountOp,
) -> Outcome<CreateAccountResult> {
    use CreateAccountResult as Failure;
    if state.account(&op.destination).is_some() {
        return Err(Stop::Refused(Failure::AlreadyExist));
    }
    if op.starting_balance < 2 * i64::from(BASE_RESERVE) {
        return Err(Stop::Refused(Failure::LowReserve));
    }
    let mut payer = require_account(state, source)?;
    if spendable(&payer) < op.starting_balance {
        return Err(Stop::Refused(Failure::Underfunded));
    }
    payer.balance -= op.starting_balance;
    let account = new_account(op.destination.clone(), op.starting_balance, ledger.sequence);
    let mut changes = state.write(LedgerEntryData::Account(payer), ledger.sequence)?;
    changes.extend(state.write(LedgerEntryData::Account(account), ledger.sequence)?);
    let to = muxed(&op.destination);
    let amount = op.starting_balance;
    let native = Asset::Native;
    let event = events::movement(ledger.assets, &native, source, &to, amount, &Memo::None)?;
    Ok(Effects { changes, events: vec![event] })
}

fn pay(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    memo: &Memo,
    op: &PaymentOp,
) -> Outcome<PaymentResult> {
    use PaymentResult as Failure;
    let recipient = account_id(&op.destination);
    if state.account(&recipient).is_none() {
        return Err(Stop::Refused(Failure::NoDestination));
    }
    if recipient == *source {
        // A payment to oneself succeeds regardless of the balance and changes no entry.
        let (asset, amount) = (&op.asset, op.amount);
        let event = events::movement(ledger.assets, asset, source, &op.destination, amount, memo)?;
        return Ok(Effects { changes: Vec::new(), events: vec![event] });
    }
    let (payer, payee) = match &op.asset {
        Asset::Native => {
            let mut payer = require_account(state, source)?;
            let mut payee = require_account(state, &recipient)?;
            if spendable(&payer) < op.amount {
                return Err(Stop::Refused(Failure::Underfunded));
            }
            let received = payee.balance.checked_add(op.amount);
            payee.balance = received.ok_or(Stop::Refused(Failure::LineFull))?;
            payer.balance -= op.amount;
            (Some(LedgerEntryData::Account(payer)), Some(LedgerEntryData::Account(payee)))
        }
        asset => {
            let payee = credit(state, asset, &recipient, op.amount)?;
            let payer = debit(state, asset, source, op.amount)?;
            (payer.map(LedgerEntryData::Trustline), payee.map(LedgerEntryData::Trustline))
        }
    };
    let mut changes = Vec::new();
    for entry in [payer, payee].into_iter().flatten() {
        changes.extend(state.write(entry, ledger.sequence)?);
    }
    let event =
        events::movement(ledger.assets, &op.asset, source, &op.destination, op.amount, memo)?;
    Ok(Effects { changes, events: vec![event] })
}

/// Returns the recipient's trustline with `amount` added; `None` for the issuer, which has none.
fn credit(
    state: &LedgerState,
    asset: &Asset,
    to: &AccountId,
    amount: i64,
) -> Outcome<PaymentResult, Option<TrustLineEntry>> {
    if is_issuer(asset, to) {
        return Ok(None);
    }
    let mut line =
        state.trustline(to, asset).cloned().ok_or(Stop::Refused(PaymentResult::NoTrust))?;
    if !is_authorized(&line) {
        return Err(Stop::Refused(PaymentResult::NotAuthorized));
    }
    if amount > line.limit - line.balance {
        return Err(Stop::Refused(PaymentResult::LineFull));
    }
    line.balance += amount;
    Ok(Some(line))
}

/// Returns the payer's trustline with `amount` subtracted; `None` for the issuer, which has none.
fn debit(
    state: &LedgerState,
    asset: &Asset,
    from: &AccountId,
    amount: i64,
) -> Outcome<PaymentResult, Option<TrustLineEntry>> {
    if is_issuer(asset, from) {
        return Ok(None);
    }
    let mut line =
        state.trustline(from, asset).cloned().ok_or(Stop::Refused(PaymentResult::SrcNoTrust))?;
    if !is_authorized(&line) {
        return Err(Stop::Refused(PaymentResult::SrcNotAuthorized));
    }
    if amount > line.balance {
        return Err(Stop::Refused(PaymentResult::Underfunded));
    }
    line.balance -= amount;
    Ok(Some(line))
}

fn change_trust(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    op: &ChangeTrustOp,
) -> Outcome<ChangeTrustResult> {
    use ChangeTrustResult as Failure;
    let asset = match &op.line {
        ChangeTrustAsset::CreditAlphanum4(asset) => Asset::CreditAlphanum4(asset.clone()),
        ChangeTrustAsset::CreditAlphanum12(asset) => Asset::CreditAlphanum12(asset.clone()),
        ChangeTrustAsset::Native | ChangeTrustAsset::PoolShare(_) => {
            return Err(Stop::Refused(Failure::Malformed));
        }
    };
    let mut account = require_account(state, source)?;
    let Some(mut line) = state.trustline(source, &asset).cloned() else {
        if op.limit == 0 {
            return Err(Stop::Refused(Failure::TrustLineMissing));
        }
        let flags = issuer_flags(state, &asset).ok_or(Stop::Refused(Failure::NoIssuer))?;
        if spendable(&account) < i64::from(BASE_RESERVE) {
            return Err(Stop::Refused(Failure::LowReserve));
        }
        account.num_sub_entries += 1;
        let line = new_trustline(source.clone(), &asset, op.limit, flags);
        let mut changes = state.write(LedgerEntryData::Trustline(line), ledger.sequence)?;
        changes.extend(state.write(LedgerEntryData::Account(account), ledger.sequence)?);
        return Ok(Effects { changes, events: Vec::new() });
    };
    if op.limit < line.balance {
        return Err(Stop::Refused(Failure::InvalidLimit));
    }
    if op.limit > 0 {
        line.limit = op.limit;
        let changes = state.write(LedgerEntryData::Trustline(line), ledger.sequence)?;
        return Ok(Effects { changes, events: Vec::new() });
    }
    account.num_sub_entries -= 1;
    let mut changes = state.write(LedgerEntryData::Account(account), ledger.sequence)?;
    changes.extend(state.remove(&trustline_key(source, &asset))?);
    Ok(Effects { changes, events: Vec::new() })
}

fn set_flags(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    op: &SetOptionsOp,
) -> Outcome<SetOptionsResult> {
    let mut account = require_account(state, source)?;
    account.flags |= op.set_flags.unwrap_or(0);
    account.flags &= !op.clear_flags.unwrap_or(0);
    let changes = state.write(LedgerEntryData::Account(account), ledger.sequence)?;
    Ok(Effects { changes, events: Vec::new() })
}

fn merge(
    state: &mut LedgerState,
    ledger: &OpenLedger<'_>,
    source: &AccountId,
    to: &MuxedAccount,
) -> Outcome<AccountMergeResult, (i64, Effects)> {
    use AccountMergeResult as Failure;
    let account = require_account(state, source)?;
    let Some(mut heir) = state.account(&account_id(to)).cloned() else {
        return Err(Stop::Refused(Failure::NoAccount));
    };
    if account.num_sub_entries > 0 {
        return Err(Stop::Refused(Failure::HasSubEntries));
    }
    if account.seq_num.0 >= starting_sequence_number(ledger.sequence) {
        return Err(Stop::Refused(Failure::SeqnumTooFar));
    }
    let balance = account.balance;
    let inherited = heir.balance.checked_add(balance);
    heir.balance = inherited.ok_or(Stop::Refused(Failure::DestFull))?;
    let mut changes = state.write(LedgerEntryData::Account(heir), ledger.sequence)?;
    changes.extend(state.remove(&account_key(source))?);
    let native = Asset::Native;
    let event = events::movement(ledger.assets, &native, source, to, balance, &Memo::None)?;
    Ok((balance, Effects { changes, events: vec![event] }))
}

/// Returns the spendable balance of an account: its balance less the reserve for itself and its
/// subentries.
pub(super) fn spendable(account: &AccountEntry) -> i64 {
    let reserve = (2 + i64::from(account.num_sub_entries)) * i64::from(BASE_RESERVE);
    (account.balance - reserve).max(0)
}

pub(super) fn new_account(account_id: AccountId, balance: i64, ledger: u32) -> AccountEntry {
    AccountEntry {
        account_id,
        balance,
        seq_num: SequenceNumber(starting_sequence_number(ledger)),
        num_sub_entries: 0,
        inflation_dest: None,
        flags: 0,
        home_domain: Default::default(),
        thresholds: Thresholds([1, 0, 0, 0]),
        signers: Default::default(),
        ext: AccountEntryExt::V0,
    }
}

fn new_trustline(
    account_id: AccountId,
    asset: &Asset,
    limit: i64,
    issuer_flags: u32,
) -> TrustLineEntry {
    let mut flags = 0;
    if issuer_flags & AccountFlags::RequiredFlag as u32 == 0 {
        flags |= TrustLineFlags::AuthorizedFlag as u32;
    }
    if issuer_flags & AccountFlags::ClawbackEnabledFlag as u32 != 0 {
        flags |= TrustLineFlags::TrustlineClawbackEnabledFlag as u32;
    }
    let asset = trustline_asset(asset);
    TrustLineEntry { account_id, asset, balance: 0, limit, flags, ext: TrustLineEntryExt::V0 }
}

/// Returns the first sequence number of an account that `ledger` creates. No earlier account with
/// the same key can have used it.
fn starting_sequence_number(ledger: u32) -> i64 {
    i64::from(ledger) << 32
}

pub(super) fn is_authorized(line: &TrustLineEntry) -> bool {
    line.flags & TrustLineFlags::AuthorizedFlag as u32 != 0
}

fn issuer_flags(state: &LedgerState, asset: &Asset) -> Option<u32> {
    let issuer = match asset {
        Asset::Native => return None,
        Asset::CreditAlphanum4(asset) => &asset.issuer,
        Asset::CreditAlphanum12(asset) => &asset.issuer,
    };
    state.account(issuer).map(|account| account.flags)
}

fn is_issuer(asset: &Asset, account: &AccountId) -> bool {
    match asset {
        Asset::Native => false,
        Asset::CreditAlphanum4(asset) => asset.issuer == *account,
        Asset::CreditAlphanum12(asset) => asset.issuer == *account,
    }
}

pub(super) fn require_account(state: &LedgerState, id: &AccountId) -> Result<AccountEntry> {
    let account = state.account(id).cloned();
    account.ok_or_else(|| SandboxError::inconsistent(format_args!("account {id} does not exist")))
}

pub(super) fn account_id(account: &MuxedAccount) -> AccountId {
    AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(ed25519(account))))
}

pub(super) fn muxed(account: &AccountId) -> MuxedAccount {
    let PublicKey::PublicKeyTypeEd25519(key) = &account.0;
    MuxedAccount::Ed25519(key.clone())
}
