//! Exports the tables of programs. Rows are taken run by run, in the order in which the runs were
//! made, which differs from the order of their ledgers; the manifest records the last exported run.
//! A program whose tables have gained columns is continued, and so are files of earlier versions, in
//! which integers of 128 bits are texts. The files of a program are written anew
//! and replace the old ones all at once when a column was widened to another type, when the program
//! was replaced by another one, when earlier rows of a project of events have changed or are in
//! other tables, or when its last exported run differs from the store's, as after a backup was
//! restored. When the store has fewer runs than the export, as in a checkpoint that is
//! older than it, the export stays unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arrow::datatypes::{DataType, Schema};
use orrery_iceberg::{Column, Columns, TableState};

use super::columns;
use super::error::Result;
use super::files::{ROW_GROUP_BYTES, TableWriter};
use super::manifest::{ExportedProgram, ExportedTable};
use super::replaced::replace;
use super::{Export, ExportError, PROGRAMS};
use orrery_ledger::domain::LedgerRange;
use orrery_programs::events::EventInterfaces;
use orrery_programs::row_log::{self, LoggedProgram};
use orrery_store::{Store, StoreError, TransactionPosition};
use orrery_tables::export_types::PortableTable;
use orrery_tables::{Row, TablesError};

/// Maximum number of rows that are converted to columns at a time.
const MAX_ROWS: usize = 4096;

/// Rows that one run of an export has added to the tables of programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddedRows {
    /// Number of rows that were not in the export before.
    pub rows: u64,
    /// Number of programs whose rows cannot be exported; the log has the reasons.
    pub failed: usize,
}

/// Returns the programs of a store whose tables are exported, sorted by id. The tables of projects of
/// events need interfaces.
fn programs_of(store: &Store, has_interfaces: bool) -> Result<Vec<LoggedProgram>, StoreError> {
    let mut programs = row_log::programs(store)?;
    programs.retain(|program| has_interfaces || program.manifest.events.is_none());
    Ok(programs)
}

/// Returns whether the store has something to add to the `exported` programs of the manifest.
pub(super) fn is_behind(
    exported: &[ExportedProgram],
    store: &Store,
    has_interfaces: bool,
) -> Result<bool, StoreError> {
    let programs = programs_of(store, has_interfaces)?;
    let is_new = |program: &LoggedProgram| {
        let before = exported.iter().find(|it| it.id == program.manifest.id.0);
        // A project of events is looked at again once its rows have been derived anew.
        program.arrangement().is_some()
            && before.map_or(has_tables(program), |it| {
                !is_same(it, program)
                    || it.runs < program.last
                    || program.arrangement() != Some(it.arrangement)
                    || !has_tables_of(it, program)
            })
    };
    Ok(programs.iter().any(is_new) || exported.iter().any(|it| is_gone(it, &programs)))
}

/// Returns whether the exported program is this program of the store and is not marked as deleted.
fn is_same(exported: &ExportedProgram, program: &LoggedProgram) -> bool {
    let manifest = &program.manifest;
    (exported.id, exported.deployed_at, exported.deleted)
        == (manifest.id.0, manifest.deployed_at, false)
        && exported.owner == manifest.owner.0
        && exported.project == manifest.project_name
}

/// Returns whether the entry of a program has the tables that it has now, with their columns and versions,
/// with or without rows. Tables that cannot be exported are none that lack.
fn has_tables_of(exported: &ExportedProgram, program: &LoggedProgram) -> bool {
    let Ok(tables) = current(program) else { return true };
    let has =
        |now: &Current| table_of(exported, &now.name).is_some_and(|it| it.columns == now.columns());
    exported.versions == program.manifest.schema.versions() && tables.iter().all(has)
}

/// Returns whether the exported program is missing from the store and is not marked as deleted yet.
fn is_gone(exported: &ExportedProgram, programs: &[LoggedProgram]) -> bool {
    !exported.deleted && !programs.iter().any(|it| it.manifest.id.0 == exported.id)
}

/// Returns whether the program has something to export, if only tables without rows.
fn has_tables(program: &LoggedProgram) -> bool {
    !program.manifest.schema.tables().is_empty()
}

/// A table of a program with its current columns.
struct Current {
    /// Target of the program's emits.
    name: String,
    schema: Arc<Schema>,
    table: PortableTable,
}

impl Current {
    /// Returns the table as the manifest has it, if this was its entry before.
    fn entry(&self, mut now: ExportedTable) -> ExportedTable {
        now.identity.set(&self.typed());
        now.columns = self.columns();
        now
    }

    /// Returns its columns.
    fn typed(&self) -> Vec<Column> {
        columns::columns_of(&self.schema, |name| self.table.exact_of(name))
    }

