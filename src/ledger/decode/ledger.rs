//! Walks a `LedgerCloseMeta` from its first byte to its last and locates its parts, which
//! [`matching`](super::matching) combines.

use crate::domain::{Hash32, LedgerSeq, NetworkId, TxHash};

use super::changes::ledger_keys;
use super::envelope::{Envelope, generalized_transaction_set, transaction_set};
use super::events::Events;
use super::meta::{WalkedMeta, transaction_meta};
use super::xdr::{self, Cursor, Depth, Xdr, XdrError, each};
use super::{EntryKey, HeaderView};

/// The parts of a ledger, not combined yet.
pub struct WalkedLedger<'a> {
    pub version: u32,
    pub header: HeaderView<'a>,
    /// Envelopes in the order of the transaction set.
    pub envelopes: Vec<Envelope<'a>>,
    /// Results in apply order.
    pub results: Vec<AppliedTransaction<'a>>,
    pub events: Events<'a>,
    pub evicted: Vec<EntryKey<'a>>,
}

/// Data of a transaction outside its envelope.
pub struct AppliedTransaction<'a> {
    pub hash: TxHash,
    /// Inner hash in the result of a fee bump. `None` for other transactions, and when the inner
    /// transaction was not tried.
    pub inner_hash: Option<TxHash>,
    pub successful: bool,
    pub fee_charged: i64,
    /// XDR `TransactionResult`.
    pub result: &'a [u8],
    /// XDR `TransactionMeta`.
    pub meta: &'a [u8],
    pub found: WalkedMeta,
}

/// Walks a whole `LedgerCloseMeta`.
pub fn close_meta<'a>(
    cursor: &mut Cursor<'a>,
    network: &NetworkId,
) -> Result<WalkedLedger<'a>, XdrError> {
    let (version, header, depth) = close_meta_header(cursor)?;
    let envelopes = match version {
        0 => transaction_set(cursor, depth, network)?,
        _ => generalized_transaction_set(cursor, depth, network)?,
    };
    let mut events = Events::new(header.sequence);
    let mut results = Vec::with_capacity(envelopes.len());
    each(cursor, depth, |cursor, depth| {
        results.push(transaction_result_meta(cursor, depth, version, results.len(), &mut events)?);
        Ok(())
    })?;
    xdr::VarArray::<xdr::UpgradeEntryMeta>::skip(cursor, depth)?;
    xdr::VarArray::<xdr::ScpHistoryEntry>::skip(cursor, depth)?;
    let mut evicted = Vec::new();
    if version >= 1 {
        // totalByteSizeOfLiveSorobanState
        xdr::Uint64::skip(cursor, depth)?;
        evicted = ledger_keys(cursor, depth)?;
    }
    if version == 1 {
        xdr::VarArray::<xdr::LedgerEntry>::skip(cursor, depth)?;
    }
    cursor.finish()?;
    Ok(WalkedLedger { version, header, envelopes, results, events, evicted })
}

/// Walks up to the end of the header. Returns the version, the header, and the depth at which what
/// follows is nested.
pub fn close_meta_header<'a>(
    cursor: &mut Cursor<'a>,
) -> Result<(u32, HeaderView<'a>, Depth), XdrError> {
    let depth = Depth::LIMIT.enter()?;
    let version = cursor.u32()?;
    if version > 2 {
        return Err(XdrError::UnknownValue);
    }
    // LedgerCloseMetaV0, V1 or V2
    let depth = depth.enter()?;
    if version >= 1 {
        xdr::LedgerCloseMetaExt::skip(cursor, depth)?;
    }
    Ok((version, ledger_header(cursor, depth)?, depth))
}

