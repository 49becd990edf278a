//! Verb that lists tables by their names in SQL, with their columns and the number of their rows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Failure;
use super::output::{self, Json};
use super::remote::{Body, Remote};
use super::sql_tables::{Listed, SqlTable, listed, with_columns, without_columns};

/// Maximum number of tables that one query counts: its text is limited.
const COUNTED_AT_ONCE: usize = 100;

/// Runs `orrery tables`.
pub fn run(remote: &Remote, output: &Json) -> Result<(), Failure> {
    let listed = listed(remote)?;
    // The list itself does not depend on whether SQL is answered at the moment.
    let known = match listed.is_empty() {
        true => Ok((Vec::new(), BTreeMap::new())),
        false => known(remote, listed.clone()),
    };
    let (tables, mut rows) = known.unwrap_or_else(|failure| {
        output::note(format_args!("columns and rows are not known now: {failure}"));
        (without_columns(listed), BTreeMap::new())
    });
    let shown = tables.into_iter().map(|SqlTable { listed, called, columns, .. }| {
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let columns = (!names.is_empty()).then(|| names.join(", "));
        let mut table = listed.told;
        table.insert("rows".to_owned(), rows.remove(&called).unwrap_or(Value::Null));
        table.insert("table".to_owned(), called.into());
        table.insert("columns".to_owned(), columns.into());
        Value::Object(table)
    });
    let shown = Value::Array(shown.collect());
    Body(shown.to_string().into_bytes())
        .show(output.json, &["table", "rows", "columns", "own", "problem"])
}

/// Numbers of rows of tables, by their names in queries.
type Rows = BTreeMap<String, Value>;

/// Returns the tables with their columns, and the numbers of their rows.
fn known(remote: &Remote, listed: Vec<Listed>) -> Result<(Vec<SqlTable>, Rows), Failure> {
    let tables = with_columns(remote, listed)?;
    let mut rows = Rows::new();
    let in_sql: Vec<&SqlTable> = tables.iter().filter(|it| !it.columns.is_empty()).collect();
    for tables in in_sql.chunks(COUNTED_AT_ONCE) {
        let question = json!({ "query": counts(tables), "max_rows": COUNTED_AT_ONCE });
        let counted = remote.post("retroshade/query", &question)?.json()?;
        for row in counted.as_array().into_iter().flatten() {
            let number = row["number"].as_u64().and_then(|number| usize::try_from(number).ok());
            if let Some(table) = number.and_then(|number| tables.get(number)) {
                rows.insert(table.called.clone(), row["rows"].clone());
            }
        }
    }
    Ok((tables, rows))
}

/// Returns the query that counts the rows of tables.
fn counts(tables: &[&SqlTable]) -> String {
    let count = |(number, table): (usize, &&SqlTable)| {
        format!("select {number} as number, count(*) as \"rows\" from {}", table.called)
    };
    tables.iter().enumerate().map(count).collect::<Vec<_>>().join(" union all ")
}
