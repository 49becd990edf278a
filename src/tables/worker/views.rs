//! The views by which tables are called after projects: `deposits_deposit` beside the tables, and
//! `deposit` in a schema `deposits` of its own, so that the projects `a` and `a_b` with the targets `b_c` and
//! `c` can be told apart.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;

use super::database::other;
use crate::domain::ProgramId;
use crate::tables::names::{self, quoted};
use crate::tables::wire::{Definition, Failure};

/// A view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The schema that it is in.
    schema: String,
    /// Its name there.
    name: String,
    /// The table that it shows.
    table: String,
}

impl View {
    /// Whether it shows this table.
    pub fn shows(&self, table: &str) -> bool {
        self.table == table
    }

    /// Whether it stands where this table would.
    pub fn has_name_of(&self, table: &str) -> bool {
        self.schema == names::SCHEMA && names::folded(&self.name) == names::folded(table)
    }
}

/// Views by their schema and name as SQL compares them.
pub type Views = BTreeMap<(String, String), View>;

/// The names of all tables and views in lower case: those of the schema of tables alone, others
/// with their schema and a point before.
pub fn all_names(programs: &BTreeMap<ProgramId, Definition>) -> BTreeSet<String> {
    let own = |schema: &str| schema == names::SCHEMA;
    let views = wanted(programs).into_keys().map(|(schema, name)| match own(&schema) {
        true => name,
        false => format!("{schema}.{name}"),
    });
    views.chain(tables(programs).map(|table| names::folded(&table))).collect()
}

fn tables(programs: &BTreeMap<ProgramId, Definition>) -> impl Iterator<Item = String> {
    programs.values().flat_map(|definition| {
        let tables = definition.schema.tables().iter();
        tables.map(move |table| names::table(definition.program, &table.target))
    })
}

/// The views that there should be. Where two have one name, the owner's own program goes before someone
/// else's and the older before the newer, so that nobody's public program can take the place of what
/// the owner asks for; tables go before all views.
pub fn wanted(programs: &BTreeMap<ProgramId, Definition>) -> Views {
    let tables: BTreeSet<String> = tables(programs).map(|table| names::folded(&table)).collect();
    let own = programs.values().filter(|definition| definition.own);
    let others = programs.values().filter(|definition| !definition.own);
    let mut views = Views::new();
    for definition in own.chain(others) {
        let project = &definition.project;
        for table in definition.schema.tables() {
            let name = names::view(project, &table.target);
            let target = names::table(definition.program, &table.target);
            if !tables.contains(&names::folded(&name)) {
                add(&mut views, names::SCHEMA, &name, &target);
            }
            if names::may_be_schema(project) {
                add(&mut views, project, &table.target, &target);
            }
        }
    }
    views
}

fn add(views: &mut Views, schema: &str, name: &str, table: &str) {
    let key = (names::folded(schema), names::folded(name));
    let (schema, name, table) = (schema.to_owned(), name.to_owned(), table.to_owned());
    views.entry(key).or_insert(View { schema, name, table });
}

/// The views that the file has. Which table each shows is taken from those that there should be: a view
/// is always made in the same transaction as what it follows from.
pub fn existing(connection: &Connection, wanted: &Views) -> Result<Views, Failure> {
    let sql = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal";
    let mut statement = connection.prepare(sql).map_err(other)?;
    let found: Result<Vec<(String, String)>, _> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(|names| names.collect());
    let view = |(schema, name): (String, String)| {
        let key = (names::folded(&schema), names::folded(&name));
        let table = wanted.get(&key).map(|view| view.table.clone()).unwrap_or_default();
        (key, View { schema, name, table })
    };
    Ok(found.map_err(other)?.into_iter().map(view).collect())
}

/// Drops the views of which `in_the_way` says so.
pub fn drop_those(
    connection: &Connection,
    views: &mut Views,
    in_the_way: impl Fn(&View) -> bool,
) -> Result<(), Failure> {
    let found: Vec<_> =
        views.iter().filter(|(_, view)| in_the_way(view)).map(|(key, _)| key.clone()).collect();
    for key in found {
        if let Some(View { schema, name, .. }) = views.remove(&key) {
            run(connection, &format!("DROP VIEW {}.{}", quoted(&schema), quoted(&name)))?;
        }
    }
    Ok(())
}

/// Makes the views of the file those that there should be. Those that are right already stay as they are.
pub fn settle(connection: &Connection, views: &mut Views, wanted: &Views) -> Result<(), Failure> {
    let schemas = |views: &Views| -> BTreeSet<String> {
        let schemas = views.keys().map(|(schema, _)| schema.clone());
        schemas.filter(|schema| schema != names::SCHEMA).collect()
    };
    let key = |view: &View| (names::folded(&view.schema), names::folded(&view.name));
    drop_those(connection, views, |view| wanted.get(&key(view)) != Some(view))?;
    let kept = schemas(wanted);
    for schema in made_schemas(connection)? {
        if !kept.contains(&names::folded(&schema)) {
            run(connection, &format!("DROP SCHEMA {}", quoted(&schema)))?;
        }
    }
    for (key, view) in wanted {
        if views.contains_key(key) {
            continue;
        }
        let View { schema, name, table } = view;
        let (schema, name, table) = (quoted(schema), quoted(name), quoted(table));
        let own = names::SCHEMA;
        run(connection, &format!("CREATE SCHEMA IF NOT EXISTS {schema}"))?;
        run(connection, &format!("CREATE VIEW {schema}.{name} AS SELECT * FROM {own}.{table}"))?;
        views.insert(key.clone(), view.clone());
    }
    Ok(())
}

/// The schemas that were made for projects.
fn made_schemas(connection: &Connection) -> Result<Vec<String>, Failure> {
    let sql = "SELECT schema_name FROM duckdb_schemas()
        WHERE NOT internal AND database_name = current_database()";
    let mut statement = connection.prepare(sql).map_err(other)?;
    let found: Result<Vec<String>, _> =
        statement.query_map([], |row| row.get(0)).and_then(|names| names.collect());
    let mut found = found.map_err(other)?;
    found.retain(|schema| names::may_be_schema(schema));
    Ok(found)
}

fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    connection.execute_batch(sql).map_err(other)
}