/// Walks a `LedgerHeaderHistoryEntry`.
fn ledger_header<'a>(cursor: &mut Cursor<'a>, depth: Depth) -> Result<HeaderView<'a>, XdrError> {
    let depth = depth.enter()?;
    let hash = Hash32(*cursor.array()?);
    let start = *cursor;
    let protocol = cursor.u32()?;
    let previous_hash = Hash32(*cursor.array()?);
    // scpValue
    xdr::Hash::skip(cursor, depth)?;
    let close_time = cursor.u64()?;
    xdr::VarArray::<xdr::UpgradeType, 6>::skip(cursor, depth)?;
    let close_time_ms = close_time_ms(cursor, depth)?;
    // txSetResultHash, bucketListHash
    xdr::Array::<xdr::Hash, 2>::skip(cursor, depth)?;
    let sequence = LedgerSeq(cursor.u32()?);
    xdr::LedgerHeaderTail::skip(cursor, depth)?;
    let xdr = start.up_to(cursor);
    xdr::ExtensionPoint::skip(cursor, depth)?;
    Ok(HeaderView { xdr, hash, previous_hash, sequence, protocol, close_time, close_time_ms })
}

/// Walks a `StellarValueExt` and returns the close time in milliseconds, if it has one (CAP-88).
/// Other content needs no handling: a dropped transaction set (CAP-83) leaves an ordinary empty
/// ledger.
fn close_time_ms(cursor: &mut Cursor<'_>, depth: Depth) -> Result<Option<u64>, XdrError> {
    use xdr::StellarValueType as Type;

    let mut value = *cursor;
    xdr::StellarValueExt::skip(cursor, depth)?;
    match value.i32()? {
        // The time is the first field of both arms.
        Type::SIGNED_MS | Type::EMPTY_TX_SET_MS => value.u64().map(Some),
        _ => Ok(None),
    }
}

/// Walks a `TransactionResultMeta`, or a `TransactionResultMetaV1` in version 2.
fn transaction_result_meta<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    version: u32,
    index: usize,
    events: &mut Events<'a>,
) -> Result<AppliedTransaction<'a>, XdrError> {
    let depth = depth.enter()?;
    if version == 2 {
        xdr::ExtensionPoint::skip(cursor, depth)?;
    }
    // result: TransactionResultPair
    let hash = Hash32(*cursor.array()?);
    let start = *cursor;
    let outcome = transaction_result(cursor, depth.enter()?)?;
    let result = start.up_to(cursor);
    // feeProcessing
    xdr::LedgerEntryChanges::skip(cursor, depth)?;
    let start = *cursor;
    let found = transaction_meta(cursor, depth, index, events)?;
    let meta = start.up_to(cursor);
    if version == 2 {
        // postTxApplyFeeProcessing
        xdr::LedgerEntryChanges::skip(cursor, depth)?;
    }
    Ok(AppliedTransaction {
        hash,
        inner_hash: outcome.inner_hash,
        successful: outcome.successful,
        fee_charged: outcome.fee_charged,
        result,
        meta,
        found,
    })
}

struct Outcome {
    fee_charged: i64,
    successful: bool,
    inner_hash: Option<TxHash>,
}

/// Walks a `TransactionResult`.
fn transaction_result(cursor: &mut Cursor<'_>, depth: Depth) -> Result<Outcome, XdrError> {
    use xdr::TransactionResultCode as Code;

    let depth = depth.enter()?;
    let fee_charged = cursor.i64()?;
    let mut inner_hash = None;
    let arms = depth.enter()?;
    let code = Code::read(cursor, arms)?;
    match code {
        Code::FEE_BUMP_INNER_SUCCESS | Code::FEE_BUMP_INNER_FAILED => {
            inner_hash = Some(Hash32(*cursor.array()?));
            xdr::InnerTransactionResult::skip(cursor, arms.enter()?)?;
        }
        Code::SUCCESS | Code::FAILED => {
            xdr::VarArray::<xdr::OperationResult>::skip(cursor, arms)?;
        }
        _ => {}
    }
    xdr::ExtensionPoint::skip(cursor, depth)?;
    let successful = matches!(code, Code::SUCCESS | Code::FEE_BUMP_INNER_SUCCESS);
    Ok(Outcome { fee_charged, successful, inner_hash })
}
