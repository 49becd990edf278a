//! Driving a consumer: one step at a time, on whose thread that may be.

use super::super::{Store, StoreError};
use super::consume::Consumed;
use super::rebuild;
use super::rows::ConsumerEffects;
use super::{ConsumerSpec, FedLedger, Gathers};

/// Places of the feed that are passed with one write.
const LEDGERS_AT_ONCE: usize = 64;

/// Something that follows ledgers: what it is called, and what it does with one.
pub trait LedgerConsumer: Send + Sync {
    /// Its name, its families and what it reads.
    fn spec(&self) -> ConsumerSpec;

    /// What it takes from the whole of each ledger, with [`Store::gathered`] or [`Store::still_gathered`]; none when it
    /// gets by with records.
    fn gathers(&self) -> Option<Gathers> {
        None
    }

    /// Does its work with a ledger. It may see the same ledger again when an earlier attempt was not
    /// written, so that all it leaves must be in `effects`.
    ///
    /// # Errors
    /// What the store says; then the ledger is handed over again.
    fn ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError>;

    /// What it left of the last ledgers is on disk.
    fn stepped(&self, _store: &Store) {}

    /// Why what it keeps cannot be built anew, to be read after its name; none when it can.
    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        None
    }
}

impl Store {
    /// Has a consumer do its work with the next ledgers, and with some of those of a second generation, if
    /// one is built. Says whether there may be more to do at once.
    ///
    /// # Errors
    /// As [`Self::consume`].
    pub fn step(&self, consumer: &dyn LedgerConsumer) -> Result<bool, StoreError> {
        let name = consumer.spec().name;
        let feed = |name: &str| {
            self.consume(name, LEDGERS_AT_ONCE, |ledger, effects| {
                consumer.ledger(self, ledger, effects)
            })
        };
        let fed = feed(name)?;
        if matches!(fed, Consumed::Ledgers(_)) {
            consumer.stepped(self);
        }
        let mut more = fed != Consumed::Nothing;
        let second = rebuild::second(name);
        let is_built = self.consumers.lock().get(&second).is_some();
        if is_built && !self.finish_rebuild(name)? {
            feed(&second)?;
            more = true;
        }
        Ok(more)
    }
}
