//! Operations that owners request: creating, deleting and enabling subscriptions, and listing and
//! testing deliveries. Every change is on disk before it is acknowledged.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};

use super::delivery::{DeliveryDeps, DeliveryThreads, Mailbox, Post};
use super::filter::Filter;
use super::registry::Registry;
use super::rows::{
    self, Class, DELIVERIES, Delivery, ENCODED_DELIVERIES, IDENTICAL, LAST_TESTS, NEXT, Number,
    OWNED, PAYLOADS, QUEUE, SUBSCRIPTIONS, payload_key, subscription_range,
};
use super::subscription::{Definition, Row, State, Subscription, encode_topic};
use super::target::{Endpoint, EndpointError, Sender};
use super::{CONSUMER, Clock, Secret, Secrets, WebhookError, payload};
use orrery_ledger::domain::{CloseTime, ContractId, LedgerRange, LedgerSeq, LedgerSet, Owner};
use orrery_store::{ConsumerEffects, Mark, RowBounds, RowCodec, Store, StoreError};

/// Bytes of a subscription's tag.
const TAG_BYTES: usize = 8;
/// Maximum number of rows that one listing of deliveries reads.
const MAX_ROWS_READ: usize = 20_000;

/// Request to create subscriptions.
#[derive(Debug, Clone)]
pub struct NewSubscriptions {
    /// Endpoint that deliveries go to.
    pub endpoint: Endpoint,
    /// One subscription is created for each contract; if empty, a single one for all contracts.
    pub contracts: Vec<ContractId>,
    /// Further conditions on events; the contract in it is ignored.
    pub filter: Filter,
    /// Address of the filter as the user spelled it.
    pub address: Option<String>,
    /// Secret that signs deliveries; one is generated when it is `None`.
    pub secret: Option<Secret>,
    /// Whether to deliver events of older ledgers that are backfilled later.
    pub include_backfill: bool,
}

/// Subscriptions that were created.
pub struct CreatedSubscriptions {
    /// Their numbers, in the order of the contracts.
    pub ids: Vec<u32>,
    /// Secret that signs their deliveries.
    pub secret: Secret,
}

/// A page of a subscription's deliveries.
#[derive(Debug)]
pub struct Page {
    /// The deliveries, newest first.
    pub deliveries: Vec<(Number, Delivery)>,
    /// Delivery at which the listing stopped because of the row limit, before the page was full;
    /// otherwise `None`.
    pub ended_at: Option<Number>,
}

/// Dependencies of [`Webhooks`].
pub struct WebhookDeps {
    /// Store that holds all rows.
    pub store: Arc<Store>,
    /// The subscriptions, already read from the store.
    pub registry: Arc<Registry>,
    /// Checks endpoints, and sends deliveries.
    pub sender: Sender,
    /// Current UNIX time in milliseconds.
    pub clock: Clock,
}

/// Webhooks of a running service.
pub struct Webhooks {
    pub(super) store: Arc<Store>,
    pub(super) registry: Arc<Registry>,
    pub(super) clock: Clock,
    /// Held while secrets are changed, which is one change at a time.
    pub(super) changing_secrets: Mutex<()>,
    /// Subscriptions of which other secrets than those in memory may be on disk.
    pub(super) unsure_secrets: Mutex<BTreeSet<u32>>,
    sender: Sender,
}

impl Webhooks {
    /// Creates the webhooks of a service; `deps.registry` must have been read.
    pub fn new(deps: WebhookDeps) -> Self {
        let WebhookDeps { store, registry, sender, clock } = deps;
        let (changing_secrets, unsure_secrets) = (Mutex::default(), Mutex::default());
        Self { store, registry, sender, clock, changing_secrets, unsure_secrets }
    }

