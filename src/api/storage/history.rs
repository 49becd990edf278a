//! The changes of one key, or of one item in the map of an instance.

use serde::Serialize;
use serde_json::value::RawValue;
use stellar_xdr::ScVal;

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::changed_entry::with_stack;
use super::super::{ApiError, Deps, page, params};
use super::at::At;
use super::entry::of_another;
use super::record::{ChangeRecord, Times};
use super::shown::Writer;
use super::walk::{ChangesPage, Walk};
use super::{answer, key, names};
use orrery_contract_data::{KeyTag, Past};
use orrery_ledger::domain::{ContractId, Hash32, LedgerRange, LedgerSeq};

#[derive(Serialize)]
struct Record {
    contract_id: ContractId,
    key_hash: Hash32,
    known_since: Option<LedgerSeq>,
    changes: Vec<Box<RawValue>>,
    cursor: Option<String>,
}

/// Answers `/rest/contracts/{contract_id}/storage/{key_hash}/history`.
pub(super) fn history(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let key_hash = key::path_hash(call.path.get("key_hash"))?;
    let item = key::key(call.query)?.filter(|key| *key != ScVal::LedgerKeyContractInstance);
    if item.is_some() && key_hash != key::instance_hash(&contract)? {
        let problem = "is for items in the map of the contract's instance: give the key hash of the \
                       instance, or leave it out";
        return Err(ApiError::parameter(key::KEY, problem));
    }
    let limit = page::limit(call.query)?;
    let names = names(deps, call)?;
    if call.as_of.is_some()
        && let Some(error) = of_another(&At::open(deps, call, None)?, &contract, &key_hash)?
    {
        return Err(error.into());
    }
    let ledgers = LedgerRange::new(0, u32::MAX);
    let walk = Walk { deps, call, contract, ledgers, limit };
    let (writer, times) = (Writer::new(names.as_ref()), Times::new(&deps.store));
    let of = (contract, KeyTag::of(&key_hash));
    with_stack(|| {
        let rows = |past: &Past| {
            let form = writer.form(&contract, past.position);
            match &item {
                Some(item) => {
                    let is_item = |key: &_| key == item;
                    ChangeRecord::of_items(past, Some(key_hash), is_item, &form, &times)
                }
                None => Ok(vec![ChangeRecord::of(past, Some(key_hash), &form, &times)?]),
            }
        };
        let ChangesPage { rows: changes, cursor, is_complete, known_since } =
            walk.page(&|lookup, _, before, count| lookup.history(of, Some(before), count), &rows)?;
        let record = Record { contract_id: contract, key_hash, known_since, changes, cursor };
        answer(&record, is_complete, names.as_ref())
    })
}
