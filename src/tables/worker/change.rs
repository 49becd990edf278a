//! Changes of the database: tables and views of programs, rows, and the watermarks that go with them, in
//! one transaction each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::ipc::reader::StreamReader;
use duckdb::{Connection, params};
use parking_lot::RwLock;

use super::database::{OWN_SCHEMA, other};
use crate::domain::ProgramId;
use crate::tables::names::{self, quoted};
use crate::tables::schema::TableSchema;
use crate::tables::types::ColumnType;
use crate::tables::wire::{Definition, Failure};

/// Makes one change after the other.
pub struct Changer<'a> {
    connection: &'a Connection,
    /// What is committed.
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    /// The names of tables and views among it.
    names: Names,
    change: Option<Change>,
}

/// The names of the owner's tables and views in lower case, as of the last change.
pub type Names = Arc<RwLock<BTreeSet<String>>>;

/// A change that has begun.
struct Change {
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    views_changed: bool,
    /// Why it cannot be made; what follows is not looked at.
    failed: Option<Failure>,
}

impl<'a> Changer<'a> {
    /// For a database with these programs.
    pub fn new(connection: &'a Connection, programs: Vec<Definition>, names: Names) -> Self {
        let programs = programs.into_iter().map(|it| (it.program, it));
        let programs = Arc::new(programs.collect());
        *names.write() = all_names(&programs);
        Self { connection, programs, names, change: None }
    }

    /// Begins a change; one that was not ended is forgotten.
    pub fn begin(&mut self) {
        self.abort();
        let failed = self.connection.execute_batch("BEGIN TRANSACTION").err().map(other);
        let programs = Arc::clone(&self.programs);
        self.change = Some(Change { programs, views_changed: false, failed });
    }

    /// Creates or alters the tables of a program.
    pub fn define(&mut self, definition: Definition) {
        let connection = self.connection;
        self.step(|change| {
            let known = change.programs.get(&definition.program);
            for table in definition.schema.tables() {
                let old = known.and_then(|known| find(known, &table.target));
                match old {
                    None => create(connection, definition.program, table)?,
                    Some(old) => alter(connection, definition.program, old, table)?,
                }
            }
            let schema = serde_json::to_string(&definition.schema)
                .map_err(|error| Failure::Unavailable(error.to_string()))?;
            let Definition { program, project, own, .. } = &definition;
            delete(connection, "programs", *program)?;
            let insert = format!("INSERT INTO {OWN_SCHEMA}.programs VALUES (?, ?, ?, ?)");
            connection.execute(&insert, params![program.0, project, own, schema]).map_err(other)?;
            if known.is_none() {
                let insert = format!("INSERT INTO {OWN_SCHEMA}.watermarks VALUES (?, 0)");
                connection.execute(&insert, params![program.0]).map_err(other)?;
            }
            change.views_changed = true;
            Arc::make_mut(&mut change.programs).insert(definition.program, definition);
            Ok(())
        });
    }

    /// Appends rows to a table.
    pub fn append(&mut self, table: &str, body: &[u8]) {
        let connection = self.connection;
        self.step(|_| {
            let unreadable = |error: arrow::error::ArrowError| {
                Failure::Unavailable(format!("rows cannot be read: {error}"))
            };
            let batches = StreamReader::try_new(body, None).map_err(unreadable)?;
            let mut appender = connection.appender_to_db(table, names::SCHEMA).map_err(other)?;
            for batch in batches {
                appender.append_record_batch(batch.map_err(unreadable)?).map_err(other)?;
            }
            appender.flush().map_err(other)
        });
    }

    /// Removes a program.
    pub fn drop(&mut self, program: ProgramId) {
        let connection = self.connection;
        self.step(|change| {
            let programs = Arc::make_mut(&mut change.programs);
            let Some(definition) = programs.remove(&program) else { return Ok(()) };
            drop_views(connection)?;
            for table in definition.schema.tables() {
                let table = quoted(&names::table(program, &table.target));
                run(connection, &format!("DROP TABLE {}.{table}", names::SCHEMA))?;
            }
            delete(connection, "programs", program)?;
            delete(connection, "watermarks", program)?;
            change.views_changed = true;
            Ok(())
        });
    }

    /// Ends the change.
    ///
    /// # Errors
    /// When something in it failed. Then nothing of it was done.
    pub fn commit(
        &mut self,
        commit: u64,
        watermarks: &BTreeMap<ProgramId, u64>,
    ) -> Result<(), Failure> {
        let connection = self.connection;
        self.step(|change| {
            if change.views_changed {
                drop_views(connection)?;
                create_views(connection, &change.programs)?;
            }
            let update = format!("UPDATE {OWN_SCHEMA}.watermarks SET number = ? WHERE program = ?");
            for (program, number) in watermarks {
                connection.execute(&update, params![number, program.0]).map_err(other)?;
            }
            let update = format!("UPDATE {OWN_SCHEMA}.state SET commits = ?");
            connection.execute(&update, params![commit]).map_err(other)?;
            run(connection, "COMMIT")
        });
        let Some(change) = self.change.take() else {
            return Err(Failure::Unavailable("no change was begun".to_owned()));
        };
        match change.failed {
            None => {
                if change.views_changed {
                    *self.names.write() = all_names(&change.programs);
                }
                self.programs = change.programs;
                Ok(())
            }
            Some(failure) => {
                self.roll_back();
                Err(failure)
            }
        }
    }

    /// Forgets a change that was begun.
    pub fn abort(&mut self) {
        if self.change.take().is_some() {
            self.roll_back();
        }
    }

