//! The tables of programs in an export. Rows are taken run by run, in the order in which the runs were made, which is not
//! that of their ledgers; the manifest says up to which run. A program whose tables have gained columns goes on; where
//! one has become so wide that it has another type, or the program or its last exported run is another one, as after a
//! backup was restored, its files are written anew and replace the others at once. A store that has fewer runs than the
//! export, as a checkpoint that is older than it, leaves the export as it is.

use std::collections::BTreeMap;

use super::files::{Numbers, ROW_GROUP_BYTES, TableWriter};
use super::manifest::{ExportedProgram, ExportedTable};
use super::{Export, ExportError, PROGRAMS};
use crate::domain::{LedgerRange, ProgramId};
use crate::programs::row_log::{self, Logged};
use crate::store::{Store, StoreError, TransactionPosition};
use crate::tables::portable::PortableTable;
use crate::tables::{Row, TablesError};

/// Rows that are made into columns together, at the most.
const MOST_ROWS: usize = 4096;

/// What one run has added of programs' tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddedRows {
    /// Rows that were not in the export.
    pub rows: u64,
    /// Programs that have rows which cannot be exported; the log says why.
    pub failed: usize,
}

/// Whether there is something to add, where this is what the manifest has.
pub(super) fn is_behind(exported: &[ExportedProgram], store: &Store) -> Result<bool, StoreError> {
    let programs = row_log::programs(store)?;
    let is_new = |program: &Logged| {
        let before = exported.iter().find(|it| it.id == program.manifest.id.0);
        before.map_or(program.last > 0, |it| !is_same(it, program) || it.runs < program.last)
    };
    Ok(programs.iter().any(is_new) || exported.iter().any(|it| is_gone(it, &programs)))
}

/// Whether a program of an export is one that the store has, and was not noted as gone.
fn is_same(exported: &ExportedProgram, program: &Logged) -> bool {
    let manifest = &program.manifest;
    (exported.id, exported.deployed_at, exported.deleted)
        == (manifest.id.0, manifest.deployed_at, false)
        && exported.owner == manifest.owner.0
        && exported.project == manifest.project_name
}

/// Whether it is to be noted that a program is gone.
fn is_gone(exported: &ExportedProgram, programs: &[Logged]) -> bool {
    !exported.deleted && !programs.iter().any(|it| it.manifest.id.0 == exported.id)
}

/// A table as it is now.
struct Current {
    /// What the program emits to.
    name: String,
    columns: Vec<(String, String)>,
    table: PortableTable,
}

