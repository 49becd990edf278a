//! The consumer of the store's feed. It writes a delivery for each event and each subscription that
//! matches it, in one batch with the cursor, so that a crash neither loses nor duplicates a
//! delivery.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::decimals::{Decimals, asset_emitter};
use super::delivery::new_deliveries::{Content, Created};
use super::followed::SelectedEvents;
use super::judging::{JudgedEvent, Verdict};
use super::registry::{CreatedDeliveries, Doubt, Registry};
use super::rows::{
    Delivery, ENCODED_DELIVERIES, FAMILIES, Number, PAYLOADS, PROGRESS, QUEUE, Queued,
    TRANSACTIONS_DONE, payload_key,
};
use super::subscription::{Row, Subscription};
use super::subscription_set::SubscriptionSet;
use super::time::Moment;
use super::triggers::Sources;
use super::{CONSUMER, WebhookError, payload};
use orrery_ledger::domain::{EventId, LedgerRange, Owner, Page};
use orrery_settings as settings;
use orrery_store::{
    Arrival, Bounds, ConsumerEffects, ConsumerSpec, EventQuery, EventRecord, FedLedger,
    LedgerConsumer, Mark, Needs, RowCodec, StartPosition, Store, StoreError,
};

/// Bytes of rows after which the rest of a ledger is left to the next step.
pub(super) const MAX_STEP_BYTES: usize = 4 << 20;

/// Time after which the rest of a ledger is left to the next step, so that what is created so far is
/// sent and a stop is noticed.
///
/// Unit tests: one event a step.
const MAX_STEP_TIME: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 100 });

/// Creates deliveries from the ledgers of the feed.
pub struct WebhookConsumer {
    registry: Arc<Registry>,
}

impl WebhookConsumer {
    /// Returns a consumer that creates deliveries for the subscriptions in `registry`.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// Whether as much is known as the deliveries of a ledger are made from.
    fn may_be_made(&self, store: &Store, ledger: &FedLedger) -> bool {
        let registry = &*self.registry;
        let is_wanted = !registry.with(SubscriptionSet::is_empty);
        if is_wanted && !registry.naming.may_be_made(ledger.place) {
            return false;
        }
        let needs_data = || registry.with(SubscriptionSet::has_data);
        if is_wanted && !registry.data_index.has(store, ledger.ledger, needs_data) {
            return false;
        }
        let projects: Vec<String> = registry.with(|known| {
            let concerns = |it: &Arc<Subscription>| it.is_in_doubt() || it.concerns(ledger);
            let concerned = known.by_project().filter_map(|(project, mut bucket)| {
                bucket.any(concerns).then(|| project.to_owned())
            });
            concerned.collect()
        });
        registry.followed.may_be_made(&projects, ledger.place)
    }
}

impl LedgerConsumer for WebhookConsumer {
    fn spec(&self) -> ConsumerSpec {
        ConsumerSpec {
            name: CONSUMER,
            families: FAMILIES,
            needs: Needs { events: true, ..Needs::default() },
            start: StartPosition::NextLedger,
        }
    }

    fn process_ledger(
        &self,
        store: &Store,
        ledger: &FedLedger,
        effects: &mut ConsumerEffects<'_>,
    ) -> Result<(), StoreError> {
        if !self.registry.is_open() {
            return Err(StoreError::Database("webhook subscriptions are not loaded".to_owned()));
        }
        // What a failed step created for this and later ledgers is created again.
        self.registry.created_by_step.lock().split_off(&ledger.place);
        if !self.may_be_made(store, ledger) {
            effects.mark_unfinished();
            return Ok(());
        }
        self.registry.with(|known| {
            if known.is_empty() {
                return Ok(());
            }
            let (names, network) = (self.registry.naming.reader()?, store.network().id());
            let mut work = Work {
                registry: &self.registry,
                fed: ledger,
                now: self.registry.now(),
                until: Instant::now() + MAX_STEP_TIME,
                effects,
                created: BTreeMap::new(),
                by_owner: HashMap::new(),
                contents: Vec::new(),
                sources: Sources {
                    store,
                    network,
                    names: names.as_ref(),
                    followed: &self.registry.followed,
                },
                decimals: Decimals::new(&self.registry.naming),
            };
            work.process_ledger(known)
        })
    }

