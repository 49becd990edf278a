//! Applies a transaction set to the state in the order in which a node does: all fees, classic
//! transactions, sequence numbers of all contract transactions, their executions, and all refunds.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountEntry, AccountEntryExt, AccountEntryExtensionV1, AccountEntryExtensionV1Ext,
    AccountEntryExtensionV2, AccountEntryExtensionV2Ext, AccountEntryExtensionV3, AccountId,
    DiagnosticEvent, ExtensionPoint, InnerTransactionResult, InnerTransactionResultExt,
    InnerTransactionResultPair, InnerTransactionResultResult, LedgerEntryChange,
    LedgerEntryChanges, LedgerEntryData, Liabilities, OperationBody, OperationMetaV2,
    OperationResult, PublicKey, SorobanTransactionMetaExt, SorobanTransactionMetaExtV1,
    SorobanTransactionMetaV2, TimePoint, TransactionEvent, TransactionMeta, TransactionMetaV4,
    TransactionResult, TransactionResultExt, TransactionResultMetaV1, TransactionResultPair,
    TransactionResultResult, Uint256, WriteXdr,
};

use super::classic::{self, require_account};
use super::contracts::Call;
use super::control;
use super::envelope::{SignedTransaction, operation_source};
use super::error::{Result, SandboxError};
use super::execution::{Effects, Execution};
use super::fees::resource_fee;
use super::host::min_persistent_ttl;
use super::open_ledger::OpenLedger;
use super::state::LedgerState;
use super::tx_set::TransactionSet;
use super::{contracts, events, footprint};

/// Outcome of applying all transactions of a ledger.
pub(super) struct AppliedSet {
    /// Metadata of the transactions in apply order.
    pub(super) transactions: Vec<TransactionResultMetaV1>,
    /// Fees charged less refunds, in stroops.
    pub(super) fees: i64,
}

/// Applies the set and returns the metadata of its transactions.
pub(super) fn apply_set(
    shared: &mut Arc<LedgerState>,
    ledger: &OpenLedger<'_>,
    set: TransactionSet,
) -> Result<AppliedSet> {
    // Copies the state when a clone of the sandbox still shares it; the simulations of planned
    // calls no longer do.
    let state = Arc::make_mut(shared);
    let classic_count = set.classic.len();
    let mut all: Vec<Progress> =
        set.classic.into_iter().chain(set.soroban).map(Progress::new).collect();
    for progress in &mut all {
        progress.charge_fee(state, ledger)?;
    }
    let (classic, soroban) = all.split_at_mut(classic_count);
    for progress in classic {
        progress.begin(state, ledger)?;
        progress.run_classic(state, ledger)?;
    }
    for progress in soroban.iter_mut() {
        progress.begin(state, ledger)?;
    }
    for (index, progress) in (classic_count as u64..).zip(soroban.iter_mut()) {
        let seed = sub_seed(sub_seed(set.hash, index), 0);
        progress.run_soroban(state, ledger, seed)?;
    }
    for progress in soroban {
        progress.refund_unused(state, ledger)?;
    }
    let fees = all.iter().map(|progress| progress.fee).sum();
    let transactions = all.into_iter().map(Progress::finish).collect::<Result<_, _>>()?;
    Ok(AppliedSet { transactions, fees })
}

/// Derives the `number`th sub-seed of `seed`.
fn sub_seed(seed: [u8; 32], number: u64) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(seed);
    digest.update(number.to_be_bytes());
    digest.finalize().into()
}

/// Effect of an earlier transaction of the ledger that prevents a later one from being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InvalidatedBy {
    NoAccount,
    BadSequence,
}

/// What a transaction offers for resources, and what of that is charged in any case, in stroops.
struct Fees {
    bid: i64,
    fixed: i64,
}

/// State of one transaction while the ledger is applied.
struct Progress {
    transaction: SignedTransaction,
    /// Fee charged so far less refunds, in stroops.
    fee: i64,
    fee_changes: Vec<LedgerEntryChange>,
    changes_before: Vec<LedgerEntryChange>,
    succeeded: bool,
    invalidated_by: Option<InvalidatedBy>,
    results: Vec<OperationResult>,
    operations: Vec<OperationMetaV2>,
    soroban_meta: Option<SorobanTransactionMetaV2>,
    diagnostics: Vec<DiagnosticEvent>,
    events: Vec<TransactionEvent>,
    refund_changes: Vec<LedgerEntryChange>,
    refund: i64,
}

