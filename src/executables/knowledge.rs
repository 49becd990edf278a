//! What becomes known while a service runs: the index has processed further ledgers, another server has
//! answered, or an interface has been read into memory. Whoever did without can listen, or wait.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use orrery_ledger::domain::Hash32;

/// Maximum number of remembered modules that are not stored.
const MOST_ABSENT: usize = 4096;

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
    /// Modules of whose interfaces not all entries were in memory.
    pub(super) listings: BTreeSet<Hash32>,
    /// Place in the feed of the last ledger that the index had not processed.
    pub(super) place: Option<u64>,
}

impl Lacking {
    /// What lacks while the index has not processed the ledgers up to this place in the feed.
    pub fn up_to(place: u64) -> Self {
        Self { place: Some(place), ..Self::default() }
    }

    /// Whether nothing lacks.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty() && self.listings.is_empty() && self.place.is_none()
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
    /// How far the index had come when it last advanced.
    reached: AtomicU64,
    listeners: Mutex<Vec<Listener>>,
    /// Modules that are not stored, each with the generation in which that was found.
    absent: Mutex<HashMap<Hash32, u64>>,
    steps: Mutex<()>,
    /// Notified when more is known.
    told: Condvar,
}

impl Knowledge {
    /// Notes how far the index has come. Returns whether it had not before.
    pub fn advanced_to(&self, reached: u64) -> bool {
        self.reached.swap(reached, Ordering::SeqCst) != reached
    }

    /// Tells the listeners; what is new has to be visible before.
    pub fn tell(&self, news: News) {
        if news == News::Stored {
            self.generation.fetch_add(1, Ordering::SeqCst);
        }
        // A waiter that has looked before is waiting by now.
        drop(self.steps.lock());
        self.told.notify_all();
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

    /// Registers `listener` to be called with all news until it returns false.
    pub fn listen(&self, listener: impl Fn(News) -> bool + Send + Sync + 'static) {
        self.listeners.lock().push(Box::new(listener));
    }

    /// Waits until something holds that may come true whenever more is known, at most this long.
    /// Returns whether it does.
    pub fn wait_until(&self, holds: impl Fn() -> bool, most: Duration) -> bool {
        let until = Instant::now() + most;
        let mut steps = self.steps.lock();
        while !holds() {
            if self.told.wait_until(&mut steps, until).timed_out() {
                return holds();
            }
        }
        true
    }
}
