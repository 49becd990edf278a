//! The open RocksDB database: opening, typed reads, batches, errors. Treats values as bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use orrery_ledger::domain::{EventId, LedgerSeq};
use rocksdb::{Cache, ColumnFamily, DB, DBPinnableSlice, DBRawIterator, ReadOptions, WriteBatch};

use super::acknowledged::Acknowledged;
use super::block_cache::{BlockCache, Removals};
use super::faults::{Faults, WriteKind};
use super::options;
use super::tuning::Tuning;
use super::writes::{BatchEnds, Write, Writes};
use crate::encoding::block::PreparedBlock;
use crate::encoding::columns::{Family, Key, SharedFamily};
use crate::encoding::error::StoreError;

/// An open database with its column families.
pub(crate) struct Database {
    pub(crate) db: DB,
    /// Names of all families. Empty when opened read-only.
    families: Vec<String>,
    /// Names of those that were created when it was opened.
    new_families: BTreeSet<String>,
    /// Families of the registered kinds of consumers. Those of other kinds are kept open, and not
    /// used.
    shared: Vec<SharedFamily>,
    writes: Writes,
    cache: Cache,
    pub(crate) event_blocks: BlockCache,
}

impl Database {
    /// Opens or creates the database in a directory.
    #[cfg(test)]
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, &[], &[], &Tuning::default(), None)
    }

    /// Opens or creates the database in a directory, with `registered` families, those of consumers
    /// and all existing ones beyond the built-in ones, and the options of `tuning`. Acknowledged writes
    /// are recorded in `acknowledged`.
    pub(crate) fn open_with(
        path: &Path,
        registered: &[Family],
        of_consumers: &[String],
        tuning: &Tuning,
        acknowledged: Option<Acknowledged>,
    ) -> Result<Self, StoreError> {
        let cache = options::cache();
        let settings = options::database(tuning)?;
        let found =
            if path.join("CURRENT").exists() { DB::list_cf(&settings, path)? } else { vec![] };
        let own: Vec<Family> = Family::ALL.into_iter().chain(registered.iter().copied()).collect();
        let is_own = |name: &String| {
            name == rocksdb::DEFAULT_COLUMN_FAMILY_NAME
                || own.iter().any(|family| family.name() == name)
        };
        let additional: BTreeSet<String> =
            found.iter().chain(of_consumers).filter(|name| !is_own(name)).cloned().collect();
        let own = own.iter().map(|family| (family.name(), Some(*family)));
        let others = additional.iter().map(|name| (name.as_str(), None));
        let families: Vec<_> = own.chain(others).collect();
        let names: Vec<String> = families.iter().map(|(name, _)| (*name).to_owned()).collect();
        let new_families = names.iter().filter(|name| !found.contains(name)).cloned().collect();
        let families = families
            .into_iter()
            .map(|(name, family)| options::descriptor(name, family, &cache, tuning));
        let families = families.collect::<Result<Vec<_>, _>>()?;
        let db = DB::open_cf_descriptors(&settings, path, families)?;
        let shared = registered.iter().filter_map(|family| match family {
            Family::Shared(shared) => Some(*shared),
            _ => None,
        });
        let (shared, writes) = (shared.collect(), Writes::new(acknowledged));
        let event_blocks = BlockCache::new();
        Ok(Self { db, families: names, new_families, shared, writes, cache, event_blocks })
    }

    /// Opens all families of an existing database read-only. Rows that are only in its WAL are read
    /// from there.
    pub(crate) fn open_read_only(path: &Path, shared: &[SharedFamily]) -> Result<Self, StoreError> {
        let cache = options::cache();
        let settings = options::read_only()?;
        let found = DB::list_cf(&settings, path)?;
        let of_kinds = shared.iter().copied().map(Family::Shared);
        let own: Vec<Family> = Family::ALL.into_iter().chain(of_kinds).collect();
        let family = |name: &str| own.iter().copied().find(|family| family.name() == name);
        let untuned = Tuning::default();
        let families =
            found.iter().map(|name| options::descriptor(name, family(name), &cache, &untuned));
        let families = families.collect::<Result<Vec<_>, _>>()?;
        let db = DB::open_cf_descriptors_read_only(&settings, path, families, false)?;
        let (families, shared, writes) = (Vec::new(), shared.to_vec(), Writes::new(None));
        let (new_families, event_blocks) = (BTreeSet::new(), BlockCache::new());
        Ok(Self { db, families, new_families, shared, writes, cache, event_blocks })
    }

    /// Whether the database was opened read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.families.is_empty()
    }

    /// Returns an error unless every built-in family exists, which opening read-only does not
    /// ensure.
    pub(crate) fn check_families(&self) -> Result<(), StoreError> {
        Family::ALL.iter().try_for_each(|family| self.handle(*family).map(|_| ()))
    }

    /// Sequence number of the last change; each put or deleted row is one change.
    pub(crate) fn sequence(&self) -> u64 {
        self.db.latest_sequence_number()
    }

    /// Returns the record of [`Acknowledged`] in a data directory, if there is one. It cannot
    /// change while it is read.
    pub(crate) fn read_acknowledged(&self, directory: &Path) -> Result<Option<String>, StoreError> {
        self.writes.read_acknowledged(directory)
    }

    /// The underlying RocksDB handle, for operations on the database as a whole.
    pub(crate) fn rocksdb(&self) -> &DB {
        &self.db
    }

    pub(crate) fn handle(&self, family: Family) -> Result<&ColumnFamily, StoreError> {
        let name = family.name();
        match family {
            Family::Shared(shared) if !self.shared.contains(&shared) => {
                Err(StoreError::UnknownFamily(name.to_owned()))
            }
            _ => self.db.cf_handle(name).ok_or(StoreError::MissingFamily(name)),
        }
    }

    /// Returns the handle of a family of one consumer, whose name is `NAME.FAMILY`.
    pub(crate) fn consumer_handle(&self, name: &str) -> Result<&ColumnFamily, StoreError> {
        self.db.cf_handle(name).ok_or_else(|| StoreError::UnknownFamily(name.to_owned()))
    }

    /// Returns whether a family was created when the database was opened.
    pub(crate) fn is_new_family(&self, name: &str) -> bool {
        self.new_families.contains(name)
    }

    /// Returns whether a family exists.
    pub(crate) fn has_family(&self, name: &str) -> bool {
        self.db.cf_handle(name).is_some()
    }

    pub(crate) fn get(
        &self,
        family: Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.db.get_pinned_cf(self.handle(family)?, key)?)
    }

    /// Like [`Self::get`], but verifies checksums and does not fill the block cache.
    pub(crate) fn get_on_disk(
        &self,
        family: Family,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<DBPinnableSlice<'_>>, StoreError> {
        Ok(self.db.get_pinned_cf_opt(self.handle(family)?, key, &uncached())?)
    }

    /// Iterates over all rows of a family. Verifies checksums and does not fill the block cache.
    pub(crate) fn rows_on_disk(&self, family: Family) -> Result<DBRawIterator<'_>, StoreError> {
        Ok(self.db.raw_iterator_cf_opt(self.handle(family)?, uncached()))
    }

    /// Calls `visit` for all rows of a family, in key order.
    pub(crate) fn scan(
        &self,
        family: Family,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut rows = self.db.raw_iterator_cf_opt(self.handle(family)?, total_order());
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            visit(key, value)?;
            rows.next();
        }
        Ok(rows.status()?)
    }

    /// Returns an empty batch for this database.
    pub(crate) fn batch(&self) -> Batch<'_> {
        Batch::new(self, WriteBatch::default())
    }

    /// Attaches a detached batch to this database again.
    pub(crate) fn attach(&self, detached: DetachedBatch) -> Batch<'_> {
        Batch { stored: detached.stored, ..Batch::new(self, detached.batch) }
    }

    /// Returns an empty batch with capacity for this number of bytes.
    pub(crate) fn batch_with_capacity(&self, bytes: usize) -> Batch<'_> {
        Batch::new(self, WriteBatch::with_capacity_bytes(bytes))
    }

    /// Writes a batch and waits until it and all earlier writes are durable.
    pub(crate) fn write_synced(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.writes.note_logged_write();
        self.write(WriteKind::Synced, batch)
    }

    /// Writes a batch to the WAL without fsync: a crash of the machine may undo it.
    pub(crate) fn write_logged(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.writes.note_logged_write();
        self.write(WriteKind::Logged, batch)
    }

    /// Writes a batch that is durable after the next [`Self::flush`]. A crash before that may lose
    /// it, but only as a whole.
    pub(crate) fn write_deferred(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.write(self.writes.deferred(), batch)
    }

    /// Writes a batch to the memtables only, without the WAL. A crash before the next
    /// [`Self::flush`] loses it as a whole, because all families are flushed together.
    pub(crate) fn write_unlogged(&self, batch: Batch<'_>) -> Result<(), StoreError> {
        self.write(WriteKind::Unlogged, batch)
    }

    /// Makes everything written so far durable.
    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.write(WriteKind::Flush, self.batch())
    }

    fn write(&self, kind: WriteKind, batch: Batch<'_>) -> Result<(), StoreError> {
        let write = Write { kind, batch: batch.batch, stored: batch.stored };
        self.writes.make(&self.db, &self.families, write)
    }

    /// Makes all pending writes durable: with an fsync of the WAL if that is enough, else with a
    /// flush.
    pub(crate) fn sync_pending(&self) -> Result<(), StoreError> {
        self.writes.sync_pending(&self.db, &self.families)
    }

    /// Returns whether anything was written without the WAL since the last flush.
    pub(crate) fn has_unlogged(&self) -> bool {
        self.writes.has_unlogged()
    }

    /// Returns whether a crash of the machine could undo a write.
    pub(crate) fn has_pending(&self) -> bool {
        self.writes.has_pending()
    }

    /// Records that everything in the database is durable, `ledger` being the last stored ledger.
    pub(crate) fn acknowledge(&self, ledger: LedgerSeq) {
        self.writes.acknowledge(&self.db, ledger);
    }

    /// Write failures that a test has scheduled.
    pub(crate) fn faults(&self) -> &Faults {
        self.writes.faults()
    }

    /// Returns the names and handles of all families, built-in or not.
    pub(crate) fn all(&self) -> Result<Vec<(&str, &ColumnFamily)>, StoreError> {
        let handle = |name: &str| self.db.cf_handle(name);
        let missing = |name: &str| StoreError::UnknownFamily(name.to_owned());
        let named = self.families.iter().map(String::as_str);
        named.map(|name| Ok((name, handle(name).ok_or_else(|| missing(name))?))).collect()
    }

    /// Compacts all families completely.
    pub(crate) fn compact_all(&self) -> Result<(), StoreError> {
        for (_, handle) in self.all()? {
            self.db.compact_range_cf(handle, None::<&[u8]>, None::<&[u8]>);
        }
        Ok(())
    }

    /// Deletes the SST files that hold only keys from `first` to `last`, which frees space at once.
    pub(crate) fn drop_files(
        &self,
        family: Family,
        first: &[u8],
        last: &[u8],
    ) -> Result<(), StoreError> {
        Ok(self.db.delete_file_in_range_cf(self.handle(family)?, first, last)?)
    }

    /// Returns the size of each family's SST files, in bytes.
    pub(crate) fn sizes_on_disk(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let sizes = self.all()?.into_iter().map(|(name, handle)| {
            let total = rocksdb::properties::TOTAL_SST_FILES_SIZE;
            let size = self.db.property_int_value_cf(handle, total)?;
            Ok((name.to_owned(), size.unwrap_or(0)))
        });
        sizes.collect()
    }

    /// Returns the counter that [`Self::cache_event_blocks`] needs. Must be called before the blocks
    /// are written.
    pub(crate) fn event_block_removals(&self) -> Removals {
        self.event_blocks.removals()
    }

    /// Caches the event blocks of a ledger that was just stored, with `first` as the id of its first
    /// event.
    pub(crate) fn cache_event_blocks(
        &self,
        mut first: EventId,
        blocks: Vec<PreparedBlock>,
        removals: Removals,
    ) {
        for PreparedBlock { events, encoded, .. } in blocks {
            if let Some(encoded) = encoded {
                // Without the spare capacity, which the cache does not count.
                self.event_blocks.add(first, encoded.into_boxed_slice().into(), removals);
            }
            first.0 += events;
        }
    }

    /// Whether an event block is cached. It may be dropped at any time.
    pub(crate) fn has_event_block(&self, first: EventId) -> bool {
        self.event_blocks.contains(first)
    }

    /// Evicts cached event blocks. Must be called with the blocks that a written batch removed.
    pub(crate) fn evict_event_blocks(&self, blocks: &[EventId]) {
        self.event_blocks.evict(blocks);
    }

    /// Memory used by both caches, in bytes.
    pub(crate) fn cache_bytes(&self) -> usize {
        self.cache.get_usage() + self.event_blocks.bytes()
    }
}

