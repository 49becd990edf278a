//! Decompressed event blocks, kept in memory by the id of their first event. Knows bytes, not what
//! they mean.
//!
//! A page of one contract takes its events from dozens of blocks. To find a row that is in memory
//! already takes RocksDB more than a microsecond, mostly for its way through versions, files and
//! index blocks; here it is one look into a hash table. Blocks never change, and an id is never
//! given to another block, so whatever snapshot leads to an id, its block is the one that is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::StoreError;
use crate::domain::EventId;

/// Bytes of blocks that are kept.
const CAPACITY: u64 = 64 << 20;
/// What a block of a busy network takes; only for sizing the table.
const USUAL_BLOCK: u64 = 12 << 10;
/// What an entry takes beside the bytes of its block.
const ENTRY: u64 = 64;

/// The blocks in memory.
pub(super) struct BlockCache {
    blocks: Cache<EventId, Arc<[u8]>, Weight>,
    removals: AtomicU64,
}

/// How many times blocks had been removed before a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Removals(u64);

#[derive(Clone)]
struct Weight;

impl Weighter<EventId, Arc<[u8]>> for Weight {
    fn weight(&self, _: &EventId, block: &Arc<[u8]>) -> u64 {
        ENTRY + block.len() as u64
    }
}

impl BlockCache {
    pub(super) fn new() -> Self {
        let items = (CAPACITY / USUAL_BLOCK) as usize;
        Self { blocks: Cache::with_weighter(items, CAPACITY, Weight), removals: AtomicU64::new(0) }
    }

    /// To be asked before a snapshot is taken that blocks are read from.
    pub(super) fn removals(&self) -> Removals {
        Removals(self.removals.load(Ordering::SeqCst))
    }

    /// The block that begins with an event: from memory, or as `read` finds it in a snapshot before
    /// which there were so many `removals`.
    pub(super) fn get(
        &self,
        first: EventId,
        removals: Removals,
        read: impl FnOnce() -> Result<Option<Arc<[u8]>>, StoreError>,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        if let Some(block) = self.blocks.get(&first) {
            return Ok(Some(block));
        }
        let block = read()?;
        if let Some(block) = &block {
            self.blocks.insert(first, Arc::clone(block));
            // The snapshot may be older than a removal, which then came before or comes after this.
            if self.removals() != removals {
                self.blocks.remove(&first);
            }
        }
        Ok(block)
    }

    /// Lets blocks go that have been removed from the database.
    pub(super) fn forget(&self, blocks: &[EventId]) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        for first in blocks {
            self.blocks.remove(first);
        }
    }

    /// Bytes of memory that the blocks take now.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.weight() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EventId = EventId(1);

    fn stored() -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(Some(Arc::from([7u8].as_slice())))
    }

    fn is_kept(cache: &BlockCache) -> bool {
        cache.get(ID, cache.removals(), || Ok(None)).unwrap().is_some()
    }

    #[test]
    fn keeps_a_block_until_it_is_removed() {
        let cache = BlockCache::new();
        assert!(!is_kept(&cache));
        assert!(cache.get(ID, cache.removals(), stored).unwrap().is_some());
        assert!(is_kept(&cache));
        cache.forget(&[ID]);
        assert!(!is_kept(&cache));
    }

    #[test]
    fn a_reader_from_before_a_removal_leaves_nothing_behind() {
        let cache = BlockCache::new();
        let before = cache.removals();
        cache.forget(&[ID]);
        assert!(cache.get(ID, before, stored).unwrap().is_some());
        assert!(!is_kept(&cache));
    }
}
