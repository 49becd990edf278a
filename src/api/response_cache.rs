//! Cache of finished responses, valid until the store changes.
//!
//! Many clients poll the same page, and between two ledgers its response is identical to the byte.
//! A cache lookup takes a fraction of the time of reading, serialising and compressing it, and the
//! cached body is sent without a copy.
//!
//! Only responses of routes that say so ([`super::route::Work`]) are cached: their handlers depend
//! only on the store, the call and the settings, and not on the clock or the caller. Authorisation
//! and rate limits are applied before the cache is consulted. A response is valid only in the
//! [`Generation`] that was read before its first row, so a stale one is never served. An entry stays
//! until the same request replaces it, or until it is evicted for space.

use quick_cache::Equivalent;

use super::answer::Finished;
use orrery_store::{Generation, GenerationCache};

/// Capacity of the cache, in bytes.
const CAPACITY: u64 = 32 << 20;
/// Maximum size in bytes of a cached response with its request, so that a few huge pages do not
/// evict the common ones. Some 800 typical events fit, or a thousand when compressed.
const MAX_ENTRY_BYTES: u64 = 512 << 10;
/// Size in bytes of a page of a hundred events; only used to size the table.
const TYPICAL_RESPONSE_BYTES: u64 = 64 << 10;
/// Memory in bytes that an entry takes beside its request and body.
const ENTRY_OVERHEAD: u64 = 256;

/// Cache key: everything beside the store and the settings that a response depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CacheKey<T> {
    /// Path as sent, without a trailing slash.
    pub path: T,
    /// Query as sent.
    pub query: T,
    /// Whether the client prefers gzip.
    pub wants_gzip: bool,
}

/// A cache key that owns its text.
type OwnedCacheKey = CacheKey<Box<str>>;

impl Equivalent<OwnedCacheKey> for CacheKey<&str> {
    fn equivalent(&self, own: &OwnedCacheKey) -> bool {
        self.wants_gzip == own.wants_gzip && self.path == &*own.path && self.query == &*own.query
    }
}

impl From<&CacheKey<&str>> for OwnedCacheKey {
    fn from(key: &CacheKey<&str>) -> Self {
        let CacheKey { path, query, wants_gzip } = *key;
        Self { path: path.into(), query: query.into(), wants_gzip }
    }
}

/// Cache of finished responses.
pub(super) struct ResponseCache(GenerationCache<OwnedCacheKey, Finished>);

fn weight(path: &str, query: &str, answer: &Finished) -> u64 {
    ENTRY_OVERHEAD + (path.len() + query.len() + answer.body.len()) as u64
}

impl ResponseCache {
    pub(super) fn new() -> Self {
        Self(GenerationCache::new(CAPACITY, TYPICAL_RESPONSE_BYTES, MAX_ENTRY_BYTES))
    }

    /// Returns the entry of a request. `generation` must have been obtained before any data of the
    /// response is read; without one, nothing is cached.
    pub(super) fn entry<'a>(
        &'a self,
        key: CacheKey<&'a str>,
        generation: Option<Generation>,
    ) -> CacheEntry<'a> {
        CacheEntry { cache: self, key, generation }
    }

    /// Returns the cached response to a request, if it was stored in this generation.
    fn get(&self, key: &CacheKey<&str>, generation: Generation) -> Option<Finished> {
        self.0.get(key, generation)
    }

    /// Caches a response, all of whose data was read after `generation` was obtained.
    fn keep(&self, key: &CacheKey<&str>, generation: Generation, answer: &Finished) {
        let weight = weight(key.path, key.query, answer);
        self.0.insert(key, generation, weight, answer);
    }
}

/// Entry of one request in the cache, in one generation.
pub(super) struct CacheEntry<'a> {
    cache: &'a ResponseCache,
    key: CacheKey<&'a str>,
    generation: Option<Generation>,
}