impl Export {
    /// Adds rows of programs that are not in the export yet, and notes which programs are gone. What cannot be exported
    /// of one program holds up no other.
    ///
    /// # Errors
    /// When something cannot be read or written. What was added before stays.
    pub fn add_programs(&mut self, store: &Store) -> Result<AddedRows, ExportError> {
        let programs = row_log::programs(store)?;
        let mut added = AddedRows::default();
        for program in &programs {
            match self.add_program(store, program) {
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
            self.held.write_manifest(&mut manifest)?;
            self.manifest = manifest;
        }
        Ok(added)
    }

    /// Adds the rows of a program; how many there were.
    fn add_program(&mut self, store: &Store, program: &Logged) -> Result<u64, ExportError> {
        let id = program.manifest.id;
        let tables = program.manifest.schema.tables().iter().map(|table| {
            let portable = PortableTable::new(table)?;
            let schema = portable.schema();
            let columns = schema.fields().iter();
            let columns = columns.map(|it| (it.name().clone(), it.data_type().to_string()));
            Ok(Current { name: table.target.clone(), columns: columns.collect(), table: portable })
        });
        let tables: Vec<_> =
            tables.collect::<Result<_, _>>().map_err(|source| rows_of(id, source))?;
        let before = self.manifest.programs.iter().find(|it| it.id == id.0);
        let knows_more = before.is_some_and(|it| is_same(it, program) && it.runs > program.last);
        if knows_more || (before.is_none() && program.last == 0) {
            return Ok(0);
        }
        let goes_on = match before {
            Some(before) => {
                continues(before, program, &tables)
                    && before.last_run
                        == row_log::transaction_of(store, id, before.runs)?.map(numbers_of)
            }
            None => false,
        };
        if goes_on && before.is_some_and(|it| it.runs == program.last) {
            return Ok(0);
        }
        let replaced: Vec<String> = match before {
            Some(before) if !goes_on => {
                let files = before.tables.iter().flat_map(|table| &table.files);
                files.map(|file| file.path.clone()).collect()
            }
            _ => Vec::new(),
        };
        let mut now = match before {
            Some(before) if goes_on => before.clone(),
            before => begun(program, before),
        };
        let rows_before = before.filter(|it| is_same(it, program)).map_or(0, ExportedProgram::rows);
        loop {
            let more = self.write_part(store, program, &tables, &mut now)?;
            // Files that replace others count all at once.
            if goes_on || !more {
                self.put_program(now.clone())?;
            }
            if !more {
                break;
            }
        }
        replaced.iter().try_for_each(|path| self.held.remove(path))?;
        Ok(now.rows().saturating_sub(rows_before))
    }

    /// Writes rows of the next runs into files, as many as a file may hold, and says so in `now`. Whether there are more
    /// runs after these.
    fn write_part(
        &self,
        store: &Store,
        program: &Logged,
        tables: &[Current],
        now: &mut ExportedProgram,
    ) -> Result<bool, ExportError> {
        let id = program.manifest.id;
        let directory = format!("{PROGRAMS}/{id}-{}", program.manifest.project_name);
        let mut writers = BTreeMap::<usize, TableWriter<'_>>::new();
        let (mut up_to, mut more) = (now.runs, true);
        while more {
            self.unless_interrupted()?;
            let batch = row_log::rows_after(store, id, up_to, program.last)?;
            (more, up_to) = (batch.more, batch.up_to);
            now.last_run = batch.last.map(numbers_of).or(now.last_run);
            for (at, rows) in by_table(&batch.rows, program, tables)? {
                let Current { name, table, .. } = &tables[at];
                let writer = writers.entry(at).or_insert_with(|| {
                    let numbers = Numbers::From(table_of(now, name).map_or(0, |it| it.next_file));
                    let directory = format!("{directory}/{name}");
                    TableWriter::new(&self.held, directory, numbers, table.schema())
                });
                for rows in rows.chunks(MOST_ROWS) {
                    let columns = table.batch(rows).map_err(|source| rows_of(id, source))?;
                    writer.write(&columns, ledgers_of(rows))?;
                }
            }
            let open = writers.values().map(TableWriter::open_bytes);
            let (bytes, in_memory) = open.fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
            if in_memory >= ROW_GROUP_BYTES {
                writers.values_mut().try_for_each(TableWriter::write_out)?;
            }
            if bytes >= self.held.most_bytes() {
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

    /// Replaces what the manifest says of a program.
    fn put_program(&mut self, program: ExportedProgram) -> Result<(), ExportError> {
        let mut manifest = self.manifest.clone();
        let programs = &mut manifest.programs;
        match programs.binary_search_by_key(&program.id, |it| it.id) {
            Ok(at) => programs[at] = program,
            Err(at) => programs.insert(at, program),
        }
        self.held.write_manifest(&mut manifest)?;
        self.manifest = manifest;
        Ok(())
    }
}

/// Whether new rows can be added to the files that are there. Columns come last, and no type changes.
fn continues(before: &ExportedProgram, program: &Logged, tables: &[Current]) -> bool {
    let is_wider = |before: &ExportedTable| {
        let now = tables.iter().find(|table| table.name == before.name);
        now.is_some_and(|now| now.columns.starts_with(&before.columns))
    };
    is_same(before, program) && before.tables.iter().all(is_wider)
}

/// A program of which nothing is exported, or of which everything is to be written anew.
fn begun(program: &Logged, before: Option<&ExportedProgram>) -> ExportedProgram {
    let manifest = &program.manifest;
    // No number of a file is used again: under the same path there would be other rows for a while.
    let kept = |table: &ExportedTable| ExportedTable { files: Vec::new(), ..table.clone() };
    ExportedProgram {
        id: manifest.id.0,
        owner: manifest.owner.0.clone(),
        project: manifest.project_name.clone(),
        deployed_at: manifest.deployed_at,
        deleted: false,
        runs: 0,
        last_run: None,
        tables: before.map(|it| it.tables.iter().map(kept).collect()).unwrap_or_default(),
    }
}

/// A transaction as the manifest has it.
fn numbers_of(position: TransactionPosition) -> (u32, u32) {
    (position.ledger.0, position.application_order)
}

fn table_of<'a>(program: &'a ExportedProgram, name: &str) -> Option<&'a ExportedTable> {
    program.tables.iter().find(|table| table.name == name)
}

/// Rows by the position of their table, each in their order.
fn by_table<'a>(
    rows: &'a [Row],
    program: &Logged,
    tables: &[Current],
) -> Result<BTreeMap<usize, Vec<&'a Row>>, ExportError> {
    let mut sorted = BTreeMap::<usize, Vec<&Row>>::new();
    for row in rows {
        let target = &row.emit.target;
        let table = program.manifest.schema.table(target);
        let at = table.and_then(|table| tables.iter().position(|it| it.name == table.target));
        let at = at.ok_or_else(|| {
            let id = program.manifest.id;
            rows_of(id, TablesError::UnknownTarget { program: id, target: target.clone() })
        })?;
        sorted.entry(at).or_default().push(row);
    }
    Ok(sorted)
}

/// From the oldest to the newest ledger of rows, of which there are some.
fn ledgers_of(rows: &[&Row]) -> LedgerRange {
    let ledgers = || rows.iter().map(|row| row.ledger);
    let (first, last) = (ledgers().min(), ledgers().max());
    LedgerRange { first: first.unwrap_or_default(), last: last.unwrap_or_default() }
}

fn rows_of(program: ProgramId, source: TablesError) -> ExportError {
    ExportError::Rows { program, source }
}