/// Changes that are written atomically.
pub(crate) struct Batch<'a> {
    database: &'a Database,
    batch: WriteBatch,
    /// Handles of the families used so far: looking one up by name for each row is slow.
    handles: Vec<(Family, &'a ColumnFamily)>,
    /// Index in `handles` of the family used last: rows of one family usually come consecutively.
    last: usize,
    stored: Option<BatchEnds>,
}

/// A [`Batch`] without its database, to be sent to another thread.
pub(crate) struct DetachedBatch {
    batch: WriteBatch,
    stored: Option<BatchEnds>,
}

impl<'a> Batch<'a> {
    fn new(database: &'a Database, batch: WriteBatch) -> Self {
        let handles = Vec::with_capacity(Family::ALL.len());
        Self { database, batch, handles, last: 0, stored: None }
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

    /// Detaches the changes from the database.
    pub(crate) fn detach(self) -> DetachedBatch {
        DetachedBatch { batch: self.batch, stored: self.stored }
    }

    /// Marks the batch as one that stores ledgers.
    pub(crate) fn set_stored(&mut self, stored: BatchEnds) {
        self.stored = Some(stored);
    }

    /// Number of rows put and deleted so far.
    pub(crate) fn rows(&self) -> u64 {
        self.batch.len() as u64
    }

    pub(crate) fn put<K: Key>(
        &mut self,
        family: Family,
        key: &K,
        value: impl AsRef<[u8]>,
    ) -> Result<(), StoreError> {
        self.put_raw(family, key.encode().as_ref(), value.as_ref())
    }

    pub(crate) fn put_raw(
        &mut self,
        family: Family,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), StoreError> {
        let handle = self.handle(family)?;
        self.batch.put_cf(handle, key, value);
        Ok(())
    }

    pub(crate) fn delete<K: Key>(&mut self, family: Family, key: &K) -> Result<(), StoreError> {
        self.delete_raw(family, key.encode().as_ref())
    }

    pub(crate) fn delete_raw(&mut self, family: Family, key: &[u8]) -> Result<(), StoreError> {
        let handle = self.handle(family)?;
        self.batch.delete_cf(handle, key);
        Ok(())
    }

    /// Deletes the keys from `from` (included) to `to` (excluded). An empty range is left out:
    /// RocksDB gives it a sequence number when it is written, and none when it is read back from the
    /// WAL, so that the database would seem to end before its last acknowledged write.
    pub(crate) fn delete_range(
        &mut self,
        family: Family,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), StoreError> {
        let handle = self.handle(family)?;
        if from < to {
            self.batch.delete_range_cf(handle, from, to);
        }
        Ok(())
    }

    /// Puts or deletes a row of a consumer's family.
    pub(crate) fn change_consumer_row(
        &mut self,
        family: &str,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let handle = self.database.consumer_handle(family)?;
        match value {
            Some(value) => self.batch.put_cf(handle, key, value),
            None => self.batch.delete_cf(handle, key),
        }
        Ok(())
    }

    /// Deletes the keys of a consumer's family from `from` (included) to `to` (excluded); see
    /// [`Self::delete_range`].
    pub(crate) fn delete_consumer_range(
        &mut self,
        family: &str,
        from: &[u8],
        to: &[u8],
    ) -> Result<(), StoreError> {
        let handle = self.database.consumer_handle(family)?;
        if from < to {
            self.batch.delete_range_cf(handle, from, to);
        }
        Ok(())
    }
}

/// Options for reads that see all keys in order, regardless of prefix filters.
pub(crate) fn total_order() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_total_order_seek(true);
    options
}

pub(crate) fn uncached() -> ReadOptions {
    let mut options = total_order();
    options.set_verify_checksums(true);
    options.fill_cache(false);
    options
}

impl From<rocksdb::Error> for StoreError {
    fn from(error: rocksdb::Error) -> Self {
        Self::Database(error.into_string())
    }
}
