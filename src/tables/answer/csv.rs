//! Answers as comma-separated values (RFC 4180).

use arrow::record_batch::RecordBatch;

use super::shape::Shape;
use super::{Column, Result, check_length, columns_of, is_null, json};
use crate::query::Numbers;

/// Collects a header and one line per row.
pub struct Csv {
    bytes: Vec<u8>,
    numbers: Numbers,
}

impl Csv {
    /// Begins an answer with these columns.
    pub fn begin(columns: &[Column], numbers: Numbers) -> Self {
        let mut bytes = Vec::new();
        for (number, column) in columns.iter().enumerate() {
            if number > 0 {
                bytes.push(b',');
            }
            field(&column.name, &mut bytes);
        }
        bytes.extend_from_slice(b"\r\n");
        Self { bytes, numbers }
    }

    /// Adds a batch.
    pub fn add(&mut self, columns: &[Column], batch: &RecordBatch, most: usize) -> Result<()> {
        for at in 0..batch.num_rows() {
            for (number, (column, array)) in columns_of(columns, batch).enumerate() {
                if number > 0 {
                    self.bytes.push(b',');
                }
                if column.shape == Shape::Null || is_null(array, at) {
                    continue;
                }
                match json::plain(&column.shape, array, at, self.numbers) {
                    Some((plain, _)) => field(&plain, &mut self.bytes),
                    None => {
                        let mut inside = Vec::new();
                        json::value(&column.shape, array, at, self.numbers, &mut inside);
                        field(&String::from_utf8_lossy(&inside), &mut self.bytes);
                    }
                }
            }
            self.bytes.extend_from_slice(b"\r\n");
            check_length(self.bytes.len(), most)?;
        }
        Ok(())
    }

    /// Returns the finished answer.
    pub fn end(self) -> Vec<u8> {
        self.bytes
    }
}

/// Writes a field, quoted where RFC 4180 requires it. An empty string is quoted too, because an
/// empty unquoted field means null.
fn field(text: &str, to: &mut Vec<u8>) {
    if !text.is_empty() && !text.contains([',', '"', '\r', '\n']) {
        return to.extend_from_slice(text.as_bytes());
    }
    to.push(b'"');
    to.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    to.push(b'"');
}
