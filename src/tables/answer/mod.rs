//! From batches of a query's result to the bytes of the answer, up to a number of rows and bytes.
//!
//! Columns of one name are told apart: the second `a` becomes `a_1`, as DuckDB does it in subqueries.

mod columnar;
mod csv;
mod describe;
mod json;
mod shape;
mod text;

use std::collections::HashSet;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use duckdb::core::LogicalTypeHandle;

use super::query::{Format, Numbers};
pub use describe::with_unique_id;
pub use shape::{Shape, UnknownType};

/// How an answer is made.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// What the answer is.
    pub format: Format,
    /// How integers are written.
    pub numbers: Numbers,
    /// Rows of the longest answer.
    pub rows: usize,
    /// Bytes of the longest answer.
    pub bytes: usize,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// Too many rows.
    #[error("The answer has more than {0} rows: use LIMIT, or ask for less")]
    Rows(usize),
    /// Too many bytes.
    #[error("The answer is longer than {0} bytes: ask for fewer rows or columns")]
    Bytes(usize),
    /// A type without a form in answers.
    #[error("Column '{column}' has a type that answers do not have ({kind}): CAST it to VARCHAR")]
    Type {
        /// The column.
        column: String,
        /// What it is.
        kind: String,
    },
    /// The bytes cannot be made.
    #[error("The answer cannot be written: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// The bytes cannot be made.
    #[error("The answer cannot be written: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// A column of an answer.
pub struct Column {
    /// Its name, different from all others.
    pub name: String,
    /// What is in it.
    pub shape: Shape,
}

/// Takes in batches and makes an answer of them.
pub struct Answer {
    style: Style,
    columns: Vec<Column>,
    rows: usize,
    body: Body,
}

enum Body {
    Json(json::Rows),
    Columns(json::Columns),
    Csv(csv::Csv),
    Batches(columnar::Batches),
}

impl Answer {
    /// For a result with these columns.
    ///
    /// # Errors
    /// When one of them has a type without a form.
    pub fn begin(
        style: Style,
        schema: &SchemaRef,
        types: impl IntoIterator<Item = LogicalTypeHandle>,
    ) -> Result<Self, AnswerError> {
        let mut taken = HashSet::new();
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (field, kind) in schema.fields().iter().zip(types) {
            let name = field.name();
            let unknown = |UnknownType(kind)| AnswerError::Type { column: name.clone(), kind };
            let shape = Shape::of(&kind).map_err(unknown)?;
            columns.push(Column { name: different(name, &mut taken), shape });
        }
        let body = match style.format {
            Format::Rows => Body::Json(json::Rows::begin(&columns, style.numbers)),
            Format::Columns => Body::Columns(json::Columns::begin(&columns, style.numbers)),
            Format::Csv => Body::Csv(csv::Csv::begin(&columns, style.numbers)),
            Format::Parquet | Format::Arrow => {
                Body::Batches(columnar::Batches::begin(&columns, schema)?)
            }
        };
        Ok(Self { style, columns, rows: 0, body })
    }

    /// Takes in a batch.
    ///
    /// # Errors
    /// When the answer has become too large.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), AnswerError> {
        self.rows += batch.num_rows();
        if self.rows > self.style.rows {
            return Err(AnswerError::Rows(self.style.rows));
        }
        let most = self.style.bytes;
        match &mut self.body {
            Body::Json(rows) => rows.add(&self.columns, batch, most)?,
            Body::Columns(columns) => columns.add(&self.columns, batch, most)?,
            Body::Csv(csv) => csv.add(&self.columns, batch, most)?,
            Body::Batches(batches) => batches.add(&self.columns, batch, most)?,
        }
        Ok(())
    }

    /// The answer.
    ///
    /// # Errors
    /// When it is too large after all.
    pub fn end(self) -> Result<Vec<u8>, AnswerError> {
        let bytes = match self.body {
            Body::Json(rows) => rows.end(),
            Body::Columns(columns) => columns.end(),
            Body::Csv(csv) => csv.end(),
            Body::Batches(batches) => batches.end(self.style.format)?,
        };
        within(bytes.len(), self.style.bytes)?;
        Ok(bytes)
    }
}

/// Whether a length is allowed.
fn within(bytes: usize, most: usize) -> Result<(), AnswerError> {
    if bytes > most { Err(AnswerError::Bytes(most)) } else { Ok(()) }
}

fn different(name: &str, taken: &mut HashSet<String>) -> String {
    let mut different = name.to_owned();
    let mut number = 0;
    while !taken.insert(different.clone()) {
        number += 1;
        different = format!("{name}_{number}");
    }
    different
}

/// The columns of a batch with what is in them.
fn columns_of<'a>(
    columns: &'a [Column],
    batch: &'a RecordBatch,
) -> impl Iterator<Item = (&'a Column, &'a ArrayRef)> {
    columns.iter().zip(batch.columns())
}

/// Whether there is nothing at that place.
fn is_null(array: &dyn Array, at: usize) -> bool {
    array.is_null(at)
}
