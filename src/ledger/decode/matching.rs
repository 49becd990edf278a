//! Combines the parts of a walked ledger: matches envelopes and results by hash, and puts events
//! into their canonical order. Refuses a ledger whose parts do not match.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::domain::{ContractId, NetworkId, RpcEventId, TxHash};

use super::changes::{EntryKey, changed_and_restored};
use super::contracts::touched_contracts;
use super::envelope::{Envelope, SorobanParts};
use super::error::DecodeError;
use super::events::Events;
use super::ledger::{AppliedTransaction, WalkedLedger};
use super::meta::application_order;
use super::{EventView, LedgerView, TransactionView};

/// Returns the view of a walked ledger.
pub fn ledger_view<'a>(
    raw: &'a [u8],
    walked: WalkedLedger<'a>,
    network: &NetworkId,
) -> Result<LedgerView<'a>, DecodeError> {
    let WalkedLedger { version, header, envelopes, results, events, evicted } = walked;
    let ledger = header.sequence;
    if let Some(milliseconds) = header.close_time_ms
        && milliseconds / 1000 != header.close_time
    {
        let seconds = header.close_time;
        return Err(DecodeError::CloseTimes { ledger, seconds, milliseconds });
    }
    if envelopes.len() != results.len() {
        let (envelopes, results) = (envelopes.len(), results.len());
        return Err(DecodeError::CountMismatch { ledger, envelopes, results });
    }
    check_numbering(&results, &events)?;
    let envelopes = match_envelopes(envelopes, &results, &events)?;
    let moved_by = events.before.len();
    let mut transactions = Vec::with_capacity(results.len());
    for (index, (applied, envelope)) in results.into_iter().zip(envelopes).enumerate() {
        let operation_events = applied.found.operation_events.clone();
        let contracts = match &envelope.soroban {
            Some(soroban) => {
                let emitted = &events.of_transactions[operation_events.clone()];
                contracts_of(raw, soroban, emitted, network)?
            }
            None => Vec::new(),
        };
        let (changed_entries, restored_entries) = match envelope.soroban {
            Some(_) if applied.successful => changed_by(raw, applied.meta)?,
            _ => Default::default(),
        };
        transactions.push(TransactionView {
            application_order: application_order(index),
            hash: applied.hash,
            inner_hash: envelope.inner_hash,
            successful: applied.successful,
            smart_contract: envelope.soroban.is_some(),
            source_account: envelope.source_account,
            fee_account: envelope.fee_account,
            fee_charged: applied.fee_charged,
            envelope: envelope.xdr,
            result: applied.result,
            meta: applied.meta,
            contracts,
            changed_entries,
            restored_entries,
            operation_events: operation_events.start + moved_by..operation_events.end + moved_by,
        });
    }
    let Events { before, of_transactions, after, topics, .. } = events;
    let mut events = before;
    events.reserve_exact(of_transactions.len() + after.len());
    events.extend(of_transactions);
    events.extend(after);
    Ok(LedgerView { raw, version, header, transactions, events, topics, evicted })
}

/// Checks that every event of the ledger can have an RPC event id of its own.
fn check_numbering(
    results: &[AppliedTransaction<'_>],
    events: &Events<'_>,
) -> Result<(), DecodeError> {
    let most_transactions = RpcEventId::AFTER_ALL_TRANSACTIONS as usize - 1;
    if results.len() > most_transactions {
        return Err(DecodeError::TooManyTransactions {
            ledger: events.ledger,
            count: results.len(),
        });
    }
    match results.iter().find(|applied| applied.found.operations > RpcEventId::AFTER_TRANSACTION) {
        Some(applied) => Err(DecodeError::TooManyOperations {
            ledger: events.ledger,
            transaction: applied.hash,
            count: applied.found.operations as usize,
        }),
        None => Ok(()),
    }
}

/// Returns the envelopes in the order of `results`, which must have the same length.
fn match_envelopes<'a>(
    envelopes: Vec<Envelope<'a>>,
    results: &[AppliedTransaction<'a>],
    events: &Events<'a>,
) -> Result<Vec<Envelope<'a>>, DecodeError> {
    let ledger = events.ledger;
    let count = envelopes.len();
    let mut by_hash: HashMap<TxHash, Option<Envelope<'a>>> = HashMap::with_capacity(count);
    for envelope in envelopes {
        match by_hash.entry(envelope.hash) {
            Entry::Vacant(slot) => slot.insert(Some(envelope)),
            Entry::Occupied(slot) => {
                return Err(DecodeError::RepeatedEnvelope { ledger, transaction: *slot.key() });
            }
        };
    }
    if count > 0 && !results.iter().any(|applied| by_hash.contains_key(&applied.hash)) {
        return Err(DecodeError::NoEnvelopeMatches { ledger, envelopes: count });
    }
    let mut matched = Vec::with_capacity(count);
    for applied in results {
        let transaction = applied.hash;
        let envelope = by_hash
            .get_mut(&transaction)
            .ok_or(DecodeError::ResultWithoutEnvelope { ledger, transaction })?
            .take()
            .ok_or(DecodeError::RepeatedResult { ledger, transaction })?;
        if applied.inner_hash.is_some() && applied.inner_hash != envelope.inner_hash {
            return Err(DecodeError::InnerHashMismatch { ledger, transaction });
        }
        matched.push(envelope);
    }
    Ok(matched)
}

/// Returns the entries that the operations of a transaction changed, and the restored ones among
/// them.
fn changed_by<'a>(
    raw: &[u8],
    meta: &'a [u8],
) -> Result<(Vec<EntryKey<'a>>, Vec<EntryKey<'a>>), DecodeError> {
    // Cannot fail: the walk has accepted these bytes.
    changed_and_restored(meta).map_err(|reason| DecodeError::undecodable(raw, reason, 0))
}

/// Returns the contracts that a smart-contract transaction touches, sorted, without repeats.
fn contracts_of(
    raw: &[u8],
    soroban: &SorobanParts<'_>,
    events: &[EventView<'_>],
    network: &NetworkId,
) -> Result<Vec<ContractId>, DecodeError> {
    // Cannot fail: the walk has accepted these bytes.
    let mut contracts = touched_contracts(soroban, network)
        .map_err(|reason| DecodeError::undecodable(raw, reason, 0))?;
    contracts.extend(events.iter().filter_map(|event| event.contract).map(|id| ContractId(*id)));
    contracts.sort_unstable();
    contracts.dedup();
    Ok(contracts)
}
