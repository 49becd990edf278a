//! Drives a consumer one step at a time, on the caller's thread.

use std::time::{Duration, Instant};

use super::consume::Consumed;
use crate::encoding::error::StoreError;
use crate::state::consumers::rows::ConsumerEffects;
use crate::state::consumers::spec::{ConsumerSpec, second_build};
use crate::state::extracts::Gathers;
use crate::state::ingest_runs::FedLedger;
use crate::state::keepers::Keeper;
use crate::state::store::Store;

/// Maximum number of ledgers in one step, which are written together.
const MAX_LEDGERS_PER_STEP: usize = 64;

/// Time after which a step takes no further ledger. What is done is then written, so that slow
/// ledgers are not processed again after a restart, and a service that stops waits for one ledger.
const MAX_STEP_TIME: Duration = Duration::from_secs(1);

/// A consumer of the feed: its specification and what it does with a ledger.
pub trait LedgerConsumer: Send + Sync {
    /// Returns its name, its families and what it reads.
    fn spec(&self) -> ConsumerSpec;

    /// Returns what it gathers from each whole ledger, to be read with [`Store::gathered`] or
    /// [`Store::take_gathered`]; `None` when stored records are enough.
    fn gathers(&self) -> Option<Gathers> {
        None
    }

    /// Returns how it keeps what it needs of transactions that retention removes; `None` when it needs
    /// nothing of them after it has processed them.
    fn keeps(&self) -> Option<Keeper> {
        None
    }

    /// Processes one ledger. Called again for the same ledger when an earlier attempt was not
    /// written, so all results must go into `effects`.
    ///
    /// # Errors
    /// Any [`StoreError`]; nothing of the step is written, and the ledger is handed over again.
    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError>;

    /// Called when a step has processed its ledgers, before their effects are written: again for the same ledgers when
    /// they were not.
    ///
    /// # Errors
    /// As [`Self::process_ledger`].
    fn finish_step(&self, _store: &Store) -> Result<(), StoreError> {
        Ok(())
    }

    /// Called after each step of the served build, when the step's effects are on disk.
    fn on_step_written(&self, _store: &Store) {}

    /// Called when a step of the served build has failed, or must be repeated: it is unknown
    /// whether its effects are on disk.
    fn on_step_failed(&self) {}

    /// Returns why its rows cannot be rebuilt, as text that follows its name; `None` when they can.
    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        None
    }
}

impl Store {
    /// Runs one step of a consumer, and one of its second build while that is being rebuilt.
    /// Returns whether there may be more to do at once.
    ///
    /// # Errors
    /// As [`Self::consume`].
    pub fn step(&self, consumer: &dyn LedgerConsumer) -> Result<bool, StoreError> {
        self.step_until(consumer, &|| false)
    }

    /// Like [`Self::step`], and ends after the current ledger once `stop` returns true: what is
    /// done until then is written.
    ///
    /// # Errors
    /// As [`Self::consume`].
    pub fn step_until(
        &self,
        consumer: &dyn LedgerConsumer,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let name = consumer.spec().name;
        let feed = |name: &str| {
            let begun = Instant::now();
            let is_over = || stop() || begun.elapsed() >= MAX_STEP_TIME;
            self.consume_until(
                name,
                MAX_LEDGERS_PER_STEP,
                is_over,
                |ledger, effects| consumer.process_ledger(self, ledger, effects),
                || consumer.finish_step(self),
            )
        };
        let fed = feed(name);
        match fed {
            Ok(Consumed::Ledgers(_)) => consumer.on_step_written(self),
            Ok(Consumed::CaughtUp) => {}
            Ok(Consumed::Retry) | Err(_) => consumer.on_step_failed(),
        }
        let fed = fed?;
        let mut more = fed != Consumed::CaughtUp;
        let second = second_build(name);
        let is_built = self.consumers.lock().get(&second).is_some();
        if is_built && !stop() && !self.finish_rebuild(name)? {
            feed(&second)?;
            more = true;
        }
        Ok(more)
    }
}
