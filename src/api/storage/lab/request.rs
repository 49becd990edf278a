//! What a request in the form of the Lab asks for.

use percent_encoding::percent_decode_str;

use super::super::super::call::CurrentCall;
use super::super::super::params::Query;
use super::super::super::{ApiError, Deps};
use super::super::error::{Issue, Issues, StorageError};
use super::cursor::{self, Cursor, Kind};
use super::number::number;
use super::sorting::{SortBy, Sorting};
use orrery_ledger::domain::{ContractId, Direction, excerpt};

/// Names of the parameters.
pub(in super::super) const PARAMETERS: [&str; 5] =
    [LIMIT, ORDER, cursor::NAME, SORT_BY, FILTER_KEY];
pub(super) const LIMIT: &str = "limit";
pub(super) const ORDER: &str = "order";
pub(super) const SORT_BY: &str = "sort_by";
pub(super) const FILTER_KEY: &str = "filter_key";

const DEFAULT_LIMIT: usize = 20;
const LARGEST_LIMIT: usize = 200;

/// A request.
pub(super) struct Request {
    pub contract: ContractId,
    pub limit: usize,
    pub sorting: Sorting,
    /// The cursor, and as it was given.
    pub cursor: Option<Cursor>,
    pub given_cursor: Option<String>,
}

impl Request {
    /// Parses a request.
    pub(super) fn of(call: &CurrentCall<'_>) -> Result<Self, ApiError> {
        let contract = contract(call)?;
        let query = call.query;
        let mut issues = Vec::new();
        let limit = read(&mut issues, limit(query));
        let direction = read(&mut issues, direction(query));
        let sort_by = read(&mut issues, sort_by(query));
        let (Some(limit), Some(direction), Some(sort_by)) = (limit, direction, sort_by) else {
            return Err(StorageError::Issues(Issues { of: "query", issues }).into());
        };
        let given = |name| query.get(name).map(str::trim).filter(|text| !text.is_empty());
        let filter_key = given(FILTER_KEY).map(str::to_owned);
        let sorting = Sorting { direction, sort_by, filter_key };
        let given_cursor = given(cursor::NAME);
        let cursor = given_cursor.map(|text| Cursor::read(text, &sorting)).transpose()?;
        let given_cursor = given_cursor.map(str::to_owned);
        Ok(Self { contract, limit, sorting, cursor, given_cursor })
    }

    /// Whether the page is the one before the cursor.
    pub(super) fn is_backward(&self) -> bool {
        self.cursor.as_ref().is_some_and(|cursor| cursor.kind() == Kind::Prev)
    }
}

fn read<T>(issues: &mut Vec<Issue>, value: Result<T, Issue>) -> Option<T> {
    value.map_err(|issue| issues.push(issue)).ok()
}

/// Checks that the network in the path is the one of this service.
pub(super) fn check_network(deps: &Deps, call: &CurrentCall<'_>) -> Result<(), ApiError> {
    let (asked, served) = (call.path.get("network"), deps.network.name());
    if asked == served {
        return Ok(());
    }
    let asked = percent_decode_str(asked).decode_utf8_lossy();
    Err(StorageError::OtherNetwork { asked: excerpt(&asked), served }.into())
}

/// Parses the contract in the path.
pub(super) fn contract(call: &CurrentCall<'_>) -> Result<ContractId, ApiError> {
    let decoded = percent_decode_str(call.path.get("contract_id")).decode_utf8_lossy();
    let text = decoded.trim();
    if let Ok(contract) = text.parse() {
        return Ok(contract);
    }
    let is_digit = |byte: u8| byte.is_ascii_uppercase() || (b'2'..=b'7').contains(&byte);
    let has_form = text.len() == 56 && text.starts_with('C') && text.bytes().all(is_digit);
    let issue = |code| Issue {
        path: "contract_id",
        message: "Invalid Stellar contract ID".to_owned(),
        code,
    };
    let issues = match has_form {
        true => vec![issue("custom")],
        false => vec![issue("invalid_format"), issue("custom")],
    };
    Err(StorageError::Issues(Issues { of: "path", issues }).into())
}

fn limit(query: &Query<'_>) -> Result<usize, Issue> {
    let Some(text) = query.get(LIMIT) else { return Ok(DEFAULT_LIMIT) };
    let issue = |code, message: String| Err(Issue { path: LIMIT, message, code });
    let expected = |what: &str, received: &str| {
        issue("invalid_type", format!("Invalid input: expected {what}, received {received}"))
    };
    let number = number(text);
    match number {
        _ if number.is_nan() => expected("number", "NaN"),
        _ if number.is_infinite() => expected("number", "Infinity"),
        _ if number.fract().abs() > 0.0 => expected("int", "number"),
        _ if number < 1.0 => issue("too_small", "Too small: expected number to be >=1".to_owned()),
        _ if number > LARGEST_LIMIT as f64 => {
            issue("too_big", format!("Too big: expected number to be <={LARGEST_LIMIT}"))
        }
        // A whole number from 1 to 200.
        _ => Ok(number as usize),
    }
}

fn direction(query: &Query<'_>) -> Result<Direction, Issue> {
    match query.get(ORDER) {
        None | Some("desc") => Ok(Direction::NewestFirst),
        Some("asc") => Ok(Direction::OldestFirst),
        Some(_) => Err(no_option(ORDER, &["asc", "desc"])),
    }
}

fn sort_by(query: &Query<'_>) -> Result<SortBy, Issue> {
    match query.get(SORT_BY) {
        None => Ok(SortBy::KeyHash),
        Some(text) => {
            SortBy::of(text).ok_or_else(|| no_option(SORT_BY, &SortBy::ALL.map(SortBy::name)))
        }
    }
}

fn no_option(path: &'static str, options: &[&str]) -> Issue {
    let options: Vec<String> = options.iter().map(|option| format!("\"{option}\"")).collect();
    let message = format!("Invalid option: expected one of {}", options.join("|"));
    Issue { path, message, code: "invalid_value" }
}