impl Progress {
    fn new(transaction: SignedTransaction) -> Self {
        Self {
            transaction,
            fee: 0,
            fee_changes: Vec::new(),
            changes_before: Vec::new(),
            succeeded: false,
            invalidated_by: None,
            results: Vec::new(),
            operations: Vec::new(),
            soroban_meta: None,
            diagnostics: Vec::new(),
            events: Vec::new(),
            refund_changes: Vec::new(),
            refund: 0,
        }
    }

    fn charge_fee(&mut self, state: &mut LedgerState, ledger: &OpenLedger<'_>) -> Result<()> {
        let payer = account(self.transaction.fee_source()?);
        let mut entry = require_account(state, &payer)?;
        self.fee = self.transaction.initial_fee()?.min(entry.balance);
        entry.balance -= self.fee;
        self.fee_changes = state.write(LedgerEntryData::Account(entry), ledger.sequence)?;
        self.events.push(events::fee(ledger.assets, &payer, self.fee)?);
        Ok(())
    }

    /// Returns why the transaction can no longer be applied although it was valid when the ledger
    /// began; `None` when it can.
    fn invalidated_by(&self, state: &LedgerState) -> Result<Option<InvalidatedBy>> {
        let number = &self.transaction.inner()?.tx.seq_num;
        let payer = account(self.transaction.fee_source()?);
        let Some(source) = state.account(&account(self.transaction.source()?)) else {
            return Ok(Some(InvalidatedBy::NoAccount));
        };
        if state.account(&payer).is_none() {
            return Ok(Some(InvalidatedBy::NoAccount));
        }
        Ok((source.seq_num.0.checked_add(1) != Some(number.0))
            .then_some(InvalidatedBy::BadSequence))
    }

    /// Consumes the sequence number. A fee bump first writes the account that pays for it.
    fn begin(&mut self, state: &mut LedgerState, ledger: &OpenLedger<'_>) -> Result<()> {
        if self.transaction.is_submitted {
            self.invalidated_by = self.invalidated_by(state)?;
            if self.invalidated_by.is_some() {
                return Ok(());
            }
        }
        if self.transaction.is_fee_bump() {
            let payer = require_account(state, &account(self.transaction.fee_source()?))?;
            self.changes_before = state.write(LedgerEntryData::Account(payer), ledger.sequence)?;
        }
        let mut source = require_account(state, &account(self.transaction.source()?))?;
        let number = self.transaction.inner()?.tx.seq_num.clone();
        if number.0 != source.seq_num.0 + 1 {
            return Err(SandboxError::inconsistent(format_args!(
                "{} follows {} as sequence number of {}",
                number.0, source.seq_num.0, source.account_id
            )));
        }
        source.seq_num = number;
        note_sequence_use(&mut source, ledger);
        self.changes_before.extend(state.write(LedgerEntryData::Account(source), ledger.sequence)?);
        Ok(())
    }

    fn run_classic(&mut self, state: &mut LedgerState, ledger: &OpenLedger<'_>) -> Result<()> {
        if self.invalidated_by.is_some() {
            return Ok(());
        }
        let tx = &self.transaction.inner()?.tx;
        let mut done: Vec<LedgerEntryChange> = Vec::new();
        self.succeeded = true;
        for operation in tx.operations.iter() {
            let source = account(operation_source(operation, tx));
            if state.account(&source).is_none() {
                self.results.push(OperationResult::OpNoAccount);
                self.succeeded = false;
                continue;
            }
            let body = &operation.body;
            let applied = match classic::apply(state, ledger, &source, &tx.memo, body)? {
                Some(applied) => applied,
                None => control::apply(state, ledger, &source, body)?,
            };
            self.results.push(OperationResult::OpInner(applied.result));
            let Some(effects) = applied.effects else {
                self.succeeded = false;
                continue;
            };
            done.extend(effects.changes.iter().cloned());
            self.operations.push(OperationMetaV2 {
                ext: ExtensionPoint::V0,
                changes: changes(effects.changes)?,
                events: effects.events.try_into()?,
            });
        }
        if !self.succeeded {
            self.operations.clear();
            state.undo(done)?;
        }
        Ok(())
    }

