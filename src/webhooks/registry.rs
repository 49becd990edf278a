//! All subscriptions in memory, and the state that the consumer, the delivery threads and the API share.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::condition_work::ConditionWork;
use super::data_index::DataIndex;
use super::delivery::Mailbox;
use super::delivery::new_deliveries::Content;
use super::followed::Followed;
use super::naming::Naming;
use super::rows::{KEPT, Number, SUBSCRIPTIONS};
use super::subscription::{Row, Subscription};
use super::subscription_set::SubscriptionSet;
use super::time::{Clocks, Moment, Times};
use super::triggers::ttl_memory::TtlMemory;
use super::{CONSUMER, Sealer, WebhookError};
use orrery_executables::Interfaces;
use orrery_ledger::domain::{ContractId, Owner};
use orrery_membership::Projects;
use orrery_settings::Webhooks;
use orrery_store::{ConsumerEffects, Mark, RowBounds, Store, StoreError};

/// Deliveries that a ledger has created.
#[derive(Default)]
pub(super) struct CreatedDeliveries {
    /// Each subscription that has new deliveries, with their numbers in ascending order.
    pub by_subscription: Vec<(Arc<Subscription>, Vec<Number>)>,
    /// Contents of these deliveries.
    pub contents: Vec<(Number, Content)>,
    /// Whether the step has failed, so that the deliveries may or may not be on disk.
    pub is_uncertain: bool,
}

/// Subscriptions whose state in memory may differ from the stored row, each with the newest write
/// that has changed it.
#[derive(Default)]
struct InDoubt {
    subscriptions: BTreeMap<u32, (Arc<Subscription>, Doubt)>,
    last: u64,
}

/// A write that changes the state of a subscription, and has not succeeded yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubt {
    subscription: u32,
    write: u64,
}

/// All subscriptions, and the state that the consumer, the delivery threads and the API share.
#[derive(Default)]
pub struct Registry {
    known: RwLock<SubscriptionSet>,
    opened: OnceLock<(Sealer, Webhooks, Times)>,
    /// Interfaces by which events are named.
    pub(super) naming: Naming,
    /// Projects whose events subscriptions are told of.
    pub(super) followed: Followed,
    /// The index of contract data, as far as deliveries wait for it.
    pub(super) data_index: DataIndex,
    /// Number of the next turn at looking at entries.
    turns: AtomicUsize,
    /// What looks at expiring entries keep in memory.
    pub(super) ttl: Mutex<TtlMemory>,
    /// Address of this service's first page, to which messages link.
    public_url: OnceLock<Arc<str>>,
    /// Mailbox of the dispatcher, once it has started.
    mailbox: OnceLock<Mailbox>,
    in_doubt: Mutex<InDoubt>,
    /// The work of conditions on the current ledger.
    pub(super) condition_work: Mutex<ConditionWork>,
    /// Deliveries that the current step has created, by place in the feed, so that a step that is
    /// repeated counts once.
    pub(super) created_by_step: Mutex<BTreeMap<u64, CreatedDeliveries>>,
}

impl Registry {
    /// Reads the subscriptions of a store. To be called once, before its ledgers are consumed from
    /// the feed.
    ///
    /// # Errors
    /// Errors of the store, and [`WebhookError::Damaged`].
    pub fn open(
        &self,
        store: &Store,
        sealer: Sealer,
        settings: Webhooks,
        clocks: &Clocks,
    ) -> Result<(), WebhookError> {
        let mut rows = Vec::new();
        let view = store.consumer_view(CONSUMER, RowBounds::none())?;
        let kept = KEPT.get(&view, &Mark)?;
        // The network's time, if an earlier version has kept none.
        let closed = || store.ends().latest_close_time.map(|seconds| seconds.saturating_mul(1000));
        let times = Times::new(clocks, kept.or_else(closed));
        SUBSCRIPTIONS.scan(&view, &Mark, None, |(_, id), row| {
            rows.push((id, row));
            Ok(ControlFlow::Continue(()))
        })?;
        let mut known = self.known.write();
        for (id, row) in rows {
            let subscription = Subscription::new(id, Row::decode(id, &row)?, &sealer)?;
            if subscription.secrets().is_none() {
                tracing::error!(
                    subscription = id,
                    "the secret of a webhook subscription cannot be read: it was sealed under another key"
                );
            }
            if subscription.endpoint.is_none() {
                tracing::error!(
                    subscription = id,
                    "the endpoint of a webhook subscription cannot be read: it was sealed under another key"
                );
            }
            known.insert(&Arc::new(subscription));
        }
        drop(known);
        // A second call would set the same value.
        let _ = self.opened.set((sealer, settings, times));
        Ok(())
    }

