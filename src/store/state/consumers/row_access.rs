//! Access to a consumer's rows by family and bytes, from a snapshot or on top of buffered changes, so
//! that the code that reads rows for a step and for a request is the same.

use std::ops::ControlFlow;

use crate::encoding::error::StoreError;

/// Whether a visit of rows continues, or breaks because it has all that it needs.
pub type RowFlow = Result<ControlFlow<()>, StoreError>;

/// Read access to the rows of a feed consumer. Of a family that the consumer lacks, they are
/// [`StoreError::UnknownFamily`].
pub trait Rows {
    /// Returns the value under a key.
    fn get(&self, family: &str, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// Visits the rows of a family whose keys begin with `prefix` in key order, starting at the one
    /// that continues with `from`, until `visit` breaks. `visit` receives the rest of each key.
    /// Files without such rows are not searched if the prefix is a hash or an address.
    fn scan_prefix(
        &self,
        family: &str,
        prefix: &[u8],
        from: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> RowFlow,
    ) -> RowFlow;
}

/// Write access to the rows of a feed consumer. Reads return earlier changes.
pub trait RowsMut: Rows {
    /// Stores a value under a key.
    fn put(&mut self, family: &str, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError>;

    /// Deletes the row under a key.
    fn delete(&mut self, family: &str, key: Vec<u8>) -> Result<(), StoreError>;
}
