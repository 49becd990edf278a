//! Buffer that sorts index rows by key before they are written. The database inserts rows fastest
//! in key order, because it starts the search for a row's position at that of the row before; the
//! more rows are inserted at once, the shorter is the distance from each to the next.

use crate::db::database::Batch;
use crate::encoding::columns::Family;
use crate::encoding::error::StoreError;

/// Rows in any order, of one ledger or several.
#[derive(Debug, Default)]
pub(crate) struct IndexRows {
    rows: Vec<Row>,
    /// Concatenated keys and values.
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Row {
    family: Family,
    /// First bytes of the key, usually enough for the comparison.
    prefix: u64,
    start: usize,
    key: usize,
    value: usize,
}

impl IndexRows {
    pub(crate) fn put(&mut self, family: Family, key: &[u8], value: &[u8]) {
        let mut prefix = [0; 8];
        let known = key.len().min(prefix.len());
        prefix[..known].copy_from_slice(&key[..known]);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let prefix = u64::from_be_bytes(prefix);
        self.rows.push(Row { family, prefix, start, key: key.len(), value: value.len() });
    }

    /// Adds all rows to `batch` in key order.
    pub(crate) fn write(mut self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let bytes = &self.bytes;
        let key = |row: &Row| &bytes[row.start..][..row.key];
        // The rows of one index and one ledger arrive sorted. A stable sort merges such runs, in a
        // fifth of the time that it takes to sort rows in any order.
        self.rows.sort_by(|a, b| {
            let by_prefix = (a.family, a.prefix).cmp(&(b.family, b.prefix));
            by_prefix.then_with(|| key(a).cmp(key(b)))
        });
        self.rows.iter().try_for_each(|row| {
            batch.put_raw(row.family, key(row), &bytes[row.start + row.key..][..row.value])
        })
    }
}
