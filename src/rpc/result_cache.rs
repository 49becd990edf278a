//! Cache of call results, valid until the store changes: clients poll for the same page, and a
//! lookup takes a fraction of the time of computing the result.
//!
//! Only results that depend on nothing but the store are cached, neither on the clock nor on the
//! caller.

use quick_cache::Equivalent;

use super::Json;
use orrery_store::{Generation, GenerationCache};

/// Capacity of the cache in bytes.
const CAPACITY_BYTES: u64 = 16 << 20;
/// Maximum size of a cached result together with its call, in bytes.
const MAX_ENTRY_BYTES: u64 = 512 << 10;
/// Size of a page of a hundred events in bytes; used only to size the hash table.
const TYPICAL_RESULT_BYTES: u64 = 48 << 10;
/// Overhead of a cache entry in bytes, besides its call and its result.
const ENTRY_OVERHEAD_BYTES: u64 = 256;

/// Cache key: the method, and its parameters as the client sent them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CallKey<T> {
    pub method: T,
    pub params: T,
}

impl Equivalent<CallKey<Box<str>>> for CallKey<&str> {
    fn equivalent(&self, own: &CallKey<Box<str>>) -> bool {
        self.method == &*own.method && self.params == &*own.params
    }
}

impl From<CallKey<&str>> for CallKey<Box<str>> {
    fn from(CallKey { method, params }: CallKey<&str>) -> Self {
        Self { method: method.into(), params: params.into() }
    }
}

/// The cached results.
pub(super) struct ResultCache(GenerationCache<CallKey<Box<str>>, Json>);

impl Default for ResultCache {
    fn default() -> Self {
        Self(GenerationCache::new(CAPACITY_BYTES, TYPICAL_RESULT_BYTES, MAX_ENTRY_BYTES))
    }
}

impl ResultCache {
    /// Returns the result of a call, if it was cached in this store generation.
    pub(super) fn get(&self, key: CallKey<&str>, generation: Generation) -> Option<Json> {
        self.0.get(&key, generation)
    }

    /// Caches a result that was computed entirely after `generation` was obtained.
    pub(super) fn insert(&self, key: CallKey<&str>, generation: Generation, of: &Json) {
        let bytes = key.method.len() + key.params.len() + of.get().len();
        self.0.insert(key, generation, ENTRY_OVERHEAD_BYTES + bytes as u64, of);
    }
}
