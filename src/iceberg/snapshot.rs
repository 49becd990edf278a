//! Commits: what changes in a table's state when files are added to it or removed from it, when its columns
//! change, and when snapshots expire; and the files that a commit writes. A commit is made in memory: only
//! the export's manifest, in which its state is, makes it count.

use std::collections::HashSet;

use crate::file::DataFile;
use crate::layout::{self, Kind};
use crate::manifests::{self, entries, fill};
use crate::metadata::{self, Table};
use crate::schema::{Column, Schema};
use crate::state::{Amount, FORMAT, MetadataFile, Operation, Snapshot, TableState};
use crate::{manifest_file, manifest_list};

/// Time in milliseconds that a snapshot stays after the next one was made. None is younger when it expires.
pub const SNAPSHOT_MS: i64 = 24 * 3_600_000;
/// Time in milliseconds that metadata stays after the next one was made.
pub const METADATA_MS: i64 = 3_600_000;

/// What a commit is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Current time in milliseconds since the UNIX epoch.
    pub now_ms: i64,
    /// Whether the files that are added have just the rows of those that are removed.
    pub same_rows: bool,
    /// Whether the destination may have another address than before. All snapshots but the new one then
    /// expire at once: what they name is not there.
    pub rebase: bool,
}

impl Change {
    /// Returns a commit at this time. If it removes files, rows have changed.
    pub fn at(now_ms: i64) -> Self {
        Self { now_ms, same_rows: false, rebase: false }
    }
}

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Path below the destination.
    pub path: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Files of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Number of the commit.
    pub number: u64,
    /// New files, in the order in which they are written.
    pub files: Vec<Written>,
    /// The file that names the current metadata.
    pub pointer: Written,
    /// Paths of files that the table needs no more. Another table may.
    pub unneeded: Vec<String>,
}

/// Why a commit cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// The state is not of this version.
    #[error("the state of the table has format {0}, and this version knows {FORMAT}")]
    Format(u32),
    /// The destination has another address than the metadata names.
    #[error("the metadata of the table is for {before}, and not for {now}: export with --rebase")]
    Moved {
        /// Address in the metadata.
        before: String,
        /// Address of the destination.
        now: String,
    },
}

/// Makes the next commit of a table: it adds those of its `files`, in the order in which they were added,
/// that have no place yet, and removes those that [`TableState::retire`] was given. Returns `None` when there is nothing to do.
///
/// # Errors
/// When the state is of another version, or the destination has moved without [`Change::rebase`]. Nothing
/// has changed then.
pub fn commit(
    state: &mut TableState,
    table: &Table<'_>,
    columns: &[Column],
    files: &mut [DataFile],
    change: Change,
) -> Result<Option<Commit>, CommitError> {
    check(state, table, change.rebase)?;
    if !is_needed(state, table, columns, files, change) {
        return Ok(None);
    }
    let before: HashSet<String> = state.paths().map(str::to_owned).collect();
    let moved = change.rebase && state.root != table.root;
    if moved {
        let (snapshots, manifests) = (Vec::new(), Vec::new());
        let (removed, metadata) = (Vec::new(), Vec::new());
        *state = TableState { snapshots, manifests, removed, metadata, ..std::mem::take(state) };
    }
    state.root = table.root.to_owned();
    state.commit += 1;
    state.timestamp_ms = change.now_ms.max(state.timestamp_ms.saturating_add(1));
    state.snapshots.drain(..expired(&state.snapshots, change.now_ms));
    set_schema(state, table, columns);
    let (added, deleted) = place(state, files);
    let operation = match (deleted.files > 0, moved) {
        (true, _) if change.same_rows => Operation::Replace,
        (true, _) => Operation::Overwrite,
        (false, true) => Operation::Replace,
        (false, false) => Operation::Append,
    };
    if added.files > 0 || deleted.files > 0 || (moved && !files.is_empty()) {
        manifests::arrange(state, files);
        add_snapshot(state, files, operation, added, deleted);
    }
    forget_metadata(state, change.now_ms);
    // The metadata is a function of what is remembered.
    forget(state);
    let mut commit = render(state, table, files);
    let after: HashSet<&str> = state.paths().collect();
    commit.unneeded = before.into_iter().filter(|path| !after.contains(&**path)).collect();
    commit.unneeded.sort_unstable();
    Ok(Some(commit))
}

