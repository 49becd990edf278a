//! What becomes known while a service runs: the index has processed further ledgers, another server has
//! answered, or an interface has been read into memory. Whoever did without can listen, or wait.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::interfaces::Interfaces;
use crate::domain::Hash32;

/// Maximum number of remembered modules that are not stored.
const MOST_ABSENT: usize = 4096;

/// Outcome of a wait for the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// It has processed the ledgers.
    Indexed,
    /// It is about to.
    NotYet,
    /// It does not advance.
    Stuck,
}

/// What listeners are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// More is stored: rows of the index, or another server's answers.
    Stored,
    /// An interface that was asked for has been read into memory, or turned out not to be stored.
    Read,
}

/// What a reader did without although it is stored, or may be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lacking {
    /// Modules whose interfaces were not in memory.
    pub(super) codes: BTreeSet<Hash32>,
    /// Place in the feed of the last ledger that the index had not processed.
    pub(super) place: Option<u64>,
}

impl Lacking {
    /// What lacks while the index has not processed the ledgers up to this place in the feed.
    pub fn up_to(place: u64) -> Self {
        Self { codes: BTreeSet::new(), place: Some(place) }
    }

    /// Whether nothing lacks.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.place.is_none()
    }

    /// Whether the index lacks ledgers.
    pub fn has_ledgers(&self) -> bool {
        self.place.is_some()
    }

    /// Returns what lacks besides ledgers.
    #[must_use]
    pub fn without_ledgers(self) -> Self {
        Self { place: None, ..self }
    }
}

type Listener = Box<dyn Fn(News) -> bool + Send + Sync>;

/// Listeners, and what was found not to be stored.
#[derive(Default)]
pub(super) struct Knowledge {
    /// Number of times that more was stored.
    generation: AtomicU64,
    /// Place in the feed of the index when it last advanced.
    place: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
    /// Modules that are not stored, each with the generation in which that was found.
    absent: Mutex<HashMap<Hash32, u64>>,
    steps: Mutex<()>,
    /// Notified when more is stored.
    stored: Condvar,
}

impl Knowledge {
    /// Notes that the index has reached a place. Returns whether it had not before.
    pub fn advanced_to(&self, place: u64) -> bool {
        self.place.swap(place, Ordering::SeqCst) != place
    }

    /// Tells the listeners; what is new has to be visible before.
    pub fn tell(&self, news: News) {
        if news == News::Stored {
            self.generation.fetch_add(1, Ordering::SeqCst);
            // A waiter that has looked before is waiting by now.
            drop(self.steps.lock());
            self.stored.notify_all();
        }
        self.listeners.lock().retain(|listener| listener(news));
    }

    /// Returns a number that is another one once more is stored.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Notes that a module was not stored in a generation, which was read before it was looked for.
    pub fn note_absent(&self, code: &Hash32, generation: u64) {
        let mut absent = self.absent.lock();
        if absent.len() >= MOST_ABSENT {
            absent.clear();
        }
        absent.insert(*code, generation);
    }

    /// Whether a module was not stored in the present generation.
    pub fn is_absent(&self, code: &Hash32) -> bool {
        self.absent.lock().get(code) == Some(&self.generation())
    }
}

impl Interfaces {
    /// How long something that needs no answer at once waits for names.
    ///
    /// Unit tests, which advance the index themselves, would wait in vain.
    pub const MOST_WAITED: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1000 });

    /// Registers `listener` to be called whenever more is known, until it returns false. It must return
    /// quickly. What it is told is visible to readers that begin afterwards.
    pub fn listen(&self, listener: impl Fn(News) -> bool + Send + Sync + 'static) {
        self.knowledge.listeners.lock().push(Box::new(listener));
    }

    /// Returns a number that is another one once more is stored.
    pub fn generation(&self) -> u64 {
        self.knowledge.generation()
    }

    /// Whether a reader that begins now has what another one lacked, or nobody will have it soon.
    pub fn has(&self, lacking: &Lacking) -> bool {
        let is_read = |code| self.loaded(code).is_some() || self.knowledge.is_absent(code);
        lacking.place.is_none_or(|place| self.has_indexed(place))
            && lacking.codes.iter().all(is_read)
    }

    /// Waits until the index has processed the ledgers up to a place in the feed, for a second at most,
    /// and not at all while it is far behind. Without it, names are missing.
    pub fn wait_until_indexed(&self, place: u64) {
        if self.will_soon_index(place) {
            self.wait_for_index(place, Self::MOST_WAITED);
        }
    }

    /// Waits until the index has processed the ledgers up to a place in the feed: at most this long, and
    /// not longer than a second while it does not advance.
    pub fn wait_while_indexing(&self, place: u64, most: Duration) -> Waited {
        let until = Instant::now() + most;
        loop {
            let before = self.index_place();
            let left = until.saturating_duration_since(Instant::now());
            if self.wait_for_index(place, left.min(Self::MOST_WAITED)) {
                return Waited::Indexed;
            }
            if left >= Self::MOST_WAITED && self.index_place() == before {
                return Waited::Stuck;
            }
            if Instant::now() >= until {
                return Waited::NotYet;
            }
        }
    }

    /// Waits until the index has processed the ledgers up to a place in the feed, at most this long.
    /// Returns whether it has.
    fn wait_for_index(&self, place: u64, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut steps = self.knowledge.steps.lock();
        while !self.has_indexed(place) {
            if self.knowledge.stored.wait_until(&mut steps, until).timed_out() {
                return self.has_indexed(place);
            }
        }
        true
    }
}