    fn roll_back(&self) {
        // A transaction that has failed at its commit is gone already.
        let _ = self.connection.execute_batch("ROLLBACK");
    }

    fn step(&mut self, step: impl FnOnce(&mut Change) -> Result<(), Failure>) {
        if let Some(change) = &mut self.change
            && change.failed.is_none()
        {
            change.failed = step(change).err();
        }
    }
}

fn find<'a>(definition: &'a Definition, target: &str) -> Option<&'a TableSchema> {
    definition.schema.tables().iter().find(|table| table.target == target)
}

fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    connection.execute_batch(sql).map_err(other)
}

fn delete(connection: &Connection, table: &str, program: ProgramId) -> Result<(), Failure> {
    let delete = format!("DELETE FROM {OWN_SCHEMA}.{table} WHERE program = ?");
    connection.execute(&delete, params![program.0]).map_err(other).map(drop)
}

fn full_name(program: ProgramId, table: &TableSchema) -> String {
    format!("{}.{}", names::SCHEMA, quoted(&names::table(program, &table.target)))
}

fn create(connection: &Connection, program: ProgramId, table: &TableSchema) -> Result<(), Failure> {
    // A view may have its name, and goes after tables.
    drop_views(connection)?;
    let injected = names::INJECTED.iter().map(|(name, kind)| format!("{} {kind}", quoted(name)));
    let own = table.columns.iter().map(|it| format!("{} {}", quoted(&it.name), it.kind));
    let columns: Vec<String> = injected.chain(own).collect();
    run(connection, &format!("CREATE TABLE {} ({})", full_name(program, table), columns.join(", ")))
}

fn alter(
    connection: &Connection,
    program: ProgramId,
    old: &TableSchema,
    new: &TableSchema,
) -> Result<(), Failure> {
    if old == new {
        return Ok(());
    }
    // A view that was made for other columns no longer opens, and views are made anew with the commit.
    drop_views(connection)?;
    let name = full_name(program, new);
    for column in &new.columns {
        let known = old.columns.iter().find(|known| known.name == column.name);
        let quoted = quoted(&column.name);
        match known {
            None => {
                run(
                    connection,
                    &format!("ALTER TABLE {name} ADD COLUMN {quoted} {}", column.kind),
                )?;
            }
            Some(known) if known.kind != column.kind => {
                let using = conversion(&known.kind, &column.kind, &quoted);
                let kind = &column.kind;
                run(
                    connection,
                    &format!("ALTER TABLE {name} ALTER COLUMN {quoted} TYPE {kind} USING {using}"),
                )?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// An expression that turns the values of a column into those of its new type, none of them changed.
fn conversion(old: &ColumnType, new: &ColumnType, column: &str) -> String {
    let empty = match (old, new) {
        (ColumnType::Unknown, new) => return format!("CAST(NULL AS {new})"),
        (ColumnType::List(_), ColumnType::Json) => r#"{"vec":[]}"#,
        (ColumnType::Map(..), ColumnType::Json) => r#"{"map":[]}"#,
        (_, new) => return format!("CAST({column} AS {new})"),
    };
    format!("CAST(CASE WHEN {column} IS NULL THEN NULL ELSE '{empty}' END AS JSON)")
}

fn drop_views(connection: &Connection) -> Result<(), Failure> {
    let views = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = ?";
    let mut statement = connection.prepare(views).map_err(other)?;
    let names: Result<Vec<String>, _> =
        statement.query_map([names::SCHEMA], |row| row.get(0)).and_then(|names| names.collect());
    for name in names.map_err(other)? {
        run(connection, &format!("DROP VIEW {}.{}", names::SCHEMA, quoted(&name)))?;
    }
    Ok(())
}

fn create_views(
    connection: &Connection,
    programs: &BTreeMap<ProgramId, Definition>,
) -> Result<(), Failure> {
    for (view, table) in views(programs) {
        let (schema, view, table) = (names::SCHEMA, quoted(&view), quoted(&table));
        run(connection, &format!("CREATE VIEW {schema}.{view} AS SELECT * FROM {schema}.{table}"))?;
    }
    Ok(())
}

/// The names of all tables and views, in lower case.
fn all_names(programs: &BTreeMap<ProgramId, Definition>) -> BTreeSet<String> {
    let views = views(programs).into_iter().map(|(view, _)| view);
    views.chain(tables(programs)).map(|name| names::folded(&name)).collect()
}

fn tables(programs: &BTreeMap<ProgramId, Definition>) -> impl Iterator<Item = String> {
    programs.values().flat_map(|definition| {
        let tables = definition.schema.tables().iter();
        tables.map(move |table| names::table(definition.program, &table.target))
    })
}

/// A view for each table, called by the project, and the table. Where two have one name, the owner's own
/// program goes before someone else's and the older before the newer, so that nobody's public program
/// can take the place of what the owner asks for; tables go before all views.
fn views(programs: &BTreeMap<ProgramId, Definition>) -> Vec<(String, String)> {
    let mut taken: BTreeSet<String> = tables(programs).map(|table| names::folded(&table)).collect();
    let own = programs.values().filter(|definition| definition.own);
    let others = programs.values().filter(|definition| !definition.own);
    let mut views = Vec::new();
    for definition in own.chain(others) {
        for table in definition.schema.tables() {
            let view = names::view(&definition.project, &table.target);
            if taken.insert(names::folded(&view)) {
                views.push((view, names::table(definition.program, &table.target)));
            }
        }
    }
    views
}
