//! Which statements are answered: one, that only reads, and that names no function or table by which a
//! file, a setting or another database could be reached.
//!
//! DuckDB itself parses the text that will be executed and writes down what it understood
//! (`json_serialize_sql`); that is what is looked through, so neither comments nor quoting nor letters of
//! another script make a difference. Functions are allowed by name, from a list that a test compares with what this DuckDB
//! has: what a newer one adds is refused until somebody has looked at it.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use duckdb::Connection;

use super::ast;
use super::text::Text;
use crate::tables::names;
use crate::tables::wire::Failure;

/// The functions that may be called, one a line, those that are read from with `table` before.
static FUNCTIONS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    include_str!("functions.txt").lines().filter(|line| !line.starts_with('#')).collect()
});

/// Kinds of queries and of what they read from; a statement that changes something is none of them.
const NODES: [&str; 4] = ["SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"];

/// How the function is called that a query reads from.
const TABLE_FUNCTION: &str = "function";

/// Tables and views of the system that tell nothing but the names and columns of the owner's own.
const SYSTEM: [&str; 5] =
    ["tables", "columns", "schemata", "table_constraints", "key_column_usage"];
/// Where those are.
const SYSTEM_SCHEMA: &str = "information_schema";

/// Examines statements.
pub struct Gate {
    /// Views that DuckDB itself brings along, in lower case.
    brought_along: BTreeSet<String>,
}

impl Gate {
    /// Learns what DuckDB brings along.
    pub fn new(parser: &Connection) -> duckdb::Result<Self> {
        let mut statement =
            parser.prepare("SELECT lower(view_name) FROM duckdb_views() WHERE internal")?;
        let views = statement.query_map([], |row| row.get(0))?;
        Ok(Self { brought_along: views.collect::<Result<_, _>>()? })
    }

    /// Passes a text, or says why it is refused: DuckDB itself has written down what it understood of what
    /// is executed, but for the constant words before it. `own` are the owner's tables and views.
    /// Whether it asks for the columns of something is told as well.
    pub fn pass(
        &self,
        parser: &Connection,
        text: Text<'_>,
        own: &BTreeSet<String>,
    ) -> Result<bool, Failure> {
        let serialize = "SELECT json_serialize_sql(?::VARCHAR, skip_null := true)";
        let parsed: String = parser
            .query_row(serialize, [text.examined], |row| row.get(0))
            .map_err(|error| refused(&error.to_string()))?;
        let mut verdict = Ok(());
        let (mut statements, mut describes) = (0, false);
        let complete = ast::objects(&parsed, |depth, object| {
            statements += usize::from(depth == ast::STATEMENT);
            describes |= object.get("type") == Some("SHOW_REF");
            if verdict.is_ok() {
                verdict = self.look_at(object, own, text);
            }
        });
        verdict?;
        match (complete, statements) {
            (true, 1) => Ok(describes),
            (true, 0) => Err(refused("There is no statement: write one SELECT")),
            _ => Err(refused("Give one statement at a time")),
        }
    }

    fn look_at(
        &self,
        object: &ast::Object,
        own: &BTreeSet<String>,
        text: Text<'_>,
    ) -> Result<(), Failure> {
        if let Some(message) = object.get("error_message") {
            return Err(not_parsed(object, message, text));
        }
        if let Some(kind) = object.get("type")
            && kind.ends_with("_NODE")
            && !NODES.contains(&kind)
        {
            return Err(refused("A query may only read: a part of it changes something"));
        }
        if let Some(name) = object.get("function_name") {
            may_call(name, object.is_member(TABLE_FUNCTION))?;
        }
        if object.get("show_type").is_some() {
            return self.may_show(object, own);
        }
        if object.get("type") == Some("BASE_TABLE") {
            return self.may_read(object, own);
        }
        Ok(())
    }

    fn may_read(&self, object: &ast::Object, own: &BTreeSet<String>) -> Result<(), Failure> {
        let word = |key| names::folded(object.get(key).unwrap_or_default());
        let (schema, table) = (word("schema_name"), word("table_name"));
        let allowed = match schema.as_str() {
            SYSTEM_SCHEMA => SYSTEM.contains(&table.as_str()),
            names::SCHEMA => own.contains(&table) || !is_file(&table),
            "" => own.contains(&table) || !(self.brought_along.contains(&table) || is_file(&table)),
            // The schemas of the owner's projects.
            schema => own.contains(&format!("{schema}.{table}")),
        };
        match allowed {
            true => Ok(()),
            false => {
                let name = [schema, table].join(".");
                Err(refused(&format!(
                    "Table '{}' is not one of yours: SHOW TABLES lists them",
                    name.trim_start_matches('.')
                )))
            }
        }
    }

    /// SHOW is also how settings are asked for: what is no table of the owner is refused.
    fn may_show(&self, object: &ast::Object, own: &BTreeSet<String>) -> Result<(), Failure> {
        let name = names::folded(object.get("table_name").unwrap_or_default());
        let all = ["", "__show_tables_expanded", "\"tables\"", "\"schemas\""];
        match all.contains(&name.as_str()) || own.contains(&name) {
            true => Ok(()),
            false => Err(refused(&format!(
                "Table '{}' is not one of yours: SHOW TABLES lists them",
                name.trim_matches('"')
            ))),
        }
    }
}

/// Whether a table of that name, when there is none, would be looked for in a file: DuckDB does so by the end
/// of the name after its last point. A name that is none of the owner's is that of a part of the query.
fn is_file(table: &str) -> bool {
    table.contains(['.', '/', '\\', ':'])
}

fn may_call(name: &str, in_from: bool) -> Result<(), Failure> {
    let listed = if in_from { "table " } else { "" };
    match FUNCTIONS.contains(format!("{listed}{}", names::folded(name)).as_str()) {
        true => Ok(()),
        false => Err(refused(&format!("The function {name} cannot be used here"))),
    }
}

/// What the parser said, as DuckDB says it of a statement that it executes.
fn not_parsed(object: &ast::Object, message: &str, text: Text<'_>) -> Failure {
    match object.get("error_type") {
        Some("not implemented") if message.starts_with("Only SELECT") => refused(
            "Only statements that read are answered: SELECT, WITH, FROM, DESCRIBE, SHOW, SUMMARIZE, \
             EXPLAIN (as the first word), PIVOT (with its values: ON column IN (...))",
        ),
        Some("parser") => refused(&format!(
            "Parser Error: {message}{}",
            position(object, text).unwrap_or_default()
        )),
        _ => refused(message),
    }
}

/// Where in the query the parser stopped.
fn position(object: &ast::Object, text: Text<'_>) -> Option<String> {
    let at = object.get("position")?.parse::<usize>().ok()?;
    let before = text.query.get(..text.query.len() - text.examined.len() + at)?;
    let line = before.matches('\n').count() + 1;
    let character = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    Some(format!(" (line {line}, character {character})"))
}

fn refused(message: &str) -> Failure {
    Failure::Refused(message.to_owned())
}

#[cfg(test)]
mod tests;
