//! Combines the parts of a walked ledger: matches envelopes and results by hash, and puts events
//! into their canonical order. Refuses a ledger whose parts do not match.

use std::collections::HashMap;

use crate::domain::{ContractId, LedgerSeq, RpcEventId, TxHash};

use super::envelope::Envelope;
use super::error::DecodeError;
use super::events::{Events, OperationEvents, application_order};
use super::header::meta_version;
use super::ledger::{AppliedTransaction, Ledger};
use super::view::{EventView, LedgerView, TransactionView};

/// Returns the view of a walked ledger.
pub fn ledger_view<'a>(
    raw: &'a [u8],
    walked: Ledger<'a, '_>,
) -> Result<LedgerView<'a>, DecodeError> {
    let Ledger { header, transaction_set, envelopes, repeated, results, .. } = walked;
    let Ledger { events, evicted, conditions, .. } = walked;
    let envelopes = envelopes.complete;
    let ledger = header.sequence;
    if let Some(milliseconds) = header.close_time_ms
        && milliseconds / 1000 != header.close_time
    {
        let seconds = header.close_time;
        return Err(DecodeError::CloseTimes { ledger, seconds, milliseconds });
    }
    if envelopes.len() != results.len() {
        let alone = at_fault_alone(&envelopes, &results);
        let (envelopes, results) = (envelopes.len(), results.len());
        return Err(DecodeError::CountMismatch { ledger, envelopes, results, alone });
    }
    check_numbering(ledger, &results)?;
    let envelopes = match_envelopes(ledger, envelopes, repeated, &results)?;
    let mut transactions = Vec::with_capacity(results.len());
    for (index, (applied, envelope)) in results.into_iter().zip(envelopes).enumerate() {
        transactions.push(transaction_view(index, (applied, envelope), &events));
    }
    let Events { before, of_transactions, after, topics, .. } = events;
    let mut events = before;
    events.reserve_exact(of_transactions.len() + after.len());
    events.extend(of_transactions);
    events.extend(after);
    let version = meta_version(raw).unwrap_or_default();
    Ok(LedgerView {
        raw,
        version,
        header,
        transaction_set,
        transactions,
        events,
        topics,
        evicted,
        conditions,
    })
}

/// Returns the view of a transaction, by its index, with one of these events.
fn transaction_view<'a>(
    index: usize,
    (applied, envelope): (AppliedTransaction<'a>, Envelope<'a>),
    events: &Events<'a>,
) -> TransactionView<'a> {
    let OperationEvents { listed, events: operation_events, .. } = applied.events;
    let (moved_by, emitted) =
        (events.before.len(), &events.of_transactions[operation_events.clone()]);
    let changed = applied.changed.unwrap_or_default();
    let has_new_contract = changed.has_new_contract();
    let (changed_entries, restored_entries) = changed.sorted();
    TransactionView {
        application_order: application_order(index),
        hash: applied.hash,
        inner_hash: envelope.inner_hash,
        successful: applied.successful,
        smart_contract: envelope.contracts.is_some(),
        source_account: envelope.source_account,
        fee_account: envelope.fee_account,
        fee_charged: applied.fee_charged,
        envelope: envelope.xdr,
        result: applied.result,
        meta: applied.meta,
        contracts: envelope.contracts.map(|named| touched(named, emitted)).unwrap_or_default(),
        changed_entries,
        restored_entries,
        has_new_contract,
        operation_events: operation_events.start + moved_by..operation_events.end + moved_by,
        listed_events: listed,
        operations: applied.operations,
        return_value: applied.return_value,
    }
}

/// Returns the transaction that alone has not as many envelopes as results, if only one is missing or too
/// many.
fn at_fault_alone(
    envelopes: &[Envelope<'_>],
    results: &[AppliedTransaction<'_>],
) -> Option<TxHash> {
    let mut surplus: HashMap<TxHash, i64> = HashMap::new();
    envelopes.iter().for_each(|envelope| *surplus.entry(envelope.hash).or_default() += 1);
    results.iter().for_each(|applied| *surplus.entry(applied.hash).or_default() -= 1);
    let mut different = surplus.into_iter().filter(|(_, surplus)| *surplus != 0);
    let (transaction, surplus) = different.next()?;
    (surplus.abs() == 1 && different.next().is_none()).then_some(transaction)
}

/// Checks that every event of the ledger can have an RPC event id of its own.
fn check_numbering(
    ledger: LedgerSeq,
    results: &[AppliedTransaction<'_>],
) -> Result<(), DecodeError> {
    let most_transactions = RpcEventId::AFTER_ALL_TRANSACTIONS as usize - 1;
    if results.len() > most_transactions {
        return Err(DecodeError::TooManyTransactions(ledger, results.len()));
    }
    match results.iter().find(|one| one.events.operations > RpcEventId::AFTER_TRANSACTION) {
        Some(applied) => Err(DecodeError::TooManyOperations {
            ledger,
            transaction: applied.hash,
            count: applied.events.operations as usize,
        }),
        None => Ok(()),
    }
}

/// Returns the envelopes in the order of `results`, which must have the same length.
fn match_envelopes<'a>(
    ledger: LedgerSeq,
    envelopes: Vec<Envelope<'a>>,
    repeated: Option<TxHash>,
    results: &[AppliedTransaction<'a>],
) -> Result<Vec<Envelope<'a>>, DecodeError> {
    let count = envelopes.len();
    if let Some(transaction) = repeated {
        return Err(DecodeError::RepeatedEnvelope(ledger, transaction));
    }
    if count > 0 && results.iter().all(|applied| applied.envelope.is_none()) {
        return Err(DecodeError::NoEnvelopeMatches(ledger, count));
    }
    let mut envelopes: Vec<_> = envelopes.into_iter().map(Some).collect();
    let mut matched = Vec::with_capacity(count);
    for applied in results {
        let transaction = applied.hash;
        let position =
            applied.envelope.ok_or(DecodeError::ResultWithoutEnvelope(ledger, transaction))?;
        let envelope =
            envelopes[position].take().ok_or(DecodeError::RepeatedResult(ledger, transaction))?;
        if applied.inner_hash.is_some() && applied.inner_hash != envelope.inner_hash {
            return Err(DecodeError::InnerHashMismatch(ledger, transaction));
        }
        matched.push(envelope);
    }
    Ok(matched)
}

/// Returns the contracts that a smart-contract transaction touches, sorted, without repeats.
fn touched(mut contracts: Vec<ContractId>, events: &[EventView<'_>]) -> Vec<ContractId> {
    contracts.extend(events.iter().filter_map(|event| event.contract).map(|id| ContractId(*id)));
    contracts.sort_unstable();
    contracts.dedup();
    contracts
}
