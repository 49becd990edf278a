//! What has to be remembered of a table's commits, and cannot be derived: it is part of the export's
//! manifest. All else that Iceberg has is made from it.
//!
//! Everything lives from one commit to another: a file or manifest that commit 5 added and commit 9 removed
//! is part of snapshots 5 to 8. Commits are numbered from 1; a snapshot has the number of its commit.

use serde::{Deserialize, Serialize};

use crate::file::{DataFile, Place};
use crate::schema::Schema;

/// Version of the form of [`TableState`]. A reader of another one must not continue from it.
pub const FORMAT: u32 = 1;

/// State of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableState {
    /// Version of this form: [`FORMAT`].
    pub format: u32,
    /// Address or absolute path of the destination that the metadata names; empty before the first commit.
    pub root: String,
    /// Number of the newest commit; 0 before the first.
    pub commit: u64,
    /// Time of the newest commit, in milliseconds since the UNIX epoch. It never goes back.
    pub timestamp_ms: i64,
    /// Number that the next file gets.
    pub next_file: u64,
    /// Schemas of the table and of its snapshots.
    pub schemas: Vec<Schema>,
    /// Id of the table's schema.
    pub schema: u32,
    /// Id that the next schema gets.
    pub next_schema: u32,
    /// Snapshots that have not expired, ascending.
    pub snapshots: Vec<Snapshot>,
    /// Manifests of these snapshots, in the order of the numbers of their files, and of commits.
    pub manifests: Vec<ManifestFile>,
    /// Files that are not the table's any more, but of one of these snapshots, or will be removed by the
    /// next commit.
    pub removed: Vec<RemovedFile>,
    /// Files with the metadata of the table, ascending. The last is the current one.
    pub metadata: Vec<MetadataFile>,
}

impl Default for TableState {
    fn default() -> Self {
        Self {
            format: FORMAT,
            root: String::new(),
            commit: 0,
            timestamp_ms: 0,
            next_file: 0,
            schemas: Vec::new(),
            schema: 0,
            next_schema: 0,
            snapshots: Vec::new(),
            manifests: Vec::new(),
            removed: Vec::new(),
            metadata: Vec::new(),
        }
    }
}

/// What a snapshot has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Rows were added.
    Append,
    /// Files were replaced by others with the same rows.
    Replace,
    /// Rows were removed or changed.
    Overwrite,
}

impl Operation {
    /// Returns Iceberg's name of the operation (table specification, *Snapshots*).
    pub fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Replace => "replace",
            Self::Overwrite => "overwrite",
        }
    }
}

/// Numbers of files, and of rows and bytes in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Amount {
    /// Files.
    pub files: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Amount {
    /// Returns the amount with that of a file.
    #[must_use]
    pub fn and(self, file: &DataFile) -> Self {
        Self {
            files: self.files + 1,
            rows: self.rows.saturating_add(file.rows),
            bytes: self.bytes.saturating_add(file.bytes),
        }
    }
}

/// A snapshot: the files of a table at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Number of its commit, which is its id and its sequence number, too.
    pub commit: u64,
    /// Number of the snapshot before; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<u64>,
    /// Time in milliseconds since the UNIX epoch.
    pub timestamp_ms: i64,
    /// What it has changed.
    pub operation: Operation,
    /// Id of the table's schema when it was made.
    pub schema: u32,
    /// Path of its manifest list below the destination.
    pub list: String,
    /// What it has added.
    pub added: Amount,
    /// What it has removed.
    pub deleted: Amount,
    /// What the table has.
    pub total: Amount,
}

/// A manifest: it has the files of a range of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path below the destination.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Least number of its files.
    pub first: u64,
    /// Greatest number of its files.
    pub last: u64,
    /// Number of the commit that wrote it.
    pub commit: u64,
    /// Number of the commit whose snapshot does not have it any more; `None` if the newest has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// Least number of a commit that added one of its files.
    pub oldest: u64,
    /// Files that its commit has added.
    pub added: Amount,
    /// Files that were there before.
    pub existing: Amount,
    /// Files that its commit has removed.
    pub deleted: Amount,
}

impl ManifestFile {
    /// Returns the number of files that its snapshot has.
    pub fn live(&self) -> u64 {
        self.added.files + self.existing.files
    }

