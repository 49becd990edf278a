//! Marks the row id as unique in the output of DESCRIBE. Ids are unique because of the way rows
//! arrive; declaring it to DuckDB would need an index, which takes 250 bytes of memory per row that
//! are never released.

use std::sync::Arc;

use arrow::array::StringArray;
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

/// Returns the output of DESCRIBE with the id marked as unique, and any other batch unchanged.
///
/// # Errors
/// When the changed batch cannot be built.
pub fn with_unique_id(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
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
