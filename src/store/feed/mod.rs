//! The feed: committed ledgers in the order of ingestion, for whoever does something with each of them.
//!
//! A place in that order is a number, and the list of runs says which ledger has it; nothing is queued. A
//! *consumer* has a name, families of its own and a cursor: the place up to which it has done its work. The
//! cursor is written in the same batch as what the work left ([`consume`]), so that each ledger is done once
//! whatever happens between two writes. Consumers are named to [`Store::open_with`]; this module knows none.
//!
//! Retention waits for consumers within a bound ([`hold`]). What it removes before a consumer has seen it is
//! *lost* to that consumer; that is written before anything is removed. So a ledger is either done or lost,
//! never both, and what is lost can be told.
//!
//! A consumer's rows may be changed outside of its steps, too ([`change`]): what its users ask for, and what
//! comes of its work later. A step and such a change exclude each other.
//!
//! A consumer whose work follows another order than that of ingestion says what it is through with ([`through`]).
//!
//! What a consumer needs from the whole of each ledger, and no record has, is gathered while the ledger is at hand
//! ([`gathered`]).
//!
//! Rows of a consumer belong to a *generation*. A second one can be built beside the one that is read, and
//! takes its place with one write ([`rebuild`]).

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

use crate::domain::{LedgerSeq, LedgerSet};

pub use consume::Consumed;
pub use gathered::Gathers;
pub(super) use gathered::{Gathered, OfLedger};
pub(super) use hold::Floors;
pub use rebuild::RebuildProgress;
pub use rows::{ConsumerEffects, ConsumerView};
pub(super) use state::{Consumer, Consumers, Known, Update, check, put};
pub use worker::LedgerConsumer;

use super::{Store, StoreError};

/// A ledger, as it is handed to a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FedLedger {
    /// Its place in the order of ingestion, from 1.
    pub place: u64,
    /// The ledger.
    pub ledger: LedgerSeq,
    /// How it came.
    pub arrival: Arrival,
}

/// How a ledger came into the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// It was newer than all that were stored.
    Live,
    /// A newer one was stored already.
    Backfilled,
}

/// What a consumer reads of a ledger, and retention may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Its raw form.
    pub raw_ledgers: bool,
    /// Its events.
    pub events: bool,
    /// Its smart-contract transactions.
    pub transactions: bool,
}

/// Where a consumer begins that has not been there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// At the first ledger that was ingested.
    AtTheBeginning,
    /// With the next ledger.
    Now,
}

/// A consumer, as it is registered when a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Its name, of lower-case letters, digits and `_`.
    pub name: &'static str,
    /// Names of its families, of the same characters.
    pub families: &'static [&'static str],
    /// What it reads.
    pub needs: Needs,
    /// Where it begins.
    pub begins: Begins,
}

/// How a consumer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Whether it takes ledgers now, so that retention waits for it.
    pub active: bool,
    /// The place up to which it has done its work.
    pub place: u64,
    /// Stored ledgers after that.
    pub lag: u64,
    /// Ledgers that were removed, or not stored in full, before it could do its work with them.
    pub lost: LedgerSet,
    /// How far a second generation of what it keeps has got, while one is built.
    pub rebuild: Option<RebuildProgress>,
}

impl ConsumerStatus {
    /// The part of the name that consumers of one kind share: what is before the `/`, if there is one.
    pub fn kind(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

/// The names in the database of all families of consumers.
pub(super) fn families(consumers: &[ConsumerSpec]) -> Vec<String> {
    let of = |spec: &ConsumerSpec| -> Vec<String> {
        spec.families.iter().map(|family| rows::family(spec.name, family)).collect()
    };
    consumers.iter().flat_map(of).collect()
}

/// Told of commits until it says that it is not there any more.
pub(super) type Listener = Box<dyn Fn() -> bool + Send + Sync>;

impl Store {
    /// The first `most` ledgers after a place.
    pub fn fed_after(&self, place: u64, most: usize) -> Vec<FedLedger> {
        self.coverage.read().fed_after(place).take(most).collect()
    }

    /// The place of the ledger that was ingested last; 0 before the first.
    pub fn last_place(&self) -> u64 {
        self.coverage.read().places()
    }

    /// Has `listener` called after every commit of new ledgers, until it says false. It must not take long.
    pub fn listen(&self, listener: impl Fn() -> bool + Send + Sync + 'static) {
        self.listeners.lock().push(Box::new(listener));
    }

    /// Tells all listeners that there are new ledgers.
    pub(super) fn tell_listeners(&self) {
        self.listeners.lock().retain(|listener| listener());
    }

    /// All consumers that have ever been registered and were not removed, by name.
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        let last = self.last_place();
        let consumers = self.consumers.lock();
        let served = consumers.all().filter(|(name, _)| !rebuild::is_second(name));
        served.map(|(name, state)| consumers.status(name, state, last)).collect()
    }

    /// How a consumer is; none when there is none of this name.
    pub fn consumer(&self, name: &str) -> Option<ConsumerStatus> {
        let last = self.last_place();
        let consumers = self.consumers.lock();
        consumers.get(name).map(|state| consumers.status(name, state, last))
    }

    /// The place up to which a consumer has done its work, as it is written; none when there is none of this
    /// name.
    ///
    /// # Errors
    /// What the database says, if a write had failed.
    pub fn cursor(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let (consumers, name) = (Arc::clone(&self.consumers), name.to_owned());
        self.writer_thread.run(move |database| consumers.cursor(database, &name))
    }

    /// Says whether a consumer takes ledgers now. Retention does not wait for one that does not.
    pub fn set_active(&self, name: &str, active: bool) {
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            consumer.active = active;
        }
    }

    /// Whether a ledger is lost to a consumer. What was read of one before this says no was all there.
    pub fn is_lost(&self, name: &str, ledger: LedgerSeq) -> bool {
        self.consumers.lock().get(name).is_some_and(|consumer| consumer.lost.contains(ledger))
    }

    /// Ledgers that came after a place and are lost to a consumer.
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

    /// A consumer has nothing to write for the ledgers up to a place, but that these are lost to it. It is
    /// written with the consumer's next write, or before retention removes anything that depends on it.
    pub fn passed(&self, name: &str, place: u64, lost: &LedgerSet) {
        if let Some(consumer) = self.consumers.lock().get_mut(name) {
            consumer.pass(place, lost);
        }
    }

    /// Writes how far consumers have got that had nothing else to write.
    ///
    /// # Errors
    /// What the database says.
    pub fn write_cursors(&self) -> Result<(), StoreError> {
        self.change_consumers(self.database.batch(), |known, _| Ok(Some(known.unwritten())))?;
        Ok(())
    }
}
