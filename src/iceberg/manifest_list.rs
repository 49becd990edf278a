//! Manifest lists: Avro files that list the manifests of a snapshot (Iceberg table specification, *Manifest
//! Lists*).

use serde_json::{Value, json};

use crate::avro::{Container, Encoder};
use crate::state::ManifestFile;

/// Returns the bytes of the list of these manifests of a snapshot. `root` is the destination of the files.
pub(crate) fn bytes(
    root: &str,
    commit: u64,
    parent: Option<u64>,
    manifests: &[&ManifestFile],
) -> Vec<u8> {
    let schema = schema().to_string();
    let metadata = vec![
        ("snapshot-id", commit.to_string()),
        ("parent-snapshot-id", parent.map_or("null".to_owned(), |parent| parent.to_string())),
        ("sequence-number", commit.to_string()),
        ("format-version", "2".to_owned()),
    ];
    let mut file = Container::new(&schema, metadata);
    for manifest in manifests {
        file.push(|row| append(row, root, manifest));
    }
    file.finish()
}

/// Appends a manifest, in the order of [`schema`].
fn append(row: &mut Encoder, root: &str, manifest: &ManifestFile) {
    row.bytes(format!("{root}/{}", manifest.path).as_bytes());
    row.count(manifest.bytes);
    // Partition specification, and content: rows.
    row.long(0);
    row.long(0);
    for number in [manifest.commit, manifest.oldest, manifest.commit] {
        row.count(number);
    }
    let amounts = [&manifest.added, &manifest.existing, &manifest.deleted];
    amounts.iter().for_each(|amount| row.count(amount.files));
    amounts.iter().for_each(|amount| row.count(amount.rows));
}

fn schema() -> Value {
    let field =
        |(name, id, kind): (&str, u32, &str)| json!({"name": name, "type": kind, "field-id": id});
    let fields = [
        ("manifest_path", 500, "string"),
        ("manifest_length", 501, "long"),
        ("partition_spec_id", 502, "int"),
        ("content", 517, "int"),
        ("sequence_number", 515, "long"),
        ("min_sequence_number", 516, "long"),
        ("added_snapshot_id", 503, "long"),
        ("added_files_count", 504, "int"),
        ("existing_files_count", 505, "int"),
        ("deleted_files_count", 506, "int"),
        ("added_rows_count", 512, "long"),
        ("existing_rows_count", 513, "long"),
        ("deleted_rows_count", 514, "long"),
    ];
    let fields: Vec<Value> = fields.into_iter().map(field).collect();
    json!({"type": "record", "name": "manifest_file", "fields": fields})
}
