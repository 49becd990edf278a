//! `/rest/txs/by-hash/{tx_hex}/changes`: the ledger entries that a transaction changed, as its stored
//! metadata says, each with its value before and after.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::answer::Answer;
use super::bounded::Bounded;
use super::call::ReadCall;
use super::changed_entry::{Entry, Shown, kind_name};
use super::params;
use super::route::Route;
use super::stored::Stored;
use super::transactions::ledger_of_removed;
use super::{ApiError, changed_entry};
use orrery_ledger::decode::{ChangeKind, EntryChange, EntryKey, transaction_changes};
use orrery_ledger::domain::TxHash;
use orrery_store::{Needs, Store, StoreError, TransactionRecord};

/// Maximum number of changes in an answer.
const MOST_CHANGES: usize = 1_000;
/// Largest answer, in bytes of JSON.
const MOST_BYTES: usize = 1 << 20;

/// Routes of this area.
pub(super) static ROUTES: [Route; 1] =
    [Route::list("/rest/txs/by-hash/{tx_hex}/changes", &[], changes).with_public_read()];

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
        None => Err(missing(stored.store, &hash)?),
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
    let merged = merged(lists.into_iter().flatten());
    let changes = changed_entry::with_stack(|| rows(&merged, &mut bounded))?;
    let tx = TxHash::from(*transaction.tx).to_string();
    Ok(Record { tx, changes, truncated: bounded.is_cut })
}

/// Returns the rows of as many changes as may be added.
fn rows(changes: &[Change<'_>], bounded: &mut Bounded) -> Result<Vec<Box<RawValue>>, ApiError> {
    let mut rows = Vec::new();
    for change in changes {
        let key = Entry::of_key(&change.of.key);
        let before = change.before.map(Entry::of_entry);
        let after = change.of.entry.map(Entry::of_entry);
        let row = Row::of(&change.of, &key, before.as_ref(), after.as_ref());
        rows.append(&mut bounded.take([row])?);
        if bounded.is_cut {
            break;
        }
    }
    Ok(rows)
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
        of: &EntryChange<'_>,
        key: &'a Entry,
        before: Option<&'a Entry>,
        after: Option<&'a Entry>,
    ) -> Self {
        let change = match of.kind {
            ChangeKind::Created => "created",
            ChangeKind::Updated | ChangeKind::State => "updated",
            ChangeKind::Removed => "removed",
            ChangeKind::Restored => "restored",
        };
        Self {
            change,
            entry: kind_name(of.key.kind),
            contract: key.contract(),
            durability: key.durability(),
            key: key.shown(),
            before: before.map(Entry::shown),
            after: after.map(Entry::shown),
        }
    }
}

/// Returns why a transaction has no stored metadata.
pub(super) fn missing(store: &Store, hash: &TxHash) -> Result<ApiError, ApiError> {
    if let Some(ledger) = ledger_of_removed(store, hash)? {
        return Ok(ApiError::NoMetadata(format!(
            "the metadata of the transaction {hash} is not stored any more: retention has removed \
             the transactions of ledger {ledger}, which retention.transactions decides"
        )));
    }
    let mut ledger = None;
    store.events_of_transaction(hash, |event| ledger = Some(event.ledger))?;
    let Some(ledger) = ledger else {
        let removed = store.removed(Needs::TRANSACTIONS)?;
        let removed = removed.ranges().last().map_or_else(String::new, |range| {
            format!(", or retention has removed it and its events (up to ledger {})", range.last)
        });
        return Ok(ApiError::NoTransaction(format!(
            "the transaction {hash} is not stored: it is in no stored ledger, or calls no contract{removed}"
        )));
    };
    Ok(ApiError::NoTransaction(format!(
        "the transaction {hash} of ledger {ledger} calls no contract: of such a transaction only \
         its events are stored, not its metadata"
    )))
}

#[cfg(test)]
mod tests {
    use stellar_xdr::{ContractDataDurability, ContractDataEntry, ContractId, ScAddress};
    use stellar_xdr::{
        ExtensionPoint, Hash, LedgerEntry, LedgerEntryChange, LedgerEntryChanges, LedgerEntryData,
        LedgerEntryExt, Limits, OperationMetaV2, ScBytes, ScVal, TransactionMeta,
        TransactionMetaV4, TtlEntry, WriteXdr,
    };

    use super::*;
    use orrery_ledger::domain::{CloseTime, LedgerSeq};
    use orrery_store::TransactionPosition;

    fn entry(data: LedgerEntryData) -> LedgerEntry {
        LedgerEntry { last_modified_ledger_seq: 3, data, ext: LedgerEntryExt::V0 }
    }

