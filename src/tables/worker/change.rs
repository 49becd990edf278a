//! Changes to the database: tables and views of programs, rows, and their watermarks, in one
//! transaction per change.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::sync::Arc;

use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::record_batch::RecordBatch;
use duckdb::{Connection, params};
use orrery_ledger::domain::ProgramId;
use orrery_runtime::process;
use parking_lot::RwLock;

use super::conversion::conversion;
use super::database::{OWN_SCHEMA, refused, storage_failure};
use super::views::{self, Views, all_names};
use crate::chain::ChainTable;
use crate::names::{self, quoted};
use crate::schema::{ProgramSchema, TableSchema};
use crate::wire::{Definition, Failure, Filling};

/// Number of rows after which freed memory is given back.
const MANY_ROWS: usize = 100_000;

/// Applies changes, one at a time.
pub struct Changer<'a> {
    connection: &'a Connection,
    /// Programs as of the last commit.
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    /// Tables that are being filled anew as of the last commit.
    fillings: Arc<BTreeMap<ProgramId, Filling>>,
    /// Tables of the chain, which are views, too.
    chain: Vec<ChainTable>,
    /// Names of the tables and views of those programs, shared with the query threads.
    names: Names,
    /// Views as of the last commit.
    views: Views,
    /// Whether views are those of another version of the program, because they could not be updated.
    has_old_views: bool,
    change: Option<Change>,
    /// Number of rows that were appended since freed memory was given back.
    rows_in_memory: usize,
}

/// Names of the owner's tables and views in lower case, as of the last commit. The set is replaced
/// by a new one whenever the names may have changed.
pub type Names = Arc<RwLock<Arc<BTreeSet<String>>>>;

/// A change in progress.
struct Change {
    programs: Arc<BTreeMap<ProgramId, Definition>>,
    fillings: Arc<BTreeMap<ProgramId, Filling>>,
    /// Views at this point of the transaction.
    views: Views,
    /// Whether the views have to be updated before the commit.
    views_change: bool,
    /// Columns of the tables that got rows, as they are stored.
    columns: HashMap<String, Arc<Vec<String>>>,
    /// Why the change failed; its further steps are skipped.
    failed: Option<Failure>,
}

impl<'a> Changer<'a> {
    /// Creates the changer for a database with these programs.
    pub fn new(
        connection: &'a Connection,
        programs: Vec<Definition>,
        fillings: Vec<Filling>,
        names: Names,
        chain: Vec<ChainTable>,
    ) -> Self {
        let programs = programs.into_iter().map(|it| (it.program, it));
        let programs = Arc::new(programs.collect());
        let fillings = fillings.into_iter().map(|it| (it.program, it));
        let fillings = Arc::new(fillings.collect());
        *names.write() = Arc::new(all_names(&programs, &chain));
        let mut changer = Self {
            connection,
            programs,
            fillings,
            chain,
            names,
            views: Views::new(),
            has_old_views: true,
            change: None,
            rows_in_memory: 0,
        };
        changer.update_old_views();
        changer
    }

    /// Brings views up to date that are not; the next change tries it again.
    fn update_old_views(&mut self) {
        if !self.has_old_views {
            return;
        }
        match self.update_views() {
            Ok(()) => self.has_old_views = false,
            Err(failure) => {
                // The parent logs standard error, if it still reads it.
                let sentence = format!("the views of tables cannot be updated: {failure:?}\n");
                drop(io::stderr().write_all(sentence.as_bytes()));
            }
        }
    }

