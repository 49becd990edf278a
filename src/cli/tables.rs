//! Verb that lists tables by their names in SQL, with their columns and the number of their rows.

use std::collections::BTreeMap;

use orrery::tables::quoted;
use serde_json::{Map, Value, json};

use super::Failure;
use super::output::{self, Json};
use super::remote::{Body, Remote};
use super::types::target;

/// Query for the names of the columns of all tables, with the table names of `retroshade/tables`: own
/// columns first.
const COLUMNS: &str = "select table_name, string_agg(column_name, ', ' order by \
                       case when column_name = '_service_event_id' then 3 \
                       when column_name in ('_event_id', '_event_index', '_declared', '_rest') then 2 \
                       when column_name in ('contract_id', 'transaction', '_ledger', '_ledger_closed_at') then 1 \
                       else 0 end, ordinal_position) as columns \
                       from information_schema.columns where table_schema = 'retroshade' group by 1";
/// Maximum number of tables that one query counts: its text is limited.
const COUNTED_AT_ONCE: usize = 100;
/// Maximum number of tables that an owner may read, or more.
const MOST_TABLES: u32 = 100_000;

/// Runs `orrery tables`.
pub fn run(remote: &Remote, output: &Json) -> Result<(), Failure> {
    let listed = remote.get("retroshade/tables")?.json()?;
    let tables: Vec<Map<String, Value>> =
        listed.as_array().into_iter().flatten().filter_map(|it| it.as_object().cloned()).collect();
    let names: Vec<String> = tables.iter().map(|table| text(table, "table_name")).collect();
    // The list itself does not depend on whether SQL is answered at the moment.
    let (mut columns, mut rows) = details(remote, &names).unwrap_or_else(|failure| {
        output::note(format_args!("columns and rows are not known now: {failure}"));
        (Details::new(), Details::new())
    });
    let shown = tables.into_iter().zip(&names).map(|(mut table, name)| {
        let called = match text(&table, "project_name_plain") {
            project if project.is_empty() => name.clone(),
            project => in_sql(&project, name),
        };
        table.insert("table".to_owned(), called.into());
        table.insert("columns".to_owned(), columns.remove(name).unwrap_or(Value::Null));
        table.insert("rows".to_owned(), rows.remove(name).unwrap_or(Value::Null));
        Value::Object(table)
    });
    let shown = Value::Array(shown.collect());
    Body(shown.to_string().into_bytes())
        .show(output.json, &["table", "rows", "columns", "own", "problem"])
}

/// Returns how SQL calls a table of a project: a name with other characters than letters, digits and
/// underscores is in quotes.
pub fn in_sql(project: &str, table: &str) -> String {
    let called = |name: &str| {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if name.chars().all(is_plain) && !name.starts_with(|it: char| it.is_ascii_digit()) {
            name.to_owned()
        } else {
            quoted(name)
        }
    };
    format!("{}.{}", called(project), called(target(table)))
}

/// What is known of each table.
type Details = BTreeMap<String, Value>;

/// Returns the columns and the numbers of rows of tables.
fn details(remote: &Remote, names: &[String]) -> Result<(Details, Details), Failure> {
    let (mut columns, mut rows) = (Details::new(), Details::new());
    if !names.is_empty() {
        columns = answers(remote, COLUMNS, "columns")?;
        for names in names.chunks(COUNTED_AT_ONCE) {
            rows.append(&mut answers(remote, &counts(names), "rows")?);
        }
    }
    Ok((columns, rows))
}

/// Returns the query that counts the rows of tables.
fn counts(names: &[String]) -> String {
    let count = |name: &String| {
        let (literal, quoted) = (name.replace('\'', "''"), name.replace('"', "\"\""));
        format!(
            "select '{literal}' as table_name, count(*) as \"rows\" from retroshade.\"{quoted}\""
        )
    };
    names.iter().map(count).collect::<Vec<_>>().join(" union all ")
}

/// Returns what a query says of each table.
fn answers(remote: &Remote, query: &str, column: &str) -> Result<Details, Failure> {
    let question = json!({ "query": query, "max_rows": MOST_TABLES });
    let answer = remote.post("retroshade/query", &question)?.json()?;
    let rows = answer.as_array().into_iter().flatten();
    Ok(rows
        .filter_map(|row| Some((row["table_name"].as_str()?.to_owned(), row[column].clone())))
        .collect())
}

fn text(table: &Map<String, Value>, name: &str) -> String {
    table.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}
