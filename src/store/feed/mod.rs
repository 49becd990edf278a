//! The feed: passes committed ledgers, in the order of ingestion, to consumers that process each of
//! them.
//!
//! A place is the 1-based position of a ledger in that order, and the list of runs maps places to
//! ledgers; there is no queue. A *consumer* has a name, column families of its own and a cursor:
//! the place up to which it has processed every ledger. The cursor is written in the same batch as
//! the changes that the consumer makes ([`consume`]), so that each ledger takes effect exactly once
//! despite crashes. Consumers are registered with [`Store::open_with`]; this module depends on none
//! of them.
//!
//! Retention waits for consumers up to a limit ([`hold`]). Ledgers that it removes before a
//! consumer has processed them are *lost* to that consumer; this is written before anything is
//! removed. So a ledger is either processed or lost, never both, and lost ledgers can be reported.
//!
//! A consumer's rows can also be changed outside of its steps ([`change`]): by requests of its
//! users, and by later results of its work. Steps and such changes exclude each other.
//!
//! A consumer that does not work in the order of ingestion reports which ledgers it has processed
//! ([`through`]).
//!
//! Data that a consumer needs from a whole ledger, and that no record contains, is gathered when
//! the ledger is prepared ([`gathered`]).
//!
//! Rows of a consumer belong to a *generation*. A second generation can be built next to the one
//! that is served, and replaces it with one write ([`rebuild`]).

mod change;
mod consume;
mod fingerprint;
mod gathered;
mod hold;
mod rebuild;
mod rows;
mod seen;
mod state;
mod through;
mod worker;

use std::sync::Arc;

use orrery_ledger::domain::{LedgerSeq, LedgerSet};

pub use consume::Consumed;
pub use gathered::Gathers;
pub(super) use gathered::{Gathered, GatheredValues};
pub(super) use hold::Floors;
pub use rebuild::RebuildProgress;
pub use rows::{ConsumerEffects, ConsumerView};
pub(super) use state::{Consumer, ConsumerStates, Consumers, Update, check};
pub use worker::LedgerConsumer;

use super::{Store, StoreError};

/// A ledger of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FedLedger {
    /// Its 1-based position in the order of ingestion.
    pub place: u64,
    /// The ledger.
    pub ledger: LedgerSeq,
    /// Whether it was newer than all ledgers stored before.
    pub arrival: Arrival,
}

/// How a ledger relates to those stored before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was newer than all stored ledgers.
    Live,
    /// A newer ledger was stored already.
    Backfilled,
}

/// Data of a ledger that a consumer reads and that retention may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Its raw form.
    pub raw_ledgers: bool,
    /// Its events.
    pub events: bool,
    /// Its smart-contract transactions.
    pub transactions: bool,
}

/// Where a consumer begins that is new to the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPosition {
    /// At the first ledger that was ingested.
    FirstLedger,
    /// With the next ledger that is ingested.
    NextLedger,
}

/// Specification of a consumer, registered when a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Its name, of lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Names of its families, of the same characters.
    pub families: &'static [&'static str],
    /// Data that it reads of each ledger.
    pub needs: Needs,
    /// Where it begins when it is new to the directory.
    pub start: StartPosition,
}

/// State of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Whether it processes ledgers in this process, so that retention waits for it.
    pub active: bool,
    /// Place up to which it has processed every ledger.
    pub place: u64,
    /// Number of stored ledgers after `place`, less those that a consumer working out of order has
    /// processed or lost.
    pub lag: u64,
    /// Ledgers that were removed, or were not stored in full, before it could process them.
    pub lost: LedgerSet,
    /// Progress of a second generation of its rows, while one is built.
    pub rebuild: Option<RebuildProgress>,
}

