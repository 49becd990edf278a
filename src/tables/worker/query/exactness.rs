//! Has DuckDB plan a query before it is executed, to see whether it would round integers.

use duckdb::Connection;
use serde_json::Value as Json;

use crate::worker::ast;
use crate::worker::database::Reader;
use crate::worker::rounding;
use crate::worker::tree::{ROOT, Tree};

/// Checks a text that can be executed, with its syntax tree and the values of its parameters. The connection plans it.
///
/// # Errors
/// The sentence for the user when the query would round integers, or cannot be examined.
pub fn check(
    reader: &Reader,
    planner: &Connection,
    examined: &str,
    parsed: &str,
    parameters: &[Json],
) -> Result<(), String> {
    let plan = plan(planner, examined)?;
    let Some(reason) = reason(&plan) else {
        rounding::check(&plan, parsed)?;
        return check_arguments(reader, planner, examined, parsed);
    };
    if lacks_values(parsed, parameters.len()) {
        // The query cannot be executed, and that says how many values it needs.
        return Ok(());
    }
    // Nothing but its value determines the type of a parameter.
    let Some(typed) = with_types(examined, parsed, parameters) else {
        return Err(format!("The query cannot be planned: {reason}"));
    };
    let parsed = ast::parsed(&reader.parser, &typed).map_err(|error| error.to_string())?;
    let plan = self::plan(planner, &typed)?;
    match self::reason(&plan) {
        None => rounding::check(&plan, &parsed)?,
        Some(reason) => return Err(format!("The query cannot be planned: {reason}")),
    }
    check_arguments(reader, planner, &typed, &parsed)
}

/// Checks the arguments of table functions in a text. The plan shows only what constants among them have
/// become.
fn check_arguments(
    reader: &Reader,
    planner: &Connection,
    sql: &str,
    parsed: &str,
) -> Result<(), String> {
    let Some(tree) = Tree::read(parsed) else { return Ok(()) };
    let number = |at, key| tree.text(at, key).and_then(|text| text.parse::<usize>().ok());
    let call = |at| {
        let begin = number(at, "query_location")?;
        sql.get(begin..begin.checked_add(number(at, "query_location_length")?)?)
    };
    let mut calls = (ROOT..tree.len())
        .filter(|at| tree.text(*at, "type") == Some("TABLE_FUNCTION"))
        .filter_map(call);
    calls.try_for_each(|call| check_call(reader, planner, call))
}

/// Checks the arguments of a call, behind which a name with those of columns may stand: `f(1) x(v)`.
fn check_call(reader: &Reader, planner: &Connection, call: &str) -> Result<(), String> {
    let mut rest = call.split_once('(').map_or("", |(_, rest)| rest);
    for _ in 0..2 {
        let Some((arguments, _)) = rest.rsplit_once(')') else { break };
        let select = format!("SELECT {arguments}");
        let parsed = ast::parsed(&reader.parser, &select).map_err(|error| error.to_string())?;
        let plan = plan(planner, &select)?;
        // Those that depend on tables have no plan alone, and are in that of the query.
        if reason(&plan).is_none() {
            return rounding::check(&plan, &parsed);
        }
        rest = arguments;
    }
    Ok(())
}

fn plan(connection: &Connection, sql: &str) -> Result<String, String> {
    let serialize = "SELECT json_serialize_plan(?::VARCHAR, skip_null := true, skip_empty := true, \
        skip_default := true)";
    connection.query_row(serialize, [sql], |row| row.get(0)).map_err(|error| error.to_string())
}

/// Returns why there is no plan.
fn reason(plan: &str) -> Option<String> {
    let tree = plan.starts_with(r#"{"error":true"#).then(|| Tree::read(plan)).flatten()?;
    Some(tree.text(ROOT, "error_message").unwrap_or_default().replace("\\n", " "))
}

/// Whether a query has more parameters than this number of values.
fn lacks_values(parsed: &str, values: usize) -> bool {
    let Some(tree) = Tree::read(parsed) else { return false };
    let mut parameters =
        (ROOT..tree.len()).filter(|at| tree.text(*at, "class") == Some("PARAMETER"));
    parameters.any(|at| {
        let number = tree.text(at, "identifier").and_then(|text| text.parse::<usize>().ok());
        number.is_some_and(|number| number > values)
    })
}

/// Returns the text with a value of the same type in place of each parameter; `None` when there
/// is no parameter.
fn with_types(sql: &str, parsed: &str, values: &[Json]) -> Option<String> {
    let tree = Tree::read(parsed)?;
    let number = |at, key| tree.text(at, key).and_then(|text| text.parse::<usize>().ok());
    let mut places = Vec::new();
    for at in (ROOT..tree.len()).filter(|at| tree.text(*at, "class") == Some("PARAMETER")) {
        let (begin, length) = (number(at, "query_location")?, number(at, "query_location_length")?);
        let value = values.get(number(at, "identifier")?.checked_sub(1)?)?;
        places.push((begin..begin + length, typed(value)));
    }
    places.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let mut text = (!places.is_empty()).then(|| sql.to_owned())?;
    for (place, value) in places {
        text.get(place.clone()).filter(|it| it.starts_with(['?', '$']))?;
        text.replace_range(place, &format!("({value})"));
    }
    Some(text)
}

/// Returns some value of the type as which a value is given to DuckDB. None is null: of a null, plans
/// show only what becomes of it.
pub fn typed(value: &Json) -> String {
    let kind = match value {
        Json::Bool(_) => "BOOLEAN",
        Json::Number(number) if number.is_i64() => "BIGINT",
        Json::Number(number) if number.is_u64() => "UBIGINT",
        Json::Number(_) => "DOUBLE",
        Json::String(_) => "VARCHAR",
        Json::Array(items) => {
            return format!("[{}]", items.iter().map(typed).collect::<Vec<_>>().join(", "));
        }
        Json::Null | Json::Object(_) => return "NULL".to_owned(),
    };
    format!("1::{kind}")
}
