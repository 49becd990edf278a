//! One entry of a contract at the end of a ledger.

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::changed_entry::with_stack;
use super::super::{ApiError, Deps, params};
use super::at::At;
use super::error::StorageError;
use super::record::{EntryRecord, Times};
use super::shown::Writer;
use super::{answer, end_of, key, names, parameters};
use orrery_contract_data::{Held, KeyTag, hash_of};
use orrery_ledger::domain::{ContractId, Hash32};

/// Answers `/rest/contracts/{contract_id}/storage/{key_hash}`.
pub(super) fn entry(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let key_hash = key::path_hash(call.path.get("key_hash"))?;
    let at = At::open(deps, call, parameters::at(call.query)?)?;
    let held = at.held((contract, KeyTag::of(&key_hash)))?;
    let entry = match held {
        Held::Present(entry) if hash_of(&entry.key.entry_key()) == key_hash => entry,
        other => return Err(missing(&at, &contract, key_hash, &other)?.into()),
    };
    let names = names(deps, call)?;
    let writer = Writer::new(names.as_ref());
    with_stack(|| {
        let form = writer.form(&contract, end_of(at.ledger));
        let record = EntryRecord::of(key_hash, &entry, &form, &Times::new(&deps.store))?;
        answer(&record, true, names.as_ref())
    })
}

/// Returns why there is no entry.
fn missing(
    at: &At<'_>,
    contract: &ContractId,
    key_hash: Hash32,
    held: &Held,
) -> Result<StorageError, ApiError> {
    let ledger = at.ledger;
    if let Some(other) = of_another(at, contract, &key_hash)? {
        return Ok(other);
    }
    // That of a key which no transaction names may be that of a nonce, which is never known.
    let is_named = at.lookup.mentions(&(*contract, KeyTag::of(&key_hash)))?;
    let live_until = match held {
        Held::Absent if is_named => return Ok(StorageError::Absent { key_hash, ledger }),
        Held::Unknown { live_until } => *live_until,
        Held::Absent | Held::Present(_) => None,
    };
    let known_in = at.lookup.known_elsewhere(contract)?;
    Ok(StorageError::Unknown { key_hash, ledger, live_until, known_in })
}

/// Returns the error for the hash of a key of another contract.
pub(super) fn of_another(
    at: &At<'_>,
    contract: &ContractId,
    key_hash: &Hash32,
) -> Result<Option<StorageError>, ApiError> {
    let owner = at.lookup.contract_of(key_hash)?.filter(|owner| owner != contract);
    let error = |contract| StorageError::OfAnotherContract { key_hash: *key_hash, contract };
    Ok(owner.map(error))
}
