//! Validates transactions from outside before they are accepted, as a node does (`checkValid`).

use ed25519_dalek::{Signature, VerifyingKey};
use orrery_ledger::domain::{NetworkId, has_lifetime, is_temporary};
use stellar_xdr::{
    AccountId, CreateAccountResult, DecoratedSignature, ExtendFootprintTtlResult,
    FeeBumpTransactionInnerTx, InnerTransactionResultResult as Verdict, LedgerKey, Operation,
    OperationBody, OperationResult, OperationResultTr, PaymentResult, Preconditions, PublicKey,
    RestoreFootprintResult, SetOptionsOp, SorobanTransactionData, SorobanTransactionDataExt,
    TimeBounds, Transaction, TransactionEnvelope, TransactionExt, TransactionResult,
    TransactionResultExt, Uint256, WriteXdr,
};

use super::actors::PermanentAccounts;
use super::apply::result_of;
use super::assets::{is_asset, is_code};
use super::classic::spendable;
use super::control;
use super::envelope::{SignedTransaction, operation_source};
use super::error::Result;
use super::fees::{BASE_FEE, resource_fee};
use super::host::MAX_TTL;
use super::state::LedgerState;

/// Maximum number of instructions that a transaction may declare, as on the public network.
pub(super) const MAX_INSTRUCTIONS: u32 = 100_000_000;
/// Maximum number of keys in a footprint, read-only and read-write together.
const MAX_KEYS: usize = 200;
/// Maximum number of bytes that a transaction may declare to read from disk, and to write.
const MAX_BYTES: u32 = 200 * 1024;
/// Maximum size of a transaction with its signatures, in bytes: enough for the largest module.
pub(super) const MAX_TRANSACTION_BYTES: usize = 132_096;

/// What transactions from outside are checked against.
pub(super) struct Admission<'a> {
    pub(super) network: &'a NetworkId,
    pub(super) permanent: &'a PermanentAccounts,
    /// State after the latest ledger.
    pub(super) state: &'a LedgerState,
    /// Sequence of the next ledger.
    pub(super) sequence: u32,
}

