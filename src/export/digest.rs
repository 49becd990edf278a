//! A digest of rows that does not depend on their order, nor on the files that they are in: the sum of a
//! hash of each. Two tables with as many rows and the same digest have the same rows. It tells an export
//! whether rows have changed, and that none was lost when files were merged; it is no proof for others.

use arrow::datatypes::Schema;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use sha2::{Digest, Sha256};

/// Limbs of 64 bits of a sum, the lowest first.
const LIMBS: usize = 4;

/// Sum of the hashes of rows, modulo 2^256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowSum([u64; LIMBS]);

impl RowSum {
    /// Returns the sum of both.
    pub fn and(self, other: Self) -> Self {
        let mut carry = false;
        Self(std::array::from_fn(|at| {
            let (sum, over) = self.0[at].overflowing_add(other.0[at]);
            let (sum, again) = sum.overflowing_add(carry.into());
            carry = over || again;
            sum
        }))
    }

    fn of_row(row: &[u8]) -> Self {
        Self::of_bytes(&Sha256::digest(row).into())
    }

    fn of_bytes(bytes: &[u8; LIMBS * 8]) -> Self {
        let limb = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at * 8 + byte]));
        Self(std::array::from_fn(limb))
    }

    /// Returns the sum as text.
    pub fn text(self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|limb| limb.to_le_bytes()).collect();
        hex::encode(bytes)
    }

    /// Returns the sum of which [`Self::text`] returns this.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self::of_bytes(&hex::decode(text).ok()?.try_into().ok()?))
    }
}

/// Adds up the hashes of the rows of a table.
pub struct RowDigest {
    converter: RowConverter,
    sum: RowSum,
}

impl RowDigest {
    /// Creates the digest of no rows of a table with this schema, of which names do not count.
    pub fn new(schema: &Schema) -> Result<Self, ArrowError> {
        let fields = schema.fields().iter();
        let fields = fields.map(|field| SortField::new(field.data_type().clone()));
        Ok(Self { converter: RowConverter::new(fields.collect())?, sum: RowSum::default() })
    }

    /// Adds rows with the columns of the schema.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        if batch.num_rows() == 0 || batch.num_columns() == 0 {
            return Ok(());
        }
        let rows = self.converter.convert_columns(batch.columns())?;
        for row in &rows {
            self.sum = self.sum.and(RowSum::of_row(row.as_ref()));
        }
        Ok(())
    }

    /// Returns the sum.
    pub fn sum(&self) -> RowSum {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn digest(rows: &[(i64, Option<&str>)]) -> RowSum {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|it| it.0)));
        let texts: ArrayRef = Arc::new(rows.iter().map(|it| it.1).collect::<StringArray>());
        let batch =
            RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("t", texts, true)]);
        let batch = batch.unwrap();
        let mut digest = RowDigest::new(&batch.schema()).unwrap();
        digest.add(&batch).unwrap();
        digest.sum()
    }

    #[test]
    fn rows_count_and_their_order_does_not() {
        let all = [(1, Some("a")), (2, None), (3, Some("")), (2, None)];
        let sum = digest(&all);
        let mut turned = all;
        turned.reverse();
        assert_eq!(sum, digest(&turned));
        assert_eq!(sum, digest(&all[..1]).and(digest(&all[1..])));
        assert_eq!(RowSum::parse(&sum.text()), Some(sum));
        assert_eq!(RowSum::parse("00"), None);
        for other in [&all[..3], &[(1, Some("a")), (2, None), (3, None), (2, None)], &[]] {
            assert_ne!(sum, digest(other));
        }
        let most = RowSum([u64::MAX; LIMBS]);
        assert_eq!(most.and(RowSum([1, 0, 0, 0])), RowSum::default());
        assert_eq!(RowSum([u64::MAX, 0, 0, 0]).and(RowSum([1, 0, 0, 0])), RowSum([0, 1, 0, 0]));
    }
}