    /// Brings the views of a file that another version of the program has written up to date.
    fn update_views(&mut self) -> Result<(), Failure> {
        let desired = views::desired(&self.programs, &self.chain);
        self.views = views::existing(self.connection, &desired, &self.chain)?;
        if self.views == desired && !desired.is_empty() {
            return Ok(());
        }
        run(self.connection, "BEGIN TRANSACTION")?;
        let mut views = self.views.clone();
        let updated = self
            .rename_tables(&mut views)
            .and_then(|()| views::update(self.connection, &mut views, &desired))
            .and_then(|()| views::note_rule(self.connection, &self.chain));
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

    /// Gives tables of projects of events, which earlier versions stored under the names that views have
    /// now, their names.
    fn rename_tables(&self, views: &mut Views) -> Result<(), Failure> {
        for definition in self.programs.values().filter(|it| it.is_of_events()) {
            for table in definition.schema.stored_tables() {
                let shown = names::table(definition.program, &table.target);
                if !has_table(self.connection, &shown)? {
                    continue;
                }
                // What each of them shows is not known here.
                views::drop_matching(self.connection, views, |_| true)?;
                let stored = quoted(&definition.stored(&table.target));
                let rename = format!("ALTER TABLE {} RENAME TO {stored}", full_name(&shown));
                run(self.connection, &rename)?;
            }
        }
        Ok(())
    }

    /// Begins a change, and rolls back one that was not ended.
    pub fn begin(&mut self) {
        self.abort();
        self.update_old_views();
        let failed = self.connection.execute_batch("BEGIN TRANSACTION").err().map(storage_failure);
        let (programs, views) = (Arc::clone(&self.programs), self.views.clone());
        let fillings = Arc::clone(&self.fillings);
        let columns = HashMap::new();
        self.change =
            Some(Change { programs, fillings, views, views_change: false, columns, failed });
    }

    /// Creates or alters the tables of a program.
    pub fn define(&mut self, definition: Definition) {
        let connection = self.connection;
        self.step(|change| {
            change.columns.clear();
            let known = change.programs.get(&definition.program);
            let old = known.map(|known| &known.schema);
            let name = |target: &str| definition.stored(target);
            let views = &mut change.views;
            make_tables(connection, views, name, old, &definition.schema)?;
            put_program(connection, &definition)?;
            let program = definition.program;
            if known.is_none() {
                let insert = format!("INSERT INTO {OWN_SCHEMA}.watermarks VALUES (?, 0)");
                connection.execute(&insert, params![program.0]).map_err(storage_failure)?;
            }
            change.views_change = true;
            Arc::make_mut(&mut change.programs).insert(definition.program, definition);
            Ok(())
        });
    }

    /// Creates or alters tables of a program that are filled beside those that queries see.
    pub fn fill(&mut self, filling: Filling) {
        let connection = self.connection;
        self.step(|change| {
            change.columns.clear();
            let Filling { program, schema, complete_at } = &filling;
            let old = change.fillings.get(program).map(|known| &known.schema);
            let name = |target: &str| names::filling(*program, target);
            make_tables(connection, &mut change.views, name, old, schema)?;
            delete(connection, "fillings", *program)?;
            let insert = format!("INSERT INTO {OWN_SCHEMA}.fillings VALUES (?, ?, ?)");
            connection
                .execute(&insert, params![program.0, text(schema)?, complete_at])
                .map_err(storage_failure)?;
            Arc::make_mut(&mut change.fillings).insert(*program, filling);
            Ok(())
        });
    }

    /// Removes the tables of a program that are filled beside those that queries see.
    pub fn discard(&mut self, program: ProgramId) {
        let connection = self.connection;
        self.step(|change| {
            change.columns.clear();
            let Some(filling) = Arc::make_mut(&mut change.fillings).remove(&program) else {
                return Ok(());
            };
            for table in filling.schema.stored_tables() {
                drop_table(connection, &names::filling(program, &table.target))?;
            }
            delete(connection, "fillings", program)
        });
    }

    /// Puts the tables that have been filled in the place of those that queries see.
    pub fn swap(&mut self, program: ProgramId) {
        let connection = self.connection;
        self.step(|change| {
            change.columns.clear();
            let filling = Arc::make_mut(&mut change.fillings).remove(&program);
            let shown = Arc::make_mut(&mut change.programs).get_mut(&program);
            let (Some(filling), Some(shown)) = (filling, shown) else {
                return Err(Failure::Unavailable("no tables were filled".to_owned()));
            };
            drop_tables(connection, &mut change.views, shown)?;
            for table in filling.schema.stored_tables() {
                let is_of_events = filling.schema.of_events().events.is_some();
                let name = names::stored(program, &table.target, is_of_events);
                views::drop_matching(connection, &mut change.views, |it| it.has_name_of(&name))?;
                let from = full_name(&names::filling(program, &table.target));
                run(connection, &format!("ALTER TABLE {from} RENAME TO {}", quoted(&name)))?;
            }
            shown.schema = filling.schema;
            put_program(connection, shown)?;
            change.views_change = true;
            delete(connection, "fillings", program)
        });
    }

    /// Sets which ledgers the tables of a program have all rows of.
    pub fn set_progress(&mut self, program: ProgramId, ranges: &[(u32, u32)]) {
        let connection = self.connection;
        self.step(|change| {
            if !change.programs.contains_key(&program) {
                return Ok(());
            }
            delete(connection, "progress", program)?;
            let insert = format!("INSERT INTO {OWN_SCHEMA}.progress VALUES (?, ?, ?)");
            for &(first, last) in ranges {
                connection
                    .execute(&insert, params![program.0, first, last])
                    .map_err(storage_failure)?;
            }
            Ok(())
        });
    }

    /// Appends rows to a table.
    pub fn append(&mut self, table: &str, body: &[u8]) {
        let (connection, mut rows) = (self.connection, 0);
        self.step(|change| {
            let columns = match change.columns.get(table) {
                Some(columns) => Arc::clone(columns),
                None => {
                    let columns = Arc::new(stored_columns(connection, table)?);
                    change.columns.insert(table.to_owned(), Arc::clone(&columns));
                    columns
                }
            };
            let unreadable =
                |error: ArrowError| Failure::Unavailable(format!("rows cannot be read: {error}"));
            let batches = StreamReader::try_new(body, None).map_err(unreadable)?;
            let mut appender = connection.appender_to_db(table, names::SCHEMA).map_err(refused)?;
            for batch in batches {
                let batch = batch.map_err(unreadable)?;
                rows += batch.num_rows();
                let batch = in_stored_order(batch, &columns).map_err(unreadable)?;
                appender.append_record_batch(batch).map_err(refused)?;
            }
            appender.flush().map_err(refused)
        });
        self.rows_in_memory += rows;
    }

    /// Whether there were so many rows that memory should be given back once there are no more.
    pub fn holds_memory(&self) -> bool {
        self.rows_in_memory >= MANY_ROWS
    }

    /// Gives back what rows took on their way.
    pub fn give_back_memory(&mut self) {
        self.rows_in_memory = 0;
        process::give_back_freed_memory();
    }

    /// Removes a program.
    pub fn drop(&mut self, program: ProgramId) {
        self.discard(program);
        let connection = self.connection;
        self.step(|change| {
            change.columns.clear();
            let programs = Arc::make_mut(&mut change.programs);
            let Some(definition) = programs.remove(&program) else { return Ok(()) };
            drop_tables(connection, &mut change.views, &definition)?;
            delete(connection, "programs", program)?;
            delete(connection, "watermarks", program)?;
            delete(connection, "progress", program)?;
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
        let (connection, chain) = (self.connection, self.chain.clone());
        self.step(|change| {
            if change.views_change {
                let desired = views::desired(&change.programs, &chain);
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
                    *self.names.write() = Arc::new(all_names(&change.programs, &self.chain));
                }
                self.views = change.views;
                self.programs = change.programs;
                self.fillings = change.fillings;
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

/// Creates or alters tables, named by `name` after their targets, so that `old` become `new`.
fn make_tables(
    connection: &Connection,
    views: &mut Views,
    name: impl Fn(&str) -> String,
    old: Option<&ProgramSchema>,
    new: &ProgramSchema,
) -> Result<(), Failure> {
    for table in new.stored_tables() {
        let mut known = old.into_iter().flat_map(ProgramSchema::stored_tables);
        match known.find(|known| known.target == table.target) {
            None => create(connection, views, &name(&table.target), table)?,
            Some(known) if known == table => {}
            Some(known) => alter(connection, views, &name(&table.target), known, table)?,
        }
    }
    Ok(())
}

/// Returns rows with the columns in the order in which the table has them.
fn in_stored_order(batch: RecordBatch, columns: &[String]) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let is_same = schema.fields().iter().map(|field| field.name()).eq(columns);
    if is_same {
        return Ok(batch);
    }
    let at: Result<Vec<usize>, _> = columns.iter().map(|name| schema.index_of(name)).collect();
    batch.project(&at?)
}

fn drop_tables(
    connection: &Connection,
    views: &mut Views,
    definition: &Definition,
) -> Result<(), Failure> {
    for table in definition.schema.stored_tables() {
        let table = definition.stored(&table.target);
        views::drop_matching(connection, views, |view| view.shows(&table))?;
        drop_table(connection, &table)?;
    }
    Ok(())
}

fn drop_table(connection: &Connection, table: &str) -> Result<(), Failure> {
    run(connection, &format!("DROP TABLE {}", full_name(table)))
}

fn put_program(connection: &Connection, definition: &Definition) -> Result<(), Failure> {
    let Definition { program, project, own, schema } = definition;
    delete(connection, "programs", *program)?;
    let insert = format!("INSERT INTO {OWN_SCHEMA}.programs VALUES (?, ?, ?, ?)");
    let values = params![program.0, project, own, text(schema)?];
    connection.execute(&insert, values).map_err(storage_failure).map(drop)
}

/// Returns tables in the form in which the file keeps them.
fn text(schema: &ProgramSchema) -> Result<String, Failure> {
    serde_json::to_string(schema).map_err(|error| Failure::Unavailable(error.to_string()))
}

fn run(connection: &Connection, sql: &str) -> Result<(), Failure> {
    connection.execute_batch(sql).map_err(refused)
}

fn has_table(connection: &Connection, name: &str) -> Result<bool, Failure> {
    let count = "SELECT count(*) FROM duckdb_tables() WHERE schema_name = ? AND table_name = ?";
    let found: Result<i64, _> =
        connection.query_row(count, params![names::SCHEMA, name], |row| row.get(0));
    found.map(|count| count > 0).map_err(storage_failure)
}

/// Returns the columns of a table in the order in which they are stored.
fn stored_columns(connection: &Connection, table: &str) -> Result<Vec<String>, Failure> {
    let columns = "SELECT column_name FROM duckdb_columns()
        WHERE schema_name = ? AND table_name = ? ORDER BY column_index";
    let mut statement = connection.prepare(columns).map_err(storage_failure)?;
    let names = statement.query_map(params![names::SCHEMA, table], |row| row.get(0));
    names.and_then(|names| names.collect()).map_err(storage_failure)
}

fn delete(connection: &Connection, table: &str, program: ProgramId) -> Result<(), Failure> {
    let delete = format!("DELETE FROM {OWN_SCHEMA}.{table} WHERE program = ?");
    connection.execute(&delete, params![program.0]).map_err(storage_failure).map(drop)
}

fn full_name(table: &str) -> String {
    format!("{}.{}", names::SCHEMA, quoted(table))
}

fn create(
    connection: &Connection,
    views: &mut Views,
    name: &str,
    table: &TableSchema,
) -> Result<(), Failure> {
    // A view may occupy the table's name; tables have precedence.
    views::drop_matching(connection, views, |view| view.has_name_of(name))?;
    let injected = names::INJECTED.iter().map(|(name, kind)| format!("{} {kind}", quoted(name)));
    let own = table.columns.iter().map(|it| format!("{} {}", quoted(&it.name), it.kind));
    let columns: Vec<String> = injected.chain(own).collect();
    run(connection, &format!("CREATE TABLE {} ({})", full_name(name), columns.join(", ")))
}

fn alter(
    connection: &Connection,
    views: &mut Views,
    name: &str,
    old: &TableSchema,
    new: &TableSchema,
) -> Result<(), Failure> {
    // A view with outdated columns cannot be queried; the commit creates it again.
    views::drop_matching(connection, views, |view| view.shows(name))?;
    let name = full_name(name);
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
