//! Replays of what is no event.

use std::sync::Arc;
use std::time::Instant;

use super::decimals::Decimals;
use super::found::{FoundEvent, MAX_BATCH_BYTES, MAX_BATCH_DELIVERIES, MAX_DURATION, MOST_STEPS};
use super::manage::Webhooks;
use super::preview_triggers::of_transactions;
use super::subscription::Subscription;
use super::time::Moment;
use super::trigger::Trigger;
use super::triggers::silence::{self, Heard, Silence};
use super::triggers::ttl::TtlLooks;
use super::triggers::ttl_memory::TtlMemory;
use super::triggers::{Sources, Told};
use super::{CONSUMER, WebhookError};
use orrery_contract_data::CONSUMER as CONTRACT_DATA;
use orrery_ledger::domain::{LedgerSeq, LedgerSet};
use orrery_store::RowBounds;

/// What a replay keeps from one ledger to the next.
#[derive(Default)]
pub(super) struct Replay {
    heard: Option<Heard>,
    /// Ledgers with all events.
    stored: Option<LedgerSet>,
    ttl: TtlMemory,
}

impl Webhooks {
    /// Collects what a subscription is told in a ledger, and writes what is collected so far whenever there
    /// is much. Returns how much it is told; `None` when that is not known yet.
    pub(super) fn collect_triggers(
        &self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        now: Moment,
        found: &mut Vec<FoundEvent>,
        replay: &mut Replay,
    ) -> Result<Option<(usize, u64)>, WebhookError> {
        let names = self.registry.naming.reader()?;
        let network = self.store.network().id();
        let (store, followed) = (&*self.store, &self.registry.followed);
        let sources = Sources { store, network, names: names.as_ref(), followed };
        let trigger = &subscription.definition.trigger;
        let needs_data = trigger.keys().is_some();
        if needs_data && self.store.consumer(CONTRACT_DATA).is_none() {
            return Err(WebhookError::StorageOff(trigger.name()));
        }
        if needs_data && self.store.lacks(CONTRACT_DATA, ledger) == Some(true) {
            return Ok(None);
        }
        let told = match subscription.definition.trigger {
            Trigger::Event => Some(Vec::new()),
            Trigger::Upgrade | Trigger::Storage { .. } | Trigger::FailedCall { .. } => {
                of_transactions(sources, subscription, ledger, &|| false)?
            }
            Trigger::Silence { within } => {
                let stored = replay.stored.get_or_insert_with(|| silence::stored(&sources));
                let silence = Silence::of(&sources, (subscription, within), MOST_STEPS);
                // A search goes back once, at the first ledger of the replay.
                let until = Instant::now() + MAX_DURATION;
                let heard = silence.heard(stored, ledger, replay.heard, until)?;
                if heard.is_some_and(|heard| heard.next.0 > 0) {
                    return Ok(None);
                }
                replay.heard = heard;
                let told = heard.map(|heard| silence.told(&heard)).transpose()?.flatten();
                Some(told.into_iter().collect())
            }
            Trigger::Ttl { .. } => {
                let memory = std::mem::take(&mut replay.ttl);
                let until = Instant::now() + MAX_DURATION;
                let mut looks = TtlLooks::new(sources, until, MAX_DURATION, memory);
                let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
                let told = looks.replayed(subscription, ledger, &view)?;
                replay.ttl = looks.memory;
                told
            }
        };
        if let Some(names) = &names {
            names.finish()?;
        }
        let Some(told) = told else { return Ok(None) };
        let all = told.len();
        let told: Vec<Told> = told.into_iter().filter(|told| told.is_sure).collect();
        let (count, unjudged) = (told.len(), (all - told.len()) as u64);
        let all_decimals = Decimals::new(&self.registry.naming);
        for Told { number, ledger, body, .. } in told {
            let decimals = all_decimals.of(subscription, &body, None)?;
            found.push(FoundEvent { number, ledger: ledger.0, body, decimals });
            let bytes: usize = found.iter().map(|it| it.body.len()).sum();
            if found.len() >= MAX_BATCH_DELIVERIES || bytes >= MAX_BATCH_BYTES {
                self.write(subscription, found, now)?;
            }
        }
        Ok(Some((count, unjudged)))
    }
}
