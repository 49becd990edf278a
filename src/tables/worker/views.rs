//! Views that name tables after projects: `deposits_deposit` in the schema of the tables, and
//! `deposit` in a separate schema `deposits`, which tells project `a` with target `b_c` from
//! project `a_b` with target `c`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use duckdb::Connection;
use orrery_ledger::domain::ProgramId;
use sha2::{Digest, Sha256};

use super::chain;
use super::database::{OWN_SCHEMA, storage_failure};
use super::held;
use super::selects::{self, Shown};
use crate::chain::ChainTable;
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
    /// The parameter, if this is a function with rows instead of a view.
    parameter: Option<&'static str>,
}

impl View {
    /// Whether the view shows this table.
    pub fn shows(&self, table: &str) -> bool {
        self.tables.iter().any(|shown| shown == table)
    }

    /// Key among all views.
    fn key(&self) -> (String, String) {
        let end = if self.parameter.is_some() { "(" } else { "" };
        (names::folded(&self.schema), names::folded(&self.name) + end)
    }

    /// Returns the statement that removes it.
    fn dropping(&self) -> String {
        let kind = if self.parameter.is_some() { "MACRO TABLE" } else { "VIEW" };
        format!("DROP {kind} {}.{}", quoted(&self.schema), quoted(&self.name))
    }

    /// Returns the statement that creates it.
    fn creating(&self) -> String {
        let name = format!("{}.{}", quoted(&self.schema), quoted(&self.name));
        match self.parameter {
            Some(parameter) => format!("CREATE MACRO {name}({parameter}) AS TABLE {}", self.select),
            None => format!("CREATE VIEW {name} AS {}", self.select),
        }
    }

    /// Whether the name of the view collides with this table.
    pub fn has_name_of(&self, table: &str) -> bool {
        self.parameter.is_none()
            && self.schema == names::SCHEMA
            && names::folded(&self.name) == names::folded(table)
    }
}

/// Views by schema and name, both folded as SQL compares them; behind the name of a function stands a
/// parenthesis.
pub type Views = BTreeMap<(String, String), View>;

/// Returns the names of all tables and views in lower case: unqualified in the schema of the
/// tables, `schema.name` in all others.
pub fn all_names(
    programs: &BTreeMap<ProgramId, Definition>,
    of_chain: &[ChainTable],
) -> BTreeSet<String> {
    let own = |schema: &str| schema == names::SCHEMA;
    let views = desired(programs, of_chain)
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
/// program without a project name has none. Those of the tables of the chain are in a schema that no project has.
pub fn desired(programs: &BTreeMap<ProgramId, Definition>, of_chain: &[ChainTable]) -> Views {
    let tables: BTreeSet<String> = tables(programs).map(|table| names::folded(&table)).collect();
    let own = programs.values().filter(|definition| definition.own);
    let others = programs.values().filter(|definition| !definition.own);
    let mut views = Views::new();
    for table in of_chain {
        add(&mut views, names::CHAIN, &table.name, &of_the_chain(table));
    }
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
    let view = View {
        schema: schema.to_owned(),
        name: name.to_owned(),
        tables: shown.tables.clone(),
        select: shown.select.clone(),
        parameter: shown.parameter,
    };
    views.entry(view.key()).or_insert(view);
}

/// The rule by which the queries of views follow from definitions. A change of the queries makes it
/// another one: views by an earlier rule are created anew.
const RULE: u32 = 3;

/// Returns the rule with that of the views of these tables, which have their columns.
fn rule_with(of_chain: &[ChainTable]) -> u32 {
    let hash = Sha256::digest(chain::definitions(of_chain));
    let mixed = u32::from_be_bytes([hash[0], hash[1], hash[2], 0]);
    RULE | if of_chain.is_empty() { 0 } else { mixed }
}

fn of_the_chain(table: &ChainTable) -> Shown<'_> {
    let (target, tables) = (Cow::Borrowed(&*table.name), Vec::new());
    Shown { target, tables, select: chain::select(table), parameter: None }
}

/// Returns the views that exist in the file. The tables and query of each are taken from `desired`: a
/// view is always created in the same transaction as the definition that it follows from. Those that
/// were created by another rule have no query.
pub fn existing(
    connection: &Connection,
    desired: &Views,
    of_chain: &[ChainTable],
) -> Result<Views, Failure> {
    let rule = format!("SELECT max(rule) FROM {OWN_SCHEMA}.views");
    let rule: Option<u32> =
        connection.query_row(&rule, [], |row| row.get(0)).map_err(storage_failure)?;
    let sql = "SELECT schema_name, view_name, false FROM duckdb_views() WHERE NOT internal
        UNION ALL SELECT DISTINCT schema_name, function_name, true FROM duckdb_functions()
        WHERE function_type = 'table_macro' AND NOT internal
        AND database_name = current_database()";
    let mut statement = connection.prepare(sql).map_err(storage_failure)?;
    let found: Result<Vec<(String, String, bool)>, _> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .and_then(|names| names.collect());
    let view = |(schema, name, is_function): (String, String, bool)| {
        let parameter = is_function.then_some(held::PARAMETER);
        let view = View { schema, name, tables: Vec::new(), select: String::new(), parameter };
        let known = desired.get(&view.key()).filter(|_| rule == Some(rule_with(of_chain)));
        let known = known.map(|view| (view.tables.clone(), view.select.clone()));
        let (tables, select) = known.unwrap_or_default();
        (view.key(), View { tables, select, ..view })
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
        if let Some(view) = views.remove(&key) {
            run(connection, &view.dropping())?;
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
    drop_matching(connection, views, |view| desired.get(&view.key()) != Some(view))?;
    let kept = schemas(desired);
    for schema in project_schemas(connection)? {
        if !kept.contains(&names::folded(&schema)) {
            run(connection, &format!("DROP SCHEMA {}", quoted(&schema)))?;
        }
    }
    if !kept.contains(names::CHAIN) {
        run(connection, &format!("DROP SCHEMA IF EXISTS {}", quoted(names::CHAIN)))?;
    }
    for (key, view) in desired {
        if views.contains_key(key) {
            continue;
        }
        run(connection, &format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(&view.schema)))?;
        run(connection, &view.creating())?;
        views.insert(key.clone(), view.clone());
    }
    Ok(())
}

/// Notes that all views of the file were created by the present rule.
pub fn note_rule(connection: &Connection, of_chain: &[ChainTable]) -> Result<(), Failure> {
    let (own, rule) = (OWN_SCHEMA, rule_with(of_chain));
    run(connection, &format!("DELETE FROM {own}.views; INSERT INTO {own}.views VALUES ({rule})"))
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
