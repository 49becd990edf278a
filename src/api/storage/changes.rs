//! The changes of what a contract holds, and those by a transaction.

use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::ScVal;

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::changed_entry::with_stack;
use super::super::changes::missing;
use super::super::{ApiError, Deps, page, params};
use super::at::At;
use super::record::{ChangeRecord, Times};
use super::shown::{Writer, name_of};
use super::walk::{ChangesPage, Walk};
use super::{answer, key, names};
use orrery_contract_data::{KeyTag, Past, hash_of};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq, TxHash};
use orrery_store::Store;

#[derive(Serialize)]
struct Record {
    contract_id: ContractId,
    known_since: Option<LedgerSeq>,
    changes: Vec<Box<RawValue>>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct OfTransaction {
    tx: TxHash,
    ledger: LedgerSeq,
    changes: Vec<ChangeRecord>,
}

/// Answers `/rest/contracts/{contract_id}/storage/changes`.
pub(super) fn of_contract(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let ledgers = call.query.ledgers()?.unwrap_or(LedgerRange::new(0, u32::MAX));
    let name = key::name(call.query)?;
    let limit = page::limit(call.query)?;
    let names = names(deps, call)?;
    let walk = Walk { deps, call, contract, ledgers, limit };
    let (writer, times) = (Writer::new(names.as_ref()), Times::new(&deps.store));
    with_stack(|| {
        let rows = |past: &Past| {
            let key_hash = key_hash(&deps.store, past)?;
            let form = writer.form(&contract, past.position);
            let Some(name) = name.as_deref() else {
                return Ok(vec![ChangeRecord::of(past, key_hash, &form, &times)?]);
            };
            if past.key.as_ref().and_then(|key| key.name()) == Some(name) {
                return Ok(vec![ChangeRecord::of(past, key_hash, &form, &times)?]);
            }
            let is_wanted = |key: &ScVal| name_of(key) == Some(name);
            ChangeRecord::of_items(past, key_hash, is_wanted, &form, &times)
        };
        let ChangesPage { rows: changes, cursor, is_complete, known_since } = walk.page(
            &|lookup, piece, before, count| lookup.changes(&contract, piece, Some(before), count),
            &rows,
        )?;
        let record = Record { contract_id: contract, known_since, changes, cursor };
        answer(&record, is_complete, names.as_ref())
    })
}

/// Answers `/rest/txs/{tx_hex}/storage`.
pub(super) fn of_transaction(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let hash = params::path_hash(call.path.get("tx_hex"))?;
    let mut found = None;
    deps.store
        .transaction(&hash, |record| found = Some((record.position, TxHash::from(*record.tx))))?;
    let Some((position, tx)) = found else { return Err(missing(&deps.store, &hash)?) };
    let at = At::open(deps, call, Some(position.ledger))?;
    let names = names(deps, call)?;
    let (writer, times) = (Writer::new(names.as_ref()), Times::new(&deps.store));
    let mut all = at.lookup.changes_of_transaction(position)?;
    if at.lookup.is_cut() {
        return Err(ApiError::Busy { retry_after: 1 });
    }
    all.sort_by_key(|(_, past)| past.tag);
    with_stack(|| {
        let mut changes = Vec::new();
        for (contract, past) in &all {
            let form = writer.form(contract, position);
            let key_hash = key_hash(&deps.store, past)?;
            let record = ChangeRecord::of(past, key_hash, &form, &times)?;
            changes.push(record.with_contract(*contract));
        }
        answer(&OfTransaction { tx, ledger: position.ledger, changes }, true, names.as_ref())
    })
}

/// Returns the hash of the key of a change. Evictions of keys of which nothing else is stored name it.
fn key_hash(store: &Store, past: &Past) -> Result<Option<Hash32>, ApiError> {
    if let Some(key) = &past.key {
        return Ok(Some(hash_of(&key.entry_key())));
    }
    let evicted = store.evicted(past.position.ledger)?.unwrap_or_default();
    let hashes = evicted.iter().map(|evicted| evicted.key_hash);
    Ok(hashes.into_iter().find(|hash| KeyTag::of(hash) == past.tag))
}