/// Adds the snapshot of the newest commit.
fn add_snapshot(
    state: &mut TableState,
    files: &[DataFile],
    operation: Operation,
    added: Amount,
    deleted: Amount,
) {
    let parent = state.newest().map(|newest| newest.commit);
    state.snapshots.push(Snapshot {
        commit: state.commit,
        parent,
        timestamp_ms: state.timestamp_ms,
        operation,
        schema: state.schema,
        list: String::new(),
        added,
        deleted,
        total: files.iter().fold(Amount::default(), Amount::and),
    });
}

/// Returns the files of the newest commit again, for a writer that begins after one that was killed.
/// `pointer` is the content of the file that names the table's metadata, if it is there: where it names the
/// newest, all files are written, and `None` is returned, as before the first commit. If this version
/// encodes files otherwise than the one that made the commit, the state has their new names then, and has to
/// be written before them; no reader knows the old ones.
///
/// # Errors
/// As [`commit`].
pub fn restore(
    state: &mut TableState,
    table: &Table<'_>,
    files: &[DataFile],
    pointer: Option<&[u8]>,
) -> Result<Option<Commit>, CommitError> {
    check(state, table, false)?;
    let newest = state.metadata_path().map(layout::pointed);
    let is_written = newest.is_none_or(|newest| pointer == Some(newest.as_bytes()));
    Ok((!is_written).then(|| render(state, table, files)))
}

fn check(state: &TableState, table: &Table<'_>, rebase: bool) -> Result<(), CommitError> {
    if state.format != FORMAT {
        return Err(CommitError::Format(state.format));
    }
    if !rebase && state.commit > 0 && state.root != table.root {
        let (before, now) = (state.root.clone(), table.root.to_owned());
        return Err(CommitError::Moved { before, now });
    }
    Ok(())
}

/// Returns whether a commit would change anything.
pub fn is_needed(
    state: &TableState,
    table: &Table<'_>,
    columns: &[Column],
    files: &[DataFile],
    change: Change,
) -> bool {
    let fields = table.columns.fields_of(columns);
    state.commit == 0
        || (change.rebase && state.root != table.root)
        || state.schema().is_none_or(|schema| schema.fields != fields)
        || files.iter().any(|file| file.place.is_none())
        || state.removed.iter().any(|removed| removed.until.is_none())
        || expired(&state.snapshots, change.now_ms) > 0
}

/// Returns how many of the snapshots have expired, which are the oldest: a reader may have begun to read one
/// just before the next was made. The newest never expires.
pub(crate) fn expired(snapshots: &[Snapshot], now_ms: i64) -> usize {
    let has_expired =
        |pair: &&[Snapshot]| pair[1].timestamp_ms.saturating_add(SNAPSHOT_MS) <= now_ms;
    snapshots.windows(2).take_while(has_expired).count()
}

/// Makes these the columns of the table's schema. A schema that no snapshot has any more is forgotten.
fn set_schema(state: &mut TableState, table: &Table<'_>, columns: &[Column]) {
    let fields = table.columns.fields_of(columns);
    match state.schemas.iter().find(|schema| schema.fields == fields) {
        Some(known) => state.schema = known.id,
        None => {
            let id = state.next_schema;
            state.next_schema += 1;
            state.schema = id;
            state.schemas.push(Schema { id, fields });
        }
    }
    let TableState { schemas, snapshots, schema, .. } = state;
    schemas.retain(|it| it.id == *schema || snapshots.iter().any(|other| other.schema == it.id));
}

