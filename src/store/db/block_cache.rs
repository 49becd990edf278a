//! In-memory cache of decompressed event blocks, by the id of their first event. Treats blocks as
//! bytes. Filled by readers, and with the blocks of new ledgers, which consumers and streams read at
//! once.
//!
//! A page of one contract takes its events from dozens of blocks. RocksDB needs more than a
//! microsecond to find a row that is already in memory, mostly for the lookup through versions,
//! files and index blocks; here it is one hash table lookup. Blocks never change, and an id is
//! never assigned to another block, so the cached block is right for every snapshot that refers to
//! its id.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use orrery_ledger::domain::EventId;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::encoding::error::StoreError;

/// Maximum size of the cache, in bytes.
const CAPACITY: u64 = 64 << 20;
/// Typical block size of a busy network, in bytes; used only to size the table.
const USUAL_BLOCK: u64 = 12 << 10;
/// Overhead of an entry beside the bytes of its block.
const ENTRY: u64 = 64;

/// The cache, and a counter of removals.
pub(crate) struct BlockCache {
    blocks: Cache<EventId, Bytes, Weight>,
    removals: AtomicU64,
}

/// Value of the removal counter before a write, or before a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Removals(u64);

#[derive(Clone)]
struct Weight;

impl Weighter<EventId, Bytes> for Weight {
    fn weight(&self, _: &EventId, block: &Bytes) -> u64 {
        ENTRY + block.len() as u64
    }
}

impl BlockCache {
    pub(crate) fn new() -> Self {
        let items = (CAPACITY / USUAL_BLOCK) as usize;
        Self { blocks: Cache::with_weighter(items, CAPACITY, Weight), removals: AtomicU64::new(0) }
    }

    /// Returns the removal counter. Must be called before blocks are written, or before the snapshot
    /// from which they are read is taken.
    pub(crate) fn removals(&self) -> Removals {
        Removals(self.removals.load(Ordering::SeqCst))
    }

    /// Returns the block that begins with event `first`: from memory, or from `read`, which reads a
    /// snapshot. `removals` is the counter from before that snapshot.
    pub(crate) fn get(
        &self,
        first: EventId,
        removals: Removals,
        read: impl FnOnce() -> Result<Option<Bytes>, StoreError>,
    ) -> Result<Option<Bytes>, StoreError> {
        if let Some(block) = self.blocks.get(&first) {
            return Ok(Some(block));
        }
        let block = read()?;
        if let Some(block) = &block {
            // The snapshot may still contain a block that was removed since.
            self.add(first, block.clone(), removals);
        }
        Ok(block)
    }

    /// Adds a block that is stored. `removals` is the counter from before it was written, or from
    /// before the snapshot from which it was read.
    pub(crate) fn add(&self, first: EventId, block: Bytes, removals: Removals) {
        self.blocks.insert(first, block);
        // It may have been removed meanwhile, and `evict` may already have run.
        if self.removals() != removals {
            self.blocks.remove(&first);
        }
    }

    /// Whether a block is cached. It may be dropped at any time.
    pub(crate) fn contains(&self, first: EventId) -> bool {
        self.blocks.contains_key(&first)
    }

    /// Evicts blocks that were removed from the database.
    pub(crate) fn evict(&self, blocks: &[EventId]) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        for first in blocks {
            self.blocks.remove(first);
        }
    }

    /// Memory used by the cache, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.blocks.weight() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EventId = EventId(1);

    fn stored() -> Result<Option<Bytes>, StoreError> {
        Ok(Some(Bytes::from_static(&[7])))
    }

    fn is_cached(cache: &BlockCache) -> bool {
        cache.get(ID, cache.removals(), || Ok(None)).unwrap().is_some()
    }

    #[test]
    fn blocks_stay_cached_until_they_are_evicted() {
        let cache = BlockCache::new();
        assert!(!is_cached(&cache));
        assert!(cache.get(ID, cache.removals(), stored).unwrap().is_some());
        assert!(is_cached(&cache));
        cache.evict(&[ID]);
        assert!(!is_cached(&cache));
    }

    #[test]
    fn a_block_evicted_after_it_was_written_is_not_added() {
        let cache = BlockCache::new();
        let before = cache.removals();
        cache.evict(&[ID]);
        cache.add(ID, Bytes::from_static(&[7]), before);
        assert!(!cache.contains(ID));
        cache.add(ID, Bytes::from_static(&[7]), cache.removals());
        assert!(cache.contains(ID) && is_cached(&cache));
    }

    #[test]
    fn a_reader_from_before_an_eviction_caches_nothing() {
        let cache = BlockCache::new();
        let before = cache.removals();
        cache.evict(&[ID]);
        assert!(cache.get(ID, before, stored).unwrap().is_some());
        assert!(!is_cached(&cache));
    }
}