    /// Starts to send deliveries. `deps` builds the other dependencies around the function that
    /// makes an attempt.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn deliver(
        &self,
        deps: impl FnOnce(Post) -> DeliveryDeps,
    ) -> Result<DeliveryThreads, WebhookError> {
        let sender = self.sender.clone();
        let post: Post = Arc::new(move |subscription, headers, body| {
            let sender = sender.clone();
            Box::pin(async move { sender.send(&subscription.endpoint, &headers, body).await })
        });
        DeliveryThreads::start(deps(post))
    }

    /// Returns the registry of subscriptions.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Checks whether deliveries may go to an endpoint, as far as can be determined now.
    ///
    /// # Errors
    /// [`EndpointError::Denied`]
    pub async fn check(&self, endpoint: &Endpoint) -> Result<(), EndpointError> {
        self.sender.check(endpoint).await
    }

    /// Creates all wanted subscriptions, or none. The caller must have checked the endpoint
    /// ([`Self::check`]).
    pub fn create(
        &self,
        owner: &Owner,
        wanted: NewSubscriptions,
    ) -> Result<CreatedSubscriptions, WebhookError> {
        let secret = wanted.secret.clone().unwrap_or_else(Secret::generate);
        let definitions = self.definitions(owner, &wanted);
        let secrets = Secrets { present: secret.clone(), previous: Vec::new() };
        let (registry, store) = (Arc::clone(&self.registry), Arc::clone(&self.store));
        let inserted: Arc<Mutex<Vec<Arc<Subscription>>>> = Arc::default();
        let (seen, owner) = (Arc::clone(&inserted), owner.clone());
        let made = self.store.change_consumer_rows(CONSUMER, move |effects| {
            let made = insert(&registry, &store, effects, &owner, (definitions, &secrets))?;
            // Registered before the write has succeeded: a ledger that arrives after the write must
            // find them.
            let register = |subscription: &Arc<Subscription>| {
                let doubt = registry.begin_doubt(subscription);
                registry.insert(subscription);
                (subscription.id, doubt)
            };
            let registered: Vec<_> = made.iter().map(register).collect();
            *seen.lock() = made;
            Ok::<_, WebhookError>(registered)
        });
        match made {
            Ok(made) => {
                made.iter().for_each(|(_, doubt)| self.registry.end_doubt(*doubt));
                Ok(CreatedSubscriptions { ids: made.iter().map(|(id, _)| *id).collect(), secret })
            }
            Err(error) => {
                inserted.lock().iter().for_each(|it| self.registry.remove(it.id));
                Err(error)
            }
        }
    }

    fn definitions(&self, owner: &Owner, wanted: &NewSubscriptions) -> Vec<Definition> {
        let mut contracts: Vec<Option<ContractId>> = Vec::new();
        for contract in &wanted.contracts {
            if !contracts.contains(&Some(*contract)) {
                contracts.push(Some(*contract));
            }
        }
        if contracts.is_empty() {
            contracts.push(None);
        }
        let now = (self.clock)();
        let define = |contract: Option<ContractId>| {
            let mut tag = [0; TAG_BYTES];
            rand::rng().fill_bytes(&mut tag);
            let tag = hex::encode(tag);
            Definition {
                owner: owner.clone(),
                endpoint: wanted.endpoint.as_str().to_owned(),
                contract: contract.map(|contract| contract.to_string()),
                topics: wanted.filter.topics.each_ref().map(|it| it.as_deref().map(encode_topic)),
                address: wanted.address.clone(),
                include_backfill: wanted.include_backfill,
                tag,
                made: now,
            }
        };
        contracts.into_iter().map(define).collect()
    }

    /// Deletes a subscription with all its deliveries. Nothing is sent for it after this returns.
    pub fn delete(&self, owner: &Owner, id: u32) -> Result<(), WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let (own, registry) = (Arc::clone(&subscription), Arc::clone(&self.registry));
        let deleted = self.store.change_consumer_rows(CONSUMER, move |effects| {
            let row = Row::of(effects, id)?.ok_or(WebhookError::Unknown(id))?;
            remove(effects, id, &row.definition)?;
            registry.begin_doubt(&own);
            own.set_deleted(true);
            Ok::<_, WebhookError>(())
        });
        if let Err(error) = deleted {
            subscription.set_deleted(false);
            return Err(error);
        }
        self.registry.remove(id);
        if let Some(mailbox) = self.mailbox() {
            mailbox.forget(id);
        }
        Ok(())
    }

    /// Enables a subscription that was disabled. Events that it missed are not sent automatically.
    pub fn enable(&self, owner: &Owner, id: u32) -> Result<Arc<Subscription>, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let (own, store) = (Arc::clone(&subscription), Arc::clone(&self.store));
        let registry = Arc::clone(&self.registry);
        let doubt = self.store.change_consumer_rows(CONSUMER, move |effects| {
            let mut row = Row::of(effects, id)?.ok_or(WebhookError::Unknown(id))?;
            if !row.state.enabled {
                row.state.enable(store.last_place());
                row.put(effects, id)?;
            }
            // Also when the row is enabled: a write of outcomes that failed may have left another
            // state in memory.
            let doubt = registry.begin_doubt(&own);
            own.set_state(row.state);
            Ok::<_, WebhookError>(doubt)
        })?;
        self.registry.end_doubt(doubt);
        if let Some(mailbox) = self.mailbox() {
            mailbox.changed(id);
        }
        Ok(subscription)
    }

    /// Returns the ledgers whose events a subscription should have received and never will:
    /// retention removed them before the consumer read them, or they were restricted to other
    /// contracts when they were stored. Ledgers from before the subscription was created, or last
    /// enabled, are not included.
    pub fn missing(&self, subscription: &Subscription) -> LedgerSet {
        let state = subscription.state();
        let contract = subscription.definition.contract();
        let mut missing = self.store.lost_after(CONSUMER, state.after_place);
        missing.insert_all(&self.store.left_out_after(state.after_place, contract.as_ref()));
        if !subscription.definition.include_backfill {
            let (first, last) = (LedgerSeq(0), LedgerSeq(state.after_ledger));
            missing.remove(LedgerRange { first, last });
        }
        missing
    }

    /// Lists at most `limit` deliveries of a subscription, newest first: those before `cursor`, and
    /// with `state` only those in that state.
    pub fn deliveries(
        &self,
        owner: &Owner,
        id: u32,
        state: Option<rows::State>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let last = match cursor {
            None => Some(Number(u64::MAX)),
            Some(cursor) => self.number(&subscription, cursor)?.0.checked_sub(1).map(Number),
        };
        let mut page = Page { deliveries: Vec::new(), ended_at: None };
        let Some(last) = last else { return Ok(page) };
        let mut rows_read = 0;
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        ENCODED_DELIVERIES.scan_back(&view, &id, &(id, last), |(_, number), row| {
            let Some(delivery) = Delivery::decode(&row) else {
                tracing::error!(subscription = id, number = number.0, "a delivery is damaged");
                return Err(WebhookError::Damaged(format!("a delivery of subscription {id}")));
            };
            if state.is_none_or(|state| delivery.state == state) {
                page.deliveries.push((number, delivery));
            }
            rows_read += 1;
            let is_full = page.deliveries.len() >= limit;
            if rows_read >= MAX_ROWS_READ && !is_full {
                page.ended_at = Some(number);
            }
            Ok(match is_full || rows_read >= MAX_ROWS_READ {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })?;
        Ok(page)
    }

    /// Returns the delivery with this id, if it is still listed.
    ///
    /// # Errors
    /// [`WebhookError::UnknownDelivery`] for an id that no delivery of the subscription has, and
    /// errors of the store.
    pub fn delivery(
        &self,
        owner: &Owner,
        id: u32,
        delivery: &str,
    ) -> Result<Option<(Number, Delivery)>, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let number = self.number(&subscription, delivery)?;
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let row = ENCODED_DELIVERIES.get(&view, &(id, number))?;
        let damaged = || WebhookError::Damaged(format!("a delivery of subscription {id}"));
        row.map(|row| Delivery::decode(&row).map(|it| (number, it)).ok_or_else(damaged)).transpose()
    }

    /// Creates a test delivery, which is attempted once, and returns its id.
    pub fn test(&self, owner: &Owner, id: u32) -> Result<String, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let now = self.registry.now();
        let ends = self.store.ends();
        let ledger = ends.latest.unwrap_or(LedgerSeq(0)).0;
        let closed = CloseTime::Seconds(ends.latest_close_time.unwrap_or(0)).to_string();
        let contract = subscription.definition.contract();
        let number = self.store.change_consumer_rows(CONSUMER, move |effects| {
            if Row::of(effects, id)?.is_none() {
                return Err(WebhookError::Unknown(id));
            }
            let number = put_next_test(effects, id, ends.last_event_id)?;
            let delivery = Delivery { due: Some(now.due), ..Delivery::new(ledger, now) };
            let event = ends.last_event_id.0;
            let body = payload::of_test(contract.as_ref(), event, ledger, closed);
            PAYLOADS.put(effects, &payload_key(delivery.day, id, number), &body)?;
            if let Some(queued) = delivery.queued(id, number) {
                QUEUE.put(effects, &queued, &())?;
            }
            DELIVERIES.put(effects, &(id, number), &delivery)?;
            Ok(number)
        })?;
        subscription.add_waiting(1);
        if let Some(mailbox) = self.mailbox() {
            mailbox.delivery_requested(id, Class::Soon, now.due);
        }
        Ok(number.id(&subscription.definition.tag))
    }

    /// Returns the bodies that are sent for deliveries of a subscription, in their order; `None` for one
    /// that is not stored any more. Ends before the bodies exceed `most` bytes, but not before the
    /// first.
    pub fn bodies(
        &self,
        owner: &Owner,
        id: u32,
        deliveries: &[(Number, Delivery)],
        most: usize,
    ) -> Result<Vec<Option<String>>, WebhookError> {
        self.registry.of_owner(owner, id)?;
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        for (number, delivery) in deliveries {
            let stored = PAYLOADS.get(&view, &payload_key(delivery.day, id, *number))?;
            bytes += stored.as_ref().map_or(0, Vec::len);
            if bytes > most && !bodies.is_empty() {
                break;
            }
            bodies.push(stored.and_then(|body| String::from_utf8(body).ok()));
        }
        Ok(bodies)
    }

    /// Returns the number of the delivery with this id.
    pub(super) fn number(
        &self,
        subscription: &Subscription,
        delivery: &str,
    ) -> Result<Number, WebhookError> {
        Number::parse(&subscription.definition.tag, delivery).ok_or_else(|| {
            let delivery = orrery_ledger::domain::excerpt(delivery);
            WebhookError::UnknownDelivery { subscription: subscription.id, delivery }
        })
    }

    pub(super) fn mailbox(&self) -> Option<&Mailbox> {
        self.registry.mailbox()
    }
}

