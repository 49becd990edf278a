//! The open RocksDB: options, typed reads, errors. Knows families and keys, not what they mean.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBPinnableSlice, DBRawIterator, ReadOptions,
    SnapshotWithThreadMode, WriteBatch,
};

use super::StoreError;
use super::acknowledged::Acknowledged;
use super::block_cache::{BlockCache, Removals};
use super::bytes::Malformed;
use super::columns::{BlockKey, Family, Key};
use super::compression::{self, Content};
use super::faults::{Faults, WriteKind};
use super::options;
use super::writes::{Write, Writes};
use crate::domain::{EventId, LedgerSeq};

/// An open database with all families.
pub(super) struct Database {
    db: DB,
    /// Names of all families: first [`Family::ALL`], then those that not every store has.
    families: Vec<String>,
    writes: Writes,
    cache: Cache,
    event_blocks: BlockCache,
}

/// A state of the database that does not change while it is read.
pub(super) struct Snapshot<'a> {
    database: &'a Database,
    snapshot: SnapshotWithThreadMode<'a, DB>,
    removals: Removals,
}

impl Database {
    /// Opens or creates the database in a directory.
    #[cfg(test)]
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &[], None)
    }

    /// Opens or creates the database in a directory, with families that not every store has. Those of them
    /// that are there already are opened in any case. What is on disk is noted in `acknowledged`.
    pub(super) fn open_with(
        path: &Path,
        wanted: &[String],
        acknowledged: Option<Acknowledged>,
    ) -> Result<Self, StoreError> {
        let cache = options::cache();
        let settings = options::database();
        let there =
            if path.join("CURRENT").exists() { DB::list_cf(&settings, path)? } else { vec![] };
        let is_own = |name: &String| {
            name == rocksdb::DEFAULT_COLUMN_FAMILY_NAME
                || Family::ALL.iter().any(|family| family.name() == name)
        };
        let foreign: BTreeSet<String> =
            there.into_iter().chain(wanted.iter().cloned()).filter(|name| !is_own(name)).collect();
        let own = Family::ALL.iter().map(|family| (family.name(), *family));
        // They are indexes, as far as is known of them here.
        let others = foreign.iter().map(|name| (name.as_str(), Family::Rows));
        let families: Vec<_> = own.chain(others).collect();
        let names = families.iter().map(|(name, _)| (*name).to_owned()).collect();
        let families = families
            .into_iter()
            .map(|(name, like)| ColumnFamilyDescriptor::new(name, options::family(like, &cache)));
        let db = DB::open_cf_descriptors(&settings, path, families)?;
        let writes = Writes::new(acknowledged);
        Ok(Self { db, families: names, writes, cache, event_blocks: BlockCache::new() })
    }

    /// Opens a database that is there already, without changing it. What only its log holds is read
    /// from there. Of the wanted families that not every store has, those that are there are opened.
    pub(super) fn open_read_only(path: &Path, wanted: &[Family]) -> Result<Self, StoreError> {
        let cache = options::cache();
        let settings = options::database();
        let there = DB::list_cf(&settings, path)?;
        let families =
            Family::ALL.iter().chain(wanted).filter(|family| there.contains(&family.name().into()));
        let families = families.map(|family| {
            ColumnFamilyDescriptor::new(family.name(), options::family(*family, &cache))
        });
        let db = DB::open_cf_descriptors_read_only(&settings, path, families, false)?;
        let (families, writes) = (Vec::new(), Writes::new(None));
        Ok(Self { db, families, writes, cache, event_blocks: BlockCache::new() })
    }

    /// Whether every family is there: one that is opened to be read may lack some.
    pub(super) fn check_families(&self) -> Result<(), StoreError> {
        Family::ALL.iter().try_for_each(|family| self.handle(*family).map(|_| ()))
    }

    /// Number of the last change; each row that is put or deleted is one.
    pub(super) fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// What [`Acknowledged`] says in a data directory, while nobody changes it.
    pub(super) fn note(&self, directory: &Path) -> Result<Option<String>, StoreError> {
        self.writes.note_in(directory)
    }

    /// The database itself, for what RocksDB does with all of it.
    pub(super) fn rocksdb(&self) -> &DB {
        &self.db
    }

    fn handle(&self, family: Family) -> Result<&ColumnFamily, StoreError> {
        self.db.cf_handle(family.name()).ok_or(StoreError::MissingFamily(family.name()))
    }

    fn foreign(&self, name: &str) -> Result<&ColumnFamily, StoreError> {
        let unknown = || StoreError::UnknownFamily(name.to_owned());
        self.db
            .cf_handle(name)
            .filter(|_| self.families.iter().skip(Family::ALL.len()).any(|it| it == name))
            .ok_or_else(unknown)
    }

    pub(super) fn get(
        &self,
        family: Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.db.get_pinned_cf(self.handle(family)?, key)?)
    }

    /// Like [`Self::get`], past the caches.
    pub(super) fn get_on_disk(
        &self,
        family: Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.db.get_pinned_cf_opt(self.handle(family)?, key, &past_caches())?)
    }

    /// All rows of a family, read past the caches.
    pub(super) fn rows_on_disk(&self, family: Family) -> Result<DBRawIterator<'_>, StoreError> {
        Ok(self.db.raw_iterator_cf_opt(self.handle(family)?, past_caches()))
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let removals = self.event_blocks.removals();
        Snapshot { database: self, snapshot: self.db.snapshot(), removals }
    }

    /// Visits all rows of a family in order.
    pub(super) fn scan(
        &self,
        family: Family,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = self.db.raw_iterator_cf_opt(self.handle(family)?, in_order());
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            visit(key, value)?;
            rows.next();
        }
        Ok(rows.status()?)
    }

    /// An empty batch for this database.
    pub(super) fn batch(&self) -> Batch<'_> {
        Batch::new(self, WriteBatch::default())
    }

    /// A batch that was detached from this database.
    pub(super) fn attach(&self, detached: DetachedBatch) -> Batch<'_> {
        Batch { ledger: detached.ledger, ..Batch::new(self, detached.batch) }
    }

    /// An empty batch with room for so many bytes.
    pub(super) fn batch_with_room(&self, bytes: usize) -> Batch<'_> {
        Batch::new(self, WriteBatch::with_capacity_bytes(bytes))
    }

    /// Writes a batch and waits until it is on disk, with everything that was written before.
    pub(super) fn write_synced(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.writes.expect_others();
        self.write(WriteKind::Synced, batch)
    }

    /// Writes a batch to the log without waiting for the disk: a crash of the machine may undo it.
    pub(super) fn write_logged(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.writes.expect_others();
        self.write(WriteKind::Logged, batch)
    }

    /// Writes a batch that is durable after the next [`Self::flush`], and that a crash loses whole until
    /// then, if it loses it.
    pub(super) fn write_deferred(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.write(self.writes.deferred(), batch)
    }

    /// Writes a batch to memory only: it is durable after the next [`Self::flush`], and until then
    /// a crash loses it whole, because all families are flushed together.
    pub(super) fn write_unlogged(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.write(WriteKind::Unlogged, batch)
    }

    /// Makes everything written so far durable.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.write(WriteKind::Flush, self.batch())
    }

    fn write(&self, kind: WriteKind, batch: Batch<'_>) -> Result<(), StoreError> {
        let write = Write { kind, batch: batch.batch, ledger: batch.ledger };
        self.writes.make(&self.db, &self.families, write)
    }

    /// Makes everything durable that is not, at the least cost.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        self.writes.settle(&self.db, &self.families)
    }

    /// Whether anything was written without a log since the last flush.
    pub(super) fn has_unlogged(&self) -> bool {
        self.writes.has_unlogged()
    }

    /// Whether a crash of the machine may undo something that was written.
    pub(super) fn has_pending(&self) -> bool {
        self.writes.has_pending()
    }

    /// Notes that everything there is is on disk, the last ledger being this one.
    pub(super) fn acknowledge(&self, ledger: LedgerSeq) {
        self.writes.acknowledge(&self.db, ledger);
    }

    /// Failures of writes that a test plans.
    pub(super) fn faults(&self) -> &Faults {
        self.writes.faults()
    }

    /// All families with their names, those of consumers among them.
    fn all(&self) -> Result<Vec<(&str, &ColumnFamily)>, StoreError> {
        let handle = |name: &str| self.db.cf_handle(name);
        let missing = |name: &str| StoreError::UnknownFamily(name.to_owned());
        let named = self.families.iter().map(String::as_str);
        named.map(|name| Ok((name, handle(name).ok_or_else(|| missing(name))?))).collect()
    }

    /// Sorts all families into their final form.
    pub(super) fn compact_all(&self) -> Result<(), StoreError> {
        for (_, handle) in self.all()? {
            self.db.compact_range_cf(handle, None::<&[u8]>, None::<&[u8]>);
        }
        Ok(())
    }

    /// Drops whole files that hold only keys from `first` to `last`, both included: space comes back
    /// at once, without waiting for a compaction to act on a range deletion.
    pub(super) fn drop_files(
        &self,
        family: Family,
        first: &[u8],
        last: &[u8],
    ) -> Result<(), StoreError> {
        Ok(self.db.delete_file_in_range_cf(self.handle(family)?, first, last)?)
    }

    /// Bytes of each family on disk.
    pub(super) fn sizes_on_disk(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let sizes = self.all()?.into_iter().map(|(name, handle)| {
            let total = rocksdb::properties::TOTAL_SST_FILES_SIZE;
            let size = self.db.property_int_value_cf(handle, total)?;
            Ok((name.to_owned(), size.unwrap_or(0)))
        });
        sizes.collect()
    }

    /// To be called with the event blocks that a written batch removed.
    pub(super) fn forget_event_blocks(&self, blocks: &[EventId]) {
        self.event_blocks.forget(blocks);
    }

    /// Bytes of memory that both caches use now.
    pub(super) fn cache_bytes(&self) -> usize {
        self.cache.get_usage() + self.event_blocks.bytes()
    }
}

