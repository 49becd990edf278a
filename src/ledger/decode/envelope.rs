//! Walks the transaction set: reads every envelope with its hash and its accounts, in all kinds of
//! phases. Does not depend on transaction results.

use sha2::{Digest, Sha256};

use crate::domain::{Hash32, NetworkId, TxHash};

use super::MuxedAccountView;
use super::xdr::{self, Cursor, Depth, EnvelopeType, Xdr, XdrError, each};

/// XDR list of the operations of a transaction.
pub type Operations = xdr::VarArray<xdr::Operation, 100>;
type Signatures = xdr::VarArray<xdr::DecoratedSignature, 20>;

/// A transaction as it was submitted.
pub struct Envelope<'a> {
    /// XDR `TransactionEnvelope`.
    pub xdr: &'a [u8],
    /// Hash of the transaction; of the outer transaction for a fee bump.
    pub hash: TxHash,
    /// Hash of the inner transaction of a fee bump; `None` for other transactions.
    pub inner_hash: Option<TxHash>,
    /// Source of the (inner) transaction.
    pub source_account: MuxedAccountView<'a>,
    /// Fee source of a fee bump; otherwise the source account.
    pub fee_account: MuxedAccountView<'a>,
    /// Parts that only a smart-contract transaction has; `None` for a classic transaction.
    pub soroban: Option<SorobanParts<'a>>,
}

/// The parts of a smart-contract transaction that name contracts.
#[derive(Clone, Copy)]
pub struct SorobanParts<'a> {
    /// XDR `Operation<100>`.
    pub operations: &'a [u8],
    /// XDR `SorobanTransactionData`.
    pub data: &'a [u8],
}

/// Walks a `TransactionSet`, as `LedgerCloseMeta` version 0 has it.
pub fn transaction_set<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
) -> Result<Vec<Envelope<'a>>, XdrError> {
    let mut envelopes = Vec::new();
    let depth = depth.enter()?;
    // previousLedgerHash
    xdr::Hash::skip(cursor, depth)?;
    envelope_list(cursor, depth, network, &mut envelopes)?;
    Ok(envelopes)
}

/// Walks a `GeneralizedTransactionSet`, which consists of its version and a `TransactionSetV1`.
pub fn generalized_transaction_set<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
) -> Result<Vec<Envelope<'a>>, XdrError> {
    let mut envelopes = Vec::new();
    if cursor.u32()? != 1 {
        return Err(XdrError::UnknownValue);
    }
    let depth = depth.enter()?.enter()?;
    // previousLedgerHash
    xdr::Hash::skip(cursor, depth)?;
    each(cursor, depth, |cursor, depth| {
        let depth = depth.enter()?;
        match cursor.u32()? {
            0 => each(cursor, depth, |cursor, depth| {
                component(cursor, depth, network, &mut envelopes)
            }),
            1 => parallel_component(cursor, depth, network, &mut envelopes),
            _ => Err(XdrError::UnknownValue),
        }
    })?;
    Ok(envelopes)
}

/// Walks a `TxSetComponent`, whose only kind is `TXSET_COMP_TXS_MAYBE_DISCOUNTED_FEE`.
fn component<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
    envelopes: &mut Vec<Envelope<'a>>,
) -> Result<(), XdrError> {
    if cursor.u32()? != 0 {
        return Err(XdrError::UnknownValue);
    }
    let depth = depth.enter()?.enter()?;
    // baseFee
    xdr::Optional::<xdr::Int64>::skip(cursor, depth)?;
    envelope_list(cursor, depth, network, envelopes)
}

/// Walks a `ParallelTxsComponent`: stages of clusters of envelopes.
fn parallel_component<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
    envelopes: &mut Vec<Envelope<'a>>,
) -> Result<(), XdrError> {
    let depth = depth.enter()?;
    // baseFee
    xdr::Optional::<xdr::Int64>::skip(cursor, depth)?;
    each(cursor, depth, |cursor, depth| {
        // ParallelTxExecutionStage and DependentTxCluster are typedefs of lists.
        each(cursor, depth.enter()?, |cursor, depth| {
            envelope_list(cursor, depth.enter()?, network, envelopes)
        })
    })
}

fn envelope_list<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
    envelopes: &mut Vec<Envelope<'a>>,
) -> Result<(), XdrError> {
    each(cursor, depth, |cursor, depth| {
        envelopes.push(transaction_envelope(cursor, depth, network)?);
        Ok(())
    })
}

