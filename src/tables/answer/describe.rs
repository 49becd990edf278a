//! What DESCRIBE leaves out: that the id of a row is unique. It is by the way rows come here, and an index
//! in DuckDB to say so costs 250 bytes of memory per row that it never gives back.

use std::sync::Arc;

use arrow::array::StringArray;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use super::text;
use crate::tables::names;

/// The columns of a description that matter here.
const NAME: &str = "column_name";
const KEY: &str = "key";
/// How DuckDB calls a unique column.
const UNIQUE: &str = "UNI";

/// A description with the id marked as unique; anything else as it is.
///
/// # Errors
/// When the batch cannot be made anew.
pub fn with_unique_id(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let (Ok(name), Ok(key)) = (schema.index_of(NAME), schema.index_of(KEY)) else {
        return Ok(batch);
    };
    let (name, keys) = (batch.column(name), batch.column(key));
    let marked: StringArray = (0..batch.num_rows())
        .map(|row| match text::text(name, row) {
            Some(names::EVENT_ID) => Some(UNIQUE),
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