    /// Returns the names and types of its columns as the manifest has them.
    fn columns(&self) -> Vec<(String, String)> {
        let columns = self.schema.fields().iter();
        columns.map(|it| (it.name().clone(), it.data_type().to_string())).collect()
    }

    /// Returns the entry of the table with ids for its columns, if an earlier version has written it. It
    /// stays without if its files cannot be continued.
    fn identified(&self, before: &ExportedTable, texts: &[&str]) -> ExportedTable {
        let is_earlier = before.identity.uuid.is_empty();
        let identity = is_earlier.then(|| {
            let text = DataType::Utf8.to_string();
            columns::of_table(texts).of_earlier(&before.columns, &self.typed(), &text)
        });
        let identity = identity.flatten().unwrap_or_else(|| before.identity.clone());
        ExportedTable { next_file: 0, identity, ..before.clone() }
    }
}

/// Returns the tables of a program with their current columns.
fn current(program: &LoggedProgram) -> Result<Vec<Current>> {
    let tables = program.manifest.schema.tables().iter().map(|table| {
        let portable = PortableTable::new(table)?;
        Ok(Current { name: table.target.clone(), schema: portable.schema(), table: portable })
    });
    let tables: Result<_, TablesError> = tables.collect();
    tables.map_err(|source| ExportError::Rows(program.manifest.id, source))
}

impl Export {
    /// Adds rows of programs that are not in the export yet, and marks programs that were deleted.
    /// A program whose rows cannot be exported does not hold up the others.
    ///
    /// # Errors
    /// When something cannot be read or written. Rows that were added before stay.
    pub fn add_programs(&mut self, store: &Store) -> Result<AddedRows> {
        let programs = programs_of(store, self.options.names.is_some())?;
        let interfaces =
            self.options.names.as_ref().map(|names| EventInterfaces::new(Arc::clone(names)));
        let mut added = AddedRows::default();
        for program in &programs {
            match self.add_program(store, interfaces.as_ref(), program) {
                Ok(rows) => added.rows += rows,
                Err(error) if error.is_about_rows() => {
                    let program = program.manifest.id;
                    tracing::warn!(%program, "rows of a program are not exported: {error}");
                    added.failed += 1;
                    self.has_strays = true;
                }
                Err(error) => return Err(error),
            }
        }
        if self.manifest.programs.iter().any(|it| is_gone(it, &programs)) {
            let mut manifest = self.manifest.clone();
            for program in &mut manifest.programs {
                program.deleted |= is_gone(program, &programs);
            }
            self.put(manifest, Vec::new())?;
        }
        Ok(added)
    }

    /// Adds the new rows of a program and returns their number. Rows of a project of events that are
    /// being derived anew are added later.
    fn add_program(
        &mut self,
        store: &Store,
        interfaces: Option<&EventInterfaces>,
        program: &LoggedProgram,
    ) -> Result<u64> {
        let id = program.manifest.id;
        let Some(arrangement) = program.arrangement() else { return Ok(0) };
        let tables = current(program)?;
        let stored = self.manifest.programs.iter().find(|it| it.id == id.0);
        let export_is_ahead =
            stored.is_some_and(|it| is_same(it, program) && it.runs > program.last);
        if export_is_ahead || (stored.is_none() && !has_tables(program)) {
            return Ok(0);
        }
        let network = &self.manifest.network_passphrase;
        let before = stored.map(|it| identified(it, program, &tables, network));
        let begun = begun(before.as_ref(), program, &tables, network);
        let appends = match &before {
            Some(before) => {
                can_append(before, program, &begun)
                    && before.arrangement == arrangement
                    && before.last_run
                        == row_log::transaction_of(store, id, before.runs)?.map(numbers_of)
            }
            None => false,
        };
        let files = before.as_ref().filter(|_| appends);
        let now = ExportedProgram { arrangement, ..with_files(begun, files) };
        if appends && now.runs == program.last {
            // Tables without rows, or what they are called, may have changed.
            if stored != Some(&now) && program.is_unchanged(store)? {
                self.put_program(now, Vec::new())?;
            }
            return Ok(0);
        }
        let rows_before =
            before.as_ref().filter(|it| is_same(it, program)).map_or(0, ExportedProgram::rows);
        let replaced = before.filter(|_| !appends);
        let rows = self.add_runs(store, interfaces, program, &tables, now, replaced.as_ref())?;
        Ok(rows.saturating_sub(rows_before))
    }

