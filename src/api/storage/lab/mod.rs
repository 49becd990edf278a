//! `/api/contract/{contract_id}/storage` and `/keys`: what a contract holds in the newest ledger, in the
//! form of the backend of the Stellar Lab (github.com/stellar/laboratory-backend), whose clients read it
//! here unchanged. Removed and dead temporary entries are not listed.

mod cursor;
mod links;
mod number;
mod request;
mod sorting;

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;

use self::cursor::{Cursor, Kind};
use self::links::Links;
use self::request::Request;
use super::super::answer::Answer;
use super::super::call::CurrentCall;
use super::super::route::Route;
use super::super::{ApiError, Deps};
use super::at::At;
use super::error::StorageError;
use super::list::refused;
use orrery_contract_data::{Filter, Listed, MOST_NAMES, Wanted, held};
use orrery_ledger::domain::{ContractId, Direction, Hash32, LedgerSeq, text};
use orrery_store::Store;

pub(super) use self::request::PARAMETERS;

/// Returns the route with failures in the form that the Lab's clients expect.
pub(super) const fn route(mut route: Route) -> Route {
    route.failure = failure;
    route
}

/// An entry. `ttl` is the last ledger in which it is live, `updated` when it was written last, in UNIX
/// seconds.
#[derive(Serialize)]
struct Row {
    durability: &'static str,
    expired: Option<bool>,
    key_hash: Hash32,
    key: String,
    ttl: Option<LedgerSeq>,
    updated: Option<u64>,
    value: String,
}

#[derive(Serialize)]
struct Page {
    #[serde(rename = "_links")]
    links: Links,
    results: Vec<Row>,
}

#[derive(Serialize)]
struct Keys {
    contract_id: ContractId,
    total_keys: u64,
    truncated: bool,
    keys: Vec<String>,
}

/// Answers `/api/contract/{contract_id}/storage`.
pub(super) fn storage(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let request = Request::of(call)?;
    let (mut listed, is_cut) = match call.as_of {
        Some(_) => entries(deps, call, &request)?,
        None => (Vec::new(), false),
    };
    if request.is_backward() {
        listed.reverse();
    }
    let mut times = HashMap::new();
    let mut results = Vec::with_capacity(listed.len());
    for one in &listed {
        results.push(Row::of(one, &deps.store, &mut times)?);
    }
    let ends = listed.first().zip(listed.last());
    let ends = ends.map(|(first, last)| {
        let cursor = |kind, listed: &Listed| {
            Cursor::at(kind, &request.sorting, &listed.key_hash, listed.place).to_string()
        };
        (cursor(Kind::Prev, first), cursor(Kind::Next, last))
    });
    let is_full = is_cut || listed.len() >= request.limit;
    let links = Links::of(&request, ends, is_full);
    Ok(Answer::of(&Page { links, results }))
}

/// Answers `/api/contract/{contract_id}/keys`.
pub(super) fn keys(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    let contract_id = request::contract(call)?;
    let (total_keys, names) = match call.as_of {
        Some(_) => {
            let at = At::open(deps, call, None)?;
            let names = at.lookup.names(&contract_id)?;
            // What was read then may lack some.
            if at.lookup.is_cut() {
                return Err(ApiError::Busy { retry_after: 1 });
            }
            names
        }
        None => (0, Vec::new()),
    };
    let keys = names.iter().map(|name| text(name)).collect();
    let truncated = total_keys > MOST_NAMES as u64;
    Ok(Answer::of(&Keys { contract_id, total_keys, truncated, keys }))
}

/// Answers `/{network}/api/contract/{contract_id}/storage`.
pub(super) fn storage_of_network(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    request::check_network(deps, call)?;
    storage(deps, call)
}

/// Answers `/{network}/api/contract/{contract_id}/keys`.
pub(super) fn keys_of_network(deps: &Deps, call: &CurrentCall<'_>) -> Result<Answer, ApiError> {
    request::check_network(deps, call)?;
    keys(deps, call)
}

/// Returns the entries after the cursor, in the direction in which it goes, and whether more of them
/// would have been on the page but for their size.
fn entries(
    deps: &Deps,
    call: &CurrentCall<'_>,
    request: &Request,
) -> Result<(Vec<Listed>, bool), ApiError> {
    let at = At::open(deps, call, None)?;
    let wanted = Wanted {
        filter: Filter {
            name: request.sorting.filter_key.as_ref().map(|name| name.as_bytes().to_vec()),
            in_vector: request.sorting.filter_key.is_some(),
            ..Filter::default()
        },
        order: request.sorting.sort_by.order(),
        direction: match (request.sorting.direction, request.is_backward()) {
            (Direction::OldestFirst, false) | (Direction::NewestFirst, true) => {
                Direction::OldestFirst
            }
            _ => Direction::NewestFirst,
        },
        after: request.cursor.as_ref().map(Cursor::place),
        limit: request.limit,
    };
    let page = at.lookup.page(&request.contract, &wanted);
    let page = page.map_err(|error| refused(error, request::SORT_BY))?;
    let (mut kept, mut bytes) = (Vec::new(), 0);
    let is_short = page.next.is_some() && page.entries.len() < request.limit;
    for listed in page.entries {
        if !kept.is_empty() && call.allowance.may_continue(bytes).is_break() {
            return Ok((kept, true));
        }
        // In base64, with the key in the entry and on its own.
        bytes += listed.entry.entry.len() * 4 / 3 + 256;
        kept.push(listed);
    }
    Ok((kept, is_short && !request.is_backward()))
}

impl Row {
    fn of(
        listed: &Listed,
        store: &Store,
        times: &mut HashMap<LedgerSeq, Option<u64>>,
    ) -> Result<Self, ApiError> {
        let Listed { key_hash, entry, .. } = listed;
        let updated = match times.get(&entry.modified) {
            Some(known) => *known,
            None => {
                let row = store.ledger(entry.modified)?;
                let updated = row.map(|row| row.close_time.seconds());
                times.insert(entry.modified, updated);
                updated
            }
        };
        Ok(Self {
            durability: entry.key.durability().name(),
            expired: entry.archived,
            key_hash: *key_hash,
            key: STANDARD.encode(entry.key.scval()),
            ttl: entry.live_until,
            updated,
            value: STANDARD.encode(held(&entry.entry, &entry.key).unwrap_or_default()),
        })
    }
}

/// Formats a failure as the Lab's backend does.
fn failure(error: &ApiError) -> Answer {
    let body = match error {
        ApiError::Storage(StorageError::Issues(issues)) => {
            json!({ "message": issues.to_string(), "issues": issues.issues })
        }
        // A parameter that is given twice, or is not UTF-8.
        ApiError::Parameter { name, problem } if *name != cursor::NAME => json!({
            "message": "Invalid query parameters",
            "issues": [{ "path": name, "message": problem, "code": "invalid_type" }],
        }),
        error => json!({ "error": error.to_string() }),
    };
    Answer { status: error.status_and_code().0, ..Answer::json(body.to_string().into_bytes()) }
}