/// Gives places to the files that have none, and removes those that were retired. Returns what was added and
/// what was removed.
fn place(state: &mut TableState, files: &mut [DataFile]) -> (Amount, Amount) {
    let (mut added, mut deleted) = (Amount::default(), Amount::default());
    for file in files.iter_mut().filter(|file| file.place.is_none()) {
        let number = state.next_file;
        state.next_file += 1;
        file.place = Some(crate::file::Place { number, commit: state.commit });
        added = added.and(file);
    }
    let commit = state.commit;
    for removed in state.removed.iter_mut().filter(|removed| removed.until.is_none()) {
        removed.until = Some(commit);
        deleted = deleted.and(&removed.file);
    }
    (added, deleted)
}

/// Returns the files of the newest commit, and records their names.
fn render(state: &mut TableState, table: &Table<'_>, files: &[DataFile]) -> Commit {
    let uuid = &table.columns.uuid;
    let commit = state.commit;
    let mut written = Vec::new();
    // A file that has a name already, of another writer, keeps it.
    let write = |kind: Kind, bytes: Vec<u8>, before: &str| {
        let is_same = before.starts_with(&layout::stem(kind, uuid, commit, &bytes));
        let new = || layout::path(kind, uuid, commit, &bytes, table.mark);
        let path = if is_same { before.to_owned() } else { new() };
        Written { path, bytes }
    };
    let schema = state.schema().cloned();
    let schema = schema.unwrap_or(Schema { id: state.schema, fields: Vec::new() });
    let bounded = table.bounded(&schema);
    let all = entries(files, &state.removed, commit);
    for manifest in &mut state.manifests {
        if manifest.commit != commit {
            continue;
        }
        let own = fill(manifest, &all);
        let bytes = manifest_file::bytes(table.root, commit, &schema, bounded, own);
        let file = write(Kind::Manifest, bytes, &manifest.path);
        manifest.path.clone_from(&file.path);
        manifest.bytes = file.bytes.len() as u64;
        written.push(file);
    }
    let current: Vec<_> = state.manifests.iter().filter(|it| it.is_current()).collect();
    if let Some(newest) = state.snapshots.last_mut().filter(|newest| newest.commit == commit) {
        let bytes = manifest_list::bytes(table.root, commit, newest.parent, &current);
        let file = write(Kind::List, bytes, &newest.list);
        newest.list.clone_from(&file.path);
        written.push(file);
    }
    let text = metadata::text(state, table, metadata::maps_names(state, files)).into_bytes();
    let file = write(Kind::Metadata, text, state.metadata_path().unwrap_or_default());
    state.metadata.retain(|it| it.commit < commit);
    let (timestamp_ms, path) = (state.timestamp_ms, file.path.clone());
    state.metadata.push(MetadataFile { commit, timestamp_ms, path });
    let pointed = layout::pointed(&file.path).into_bytes();
    written.push(file);
    let pointer = Written { path: layout::pointer(uuid), bytes: pointed };
    Commit { number: commit, files: written, pointer, unneeded: Vec::new() }
}

/// Forgets old metadata. That of the commit before stays: it was the current one until now.
fn forget_metadata(state: &mut TableState, now_ms: i64) {
    let is_old =
        |pair: &&[MetadataFile]| pair[1].timestamp_ms.saturating_add(METADATA_MS) <= now_ms;
    let old = state.metadata.windows(2).take_while(is_old).count();
    state.metadata.drain(..old);
}

/// Forgets the files and manifests that no snapshot has any more.
fn forget(state: &mut TableState) {
    let mut removed = std::mem::take(&mut state.removed);
    removed.retain(|it| match TableState::life(it) {
        (from, Some(until)) => state.has_snapshot(from, until),
        (_, None) => true,
    });
    state.removed = removed;
    let mut manifests = std::mem::take(&mut state.manifests);
    manifests.retain(|it| it.until.is_none_or(|until| state.has_snapshot(it.commit, until)));
    state.manifests = manifests;
}
