//! What becomes of the tables of a program whose rows were written anew: each of which rows have changed gets
//! the new files at once, and the others keep theirs.

use orrery_iceberg::{DataFile, layout as metadata};

use super::manifest::{ExportedProgram, ExportedTable};
use super::merge::sum_of;

/// Gives the entry `now`, of which all rows were written anew, the states of the tables that it replaces.
/// Tables whose rows have not changed keep their files. Returns the paths that are not needed any more.
pub(super) fn replace(before: &ExportedProgram, now: &mut ExportedProgram) -> Vec<String> {
    let mut retired = Vec::new();
    for old in &before.tables {
        let same =
            |it: &&mut ExportedTable| it.name == old.name && it.identity.uuid == old.identity.uuid;
        match now.tables.iter_mut().find(same) {
            Some(table) if has_same_rows(old, table) => {
                let unused = std::mem::replace(&mut table.files, old.files.clone());
                retired.extend(unused.into_iter().map(|file| file.path));
            }
            Some(table) => {
                let gone = table.state.replace(old.files.clone(), &mut table.files);
                retired.extend(gone.into_iter().map(|file| file.path));
            }
            // Another program had this number.
            None => {
                retired.extend(old.files.iter().map(|file| file.path.clone()));
                retired.extend(old.state.paths().map(str::to_owned));
                if !old.identity.uuid.is_empty() {
                    retired.push(metadata::pointer(&old.identity.uuid));
                }
            }
        }
    }
    retired
}

/// Returns whether two entries of a table have the same rows and columns, as far as that is known.
fn has_same_rows(old: &ExportedTable, new: &ExportedTable) -> bool {
    let rows = |table: &ExportedTable| table.files.iter().map(|file| file.rows).sum::<u64>();
    let ids = |table: &ExportedTable| table.identity.current().map(|it| it.id).collect::<Vec<_>>();
    let columns = new.columns.len() as u32;
    let has_all = |file: &DataFile| file.columns == Some(columns);
    let sums = (sum_of(&old.files), sum_of(&new.files));
    old.columns == new.columns
        && ids(old) == ids(new)
        && old.files.iter().all(has_all)
        && rows(old) == rows(new)
        && sums.0.is_some()
        && sums.0 == sums.1
}
