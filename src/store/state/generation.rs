//! Detects whether what was read from the store is still current. Records that something changed,
//! not what.
//!
//! A cache notes the generation before it reads, and drops the answer once the store is in another
//! generation. That is safe because a generation ends *before* anything of a write can be seen, and
//! the next begins when all of it can: rows, coverage and totals. In between there is no
//! generation, so a client that has read the new ledger, through any request, or was notified of
//! it, never receives an answer from before it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A period in which the store does not change: two reads in one generation return the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

impl Generation {
    /// Returns the generation after `writes` writes, for tests of caches.
    pub fn after(writes: u64) -> Self {
        Self(2 * writes)
    }
}

/// Counts beginnings and ends of writes: odd while a write is in progress.
#[derive(Debug, Default)]
pub(crate) struct Generations(AtomicU64);

/// A write in progress, until it is dropped. Also covers a failed write, which may have been stored
/// in part.
#[must_use]
pub(crate) struct Change<'a>(&'a AtomicU64);

impl Generations {
    /// Returns the current generation, or `None` while a write is in progress.
    pub(crate) fn now(&self) -> Option<Generation> {
        let number = self.0.load(Ordering::SeqCst);
        number.is_multiple_of(2).then_some(Generation(number))
    }

    /// Ends the generation. The single writer calls this before it writes anything.
    pub(crate) fn change(&self) -> Change<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Change(&self.0)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_ends_a_generation_and_the_next_begins_after_it() {
        let generations = Generations::default();
        let first = generations.now().unwrap();
        assert_eq!(generations.now(), Some(first));
        let change = generations.change();
        assert_eq!(generations.now(), None);
        drop(change);
        assert_ne!(generations.now().unwrap(), first);
    }

    #[test]
    fn a_panicking_write_also_begins_a_new_generation() {
        let generations = Generations::default();
        let first = generations.now().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _change = generations.change();
            panic!("the disk is on fire");
        }));
        assert!(panicked.is_err());
        assert!(generations.now().is_some_and(|generation| generation != first));
    }
}
