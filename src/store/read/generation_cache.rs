//! Cache of values derived from the store's content, valid until the store changes. Depends on the
//! weights of the values, not on their types.

use std::hash::Hash;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use crate::state::generation::Generation;

/// Cache of values by key, each valid in one generation of the store.
///
/// A value of an ended generation takes up weight until its key is inserted again or it is evicted.
pub struct GenerationCache<K, V> {
    cache: Cache<K, CachedValue<V>, Weight>,
    max_weight: u64,
}

#[derive(Clone)]
struct CachedValue<V> {
    generation: Generation,
    value: V,
    weight: u64,
}

#[derive(Clone)]
struct Weight;

impl<K, V> Weighter<K, CachedValue<V>> for Weight {
    fn weight(&self, _: &K, cached: &CachedValue<V>) -> u64 {
        cached.weight
    }
}

impl<K: Hash + Eq, V: Clone> GenerationCache<K, V> {
    /// Creates a cache of total weight `capacity`, of values that weigh at most `max_weight` each;
    /// `typical_weight` only sizes the table.
    pub fn new(capacity: u64, typical_weight: u64, max_weight: u64) -> Self {
        let cache = Cache::with_weighter((capacity / typical_weight) as usize, capacity, Weight);
        Self { cache, max_weight }
    }

    /// Returns the value of a key if it was inserted for this generation.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        generation: Generation,
    ) -> Option<V> {
        let cached = self.cache.get(key)?;
        (cached.generation == generation).then_some(cached.value)
    }

    /// Inserts a value unless it weighs more than the maximum. `value` must be derived only from
    /// reads made after `generation` was obtained.
    pub fn insert<Q>(&self, key: Q, generation: Generation, weight: u64, value: &V)
    where
        K: From<Q>,
    {
        if weight <= self.max_weight {
            let value = value.clone();
            self.cache.insert(K::from(key), CachedValue { generation, value, weight });
        }
    }

    /// Returns the total weight of the cached values.
    pub fn weight(&self) -> u64 {
        self.cache.weight()
    }

    /// Returns the number of cached values.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }
}
