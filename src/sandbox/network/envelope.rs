//! Composes, signs and hashes transaction envelopes. Does not check whether the transactions
//! succeed.

use orrery_ledger::domain::NetworkId;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    FeeBumpTransaction, FeeBumpTransactionEnvelope, FeeBumpTransactionExt,
    FeeBumpTransactionInnerTx, Hash, Limits, Memo, MuxedAccount, Operation, OperationBody,
    Preconditions, SequenceNumber, SorobanTransactionData, TimeBounds, TimePoint, Transaction,
    TransactionEnvelope, TransactionExt, TransactionV1Envelope, Uint256, WriteXdr,
};

use super::actors::Actor;
use super::error::{Result, SandboxError};
use super::fees::BASE_FEE;

/// XDR bytes that one signature adds to an envelope: hint, length and 64 bytes.
const SIGNATURE_BYTES: usize = 4 + 4 + 64;
/// Multiple of the base fee that the sandbox's accounts bid.
const BID_FACTOR: u32 = 10;
/// Validity of a transaction, in seconds from the close time of its ledger.
const VALID_FOR: u64 = 300;

/// An unsigned transaction.
pub(super) struct Draft<'a> {
    pub(super) source: &'a Actor,
    /// Sequence number of the source account before this transaction.
    pub(super) last_sequence_number: i64,
    pub(super) operations: Vec<OperationBody>,
    pub(super) memo: Memo,
    pub(super) soroban: Option<SorobanTransactionData>,
    /// Account that pays the fee instead of the source, by a fee bump (CAP-15).
    pub(super) sponsor: Option<&'a Actor>,
}

impl Draft<'_> {
    /// Returns the size of the signed envelope without a fee bump, in bytes. Resource fees are
    /// computed from it.
    pub(super) fn signed_bytes(&self, now: u64) -> Result<usize> {
        let tx = self.transaction(now)?;
        let unsigned = TransactionV1Envelope { tx, signatures: Default::default() };
        let unsigned = TransactionEnvelope::Tx(unsigned);
        Ok(unsigned.to_xdr(Limits::none())?.len() + SIGNATURE_BYTES)
    }

    pub(super) fn sign(self, network: &NetworkId, now: u64) -> Result<SignedTransaction> {
        let tx = self.transaction(now)?;
        let inner_hash = tx.hash(network.0)?;
        let signatures = vec![self.source.decorated(&inner_hash)?].try_into()?;
        let inner = TransactionV1Envelope { tx, signatures };
        let Some(sponsor) = self.sponsor else {
            return SignedTransaction::new(TransactionEnvelope::Tx(inner), inner_hash, inner_hash);
        };
        let tx = FeeBumpTransaction {
            fee_source: sponsor.muxed(),
            fee: i64::from(inner.tx.fee) + i64::from(BASE_FEE * BID_FACTOR),
            inner_tx: FeeBumpTransactionInnerTx::Tx(inner),
            ext: FeeBumpTransactionExt::V0,
        };
        let hash = tx.hash(network.0)?;
        let signatures = vec![sponsor.decorated(&hash)?].try_into()?;
        let envelope = FeeBumpTransactionEnvelope { tx, signatures };
        SignedTransaction::new(TransactionEnvelope::TxFeeBump(envelope), hash, inner_hash)
    }

    fn transaction(&self, now: u64) -> Result<Transaction> {
        let operations: Vec<Operation> = self
            .operations
            .iter()
            .map(|body| Operation { source_account: None, body: body.clone() })
            .collect();
        let inclusion =
            i64::from(BASE_FEE * BID_FACTOR) * i64::try_from(operations.len()).unwrap_or(i64::MAX);
        let resources = self.soroban.as_ref().map_or(0, |data| data.resource_fee);
        let fee = u32::try_from(inclusion.saturating_add(resources)).map_err(|_| {
            SandboxError::inconsistent(format_args!("a fee of {inclusion} + {resources} stroops"))
        })?;
        Ok(Transaction {
            source_account: self.source.muxed(),
            fee,
            seq_num: SequenceNumber(self.last_sequence_number + 1),
            cond: Preconditions::Time(TimeBounds {
                min_time: TimePoint(0),
                max_time: TimePoint(now.saturating_add(VALID_FOR)),
            }),
            memo: self.memo.clone(),
            operations: operations.try_into()?,
            ext: match &self.soroban {
                Some(data) => TransactionExt::V1(data.clone()),
                None => TransactionExt::V0,
            },
        })
    }
}

