//! Access to a consumer's rows by family and key, from a snapshot or on top of buffered changes, so
//! that the code that reads rows for a step and for a request is the same.

use std::ops::ControlFlow;

use super::rows::{ConsumerEffects, ConsumerView};
use crate::encoding::error::StoreError;

/// Whether a visit of rows continues, or has ended because of an error or with all that it needs.
pub type RowFlow = ControlFlow<Result<(), StoreError>>;

/// Read access to the rows of a feed consumer, by family and key.
pub trait Rows {
    /// Returns the value under a key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the rows of a family whose keys begin with `prefix` in key order, starting at the one
    /// that continues with `from`, until `visit` breaks. `visit` receives the rest of each key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> Result<RowFlow, StoreError>;
}

/// Write access to the rows of a feed consumer. Reads return earlier changes.
pub trait RowsMut: Rows {
    /// Stores a value under a key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError>;

    /// Deletes the row under a key.
    ///
    /// # Errors
    /// [`StoreError`] when the database fails.
    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError>;
}

macro_rules! rows {
    ($($type:ident),*) => {$(
        impl Rows for $type<'_> {
            fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
                self.get(family, key)
            }

            fn scan_prefix(
                &self,
                family: &str,
                prefix: &[u8],
                from: &[u8],
                visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
            ) -> Result<RowFlow, StoreError> {
                self.scan_prefix(family, prefix, from, visit)
            }
        }
    )*};
}

rows!(ConsumerView, ConsumerEffects);

impl RowsMut for ConsumerEffects<'_> {
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.put(family, key, value)
    }

    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError> {
        self.delete(family, key)
    }
}

/// Visits the rows whose keys begin with a prefix, starting at the one that continues with `from`,
/// each with the rest of its key, until `visit` breaks or returns `None` for a malformed row.
/// Returns whether it broke.
///
/// # Errors
/// [`StoreError`] when the database or `visit` fails, or when a row is malformed.
pub fn scan_rows(
    rows: &dyn Rows,
    family: &'static str,
    prefix: &[u8],
    from: &[u8],
    mut visit: impl FnMut(&[u8], &[u8]) -> Option<RowFlow>,
) -> Result<bool, StoreError> {
    let flow = rows.scan_prefix(family, prefix, from, &mut |rest, value| {
        let malformed = || ControlFlow::Break(Err(malformed_row(family, &[prefix, rest].concat())));
        visit(rest, value).unwrap_or_else(malformed)
    })?;
    Ok(flow.break_value().transpose()?.is_some())
}

/// Returns the row under a key, decoded; `None` when there is no such row.
///
/// # Errors
/// [`StoreError`] when the database fails, or when the row is malformed.
pub fn read_row<T>(
    rows: &dyn Rows,
    family: &'static str,
    key: &[u8],
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, StoreError> {
    let row = rows.get(family, key)?;
    row.map(|row| decode(&row).ok_or_else(|| malformed_row(family, key))).transpose()
}

/// Returns the error for a row of a consumer that is malformed.
pub fn malformed_row(family: &'static str, key: &[u8]) -> StoreError {
    StoreError::Corrupt { family, key: hex::encode(key) }
}
