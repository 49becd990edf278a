//! Queries for code that answers requests from a consumer's rows: whether the consumer has caught
//! up with what the store serves, and whether it has seen every ledger.

use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet};

use crate::state::store::Store;

impl Store {
    /// Returns whether a consumer has processed every ledger up to `place`; `None` when no consumer
    /// of this name exists.
    pub fn has_passed(&self, name: &str, place: u64) -> Option<bool> {
        self.consumers.lock().get(name).map(|consumer| consumer.place >= place)
    }

    /// Returns whether a consumer's rows have all that the ledgers up to `place` have, although it may
    /// have more to do with them; `None` when no consumer of this name exists.
    pub fn has_taken(&self, name: &str, place: u64) -> Option<bool> {
        self.consumers.lock().get(name).map(|consumer| consumer.reached() >= place)
    }

    /// Returns whether a stored ledger comes after those that [`Self::has_taken`] is true for; `None`
    /// when no consumer of this name exists.
    pub fn lacks(&self, name: &str, ledger: LedgerSeq) -> Option<bool> {
        let reached = self.consumers.lock().get(name)?.reached();
        let coverage = self.coverage.read();
        Some(coverage.ranges_after(reached).any(|range| range.contains(ledger)))
    }

    /// Returns the place of a stored ledger in the order of ingestion.
    pub fn place_of(&self, ledger: LedgerSeq) -> Option<u64> {
        self.coverage.read().place_of(ledger)
    }

    /// Registers `listener` to be called whenever a consumer advances, until it returns false. It
    /// must return quickly.
    pub fn listen_to_consumers(&self, listener: impl Fn() -> bool + Send + Sync + 'static) {
        self.step_listeners.lock().push(Box::new(listener));
    }

    /// Notifies the listeners that a consumer has advanced.
    pub(crate) fn notify_step_listeners(&self) {
        self.step_listeners.lock().retain(|listener| listener());
    }

    /// Returns whether the consumer was given, or will be given, everything that `contract` emitted
    /// in `ledgers`: all of them lie in one covered range, none is lost to the consumer, and, if
    /// any ledger of that range was restricted to a list of contracts, every stored list contains
    /// `contract`.
    pub fn is_complete_for(&self, name: &str, contract: &ContractId, ledgers: LedgerRange) -> bool {
        let Some(range) = self.range_with_all_of(contract, ledgers.first) else { return false };
        let overlaps =
            |lost: &LedgerRange| lost.first <= ledgers.last && ledgers.first <= lost.last;
        let consumers = self.consumers.lock();
        range.contains(ledgers.last)
            && consumers.get(name).is_some_and(|it| !it.lost.ranges().iter().any(overlaps))
    }

    /// Returns whether these ledgers lie in one covered range, and if any ledger of that range was restricted to a list
    /// of contracts, every stored list contains `contract`.
    pub fn has_stored_for(&self, contract: &ContractId, ledgers: LedgerRange) -> bool {
        let range = self.range_with_all_of(contract, ledgers.first);
        range.is_some_and(|range| range.contains(ledgers.last))
    }

    /// Returns those of some stored ledgers that a consumer has not processed up to a place in the feed: they were
    /// ingested after it, or are lost to the consumer. All where no consumer of this name exists.
    pub fn unseen(&self, name: &str, place: u64, ledgers: LedgerRange) -> LedgerSet {
        let Some(lost) = self.consumers.lock().get(name).map(|it| it.lost.within(ledgers)) else {
            return LedgerSet::from(ledgers);
        };
        let mut unseen = lost;
        unseen.insert_all(&self.ledgers_after(place).within(ledgers));
        unseen
    }

    /// Returns the consecutive ledgers around one of which [`Self::is_complete_for`] is true; `None`
    /// when it is not true for that ledger itself.
    pub fn complete_around(
        &self,
        name: &str,
        contract: &ContractId,
        ledger: LedgerSeq,
    ) -> Option<LedgerRange> {
        let mut complete = LedgerSet::from(self.range_with_all_of(contract, ledger)?);
        complete.remove_all(&self.consumers.lock().get(name)?.lost);
        complete.ranges().iter().find(|range| range.contains(ledger)).copied()
    }

    /// Returns the covered range with a ledger, unless it has ledgers that were restricted to lists
    /// without a contract.
    fn range_with_all_of(&self, contract: &ContractId, ledger: LedgerSeq) -> Option<LedgerRange> {
        let coverage = self.coverage.read();
        let range = coverage.range_of(ledger)?;
        let has_all = !range.sums.settings.has_listed_contracts()
            || coverage.filters.always_included(contract);
        has_all.then_some(range.ledgers)
    }
}
