//! `/rest/txs/by-hash/{tx_hex}/changes`: the ledger entries that a transaction changed, as its stored
//! metadata says, each with its value before and after.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::Answer;
use super::bounded::Bounded;
use super::call::ReadCall;
use super::changed_entry::{Entry, Shown};
use super::params;
use super::route::Route;
use super::stored::Stored;
use super::{ApiError, changed_entry};
use crate::decode::{ChangeKind, EntryChange, EntryKey, transaction_changes};
use crate::domain::TxHash;
use crate::store::{Needs, StoreError, TransactionRecord};

/// Maximum number of changes in an answer.
const MOST_CHANGES: usize = 1_000;
/// Largest answer, in bytes of JSON.
const MOST_BYTES: usize = 1 << 20;

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::list("/rest/txs/by-hash/{tx_hex}/changes", &[], changes)];

#[derive(Serialize)]
struct Record {
    tx: String,
    changes: Vec<Box<RawValue>>,
    truncated: bool,
}

/// A change, with the value that the entry had before.
struct Change<'a> {
    of: EntryChange<'a>,
    /// XDR `LedgerEntry`.
    before: Option<&'a [u8]>,
}

#[derive(Serialize)]
struct Row<'a> {
    change: &'static str,
    entry: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durability: Option<&'static str>,
    key: Shown<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Shown<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Shown<'a>>,
}

fn changes(stored: &Stored<'_>, call: &ReadCall<'_>) -> Result<Answer, ApiError> {
    let hash = params::path_hash(call.path.get("tx_hex"))?;
    let mut found = None;
    stored.store.transaction(&hash, |transaction| found = Some(record(transaction)))?;
    match found {
        Some(record) => Ok(Answer::of(&record?)),
        None => Err(missing(stored, &hash)?),
    }
}

fn record(transaction: &TransactionRecord<'_>) -> Result<Record, ApiError> {
    let damaged = |error| {
        let ledger = transaction.position.ledger;
        StoreError::Database(format!("metadata in ledger {ledger} cannot be read: {error}"))
    };
    let changed = transaction_changes(transaction.meta).map_err(damaged)?;
    let lists = [&changed.before, &changed.operations, &changed.after];
    let mut bounded = Bounded::new(MOST_CHANGES, MOST_BYTES);
    let mut rows = Vec::new();
    for change in merged(lists.into_iter().flatten()) {
        if bounded.is_cut {
            break;
        }
        changed_entry::with_stack(|| {
            let before = change.before.and_then(Entry::of_entry);
            let after = change.of.entry.and_then(Entry::of_entry);
            let Some(key) = Entry::of_key(&change.of.key) else { return Ok(()) };
            let row = Row::of(change.of.kind, &key, before.as_ref(), after.as_ref());
            rows.append(&mut bounded.take([row])?);
            Ok::<_, ApiError>(())
        })?;
    }
    let tx = TxHash::from(*transaction.tx).to_string();
    Ok(Record { tx, changes: rows, truncated: bounded.is_cut })
}

/// Returns the changes of a transaction, each with what the entry was before: the metadata says it in a
/// change of its own that precedes, or as the result of an earlier change.
fn merged<'a>(changes: impl Iterator<Item = &'a EntryChange<'a>>) -> Vec<Change<'a>> {
    let mut last: HashMap<EntryKey<'a>, Option<&'a [u8]>> = HashMap::new();
    let mut merged = Vec::new();
    for change in changes {
        let before = last.insert(change.key, change.entry).flatten();
        if change.kind != ChangeKind::State {
            merged.push(Change { of: *change, before });
        }
    }
    merged
}

impl<'a> Row<'a> {
    fn of(
        kind: ChangeKind,
        key: &'a Entry,
        before: Option<&'a Entry>,
        after: Option<&'a Entry>,
    ) -> Self {
        let change = match kind {
            ChangeKind::Created => "created",
            ChangeKind::Updated | ChangeKind::State => "updated",
            ChangeKind::Removed => "removed",
            ChangeKind::Restored => "restored",
        };
        Self {
            change,
            entry: key.kind(),
            contract: key.contract(),
            durability: key.durability(),
            key: key.shown(),
            before: before.map(Entry::shown),
            after: after.map(Entry::shown),
        }
    }
}

/// Returns why a transaction has no stored metadata.
fn missing(stored: &Stored<'_>, hash: &TxHash) -> Result<ApiError, ApiError> {
    let mut ledger = None;
    stored.store.events_of_transaction(hash, |event| ledger = Some(event.ledger))?;
    let Some(ledger) = ledger else {
        return Ok(ApiError::NoTransaction(format!(
            "the transaction {hash} is not stored: it is in no stored ledger, or calls no contract"
        )));
    };
    if stored.store.removed(Needs::TRANSACTIONS)?.contains(ledger) {
        return Ok(ApiError::NoMetadata(format!(
            "the metadata of the transaction {hash} is not stored any more: retention has removed \
             the transactions of ledger {ledger}, which retention.transactions decides"
        )));
    }
    Ok(ApiError::NoTransaction(format!(
        "the transaction {hash} of ledger {ledger} calls no contract: of such a transaction only \
         its events are stored, not its metadata"
    )))
}
