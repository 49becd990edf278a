//! For those who answer from what a consumer keeps: whether it has got as far as what others can read already, and
//! whether it has seen everything.

use super::super::Store;
use crate::domain::{ContractId, LedgerRange};

impl Store {
    /// Whether a consumer has done its work up to a place; none when none of this name is registered.
    pub fn has_passed(&self, name: &str, place: u64) -> Option<bool> {
        self.consumers.lock().get(name).map(|consumer| consumer.place >= place)
    }

    /// Has `listener` called whenever a consumer has got on, until it says false. It must not take long.
    pub fn listen_to_consumers(&self, listener: impl Fn() -> bool + Send + Sync + 'static) {
        self.steps.lock().push(Box::new(listener));
    }

    /// Tells that a consumer has got on.
    pub(super) fn tell_of_step(&self) {
        self.steps.lock().retain(|listener| listener());
    }

    /// Whether all ledgers of a range are stored, none of them is lost to a consumer, and none was restricted to
    /// contracts of which this is none: whatever this contract emitted in them, the consumer was given or will
    /// be.
    pub fn is_whole_for(&self, name: &str, contract: &ContractId, ledgers: LedgerRange) -> bool {
        {
            let coverage = self.coverage.read();
            let range = coverage.range_of(ledgers.first);
            let Some(range) = range.filter(|it| it.ledgers.contains(ledgers.last)) else {
                return false;
            };
            if range.sums.settings.has_listed_contracts() && !coverage.listings.always_had(contract)
            {
                return false;
            }
        }
        let overlaps =
            |lost: &LedgerRange| lost.first <= ledgers.last && ledgers.first <= lost.last;
        let consumers = self.consumers.lock();
        consumers.get(name).is_some_and(|it| !it.lost.ranges().iter().any(overlaps))
    }
}
