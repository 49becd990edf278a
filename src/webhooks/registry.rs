//! All subscriptions in memory, indexed by contract and by one topic of an event, so that
//! subscriptions that cannot match cost nothing.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use parking_lot::{Mutex, RwLock};

use super::condition_work::ConditionWork;
use super::data_index::DataIndex;
use super::delivery::Mailbox;
use super::delivery::new_deliveries::Content;
use super::filter::{Filter, TOPICS};
use super::followed::Followed;
use super::naming::Naming;
use super::rows::{KEPT, Number, SUBSCRIPTIONS};
use super::subscription::{Row, Subscription};
use super::time::{Clocks, Moment, Times};
use super::triggers::ttl_memory::TtlMemory;
use super::{CONSUMER, Sealer, WebhookError};
use orrery_executables::Interfaces;
use orrery_ledger::domain::{ContractId, Owner};
use orrery_membership::Projects;
use orrery_settings::Webhooks;
use orrery_store::{ConsumerEffects, Mark, RowBounds, Store, StoreError};

/// Number of contracts above which all events of a ledger are read to find those that match.
const MAX_CONTRACTS_LOOKED_UP: usize = 16;

/// Subscriptions by number.
pub(super) type Bucket = BTreeMap<u32, Arc<Subscription>>;

/// Subscriptions indexed by a condition that an event must meet. Each is in exactly one bucket.
#[derive(Default)]
struct Index {
    by_contract: HashMap<[u8; 32], Conditions>,
    by_project: BTreeMap<String, Conditions>,
    /// Subscriptions without a contract; the API requires an address condition for them.
    of_any_contract: Conditions,
}

/// Subscriptions indexed by one of their topic conditions.
#[derive(Default)]
struct Conditions {
    /// Subscriptions without a topic or address condition.
    all: Bucket,
    by_topic: [HashMap<Vec<u8>, Bucket>; TOPICS],
    by_address: HashMap<Vec<u8>, Bucket>,
}

impl Conditions {
    /// Returns the bucket of a filter. The last topic condition is used because it is the most
    /// selective: the first topic mostly names the kind of event.
    fn bucket(&mut self, filter: &Filter) -> &mut Bucket {
        let position = filter.topics.iter().rposition(Option::is_some);
        match (position, &filter.address) {
            (Some(position), _) => {
                let topic = filter.topics[position].clone().unwrap_or_default();
                self.by_topic[position].entry(topic).or_default()
            }
            (None, Some(address)) => self.by_address.entry(address.clone()).or_default(),
            (None, None) => &mut self.all,
        }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty()
            && self.by_address.is_empty()
            && self.by_topic.iter().all(HashMap::is_empty)
    }

    fn drop_empty(&mut self) {
        self.by_address.retain(|_, bucket| !bucket.is_empty());
        for by_value in &mut self.by_topic {
            by_value.retain(|_, bucket| !bucket.is_empty());
        }
    }

    fn candidates<'a>(&'a self, topics: &[&[u8]], visit: &mut impl FnMut(&'a Arc<Subscription>)) {
        let mut all = |bucket: &'a Bucket| bucket.values().for_each(&mut *visit);
        all(&self.all);
        for (by_value, topic) in self.by_topic.iter().zip(topics) {
            by_value.get(*topic).map(&mut all);
        }
        for (position, topic) in topics.iter().enumerate() {
            // A topic that occurs twice must not visit a subscription twice.
            if !topics[..position].contains(topic) {
                self.by_address.get(*topic).map(&mut all);
            }
        }
    }
}

impl Index {
    fn conditions(&mut self, subscription: &Subscription) -> &mut Conditions {
        if let Some(project) = subscription.contracts.project() {
            return self.by_project.entry(project.to_owned()).or_default();
        }
        match subscription.filter.contract {
            Some(contract) => self.by_contract.entry(contract).or_default(),
            None => &mut self.of_any_contract,
        }
    }

    fn insert(&mut self, subscription: &Arc<Subscription>) {
        let bucket = self.conditions(subscription).bucket(&subscription.filter);
        bucket.insert(subscription.id, Arc::clone(subscription));
    }

    fn remove(&mut self, subscription: &Subscription) {
        let conditions = self.conditions(subscription);
        let bucket = conditions.bucket(&subscription.filter);
        bucket.remove(&subscription.id);
        if bucket.is_empty() {
            conditions.drop_empty();
        }
        if let Some(project) = subscription.contracts.project()
            && self.by_project.get(project).is_some_and(Conditions::is_empty)
        {
            self.by_project.remove(project);
        }
        if let Some(contract) = subscription.filter.contract
            && self.by_contract.get(&contract).is_some_and(Conditions::is_empty)
        {
            self.by_contract.remove(&contract);
        }
    }
}

/// All subscriptions with their index, at one moment.
#[derive(Default)]
pub struct SubscriptionSet {
    by_id: Bucket,
    /// Those of events.
    index: Index,
    /// Those of projects, by name.
    of_projects: BTreeMap<String, Bucket>,
    /// Those of what single transactions do, by contract.
    of_transactions: HashMap<ContractId, Bucket>,
    /// Those of what single transactions do to the members of projects.
    of_members: Bucket,
    /// Those of entries that are about to expire, and of silence.
    of_ledgers: Bucket,
}

