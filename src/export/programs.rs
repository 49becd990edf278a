//! Exports the tables of programs. Rows are taken run by run, in the order in which the runs were
//! made, which differs from the order of their ledgers; the manifest records the last exported run.
//! A program whose tables have gained columns is continued. The files of a program are written anew
//! and replace the old ones all at once when a column was widened to another type, when the program
//! was replaced by another one, when earlier rows of a project of events have changed or are in
//! other tables, or when its last exported run differs from the store's, as after a backup was
//! restored. When the store has fewer runs than the export, as in a checkpoint that is
//! older than it, the export stays unchanged.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::Result;
use super::files::{Numbers, ROW_GROUP_BYTES, TableWriter};
use super::manifest::{ExportedProgram, ExportedTable};
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
            && before.map_or(program.last > 0, |it| {
                !is_same(it, program)
                    || it.runs < program.last
                    || program.arrangement() != Some(it.arrangement)
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

/// Returns whether the exported program is missing from the store and is not marked as deleted yet.
fn is_gone(exported: &ExportedProgram, programs: &[LoggedProgram]) -> bool {
    !exported.deleted && !programs.iter().any(|it| it.manifest.id.0 == exported.id)
}

/// A table of a program with its current columns.
struct Current {
    /// Target of the program's emits.
    name: String,
    columns: Vec<(String, String)>,
    table: PortableTable,
}

impl Export {
    /// Adds rows of programs that are not in the export yet, and marks programs that were deleted.
    /// A program whose rows cannot be exported does not hold up the others.
    ///
    /// # Errors
    /// When something cannot be read or written. Rows that were added before stay.
    pub fn add_programs(&mut self, store: &Store) -> Result<AddedRows> {
        let programs = programs_of(store, self.names.is_some())?;
        let interfaces = self.names.as_ref().map(|names| EventInterfaces::new(Arc::clone(names)));
        let mut added = AddedRows::default();
        for program in &programs {
            match self.add_program(store, interfaces.as_ref(), program) {
                Ok(rows) => added.rows += rows,
                Err(error) if error.is_about_rows() => {
                    let program = program.manifest.id;
                    tracing::warn!(%program, "rows of a program are not exported: {error}");
                    added.failed += 1;
                }
                Err(error) => return Err(error),
            }
        }
        if self.manifest.programs.iter().any(|it| is_gone(it, &programs)) {
            let mut manifest = self.manifest.clone();
            for program in &mut manifest.programs {
                program.deleted |= is_gone(program, &programs);
            }
            self.destination.write_manifest(&mut manifest)?;
            self.manifest = manifest;
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
        let tables = program.manifest.schema.tables().iter().map(|table| {
            let portable = PortableTable::new(table)?;
            let schema = portable.schema();
            let columns = schema.fields().iter();
            let columns = columns.map(|it| (it.name().clone(), it.data_type().to_string()));
            Ok(Current { name: table.target.clone(), columns: columns.collect(), table: portable })
        });
        let tables: Vec<_> =
            tables.collect::<Result<_, _>>().map_err(|source| ExportError::Rows(id, source))?;
        let before = self.manifest.programs.iter().find(|it| it.id == id.0);
        let export_is_ahead =
            before.is_some_and(|it| is_same(it, program) && it.runs > program.last);
        if export_is_ahead || (before.is_none() && program.last == 0) {
            return Ok(0);
        }
        let appends = match before {
            Some(before) => {
                can_append(before, program, &tables)
                    && before.arrangement == arrangement
                    && before.last_run
                        == row_log::transaction_of(store, id, before.runs)?.map(numbers_of)
            }
            None => false,
        };
        if appends && before.is_some_and(|it| it.runs == program.last) {
            return Ok(0);
        }
        let replaced: Vec<String> = match before {
            Some(before) if !appends => {
                let files = before.tables.iter().flat_map(|table| &table.files);
                files.map(|file| file.path.clone()).collect()
            }
            _ => Vec::new(),
        };
        let mut now = match before {
            Some(before) if appends => before.clone(),
            before => ExportedProgram { arrangement, ..new_entry(program, before) },
        };
        let rows_before = before.filter(|it| is_same(it, program)).map_or(0, ExportedProgram::rows);
        loop {
            let more = self.write_part(store, interfaces, program, &tables, &mut now)?;
            if !program.is_unchanged(store)? {
                // The next export removes the files.
                let before = self.manifest.programs.iter().find(|it| it.id == id.0);
                return Ok(before.map_or(0, ExportedProgram::rows).saturating_sub(rows_before));
            }
            // When the files replace others, the manifest is updated only once, after the last
            // part.
            if appends || !more {
                self.put_program(now.clone())?;
            }
            if !more {
                break;
            }
        }
        replaced.iter().try_for_each(|path| self.destination.remove(path))?;
        Ok(now.rows().saturating_sub(rows_before))
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
        let directory = format!("{PROGRAMS}/{id}-{}", program.manifest.project_name);
        let mut writers = BTreeMap::<usize, TableWriter<'_>>::new();
        let (mut up_to, mut more) = (now.runs, true);
        while more {
            self.check_interrupt()?;
            let batch = program.rows_after(store, interfaces, up_to)?;
            (more, up_to) = (batch.more, batch.up_to);
            now.last_run = batch.last.map(numbers_of).or(now.last_run);
            for (at, rows) in by_table(&batch.rows, program, tables)? {
                let Current { name, table, .. } = &tables[at];
                let writer = writers.entry(at).or_insert_with(|| {
                    let numbers = Numbers::From(table_of(now, name).map_or(0, |it| it.next_file));
                    let directory = format!("{directory}/{name}");
                    TableWriter::new(&self.destination, directory, numbers, table.schema())
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
            if bytes >= self.destination.most_bytes() {
                break;
            }
        }
        for (at, writer) in writers {
            let files = writer.finish()?;
            let Current { name, columns, .. } = &tables[at];
            let table = match now.tables.iter().position(|it| it.name == *name) {
                Some(at) => &mut now.tables[at],
                None => {
                    let (name, files) = (name.clone(), Vec::new());
                    now.tables.push(ExportedTable {
                        name,
                        columns: Vec::new(),
                        next_file: 0,
                        files,
                    });
                    let last = now.tables.len() - 1;
                    &mut now.tables[last]
                }
            };
            table.columns.clone_from(columns);
            table.next_file += files.len() as u32;
            table.files.extend(files);
        }
        now.runs = if more { up_to } else { program.last };
        Ok(more)
    }

    /// Replaces the entry of a program in the manifest.
    fn put_program(&mut self, program: ExportedProgram) -> Result<()> {
        let mut manifest = self.manifest.clone();
        let programs = &mut manifest.programs;
        match programs.binary_search_by_key(&program.id, |it| it.id) {
            Ok(at) => programs[at] = program,
            Err(at) => programs.insert(at, program),
        }
        self.destination.write_manifest(&mut manifest)?;
        self.manifest = manifest;
        Ok(())
    }
}

/// Returns whether new rows can be appended to the existing files: every exported table still
/// exists with its columns unchanged, and new columns come last.
fn can_append(before: &ExportedProgram, program: &LoggedProgram, tables: &[Current]) -> bool {
    let is_wider = |before: &ExportedTable| {
        let now = tables.iter().find(|table| table.name == before.name);
        now.is_some_and(|now| now.columns.starts_with(&before.columns))
    };
    is_same(before, program) && before.tables.iter().all(is_wider)
}

/// Creates the entry of a program of which nothing is exported yet, or whose files are written
/// anew.
fn new_entry(program: &LoggedProgram, before: Option<&ExportedProgram>) -> ExportedProgram {
    let manifest = &program.manifest;
    // File numbers are not reused: otherwise a path would temporarily hold rows that differ from
    // those that the manifest describes.
    let kept = |table: &ExportedTable| ExportedTable { files: Vec::new(), ..table.clone() };
    ExportedProgram {
        id: manifest.id.0,
        owner: manifest.owner.0.clone(),
        project: manifest.project_name.clone(),
        deployed_at: manifest.deployed_at,
        deleted: false,
        runs: 0,
        last_run: None,
        arrangement: 0,
        tables: before.map(|it| it.tables.iter().map(kept).collect()).unwrap_or_default(),
    }
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