impl CacheEntry<'_> {
    /// Returns the cached response.
    pub(super) fn get(&self) -> Option<Finished> {
        self.cache.get(&self.key, self.generation?)
    }

    /// Caches the response, unless it is incomplete: where such a one ended depends on timing and
    /// load.
    pub(super) fn keep(&self, answer: &Finished) {
        if let Some(generation) = self.generation.filter(|_| answer.is_complete) {
            self.cache.keep(&self.key, generation, answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::*;

    fn key<'a>(path: &'a str, query: &'a str) -> CacheKey<&'a str> {
        CacheKey { path, query, wants_gzip: false }
    }

    fn answer(length: u64) -> Finished {
        Finished::new(Answer::json(vec![b'x'; length as usize]), None)
    }

    #[test]
    fn a_response_is_valid_for_one_generation() {
        let answers = ResponseCache::new();
        let [before, now] = [0, 1].map(Generation::after);
        let page = key("contract", "limit=1");
        assert_eq!(answers.get(&page, before), None);
        let (old, new) = (answer(10), answer(20));
        answers.keep(&page, before, &old);
        assert_eq!(answers.get(&page, before), Some(old.clone()));
        assert_eq!(answers.get(&page, now), None);
        answers.keep(&page, now, &new);
        assert_eq!((answers.get(&page, now), answers.get(&page, before)), (Some(new), None));
        // A reader that began in the old generation and ends late replaces the newer entry, which
        // only costs time.
        answers.keep(&page, before, &old);
        assert_eq!(answers.get(&page, now), None);
        assert_eq!(answers.0.len(), 1, "the same question takes the same place");
    }

    #[test]
    fn cached_bodies_are_shared_without_a_copy() {
        let answers = ResponseCache::new();
        let now = Generation::after(0);
        let made = answer(1000);
        answers.keep(&key("", ""), now, &made);
        let kept = answers.get(&key("", ""), now).unwrap();
        assert_eq!(kept.body.as_ptr(), made.body.as_ptr());
    }

    #[test]
    fn responses_hold_no_spare_capacity() {
        let roomy = |length| {
            let mut bytes = Vec::with_capacity(1 << 20);
            bytes.resize(length, b'x');
            bytes
        };
        for (compressed, length) in [(None, 2), (Some(roomy(3)), 3)] {
            let finished = Finished::new(Answer::json(roomy(2)), compressed);
            assert_eq!(finished.body.try_into_mut().map(|body| body.capacity()), Ok(length));
        }
    }

    #[test]
    fn cache_keys_distinguish_every_part_of_a_request() {
        let different = [
            key("a", "b"),
            key("ab", ""),
            key("", "ab"),
            key("b", "a"),
            CacheKey { wants_gzip: true, ..key("a", "b") },
        ];
        let answers = ResponseCache::new();
        let now = Generation::after(7);
        for (length, key) in (0..).zip(&different) {
            assert_eq!(answers.get(key, now), None);
            answers.keep(key, now, &answer(length));
        }
        for (length, key) in (0..).zip(&different) {
            assert_eq!(answers.get(key, now), Some(answer(length)));
        }
    }

    #[test]
    fn memory_is_bounded() {
        let answers = ResponseCache::new();
        let now = Generation::after(0);
        for number in 0..2_000u64 {
            let query = format!("offset={number}");
            answers.keep(&key("", &query), now, &answer(number * 97 % (128 << 10)));
            assert!(answers.0.weight() <= CAPACITY);
        }
        assert!(answers.0.weight() > CAPACITY / 2, "what there is room for is kept");
        // Responses without a body also count against the capacity.
        let empty = ResponseCache::new();
        for number in 0..500_000 {
            empty.keep(&key("", &format!("{number}")), now, &answer(0));
        }
        assert!(empty.0.len() as u64 <= CAPACITY / ENTRY_OVERHEAD);
    }

    #[test]
    fn large_pages_do_not_evict_frequently_requested_ones() {
        const POLLS_PER_HUGE_PAGE: usize = 4;
        let answers = ResponseCache::new();
        let now = Generation::after(0);
        let huge = key("", "limit=1000");
        answers.keep(&huge, now, &answer(MAX_ENTRY_BYTES));
        assert_eq!(answers.get(&huge, now), None, "too large to be kept");
        let polled: Vec<String> = (0..100).map(|number| format!("poll={number}")).collect();
        let mut polls = polled.iter().cycle();
        let mut made = 0;
        for number in 0..1_000 {
            let query = format!("offset={number}");
            answers.keep(&key("", &query), now, &answer(MAX_ENTRY_BYTES - 1024));
            for query in polls.by_ref().take(POLLS_PER_HUGE_PAGE) {
                if answers.get(&key("", query), now).is_none() {
                    made += 1;
                    answers.keep(&key("", query), now, &answer(64 << 10));
                }
            }
        }
        assert!((polled.len()..2 * polled.len()).contains(&made), "{made} answers were made");
    }
}