/// Walks a `TransactionEnvelope`.
fn transaction_envelope<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
) -> Result<Envelope<'a>, XdrError> {
    let start = *cursor;
    let depth = depth.enter()?;
    let kind = EnvelopeType::read(cursor, depth)?;
    // The envelope of this type holds a transaction and its signatures.
    let depth = depth.enter()?;
    let mut envelope = match kind {
        EnvelopeType::TX_V0 => transaction_v0(cursor, depth, network)?,
        EnvelopeType::TX => transaction(cursor, depth, network)?,
        EnvelopeType::TX_FEE_BUMP => fee_bump_transaction(cursor, depth, network)?,
        _ => return Err(XdrError::UnknownValue),
    };
    Signatures::skip(cursor, depth)?;
    envelope.xdr = start.up_to(cursor);
    Ok(envelope)
}

/// Walks a `Transaction`; the caller fills in the bytes of the envelope.
fn transaction<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
) -> Result<Envelope<'a>, XdrError> {
    let start = *cursor;
    let depth = depth.enter()?;
    let source_account = muxed_account(cursor)?;
    // fee, seqNum
    xdr::Uint32::skip(cursor, depth)?;
    xdr::SequenceNumber::skip(cursor, depth)?;
    xdr::Preconditions::skip(cursor, depth)?;
    xdr::Memo::skip(cursor, depth)?;
    let operations = cursor.value::<Operations>(depth)?;
    // ext
    let soroban = if cursor.flag()? {
        let data = cursor.value::<xdr::SorobanTransactionData>(depth.enter()?)?;
        Some(SorobanParts { operations, data })
    } else {
        None
    };
    Ok(Envelope {
        xdr: &[],
        hash: transaction_hash(network, &[EnvelopeType::TX], start.up_to(cursor)),
        inner_hash: None,
        source_account,
        fee_account: source_account,
        soroban,
    })
}

/// Walks a `TransactionV0`, which differs from a `Transaction` in the type of its source, and is
/// hashed as the equivalent `Transaction`.
fn transaction_v0<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
) -> Result<Envelope<'a>, XdrError> {
    const ED25519_SOURCE: i32 = xdr::CryptoKeyType::ED25519;

    let start = *cursor;
    let depth = depth.enter()?;
    let source_account = MuxedAccountView { ed25519: cursor.array()?, id: None };
    // fee, seqNum
    xdr::Uint32::skip(cursor, depth)?;
    xdr::SequenceNumber::skip(cursor, depth)?;
    xdr::Optional::<xdr::TimeBounds>::skip(cursor, depth)?;
    xdr::Memo::skip(cursor, depth)?;
    Operations::skip(cursor, depth)?;
    xdr::ExtensionPoint::skip(cursor, depth)?;
    let types = [EnvelopeType::TX, ED25519_SOURCE];
    Ok(Envelope {
        xdr: &[],
        hash: transaction_hash(network, &types, start.up_to(cursor)),
        inner_hash: None,
        source_account,
        fee_account: source_account,
        soroban: None,
    })
}

/// Walks a `FeeBumpTransaction`.
fn fee_bump_transaction<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    network: &NetworkId,
) -> Result<Envelope<'a>, XdrError> {
    let start = *cursor;
    let depth = depth.enter()?;
    let fee_account = muxed_account(cursor)?;
    // fee
    xdr::Int64::skip(cursor, depth)?;
    let inner_depth = depth.enter()?;
    if EnvelopeType::read(cursor, inner_depth)? != EnvelopeType::TX {
        return Err(XdrError::UnknownValue);
    }
    // TransactionV1Envelope
    let inner_depth = inner_depth.enter()?;
    let inner = transaction(cursor, inner_depth, network)?;
    Signatures::skip(cursor, inner_depth)?;
    xdr::ExtensionPoint::skip(cursor, depth)?;
    Ok(Envelope {
        hash: transaction_hash(network, &[EnvelopeType::TX_FEE_BUMP], start.up_to(cursor)),
        inner_hash: Some(inner.hash),
        fee_account,
        ..inner
    })
}

/// Reads a `MuxedAccount`.
fn muxed_account<'a>(cursor: &mut Cursor<'a>) -> Result<MuxedAccountView<'a>, XdrError> {
    match cursor.i32()? {
        xdr::CryptoKeyType::ED25519 => Ok(MuxedAccountView { ed25519: cursor.array()?, id: None }),
        xdr::CryptoKeyType::MUXED_ED25519 => {
            let id = Some(cursor.u64()?);
            Ok(MuxedAccountView { ed25519: cursor.array()?, id })
        }
        _ => Err(XdrError::UnknownValue),
    }
}

/// Returns `SHA-256(network id || types || transaction)`, the hash of a
/// `TransactionSignaturePayload`.
fn transaction_hash(network: &NetworkId, types: &[i32], transaction: &[u8]) -> TxHash {
    let mut hasher = Sha256::new_with_prefix(network.as_bytes());
    for value in types {
        hasher.update(value.to_be_bytes());
    }
    hasher.update(transaction);
    Hash32(hasher.finalize().into())
}