/// A signed envelope with the hashes that identify and order it.
#[derive(Debug, Clone)]
pub(super) struct SignedTransaction {
    pub(super) envelope: TransactionEnvelope,
    /// Hash of the outer transaction, under which results are listed.
    pub(super) hash: Hash,
    /// Hash of the inner transaction; the same without a fee bump.
    pub(super) inner_hash: Hash,
    /// SHA-256 of the envelope with its signatures, by which transaction sets are sorted.
    pub(super) content_hash: [u8; 32],
    /// Whether the transaction was submitted from outside.
    pub(super) is_submitted: bool,
}

impl SignedTransaction {
    fn new(envelope: TransactionEnvelope, hash: [u8; 32], inner_hash: [u8; 32]) -> Result<Self> {
        let content_hash = Sha256::digest(envelope.to_xdr(Limits::none())?).into();
        let (hash, inner_hash) = (Hash(hash), Hash(inner_hash));
        Ok(Self { envelope, hash, inner_hash, content_hash, is_submitted: false })
    }

    /// Wraps an envelope that was submitted from outside, without checking its signatures.
    pub(super) fn submitted(envelope: TransactionEnvelope, network: &NetworkId) -> Result<Self> {
        let (hash, inner_hash) = match &envelope {
            TransactionEnvelope::TxV0(_) => return Err(not_version_1()),
            TransactionEnvelope::Tx(inner) => {
                let hash = inner.tx.hash(network.0)?;
                (hash, hash)
            }
            TransactionEnvelope::TxFeeBump(bump) => {
                let FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
                (bump.tx.hash(network.0)?, inner.tx.hash(network.0)?)
            }
        };
        Ok(Self { is_submitted: true, ..Self::new(envelope, hash, inner_hash)? })
    }

    /// Returns the inner transaction's envelope.
    pub(super) fn inner(&self) -> Result<&TransactionV1Envelope> {
        match &self.envelope {
            TransactionEnvelope::Tx(inner) => Ok(inner),
            TransactionEnvelope::TxFeeBump(bump) => {
                let FeeBumpTransactionInnerTx::Tx(inner) = &bump.tx.inner_tx;
                Ok(inner)
            }
            TransactionEnvelope::TxV0(_) => Err(not_version_1()),
        }
    }

    pub(super) fn is_fee_bump(&self) -> bool {
        matches!(self.envelope, TransactionEnvelope::TxFeeBump(_))
    }

    pub(super) fn source(&self) -> Result<[u8; 32]> {
        Ok(ed25519(&self.inner()?.tx.source_account))
    }

    pub(super) fn fee_source(&self) -> Result<[u8; 32]> {
        match &self.envelope {
            TransactionEnvelope::TxFeeBump(bump) => Ok(ed25519(&bump.tx.fee_source)),
            _ => self.source(),
        }
    }

    pub(super) fn soroban(&self) -> Result<Option<&SorobanTransactionData>> {
        Ok(match &self.inner()?.tx.ext {
            TransactionExt::V1(data) => Some(data),
            TransactionExt::V0 => None,
        })
    }

    /// Returns the fee that the ledger charges before any transaction is applied, in stroops: the
    /// base fee per operation, one more for a fee bump, and the whole declared resource fee.
    pub(super) fn initial_fee(&self) -> Result<i64> {
        let operations = self.inner()?.tx.operations.len() + usize::from(self.is_fee_bump());
        let inclusion = i64::from(BASE_FEE) * i64::try_from(operations).unwrap_or(i64::MAX);
        Ok(inclusion + self.soroban()?.map_or(0, |data| data.resource_fee))
    }
}

/// Returns the source account of an operation: its own, or that of its transaction.
pub(super) fn operation_source(operation: &Operation, tx: &Transaction) -> [u8; 32] {
    ed25519(operation.source_account.as_ref().unwrap_or(&tx.source_account))
}

fn not_version_1() -> SandboxError {
    SandboxError::inconsistent("an envelope of version 0")
}

/// Returns the public key of an account, without the id of a muxed account.
pub(super) fn ed25519(account: &MuxedAccount) -> [u8; 32] {
    match account {
        MuxedAccount::Ed25519(Uint256(key)) => *key,
        MuxedAccount::MuxedEd25519(muxed) => muxed.ed25519.0,
    }
}