    /// Returns whether the newest snapshot has it.
    pub(crate) fn is_current(&self) -> bool {
        self.until.is_none()
    }
}

/// A file that is not part of the table any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedFile {
    /// The file.
    #[serde(flatten)]
    pub file: DataFile,
    /// Number of the commit that removed it; `None` if the next one will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// A file with the metadata of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataFile {
    /// Number of its commit.
    pub commit: u64,
    /// Time of its commit in milliseconds since the UNIX epoch.
    pub timestamp_ms: i64,
    /// Path below the destination.
    pub path: String,
}

impl TableState {
    /// Takes a file out of the table, when the export's manifest does not name it among the table's any
    /// more. Returns it if no snapshot has it, so that it may be removed once that manifest is written; else
    /// the next commit removes it from the table.
    pub fn retire(&mut self, file: DataFile) -> Option<DataFile> {
        if file.place.is_none() {
            return Some(file);
        }
        self.removed.push(RemovedFile { file, until: None });
        None
    }

    /// Replaces the files `old` of the table by `new` ones. A new one with the path of an old one is that
    /// file, because a path says what its file contains: it keeps its place. Returns those of the old files
    /// that no snapshot has, as [`Self::retire`] does.
    pub fn replace(&mut self, old: Vec<DataFile>, new: &mut [DataFile]) -> Vec<DataFile> {
        let mut gone = Vec::new();
        for file in old {
            match new.iter_mut().find(|it| it.path == file.path && it.place.is_none()) {
                Some(same) => same.place = file.place,
                None => gone.extend(self.retire(file)),
            }
        }
        gone
    }

    /// Returns the paths of all files that must stay beside those of the table itself: metadata, manifests,
    /// and the data of snapshots that have not expired.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let metadata = self.metadata.iter().map(|it| &*it.path);
        let lists = self.snapshots.iter().map(|it| &*it.list);
        let manifests = self.manifests.iter().map(|it| &*it.path);
        let removed = self.removed.iter().map(|it| &*it.file.path);
        metadata.chain(lists).chain(manifests).chain(removed)
    }

    /// Returns the path of the current metadata below the destination; `None` before the first commit.
    pub fn metadata_path(&self) -> Option<&str> {
        self.metadata.last().map(|it| &*it.path)
    }

    /// Returns the table's schema.
    pub fn schema(&self) -> Option<&Schema> {
        self.schemas.iter().find(|schema| schema.id == self.schema)
    }

    /// Returns the newest snapshot.
    pub fn newest(&self) -> Option<&Snapshot> {
        self.snapshots.last()
    }

    /// Returns whether one of the snapshots is among those from commit `from` to before commit `until`.
    pub(crate) fn has_snapshot(&self, from: u64, until: u64) -> bool {
        let at = self.snapshots.partition_point(|it| it.commit < from);
        self.snapshots.get(at).is_some_and(|it| it.commit < until)
    }

    /// Returns the place of a removed file and the commit that removed it.
    pub(crate) fn life(removed: &RemovedFile) -> (u64, Option<u64>) {
        (removed.file.place.map_or(0, |place: Place| place.commit), removed.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::sample;

    #[test]
    fn files_that_stay_keep_their_places() {
        let mut state = TableState::default();
        let placed = |number: u32| {
            let place = Some(Place { number: number.into(), commit: 1 });
            DataFile { place, ..sample(number, 10) }
        };
        let old = vec![placed(1), placed(2), sample(3, 10)];
        let mut new = [sample(2, 10), sample(4, 10)];
        let gone = state.replace(old, &mut new);
        assert_eq!(gone, [sample(3, 10)]);
        assert_eq!(new, [placed(2), sample(4, 10)]);
        let removed: Vec<_> = state.removed.iter().map(|it| (&it.file, it.until)).collect();
        assert_eq!(removed, [(&placed(1), None)]);
        assert_eq!(state.paths().collect::<Vec<_>>(), [placed(1).path]);
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let mut state = TableState { commit: 7, timestamp_ms: 8, ..TableState::default() };
        state.removed.push(RemovedFile { file: sample(1, 10), until: Some(7) });
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<TableState>(&text).unwrap(), state);
    }
}
