//! The tables of an export as Iceberg's ([`orrery_iceberg`]): which columns each has now, when it gets a
//! commit, and what a writer that begins has to write again.

use orrery_iceberg::{
    Change, Column, Columns, Commit, CommitError, DataFile, KnownColumn, Table, TableState, commit,
    is_due, is_needed, layout, restore,
};

use super::error::{ExportError, Result};
use super::manifest::{ChainTable, ExportedTable, Manifest};

/// Time in milliseconds for which a table without new rows keeps expired snapshots: each commit that lets
/// one go writes metadata.
const EXPIRED_MS: i64 = 3_600_000;

/// Names of the columns with the ledger and its close time, in the tables of events and transactions and in
/// those of programs.
pub(super) const OF_CHAIN: [&str; 2] = ["ledger", "ledger_closed_at"];
pub(super) const OF_PROGRAMS: [&str; 2] = ["_ledger", "_ledger_closed_at"];

/// A table of a manifest.
pub(super) struct TableMut<'m> {
    pub columns: &'m Columns,
    /// Its columns, in their order.
    pub now: Vec<Column>,
    /// Names of the columns with the ledger and its close time.
    pub times: [&'static str; 2],
    pub state: &'m mut TableState,
    pub files: &'m mut Vec<DataFile>,
}

/// Where the files of an export are, and who writes them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Address or absolute path of the destination, without a slash at its end.
    pub root: &'a str,
    /// Text that distinguishes the files of this writer from those of others.
    pub mark: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn table(self, columns: &'a Columns, times: [&'static str; 2]) -> Table<'a> {
        let [ledger, closed_at] = times;
        let Self { root, mark } = self;
        Table { root, columns, ledger: Some(ledger), closed_at: Some(closed_at), mark }
    }
}

/// Which tables get a commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// What the commits are to do.
    pub change: Change,
    /// Whether the export has nothing to add after them.
    pub is_last: bool,
}

/// Returns the columns of a table of events or transactions, in their order: no column is ever removed.
pub(super) fn columns_of_chain(table: &ChainTable) -> Vec<Column> {
    table.identity.current().map(KnownColumn::column).collect()
}

/// Returns the columns of a program's table, in their order.
pub(super) fn columns_of_program(table: &ExportedTable) -> Vec<Column> {
    let known = |(name, _): &(String, String)| table.identity.current().find(|it| it.name == *name);
    table.columns.iter().filter_map(known).map(KnownColumn::column).collect()
}

/// Returns the tables of a manifest. One that an earlier version has written, and that was not exported
/// since, has no ids of columns: it is none.
pub(super) fn tables(manifest: &mut Manifest) -> Vec<TableMut<'_>> {
    let Manifest { chain, tables, programs, .. } = manifest;
    let of_chain = [
        (&mut chain.events, &mut tables.events),
        (&mut chain.transactions, &mut tables.transactions),
    ];
    let of_chain = of_chain.into_iter().map(|(table, files)| {
        let now = columns_of_chain(table);
        TableMut { columns: &table.identity, now, times: OF_CHAIN, state: &mut table.state, files }
    });
    let of_programs = programs.iter_mut().flat_map(|program| &mut program.tables);
    let of_programs = of_programs.map(|table| {
        let now = columns_of_program(table);
        let ExportedTable { identity, state, files, .. } = table;
        TableMut { columns: identity, now, times: OF_PROGRAMS, state, files }
    });
    of_chain.chain(of_programs).filter(|table| !table.columns.uuid.is_empty()).collect()
}

impl TableMut<'_> {
    /// Returns whether the table is to get a commit.
    fn is_due(&self, table: &Table<'_>, due: Due) -> bool {
        let needs = |change| is_needed(self.state, table, &self.now, self.files, change);
        let Due { change, is_last } = due;
        // At the beginning of time, no snapshot has expired.
        if needs(Change { now_ms: 0, ..change }) {
            return change.rebase || is_due(self.state, table.root, change.now_ms, is_last);
        }
        let is_old = change.now_ms.saturating_sub(self.state.timestamp_ms) >= EXPIRED_MS;
        is_last && is_old && needs(change)
    }

    /// Makes the next commit of the table, if there is something to do.
    pub fn commit(&mut self, place: Place<'_>, change: Change) -> Result<Option<Commit>> {
        let table = place.table(self.columns, self.times);
        let made = commit(self.state, &table, &self.now, self.files, change);
        made.map_err(unusable)
    }
}

/// Returns whether a table of the manifest is to get a commit.
pub(super) fn is_behind(manifest: &mut Manifest, place: Place<'_>, due: Due) -> bool {
    tables(manifest).iter().any(|it| it.is_due(&place.table(it.columns, it.times), due))
}

/// Makes the commits of the tables that are due.
pub(super) fn commits(manifest: &mut Manifest, place: Place<'_>, due: Due) -> Result<Vec<Commit>> {
    let mut commits = Vec::new();
    for mut it in tables(manifest) {
        if it.is_due(&place.table(it.columns, it.times), due) {
            commits.extend(it.commit(place, due.change)?);
        }
    }
    Ok(commits)
}

/// Returns the commits of a writer that was killed as far as they have to be written again. `pointer` reads
/// the file of this path, which names the metadata of a table.
pub(super) fn restored(
    manifest: &mut Manifest,
    place: Place<'_>,
    mut pointer: impl FnMut(&str) -> Result<Option<Vec<u8>>>,
) -> Result<Vec<Commit>> {
    let mut commits = Vec::new();
    for TableMut { columns, times, state, files, .. } in tables(manifest) {
        if state.commit == 0 || state.root != place.root {
            continue;
        }
        let found = pointer(&layout::pointer(&columns.uuid))?;
        let restored = restore(state, &place.table(columns, times), files, found.as_deref());
        commits.extend(restored.map_err(unusable)?);
    }
    Ok(commits)
}

/// Fails if the metadata of a table names another place than the export has now: every engine would look for
/// its files there.
pub(super) fn check_root(manifest: &Manifest, root: &str) -> Result<()> {
    match manifest.states().find(|state| state.commit > 0 && state.root != root) {
        None => Ok(()),
        Some(state) => {
            let (before, now) = (state.root.clone(), root.to_owned());
            Err(unusable(CommitError::Moved { before, now }))
        }
    }
}

fn unusable(error: CommitError) -> ExportError {
    match error {
        CommitError::Moved { before, now } => ExportError::Place(format!(
            "the export in {now} was written to {before}, and names its files there: run `orrery export \
             --rebase` with it once, if it was moved or copied"
        )),
        other => ExportError::Manifest(other.to_string()),
    }
}
