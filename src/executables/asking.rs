//! The questions that are to be put to another server about entries of the ledger: how many at once, how
//! often, and when the same one again. They are put on a thread of their own: nothing that is stored
//! waits for another server.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

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

/// Asks another server for the entries under these keys, each an XDR `LedgerKey`, and stores the answers
/// among the store's known entries. The error is one sentence: the server does not answer.
pub type AskEntries = Box<dyn Fn(&[Vec<u8>]) -> Result<(), String> + Send + Sync>;

/// Questions to the other server, if there is one.
pub(super) struct Asking {
    ask: Option<AskEntries>,
    questions: Mutex<Questions>,
    /// Notified when there is more to ask.
    has_questions: Condvar,
}

impl Asking {
    pub fn new(ask: Option<AskEntries>) -> Self {
        Self { ask, questions: Mutex::default(), has_questions: Condvar::new() }
    }

    /// Whether there is another server to ask.
    pub fn has_source(&self) -> bool {
        self.ask.is_some()
    }

    /// Notes an entry to be asked of the other server, if there is one.
    pub fn note(&self, key: Vec<u8>) {
        if self.has_source() {
            self.questions.lock().note(key);
            self.has_questions.notify_all();
        }
    }

    /// Whether another server may still tell an entry: it is asked, or is about to be.
    pub fn is_being_asked(&self, key: &[u8]) -> bool {
        self.has_source() && !self.questions.lock().is_answered(key)
    }

    /// Whether the question about an entry has no answer yet.
    #[cfg(test)]
    pub fn is_in_flight(&self, key: &[u8]) -> bool {
        self.questions.lock().is_in_flight(key)
    }

    /// Waits for entries to ask for, for a short time at most, and not once it is stopped; takes them.
    pub fn next(&self, is_stopped: impl Fn() -> bool) -> Vec<Vec<u8>> {
        let mut questions = self.questions.lock();
        let keys = questions.next(Instant::now());
        if keys.is_empty() && !is_stopped() {
            self.has_questions.wait_for(&mut questions, ASK_INTERVAL);
        }
        keys
    }

    /// Lets [`Self::next`] see at once that it is stopped.
    pub fn wake(&self) {
        // A thread that has looked before is waiting by now.
        drop(self.questions.lock());
        self.has_questions.notify_all();
    }

    /// Puts a question. Returns whether it was answered; if not, its keys are noted again.
    pub fn put(&self, keys: &[Vec<u8>]) -> bool {
        let Some(ask) = &self.ask else { return false };
        let outcome = ask(keys);
        if let Err(reason) = &outcome {
            tracing::debug!("entries of contracts cannot be looked up now: {reason}");
            self.questions.lock().failed(keys.to_vec());
        }
        outcome.is_ok()
    }

    /// Notes that a question was answered, but for these keys, which are asked for again.
    pub fn answered(&self, but: Vec<Vec<u8>>) {
        self.questions.lock().answered(but);
    }
}

/// What is asked, and was.
#[derive(Default)]
struct Questions {
    noted: Vec<Vec<u8>>,
    /// When each key was asked for.
    asked: HashMap<Vec<u8>, Instant>,
    /// Keys of the question that has no answer yet.
    in_flight: Vec<Vec<u8>>,
    not_before: Option<Instant>,
}

impl Questions {
    /// Whether a key was asked for a short time ago, or is now.
    fn is_asked(&self, key: &[u8]) -> bool {
        self.asked.get(key).is_some_and(|at| at.elapsed() <= ASK_AGAIN)
    }

    /// Whether a key is being asked for.
    fn is_in_flight(&self, key: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_open_until_its_answer_is_there() {
        let (mut questions, key) = (Questions::default(), vec![1]);
        assert!(!questions.is_answered(&key));
        questions.note(key.clone());
        let now = Instant::now();
        assert_eq!(questions.next(now), std::slice::from_ref(&key));
        assert!(!questions.is_answered(&key), "it is in flight");
        questions.note(key.clone());
        assert!(questions.next(now + RETRY_DELAY).is_empty(), "nothing is asked twice");
        questions.answered(Vec::new());
        assert!(questions.is_answered(&key));
        questions.note(key.clone());
        assert!(questions.next(now + RETRY_DELAY).is_empty());
    }

    #[test]
    fn what_was_not_answered_or_not_kept_is_asked_again() {
        let keys = [vec![1], vec![2]];
        let mut questions = Questions::default();
        keys.iter().for_each(|key| questions.note(key.clone()));
        let taken = questions.next(Instant::now());
        questions.failed(taken);
        assert!(questions.next(Instant::now()).is_empty(), "not at once");
        let later = Instant::now() + 2 * RETRY_DELAY;
        assert_eq!(questions.next(later), keys);
        questions.answered(vec![keys[1].clone()]);
        assert!(questions.is_answered(&keys[0]) && !questions.is_answered(&keys[1]));
        assert_eq!(questions.next(later + 2 * RETRY_DELAY), keys[1..]);
    }
}
