//! Reads from the state of the database at one moment.

use bytes::Bytes;
use orrery_ledger::domain::EventId;
use rocksdb::{
    DB, DBPinnableSlice, DBRawIterator, PrefixRange, ReadOptions, SnapshotWithThreadMode,
};

use super::block_cache::Removals;
use super::database::{Database, total_order, uncached};
use super::options::CONSUMER_PREFIX;
use crate::encoding::columns::{BlockKey, Family, Key};
use crate::encoding::compression;
use crate::encoding::compression::Content;
use crate::encoding::error::StoreError;

/// An immutable view of the database.
pub(crate) struct Snapshot<'a> {
    database: &'a Database,
    snapshot: SnapshotWithThreadMode<'a, DB>,
    removals: Removals,
}

impl Database {
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot::new(self)
    }
}

impl<'a> Snapshot<'a> {
    fn new(database: &'a Database) -> Self {
        let removals = database.event_blocks.removals();
        Self { database, snapshot: database.db.snapshot(), removals }
    }

    /// Like [`Self::rows`], with an iterator that can be kept next to the snapshot and not beyond it.
    pub(crate) fn rows_of_database(&self, family: Family) -> Result<DBRawIterator<'a>, StoreError> {
        let mut options = total_order();
        options.set_snapshot(&self.snapshot);
        Ok(self.database.db.raw_iterator_cf_opt(self.database.handle(family)?, options))
    }

    pub(crate) fn get(
        &self,
        family: Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.snapshot.get_pinned_cf(self.database.handle(family)?, key)?)
    }

    /// Reads a row of a consumer's family.
    pub(crate) fn get_consumer_row(
        &self,
        family: &str,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.snapshot.get_pinned_cf(self.database.consumer_handle(family)?, key)?)
    }

    /// Iterates over the rows of a consumer's family.
    pub(crate) fn consumer_rows(&self, family: &str) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.consumer_handle(family)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, total_order()))
    }

    /// Like [`Self::consumer_rows`], for a caller that looks only at rows whose keys begin with
    /// `prefix`. Others may be left out.
    pub(crate) fn consumer_rows_under(
        &self,
        family: &str,
        prefix: &[u8],
    ) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.consumer_handle(family)?;
        let mut options = match prefix.len() < CONSUMER_PREFIX {
            true => total_order(),
            false => same_prefix(),
        };
        // Without a bound, a read that comes to the last row goes on over all deleted rows up to the
        // next one.
        options.set_iterate_range(PrefixRange(prefix));
        Ok(self.snapshot.raw_iterator_cf_opt(handle, options))
    }

    /// Returns the decompressed event block that begins with event `first`, if it is stored.
    pub(crate) fn event_block(&self, first: EventId) -> Result<Option<Bytes>, StoreError> {
        self.database.event_blocks.get(first, self.removals, || {
            let stored = self.get(Family::Events, BlockKey(first).encode())?;
            let decompressed = stored.map(|bytes| compression::decompress(Content::Events, &bytes));
            Ok(decompressed.transpose()?.map(Bytes::from))
        })
    }

    pub(crate) fn rows(&self, family: Family) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.handle(family)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, total_order()))
    }

    /// Like [`Self::rows`], but verifies checksums and does not fill the block cache.
    pub(crate) fn rows_uncached(&self, family: Family) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.handle(family)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, uncached()))
    }

    /// Iterates over the rows of `tx_by_hash` that share the prefix of the key passed to `seek`.
    pub(crate) fn rows_by_hash(&self) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.handle(Family::TxByHash)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, same_prefix()))
    }
}

/// Options for reads that see only keys with the same prefix as the key passed to `seek`. Files
/// without such a key are skipped.
fn same_prefix() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_prefix_same_as_start(true);
    options
}
