//! The part of the consumer that answers for conditions: the work that they take, and what they could not be
//! asked of.

use std::sync::Arc;

use super::consumer::Work;
use super::judging::Verdict;
use super::subscription::Subscription;
use super::subscription_set::SubscriptionSet;
use super::unmet::UNMET;
use orrery_ledger::domain::LedgerSeq;
use orrery_store::{Mark, StoreError};

impl Work<'_, '_> {
    /// Whether the condition of a subscription may be asked of something of so many bytes.
    pub(super) fn may_ask(
        &mut self,
        known: &SubscriptionSet,
        subscription: &Arc<Subscription>,
        bytes: usize,
    ) -> Result<bool, StoreError> {
        match &subscription.condition {
            Some(condition) => self.count_steps(known, subscription, condition.steps(bytes)),
            None => Ok(true),
        }
    }

    /// Counts the work of a subscription's condition. When the conditions of its owner take too much, the
    /// subscription whose condition takes the most is disabled. Returns whether it is another one.
    pub(super) fn count_steps(
        &mut self,
        known: &SubscriptionSet,
        subscription: &Arc<Subscription>,
        steps: u64,
    ) -> Result<bool, StoreError> {
        let (place, owner) = (self.fed.place, &subscription.definition.owner);
        let (own, most) = ((subscription.id, steps), self.most_steps());
        let greatest = self.registry.condition_work.lock().add(place, owner, own, most);
        let Some(greatest) = greatest else { return Ok(true) };
        if let Some(greatest) = known.get(greatest) {
            let reason = format!(
                "the conditions of your subscriptions take more than {most} steps at ledger {}, and the \
                 one of this subscription takes the most: compare shorter texts, or let topics select \
                 events",
                self.fed.ledger
            );
            self.disable(greatest, reason)?;
        }
        Ok(greatest != subscription.id)
    }

    /// Whether the conditions of a subscription's owner may still take some work to search older ledgers. Others do
    /// not wait for searches, so these disable nothing.
    pub(super) fn may_search(&self, subscription: &Subscription) -> bool {
        let (place, owner) = (self.fed.place, &subscription.definition.owner);
        self.registry.condition_work.lock().steps(place, owner) < self.most_steps()
    }

    /// Counts the work of a subscription's condition in a search of older ledgers.
    pub(super) fn count_searched(&self, subscription: &Subscription, steps: u64) {
        if steps > 0 {
            let (place, owner) = (self.fed.place, &subscription.definition.owner);
            self.registry.condition_work.lock().add_searched(place, owner, steps);
        }
    }

    /// The work that the conditions of one owner may take on one ledger, in steps.
    pub(super) fn most_steps(&self) -> u64 {
        self.registry.settings().owner_ledger_steps.get().into()
    }

    /// Notes an event that a condition could not be asked of.
    pub(super) fn note_unmet(
        &mut self,
        subscription: &Subscription,
        ledger: LedgerSeq,
        verdict: &Verdict,
    ) -> Result<(), StoreError> {
        if *verdict == Verdict::Differs {
            return Ok(());
        }
        let key = (Mark, subscription.id);
        let mut unmet = UNMET.get(self.effects, &key)?.unwrap_or_default();
        if unmet.add(ledger, verdict) {
            UNMET.put(self.effects, &key, &unmet)?;
        }
        Ok(())
    }
}
