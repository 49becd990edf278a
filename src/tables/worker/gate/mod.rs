//! Decides which statements are answered: a single one that only reads, and that names no function
//! or table through which a file, a setting or another database could be reached.
//!
//! DuckDB itself parses the text that will be executed and serialises the syntax tree
//! (`json_serialize_sql`). The gate inspects that tree, so comments, quoting and non-ASCII letters
//! cannot hide anything. Functions are allowed by name, from a list that a test compares with the
//! functions of the linked DuckDB: a function that a newer DuckDB adds is refused until it has been
//! reviewed.

mod reserved;

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use duckdb::Connection;

use super::ast;
use super::clock;
use super::query_text::Text;
use crate::names::{self, written};
use crate::wire::Failure;

/// Functions that queries may call, one per line; table functions (called in FROM) have the prefix
/// `table `.
static FUNCTIONS: LazyLock<HashSet<&str>> = LazyLock::new(|| {
    include_str!("functions.txt").lines().filter(|line| !line.starts_with('#')).collect()
});

/// Node types of queries and of what they read from. The node of a statement that changes something
/// has another type.
const NODES: [&str; 4] = ["SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"];

/// Member of the syntax tree that holds the function call of a table function in FROM.
const TABLE_FUNCTION: &str = "function";

/// System views that show only the names and columns of the owner's own tables.
const SYSTEM: [&str; 5] =
    ["tables", "columns", "schemata", "table_constraints", "key_column_usage"];
/// Schema of the views in [`SYSTEM`].
const SYSTEM_SCHEMA: &str = "information_schema";

/// Likeness of two names, from 0 to 1, from which on one may be meant by the other.
const SIMILAR: f64 = 0.7;

/// A statement that passed the gate.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    /// Whether it asks for a description of columns (`SHOW_REF`).
    pub describes: bool,
    /// Its syntax tree, as DuckDB serialises it.
    pub parsed: String,
}

/// Examines statements before they are executed.
pub struct Gate {
    /// Names of DuckDB's built-in views, in lower case.
    builtin_views: BTreeSet<String>,
    /// Words that are no names of columns unless they are quoted.
    reserved: BTreeSet<String>,
}

impl Gate {
    /// Reads the names of DuckDB's built-in views and reserved words.
    pub fn new(parser: &Connection) -> duckdb::Result<Self> {
        let mut statement =
            parser.prepare("SELECT lower(view_name) FROM duckdb_views() WHERE internal")?;
        let views = statement.query_map([], |row| row.get(0))?;
        let builtin_views = views.collect::<Result<_, _>>()?;
        let mut statement = parser.prepare(
            "SELECT lower(keyword_name) FROM duckdb_keywords()
             WHERE keyword_category IN ('reserved', 'type_function')",
        )?;
        let reserved = statement.query_map([], |row| row.get(0))?;
        Ok(Self { builtin_views, reserved: reserved.collect::<Result<_, _>>()? })
    }

    /// Checks a statement. The check uses DuckDB's own parse of the executed text, without the constant `EXPLAIN`
    /// prefix. `own` are the owner's tables and views.
    pub fn check(
        &self,
        parser: &Connection,
        text: Text<'_>,
        own: &BTreeSet<String>,
    ) -> Result<Passed, Failure> {
        let parsed =
            ast::parsed(parser, text.examined).map_err(|error| refused(&error.to_string()))?;
        let mut verdict = Ok(());
        let (mut statements, mut describes) = (0, false);
        let complete = ast::objects(&parsed, |depth, object| {
            statements += usize::from(depth == ast::STATEMENT);
            describes |= object.get("type") == Some("SHOW_REF");
            if verdict.is_ok() {
                verdict = self.check_object(object, own, text);
            }
        });
        verdict?;
        match (complete, statements) {
            (true, 1) => Ok(Passed { describes, parsed }),
            (true, 0) => Err(refused("There is no statement: write one SELECT")),
            _ => Err(refused("Give one statement at a time")),
        }
    }

    fn check_object(
        &self,
        object: &ast::Object,
        own: &BTreeSet<String>,
        text: Text<'_>,
    ) -> Result<(), Failure> {
        if let Some(message) = object.get("error_message") {
            return Err(self.not_parsed(object, message, text));
        }
        if let Some(kind) = object.get("type")
            && kind.ends_with("_NODE")
            && !NODES.contains(&kind)
        {
            return Err(refused("A query may only read: a part of it changes something"));
        }
        if let Some(name) = object.get("function_name") {
            let is_in_from = object.is_member(TABLE_FUNCTION);
            let is_own = is_in_from && own.contains(&key_of(object, name));
            if !is_own {
                may_call(name, is_in_from)?;
            }
        }
        if object.get("show_type").is_some() {
            return self.may_show(object, own);
        }
        if object.get("type") == Some("BASE_TABLE") {
            return self.may_read(object, own);
        }
        Ok(())
    }