    fn on_step_written(&self, store: &Store) {
        // First, so that a panic in it leaves what was created to the next step.
        for (subscription, doubt) in self.registry.in_doubt() {
            reload_state(store, &self.registry, subscription, doubt);
        }
        let by_ledger = std::mem::take(&mut *self.registry.created_by_step.lock());
        let mut created = Created::default();
        for ledger in by_ledger.into_values() {
            for (subscription, mut numbers) in ledger.by_subscription {
                subscription.add_waiting(i64::try_from(numbers.len()).unwrap_or(i64::MAX));
                if ledger.is_uncertain {
                    // Those that are on disk are read from the queue.
                    numbers.clear();
                }
                created.by_subscription.push((subscription.id, numbers));
            }
            created.contents.extend(ledger.contents);
        }
        let is_empty = created.by_subscription.is_empty();
        if let Some(mailbox) = self.registry.mailbox().filter(|_| !is_empty) {
            mailbox.deliveries_created(created);
        }
    }

    fn on_step_failed(&self) {
        self.registry.ttl.lock().forget_looks();
        for ledger in self.registry.created_by_step.lock().values_mut() {
            ledger.contents.clear();
            ledger.is_uncertain = true;
        }
    }

    fn cannot_be_rebuilt(&self) -> Option<&'static str> {
        Some(
            "subscriptions are not derived from ledgers, and all deliveries would be sent again; \
             to send some again, use POST /rest/webhooks/{id}/replay",
        )
    }
}

/// Reads the state of a subscription that this step has disabled, or whose last write is in doubt.
/// If that fails, the next step tries again.
fn reload_state(store: &Store, registry: &Registry, subscription: Arc<Subscription>, doubt: Doubt) {
    let (id, own) = (subscription.id, Arc::clone(&subscription));
    let reloaded = store.change_consumer_rows(CONSUMER, move |effects| {
        let row = Row::of(effects, id)?;
        Ok::<_, WebhookError>(row.map(|row| own.set_state(row.state)).is_some())
    });
    match reloaded {
        Ok(true) => registry.end_doubt(doubt),
        // Deleted, perhaps by a write that reported a failure.
        Ok(false) => {
            subscription.set_deleted(true);
            registry.remove(id);
        }
        Err(error) => {
            tracing::error!(subscription = id, "a subscription's state cannot be read: {error}");
        }
    }
}

/// The work on one ledger.
pub(super) struct Work<'w, 'e> {
    pub(super) registry: &'w Registry,
    pub(super) fed: &'w FedLedger,
    pub(super) now: Moment,
    pub(super) effects: &'w mut ConsumerEffects<'e>,
    /// Numbers of the deliveries created so far, by subscription.
    created: BTreeMap<u32, (Arc<Subscription>, Vec<Number>)>,
    /// Deliveries of each owner that has new ones.
    by_owner: HashMap<Owner, OwnerDeliveries>,
    /// Contents of these deliveries.
    contents: Vec<(Number, Content)>,
    /// Time after which the rest is left to the next step.
    pub(super) until: Instant,
    /// From what deliveries are made.
    pub(super) sources: Sources<'w>,
    /// Decimals of tokens, for messages.
    pub(super) decimals: Decimals<'w>,
}

/// Deliveries of all subscriptions of one owner.
#[derive(Debug, Clone, Copy, Default)]
struct OwnerDeliveries {
    /// Number that waited when the ledger was begun.
    waiting: u64,
    /// Number that the ledger has created so far.
    created: u64,
}

