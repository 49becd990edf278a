//! The order in which a commit is written, and what may be removed when. Whenever the writer is killed, the
//! export's manifest names only files that are there or can be made again from it, and the current metadata
//! of a table only files that are there.
//!
//! | Step | Killed after it |
//! |---|---|
//! | data files | they are strays: nothing names them |
//! | the export's manifest, with the states of the tables | what follows is made again from it ([`restore`](crate::restore)) |
//! | manifests, manifest list, metadata | nothing names the metadata yet; it is written again |
//! | the pointer to the metadata | what follows are strays |
//! | removal of what nothing names any more | |
//!
//! So a writer that begins calls [`restore`](crate::restore) for every table, carries out the plan of that,
//! and only then removes the files that neither the manifest nor [`TableState::paths`](crate::TableState::paths)
//! name. A catalogue shows the metadata of a commit once its pointer is written.

use crate::snapshot::{Commit, Written};

/// A step of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Replace the export's manifest.
    Manifest,
    /// Write a new file. In a bucket it must not exist (`If-None-Match: *`): if it does, it has the same
    /// content, because its name says what it contains.
    Write(Written),
    /// Replace the file that names the current metadata of a table.
    Point(Written),
    /// Remove a file. It may be missing.
    Remove(String),
}

/// Returns the steps with which commits are written, once their data files are. `retired` are paths of
/// files that were never part of a snapshot. `is_named` says whether the export's manifest, as it is written
/// now, names a file: tables may share files, which are named by what they contain.
pub fn plan(
    commits: Vec<Commit>,
    retired: Vec<String>,
    is_named: impl Fn(&str) -> bool,
) -> Vec<Step> {
    let mut steps = vec![Step::Manifest];
    let mut unneeded = retired;
    for commit in commits {
        steps.extend(commit.files.into_iter().map(Step::Write));
        steps.push(Step::Point(commit.pointer));
        unneeded.extend(commit.unneeded);
    }
    unneeded.sort_unstable();
    unneeded.dedup();
    steps.extend(unneeded.into_iter().filter(|path| !is_named(path)).map(Step::Remove));
    steps
}

/// A destination in which steps are carried out.
pub trait Writer {
    /// Why a step cannot be carried out.
    type Error;

    /// Carries out a step; what it writes is durable when this returns.
    ///
    /// # Errors
    /// When the destination cannot be written.
    fn carry_out(&mut self, step: &Step) -> Result<(), Self::Error>;
}

/// Carries out steps in their order.
///
/// # Errors
/// That of the first step that fails. The steps after it are not carried out.
pub fn execute<W: Writer>(steps: &[Step], writer: &mut W) -> Result<(), W::Error> {
    steps.iter().try_for_each(|step| writer.carry_out(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_table_names_is_not_removed() {
        let file = |path: &str| Written { path: path.to_owned(), bytes: Vec::new() };
        let commit = |number: u64, unneeded: &[&str]| Commit {
            number,
            files: vec![file("m"), file("metadata")],
            pointer: file("pointer"),
            unneeded: unneeded.iter().map(|path| (*path).to_owned()).collect(),
        };
        let commits = vec![commit(7, &["shared", "old"]), commit(9, &["old", "z"])];
        let steps = plan(commits, vec!["draft".to_owned()], |path| path == "shared");
        let write = |path: &str| Step::Write(file(path));
        let of_commit = [write("m"), write("metadata"), Step::Point(file("pointer"))];
        let removed = ["draft", "old", "z"].map(|path| Step::Remove(path.to_owned()));
        let expected = [&[Step::Manifest][..], &of_commit, &of_commit, &removed].concat();
        assert_eq!(steps, expected);
    }
}