impl Admission<'_> {
    /// Checks whether a transaction could be applied in the next ledger, if that closed at `now`
    /// (UNIX seconds). Returns the result that a node would return when it could not.
    pub(super) fn check(
        &self,
        envelope: &TransactionEnvelope,
        now: u64,
    ) -> Result<Result<(), TransactionResult>> {
        if matches!(envelope, TransactionEnvelope::TxV0(_)) {
            return Ok(Err(TransactionResult {
                fee_charged: 0,
                result: stellar_xdr::TransactionResultResult::TxNotSupported,
                ext: TransactionResultExt::V0,
            }));
        }
        let signed = SignedTransaction::submitted(envelope.clone(), self.network)?;
        let verdict = self.verdict(&signed, now)?;
        Ok(match verdict {
            None => Ok(()),
            Some(verdict) => Err(TransactionResult {
                fee_charged: 0,
                result: result_of(&signed, verdict),
                ext: TransactionResultExt::V0,
            }),
        })
    }

    /// Returns why a transaction is invalid; `None` when it is valid.
    pub(super) fn verdict(&self, signed: &SignedTransaction, now: u64) -> Result<Option<Verdict>> {
        let tx = &signed.inner()?.tx;
        if let Some(verdict) = self.check_preconditions(tx, now) {
            return Ok(Some(verdict));
        }
        if let Some(verdict) = self.check_fee_and_sequence(signed, tx)? {
            return Ok(Some(verdict));
        }
        if let Some(verdict) = self.check_signers(signed, tx)? {
            return Ok(Some(verdict));
        }
        let malformed: Vec<_> =
            tx.operations.iter().map(|operation| check_operation(operation, tx)).collect();
        if malformed.iter().any(Option::is_some) {
            let results = malformed
                .into_iter()
                .zip(tx.operations.iter())
                .map(|(result, operation)| result.unwrap_or_else(|| succeeded(&operation.body)));
            return Ok(Some(Verdict::TxFailed(results.collect::<Vec<_>>().try_into()?)));
        }
        Ok(None)
    }

    /// Checks the time and ledger bounds, and the form of a contract transaction.
    fn check_preconditions(&self, tx: &Transaction, now: u64) -> Option<Verdict> {
        if tx.operations.is_empty() {
            return Some(Verdict::TxMissingOperation);
        }
        let next = self.sequence;
        let (times, ledgers) = match &tx.cond {
            Preconditions::None => (None, None),
            Preconditions::Time(times) => (Some(times), None),
            Preconditions::V2(all) => {
                let is_plain = all.min_seq_num.is_none()
                    && all.min_seq_age.0 == 0
                    && all.min_seq_ledger_gap == 0
                    && all.extra_signers.is_empty();
                if !is_plain {
                    return Some(Verdict::TxNotSupported);
                }
                (all.time_bounds.as_ref(), all.ledger_bounds.as_ref())
            }
        };
        if let Some(TimeBounds { min_time, max_time }) = times {
            if min_time.0 > now {
                return Some(Verdict::TxTooEarly);
            }
            if max_time.0 != 0 && max_time.0 < now {
                return Some(Verdict::TxTooLate);
            }
        }
        if let Some(ledgers) = ledgers {
            if ledgers.min_ledger > next {
                return Some(Verdict::TxTooEarly);
            }
            if ledgers.max_ledger != 0 && ledgers.max_ledger <= next {
                return Some(Verdict::TxTooLate);
            }
        }
        let of_contracts =
            tx.operations.iter().filter(|operation| is_of_contracts(&operation.body));
        match (of_contracts.count(), &tx.ext) {
            (0, TransactionExt::V0) => None,
            (1, TransactionExt::V1(data)) if tx.operations.len() == 1 => {
                (!is_within_limits(data)).then_some(Verdict::TxSorobanInvalid)
            }
            (0, TransactionExt::V1(_)) | (_, TransactionExt::V0) => Some(Verdict::TxMalformed),
            _ => Some(Verdict::TxSorobanInvalid),
        }
    }

    /// Checks fee, sequence number and balance.
    fn check_fee_and_sequence(
        &self,
        signed: &SignedTransaction,
        tx: &Transaction,
    ) -> Result<Option<Verdict>> {
        let resource = match &tx.ext {
            TransactionExt::V1(data) => {
                let inner = TransactionEnvelope::Tx(signed.inner()?.clone());
                let bytes = inner.to_xdr(stellar_xdr::Limits::none())?.len();
                let fixed = resource_fee(&data.resources, 0, bytes).fixed;
                if data.resource_fee < fixed
                    || data.resource_fee > i64::from(u32::MAX)
                    || bytes > MAX_TRANSACTION_BYTES
                {
                    return Ok(Some(Verdict::TxSorobanInvalid));
                }
                data.resource_fee
            }
            TransactionExt::V0 => 0,
        };
        let bid = match &signed.envelope {
            TransactionEnvelope::TxFeeBump(bump) => bump.tx.fee,
            _ => i64::from(tx.fee),
        };
        // A fee bump pays for one operation more (CAP-15).
        let count = tx.operations.len() + usize::from(signed.is_fee_bump());
        let least = i64::from(BASE_FEE) * i64::try_from(count).unwrap_or(i64::MAX);
        if bid < resource.saturating_add(least) {
            return Ok(Some(Verdict::TxInsufficientFee));
        }
        let Some(source) = self.state.account(&account(signed.source()?)) else {
            return Ok(Some(Verdict::TxNoAccount));
        };
        if source.seq_num.0.checked_add(1) != Some(tx.seq_num.0) {
            return Ok(Some(Verdict::TxBadSeq));
        }
        let Some(payer) = self.state.account(&account(signed.fee_source()?)) else {
            return Ok(Some(Verdict::TxNoAccount));
        };
        Ok((spendable(payer) < bid).then_some(Verdict::TxInsufficientBalance))
    }

    /// Checks that all required signers have signed, and that there are no other signatures.
    fn check_signers(
        &self,
        signed: &SignedTransaction,
        tx: &Transaction,
    ) -> Result<Option<Verdict>> {
        let mut signers = vec![ed25519_of_source(tx)];
        signers.extend(tx.operations.iter().map(|operation| operation_source(operation, tx)));
        signers.sort_unstable();
        signers.dedup();
        let verdict =
            self.check_signatures(&signers, &signed.inner_hash.0, &signed.inner()?.signatures);
        if verdict.is_some() {
            return Ok(verdict);
        }
        let TransactionEnvelope::TxFeeBump(bump) = &signed.envelope else { return Ok(None) };
        let FeeBumpTransactionInnerTx::Tx(_) = &bump.tx.inner_tx;
        Ok(self.check_signatures(&[signed.fee_source()?], &signed.hash.0, &bump.signatures))
    }

    fn check_signatures(
        &self,
        signers: &[[u8; 32]],
        payload: &[u8; 32],
        signatures: &[DecoratedSignature],
    ) -> Option<Verdict> {
        let permanent = self.permanent;
        let own = permanent.traders.iter().chain([
            &permanent.root,
            &permanent.issuer,
            &permanent.validator,
        ]);
        let mut own = own.map(|actor| actor.public_key());
        // The sandbox's own accounts send transactions by themselves, and the keys of some are
        // publicly known.
        if own.any(|key| signers.contains(&key)) {
            return Some(Verdict::TxBadAuth);
        }
        let mut used = vec![false; signatures.len()];
        for signer in signers {
            let made =
                signatures.iter().position(|signature| is_signed_by(signature, signer, payload));
            match made {
                Some(place) => used[place] = true,
                None => return Some(Verdict::TxBadAuth),
            }
        }
        used.contains(&false).then_some(Verdict::TxBadAuthExtra)
    }
}