impl Work<'_, '_> {
    /// Processes the events of the ledger, then what else its transactions did, then what the ledger as a
    /// whole tells; in several steps if there is much.
    fn process_ledger(&mut self, known: &SubscriptionSet) -> Result<(), StoreError> {
        // Older ledgers may say until when an entry lives.
        let is_noted = self.fed.arrival != Arrival::Live && !known.of_ledgers().is_empty();
        if !is_noted && !known.all().any(|it| it.is_in_doubt() || it.concerns(self.fed)) {
            return Ok(());
        }
        let done = self.process_projects(known).and_then(|()| self.process_parts(known));
        let created = CreatedDeliveries {
            by_subscription: std::mem::take(&mut self.created).into_values().collect(),
            contents: std::mem::take(&mut self.contents),
            is_uncertain: false,
        };
        self.registry.created_by_step.lock().insert(self.fed.place, created);
        if let Some(names) = self.sources.names {
            names.finish()?;
        }
        done
    }

    fn process_parts(&mut self, known: &SubscriptionSet) -> Result<(), StoreError> {
        let transactions = TRANSACTIONS_DONE.get(self.effects, &Mark)?;
        let transactions = transactions.filter(|(place, _)| *place == self.fed.place);
        if transactions.is_none() && known.has_events() && !self.process_events(known)? {
            return Ok(());
        }
        let after = transactions.map_or(0, |(_, order)| order);
        if !self.process_transactions(known, after)? {
            return Ok(());
        }
        self.process_end(known)
    }

    /// Creates the deliveries of events. Returns whether that was all.
    fn process_events(&mut self, known: &SubscriptionSet) -> Result<bool, StoreError> {
        let (ledger, selected) = (self.fed.ledger, self.selected(known)?);
        let query = EventQuery {
            contracts: known.contracts().unwrap_or_default(),
            page: Page { cursor: self.last_processed_event()?, ..Page::all() },
            ..EventQuery::of_ledgers(LedgerRange::only(ledger))
        };
        let walked = self.sources.store.events_within(&query, Bounds::NONE, |event| match self
            .create_deliveries(known, event, &selected)
        {
            Ok(()) if self.has_room() => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(self.save_progress(event.id)),
            Err(error) => ControlFlow::Break(Err(error)),
        })?;
        let is_all = walked.broken_off.is_none();
        walked.broken_off.unwrap_or(Ok(())).map(|()| is_all)
    }

    /// Whether this step may write more.
    pub(super) fn has_room(&self) -> bool {
        self.effects.bytes() < MAX_STEP_BYTES && Instant::now() < self.until
    }

    /// Returns the last event of this ledger that an earlier step has processed.
    fn last_processed_event(&self) -> Result<Option<EventId>, StoreError> {
        let progress = PROGRESS.get(self.effects, &Mark)?;
        Ok(progress.filter(|(place, _)| *place == self.fed.place).map(|(_, event)| event))
    }

    fn save_progress(&mut self, event: EventId) -> Result<(), StoreError> {
        PROGRESS.put(self.effects, &Mark, &(self.fed.place, event))?;
        self.effects.mark_unfinished();
        Ok(())
    }

    fn create_deliveries(
        &mut self,
        known: &SubscriptionSet,
        event: &EventRecord<'_>,
        selected: &SelectedEvents,
    ) -> Result<(), StoreError> {
        let number = Number::of_event(event.id);
        let delivery = Delivery::new(event.ledger.0, self.now);
        // Row and body, which most subscriptions share.
        let mut made: Option<(Vec<u8>, Vec<u8>)> = None;
        for (subscription, verdict) in self.judged(known, event, number)? {
            if verdict != Verdict::Matches {
                self.note_unmet(subscription, event.ledger, &verdict)?;
                continue;
            }
            let id = subscription.id;
            let (row, body) = made.get_or_insert_with(|| {
                let body = payload::of_event(event, self.sources.network, self.sources.names);
                (delivery.encode(), body)
            });
            let decimals = self.decimals_of(subscription, body, event)?;
            if decimals.is_empty() {
                ENCODED_DELIVERIES.put(self.effects, &(id, number), row)?;
            } else {
                let delivery = Delivery { decimals, ..delivery.clone() };
                ENCODED_DELIVERIES.put(self.effects, &(id, number), &delivery.encode())?;
            }
            QUEUE.put(self.effects, &Queued::first(id, number), &())?;
            self.count(known, subscription, number)?;
        }
        if let Some((_, body)) = made {
            let key = payload_key(delivery.day, 0, number);
            PAYLOADS.put(self.effects, &key, &body)?;
            self.contents.push((number, Content { delivery, body: body.into() }));
        }
        self.create_deliveries_of_projects(known, event, selected)
    }

