//! Rows of an answer that end when the answer is large enough.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::ApiError;

/// How much may still be added to an answer.
pub(super) struct Bounded {
    rows: usize,
    bytes: usize,
    /// Whether rows were left out.
    pub is_cut: bool,
}

impl Bounded {
    /// Allows this many rows, and this many bytes of their JSON.
    pub(super) fn new(rows: usize, bytes: usize) -> Self {
        Self { rows, bytes, is_cut: false }
    }

    /// Returns the JSON of as many rows as may be added. The first that does not fit is the last that is
    /// made.
    ///
    /// # Errors
    /// [`ApiError::Encoding`] when a row cannot be written.
    pub(super) fn take<T: Serialize>(
        &mut self,
        rows: impl IntoIterator<Item = T>,
    ) -> Result<Vec<Box<RawValue>>, ApiError> {
        let mut taken = Vec::new();
        for row in rows {
            if self.is_cut {
                break;
            }
            let row = to_raw_value(&row).map_err(|error| {
                tracing::error!("a row of an answer cannot be written: {error}");
                ApiError::Encoding
            })?;
            // And the comma.
            let bytes = row.get().len() + 1;
            if self.rows == 0 || bytes > self.bytes {
                self.is_cut = true;
                break;
            }
            self.rows -= 1;
            self.bytes -= bytes;
            taken.push(row);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_bytes_are_bounded_over_all_lists() {
        let mut bounded = Bounded::new(3, 100);
        assert_eq!(bounded.take([1, 2]).unwrap().len(), 2);
        assert!(!bounded.is_cut);
        assert_eq!(bounded.take([3, 4, 5]).unwrap().len(), 1);
        assert!(bounded.is_cut);
        assert!(bounded.take(["x"]).unwrap().is_empty());
        let mut bounded = Bounded::new(usize::MAX, 10);
        let rows = bounded.take(["123", "4567", "8"]).unwrap();
        assert_eq!(rows.iter().map(|row| row.get()).collect::<Vec<_>>(), ["\"123\""]);
        assert!(bounded.is_cut, "the small row after the large one would leave a hole");
    }
}
