//! The tables that a catalogue lists: those of the manifest, as their metadata was last written. Another
//! exporter may have written newer metadata since; what is listed is read until an hour later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery_iceberg::catalog::Lake;
use orrery_iceberg::{DataFile, METADATA_MS, SNAPSHOT_MS, Table, TableState, current_metadata};
use orrery_ledger::domain::ProgramId;
use parking_lot::RwLock;

use super::lake::{OF_CHAIN, OF_PROGRAMS};
use super::layout::{EVENTS, TRANSACTIONS};
use super::manifest::{ExportedTable, Manifest};
use super::views;
use orrery_tables::CHAIN;

/// Time in milliseconds after which a commit that was too early is tried again.
const AGAIN_MS: i64 = 180_000;

/// The tables of an export for a catalogue. Clones show the same tables.
#[derive(Clone, Default)]
pub struct Listed(Arc<RwLock<Option<Arc<Contents>>>>);

/// The tables as they were at one moment, which one request sees.
pub struct ListedNow(Arc<Contents>);

struct Contents {
    /// Address of the destination.
    root: String,
    manifest: Manifest,
    /// Places in the manifest of the programs whose tables are listed, by the name under which they are.
    shown: BTreeMap<String, usize>,
    /// UNIX time in milliseconds at which a table has something to do that follows from none of its rows;
    /// `None` if there is none.
    due_ms: Option<i64>,
}

/// A table with its files, as the manifest has it.
struct Entry<'m> {
    columns: &'m orrery_iceberg::Columns,
    times: [&'static str; 2],
    state: &'m TableState,
    files: &'m [DataFile],
}

impl Listed {
    /// Shows the tables of a manifest, whose metadata is written.
    pub(super) fn set(&self, root: &str, manifest: &Manifest) {
        *self.0.write() = Some(Arc::new(Contents::new(root, manifest)));
    }

    /// Returns whether tables have something to do although they have no new rows: snapshots have expired, or
    /// a commit would have been too early before.
    pub(super) fn is_behind(&self, now_ms: i64) -> bool {
        let due_ms = self.0.read().as_ref().and_then(|contents| contents.due_ms);
        due_ms.is_some_and(|due_ms| due_ms <= now_ms)
    }

    /// Returns the tables as they are now; `None` before the first export.
    pub fn now(&self) -> Option<ListedNow> {
        self.0.read().clone().map(ListedNow)
    }
}

impl ListedNow {
    /// Returns the names under which the tables of these programs are listed.
    pub fn namespaces_of(&self, programs: &[ProgramId]) -> BTreeSet<String> {
        let contents = &self.0;
        let wanted: BTreeSet<u32> = programs.iter().map(|program| program.0).collect();
        let is_wanted = |at: usize| wanted.contains(&contents.manifest.programs[at].id);
        let names = contents.shown.iter().filter(|(_, at)| is_wanted(**at));
        names.map(|(name, _)| name.clone()).collect()
    }
}

/// Returns when a table has something to do that follows from none of its rows.
fn due_ms(manifest: &Manifest) -> Option<i64> {
    let is_placed = |file: &DataFile| file.place.is_some();
    let newest = manifest.states().map(|state| state.timestamp_ms).max().unwrap_or_default();
    let expires = manifest.states().filter_map(|state| {
        let next = state.snapshots.get(1)?.timestamp_ms.saturating_add(SNAPSHOT_MS);
        Some(next.max(state.timestamp_ms.saturating_add(METADATA_MS)))
    });
    let pending = manifest.states().any(|state| state.removed.iter().any(|it| it.until.is_none()));
    let waits = pending || !manifest.files().all(is_placed);
    expires.chain(waits.then(|| newest.saturating_add(AGAIN_MS))).min()
}

impl Contents {
    fn new(root: &str, manifest: &Manifest) -> Self {
        let mut shown = BTreeMap::new();
        for (name, program) in views::shown(&manifest.programs) {
            let at = manifest.programs.binary_search_by_key(&program.id, |it| it.id);
            if let Ok(at) = at
                && !program.deleted
            {
                shown.insert(name, at);
            }
        }
        let due_ms = due_ms(manifest);
        Self { root: root.to_owned(), manifest: manifest.clone(), shown, due_ms }
    }

    /// Returns the tables of events and transactions, by their names.
    fn of_chain(&self) -> BTreeMap<String, Entry<'_>> {
        let Manifest { chain, tables, .. } = &self.manifest;
        let of_chain = [
            (EVENTS, &chain.events, &tables.events),
            (TRANSACTIONS, &chain.transactions, &tables.transactions),
        ];
        let mut entries = BTreeMap::new();
        for (name, table, files) in of_chain {
            let (columns, state) = (&table.identity, &table.state);
            entries.insert(name.to_owned(), Entry { columns, times: OF_CHAIN, state, files });
        }
        entries
    }

    /// Returns the tables of a namespace, by their names.
    fn tables(&self, namespace: &str) -> Option<BTreeMap<String, Entry<'_>>> {
        if namespace == CHAIN {
            return Some(self.of_chain());
        }
        let program = self.manifest.programs.get(*self.shown.get(namespace)?)?;
        let listed = program.tables.iter().filter(|table| !table.columns.is_empty());
        Some(listed.map(|table| (views::name_of(program, table), Entry::of(table))).collect())
    }

    /// Returns the text of the metadata with this path.
    fn metadata(&self, path: &str) -> Option<String> {
        let programs = self.manifest.programs.iter().flat_map(|program| &program.tables);
        let mut all = self.of_chain().into_values().chain(programs.map(Entry::of));
        let Entry { columns, times, state, files } =
            all.find(|it| it.state.metadata_path() == Some(path))?;
        let [ledger, closed_at] = times;
        let (root, mark) = (&*self.root, None);
        let (ledger, closed_at) = (Some(ledger), Some(closed_at));
        current_metadata(state, &Table { root, columns, ledger, closed_at, mark }, files)
    }
}

impl<'m> Entry<'m> {
    fn of(table: &'m ExportedTable) -> Self {
        let ExportedTable { identity, state, files, .. } = table;
        Self { columns: identity, times: OF_PROGRAMS, state, files }
    }
}

impl Lake for ListedNow {
    fn namespaces(&self) -> Vec<String> {
        self.0.shown.keys().cloned().chain([CHAIN.to_owned()]).collect()
    }

    fn tables(&self, namespace: &str) -> Option<Vec<String>> {
        let tables = self.0.tables(namespace)?.into_iter();
        Some(tables.filter(|(_, it)| it.state.commit > 0).map(|(name, _)| name).collect())
    }

    fn location(&self, namespace: &str, table: &str) -> Option<String> {
        let path = self.0.tables(namespace)?.get(table)?.state.metadata_path()?.to_owned();
        Some(format!("{}/{path}", self.0.root))
    }

    fn metadata(&self, location: &str) -> Result<String, String> {
        let contents = &self.0;
        let path = location.strip_prefix(&*contents.root).and_then(|it| it.strip_prefix('/'));
        let text = path.and_then(|path| contents.metadata(path));
        text.ok_or_else(|| {
            format!("the metadata at {location} is not the table's any more: ask again")
        })
    }
}
