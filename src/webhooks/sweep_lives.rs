//! Removes times to live of entries that nobody can be told of any more.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::manage::Webhooks;
use super::rows::{LIVES, Life};
use super::subscription::Subscription;
use super::trigger::Trigger;
use super::triggers::ttl::WATCHED;
use super::triggers::ttl_notes;
use super::{CONSUMER, WebhookError};
use orrery_contract_data::KeyTag;
use orrery_ledger::domain::{ContractId, LedgerSeq};
use orrery_store::{Mark, RowBounds};

/// Maximum number of contracts of which rows are removed in one write.
const MOST_AT_ONCE: usize = 1_000;
const LAST_TAG: KeyTag = KeyTag([u8::MAX; KeyTag::LEN]);

impl Webhooks {
    /// Removes the times to live that ended before each ledger that a subscription looks at, or that a replay can
    /// ask for: a subscription is told of an entry in ledgers up to the last one in which it is live.
    pub(super) fn clear_lives(&self) -> Result<(), WebhookError> {
        let Some(newest) = self.store.ends().latest else { return Ok(()) };
        let oldest = self.store.status().oldest().unwrap_or(newest);
        let of_ttl = |it: &&Arc<Subscription>| matches!(it.definition.trigger, Trigger::Ttl { .. });
        let all: Vec<Arc<Subscription>> =
            self.registry.with(|known| known.all().filter(of_ttl).cloned().collect());
        let mut kept_from = newest;
        for subscription in &all {
            let kept = self.first_looked_at(subscription)?.max(oldest);
            kept_from = kept_from.min(kept);
            if subscription.contracts.project().is_some() {
                let id = subscription.id;
                self.store.change_consumer_rows(CONSUMER, move |effects| {
                    ttl_notes::forget_before(effects, id, kept)
                })?;
            }
        }
        let mut from = None;
        loop {
            let (contracts, last) = self.contracts_with_lives(kept_from, from)?;
            self.store.change_consumer_rows(CONSUMER, move |effects| {
                contracts.iter().try_for_each(|contract| {
                    let from = contract.0;
                    let to = [contract.0.as_slice(), &kept_from.0.to_be_bytes()].concat();
                    effects.delete_range(LIVES.family, &from, &to)
                })
            })?;
            match last {
                Some(last) => from = Some(last),
                None => return Ok(()),
            }
        }
    }

    /// Returns the first ledger at which a subscription has looked; the newest one where it has yet to begin.
    fn first_looked_at(&self, subscription: &Subscription) -> Result<LedgerSeq, WebhookError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let watched = WATCHED.get(&view, &(Mark, subscription.id))?;
        Ok(watched.map_or(LedgerSeq(subscription.state().after_ledger), |it| it.first))
    }

    /// Returns contracts after one that have times to live that ended before a ledger, and the last one, if there
    /// may be more.
    fn contracts_with_lives(
        &self,
        before: LedgerSeq,
        after: Option<ContractId>,
    ) -> Result<(Vec<ContractId>, Option<ContractId>), WebhookError> {
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let (mut found, mut after) = (Vec::new(), after);
        for _ in 0..MOST_AT_ONCE {
            let behind = |contract| Life { contract, until: LedgerSeq(u32::MAX), tag: LAST_TAG };
            let from = after.map(behind);
            let mut next = None;
            LIVES.scan_all(&view, from.as_ref(), |life, ()| {
                if Some(life.contract) == after {
                    return Ok(ControlFlow::Continue(()));
                }
                next = Some(life);
                Ok(ControlFlow::Break(()))
            })?;
            let Some(Life { contract, until, .. }) = next else { return Ok((found, None)) };
            if until < before {
                found.push(contract);
            }
            after = Some(contract);
        }
        Ok((found, after))
    }
}