fn is_signed_by(signature: &DecoratedSignature, signer: &[u8; 32], payload: &[u8; 32]) -> bool {
    if signature.hint.0 != signer[28..] {
        return false;
    }
    let (Ok(key), Ok(signature)) =
        (VerifyingKey::from_bytes(signer), Signature::from_slice(signature.signature.0.as_slice()))
    else {
        return false;
    };
    key.verify_strict(payload, &signature).is_ok()
}

fn ed25519_of_source(tx: &Transaction) -> [u8; 32] {
    super::envelope::ed25519(&tx.source_account)
}

fn account(key: [u8; 32]) -> AccountId {
    AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(key)))
}

fn is_of_contracts(body: &OperationBody) -> bool {
    matches!(
        body,
        OperationBody::InvokeHostFunction(_)
            | OperationBody::ExtendFootprintTtl(_)
            | OperationBody::RestoreFootprint(_)
    )
}

/// Returns whether a contract transaction is within the resource limits and its footprint is valid.
fn is_within_limits(data: &SorobanTransactionData) -> bool {
    let resources = &data.resources;
    let footprint = &resources.footprint;
    let (read, written) = (&footprint.read_only, &footprint.read_write);
    let mut keys: Vec<&LedgerKey> = read.iter().chain(written.iter()).collect();
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    let supported = |key: &&LedgerKey| {
        has_lifetime(key) || matches!(key, LedgerKey::Account(_) | LedgerKey::Trustline(_))
    };
    let archived_is_sane = match &data.ext {
        SorobanTransactionDataExt::V0 => true,
        SorobanTransactionDataExt::V1(more) => {
            let places = &more.archived_soroban_entries;
            places.windows(2).all(|pair| pair[0] < pair[1])
                && places.iter().all(|place| {
                    let key = written.get(*place as usize);
                    key.is_some_and(|key| has_lifetime(key) && !is_temporary(key))
                })
        }
    };
    count == keys.len()
        && count <= MAX_KEYS
        && keys.iter().all(supported)
        && archived_is_sane
        && resources.instructions <= MAX_INSTRUCTIONS
        && resources.disk_read_bytes <= MAX_BYTES
        && resources.write_bytes <= MAX_BYTES
}

