//! One step of a consumer: processes the next ledgers, and writes the results together with the
//! cursor.

use orrery_ledger::domain::LedgerSeq;

use crate::encoding::error::StoreError;
use crate::state::consumers::consumer::Consumer;
use crate::state::consumers::rows::ConsumerEffects;
use crate::state::consumers::spec::is_second_build;
use crate::state::consumers::states::{ConsumerStates, Update};
use crate::state::ingest_runs::FedLedger;
use crate::state::store::Store;

/// Size of a step's changes, in bytes, after which it takes no further ledger.
const MAX_STEP_BYTES: usize = 4 << 20;

/// Number of places after which the cursor is written even if there is nothing else to write;
/// bounds how many ledgers are processed again after a crash.
const MAX_UNWRITTEN_PLACES: u64 = 1024;

/// Outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consumed {
    /// There is no ledger after the consumer's cursor.
    CaughtUp,
    /// The cursor was moved past this number of ledgers, including lost ones; 0 when there is more
    /// to do with the first of them ([`ConsumerEffects::mark_unfinished`]).
    Ledgers(u64),
    /// Some of the ledgers were lost to the consumer meanwhile, or its cursor has moved: nothing
    /// was written. The step must be repeated.
    Retry,
}

/// How far a step has come.
struct Step {
    place: u64,
    /// See [`Consumer::taken`].
    taken: u64,
    /// Ledgers that were passed to the consumer.
    handed: Vec<LedgerSeq>,
}

impl Step {
    /// Returns the consumer's new state; `None` if it has moved since the step was begun, or has lost one of
    /// the ledgers.
    fn update(
        &self,
        name: &str,
        begun: &Consumer,
        known: &ConsumerStates,
    ) -> Result<Option<Vec<Update>>, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let now = known.get(name).ok_or_else(unknown)?;
        let is_same = now.place == begun.place && now.build == begun.build;
        if !is_same || self.handed.iter().any(|ledger| now.lost.contains(*ledger)) {
            return Ok(None);
        }
        let moved = Consumer { place: self.place, taken: self.taken, ..now.clone() };
        Ok(Some(vec![(name.to_owned(), Some(moved))]))
    }
}

impl Store {
    /// Passes up to `most` ledgers after a consumer's cursor to `work`, and writes the changes that
    /// `work` makes atomically with the new cursor. Ledgers that are lost to the consumer are
    /// skipped. When there are no changes, the cursor is usually not written at once, but with the
    /// next write, by [`Self::write_cursors`], or after some number of ledgers.
    ///
    /// Rows of the consumer are not changed by [`Self::change_consumer_rows`] meanwhile.
    ///
    /// # Errors
    /// Errors of `work`; [`StoreError::UnknownConsumer`] when no consumer of this name is
    /// registered; errors of the database. Then nothing was written, or it is unknown whether it
    /// was, and the next call begins at the stored cursor.
    pub fn consume<E: From<StoreError>>(
        &self,
        name: &str,
        most: usize,
        work: impl FnMut(&FedLedger, &mut ConsumerEffects<'_>) -> Result<(), E>,
    ) -> Result<Consumed, E> {
        self.consume_until(name, most, || false, work, || Ok(()))
    }

    /// Like [`Self::consume`], and takes no further ledger once `is_over` returns true, which is
    /// called after each ledger. `finish` is called once after all of them, before anything is written.
    ///
    /// # Errors
    /// As [`Self::consume`], and errors of `finish`.
    pub(crate) fn consume_until<E: From<StoreError>>(
        &self,
        name: &str,
        most: usize,
        is_over: impl Fn() -> bool,
        mut work: impl FnMut(&FedLedger, &mut ConsumerEffects<'_>) -> Result<(), E>,
        finish: impl FnOnce() -> Result<(), E>,
    ) -> Result<Consumed, E> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        // After a failed write, this rereads the state that determines which ledgers are passed to `work`.
        self.cursor(name)?;
        let _guard = match is_second_build(name) {
            // Only this step changes the rows of a second build.
            true => None,
            false => Some(self.consumers.lock_of(name).ok_or_else(unknown)?.acquire()),
        };
        let begun = self.consumers.lock().get(name).ok_or_else(unknown)?.clone();
        let from = begun.place;
        let fed = self.fed_after(from, most);
        let Some(last) = fed.last() else { return Ok(Consumed::CaughtUp) };
        let mut step = Step { place: last.place, taken: 0, handed: Vec::with_capacity(fed.len()) };
        let mut effects = self.effects(name)?;
        for ledger in fed.iter().filter(|it| !begun.lost.contains(it.ledger)) {
            work(ledger, &mut effects)?;
            step.handed.push(ledger.ledger);
            if effects.is_unfinished() {
                step.place = ledger.place - 1;
                step.taken = if effects.is_taken() { ledger.place } else { 0 };
                break;
            }
            if effects.bytes() >= MAX_STEP_BYTES || is_over() {
                step.place = ledger.place;
                break;
            }
        }
        if !step.handed.is_empty() {
            finish()?;
        }
        let place = step.place;
        let has_skipped = step.handed.len() as u64 != place - from;
        let is_far = place / MAX_UNWRITTEN_PLACES != from / MAX_UNWRITTEN_PLACES;
        let must_write = !effects.is_empty() || has_skipped || is_far;
        let name = name.to_owned();
        let moved = move |known: &ConsumerStates| step.update(&name, &begun, known);
        let is_moved = match must_write {
            true => self.change_consumers(effects.into_batch()?, move |known, _| moved(known))?,
            false => self.change_consumers_in_memory(moved)?,
        };
        if !is_moved {
            return Ok(Consumed::Retry);
        }
        self.notify_step_listeners();
        Ok(Consumed::Ledgers(place - from))
    }
}
