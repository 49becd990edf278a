//! Tells whether what was read from the store still holds. Knows when something changes, not what.
//!
//! Who keeps an answer notes the generation before he reads, and throws the answer away once the
//! store is in another. That is safe because a generation ends *before* anything of a write can be
//! seen, and the next begins when all of it can: rows, coverage and totals. In between there is none,
//! so nobody who has read the new ledger, by whatever question, or has been told of it, is ever given
//! an answer from before it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A time in which the store does not change: two reads in one generation find the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u64);

#[cfg(test)]
impl Generation {
    /// The generation after so many writes.
    pub(crate) fn after(writes: u64) -> Self {
        Self(2 * writes)
    }
}

/// Counts the beginnings and ends of writes: odd while one is under way.
#[derive(Debug, Default)]
pub(super) struct Generations(AtomicU64);

/// A write under way, until it is dropped: also one that fails, of which some may be stored.
#[must_use]
pub(super) struct Change<'a>(&'a AtomicU64);

impl Generations {
    /// The generation, or `None` while a write is under way.
    pub(super) fn now(&self) -> Option<Generation> {
        let number = self.0.load(Ordering::SeqCst);
        number.is_multiple_of(2).then_some(Generation(number))
    }

    /// Ends the generation. To be called before anything is written, by the one writer.
    pub(super) fn change(&self) -> Change<'_> {
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
    fn a_write_ends_one_generation_and_the_next_begins_after_it() {
        let generations = Generations::default();
        let first = generations.now().unwrap();
        assert_eq!(generations.now(), Some(first));
        let change = generations.change();
        assert_eq!(generations.now(), None);
        drop(change);
        assert_ne!(generations.now().unwrap(), first);
    }

    #[test]
    fn a_write_that_panics_ends_too() {
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
