//! Turns the record batches of a query's result into the bytes of the answer, up to a limit of rows
//! and bytes.
//!
//! Duplicate column names are made distinct: the second `a` becomes `a_1`, as DuckDB does in
//! subqueries.

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
pub use describe::described;
pub use shape::{Shape, UnknownType};

/// Format and limits of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    /// Format of the answer.
    pub format: Format,
    /// How integers of 64 bits and more, and decimals, are written.
    pub numbers: Numbers,
    /// Maximum number of rows.
    pub rows: usize,
    /// Maximum length in bytes.
    pub bytes: usize,
}

/// Result of a step of an answer.
pub type Result<T, E = AnswerError> = std::result::Result<T, E>;

/// Why an answer cannot be produced.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// More rows or bytes than the limit.
    #[error("{0}")]
    TooLarge(String),
    /// A column has a type that the format has no representation for.
    #[error("{0}")]
    Type(String),
    /// An Arrow array, batch or stream cannot be built.
    #[error("The answer cannot be written: {0}")]
    Arrow(#[from] arrow::error::ArrowError),
    /// The Parquet file cannot be written.
    #[error("The answer cannot be written: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// A column of an answer.
pub struct Column {
    /// Name, different from those of all other columns.
    pub name: String,
    /// Type of its values.
    pub shape: Shape,
}

/// Collects batches and produces an answer from them.
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
    /// Begins an answer to a result with these columns.
    ///
    /// # Errors
    /// When a column has a type without a representation, or the Arrow schema cannot be built.
    pub fn begin(
        style: Style,
        schema: &SchemaRef,
        types: impl IntoIterator<Item = LogicalTypeHandle>,
    ) -> Result<Self> {
        let mut taken = HashSet::new();
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (field, kind) in schema.fields().iter().zip(types) {
            let name = field.name();
            let unknown = |UnknownType(kind)| {
                AnswerError::Type(format!(
                    "Column '{name}' has a type that answers do not have ({kind}): CAST it to VARCHAR"
                ))
            };
            let shape = Shape::of(&kind).map_err(unknown)?;
            columns.push(Column { name: unique_name(name, &mut taken), shape });
        }
        let body = match style.format {
            Format::Rows => Body::Json(json::Rows::begin(&columns, style.numbers)),
            Format::Columns => Body::Columns(json::Columns::begin(&columns, style.numbers)),
            Format::Csv => Body::Csv(csv::Csv::begin(&columns, style.numbers)),
            Format::Parquet | Format::Arrow => {
                if style.format == Format::Parquet {
                    check_parquet_types(&columns)?;
                }
                Body::Batches(columnar::Batches::begin(&columns, schema, style)?)
            }
        };
        Ok(Self { style, columns, rows: 0, body })
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// When the answer exceeds its limit of rows or bytes, or an array cannot be converted.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        if self.rows > self.style.rows {
            let most = self.style.rows;
            return Err(AnswerError::TooLarge(format!(
                "The answer has more than {most} rows: use LIMIT, or ask for less"
            )));
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

    /// Returns the finished answer.
    ///
    /// # Errors
    /// When the finished answer exceeds its limit of bytes, or cannot be written as Arrow or
    /// Parquet.
    pub fn end(self) -> Result<Vec<u8>> {
        let bytes = match self.body {
            Body::Json(rows) => rows.end(),
            Body::Columns(columns) => columns.end(),
            Body::Csv(csv) => csv.end(),
            Body::Batches(batches) => batches.end(self.style.format)?,
        };
        check_length(bytes.len(), self.style.bytes)?;
        Ok(bytes)
    }
}

/// Fails when a column has, or contains, a type that Parquet files have no representation for.
fn check_parquet_types(columns: &[Column]) -> Result<()> {
    let unknown = columns.iter().find_map(|it| Some((it, it.shape.outside_of_parquet()?)));
    unknown.map_or(Ok(()), |(Column { name, .. }, kind)| {
        Err(AnswerError::Type(format!(
            "Column '{name}' has a type that Parquet answers do not have ({kind}): CAST it to VARCHAR"
        )))
    })
}

/// Fails when a length exceeds the limit.
fn check_length(bytes: usize, most: usize) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(AnswerError::TooLarge(format!(
        "The answer is longer than {most} bytes: ask for fewer rows or columns"
    )))
}

fn unique_name(name: &str, taken: &mut HashSet<String>) -> String {
    let mut unique = name.to_owned();
    let mut number = 0;
    while !taken.insert(unique.clone()) {
        number += 1;
        unique = format!("{name}_{number}");
    }
    unique
}

/// Pairs the columns with their arrays in a batch.
fn columns_of<'a>(
    columns: &'a [Column],
    batch: &'a RecordBatch,
) -> impl Iterator<Item = (&'a Column, &'a ArrayRef)> {
    columns.iter().zip(batch.columns())
}

/// Whether the value at that index is null.
fn is_null(array: &dyn Array, at: usize) -> bool {
    array.is_null(at)
}
