//! Table metadata: the JSON file from which a reader begins (Iceberg table specification, *Table Metadata*
//! and appendix C).

use serde_json::{Map, Value, json};

use crate::manifest_file::Bounded;
use crate::schema::{Columns, Schema};
use crate::state::{Snapshot, TableState};
use crate::types::Type;

/// Id of the order of rows by ledger.
pub(crate) const SORTED: i64 = 1;
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

/// Returns the metadata of the newest commit. With `maps_names`, there are files without ids of columns.
pub(crate) fn text(state: &TableState, table: &Table<'_>, maps_names: bool) -> String {
    let default = Schema { id: state.schema, fields: Vec::new() };
    let schema = state.schema().unwrap_or(&default);
    let orders = sort_orders(table.bounded(schema).ledger);
    let mut metadata = json!({
        "format-version": 2,
        "table-uuid": table.columns.uuid,
        "location": table.root,
        "last-sequence-number": state.newest().map_or(0, |snapshot| snapshot.commit),
        "last-updated-ms": state.timestamp_ms,
        "last-column-id": table.columns.last_column_id,
        "current-schema-id": state.schema,
        "schemas": state.schemas.iter().map(Schema::json).collect::<Vec<_>>(),
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": LAST_PARTITION_ID,
        "default-sort-order-id": orders.last().map_or(json!(UNSORTED), |it| it["order-id"].clone()),
        "sort-orders": orders,
        "properties": properties(table, schema, maps_names),
        "snapshots": state.snapshots.iter().map(|it| snapshot(it, table)).collect::<Vec<_>>(),
        "snapshot-log": state.snapshots.iter().map(logged).collect::<Vec<_>>(),
        "metadata-log": earlier(state, table),
        "refs": {},
    });
    if let Some(newest) = state.newest() {
        metadata["current-snapshot-id"] = json!(newest.commit);
        metadata["refs"] = json!({"main": {"snapshot-id": newest.commit, "type": "branch"}});
    }
    metadata.to_string()
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

/// Returns a snapshot (table specification, *Snapshots*). Its summary has what engines show; more would
/// exceed [`SNAPSHOT_BYTES`].
fn snapshot(snapshot: &Snapshot, table: &Table<'_>) -> Value {
    let Snapshot { added, deleted, total, .. } = snapshot;
    let mut summary = json!({"operation": snapshot.operation.name()});
    for (name, number) in [
        ("added-data-files", added.files),
        ("added-records", added.rows),
        ("deleted-data-files", deleted.files),
        ("deleted-records", deleted.rows),
        ("total-data-files", total.files),
        ("total-records", total.rows),
        ("total-files-size", total.bytes),
    ] {
        summary[name] = json!(number.to_string());
    }
    let mut entry = json!({
        "snapshot-id": snapshot.commit,
        "sequence-number": snapshot.commit,
        "timestamp-ms": snapshot.timestamp_ms,
        "schema-id": snapshot.schema,
        "manifest-list": table.address(&snapshot.list),
        "summary": summary,
    });
    if let Some(parent) = snapshot.parent {
        entry["parent-snapshot-id"] = json!(parent);
    }
    entry
}

fn logged(snapshot: &Snapshot) -> Value {
    json!({"snapshot-id": snapshot.commit, "timestamp-ms": snapshot.timestamp_ms})
}

/// Returns the metadata files before the newest commit that are still there.
fn earlier(state: &TableState, table: &Table<'_>) -> Vec<Value> {
    let before = state.metadata.iter().filter(|it| it.commit < state.commit);
    before
        .map(
            |it| json!({"metadata-file": table.address(&it.path), "timestamp-ms": it.timestamp_ms}),
        )
        .collect()
}
