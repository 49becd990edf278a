//! The questions that are to be put to another server about entries of the ledger: how many at once, how
//! often, and when the same one again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of entries that are noted; further ones are dropped, and come again with the next
/// request.
const MAX_NOTED: usize = 4096;
/// Maximum number of entries that are asked for at once.
pub(super) const MAX_ASKED_AT_ONCE: usize = 50;
/// Minimum time between two questions to the other server.
const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// Time after which something that the other server did not have is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(600);
/// Maximum number of remembered questions.
const MAX_REMEMBERED: usize = 1 << 16;
/// Time after which the other server is asked again when it did not answer.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Questions to the other server.
#[derive(Default)]
pub(super) struct Asking {
    noted: Vec<Vec<u8>>,
    /// When each key was asked for.
    asked: HashMap<Vec<u8>, Instant>,
    not_before: Option<Instant>,
}

impl Asking {
    /// Notes a key to be asked for, unless it was a short time ago.
    pub(super) fn note(&mut self, key: Vec<u8>) {
        let is_due = self.asked.get(&key).is_none_or(|at| at.elapsed() > ASK_AGAIN);
        if is_due && self.noted.len() < MAX_NOTED && !self.noted.contains(&key) {
            self.noted.push(key);
        }
    }

    /// Takes the keys that are asked for now.
    pub(super) fn next(&mut self, now: Instant) -> Vec<Vec<u8>> {
        if self.noted.is_empty() || self.not_before.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.not_before = Some(now + ASK_INTERVAL);
        let count = self.noted.len().min(MAX_ASKED_AT_ONCE);
        let keys: Vec<_> = self.noted.drain(..count).collect();
        if self.asked.len() + keys.len() > MAX_REMEMBERED {
            self.asked.clear();
        }
        self.asked.extend(keys.iter().map(|key| (key.clone(), now)));
        keys
    }

    /// Notes keys again whose question was not answered.
    pub(super) fn failed(&mut self, keys: Vec<Vec<u8>>) {
        self.not_before = Some(Instant::now() + RETRY_DELAY);
        for key in keys {
            self.asked.remove(&key);
            self.note(key);
        }
    }
}
