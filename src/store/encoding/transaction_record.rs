//! The stored form of a smart-contract transaction: layout version (which gives the unit of the
//! close time), flags, hashes, close time, and the remaining fields.

use orrery_ledger::decode::TransactionView;
use orrery_ledger::domain::{CloseTime, ContractId};

use super::bytes::{Malformed, Reader, put_varint};
use super::records::{TransactionPosition, TransactionRecord};
use super::stored_time;

const SUCCESSFUL: u8 = 1;
const FEE_BUMP: u8 = 2;

/// Packs a transaction; `event_count` is the number of its events that are stored.
pub(crate) fn encode(
    transaction: &TransactionView<'_>,
    closed_at: CloseTime,
    event_count: u32,
) -> Vec<u8> {
    let parts = [transaction.envelope, transaction.result, transaction.meta];
    let mut out = Vec::with_capacity(256 + parts.iter().map(|part| part.len()).sum::<usize>());
    let flags = if transaction.successful { SUCCESSFUL } else { 0 }
        | if transaction.inner_hash.is_some() { FEE_BUMP } else { 0 };
    let (layout, time) = stored_time::encode(closed_at);
    out.extend_from_slice(&[layout, flags]);
    out.extend_from_slice(transaction.hash.as_bytes());
    if let Some(inner) = &transaction.inner_hash {
        out.extend_from_slice(inner.as_bytes());
    }
    out.extend_from_slice(&time);
    out.extend_from_slice(&transaction.fee_charged.to_be_bytes());
    put_varint(&mut out, u64::from(event_count));
    for account in [&transaction.source_account, &transaction.fee_account] {
        let strkey = account.to_string();
        put_varint(&mut out, strkey.len() as u64);
        out.extend_from_slice(strkey.as_bytes());
    }
    put_varint(&mut out, transaction.contracts.len() as u64);
    for contract in &transaction.contracts {
        out.extend_from_slice(contract.as_bytes());
    }
    for part in parts {
        put_varint(&mut out, part.len() as u64);
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// Decodes a packed transaction. `contracts` is a reusable buffer that receives its contract ids.
pub(crate) fn decode<'a>(
    position: TransactionPosition,
    bytes: &'a [u8],
    contracts: &'a mut Vec<ContractId>,
) -> Result<TransactionRecord<'a>, Malformed> {
    let mut reader = Reader::new(bytes);
    let layout = reader.u8()?;
    let flags = reader.u8()?;
    let tx = reader.array()?;
    let inner_tx = if flags & FEE_BUMP == 0 { None } else { Some(reader.array()?) };
    let closed_at = stored_time::decode(layout, *reader.array()?)?;
    let fee_charged = reader.i64()?;
    let event_count = u32::try_from(reader.varint()?).map_err(|_| Malformed)?;
    let source_account = text(&mut reader)?;
    let fee_account = text(&mut reader)?;
    let count = reader.len()?;
    let ids = reader.take(count.checked_mul(32).ok_or(Malformed)?)?;
    contracts.clear();
    contracts.extend(ids.as_chunks::<32>().0.iter().map(|id| ContractId(*id)));
    let lengths = [reader.len()?, reader.len()?, reader.len()?];
    let envelope = reader.take(lengths[0])?;
    let result = reader.take(lengths[1])?;
    let meta = reader.take(lengths[2])?;
    reader.end()?;
    Ok(TransactionRecord {
        tx,
        inner_tx,
        position,
        closed_at,
        successful: flags & SUCCESSFUL != 0,
        source_account,
        fee_account,
        fee_charged,
        contracts,
        event_count,
        envelope,
        result,
        meta,
    })
}

fn text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    let len = reader.len()?;
    std::str::from_utf8(reader.take(len)?).map_err(|_| Malformed)
}
