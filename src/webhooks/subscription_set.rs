//! Subscriptions indexed by contract and by one topic of an event, so that subscriptions that cannot match cost
//! nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::filter::{Filter, TOPICS};
use super::subscription::Subscription;
use orrery_ledger::domain::ContractId;

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

    pub(super) fn insert(&mut self, subscription: &Arc<Subscription>) {
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

    pub(super) fn remove(&mut self, id: u32) {
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