/// Writes the rows of new subscriptions.
fn insert(
    registry: &Registry,
    store: &Store,
    effects: &mut ConsumerEffects<'_>,
    owner: &Owner,
    (definitions, secrets): (Vec<Definition>, &Secrets),
) -> Result<Vec<Arc<Subscription>>, WebhookError> {
    let own = (Mark, Sha256::digest(&owner.0).into());
    let have = OWNED.get(effects, &own)?.unwrap_or(0);
    let more = u32::try_from(definitions.len()).unwrap_or(u32::MAX);
    let (total, most) = (have.saturating_add(more), registry.settings().owner_subscriptions.get());
    if total > most {
        return Err(WebhookError::TooMany { have, most });
    }
    let mut next = NEXT.get(effects, &Mark)?.unwrap_or(1);
    let state = State {
        enabled: true,
        disabled_reason: None,
        failing_since: None,
        failing_kept: None,
        failing_because: None,
        after_place: store.last_place(),
        after_ledger: store.ends().latest.unwrap_or(LedgerSeq(0)).0,
    };
    let mut made = Vec::with_capacity(definitions.len());
    for definition in definitions {
        let same = (Mark, definition.fingerprint());
        if let Some(other) = IDENTICAL.get(effects, &same)? {
            return Err(WebhookError::Duplicate(other));
        }
        let id = next;
        let all_given = || WebhookError::Damaged("the number of the next subscription".to_owned());
        next = next.checked_add(1).ok_or_else(all_given)?;
        let secrets = registry.sealer()?.seal_all(&definition.tag, secrets)?;
        let row = Row { definition, secrets, state: state.clone() };
        IDENTICAL.put(effects, &same, &id)?;
        row.put(effects, id)?;
        made.push(Arc::new(Subscription::new(id, row, registry.sealer()?)?));
    }
    NEXT.put(effects, &Mark, &next)?;
    OWNED.put(effects, &own, &total)?;
    Ok(made)
}

