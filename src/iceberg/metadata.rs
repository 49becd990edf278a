//! Table metadata: the JSON file from which a reader begins (Iceberg table specification, *Table Metadata*
//! and appendix C).

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::file::DataFile;
use crate::manifest_file::{Bounded, SORTED};
use crate::schema::{Columns, Schema};
use crate::state::{Snapshot, TableState};
use crate::types::Type;

/// Id that the specification gives to no order.
const UNSORTED: i64 = 0;
/// Greatest id of a partition field, of which there are none (table specification, *Partition Specs*).
const LAST_PARTITION_ID: u32 = 999;

/// Bytes that a snapshot takes at most in the metadata, beside the address of the destination.
pub(crate) const SNAPSHOT_BYTES: u64 = 640;

/// A table whose metadata is written.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    /// Address or absolute path of the destination of the export, without `/` at its end. Paths of a local
    /// directory are plain ones: some engines do not know `file://`.
    pub root: &'a str,
    /// Columns that the table has and had.
    pub columns: &'a Columns,
    /// Name of the column with the ledger; `None` if the table has none.
    pub ledger: Option<&'a str>,
    /// Name of the column with the close time of the ledger; `None` if the table has none.
    pub closed_at: Option<&'a str>,
    /// Text that distinguishes the files of this writer from those of others, as in names of data files;
    /// `None` where a lock excludes others.
    pub mark: Option<&'a str>,
}

impl Table<'_> {
    /// Returns the ids of the columns of which manifests have bounds.
    pub(crate) fn bounded(&self, schema: &Schema) -> Bounded {
        Bounded {
            ledger: schema.id_of(self.ledger, &Type::Long),
            closed_at: schema.id_of(self.closed_at, &Type::Timestamptz),
        }
    }

    /// Returns the address of a file of the destination.
    pub(crate) fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }
}

/// The file (table specification, *Table Metadata Fields*). It has no `metadata-log`, which is optional:
/// DuckDB takes an entry of it for a query that it says began before the current metadata was made, and fails
/// when the clocks of two machines differ, or a transaction is older than the entries.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Metadata<'a> {
    format_version: u32,
    table_uuid: &'a str,
    location: &'a str,
    last_sequence_number: u64,
    last_updated_ms: i64,
    last_column_id: u32,
    current_schema_id: u32,
    schemas: Vec<Value>,
    default_spec_id: u32,
    partition_specs: [Value; 1],
    last_partition_id: u32,
    default_sort_order_id: i64,
    sort_orders: Vec<Value>,
    properties: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_snapshot_id: Option<u64>,
    refs: Map<String, Value>,
    snapshots: Vec<SnapshotEntry>,
    snapshot_log: Vec<LogEntry>,
}

/// A snapshot (table specification, *Snapshots*).
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct SnapshotEntry {
    snapshot_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_snapshot_id: Option<u64>,
    sequence_number: u64,
    timestamp_ms: i64,
    schema_id: u32,
    manifest_list: String,
    summary: Summary,
}

/// What engines show of a snapshot (table specification, *Optional Snapshot Summary Fields*); more would
/// exceed [`SNAPSHOT_BYTES`].
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Summary {
    operation: &'static str,
    added_data_files: String,
    added_records: String,
    deleted_data_files: String,
    deleted_records: String,
    total_data_files: String,
    total_records: String,
    total_files_size: String,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct LogEntry {
    snapshot_id: u64,
    timestamp_ms: i64,
}

/// Returns the text of the table's current metadata, whose path is [`TableState::metadata_path`], given the
/// files that the table has; `None` before the first commit.
pub fn current_metadata(
    state: &TableState,
    table: &Table<'_>,
    files: &[DataFile],
) -> Option<String> {
    state.metadata_path().map(|_| text(state, table, maps_names(state, files)))
}

/// Returns whether one of the files has no ids of columns.
pub(crate) fn maps_names(state: &TableState, files: &[DataFile]) -> bool {
    let has_no_ids = |file: &DataFile| file.columns.is_none();
    files.iter().any(has_no_ids) || state.removed.iter().any(|removed| has_no_ids(&removed.file))
}

/// Returns the metadata of the newest commit. With `maps_names`, there are files without ids of columns.
pub(crate) fn text(state: &TableState, table: &Table<'_>, maps_names: bool) -> String {
    let none = Schema { id: state.schema, fields: Vec::new() };
    let schema = state.schema().unwrap_or(&none);
    let ledger = table.bounded(schema).ledger;
    let newest = state.newest().map(|newest| newest.commit);
    let branch = |id: u64| json!({"snapshot-id": id, "type": "branch"});
    let logged = |it: &Snapshot| LogEntry { snapshot_id: it.commit, timestamp_ms: it.timestamp_ms };
    let metadata = Metadata {
        format_version: 2,
        table_uuid: &table.columns.uuid,
        location: table.root,
        last_sequence_number: newest.unwrap_or_default(),
        last_updated_ms: state.timestamp_ms,
        last_column_id: table.columns.last_column_id,
        current_schema_id: state.schema,
        schemas: state.schemas.iter().map(Schema::json).collect(),
        default_spec_id: 0,
        partition_specs: [json!({"spec-id": 0, "fields": []})],
        last_partition_id: LAST_PARTITION_ID,
        default_sort_order_id: ledger.map_or(UNSORTED, |_| SORTED),
        sort_orders: sort_orders(ledger),
        properties: properties(table, schema, maps_names),
        current_snapshot_id: newest,
        refs: newest.map(|id| ("main".to_owned(), branch(id))).into_iter().collect(),
        snapshots: state.snapshots.iter().map(|it| entry(it, table)).collect(),
        snapshot_log: state.snapshots.iter().map(logged).collect(),
    };
    // Serialising texts and numbers to memory cannot fail.
    serde_json::to_string(&metadata).unwrap_or_default()
}

fn entry(snapshot: &Snapshot, table: &Table<'_>) -> SnapshotEntry {
    let Snapshot { added, deleted, total, .. } = snapshot;
    let summary = Summary {
        operation: snapshot.operation.name(),
        added_data_files: added.files.to_string(),
        added_records: added.rows.to_string(),
        deleted_data_files: deleted.files.to_string(),
        deleted_records: deleted.rows.to_string(),
        total_data_files: total.files.to_string(),
        total_records: total.rows.to_string(),
        total_files_size: total.bytes.to_string(),
    };
    SnapshotEntry {
        snapshot_id: snapshot.commit,
        parent_snapshot_id: snapshot.parent,
        sequence_number: snapshot.commit,
        timestamp_ms: snapshot.timestamp_ms,
        schema_id: snapshot.schema,
        manifest_list: table.address(&snapshot.list),
        summary,
    }
}

fn properties(table: &Table<'_>, schema: &Schema, maps_names: bool) -> Map<String, Value> {
    let mut properties = Map::new();
    // Only the export removes files.
    properties.insert("gc.enabled".to_owned(), json!("false"));
    if maps_names {
        let mapping = table.columns.name_mapping(&schema.fields).to_string();
        properties.insert("schema.name-mapping.default".to_owned(), Value::String(mapping));
    }
    properties
}

/// Returns the orders of rows that files have; the last is that of files that are merged.
fn sort_orders(ledger: Option<u32>) -> Vec<Value> {
    let by = |id: u32| {
        let field = json!({"transform": "identity", "source-id": id,
                           "direction": "asc", "null-order": "nulls-first"});
        json!({"order-id": SORTED, "fields": [field]})
    };
    let unsorted = json!({"order-id": UNSORTED, "fields": []});
    std::iter::once(unsorted).chain(ledger.map(by)).collect()
}
