//! The questions that are to be put to another server about entries of the ledger: how many at once, how
//! often, and when the same one again. They are put on a thread of their own: nothing that is stored
//! waits for another server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use stellar_xdr::LedgerEntryData;

use super::interfaces::{Interfaces, Wish};
use super::knowledge::News;
use super::value::{self, Executable};
use crate::domain::Hash32;
use crate::store::StoreError;

/// Maximum number of entries that are noted; further ones are dropped, and come again with the next
/// request.
const MAX_NOTED: usize = 4096;
/// Maximum number of entries that are asked for at once.
const MAX_ASKED_AT_ONCE: usize = 50;
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
    /// Keys of the question that has no answer yet.
    in_flight: Vec<Vec<u8>>,
    not_before: Option<Instant>,
}

impl Asking {
    /// Whether a key was asked for a short time ago, or is now.
    fn is_asked(&self, key: &[u8]) -> bool {
        self.asked.get(key).is_some_and(|at| at.elapsed() <= ASK_AGAIN)
    }

    /// Whether a key is being asked for.
    pub(super) fn is_in_flight(&self, key: &[u8]) -> bool {
        self.in_flight.iter().any(|it| it == key)
    }

    /// Whether the answer about a key came a short time ago.
    fn is_answered(&self, key: &[u8]) -> bool {
        self.is_asked(key) && !self.is_in_flight(key)
    }

    /// Notes a key to be asked for, unless it was a short time ago.
    fn note(&mut self, key: Vec<u8>) {
        if !self.is_asked(&key) && self.noted.len() < MAX_NOTED && !self.noted.contains(&key) {
            self.noted.push(key);
        }
    }

    /// Takes the keys that are asked for now.
    fn next(&mut self, now: Instant) -> Vec<Vec<u8>> {
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
        self.in_flight.clone_from(&keys);
        keys
    }

    /// Notes that a question was answered, but for these keys, which are asked for again.
    fn answered(&mut self, but: Vec<Vec<u8>>) {
        self.in_flight.clear();
        if !but.is_empty() {
            self.failed(but);
        }
    }

    /// Notes keys again whose question was not answered.
    fn failed(&mut self, keys: Vec<Vec<u8>>) {
        self.in_flight.clear();
        self.not_before = Some(Instant::now() + RETRY_DELAY);
        for key in keys {
            self.asked.remove(&key);
            self.note(key);
        }
    }
}

impl Interfaces {
    /// Notes an entry to be asked of the other server, if there is one.
    pub(super) fn note(&self, key: Vec<u8>) {
        if self.has_source() {
            self.asking.lock().note(key);
            self.has_questions.notify_all();
        }
    }

    /// Whether another server may still tell an entry: it is asked, or is about to be.
    pub(super) fn is_being_asked(&self, key: &[u8]) -> bool {
        self.has_source() && !self.asking.lock().is_answered(key)
    }

    /// Asks the other server for what requests lacked, until stopped. Returns at once without one.
    pub fn ask(&self) {
        while self.has_source() && !self.is_stopped() {
            let keys = {
                let mut asking = self.asking.lock();
                let keys = asking.next(Instant::now());
                if keys.is_empty() && !self.is_stopped() {
                    self.has_questions.wait_for(&mut asking, ASK_INTERVAL);
                }
                keys
            };
            if keys.is_empty() {
                continue;
            }
            if let Err(error) = self.ask_for(keys) {
                tracing::error!("answers about contracts cannot be read: {error}");
            }
        }
    }

    /// Puts one question, and wishes for what follows from the answers.
    fn ask_for(&self, keys: Vec<Vec<u8>>) -> Result<(), StoreError> {
        let Some(source) = self.source() else { return Ok(()) };
        if let Err(reason) = source.ask(&keys) {
            tracing::debug!("entries of contracts cannot be looked up now: {reason}");
            self.asking.lock().failed(keys);
            return Ok(());
        }
        // Answers are not stored while an import has ledgers that are not durable yet.
        let (mut entries, mut dropped) = (Vec::new(), Vec::new());
        for key in keys {
            let known = self.store().known_entries(&key);
            let known = known.inspect_err(|_| self.asking.lock().answered(Vec::new()))?;
            if known.is_empty() {
                dropped.push(key);
            }
            entries.extend(known.into_iter().filter_map(|known| value::entry(&known.entry?)));
        }
        self.asking.lock().answered(dropped);
        self.knowledge.tell(News::Stored);
        for entry in entries {
            match (Executable::in_entry(&entry), &entry.data) {
                (Some(Executable::Code(hash)), _) => self.wish(Wish::Code(hash)),
                (Some(Executable::Reference(named)), _) => self.wish(Wish::Entry(named)),
                (_, LedgerEntryData::ContractCode(code)) => {
                    self.wish(Wish::Code(Hash32(code.hash.0)));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_open_until_its_answer_is_there() {
        let (mut asking, key) = (Asking::default(), vec![1]);
        assert!(!asking.is_answered(&key));
        asking.note(key.clone());
        let now = Instant::now();
        assert_eq!(asking.next(now), std::slice::from_ref(&key));
        assert!(!asking.is_answered(&key), "it is in flight");
        asking.note(key.clone());
        assert!(asking.next(now + RETRY_DELAY).is_empty(), "nothing is asked twice");
        asking.answered(Vec::new());
        assert!(asking.is_answered(&key));
        asking.note(key.clone());
        assert!(asking.next(now + RETRY_DELAY).is_empty());
    }

    #[test]
    fn what_was_not_answered_or_not_kept_is_asked_again() {
        let keys = [vec![1], vec![2]];
        let mut asking = Asking::default();
        keys.iter().for_each(|key| asking.note(key.clone()));
        let taken = asking.next(Instant::now());
        asking.failed(taken);
        assert!(asking.next(Instant::now()).is_empty(), "not at once");
        let later = Instant::now() + 2 * RETRY_DELAY;
        assert_eq!(asking.next(later), keys);
        asking.answered(vec![keys[1].clone()]);
        assert!(asking.is_answered(&keys[0]) && !asking.is_answered(&keys[1]));
        assert_eq!(asking.next(later + 2 * RETRY_DELAY), keys[1..]);
    }
}
