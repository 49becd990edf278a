//! Changes to the database: tables and views of programs, rows, and their watermarks, in one
//! transaction per change.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use arrow::ipc::reader::StreamReader;
use duckdb::{Connection, params};
use orrery_ledger::domain::ProgramId;
use parking_lot::RwLock;

use super::conversion::conversion;
use super::database::{OWN_SCHEMA, refused, storage_failure};
use super::views::{self, Views, all_names};
use crate::names::{self, quoted};
use crate::schema::TableSchema;
use crate::wire::{Definition, Failure};

/// Applies changes, one at a time.
pub struct Changer<'a> {
    connection: &'a Connection,
    /// Programs as of the last commit.
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    /// Names of the tables and views of those programs, shared with the query threads.
    names: Names,
    /// Views as of the last commit.
    views: Views,
    change: Option<Change>,
}

/// Names of the owner's tables and views in lower case, as of the last commit. The set is replaced
/// by a new one whenever the names may have changed.
pub type Names = Arc<RwLock<Arc<BTreeSet<String>>>>;

/// A change in progress.
struct Change {
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    /// Views at this point of the transaction.
    views: Views,
    /// Whether the views have to be updated before the commit.
    views_change: bool,
    /// Why the change failed; its further steps are skipped.
    failed: Option<Failure>,
}

impl<'a> Changer<'a> {
    /// Creates the changer for a database with these programs.
    pub fn new(connection: &'a Connection, programs: Vec<Definition>, names: Names) -> Self {
        let programs = programs.into_iter().map(|it| (it.program, it));
        let programs = Arc::new(programs.collect());
        *names.write() = Arc::new(all_names(&programs));
        let mut changer = Self { connection, programs, names, views: Views::new(), change: None };
        if let Err(failure) = changer.update_views() {
            // The parent logs standard error, if it still reads it. The next change creates the views,
            // or reports what is wrong.
            let sentence = format!("the views of tables cannot be updated: {failure:?}\n");
            drop(io::stderr().write_all(sentence.as_bytes()));
        }
        changer
    }

    /// Brings the views of a file that another version of the program has written up to date.
    fn update_views(&mut self) -> Result<(), Failure> {
        let desired = views::desired(&self.programs);
        self.views = views::existing(self.connection, &desired)?;
        if self.views == desired {
            return Ok(());
        }
        run(self.connection, "BEGIN TRANSACTION")?;
        let mut views = self.views.clone();
        let updated = views::update(self.connection, &mut views, &desired);
        match updated.and_then(|()| run(self.connection, "COMMIT")) {
            Ok(()) => {
                self.views = views;
                Ok(())
            }
            Err(failure) => {
                self.roll_back();
                Err(failure)
            }
        }
    }

    /// Begins a change, and rolls back one that was not ended.
    pub fn begin(&mut self) {
        self.abort();
        let failed = self.connection.execute_batch("BEGIN TRANSACTION").err().map(storage_failure);
        let (programs, views) = (Arc::clone(&self.programs), self.views.clone());
        self.change = Some(Change { programs, views, views_change: false, failed });
    }

    /// Creates or alters the tables of a program.
    pub fn define(&mut self, definition: Definition) {
        let connection = self.connection;
        self.step(|change| {
            let known = change.programs.get(&definition.program);
            for table in definition.schema.stored_tables() {
                let old = known.and_then(|known| find(known, &table.target));
                match old {
                    None => {
                        create(connection, &mut change.views, definition.program, table)?;
                    }
                    Some(old) if old == table => {}
                    Some(old) => {
                        alter(connection, &mut change.views, definition.program, old, table)?;
                    }
                }
            }
            let schema = serde_json::to_string(&definition.schema)
                .map_err(|error| Failure::Unavailable(error.to_string()))?;
            let Definition { program, project, own, .. } = &definition;
            delete(connection, "programs", *program)?;
            let insert = format!("INSERT INTO {OWN_SCHEMA}.programs VALUES (?, ?, ?, ?)");
            connection
                .execute(&insert, params![program.0, project, own, schema])
                .map_err(storage_failure)?;
            if known.is_none() {
                let insert = format!("INSERT INTO {OWN_SCHEMA}.watermarks VALUES (?, 0)");
                connection.execute(&insert, params![program.0]).map_err(storage_failure)?;
            }
            change.views_change = true;
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
            let mut appender = connection.appender_to_db(table, names::SCHEMA).map_err(refused)?;
            for batch in batches {
                appender.append_record_batch(batch.map_err(unreadable)?).map_err(refused)?;
            }
            appender.flush().map_err(refused)
        });
    }

