//! Checks a ledger's raw form against what is stored of the ledger: it is decoded and verified, and
//! its content selected, once more.

use std::collections::BTreeSet;

use orrery_ledger::decode::{LedgerView, decode};
use orrery_ledger::domain::{ContractId, NodeId};
use orrery_ledger::verify::verify;

use super::stored_ledger::{StoredLedger, visit};
use super::subject::Subject;
use crate::encoding::columns::{Family, Key, LedgerKey, SettingKey};
use crate::encoding::error::StoreError;
use crate::encoding::settings::{LedgerConditions, SettingRow};
use crate::encoding::{evicted, transaction_record};
use crate::ingest::prepare::{IndexOptions, digest, wanted};

/// Describes each difference between a stored ledger and its raw form.
pub(super) fn check(subject: &Subject<'_>, stored: &StoredLedger, xdr: &[u8]) -> Vec<String> {
    let network = subject.network.id();
    let ledger = match decode(xdr, network) {
        Ok(ledger) => ledger,
        Err(error) => return vec![error.to_string()],
    };
    let mut wrong = Vec::new();
    match verify(&ledger, network, subject.policy) {
        Err(error) => wrong.push(error.to_string()),
        Ok(verified) => {
            subject.mark(stored.sequence, &verified);
            if !signers_agree(subject, stored, verified.signer) {
                wrong.push("a signature is recorded that it does not carry".to_owned());
            }
        }
    }
    if !matches_row(stored, &ledger) {
        wrong.push("it is not the ledger that its row describes".to_owned());
    }
    if stored.has_all_events && !events_agree(stored, &ledger) {
        wrong.push("the stored events are not those that it decodes to".to_owned());
    }
    match subject.database.get(Family::Evicted, LedgerKey(stored.sequence).encode()) {
        Ok(Some(row)) if *row != evicted::encode(&ledger.evicted) => {
            wrong.push("the evicted entries are not those that it decodes to".to_owned());
        }
        // Ledgers that an earlier version stored have no row.
        Ok(_) => {}
        Err(error) => wrong.push(error.to_string()),
    }
    match conditions_agree(subject, &ledger) {
        Ok(true) => {}
        Ok(false) => {
            let what = "the settings and conditions are not those that it decodes to";
            wrong.push(what.to_owned());
        }
        Err(error) => wrong.push(error.to_string()),
    }
    if stored.has_all_transactions && !transactions_agree(stored, &ledger) {
        wrong.push("the stored transactions are not those that it decodes to".to_owned());
    }
    wrong
}

/// Whether the rows of the ledger in `conditions` and `settings` are those that it decodes to.
fn conditions_agree(subject: &Subject<'_>, ledger: &LedgerView<'_>) -> Result<bool, StoreError> {
    let conditions = LedgerConditions::of(&ledger.conditions).encode();
    let key = LedgerKey(ledger.header.sequence).encode();
    let stored = subject.database.get(Family::Conditions, key)?;
    let mut agree = stored.is_some_and(|row| *row == *conditions);
    for change in &ledger.conditions.settings {
        let key = SettingKey { id: change.id, ledger: ledger.header.sequence }.encode();
        let stored = subject.database.get(Family::Settings, key)?;
        agree &= stored.is_some_and(|row| *row == *SettingRow::of(change).encode());
    }
    Ok(agree)
}

fn matches_row(stored: &StoredLedger, ledger: &LedgerView<'_>) -> bool {
    let (row, header) = (&stored.row, &ledger.header);
    let count = |wanted: &dyn Fn(usize) -> bool| {
        (0..ledger.transactions.len()).filter(|index| wanted(*index)).count()
    };
    let transactions = &ledger.transactions;
    let counts = [
        (row.counts.transactions, transactions.len()),
        (row.counts.failed, count(&|index| !transactions[index].successful)),
        (row.counts.smart_contract, count(&|index| transactions[index].smart_contract)),
    ];
    header.sequence == stored.sequence
        && header.hash == row.hash
        && header.previous_hash == row.previous_hash
        && header.closed_at() == row.close_time
        && header.protocol == row.protocol
        && counts.into_iter().all(|(stored, found)| stored as usize == found)
}

/// Whether the covered range records of this ledger no signature other than that of its signer.
fn signers_agree(subject: &Subject<'_>, stored: &StoredLedger, signer: Option<NodeId>) -> bool {
    let range = subject.coverage.range_of(stored.sequence);
    let mut recorded = range.into_iter().flat_map(|range| range.signed.iter());
    recorded.all(|(validator, ledger)| ledger != stored.sequence || Some(validator) == signer)
}

/// Whether the wanted events of the decoded ledger have the stored digest. A ledger row says only
/// that a list of contracts applied, not which: the contracts of the stored events were on it, and
/// all events of a listed contract were wanted.
fn events_agree(stored: &StoredLedger, ledger: &LedgerView<'_>) -> bool {
    let indexed = stored.row.indexed_as;
    let mut contracts = BTreeSet::new();
    let visited = visit(&stored.blocks, |event| {
        contracts
            .extend(event.contract.filter(|_| indexed.listed_contracts).map(|id| ContractId(*id)));
    });
    let options = IndexOptions {
        classic_events: indexed.classic_events,
        fee_events: indexed.fee_events,
        contracts: indexed.listed_contracts.then_some(contracts),
        raw_ledgers: true,
    };
    visited.is_ok() && digest(ledger, &wanted(ledger, &options)) == stored.row.digest
}

/// Whether the stored transactions are the decoded ones, or a subset of them when contracts were
/// listed.
fn transactions_agree(stored: &StoredLedger, ledger: &LedgerView<'_>) -> bool {
    let mut events = vec![0u32; ledger.transactions.len()];
    let counted = visit(&stored.blocks, |event| {
        if let Some(count) = events.get_mut(event.application_order.saturating_sub(1) as usize) {
            *count += 1;
        }
    });
    let mut left = stored.transactions.len();
    let agree = ledger.transactions.iter().zip(events).filter(|(one, _)| one.smart_contract).all(
        |(transaction, events)| {
            let Some(bytes) = stored.transactions.get(&transaction.application_order) else {
                return stored.row.indexed_as.listed_contracts;
            };
            left -= 1;
            // When the ledger's events are pruned, only the stored record still holds their number.
            !stored.has_all_events
                || transaction_record::encode(transaction, stored.row.close_time, events) == *bytes
        },
    );
    counted.is_ok() && agree && left == 0
}