    /// Adds the runs that follow the entry `now`, and returns the rows that the program has then. Its files take the
    /// place of those of the entry `replaced`, if there is one.
    fn add_runs(
        &mut self,
        store: &Store,
        interfaces: Option<&EventInterfaces>,
        program: &LoggedProgram,
        tables: &[Current],
        mut now: ExportedProgram,
        replaced: Option<&ExportedProgram>,
    ) -> Result<u64> {
        loop {
            let more = self.write_part(store, interfaces, program, tables, &mut now)?;
            if !program.is_unchanged(store)? {
                self.discard(&now)?;
                let before = self.manifest.programs.iter().find(|it| it.id == now.id);
                return Ok(before.map_or(0, ExportedProgram::rows));
            }
            // When the files replace others, the manifest is updated only once, after the last
            // part. Otherwise each part counts at once: a kill does not lose it.
            if replaced.is_none() || !more {
                let retired = replaced.map(|before| replace(before, &mut now));
                now = self.put_program(now, retired.unwrap_or_default())?;
            }
            if !more {
                return Ok(now.rows());
            }
        }
    }

    /// Writes rows of the next runs to files, as many as fit into a file, and records the files in
    /// `now`. Returns whether more runs follow.
    fn write_part(
        &self,
        store: &Store,
        interfaces: Option<&EventInterfaces>,
        program: &LoggedProgram,
        tables: &[Current],
        now: &mut ExportedProgram,
    ) -> Result<bool> {
        let id = program.manifest.id;
        let mut writers = BTreeMap::<usize, TableWriter<'_>>::new();
        let (mut up_to, mut more) = (now.runs, true);
        while more {
            self.check_interrupt()?;
            let batch = program.rows_after(store, interfaces, up_to)?;
            (more, up_to) = (batch.more, batch.up_to);
            now.last_run = batch.last.map(numbers_of).or(now.last_run);
            for (at, rows) in by_table(&batch.items, program, tables)? {
                let Current { name, schema, table } = &tables[at];
                let writer = writers.entry(at).or_insert_with(|| {
                    let identity = table_of(now, name).map(|it| &it.identity);
                    let numbered = |it| columns::numbered(it, schema);
                    let schema = identity.map_or_else(Schema::empty, numbered);
                    TableWriter::new(self.target(), PROGRAMS, schema)
                });
                for rows in rows.chunks(MAX_ROWS) {
                    let columns =
                        table.batch(rows).map_err(|source| ExportError::Rows(id, source))?;
                    writer.write(&columns, ledgers_of(rows))?;
                }
            }
            let open = writers.values().map(TableWriter::open_bytes);
            let (bytes, in_memory) = open.fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
            if in_memory >= ROW_GROUP_BYTES {
                writers.values_mut().try_for_each(TableWriter::write_out)?;
            }
            if bytes >= self.options.file_bytes {
                break;
            }
        }
        for (at, writer) in writers {
            let files = writer.finish()?;
            let table = now.tables.iter_mut().find(|it| it.name == tables[at].name);
            table.into_iter().for_each(|table| table.files.extend(files.iter().cloned()));
        }
        now.runs = if more { up_to } else { program.last };
        Ok(more)
    }

    /// Removes those files of an entry that did not become part of the export.
    fn discard(&self, program: &ExportedProgram) -> Result<()> {
        let named: BTreeSet<&str> = self.manifest.paths().collect();
        let files = program.tables.iter().flat_map(|table| &table.files);
        let paths = files.map(|file| &*file.path).filter(|path| !named.contains(path));
        paths.into_iter().try_for_each(|path| self.destination.remove(path))
    }

    /// Replaces the entry of a program in the manifest, and returns it with what commits have changed in it.
    /// `retired` are paths that it does not name any more.
    fn put_program(
        &mut self,
        program: ExportedProgram,
        retired: Vec<String>,
    ) -> Result<ExportedProgram> {
        let mut manifest = self.manifest.clone();
        let id = program.id;
        let programs = &mut manifest.programs;
        match programs.binary_search_by_key(&id, |it| it.id) {
            Ok(at) => programs[at] = program.clone(),
            Err(at) => programs.insert(at, program.clone()),
        }
        self.put(manifest, retired)?;
        let written = self.manifest.programs.iter().find(|it| it.id == id).cloned();
        Ok(written.unwrap_or(program))
    }
}

/// Returns whether new rows can be appended to the existing files: every table that has some still has
/// their columns.
fn can_append(before: &ExportedProgram, program: &LoggedProgram, now: &ExportedProgram) -> bool {
    let is_wider = |before: &ExportedTable| {
        let now = table_of(now, &before.name);
        let is_known = !before.identity.uuid.is_empty();
        before.files.is_empty()
            || now.is_some_and(|now| is_known && before.identity.can_become(&now.identity))
    };
    is_same(before, program) && before.tables.iter().all(is_wider)
}