    /// Returns the subscriptions that concern the event and have no delivery of it, each with what its
    /// condition says.
    fn judged<'k>(
        &mut self,
        known: &'k SubscriptionSet,
        event: &EventRecord<'_>,
        number: Number,
    ) -> Result<Vec<(&'k Arc<Subscription>, Verdict)>, StoreError> {
        let mut matching = Vec::new();
        known.matching(event.contract, event.topics, |subscription| matching.push(subscription));
        let judged = JudgedEvent::new(event, self.sources.network, self.sources.names);
        let bytes = event.size();
        let mut all = Vec::with_capacity(matching.len());
        for subscription in matching {
            // If it has one, a replay was ahead of this consumer: the delivery is queued, or has ended.
            if !self.concerns(subscription)?
                || ENCODED_DELIVERIES.has(self.effects, &(subscription.id, number))?
            {
                continue;
            }
            let Some(condition) = &subscription.condition else {
                all.push((subscription, Verdict::Matches));
                continue;
            };
            if self.may_ask(known, subscription, bytes)? {
                all.push((subscription, judged.by(condition)));
            }
        }
        Ok(all)
    }

    /// Returns the decimals that the message of a subscription about an event needs.
    pub(super) fn decimals_of(
        &self,
        subscription: &Subscription,
        body: &[u8],
        event: &EventRecord<'_>,
    ) -> Result<Vec<Option<u32>>, StoreError> {
        if !subscription.has_units() {
            return Ok(Vec::new());
        }
        let asset = asset_emitter(event, self.sources.network, self.sources.names);
        self.decimals.of(subscription, body, asset)
    }

    /// Whether a subscription that matches the event gets a delivery.
    pub(super) fn concerns(&self, subscription: &Subscription) -> Result<bool, StoreError> {
        if subscription.is_in_doubt() {
            // A write that changes it has failed or is still in progress: the stored row decides.
            let row = match Row::of(self.effects, subscription.id) {
                Err(WebhookError::Store(error)) => return Err(error),
                Err(error) => return Err(StoreError::Database(error.to_string())),
                Ok(row) => row,
            };
            // It stays in doubt until this step is written.
            return Ok(row.is_some_and(|row| row.concerns(self.fed)));
        }
        Ok(subscription.concerns(self.fed))
    }

    /// Counts a delivery, and disables the subscription when it exceeds a limit of its own or of its
    /// owner.
    pub(super) fn count(
        &mut self,
        known: &SubscriptionSet,
        subscription: &Arc<Subscription>,
        number: Number,
    ) -> Result<(), StoreError> {
        let new = || (Arc::clone(subscription), Vec::new());
        let (_, created) = self.created.entry(subscription.id).or_insert_with(new);
        created.push(number);
        let waiting = subscription.waiting().saturating_add(created.len() as u64);
        let owner = &subscription.definition.owner;
        let of_owner = self.by_owner.entry(owner.clone()).or_insert_with(|| {
            let own = known.all().filter(|it| it.definition.owner == *owner);
            OwnerDeliveries { waiting: own.map(|it| it.waiting()).sum(), created: 0 }
        });
        of_owner.created += 1;
        let settings::Webhooks { backlog, owner_backlog, owner_ledger_deliveries, .. } =
            self.registry.settings();
        let exceeds = |count: u64, most: &NonZeroU32| count > most.get().into();
        let of_all = of_owner.waiting.saturating_add(of_owner.created);
        let reason = if exceeds(waiting, backlog) {
            format!("more than {backlog} deliveries were waiting for its endpoint")
        } else if exceeds(of_all, owner_backlog) {
            format!(
                "more than {owner_backlog} deliveries of your subscriptions were waiting for their \
                 endpoints"
            )
        } else if exceeds(of_owner.created, owner_ledger_deliveries) {
            let (most, ledger) = (owner_ledger_deliveries, self.fed.ledger);
            format!("ledger {ledger} has more than {most} deliveries for your subscriptions")
        } else {
            return Ok(());
        };
        self.disable(subscription, reason)
    }

    /// Disables a subscription for this reason.
    pub(super) fn disable(
        &mut self,
        subscription: &Arc<Subscription>,
        reason: String,
    ) -> Result<(), StoreError> {
        let mut state = subscription.state();
        state.disable(reason);
        subscription.row(state).put(self.effects, subscription.id)?;
        // The state in memory is updated after this write, in `on_step_written`.
        self.registry.begin_doubt(subscription);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use orrery_testkit::event_counts::by_contract;
    use orrery_testkit::sandbox::{ledgers, local, sandbox};

    use super::*;
    use crate::manage::{NewSubscriptions, WebhookDeps, Webhooks};
    use crate::target::{Policy, Sender, Timeouts, system_lookup};
    use crate::time::Clocks;
    use crate::{Clock, Sealer};
    use orrery_ledger::decode::decode;
    use orrery_store::{Durability, Extensions, IndexOptions, PreparedLedger};

    /// A step ends when its time is over, in the middle of a ledger: what it has created is sent then, and
    /// the next step goes on with the next event.
    #[test]
    fn a_step_whose_time_is_over_leaves_the_rest_of_the_ledger_to_the_next_one() {
        let network = local();
        let chain = ledgers(sandbox(13, 4..=4), 12);
        let of_each = chain.iter().map(|raw| by_contract(raw, &network).1.into_iter());
        let of_each: Vec<usize> =
            of_each.map(|counts| counts.map(|(_, count)| count).sum()).collect();
        let events: usize = of_each.iter().sum();
        assert!(of_each.iter().any(|events| *events > 2), "{of_each:?}");
        let directory = tempfile::tempdir().unwrap();
        let registry = Arc::<Registry>::default();
        let consumer = WebhookConsumer::new(Arc::clone(&registry));
        let extensions = Extensions { consumers: vec![consumer.spec()], ..Extensions::default() };
        let store = Store::open_with(directory.path(), Some(&network), extensions).unwrap();
        let store = Arc::new(store);
        let clock: Clock = Arc::new(|| 1);
        let clocks = Clocks { machine: Arc::clone(&clock), elapsed: Arc::new(|| 0) };
        let sealer = Sealer::new(&[7; 32]).unwrap();
        registry.open(&store, sealer, settings::Webhooks::default(), &clocks).unwrap();
        let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
        let registry = Arc::clone(&registry);
        let deps = WebhookDeps { store: Arc::clone(&store), registry, sender, clock };
        let webhooks = Webhooks::new(deps);
        let endpoint = "https://example.com/".parse().unwrap();
        let wanted = NewSubscriptions { include_backfill: true, ..NewSubscriptions::to(endpoint) };
        let id = webhooks.create(&Owner("ana".to_owned()), wanted).unwrap().ids[0];
        for raw in &chain {
            let view = decode(raw, network.id()).unwrap();
            let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
            store.commit(prepared, Durability::Synced).unwrap();
        }
        let waiting = || webhooks.registry().get(id).unwrap().waiting();
        let (mut steps, mut before) = (0, 0);
        while store.step(&consumer).unwrap() {
            assert!(waiting() <= before + 1, "after {steps} steps");
            (steps, before) = (steps + 1, waiting());
        }
        assert_eq!(waiting(), events as u64, "each event has one delivery");
        assert!(steps >= events, "{steps} steps for {events} events");
    }
}
