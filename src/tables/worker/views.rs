//! Views that name tables after projects: `deposits_deposit` in the schema of the tables, and
//! `deposit` in a separate schema `deposits`, which tells project `a` with target `b_c` from
//! project `a_b` with target `c`.

use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;
use orrery_ledger::domain::ProgramId;

use super::database::{OWN_SCHEMA, storage_failure};
use super::selects::{self, Shown};
use crate::names::{self, quoted};
use crate::wire::{Definition, Failure};

/// A view of one or more tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    schema: String,
    name: String,
    /// Tables that the view shows.
    tables: Vec<String>,
    /// The query of the view.
    select: String,
}

impl View {
    /// Whether the view shows this table.
    pub fn shows(&self, table: &str) -> bool {
        self.tables.iter().any(|shown| shown == table)
    }

    /// Whether the name of the view collides with this table.
    pub fn has_name_of(&self, table: &str) -> bool {
        self.schema == names::SCHEMA && names::folded(&self.name) == names::folded(table)
    }
}

/// Views by schema and name, both folded as SQL compares them.
pub type Views = BTreeMap<(String, String), View>;

/// Returns the names of all tables and views in lower case: unqualified in the schema of the
/// tables, `schema.name` in all others.
pub fn all_names(programs: &BTreeMap<ProgramId, Definition>) -> BTreeSet<String> {
    let own = |schema: &str| schema == names::SCHEMA;
    let views = desired(programs)
        .into_keys()
        .map(|(schema, name)| if own(&schema) { name } else { format!("{schema}.{name}") });
    views.chain(tables(programs).map(|table| names::folded(&table))).collect()
}

fn tables(programs: &BTreeMap<ProgramId, Definition>) -> impl Iterator<Item = String> {
    programs.values().flat_map(|definition| {
        let tables = definition.schema.stored_tables();
        tables.map(move |table| names::table(definition.program, &table.target))
    })
}

/// Returns the views that should exist. When two have the same name, the owner's own programs
/// precede those of other owners, and older programs precede newer ones, so that another owner's
/// public program cannot take over a name that the owner queries. Tables precede all views. A
/// program without a project name has none.
pub fn desired(programs: &BTreeMap<ProgramId, Definition>) -> Views {
    let tables: BTreeSet<String> = tables(programs).map(|table| names::folded(&table)).collect();
    let own = programs.values().filter(|definition| definition.own);
    let others = programs.values().filter(|definition| !definition.own);
    let mut views = Views::new();
    for definition in programs.values() {
        for (name, shown) in selects::of_stored(definition) {
            add(&mut views, names::SCHEMA, &name, &shown);
        }
    }
    for definition in own.chain(others) {
        let project = &definition.project;
        if project.is_empty() {
            continue;
        }
        for shown in selects::of(definition) {
            let name = names::view(project, &shown.target);
            if !tables.contains(&names::folded(&name)) {
                add(&mut views, names::SCHEMA, &name, &shown);
            }
            if names::may_be_schema(project) {
                add(&mut views, project, &shown.target, &shown);
            }
        }
    }
    views
}

fn add(views: &mut Views, schema: &str, name: &str, shown: &Shown<'_>) {
    let key = (names::folded(schema), names::folded(name));
    let view = || View {
        schema: schema.to_owned(),
        name: name.to_owned(),
        tables: shown.tables.clone(),
        select: shown.select.clone(),
    };
    views.entry(key).or_insert_with(view);
}

/// The rule by which the queries of views follow from definitions. A change of the queries makes it
/// another one: views by an earlier rule are created anew.
const RULE: u32 = 3;

/// Returns the views that exist in the file. The tables and query of each are taken from `desired`: a
/// view is always created in the same transaction as the definition that it follows from. Those that
/// were created by another rule have no query.
pub fn existing(connection: &Connection, desired: &Views) -> Result<Views, Failure> {
    let rule = format!("SELECT max(rule) FROM {OWN_SCHEMA}.views");
    let rule: Option<u32> =
        connection.query_row(&rule, [], |row| row.get(0)).map_err(storage_failure)?;
    let sql = "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal";
    let mut statement = connection.prepare(sql).map_err(storage_failure)?;
    let found: Result<Vec<(String, String)>, _> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(|names| names.collect());
    let view = |(schema, name): (String, String)| {
        let key = (names::folded(&schema), names::folded(&name));
        let known = desired.get(&key).filter(|_| rule == Some(RULE));
        let known = known.map(|view| (view.tables.clone(), view.select.clone()));
        let (tables, select) = known.unwrap_or_default();
        (key, View { schema, name, tables, select })
    };
    Ok(found.map_err(storage_failure)?.into_iter().map(view).collect())
}

/// Drops the views for which `predicate` returns true.
pub fn drop_matching(
    connection: &Connection,
    views: &mut Views,
    predicate: impl Fn(&View) -> bool,
) -> Result<(), Failure> {
    let found: Vec<_> =
        views.iter().filter(|(_, view)| predicate(view)).map(|(key, _)| key.clone()).collect();
    for key in found {
        if let Some(View { schema, name, .. }) = views.remove(&key) {
            run(connection, &format!("DROP VIEW {}.{}", quoted(&schema), quoted(&name)))?;
        }
    }
    Ok(())
}

/// Makes the views of the file equal to `desired`. Views that are already right stay as they are.
pub fn update(connection: &Connection, views: &mut Views, desired: &Views) -> Result<(), Failure> {
    let schemas = |views: &Views| -> BTreeSet<String> {
        let schemas = views.keys().map(|(schema, _)| schema.clone());
        schemas.filter(|schema| schema != names::SCHEMA).collect()
    };
    let key = |view: &View| (names::folded(&view.schema), names::folded(&view.name));
    drop_matching(connection, views, |view| desired.get(&key(view)) != Some(view))?;
    let kept = schemas(desired);
    for schema in project_schemas(connection)? {
        if !kept.contains(&names::folded(&schema)) {
            run(connection, &format!("DROP SCHEMA {}", quoted(&schema)))?;
        }
    }
    for (key, view) in desired {
        if views.contains_key(key) {
            continue;
        }
        let (schema, name) = (quoted(&view.schema), quoted(&view.name));
        run(connection, &format!("CREATE SCHEMA IF NOT EXISTS {schema}"))?;
        run(connection, &format!("CREATE VIEW {schema}.{name} AS {}", view.select))?;
        views.insert(key.clone(), view.clone());
    }
    Ok(())
}

/// Notes that all views of the file were created by the present rule.
pub fn note_rule(connection: &Connection) -> Result<(), Failure> {
    let own = OWN_SCHEMA;
    run(connection, &format!("DELETE FROM {own}.views; INSERT INTO {own}.views VALUES ({RULE})"))
}

/// Returns the schemas that were created for projects.
fn project_schemas(connection: &Connection) -> Result<Vec<String>, Failure> {
    let sql = "SELECT schema_name FROM duckdb_schemas()
        WHERE NOT internal AND database_name = current_database()";
    let mut statement = connection.prepare(sql).map_err(storage_failure)?;
    let found: Result<Vec<String>, _> =
        statement.query_map([], |row| row.get(0)).and_then(|names| names.collect());
    let mut found = found.map_err(storage_failure)?;
    found.retain(|schema| names::may_be_schema(schema));
    Ok(found)
}

fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    connection.execute_batch(sql).map_err(storage_failure)
}
