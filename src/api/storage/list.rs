//! What a contract holds at the end of a ledger, page by page.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use stellar_xdr::ScVal;

use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::changed_entry::with_stack;
use super::super::{ApiError, Deps, params};
use super::at::{At, Extent};
use super::error::StorageError;
use super::parameters::{Cursor, ORDER_BY, Parameters};
use super::record::{EntryRecord, INSTANCE, InstanceRecord, Times};
use super::shown::{Form, Writer, name_of};
use super::{answer, end_of, key, names};
use orrery_contract_data::{Durability, Held, KeyTag, ListError, Listed, Page, Place};
use orrery_ledger::domain::{ContractId, Direction, LedgerRange, LedgerSeq};

#[derive(Serialize)]
struct Record {
    contract_id: ContractId,
    ledger: LedgerSeq,
    complete: bool,
    known_since: Option<LedgerSeq>,
    /// Other stored ledgers in which the contract is known, if it is not in these.
    #[serde(skip_serializing_if = "Option::is_none")]
    known_in: Option<LedgerRange>,
    instance: Option<InstanceRecord>,
    entries: Vec<Box<RawValue>>,
    /// Of a list under one key, the durabilities in which it is not known what that holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<Vec<&'static str>>,
    cursor: Option<String>,
}

/// A page under construction.
struct Filling<'f, 'a> {
    at: &'f At<'a>,
    contract: ContractId,
    parameters: &'f Parameters,
    form: Form,
    times: Times<'f>,
}

/// Answers `/rest/contracts/{contract_id}/storage`.
pub(super) fn list(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let contract = params::path_contract(call.path.get("contract_id"))?;
    let parameters = Parameters::of(call.query)?;
    let at = match (At::open(deps, call, parameters.ledger()), parameters.cursor()) {
        (Err(ApiError::Storage(StorageError::LedgerNotStored { nearest, .. })), Some(cursor)) => {
            return Err(StorageError::LedgerRemoved { ledger: cursor.ledger, nearest }.into());
        }
        (opened, _) => opened?,
    };
    let names = names(deps, call)?;
    let writer = Writer::new(names.as_ref());
    with_stack(|| {
        let form = writer.form(&contract, end_of(at.ledger));
        let times = Times::new(&deps.store);
        let filling = Filling { at: &at, contract, parameters: &parameters, form, times };
        let (record, is_complete) = filling.record(call)?;
        answer(&record, is_complete, names.as_ref())
    })
}

impl Filling<'_, '_> {
    /// Returns the page, and whether it ended because of its number of entries, or at the end.
    fn record(&self, call: &CurrentCall<'_>) -> Result<(Record, bool), ApiError> {
        let Self { at, contract, parameters, .. } = self;
        let Extent { complete, known_since } = at.extent(contract)?;
        let mut unknown = Vec::new();
        let instance = match parameters.cursor() {
            None => self.instance(&mut unknown)?,
            Some(_) => None,
        };
        let page = match (&parameters.key, parameters.is_of_instance) {
            (_, true) => Page::default(),
            (Some(key), _) => self.under(key, &mut unknown)?,
            (None, _) => {
                let page = at.lookup.page(contract, &parameters.wanted());
                page.map_err(|error| refused(error, ORDER_BY))?
            }
        };
        let limit = parameters.wanted().limit;
        let is_short = page.next.is_some() && page.entries.len() < limit;
        let (entries, cut) = self.entries(&page, call)?;
        let next = cut.or(page.next);
        let is_known = complete || instance.is_some() || !entries.is_empty() || next.is_some();
        let is_first = parameters.cursor().is_none();
        let unknown = parameters.key.is_some().then_some(unknown).filter(|_| is_first);
        let known_in = match is_known || !is_first {
            true => None,
            false => at.lookup.known_elsewhere(contract)?,
        };
        let cursor = next.map(|place| parameters.next(at.ledger, place));
        let record = Record {
            contract_id: *contract,
            ledger: at.ledger,
            complete,
            known_since,
            known_in,
            instance,
            entries,
            unknown,
            cursor: cursor.as_ref().map(Cursor::to_string),
        };
        Ok((record, cut.is_none() && !is_short))
    }

