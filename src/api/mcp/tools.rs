//! The tools: which routes each asks, and what it makes of their answers. `tools.json` describes them.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use warp::http::Method;

use super::result::{Found, ToolResult};
use crate::ApiError;
use crate::relay::Question;
use orrery_ledger::domain::excerpt;
use orrery_tables::written;

/// Names of the tools, in the order of their descriptions.
pub(super) const NAMES: [&str; 6] =
    ["list_tables", "describe_table", "query", "find_contract", "events", "transaction"];

/// Number of tables on a page.
const TABLES: usize = 100;
/// Number of events on a page, if none is given, and the largest.
const EVENTS: usize = 20;
const MOST_EVENTS: usize = 100;
/// Size of an event's JSON in bytes above which its values are left out, so that a page has some events.
const LARGEST_EVENT: usize = 8_000;
/// Members of a transaction that are shown besides its call: all but its XDR.
const FACTS: [&str; 12] = [
    "tx",
    "ledger",
    "ledger_closed_at",
    "application_order",
    "successful",
    "fee_bump",
    "inner_tx",
    "source_account",
    "fee_account",
    "fee_charged",
    "contracts",
    "event_count",
];
/// Length of an address in characters (SEP-23).
const ADDRESS: usize = 56;

/// Tables after a name in the order of their names, with their columns. The schema `retroshade` has them
/// all again by other names, and `orrery` what SQL programs keep.
const LIST_TABLES: &str = "select table_schema || '.' || table_name as place, table_schema, table_name, \
    list(column_name order by ordinal_position) as columns from information_schema.columns \
    where table_schema not in ('retroshade', 'orrery') and (? = '' or table_schema = ?) group by 1, 2, 3 \
    having place > ? order by 1 limit ?";
const DESCRIBE_TABLE: &str = "select column_name as name, data_type as type from information_schema.columns \
    where table_schema = ? and table_name = ? order by ordinal_position";

/// A call of a tool that has begun.
pub(super) enum Begun {
    /// It asks routes, and makes the result of their answers.
    Ask(Vec<Question>, Tell),
    /// Its arguments are wrong. Contains the sentence that says so.
    Refused(String),
}

type Answers = Vec<Result<Bytes, ApiError>>;
type Tell = Box<dyn FnOnce(Answers) -> Result<ToolResult, ApiError> + Send>;

/// Begins a call of the tool with this name; `None` when there is none. The arguments are a JSON object.
pub(super) fn begin(name: &str, arguments: &str) -> Option<Begun> {
    let begun = match name {
        "list_tables" => read(arguments).map(list_tables),
        "describe_table" => read(arguments).map(describe_table),
        "query" => read(arguments).map(query),
        "find_contract" => read(arguments).map(find_contract),
        "events" => read(arguments).and_then(events),
        "transaction" => read(arguments).map(transaction),
        _ => return None,
    };
    Some(begun.unwrap_or_else(Begun::Refused))
}

fn read<T: DeserializeOwned>(arguments: &str) -> Result<T, String> {
    serde_json::from_str(arguments)
        .map_err(|error| format!("the arguments are wrong: {}", excerpt(&without_position(&error))))
}

/// Returns the message of the JSON parser without "at line 1 column 7": clients write the JSON, not those
/// who call the tool.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListTables {
    #[serde(default)]
    project: String,
    #[serde(default)]
    cursor: String,
}

/// A row of [`LIST_TABLES`].
#[derive(Deserialize)]
struct ListedTable {
    /// Where it is in the list: a cursor.
    place: String,
    table_schema: String,
    table_name: String,
    columns: Vec<String>,
}

/// A table by its name in queries.
#[derive(Serialize)]
struct ShownTable<'a> {
    table: String,
    columns: &'a [String],
}

impl<'a> ShownTable<'a> {
    fn of(listed: &'a ListedTable) -> Self {
        let table = format!("{}.{}", written(&listed.table_schema), written(&listed.table_name));
        Self { table, columns: &listed.columns }
    }
}