impl ConsumerStatus {
    /// Returns the part of the name that consumers of one kind share: everything before the first
    /// `/`.
    pub fn kind(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// Returns the database names of the column families of all consumers.
pub(super) fn families(consumers: &[ConsumerSpec]) -> Vec<String> {
    let of = |spec: &ConsumerSpec| -> Vec<String> {
        spec.families.iter().map(|family| rows::family(spec.name, family)).collect()
    };
    consumers.iter().flat_map(of).collect()
}

/// A callback for commits or consumer steps; it is removed when it returns false.
pub(super) type Listener = Box<dyn Fn() -> bool + Send + Sync>;

impl Store {
    /// Returns the first `most` ledgers after a place.
    pub fn fed_after(&self, place: u64, most: usize) -> Vec<FedLedger> {
        self.coverage.read().fed_after(place).take(most).collect()
    }

    /// Returns the place of the ledger that was ingested last; 0 when there is none.
    pub fn last_place(&self) -> u64 {
        self.coverage.read().last_place()
    }

    /// Registers `listener` to be called after every commit of new ledgers, until it returns false.
    /// It must return quickly.
    pub fn listen(&self, listener: impl Fn() -> bool + Send + Sync + 'static) {
        self.listeners.lock().push(Box::new(listener));
    }

    /// Notifies all listeners of new ledgers.
    pub(super) fn notify_listeners(&self) {
        self.listeners.lock().retain(|listener| listener());
    }

    /// Returns the state of all consumers that were ever registered and not removed, by name.
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        let last = self.last_place();
        let consumers = self.consumers.lock();
        let served = consumers.all().filter(|(name, _)| !rebuild::is_second(name));
        served.map(|(name, state)| consumers.status(name, state, last)).collect()
    }

    /// Returns the state of a consumer; `None` when no consumer has this name.
    pub fn consumer(&self, name: &str) -> Option<ConsumerStatus> {
        let last = self.last_place();
        let consumers = self.consumers.lock();
        consumers.get(name).map(|state| consumers.status(name, state, last))
    }

    /// Returns the place up to which a consumer has processed every ledger; `None` when no consumer
    /// has this name. After a failed write, the stored rows are read first.
    ///
    /// # Errors
    /// Errors of the database, if a write had failed.
    pub fn cursor(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let (consumers, name) = (Arc::clone(&self.consumers), name.to_owned());
        self.writer_thread.run(move |database| consumers.cursor(database, &name))
    }

    /// Sets whether a consumer processes ledgers in this process. Retention does not wait for
    /// inactive consumers.
    pub fn set_active(&self, name: &str, active: bool) {
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            consumer.active = active;
        }
    }

    /// Returns whether a ledger is lost to a consumer. When it returns false, data of the ledger
    /// that was read before this call was complete.
    pub fn is_lost(&self, name: &str, ledger: LedgerSeq) -> bool {
        self.consumers.lock().get(name).is_some_and(|consumer| consumer.lost.contains(ledger))
    }

    /// Returns the ledgers after a place that are lost to a consumer.
    pub fn lost_after(&self, name: &str, place: u64) -> LedgerSet {
        let lost = self.consumers.lock().get(name).map(|it| it.lost.clone()).unwrap_or_default();
        let mut later = LedgerSet::default();
        if !lost.is_empty() {
            for range in self.coverage.read().ranges_after(place) {
                later.insert_all(&lost.within(range));
            }
        }
        later
    }

    /// Notes in memory that a consumer has nothing to write for the ledgers up to a place, and
    /// which ledgers are lost to it. This is written with the consumer's next write, or before
    /// retention removes anything that depends on it.
    pub fn mark_passed(&self, name: &str, place: u64, lost: &LedgerSet) {
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            consumer.mark_passed(place, lost);
        }
    }

    /// Writes the progress of all consumers that is in memory only.
    ///
    /// # Errors
    /// Errors of the database.
    pub fn write_cursors(&self) -> Result<(), StoreError> {
        self.change_consumers(self.database.batch(), |known, _| Ok(Some(known.unwritten())))?;
        Ok(())
    }
}
