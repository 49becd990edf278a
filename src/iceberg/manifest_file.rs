//! Manifests: Avro files that list data files with what is needed to leave some out (Iceberg table
//! specification, *Manifests*).

use serde_json::{Value, json};

use crate::avro::{Container, Encoder};
use crate::file::{Bounds, DataFile, Place};
use crate::schema::Schema;

/// A file as a manifest of a commit lists it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub file: &'a DataFile,
    pub place: Place,
    /// Whether the commit has removed it.
    pub is_removed: bool,
}

/// Columns that a manifest has bounds of.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounded {
    pub ledger: Option<u32>,
    pub closed_at: Option<u32>,
}

/// Id of the order of rows by ledger.
pub(crate) const SORTED: i64 = 1;

/// Statuses of an entry.
const EXISTING: i64 = 0;
const ADDED: i64 = 1;
const DELETED: i64 = 2;

/// Returns the bytes of the manifest that this commit writes of a table with this schema. `root` is the
/// destination of the files.
pub(crate) fn bytes(
    root: &str,
    commit: u64,
    schema: &Schema,
    bounded: Bounded,
    entries: &[Entry<'_>],
) -> Vec<u8> {
    let schema_of_entries = entry_schema().to_string();
    let metadata = vec![
        ("schema", schema.json().to_string()),
        ("schema-id", schema.id.to_string()),
        ("partition-spec", "[]".to_owned()),
        ("partition-spec-id", "0".to_owned()),
        ("format-version", "2".to_owned()),
        ("content", "data".to_owned()),
    ];
    let mut file = Container::new(&schema_of_entries, metadata);
    for entry in entries {
        file.push(|row| append(row, root, commit, bounded, entry));
    }
    file.finish()
}

/// Appends an entry, in the order of [`entry_schema`].
fn append(row: &mut Encoder, root: &str, commit: u64, bounded: Bounded, entry: &Entry<'_>) {
    let Entry { file, place, is_removed } = entry;
    let (status, snapshot) = match (is_removed, place.commit == commit) {
        (true, _) => (DELETED, commit),
        (false, true) => (ADDED, commit),
        (false, false) => (EXISTING, place.commit),
    };
    row.long(status);
    for number in [snapshot, place.commit, place.commit] {
        row.some();
        row.count(number);
    }
    // Content: rows.
    row.long(0);
    row.bytes(format!("{root}/{}", file.path).as_bytes());
    row.bytes(b"PARQUET");
    row.count(file.rows);
    row.count(file.bytes);
    append_metrics(row, bounded, file);
    if file.sorted && bounded.ledger.is_some() {
        row.some();
        row.long(SORTED);
    } else {
        row.null();
    }
}

/// Appends what is known of columns: sizes (none), numbers of values, of nulls and of NaN (none), and lower
/// and upper bounds. Of none, an empty list is written: some readers expect one. Ledgers and times are never
/// null; their bounds are eight bytes, the lowest first (table specification, appendix D).
fn append_metrics(row: &mut Encoder, bounded: Bounded, file: &DataFile) {
    let columns = file.bounds.map_or_else(Vec::new, |bounds| {
        let Bounds { ledgers, times } = bounds;
        let ledger = bounded.ledger.map(|id| (id, i64::from(ledgers.0), i64::from(ledgers.1)));
        let time = bounded.closed_at.map(|id| (id, times.0, times.1));
        ledger.into_iter().chain(time).collect()
    });
    let none: [u32; 0] = [];
    let ids: Vec<u32> = columns.iter().map(|(id, ..)| *id).collect();
    for (ids, count) in [(&none[..], 0), (&ids, file.rows), (&ids, 0), (&none, 0)] {
        row.some();
        row.array(ids, |row, id| {
            row.count((*id).into());
            row.count(count);
        });
    }
    let least = columns.iter().map(|(id, least, _)| (*id, *least)).collect();
    let greatest = columns.iter().map(|(id, _, greatest)| (*id, *greatest)).collect();
    let bounds: [Vec<(u32, i64)>; 2] = [least, greatest];
    for bound in &bounds {
        row.some();
        row.array(bound, |row, (id, value)| {
            row.count((*id).into());
            row.bytes(&value.to_le_bytes());
        });
    }
}

/// Returns the Avro schema of an entry: of the fields of the specification, those that files here have.
fn entry_schema() -> Value {
    let optional = |name: &str, id: u32, kind: Value| json!({"name": name, "type": ["null", kind], "default": null, "field-id": id});
    let required =
        |name: &str, id: u32, kind: Value| json!({"name": name, "type": kind, "field-id": id});
    let map = |key: u32, value: u32, kind: &str| {
        let pair = json!({"type": "record", "name": format!("k{key}_v{value}"), "fields": [
            required("key", key, json!("int")),
            required("value", value, json!(kind)),
        ]});
        json!({"type": "array", "items": pair, "logicalType": "map"})
    };
    let partition = json!({"type": "record", "name": "r102", "fields": []});
    let data_file = json!({"type": "record", "name": "r2", "fields": [
        required("content", 134, json!("int")),
        required("file_path", 100, json!("string")),
        required("file_format", 101, json!("string")),
        required("partition", 102, partition),
        required("record_count", 103, json!("long")),
        required("file_size_in_bytes", 104, json!("long")),
        optional("column_sizes", 108, map(117, 118, "long")),
        optional("value_counts", 109, map(119, 120, "long")),
        optional("null_value_counts", 110, map(121, 122, "long")),
        optional("nan_value_counts", 137, map(138, 139, "long")),
        optional("lower_bounds", 125, map(126, 127, "bytes")),
        optional("upper_bounds", 128, map(129, 130, "bytes")),
        optional("sort_order_id", 140, json!("int")),
    ]});
    json!({"type": "record", "name": "manifest_entry", "fields": [
        required("status", 0, json!("int")),
        optional("snapshot_id", 1, json!("long")),
        optional("sequence_number", 3, json!("long")),
        optional("file_sequence_number", 4, json!("long")),
        required("data_file", 2, data_file),
    ]})
}
