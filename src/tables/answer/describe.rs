//! Marks the row id as unique in the output of DESCRIBE, and leaves tables that are being filled out of
//! the list of tables. Ids are unique because of the way rows arrive; declaring it to DuckDB would need
//! an index, which takes 250 bytes of memory per row that are never released.

use std::sync::Arc;

use arrow::array::{BooleanArray, StringArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::text;
use crate::names;

/// Columns of DESCRIBE's output that are used here.
const NAME: &str = "column_name";
const KEY: &str = "key";
/// DuckDB's value of the key column for a unique column.
const UNIQUE: &str = "UNI";

/// Column of the output of SHOW TABLES with the names of tables.
const TABLE: &str = "name";

/// Returns the output of DESCRIBE or SHOW TABLES as clients are to see it, and any other batch
/// unchanged.
///
/// # Errors
/// When the changed batch cannot be built.
pub fn described(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    without_fillings(with_unique_id(batch)?)
}

/// Returns a list of tables without those that no query may read yet.
fn without_fillings(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let Ok(name) = batch.schema().index_of(TABLE) else { return Ok(batch) };
    let name = batch.column(name);
    let is_shown = |row| !text::text(name, row).is_some_and(names::is_hidden);
    let shown: BooleanArray = (0..batch.num_rows()).map(|row| Some(is_shown(row))).collect();
    if shown.false_count() == 0 { Ok(batch) } else { filter_record_batch(&batch, &shown) }
}

/// Returns the output of DESCRIBE with the id marked as unique, and any other batch unchanged.
fn with_unique_id(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let (Ok(name), Ok(key)) = (schema.index_of(NAME), schema.index_of(KEY)) else {
        return Ok(batch);
    };
    let (name, keys) = (batch.column(name), batch.column(key));
    let marked: StringArray = (0..batch.num_rows())
        .map(|row| match text::text(name, row) {
            Some(names::ROW_ID) => Some(UNIQUE),
            _ if super::is_null(keys, row) => None,
            _ => text::text(keys, row),
        })
        .collect();
    let mut columns = batch.columns().to_vec();
    let mut fields: Vec<_> = schema.fields().iter().cloned().collect();
    columns[key] = Arc::new(marked);
    fields[key] = Arc::new(Field::new(KEY, DataType::Utf8, true));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}