    fn ttl(number: u32) -> LedgerEntry {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_be_bytes());
        entry(LedgerEntryData::Ttl(TtlEntry {
            key_hash: Hash(hash),
            live_until_ledger_seq: number,
        }))
    }

    fn data(number: u32, val: ScVal) -> LedgerEntry {
        entry(LedgerEntryData::ContractData(ContractDataEntry {
            ext: ExtensionPoint::V0,
            contract: ScAddress::Contract(ContractId(Hash([7; 32]))),
            key: ScVal::U32(number),
            durability: ContractDataDurability::Temporary,
            val,
        }))
    }

    fn answer(changes: Vec<LedgerEntryChange>) -> serde_json::Value {
        let operation = OperationMetaV2 {
            ext: ExtensionPoint::V0,
            changes: LedgerEntryChanges(changes.try_into().unwrap()),
            events: Default::default(),
        };
        let meta = TransactionMeta::V4(TransactionMetaV4 {
            operations: vec![operation].try_into().unwrap(),
            ..TransactionMetaV4::default()
        });
        let meta = meta.to_xdr(Limits::none()).unwrap();
        let record = record(&TransactionRecord {
            tx: &[8; 32],
            inner_tx: None,
            position: TransactionPosition { ledger: LedgerSeq(7), application_order: 2 },
            closed_at: CloseTime::Seconds(0),
            successful: true,
            source_account: "G",
            fee_account: "G",
            fee_charged: 0,
            contracts: &[],
            event_count: 0,
            envelope: &[],
            result: &[],
            meta: &meta,
        });
        serde_json::to_value(record.unwrap()).unwrap()
    }

    #[test]
    fn a_change_has_what_was_before_wherever_the_metadata_says_it() {
        use LedgerEntryChange::{Created, Removed, Restored, State, Updated};

        let key = || data(1, ScVal::Void).to_key();
        let answer = answer(vec![
            Created(data(1, ScVal::U32(1))),
            Updated(data(1, ScVal::U32(2))),
            State(data(1, ScVal::U32(2))),
            Removed(key()),
            Restored(data(1, ScVal::U32(3))),
            Removed(data(2, ScVal::Void).to_key()),
        ]);
        let rows = answer["changes"].as_array().unwrap().iter().map(|row| {
            let value = |name: &str| row.get(name).map(|it| it["u32"].as_u64().unwrap());
            (row["change"].as_str().unwrap(), value("before"), value("after"))
        });
        let expected = [
            ("created", None, Some(1)),
            ("updated", Some(1), Some(2)),
            ("removed", Some(2), None),
            ("restored", None, Some(3)),
            ("removed", None, None),
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_answer_ends_at_its_number_of_changes_and_at_its_size() {
        let created = |entry| LedgerEntryChange::Created(entry);
        let many = answer((0..1_500).map(|number| created(ttl(number))).collect());
        assert_eq!(many["changes"].as_array().unwrap().len(), MOST_CHANGES);
        assert_eq!(many["truncated"], true);
        let all = answer((0..1_000).map(|number| created(ttl(number))).collect());
        assert_eq!(
            (all["changes"].as_array().unwrap().len(), &all["truncated"]),
            (1_000, &false.into())
        );

        let large = ScVal::Bytes(ScBytes(vec![7; 100_000].try_into().unwrap()));
        let large = answer((0..20).map(|number| created(data(number, large.clone()))).collect());
        assert_eq!(large["truncated"], true);
        let size = large.to_string().len();
        assert!((MOST_BYTES / 2..MOST_BYTES + 200).contains(&size), "{size}");
    }

    #[test]
    fn values_of_any_depth_are_written_on_a_small_stack() {
        let around = |inner| ScVal::Vec(Some(stellar_xdr::ScVec(vec![inner].try_into().unwrap())));
        let deep = stacker::grow(64 << 20, || {
            let value = (0..400).fold(ScVal::Void, |inner, _| around(inner));
            let changes = LedgerEntryChange::Created(data(1, value));
            let operation = OperationMetaV2 {
                ext: ExtensionPoint::V0,
                changes: LedgerEntryChanges(vec![changes].try_into().unwrap()),
                events: Default::default(),
            };
            let meta = TransactionMetaV4 {
                operations: vec![operation].try_into().unwrap(),
                ..TransactionMetaV4::default()
            };
            TransactionMeta::V4(meta).to_xdr(Limits::none()).unwrap()
        });
        let thread = std::thread::Builder::new().stack_size(512 << 10);
        let written = thread.spawn(move || {
            let changed = transaction_changes(&deep).unwrap();
            changed_entry::with_stack(|| {
                let entry = Entry::of_entry(changed.operations[0].entry.unwrap());
                serde_json::to_string(&entry.shown()).unwrap()
            })
        });
        assert_eq!(written.unwrap().join().unwrap().matches("{\"vec\":[").count(), 400);
    }
}