    /// Whether the subscriptions were read.
    pub fn is_open(&self) -> bool {
        self.opened.get().is_some()
    }

    /// Sets the interfaces by which the events of deliveries are named. Without them, deliveries
    /// have no names.
    pub fn name_events_by(&self, interfaces: Arc<Interfaces>) {
        self.naming.set(interfaces);
    }

    /// Sets the projects whose events subscriptions may be told of. Without them there are none.
    pub fn follow(&self, projects: Arc<dyn Projects>) {
        self.followed.set(projects);
    }

    /// Sets the address of this service's first page. Without it, messages have no links.
    pub fn link_to(&self, public_url: &str) {
        // A second service of one process would set the same.
        let _ = self.public_url.set(public_url.into());
    }

    /// Returns the address of this service's first page, if others reach it.
    pub fn public_url(&self) -> Option<Arc<str>> {
        self.public_url.get().cloned()
    }

    /// Returns the sealer of secrets.
    ///
    /// # Errors
    /// [`WebhookError::Seal`] before [`Self::open`].
    pub fn sealer(&self) -> Result<&Sealer, WebhookError> {
        self.opened.get().map(|(sealer, ..)| sealer).ok_or(WebhookError::Seal)
    }

    /// Returns the operator's settings; the defaults before [`Self::open`].
    pub fn settings(&self) -> &Webhooks {
        static DEFAULTS: LazyLock<Webhooks> = LazyLock::new(Webhooks::default);
        self.opened.get().map_or(&*DEFAULTS, |(_, settings, _)| settings)
    }

    /// Returns this moment by the clocks of deadlines; 1970 before [`Self::open`].
    pub fn now(&self) -> Moment {
        self.opened.get().map(|(.., times)| times.now()).unwrap_or_default()
    }

    /// Returns a number that is another one each time.
    pub(super) fn next_turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts the row of the time by which deliveries are kept, for the next process.
    pub(super) fn put_kept(
        &self,
        effects: &mut ConsumerEffects<'_>,
        now: Moment,
    ) -> Result<(), StoreError> {
        if self.is_open() {
            KEPT.put(effects, &Mark, &now.kept)?;
        }
        Ok(())
    }

    /// Sets the mailbox of the dispatcher.
    pub(super) fn set_mailbox(&self, mailbox: Mailbox) {
        // It is set once in the life of the registry.
        let _ = self.mailbox.set(mailbox);
    }

    /// Returns the mailbox of the dispatcher; `None` before it has started.
    pub(super) fn mailbox(&self) -> Option<&Mailbox> {
        self.mailbox.get()
    }

    /// Calls `read` with the current subscriptions.
    pub fn with<T>(&self, read: impl FnOnce(&SubscriptionSet) -> T) -> T {
        read(&self.known.read())
    }

    /// Returns a subscription; `None` when there is none with this number.
    pub fn get(&self, id: u32) -> Option<Arc<Subscription>> {
        self.known.read().get(id).cloned()
    }