fn list_tables(ListTables { project, cursor }: ListTables) -> Begun {
    let params = json!([project, project, cursor, TABLES]);
    ask_one(sql(LIST_TABLES, params), |answer| {
        let listed: Vec<ListedTable> = parsed(answer)?;
        let tables: Vec<ShownTable<'_>> = listed.iter().map(ShownTable::of).collect();
        let mut found = Found::new()?;
        let shown = found.list("tables", &tables)?;
        let is_all = shown == tables.len() && shown < TABLES;
        // One that does not fit alone is passed over.
        let last = listed.get(shown.saturating_sub(1)).map(|last| &last.place);
        found.always("cursor", &last.filter(|_| !is_all))?;
        found.end("Call again with this cursor, or with project.")
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DescribeTable {
    table: String,
}

fn describe_table(DescribeTable { table }: DescribeTable) -> Begun {
    // As queries write it, or without quotes: there are none, and no dots, in the names themselves.
    let plain = table.replace('"', "");
    // Names without a project are those in the schema with all tables.
    let (project, name) = plain.split_once('.').unwrap_or(("retroshade", &plain));
    ask_one(sql(DESCRIBE_TABLE, json!([project, name])), move |answer| {
        let columns: Vec<&RawValue> = parsed(answer)?;
        if columns.is_empty() {
            let sentence =
                format!("there is no table '{}': list_tables names all", excerpt(&table));
            return Ok(ToolResult::failed(&sentence));
        }
        let mut found = Found::new()?;
        found.fact("table", &table)?;
        found.list("columns", &columns)?;
        found.end("")
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Query {
    sql: String,
    #[serde(default)]
    params: Vec<Value>,
}

fn query(Query { sql: statement, params }: Query) -> Begun {
    ask_one(sql(&statement, json!(params)), |answer| {
        let rows: Vec<&RawValue> = parsed(answer)?;
        let mut found = Found::new()?;
        found.list("rows", &rows)?;
        found.end("Aggregate, name fewer columns, or read on with LIMIT and OFFSET.")
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FindContract {
    contract: String,
}

/// Item of `/rest/retroshade/list`, as far as it is shown.
#[derive(Deserialize)]
struct Project {
    project_name: String,
    kind: String,
    running: bool,
    contracts: Vec<String>,
}

fn find_contract(FindContract { contract }: FindContract) -> Begun {
    let projects = get("/rest/retroshade/list".to_owned(), String::new());
    if contract.len() != ADDRESS {
        let query =
            form_urlencoded::Serializer::new(String::new()).append_pair("name", &contract).finish();
        let named = get("/rest/contracts/named".to_owned(), query);
        let tell = move |answers: Answers| {
            let Ok([projects, named]) = <[_; 2]>::try_from(answers) else {
                return Err(ApiError::Encoding);
            };
            of_name(&contract, projects, named)
        };
        return Begun::Ask(vec![projects, named], Box::new(tell));
    }
    let known = get(format!("/rest/contracts/{}", encoded(&contract)), String::new());
    let tell = move |answers: Answers| {
        let Ok([known, projects]) = <[_; 2]>::try_from(answers) else {
            return Err(ApiError::Encoding);
        };
        match known {
            Ok(known) => of_contract(&contract, &known, projects),
            Err(error) => Ok(ToolResult::failed(&sentence(&error, "hash"))),
        }
    };
    Begun::Ask(vec![known, projects], Box::new(tell))
}

/// Returns the contracts that a name stands for: those of the caller's project of this name, and those that the
/// operator, an issuer or an author calls so.
fn of_name(
    name: &str,
    projects: Result<Bytes, ApiError>,
    named: Result<Bytes, ApiError>,
) -> Result<ToolResult, ApiError> {
    let named = match &named {
        Ok(named) => parsed::<Vec<&RawValue>>(named)?,
        Err(ApiError::Parameter { problem, .. }) => {
            return Ok(ToolResult::failed(&format!("'contract' {problem}")));
        }
        Err(error) => return Ok(ToolResult::failed(&error.to_string())),
    };
    let (projects, unknown) = match &projects {
        Ok(projects) => (parsed::<Vec<Project>>(projects)?, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let project = projects.iter().find(|it| it.project_name.eq_ignore_ascii_case(name));
    if project.is_none() && named.is_empty() {
        return Ok(ToolResult::failed(&no_such_name(name, &projects, unknown.as_deref())));
    }
    let mut found = Found::new()?;
    if let Some(because) = unknown {
        found.fact("projects_unknown_because", &because)?;
    }
    if let Some(project) = project {
        found.fact("project", &project.project_name)?;
        found.fact("kind", &project.kind)?;
        found.fact("running", &project.running)?;
        found.list("contracts", &project.contracts)?;
    }
    found.list("named", &named)?;
    found.end("The list is too long for a tool.")
}

/// Returns the sentence about a name that nothing has. `unknown` says why projects are not known.
fn no_such_name(name: &str, projects: &[Project], unknown: Option<&str>) -> String {
    let mut sentence = format!(
        "'{}' is neither an address nor a project of yours, and the contracts with the most or the newest events are \
         not called so",
        excerpt(name)
    );
    let names: Vec<_> = projects.iter().map(|it| it.project_name.as_str()).collect();
    // Writing to a string cannot fail.
    let _ = match unknown {
        Some(because) => write!(sentence, "; your projects are not known: {because}"),
        None if names.is_empty() => Ok(()),
        None => write!(sentence, ": your projects are {}", names.join(", ")),
    };
    sentence
}

fn of_contract(
    contract: &str,
    known: &Bytes,
    projects: Result<Bytes, ApiError>,
) -> Result<ToolResult, ApiError> {
    let known: BTreeMap<String, &RawValue> = parsed(known)?;
    let mut found = Found::new()?;
    let why = known.get("interface_unknown_because").filter(|it| it.get() != "null");
    found.fact("contract_id", &contract)?;
    found.fact("interface_known", &why.is_none())?;
    for name in ["interface_unknown_because", "executable", "token", "account_kinds", "truncated"] {
        if let Some(value) = known.get(name) {
            found.fact(name, value)?;
        }
    }
    match projects {
        Ok(projects) => {
            let projects: Vec<Project> = parsed(&projects)?;
            let has = |it: &&Project| it.contracts.iter().any(|id| id == contract);
            let names: Vec<_> = projects.iter().filter(has).map(|it| &it.project_name).collect();
            found.list("projects", &names)?;
        }
        Err(error) => found.fact("projects_unknown_because", &error.to_string())?,
    }
    for name in ["events", "functions", "types"] {
        if let Some(list) = known.get(name) {
            found.list(name, &parsed::<Vec<&RawValue>>(list.get().as_bytes())?)?;
        }
    }
    found.end("The description is too long for a tool.")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Events {
    contract: Option<String>,
    address: Option<String>,
    name: Option<String>,
    transaction: Option<String>,
    from: Option<u32>,
    to: Option<u32>,
    limit: Option<usize>,
    cursor: Option<u64>,
}

fn events(wanted: Events) -> Result<Begun, String> {
    let Events { contract, address, name, transaction, from, to, limit, cursor } = wanted;
    let is_of_transaction = transaction.is_some();
    let is_limited = limit.is_some() || from.is_some() || to.is_some() || cursor.is_some();
    if is_of_transaction && (contract.is_some() || name.is_some() || is_limited) {
        return Err("'transaction' goes with 'address' only: leave the others out".to_owned());
    }
    if name.is_some() && contract.is_none() {
        return Err("'name' needs 'contract': give the contract whose events are meant".to_owned());
    }
    if limit.is_some_and(|limit| !(1..=MOST_EVENTS).contains(&limit)) {
        return Err(format!("'limit' is not from 1 to {MOST_EVENTS}"));
    }
    let mut query = form_urlencoded::Serializer::new("decoded=true".to_owned());
    let path = match (transaction, contract, &address) {
        (Some(hash), ..) => format!("/rest/events/by-tx/{}", encoded(&hash)),
        (None, Some(contract), _) => format!("/rest/events/by-contract/{}", encoded(&contract)),
        (None, None, Some(address)) => format!("/rest/events/by-address/{}", encoded(address)),
        (None, None, None) => "/rest/events/by-ledger".to_owned(),
    };
    if !is_of_transaction {
        query.append_pair("limit", &limit.unwrap_or(EVENTS).to_string());
    }
    if let Some(address) = address.filter(|_| !path.contains("/by-address/")) {
        query.append_pair("address", &address);
    }
    if let Some(name) = name {
        query.append_pair("topic1", &format!("symbol:{name}"));
    }
    for (name, number) in
        [("from", from.map(u64::from)), ("to", to.map(u64::from)), ("cursor", cursor)]
    {
        if let Some(number) = number {
            query.append_pair(name, &number.to_string());
        }
    }
    Ok(ask_one(get(path, query.finish()), move |answer| page_of_events(answer, !is_of_transaction)))
}

fn page_of_events(answer: &Bytes, is_page: bool) -> Result<ToolResult, ApiError> {
    // Values stay text: as trees, those of a page would take many times their bytes.
    let events: Vec<Members<'_>> = parsed(answer)?;
    let events = events.into_iter().map(shown_event).collect::<Result<Vec<_>, _>>()?;
    let mut found = Found::new()?;
    let shown = found.list("events", &events)?;
    if is_page {
        let last = shown.checked_sub(1).and_then(|last| events[last].get("id"));
        found.always("cursor", &last)?;
    }
    found.end(if is_page {
        "Call again with this cursor."
    } else {
        "Give address for some of them."
    })
}

/// Members of an object of an answer, with their values as text.
type Members<'a> = BTreeMap<&'a str, &'a RawValue>;

/// Returns an event without what is in it twice: its XDR, and its topics and data where these have names.
fn shown_event(mut event: Members<'_>) -> Result<Members<'_>, ApiError> {
    let decoded: Members<'_> = match event.remove("decoded") {
        Some(decoded) => parsed(decoded.get().as_bytes())?,
        None => Members::new(),
    };
    event.retain(|name, _| !(*name == "data" || name.starts_with("topic")));
    let has_name = decoded.get("name").is_some_and(|name| name.get() != "null");
    let is_raw = |name: &str| matches!(name, "topics" | "data");
    let values = decoded.into_iter().filter(|(name, _)| !(has_name && is_raw(name)));
    let values: Members<'_> = values.collect();
    if values.values().map(|value| value.get().len()).sum::<usize>() > LARGEST_EVENT {
        if let Some(name) = values.get("name").filter(|name| name.get().len() < 100) {
            event.insert("name", name);
        }
        event.insert("left_out", parsed(br#""its values are too large""#)?);
    } else {
        event.extend(values);
    }
    Ok(event)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Transaction {
    hash: String,
}

fn transaction(Transaction { hash }: Transaction) -> Begun {
    let question = get(format!("/rest/txs/by-hash/{}", encoded(&hash)), "decoded=true".to_owned());
    ask_one(question, move |answer| {
        let Some(transaction) = parsed::<Vec<BTreeMap<String, &RawValue>>>(answer)?.pop() else {
            let hash = excerpt(&hash);
            let sentence = format!("no smart-contract transaction {hash} is stored here");
            return Ok(ToolResult::failed(&sentence));
        };
        let mut found = Found::new()?;
        for name in FACTS {
            if let Some(value) = transaction.get(name) {
                found.fact(name, value)?;
            }
        }
        if let Some(call) = transaction.get("decoded") {
            found.fact("call", call)?;
        }
        found.end("Its arguments are too long for a tool.")
    })
}

/// Begins a call that asks one route, of whose failure the tool fails.
fn ask_one(
    question: Question,
    tell: impl FnOnce(&Bytes) -> Result<ToolResult, ApiError> + Send + 'static,
) -> Begun {
    let hash = if question.path.starts_with("/rest/events/") { "transaction" } else { "hash" };
    let tell = move |answers: Answers| match answers.into_iter().next() {
        Some(Ok(answer)) => tell(&answer),
        Some(Err(error)) => Ok(ToolResult::failed(&sentence(&error, hash))),
        None => Err(ApiError::Encoding),
    };
    Begun::Ask(vec![question], Box::new(tell))
}

/// Returns why a route failed, with the names of a tool's arguments for those of parameters; `hash` is
/// that for the hash of a transaction.
fn sentence(error: &ApiError, hash: &str) -> String {
    let ApiError::Parameter { name, problem } = error else { return error.to_string() };
    let argument = match *name {
        "contract_id" => "contract",
        "tx_hex" => hash,
        "topic1" => "name",
        name => name,
    };
    format!("'{argument}' {problem}")
}

fn get(path: String, query: String) -> Question {
    Question { method: Method::GET, path, query, body: Bytes::new() }
}

/// Returns the question for the rows of a statement, with values of its parameters.
fn sql(statement: &str, params: Value) -> Question {
    let body = json!({ "query": statement, "params": params }).to_string().into();
    let path = "/rest/retroshade/query".to_owned();
    Question { method: Method::POST, path, query: String::new(), body }
}

/// Returns a value as one segment of a path.
fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}

/// Parses the answer of a route.
fn parsed<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(answer).map_err(|error| {
        tracing::error!(%error, "an answer cannot be read for a tool");
        ApiError::Encoding
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tool: &str, arguments: &Value) -> Result<Vec<String>, String> {
        match begin(tool, &arguments.to_string()).unwrap() {
            Begun::Ask(questions, _) => {
                Ok(questions.iter().map(|it| format!("{}?{}", it.path, it.query)).collect())
            }
            Begun::Refused(why) => Err(why),
        }
    }

    #[test]
    fn arguments_stay_in_their_place_of_a_request() {
        let events = asked("events", &json!({ "contract": "../x?a=b", "name": "a&limit=9" }));
        let expected = "/rest/events/by-contract/%2E%2E%2Fx%3Fa%3Db?decoded=true&limit=20&topic1=symbol%3Aa%26limit%3D9";
        assert_eq!(events.unwrap(), [expected]);
        let hash = asked("transaction", &json!({ "hash": "ab/changes" })).unwrap();
        assert_eq!(hash, ["/rest/txs/by-hash/ab%2Fchanges?decoded=true"]);
        let of_account = asked("events", &json!({ "address": "GA", "from": 2, "cursor": 7 }));
        assert_eq!(
            of_account.unwrap(),
            ["/rest/events/by-address/GA?decoded=true&limit=20&from=2&cursor=7"]
        );
        let both = asked("events", &json!({ "transaction": "ab", "address": "GA" })).unwrap();
        assert_eq!(both, ["/rest/events/by-tx/ab?decoded=true&address=GA"]);
        let known = asked("find_contract", &json!({ "contract": "C".repeat(56) })).unwrap();
        assert_eq!(known.len(), 2);
    }

    #[test]
    fn wrong_arguments_are_refused_with_a_sentence() {
        for (tool, arguments, part) in [
            ("events", json!({ "contrct": "C" }), "unknown field `contrct`"),
            ("events", json!({ "name": "mint" }), "needs 'contract'"),
            ("events", json!({ "limit": 101 }), "from 1 to 100"),
            ("events", json!({ "transaction": "ab", "limit": 1 }), "'address' only"),
            ("query", json!({}), "missing field `sql`"),
            ("query", json!({ "sql": 1 }), "invalid type"),
            ("transaction", json!({ "hash": null }), "invalid type"),
        ] {
            let why = asked(tool, &arguments).unwrap_err();
            assert!(why.contains(part) && !why.contains("line 1"), "{tool} {arguments}: {why}");
        }
        assert!(begin("drop_table", "{}").is_none());
    }

    #[test]
    fn events_lose_what_is_in_them_twice_and_what_is_too_large() {
        let event = |decoded: Value| {
            let event = json!({ "id": 7, "topic1": "AAAA", "data": "AAAA", "decoded": decoded });
            let event = event.to_string();
            let shown = shown_event(serde_json::from_str(&event).unwrap()).unwrap();
            serde_json::to_value(shown).unwrap()
        };
        let raw = json!([{ "symbol": "mint" }]);
        let named = json!({ "name": "mint", "params": { "to": "GA" }, "topics": raw, "data": {} });
        assert_eq!(event(named), json!({ "id": 7, "name": "mint", "params": { "to": "GA" } }));
        let unknown = json!({ "name": null, "params": null, "topics": raw, "data": { "u32": 1 } });
        let shown = event(unknown);
        assert_eq!((&shown["topics"], &shown["data"]), (&raw, &json!({ "u32": 1 })));
        let large = json!({ "name": "mint", "params": { "to": "x".repeat(LARGEST_EVENT) } });
        let shown = event(large);
        assert_eq!((&shown["name"], shown["params"].is_null()), (&json!("mint"), true));
        assert!(shown["left_out"].is_string(), "{shown}");
    }
}