    fn run_soroban(
        &mut self,
        state: &mut LedgerState,
        ledger: &OpenLedger<'_>,
        seed: [u8; 32],
    ) -> Result<()> {
        if self.invalidated_by.is_some() {
            return Ok(());
        }
        let Some((execution, fees)) = self.execute(state, ledger, seed)? else {
            self.results.push(OperationResult::OpNoAccount);
            return Ok(());
        };
        let Execution { result, effects, refundable_used, rent_fee, diagnostics } = execution;
        self.diagnostics = diagnostics;
        self.refund = fees.bid - fees.fixed - refundable_used;
        self.succeeded = effects.is_some();
        self.results.push(OperationResult::OpInner(result));
        let mut return_value = None;
        if let Some(Effects { changes: made, events, return_value: value }) = effects {
            return_value = value;
            self.operations.push(OperationMetaV2 {
                ext: ExtensionPoint::V0,
                changes: changes(made)?,
                events: events.try_into()?,
            });
        }
        self.soroban_meta = Some(SorobanTransactionMetaV2 {
            ext: SorobanTransactionMetaExt::V1(SorobanTransactionMetaExtV1 {
                ext: ExtensionPoint::V0,
                total_non_refundable_resource_fee_charged: fees.fixed,
                total_refundable_resource_fee_charged: refundable_used,
                rent_fee_charged: rent_fee,
            }),
            return_value,
        });
        Ok(())
    }

    /// Executes the operation of a transaction with contracts; `None` when its account does not exist.
    fn execute(
        &self,
        state: &mut LedgerState,
        ledger: &OpenLedger<'_>,
        seed: [u8; 32],
    ) -> Result<Option<(Execution, Fees)>> {
        let inner = self.transaction.inner()?;
        let (Some(data), Some(operation)) =
            (self.transaction.soroban()?, inner.tx.operations.first())
        else {
            return Err(SandboxError::inconsistent("a contract phase without contracts"));
        };
        let source = account(operation_source(operation, &inner.tx));
        let is_submitted = self.transaction.is_submitted;
        let bytes = stellar_xdr::TransactionEnvelope::Tx(inner.clone())
            .to_xdr(stellar_xdr::Limits::none())?
            .len();
        let execution = match &operation.body {
            _ if state.account(&source).is_none() => return Ok(None),
            OperationBody::InvokeHostFunction(operation) => {
                let call = Call {
                    operation,
                    data,
                    source: &source,
                    transaction_bytes: bytes,
                    seed,
                    is_submitted,
                };
                contracts::execute(state, ledger, &call)?
            }
            OperationBody::ExtendFootprintTtl(op) => {
                footprint::extend(state, ledger, op.extend_to, data, bytes)?
            }
            OperationBody::RestoreFootprint(_) => {
                let lifetime = min_persistent_ttl(is_submitted);
                footprint::restore(state, ledger, data, bytes, lifetime)?
            }
            other => {
                let what = format!("operation {} in the contract phase", other.name());
                return Err(SandboxError::inconsistent(what));
            }
        };
        let fixed = resource_fee(&data.resources, 0, bytes).fixed;
        Ok(Some((execution, Fees { bid: data.resource_fee, fixed })))
    }

    /// Refunds the unused part of the resource fee.
    fn refund_unused(&mut self, state: &mut LedgerState, ledger: &OpenLedger<'_>) -> Result<()> {
        if self.refund <= 0 {
            return Ok(());
        }
        let payer = account(self.transaction.fee_source()?);
        let Some(mut entry) = state.account(&payer).cloned() else {
            // The payer was merged in this ledger, so the refund is forfeited.
            return Ok(());
        };
        entry.balance += self.refund;
        self.fee -= self.refund;
        self.refund_changes = state.write(LedgerEntryData::Account(entry), ledger.sequence)?;
        self.events.push(events::fee(ledger.assets, &payer, -self.refund)?);
        Ok(())
    }