/// Returns the entry of a program, with ids for the columns of files of earlier versions.
fn identified(
    entry: &ExportedProgram,
    program: &LoggedProgram,
    tables: &[Current],
    network: &str,
) -> ExportedProgram {
    let identified = |table: &ExportedTable| match tables.iter().find(|it| it.name == table.name) {
        Some(now) => {
            let texts = texts_of(network, program, &table.name);
            now.identified(table, &texts.each_ref().map(String::as_str))
        }
        None => table.clone(),
    };
    let tables = entry.tables.iter().map(identified).collect();
    ExportedProgram { tables, ..entry.clone() }
}

/// Returns what distinguishes a table of a program from all others.
fn texts_of(network: &str, program: &LoggedProgram, table: &str) -> [String; 4] {
    let manifest = &program.manifest;
    let (id, deployed_at) = (manifest.id.to_string(), manifest.deployed_at.to_string());
    [network.to_owned(), id, deployed_at, table.to_owned()]
}

/// Returns the entry of a program with its tables as they are now, of which nothing is exported yet.
fn begun(
    before: Option<&ExportedProgram>,
    program: &LoggedProgram,
    tables: &[Current],
    network: &str,
) -> ExportedProgram {
    let manifest = &program.manifest;
    ExportedProgram {
        id: manifest.id.0,
        owner: manifest.owner.0.clone(),
        project: manifest.project_name.clone(),
        deployed_at: manifest.deployed_at,
        deleted: false,
        runs: 0,
        last_run: None,
        of_events: manifest.events.is_some(),
        arrangement: 0,
        versions: manifest.schema.versions().to_vec(),
        tables: begun_tables(before, program, tables, network),
    }
}

/// Returns the entries of the tables of [`begun`].
fn begun_tables(
    before: Option<&ExportedProgram>,
    program: &LoggedProgram,
    tables: &[Current],
    network: &str,
) -> Vec<ExportedTable> {
    // The columns of a table keep their ids, also when its rows are written anew, and when the program
    // has it no more.
    let before = before.filter(|it| is_same(it, program)).map_or(&[][..], |it| &it.tables);
    let mut entries: Vec<ExportedTable> = before
        .iter()
        .map(|table| {
            let mut identity = table.identity.clone();
            identity.set(&[]);
            let (name, state) = (table.name.clone(), table.state.clone());
            let (columns, files) = (Vec::new(), Vec::new());
            ExportedTable { name, columns, next_file: 0, identity, state, files }
        })
        .collect();
    for current in tables {
        let at = entries.iter().position(|it| it.name == current.name).unwrap_or_else(|| {
            entries.push(ExportedTable {
                name: current.name.clone(),
                columns: Vec::new(),
                next_file: 0,
                identity: Columns::default(),
                state: TableState::default(),
                files: Vec::new(),
            });
            entries.len() - 1
        });
        let mut entry = entries[at].clone();
        if entry.identity.uuid.is_empty() {
            let texts = texts_of(network, program, &entry.name);
            entry.identity = columns::of_table(&texts.each_ref().map(String::as_str));
        }
        entries[at] = current.entry(entry);
    }
    entries
}

/// Returns the entry with the files of another one, which has its tables, and continues after these.
fn with_files(mut entry: ExportedProgram, before: Option<&ExportedProgram>) -> ExportedProgram {
    let Some(before) = before else { return entry };
    for table in &mut entry.tables {
        let before = table_of(before, &table.name);
        table.files = before.map(|it| it.files.clone()).unwrap_or_default();
    }
    ExportedProgram { runs: before.runs, last_run: before.last_run, ..entry }
}

/// Converts a transaction's position to the form in the manifest.
fn numbers_of(position: TransactionPosition) -> (u32, u32) {
    (position.ledger.0, position.application_order)
}

fn table_of<'a>(program: &'a ExportedProgram, name: &str) -> Option<&'a ExportedTable> {
    program.tables.iter().find(|table| table.name == name)
}

/// Groups rows by the index of their table, keeping their order.
fn by_table<'a>(
    rows: &'a [Row],
    program: &LoggedProgram,
    tables: &[Current],
) -> Result<BTreeMap<usize, Vec<&'a Row>>> {
    let mut sorted = BTreeMap::<usize, Vec<&Row>>::new();
    for row in rows {
        let target = &row.emit.target;
        let table = program.manifest.schema.table(target);
        let at = table.and_then(|table| tables.iter().position(|it| it.name == table.target));
        let at = at.ok_or_else(|| {
            let id = program.manifest.id;
            ExportError::Rows(id, TablesError::unknown_target(id, target))
        })?;
        sorted.entry(at).or_default().push(row);
    }
    Ok(sorted)
}

/// Returns the range from the oldest to the newest ledger of `rows`, which must not be empty.
fn ledgers_of(rows: &[&Row]) -> LedgerRange {
    let ledgers = || rows.iter().map(|row| row.ledger);
    let (first, last) = (ledgers().min(), ledgers().max());
    LedgerRange { first: first.unwrap_or_default(), last: last.unwrap_or_default() }
}