impl SubscriptionSet {
    /// Whether there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns all subscriptions, by number.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        self.by_id.values()
    }

    /// Returns a subscription; `None` when there is none with this number.
    pub(super) fn get(&self, id: u32) -> Option<&Arc<Subscription>> {
        self.by_id.get(&id)
    }

    /// Returns the contracts whose events may match; `None` when there are too many, or when some
    /// subscription is not limited to a contract.
    pub fn contracts(&self) -> Option<Vec<ContractId>> {
        let by_contract = &self.index.by_contract;
        let few = by_contract.len() <= MAX_CONTRACTS_LOOKED_UP;
        let all = || by_contract.keys().map(|contract| ContractId(*contract)).collect();
        let are_listed = self.index.of_any_contract.is_empty() && self.index.by_project.is_empty();
        (few && are_listed).then(all)
    }

    /// Visits the subscriptions that an event matches, in no particular order.
    pub fn matching<'a>(
        &'a self,
        contract: Option<&[u8; 32]>,
        topics: &[&[u8]],
        mut visit: impl FnMut(&'a Arc<Subscription>),
    ) {
        let mut check = |candidate: &'a Arc<Subscription>| {
            if candidate.filter.matches(contract, topics) {
                visit(candidate);
            }
        };
        if let Some(conditions) = contract.and_then(|it| self.index.by_contract.get(it)) {
            conditions.candidates(topics, &mut check);
        }
        self.index.of_any_contract.candidates(topics, &mut check);
    }

    /// Visits the subscriptions to a project that an event of it matches, in no particular order.
    pub(super) fn matching_of_project<'a>(
        &'a self,
        project: &str,
        contract: Option<&[u8; 32]>,
        topics: &[&[u8]],
        mut visit: impl FnMut(&'a Arc<Subscription>),
    ) {
        let Some(conditions) = self.index.by_project.get(project) else { return };
        conditions.candidates(topics, &mut |candidate| {
            if candidate.filter.matches(contract, topics) {
                visit(candidate);
            }
        });
    }

    /// Returns the projects of subscriptions, each with these.
    pub(super) fn by_project(
        &self,
    ) -> impl Iterator<Item = (&str, impl Iterator<Item = &Arc<Subscription>>)> {
        self.of_projects.iter().map(|(name, bucket)| (name.as_str(), bucket.values()))
    }

    /// Returns the subscriptions to what single transactions do, some of them repeatedly.
    pub(super) fn of_transactions(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        let of_contracts = self.of_transactions.values().flat_map(Bucket::values);
        of_contracts.chain(self.of_members.values())
    }

    /// Returns the subscriptions to expiring entries and to silence, by number.
    pub(super) fn of_ledgers(&self) -> &Bucket {
        &self.of_ledgers
    }

    /// Whether there are subscriptions to contract data.
    pub(super) fn has_data(&self) -> bool {
        self.by_id.values().any(|it| it.definition.trigger.keys().is_some())
    }

    /// Whether there are subscriptions to events.
    pub(super) fn has_events(&self) -> bool {
        self.by_id.values().any(|it| it.definition.trigger.is_event())
    }

    fn insert(&mut self, subscription: &Arc<Subscription>) {
        let trigger = &subscription.definition.trigger;
        let (id, own) = (subscription.id, || Arc::clone(subscription));
        if let Some(project) = subscription.contracts.project() {
            self.of_projects.entry(project.to_owned()).or_default().insert(id, own());
        }
        if trigger.is_event() {
            self.index.insert(subscription);
        } else if trigger.is_of_transactions() {
            if subscription.contracts.project().is_some() {
                self.of_members.insert(id, own());
            }
            for contract in subscription.contracts.all().unwrap_or_default() {
                self.of_transactions.entry(contract).or_default().insert(id, own());
            }
        } else {
            self.of_ledgers.insert(id, own());
        }
        self.by_id.insert(subscription.id, Arc::clone(subscription));
    }

    fn remove(&mut self, id: u32) {
        let Some(subscription) = self.by_id.remove(&id) else { return };
        if subscription.definition.trigger.is_event() {
            self.index.remove(&subscription);
        }
        if let Some(project) = subscription.contracts.project()
            && let Some(bucket) = self.of_projects.get_mut(project)
            && bucket.remove(&id).is_some()
            && bucket.is_empty()
        {
            self.of_projects.remove(project);
        }
        self.of_ledgers.remove(&id);
        self.of_members.remove(&id);
        for contract in subscription.contracts.all().unwrap_or_default() {
            let bucket = self.of_transactions.get_mut(&contract);
            if bucket.is_some_and(|bucket| bucket.remove(&id).is_some() && bucket.is_empty()) {
                self.of_transactions.remove(&contract);
            }
        }
    }
}

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
        self.known.read().by_id.get(&id).cloned()
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
        (known.by_id.len(), known.all().map(|it| it.waiting()).sum())
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
