//! Digest of the file's content: tables with their columns, views, watermarks, and all rows in
//! insertion order.

use duckdb::Connection;
use sha2::{Digest, Sha256};

use super::database::{OWN_SCHEMA, storage_failure};
use crate::answer::{Answer, Style};
use crate::names::{self, quoted};
use crate::query::{Format, Numbers};
use crate::wire::Failure;

/// Returns the SHA-256 digest in hexadecimal digits.
pub fn digest(connection: &Connection) -> Result<String, Failure> {
    let mut digest = Sha256::new();
    let schema = names::SCHEMA;
    let tables = format!(
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = '{schema}' ORDER BY table_name"
    );
    let mut statement = connection.prepare(&tables).map_err(storage_failure)?;
    let tables: Result<Vec<String>, _> =
        statement.query_map([], |row| row.get(0)).and_then(|names| names.collect());
    let tables = tables.map_err(storage_failure)?;
    let tables = tables.iter().filter(|table| !names::is_filling(table));
    // Columns that a table gained later may stand elsewhere than in one that was filled with them.
    let tables: Vec<String> = tables.map(|table| quoted(names::shown(table))).collect();
    for table in &tables {
        add(connection, &format!("DESCRIBE {schema}.{table}"), &mut digest)?;
    }
    let catalog = [
        // Tables of the chain have no rows in the file.
        format!(
            "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal
             AND schema_name <> '{}' ORDER BY schema_name, view_name",
            names::CHAIN
        ),
        format!("SELECT program, number FROM {OWN_SCHEMA}.watermarks ORDER BY program"),
    ];
    for sql in catalog {
        add(connection, &sql, &mut digest)?;
    }
    for table in tables {
        // No ORDER BY is needed: DuckDB preserves the insertion order (`preserve_insertion_order`).
        add(connection, &format!("SELECT * FROM {schema}.{table}"), &mut digest)?;
    }
    Ok(hex::encode(digest.finalize()))
}

fn add(connection: &Connection, sql: &str, digest: &mut Sha256) -> Result<(), Failure> {
    let mut statement = connection.prepare(sql).map_err(storage_failure)?;
    let schema = statement.stream_arrow([]).map_err(storage_failure)?.get_schema();
    let unwritten = |error| Failure::Unavailable(format!("{error}"));
    while let Some(batch) = statement.step().map_err(storage_failure)? {
        let types = (0..schema.fields().len()).map(|column| statement.column_logical_type(column));
        let most = usize::MAX / 2;
        let (format, numbers) = (Format::Csv, Numbers::String);
        let style = Style { format, numbers, rows: most, bytes: most };
        let mut lines = Answer::begin(style, &schema, types).map_err(unwritten)?;
        lines.add(&(&batch).into()).map_err(unwritten)?;
        // Each batch has its own CSV header, which is not part of the rows.
        let lines = lines.end().map_err(unwritten)?;
        let header = lines.windows(2).position(|end| end == b"\r\n").map_or(0, |at| at + 2);
        digest.update(&lines[header..]);
    }
    digest.update([0]);
    Ok(())
}