/// Deletes all rows of a subscription except those whose keys begin with a day (`payloads`,
/// `finished`).
fn remove(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    definition: &Definition,
) -> Result<(), StoreError> {
    let own = (Mark, Sha256::digest(&definition.owner.0).into());
    match OWNED.get(effects, &own)?.unwrap_or(0).saturating_sub(1) {
        0 => OWNED.delete(effects, &own)?,
        remaining => OWNED.put(effects, &own, &remaining)?,
    }
    IDENTICAL.delete(effects, &(Mark, definition.fingerprint()))?;
    SUBSCRIPTIONS.delete(effects, &(Mark, id))?;
    LAST_TESTS.delete(effects, &(Mark, id))?;
    let (from, to) = subscription_range(id);
    for family in [DELIVERIES.family, QUEUE.family] {
        effects.delete_range(family, &from, &to)?;
    }
    Ok(())
}

/// Stores the number of a subscription's next test, and returns it.
fn put_next_test(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    newest: orrery_ledger::domain::EventId,
) -> Result<Number, WebhookError> {
    let last = LAST_TESTS.get(effects, &(Mark, id))?;
    // After a restore, the newest event may be older than the last test: test numbers never
    // decrease.
    let (event, count) = match last {
        Some(last) if last.event() >= newest => (last.event(), last.test().unwrap_or(0) + 1),
        _ => (newest, 1),
    };
    let number = Number::of_test(event, count).or_else(|| {
        let next = orrery_ledger::domain::EventId(event.0.checked_add(1)?);
        Number::of_test(next, 1)
    });
    let too_many = || WebhookError::Damaged("the number of a test".to_owned());
    let number = number.ok_or_else(too_many)?;
    LAST_TESTS.put(effects, &(Mark, id), &number)?;
    Ok(number)
}