    fn finish(self) -> Result<TransactionResultMetaV1> {
        let outcome = match self.invalidated_by {
            None if self.succeeded => {
                InnerTransactionResultResult::TxSuccess(self.results.try_into()?)
            }
            None => InnerTransactionResultResult::TxFailed(self.results.try_into()?),
            Some(InvalidatedBy::NoAccount) => InnerTransactionResultResult::TxNoAccount,
            Some(InvalidatedBy::BadSequence) => InnerTransactionResultResult::TxBadSeq,
        };
        let result = result_of(&self.transaction, outcome);
        let result =
            TransactionResult { fee_charged: self.fee, result, ext: TransactionResultExt::V0 };
        Ok(TransactionResultMetaV1 {
            ext: ExtensionPoint::V0,
            result: TransactionResultPair { transaction_hash: self.transaction.hash, result },
            fee_processing: changes(self.fee_changes)?,
            tx_apply_processing: TransactionMeta::V4(TransactionMetaV4 {
                ext: ExtensionPoint::V0,
                tx_changes_before: changes(self.changes_before)?,
                operations: self.operations.try_into()?,
                tx_changes_after: LedgerEntryChanges::default(),
                soroban_meta: self.soroban_meta,
                events: self.events.try_into()?,
                diagnostic_events: self.diagnostics.try_into()?,
            }),
            post_tx_apply_fee_processing: changes(self.refund_changes)?,
        })
    }
}

/// Converts an outcome to the result of a transaction; that of a fee bump contains the inner
/// transaction's hash and result.
pub(super) fn result_of(
    transaction: &SignedTransaction,
    outcome: InnerTransactionResultResult,
) -> TransactionResultResult {
    use InnerTransactionResultResult as Inner;
    if transaction.is_fee_bump() {
        let succeeded = matches!(outcome, Inner::TxSuccess(_));
        let pair = InnerTransactionResultPair {
            transaction_hash: transaction.inner_hash.clone(),
            result: InnerTransactionResult {
                // The fee is charged to the outer transaction alone.
                fee_charged: 0,
                result: outcome,
                ext: InnerTransactionResultExt::V0,
            },
        };
        return if succeeded {
            TransactionResultResult::TxFeeBumpInnerSuccess(pair)
        } else {
            TransactionResultResult::TxFeeBumpInnerFailed(pair)
        };
    }
    use TransactionResultResult as Outer;
    match outcome {
        Inner::TxSuccess(results) => Outer::TxSuccess(results),
        Inner::TxFailed(results) => Outer::TxFailed(results),
        Inner::TxTooEarly => Outer::TxTooEarly,
        Inner::TxTooLate => Outer::TxTooLate,
        Inner::TxMissingOperation => Outer::TxMissingOperation,
        Inner::TxBadSeq => Outer::TxBadSeq,
        Inner::TxBadAuth => Outer::TxBadAuth,
        Inner::TxInsufficientBalance => Outer::TxInsufficientBalance,
        Inner::TxNoAccount => Outer::TxNoAccount,
        Inner::TxInsufficientFee => Outer::TxInsufficientFee,
        Inner::TxBadAuthExtra => Outer::TxBadAuthExtra,
        Inner::TxNotSupported => Outer::TxNotSupported,
        Inner::TxBadSponsorship => Outer::TxBadSponsorship,
        Inner::TxBadMinSeqAgeOrGap => Outer::TxBadMinSeqAgeOrGap,
        Inner::TxMalformed => Outer::TxMalformed,
        Inner::TxSorobanInvalid => Outer::TxSorobanInvalid,
        _ => Outer::TxInternalError,
    }
}

/// Records the ledger and time at which a sequence number was last used (CAP-21), in the third
/// extension of the account.
fn note_sequence_use(account: &mut AccountEntry, ledger: &OpenLedger<'_>) {
    let last_use = AccountEntryExtensionV3 {
        ext: ExtensionPoint::V0,
        seq_ledger: ledger.sequence,
        seq_time: TimePoint(ledger.close_time),
    };
    // The sandbox has neither offers nor sponsorships, so the outer extensions are empty.
    account.ext = AccountEntryExt::V1(AccountEntryExtensionV1 {
        liabilities: Liabilities { buying: 0, selling: 0 },
        ext: AccountEntryExtensionV1Ext::V2(AccountEntryExtensionV2 {
            num_sponsored: 0,
            num_sponsoring: 0,
            signer_sponsoring_i_ds: Default::default(),
            ext: AccountEntryExtensionV2Ext::V3(last_use),
        }),
    });
}

fn account(key: [u8; 32]) -> AccountId {
    AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(key)))
}

fn changes(changes: Vec<LedgerEntryChange>) -> Result<LedgerEntryChanges> {
    Ok(LedgerEntryChanges(changes.try_into()?))
}