    /// Turns a parser error into a refusal, worded as DuckDB words it when it executes the statement.
    fn not_parsed(&self, object: &ast::Object, message: &str, text: Text<'_>) -> Failure {
        match object.get("error_type") {
            Some("not implemented") if message.starts_with("Only SELECT") => refused(
                "Only statements that read are answered: SELECT, WITH, FROM, DESCRIBE, SHOW, SUMMARIZE, \
                 EXPLAIN (as the first word), PIVOT (with its values: ON column IN (...))",
            ),
            Some("parser") => {
                let at = position(object, text);
                let place = at.map(|at| place(text, at)).unwrap_or_default();
                let mend = at.and_then(|at| reserved::mend(&self.reserved, text.query, at));
                refused(&format!("Parser Error: {message}{place}{}", mend.unwrap_or_default()))
            }
            _ => refused(message),
        }
    }

    fn may_read(&self, object: &ast::Object, own: &BTreeSet<String>) -> Result<(), Failure> {
        let word = |key| names::folded(object.get(key).unwrap_or_default());
        let (schema, table) = (word("schema_name"), word("table_name"));
        let allowed = match schema.as_str() {
            SYSTEM_SCHEMA => SYSTEM.contains(&table.as_str()),
            names::SCHEMA => own.contains(&table) || !is_file(&table),
            "" => own.contains(&table) || !(self.builtin_views.contains(&table) || is_file(&table)),
            // The schemas of the owner's projects.
            schema => own.contains(&format!("{schema}.{table}")),
        };
        if allowed {
            Ok(())
        } else {
            let name = [schema, table].join(".");
            Err(not_yours(name.trim_start_matches('.'), own))
        }
    }

    /// SHOW can also read settings, so only the owner's tables and the lists of tables and schemas
    /// are allowed.
    fn may_show(&self, object: &ast::Object, own: &BTreeSet<String>) -> Result<(), Failure> {
        let name = names::folded(object.get("table_name").unwrap_or_default());
        let all = ["", "__show_tables_expanded", "\"tables\"", "\"schemas\""];
        if all.contains(&name.as_str()) || own.contains(&name) {
            Ok(())
        } else {
            Err(not_yours(name.trim_matches('"'), own))
        }
    }
}

/// Whether DuckDB would look for a missing table of that name in a file, which it decides by the
/// file extension. Any other name that is not one of the owner's tables refers to a part of the
/// query, such as a CTE.
fn is_file(table: &str) -> bool {
    table.contains(['.', '/', '\\', ':'])
}

/// Returns the name under which a function of the owner's is listed.
fn key_of(object: &ast::Object, name: &str) -> String {
    let schema = names::folded(object.get("schema").unwrap_or_default());
    let name = names::folded(name);
    match schema.as_str() {
        "" | names::SCHEMA => format!("{name}("),
        schema => format!("{schema}.{name}("),
    }
}

fn may_call(name: &str, in_from: bool) -> Result<(), Failure> {
    let listed = if in_from { "table " } else { "" };
    let folded = names::folded(name);
    let is_own = !in_from && clock::defines(&folded);
    if is_own || FUNCTIONS.contains(format!("{listed}{folded}").as_str()) {
        Ok(())
    } else {
        Err(refused(&format!("The function {name} cannot be used here")))
    }
}

/// Returns the position in the query at which the parser stopped, in bytes.
fn position(object: &ast::Object, text: Text<'_>) -> Option<usize> {
    let at = object.get("position")?.parse::<usize>().ok()?;
    let at = (text.query.len() - text.examined.len()).checked_add(at)?;
    text.query.is_char_boundary(at).then_some(at)
}

/// Returns a position in the query in words.
fn place(text: Text<'_>, at: usize) -> String {
    let before = &text.query[..at];
    let line = before.matches('\n').count() + 1;
    let character = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!(" (line {line}, character {character})")
}

/// The refusal of a table that is none of the owner's, with the one whose name is the most similar.
fn not_yours(table: &str, own: &BTreeSet<String>) -> Failure {
    if table.strip_prefix(names::CHAIN).is_some_and(|rest| rest.starts_with('.'))
        && !own.iter().any(|own| own.starts_with(&table[..names::CHAIN.len() + 1]))
    {
        return refused(&format!(
            "Table '{table}' is not there: SQL has chain.events and chain.transactions while the service exports to \
             a directory of its machine (export.to)"
        ));
    }
    let likeness = |own: &&String| strsim::normalized_damerau_levenshtein(own, table);
    let tables = own.iter().filter(|own| !own.ends_with('('));
    let nearest = tables.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let mend = match nearest.filter(|own| likeness(own) >= SIMILAR) {
        Some(nearest) => {
            let nearest: Vec<String> = nearest.split('.').map(written).collect();
            format!("did you mean '{}'? SHOW TABLES lists all", nearest.join("."))
        }
        None => "SHOW TABLES lists them".to_owned(),
    };
    refused(&format!("Table '{table}' is not one of yours: {mend}"))
}

fn refused(message: &str) -> Failure {
    Failure::Refused(message.to_owned())
}

#[cfg(test)]
mod tests;
