//! What was made of the store's content, kept in memory until the store changes. Knows weights, not what is kept.

use std::hash::Hash;

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, Weighter};

use super::Generation;

/// Values by their keys, each for one generation of the store.
///
/// A value takes its place until its key is kept again, or others need the room.
pub struct Kept<K, V> {
    cache: Cache<K, InGeneration<V>, Weight>,
    heaviest: u64,
}

#[derive(Clone)]
struct InGeneration<V> {
    generation: Generation,
    value: V,
    weight: u64,
}

#[derive(Clone)]
struct Weight;

impl<K, V> Weighter<K, InGeneration<V>> for Weight {
    fn weight(&self, _: &K, kept: &InGeneration<V>) -> u64 {
        kept.weight
    }
}

impl<K: Hash + Eq, V: Clone> Kept<K, V> {
    /// Keeps values that weigh `capacity` together and `heaviest` each at the most; `usual` only sizes the table.
    pub fn new(capacity: u64, usual: u64, heaviest: u64) -> Self {
        let cache = Cache::with_weighter((capacity / usual) as usize, capacity, Weight);
        Self { cache, heaviest }
    }

    /// The value of a key, if it was kept in this generation.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(
        &self,
        key: &Q,
        generation: Generation,
    ) -> Option<V> {
        let kept = self.cache.get(key)?;
        (kept.generation == generation).then_some(kept.value)
    }

    /// Keeps what was made of nothing that was read before `generation` had been asked for, unless it weighs too much.
    pub fn keep<Q>(&self, key: Q, generation: Generation, weight: u64, value: &V)
    where
        K: From<Q>,
    {
        if weight <= self.heaviest {
            let value = value.clone();
            self.cache.insert(K::from(key), InGeneration { generation, value, weight });
        }
    }

    /// What all that is kept weighs.
    pub fn weight(&self) -> u64 {
        self.cache.weight()
    }

    /// How many values are kept.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }
}