/// Returns why an operation is invalid regardless of the ledger state; `None` when it is valid.
fn check_operation(operation: &Operation, tx: &Transaction) -> Option<OperationResult> {
    let (is_malformed, result) = match &operation.body {
        OperationBody::CreateAccount(op) => (
            op.starting_balance < 0,
            OperationResultTr::CreateAccount(CreateAccountResult::Malformed),
        ),
        OperationBody::Payment(op) => (
            op.amount <= 0 || !is_asset(&op.asset),
            OperationResultTr::Payment(PaymentResult::Malformed),
        ),
        OperationBody::ChangeTrust(op) => {
            let source = account(operation_source(operation, tx));
            let of_others = match &op.line {
                stellar_xdr::ChangeTrustAsset::CreditAlphanum4(asset) => {
                    asset.issuer != source && is_code(&asset.asset_code.0)
                }
                stellar_xdr::ChangeTrustAsset::CreditAlphanum12(asset) => {
                    asset.issuer != source && is_code(&asset.asset_code.0)
                }
                _ => false,
            };
            let malformed = stellar_xdr::ChangeTrustResult::Malformed;
            (op.limit < 0 || !of_others, OperationResultTr::ChangeTrust(malformed))
        }
        OperationBody::AccountMerge(to) => (
            super::envelope::ed25519(to) == operation_source(operation, tx),
            OperationResultTr::AccountMerge(stellar_xdr::AccountMergeResult::Malformed),
        ),
        OperationBody::ExtendFootprintTtl(op) => {
            let is_wrong = footprint_of(tx).is_none_or(|(read, written)| {
                !written.is_empty() || !read.iter().all(has_lifetime)
            });
            let malformed = ExtendFootprintTtlResult::Malformed;
            (op.extend_to >= MAX_TTL || is_wrong, OperationResultTr::ExtendFootprintTtl(malformed))
        }
        OperationBody::RestoreFootprint(_) => {
            let lasts = |key: &LedgerKey| has_lifetime(key) && !is_temporary(key);
            let is_wrong = footprint_of(tx)
                .is_none_or(|(read, written)| !read.is_empty() || !written.iter().all(lasts));
            (is_wrong, OperationResultTr::RestoreFootprint(RestoreFootprintResult::Malformed))
        }
        OperationBody::InvokeHostFunction(_) => return None,
        OperationBody::SetOptions(op) if is_of_flags_alone(op) => return None,
        other => return control::check(other, &account(operation_source(operation, tx))),
    };
    is_malformed.then_some(OperationResult::OpInner(result))
}

fn footprint_of(tx: &Transaction) -> Option<(&[LedgerKey], &[LedgerKey])> {
    match &tx.ext {
        TransactionExt::V1(data) => {
            let footprint = &data.resources.footprint;
            Some((&footprint.read_only, &footprint.read_write))
        }
        TransactionExt::V0 => None,
    }
}

fn is_of_flags_alone(op: &SetOptionsOp) -> bool {
    let flags = op.set_flags.unwrap_or(0) | op.clear_flags.unwrap_or(0);
    flags & !0xf == 0
        && op.inflation_dest.is_none()
        && op.master_weight.is_none()
        && op.low_threshold.is_none()
        && op.med_threshold.is_none()
        && op.high_threshold.is_none()
        && op.home_domain.is_none()
        && op.signer.is_none()
}

/// Returns the result of a valid operation in a transaction with invalid ones.
fn succeeded(body: &OperationBody) -> OperationResult {
    OperationResult::OpInner(match body {
        OperationBody::CreateAccount(_) => {
            OperationResultTr::CreateAccount(CreateAccountResult::Success)
        }
        OperationBody::Payment(_) => OperationResultTr::Payment(PaymentResult::Success),
        OperationBody::ChangeTrust(_) => {
            OperationResultTr::ChangeTrust(stellar_xdr::ChangeTrustResult::Success)
        }
        OperationBody::SetOptions(_) => {
            OperationResultTr::SetOptions(stellar_xdr::SetOptionsResult::Success)
        }
        OperationBody::AccountMerge(_) => {
            OperationResultTr::AccountMerge(stellar_xdr::AccountMergeResult::Success(0))
        }
        // A contract operation is the only one of its transaction, so that it never accompanies an
        // invalid one.
        other => match control::succeeded(other) {
            Some(result) => result,
            None => return OperationResult::OpNotSupported,
        },
    })
}