impl<'a> Snapshot<'a> {
    /// As [`Self::rows`], for somebody who keeps the rows beside the snapshot. The snapshot has to stay as long as
    /// they do.
    pub(super) fn rows_of_database(&self, family: Family) -> Result<DBRawIterator<'a>, StoreError> {
        let mut options = in_order();
        options.set_snapshot(&self.snapshot);
        Ok(self.database.db.raw_iterator_cf_opt(self.database.handle(family)?, options))
    }

    pub(super) fn get(
        &self,
        family: Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.snapshot.get_pinned_cf(self.database.handle(family)?, key)?)
    }

    /// A row of a consumer's family.
    pub(super) fn get_foreign(
        &self,
        family: &str,
        key: &[u8],
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.snapshot.get_pinned_cf(self.database.foreign(family)?, key)?)
    }

    /// Rows of a consumer's family.
    pub(super) fn foreign_rows(&self, family: &str) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.foreign(family)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, in_order()))
    }

    /// The event block that begins with an event, if it is stored.
    pub(super) fn event_block(&self, first: EventId) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.database.event_blocks.get(first, self.removals, || {
            let stored = self.get(Family::Events, BlockKey(first).encode())?;
            let decompressed = stored.map(|bytes| compression::decompress(Content::Events, &bytes));
            Ok(decompressed.transpose()?.map(Arc::from))
        })
    }

    pub(super) fn rows(&self, family: Family) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.handle(family)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, in_order()))
    }

    /// The same, past the caches.
    pub(super) fn rows_past_caches(&self, family: Family) -> Result<DBRawIterator<'_>, StoreError> {
        let handle = self.database.handle(family)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, past_caches()))
    }

    /// Those of `tx_by_hash` whose key begins as the one that is sought does.
    pub(super) fn rows_by_hash(&self) -> Result<DBRawIterator<'_>, StoreError> {
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(true);
        let handle = self.database.handle(Family::TxByHash)?;
        Ok(self.snapshot.raw_iterator_cf_opt(handle, options))
    }
}