    /// Returns the instance with those items of its map that are wanted, and adds its durability to
    /// `unknown` if they may be in one that is not known.
    fn instance(
        &self,
        unknown: &mut Vec<&'static str>,
    ) -> Result<Option<InstanceRecord>, ApiError> {
        let Self { at, contract, parameters, form, times } = self;
        let key_hash = key::instance_hash(contract)?;
        let held = at.held((*contract, KeyTag::of(&key_hash)))?;
        if matches!(held, Held::Unknown { .. }) && parameters.has_instance {
            unknown.push(INSTANCE);
        }
        let Held::Present(entry) = held else { return Ok(None) };
        let filter = parameters.wanted().filter;
        let is_listed = parameters.has_instance
            && filter.archived.is_none_or(|archived| entry.archived == Some(archived));
        let is_whole = parameters.key == Some(ScVal::LedgerKeyContractInstance);
        let is_wanted = |key: &ScVal| {
            is_listed
                && filter.name.as_deref().is_none_or(|name| name_of(key) == Some(name))
                && parameters.key.as_ref().is_none_or(|wanted| is_whole || wanted == key)
        };
        InstanceRecord::of(key_hash, &entry, is_wanted, form, times)
    }

    /// Returns the page with the entries under a key, of both durabilities, and adds those to `unknown` of
    /// which it is not known.
    fn under(&self, key: &ScVal, unknown: &mut Vec<&'static str>) -> Result<Page, ApiError> {
        if *key == ScVal::LedgerKeyContractInstance {
            return Ok(Page::default());
        }
        let wanted = self.parameters.wanted();
        let filter = &wanted.filter;
        // Nonces are not recorded.
        let is_nonce = matches!(key, ScVal::LedgerKeyNonce(_));
        let mut entries = Vec::new();
        for durability in [Durability::Temporary, Durability::Persistent] {
            let key_hash = key::hash(&self.contract, key.clone(), durability)?;
            let tag = KeyTag::of(&key_hash);
            if filter.durability.is_some_and(|wanted| wanted != durability) {
                continue;
            }
            let held = self.at.held((self.contract, tag))?;
            if is_nonce || matches!(held, Held::Unknown { .. }) {
                unknown.push(durability.name());
            }
            let Held::Present(entry) = held else { continue };
            let is_wanted = filter.archived.is_none_or(|archived| entry.archived == Some(archived))
                && filter.name.as_deref().is_none_or(|name| entry.key.name() == Some(name));
            if is_wanted {
                entries.push(Listed { key_hash, entry, place: Place { by: 0, tag } });
            }
        }
        let is_ascending = wanted.direction == Direction::OldestFirst;
        entries.sort_by_key(|listed| listed.place);
        if !is_ascending {
            entries.reverse();
        }
        entries.retain(|listed| match wanted.after {
            Some(after) if is_ascending => listed.place.tag > after.tag,
            Some(after) => listed.place.tag < after.tag,
            None => true,
        });
        let is_more = entries.len() > wanted.limit;
        entries.truncate(wanted.limit);
        let next = entries.last().filter(|_| is_more).map(|listed| listed.place);
        Ok(Page { entries, next })
    }

    /// Writes the entries of a page until the answer is large enough. Returns the place after which it
    /// goes on, if some are left out.
    fn entries(
        &self,
        page: &Page,
        call: &CurrentCall<'_>,
    ) -> Result<(Vec<Box<RawValue>>, Option<Place>), ApiError> {
        let (mut written, mut bytes, mut last) = (Vec::new(), 0, None);
        for Listed { key_hash, entry, place } in &page.entries {
            if last.is_some() && call.allowance.may_continue(bytes).is_break() {
                return Ok((written, last));
            }
            let record = EntryRecord::of(*key_hash, entry, &self.form, &self.times)?;
            let record = to_raw_value(&record).map_err(|_| ApiError::Encoding)?;
            bytes += record.get().len();
            written.push(record);
            last = Some(*place);
        }
        Ok((written, None))
    }
}

/// Returns the error for a list that is not made. `order` is the name of the parameter with its order.
pub(super) fn refused(error: ListError, order: &'static str) -> ApiError {
    match error {
        ListError::TooManyKeys => StorageError::TooManyEntries(order).into(),
        ListError::TooManyLookups => StorageError::TooManyLookups(order).into(),
        ListError::Cut => ApiError::Busy { retry_after: 1 },
        ListError::Store(error) => error.into(),
    }
}