    /// Returns a subscription of this owner.
    ///
    /// # Errors
    /// [`WebhookError::Unknown`], also when it belongs to another owner or was deleted.
    pub fn of_owner(&self, owner: &Owner, id: u32) -> Result<Arc<Subscription>, WebhookError> {
        let found = self.get(id).filter(|it| it.definition.owner == *owner && !it.is_deleted());
        found.ok_or(WebhookError::Unknown(id))
    }

    /// Returns all subscriptions of an owner, by number.
    pub fn list(&self, owner: &Owner) -> Vec<Arc<Subscription>> {
        let known = self.known.read();
        let own = known.all().filter(|it| it.definition.owner == *owner && !it.is_deleted());
        own.cloned().collect()
    }

    /// Returns the contracts of subscriptions to what contracts hold: also the members of projects.
    pub fn watched_contracts(&self) -> BTreeSet<ContractId> {
        let known = self.known.read();
        let own = known.all().filter(|it| it.definition.trigger.keys().is_some());
        let (mut all, mut projects) = (BTreeSet::new(), BTreeSet::new());
        for subscription in own {
            all.extend(subscription.contracts.one());
            projects.extend(subscription.contracts.project().map(str::to_owned));
        }
        drop(known);
        for project in projects {
            all.extend(self.followed.members(&project).iter());
        }
        all
    }

    /// Returns the number of subscriptions and the number of waiting deliveries.
    pub fn counts(&self) -> (usize, u64) {
        let known = self.known.read();
        (known.all().count(), known.all().map(|it| it.waiting()).sum())
    }

    /// Adds a subscription.
    pub(super) fn insert(&self, subscription: &Arc<Subscription>) {
        self.known.write().insert(subscription);
    }

    /// Removes a subscription.
    pub(super) fn remove(&self, id: u32) {
        self.known.write().remove(id);
        let mut in_doubt = self.in_doubt.lock();
        if let Some((subscription, _)) = in_doubt.subscriptions.remove(&id) {
            subscription.set_in_doubt(false);
        }
    }

    /// Records that the state of a subscription in memory may differ from the stored row, because a
    /// write that changes it is in progress or has failed: the row decides until [`Self::end_doubt`].
    pub(super) fn begin_doubt(&self, subscription: &Arc<Subscription>) -> Doubt {
        let mut in_doubt = self.in_doubt.lock();
        in_doubt.last += 1;
        let doubt = Doubt { subscription: subscription.id, write: in_doubt.last };
        subscription.set_in_doubt(true);
        in_doubt.subscriptions.insert(subscription.id, (Arc::clone(subscription), doubt));
        doubt
    }

    /// Records that the state of a subscription in memory is that of the stored row, unless a newer
    /// write has changed it since this doubt began.
    pub(super) fn end_doubt(&self, doubt: Doubt) {
        let mut in_doubt = self.in_doubt.lock();
        if let Entry::Occupied(entry) = in_doubt.subscriptions.entry(doubt.subscription)
            && entry.get().1 == doubt
        {
            entry.remove().0.set_in_doubt(false);
        }
    }

    /// Returns the subscriptions whose state in memory may differ from the stored row.
    pub(super) fn in_doubt(&self) -> Vec<(Arc<Subscription>, Doubt)> {
        self.in_doubt.lock().subscriptions.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subscription::sample;

    #[test]
    fn an_earlier_write_does_not_clear_the_doubt_about_a_later_one() {
        let (registry, subscription) = (Registry::default(), sample(7));
        let first = registry.begin_doubt(&subscription);
        let second = registry.begin_doubt(&subscription);
        registry.end_doubt(first);
        assert!(subscription.is_in_doubt() && registry.in_doubt().len() == 1);
        registry.end_doubt(second);
        assert!(!subscription.is_in_doubt() && registry.in_doubt().is_empty());
        registry.begin_doubt(&subscription);
        registry.remove(7);
        assert!(!subscription.is_in_doubt() && registry.in_doubt().is_empty());
    }
}