/// Rows that are written together or not at all.
pub(super) struct Batch<'a> {
    database: &'a Database,
    batch: WriteBatch,
    /// Families that were written to: RocksDB finds them by name, and a ledger has a thousand rows.
    handles: Vec<(Family, &'a ColumnFamily)>,
    /// The one that was written to last: rows of a family come one after the other.
    last: usize,
    ledger: Option<LedgerSeq>,
}

/// A [`Batch`] on its way to another thread.
pub(super) struct DetachedBatch {
    batch: WriteBatch,
    ledger: Option<LedgerSeq>,
}

impl<'a> Batch<'a> {
    fn new(database: &'a Database, batch: WriteBatch) -> Self {
        let handles = Vec::with_capacity(Family::ALL.len());
        Self { database, batch, handles, last: 0, ledger: None }
    }

    fn handle(&mut self, family: Family) -> Result<&'a ColumnFamily, StoreError> {
        if let Some((last, handle)) = self.handles.get(self.last)
            && *last == family
        {
            return Ok(handle);
        }
        let known = self.handles.iter().position(|(known, _)| *known == family);
        self.last = known.unwrap_or(self.handles.len());
        if known.is_none() {
            self.handles.push((family, self.database.handle(family)?));
        }
        Ok(self.handles[self.last].1)
    }

    /// The rows, without their database.
    pub(super) fn detach(self) -> DetachedBatch {
        DetachedBatch { batch: self.batch, ledger: self.ledger }
    }

    /// It stores ledgers; this is the last of them in the order of ingestion.
    pub(super) fn stores(&mut self, last: LedgerSeq) {
        self.ledger = Some(last);
    }

    /// How many rows it puts and deletes so far.
    pub(super) fn rows(&self) -> u64 {
        self.batch.len() as u64
    }

    pub(super) fn put<K: Key>(
        &mut self,
        family: Family,
        key: &K,
        value: impl AsRef<[u8]>,
    ) -> Result<(), StoreError> {
        self.put_raw(family, key.encode().as_ref(), value.as_ref())
    }

    pub(super) fn put_raw(
        &mut self,
        family: Family,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let handle = self.handle(family)?;
        self.batch.put_cf(handle, key, value);
        Ok(())
    }

    pub(super) fn delete<K: Key>(&mut self, family: Family, key: &K) -> Result<(), StoreError> {
        self.delete_raw(family, key.encode().as_ref())
    }

    pub(super) fn delete_raw(&mut self, family: Family, key: &[u8]) -> Result<(), StoreError> {
        let handle = self.handle(family)?;
        self.batch.delete_cf(handle, key);
        Ok(())
    }

    /// Deletes the keys from `from` up to but without `to`.
    pub(super) fn delete_range(
        &mut self,
        family: Family,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), StoreError> {
        let handle = self.handle(family)?;
        self.batch.delete_range_cf(handle, from, to);
        Ok(())
    }

    /// Puts a row into a consumer's family, or deletes it.
    pub(super) fn change_foreign(
        &mut self,
        family: &str,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let handle = self.database.foreign(family)?;
        match value {
            Some(value) => self.batch.put_cf(handle, key, value),
            None => self.batch.delete_cf(handle, key),
        }
        Ok(())
    }

    /// Deletes the keys of a consumer's family from `from` up to but without `to`.
    pub(super) fn delete_foreign_range(
        &mut self,
        family: &str,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), StoreError> {
        let handle = self.database.foreign(family)?;
        self.batch.delete_range_cf(handle, from, to);
        Ok(())
    }
}

/// Reads whatever there is, also where a filter could say that a prefix is not there.
fn in_order() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options
}

fn past_caches() -> ReadOptions {
    let mut options = in_order();
    options.set_verify_checksums(true);
    options.fill_cache(false);
    options
}

impl From<rocksdb::Error> for StoreError {
    fn from(error: rocksdb::Error) -> Self {
        Self::Database(error.into_string())
    }
}

/// Names the row in the error about it.
pub(super) fn corrupt(
    family: Family,
    key: impl AsRef<[u8]>,
) -> impl FnOnce(Malformed) -> StoreError {
    move |Malformed| StoreError::Corrupt { family: family.name(), key: hex::encode(key) }
}