    /// Removes a program.
    pub fn drop(&mut self, program: ProgramId) {
        let connection = self.connection;
        self.step(|change| {
            let programs = Arc::make_mut(&mut change.programs);
            let Some(definition) = programs.remove(&program) else { return Ok(()) };
            for table in definition.schema.stored_tables() {
                let table = names::table(program, &table.target);
                views::drop_matching(connection, &mut change.views, |view| view.shows(&table))?;
                let table = quoted(&table);
                run(connection, &format!("DROP TABLE {}.{table}", names::SCHEMA))?;
            }
            delete(connection, "programs", program)?;
            delete(connection, "watermarks", program)?;
            change.views_change = true;
            Ok(())
        });
    }

    /// Commits the change.
    ///
    /// # Errors
    /// When any step of the change failed. Then the change is rolled back.
    pub fn commit(
        &mut self,
        commit: u64,
        watermarks: &BTreeMap<ProgramId, u64>,
    ) -> Result<(), Failure> {
        let connection = self.connection;
        self.step(|change| {
            if change.views_change {
                let desired = views::desired(&change.programs);
                views::update(connection, &mut change.views, &desired)?;
            }
            let update = format!("UPDATE {OWN_SCHEMA}.watermarks SET number = ? WHERE program = ?");
            for (program, number) in watermarks {
                connection.execute(&update, params![number, program.0]).map_err(storage_failure)?;
            }
            let update = format!("UPDATE {OWN_SCHEMA}.state SET commits = ?");
            connection.execute(&update, params![commit]).map_err(storage_failure)?;
            run(connection, "COMMIT")
        });
        let Some(change) = self.change.take() else {
            return Err(Failure::Unavailable("no change was begun".to_owned()));
        };
        match change.failed {
            None => {
                if change.views_change {
                    *self.names.write() = Arc::new(all_names(&change.programs));
                }
                self.views = change.views;
                self.programs = change.programs;
                Ok(())
            }
            Some(failure) => {
                self.roll_back();
                Err(failure)
            }
        }
    }

    /// Rolls back a change in progress, if there is one.
    pub fn abort(&mut self) {
        if self.change.take().is_some() {
            self.roll_back();
        }
    }

    fn roll_back(&self) {
        // A transaction that failed at its commit no longer exists.
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
    definition.schema.stored_tables().find(|table| table.target == target)
}

fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    connection.execute_batch(sql).map_err(refused)
}

fn delete(connection: &Connection, table: &str, program: ProgramId) -> Result<(), Failure> {
    let delete = format!("DELETE FROM {OWN_SCHEMA}.{table} WHERE program = ?");
    connection.execute(&delete, params![program.0]).map_err(storage_failure).map(drop)
}

fn full_name(program: ProgramId, table: &TableSchema) -> String {
    format!("{}.{}", names::SCHEMA, quoted(&names::table(program, &table.target)))
}

fn create(
    connection: &Connection,
    views: &mut Views,
    program: ProgramId,
    table: &TableSchema,
) -> Result<(), Failure> {
    // A view may occupy the table's name; tables have precedence.
    let name = names::table(program, &table.target);
    views::drop_matching(connection, views, |view| view.has_name_of(&name))?;
    let injected = names::INJECTED.iter().map(|(name, kind)| format!("{} {kind}", quoted(name)));
    let own = table.columns.iter().map(|it| format!("{} {}", quoted(&it.name), it.kind));
    let columns: Vec<String> = injected.chain(own).collect();
    run(connection, &format!("CREATE TABLE {} ({})", full_name(program, table), columns.join(", ")))
}

fn alter(
    connection: &Connection,
    views: &mut Views,
    program: ProgramId,
    old: &TableSchema,
    new: &TableSchema,
) -> Result<(), Failure> {
    // A view with outdated columns cannot be queried; the commit creates it again.
    let table = names::table(program, &new.target);
    views::drop_matching(connection, views, |view| view.shows(&table))?;
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
