//! Walks a `TransactionMeta` of any version and collects its events.

use std::ops::Range;

use crate::domain::RpcEventId;

use super::Placement;
use super::events::Events;
use super::xdr::{self, Cursor, Depth, TransactionEventStage as Stage, Xdr, XdrError, each};

/// Result of walking a transaction's metadata.
pub struct WalkedMeta {
    /// Number of operations that have a list of events each.
    pub operations: u32,
    /// Events of these operations, as indexes into [`Events::of_transactions`].
    pub operation_events: Range<usize>,
}

/// Walks the `TransactionMeta` of the transaction at `index` (from 0) of the apply order.
pub fn transaction_meta<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    index: usize,
    events: &mut Events<'a>,
) -> Result<WalkedMeta, XdrError> {
    let depth = depth.enter()?;
    let start = events.of_transactions.len();
    let nothing = WalkedMeta { operations: 0, operation_events: start..start };
    match cursor.u32()? {
        0 => xdr::VarArray::<xdr::OperationMeta>::skip(cursor, depth).map(|()| nothing),
        1 => xdr::TransactionMetaV1::skip(cursor, depth).map(|()| nothing),
        2 => xdr::TransactionMetaV2::skip(cursor, depth).map(|()| nothing),
        3 => transaction_meta_v3(cursor, depth, index, events),
        4 => transaction_meta_v4(cursor, depth, index, events),
        _ => Err(XdrError::UnknownValue),
    }
}

/// Walks a `TransactionMetaV3`: the events belong to the only operation of a smart-contract
/// transaction.
fn transaction_meta_v3<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    index: usize,
    events: &mut Events<'a>,
) -> Result<WalkedMeta, XdrError> {
    let depth = depth.enter()?;
    xdr::ExtensionPoint::skip(cursor, depth)?;
    xdr::LedgerEntryChanges::skip(cursor, depth)?;
    xdr::VarArray::<xdr::OperationMeta>::skip(cursor, depth)?;
    xdr::LedgerEntryChanges::skip(cursor, depth)?;
    let start = events.of_transactions.len();
    if !cursor.flag()? {
        return Ok(WalkedMeta { operations: 0, operation_events: start..start });
    }
    // SorobanTransactionMeta
    let depth = depth.enter()?.enter()?;
    xdr::SorobanTransactionMetaExt::skip(cursor, depth)?;
    operation_events(cursor, depth, index, 0, &mut 0, events)?;
    // returnValue
    xdr::ScVal::skip(cursor, depth)?;
    xdr::VarArray::<xdr::DiagnosticEvent>::skip(cursor, depth)?;
    Ok(WalkedMeta { operations: 1, operation_events: start..events.of_transactions.len() })
}

/// Walks a `TransactionMetaV4`: events of each operation, and events of the transaction as a whole.
fn transaction_meta_v4<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    index: usize,
    events: &mut Events<'a>,
) -> Result<WalkedMeta, XdrError> {
    let depth = depth.enter()?;
    xdr::ExtensionPoint::skip(cursor, depth)?;
    xdr::LedgerEntryChanges::skip(cursor, depth)?;
    let mut operations = 0;
    let mut event_index = 0;
    let start = events.of_transactions.len();
    each(cursor, depth, |cursor, depth| {
        // OperationMetaV2
        let depth = depth.enter()?;
        xdr::ExtensionPoint::skip(cursor, depth)?;
        xdr::LedgerEntryChanges::skip(cursor, depth)?;
        operation_events(cursor, depth, index, operations, &mut event_index, events)?;
        operations += 1;
        Ok(())
    })?;
    let operation_events = start..events.of_transactions.len();
    xdr::LedgerEntryChanges::skip(cursor, depth)?;
    xdr::Optional::<xdr::SorobanTransactionMetaV2>::skip(cursor, depth)?;
    transaction_events(cursor, depth, index, events)?;
    xdr::VarArray::<xdr::DiagnosticEvent>::skip(cursor, depth)?;
    Ok(WalkedMeta { operations, operation_events })
}

/// Walks the list of `ContractEvent` of one operation; `event_index` counts across the operations
/// of the transaction.
fn operation_events<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    index: usize,
    operation: u32,
    event_index: &mut u32,
    events: &mut Events<'a>,
) -> Result<(), XdrError> {
    let mut number = 0;
    each(cursor, depth, |cursor, depth| {
        let placement = Placement::Operation { operation, event_index: *event_index };
        let id = RpcEventId::new(events.ledger.0, application_order(index), operation, number);
        events.read(cursor, depth, index, placement, id)?;
        number += 1;
        *event_index += 1;
        Ok(())
    })
}

/// Walks a list of `TransactionEvent`.
fn transaction_events<'a>(
    cursor: &mut Cursor<'a>,
    depth: Depth,
    index: usize,
    events: &mut Events<'a>,
) -> Result<(), XdrError> {
    let mut number_after = 0;
    each(cursor, depth, |cursor, depth| {
        let depth = depth.enter()?;
        let (placement, id) = match Stage::read(cursor, depth)? {
            Stage::BEFORE_ALL_TXS => (Placement::BeforeAllTransactions, events.next_id_before()),
            Stage::AFTER_ALL_TXS => (Placement::AfterAllTransactions, events.next_id_after()),
            _ => {
                let operation = RpcEventId::AFTER_TRANSACTION;
                let order = application_order(index);
                let id = RpcEventId::new(events.ledger.0, order, operation, number_after);
                number_after += 1;
                (Placement::AfterTransaction, id)
            }
        };
        events.read(cursor, depth, index, placement, id)
    })
}

/// Returns the 1-based position in the apply order. [`matching`](super::matching) refuses a ledger
/// with more transactions than an id can number.
pub fn application_order(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1)
}
