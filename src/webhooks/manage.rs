//! Operations that owners request: creating, deleting and enabling subscriptions, and listing and
//! testing deliveries. Every change is on disk before it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::RngCore;
use sha2::{Digest, Sha256};

use super::delivery::{DeliveryDeps, DeliveryThreads, Mailbox, Post};
use super::filter::{Filter, encode_topic};
use super::message::Message;
use super::message::format::Format;
use super::registry::Registry;
use super::rows::{self, Class, DELIVERIES, Delivery, ENCODED_DELIVERIES, Number, PAYLOADS, QUEUE};
use super::stopped::Stopped;
use super::subscription::{Definition, Row, Subscription, VOID_ENDPOINT};
use super::subscription_rows::{self, put_next_test, put_next_trigger_test, watches_like};
use super::target::{AttemptResult, Endpoint, EndpointError, Sender};
use super::trigger::Trigger;
use super::unmet::{UNMET, Unmet};
use super::{CONSUMER, Clock, Secret, Secrets, WebhookError, payload, triggers};
use orrery_conditions::Condition;
use orrery_contract_data::CONSUMER as CONTRACT_DATA;
use orrery_ledger::domain::{CloseTime, ContractId, LedgerRange, LedgerSeq, LedgerSet, Owner};
use orrery_store::{Mark, RowBounds, RowCodec, Store};

/// Bytes of a subscription's tag.
const TAG_BYTES: usize = 8;
/// Maximum number of rows that one listing of deliveries reads.
const MAX_ROWS_READ: usize = 20_000;

/// Request to create subscriptions.
#[derive(Debug, Clone)]
pub struct NewSubscriptions {
    /// Endpoint that deliveries go to.
    pub endpoint: Endpoint,
    /// What deliveries say; `None` where they are JSON for programs.
    pub message: Option<Message>,
    /// One subscription is created for each contract; if empty, a single one for all contracts.
    pub contracts: Vec<ContractId>,
    /// The project whose events are delivered, by one subscription, instead of those of contracts.
    pub project: Option<String>,
    /// Further conditions on events; the contract in it is ignored.
    pub filter: Filter,
    /// Address of the filter as the user spelled it.
    pub address: Option<String>,
    /// What must be true of an event.
    pub condition: Option<Condition>,
    /// What they are told of.
    pub trigger: Trigger,
    /// Secret that signs deliveries; one is generated when it is `None`.
    pub secret: Option<Secret>,
    /// Whether to deliver events of older ledgers that are backfilled later.
    pub include_backfill: bool,
}

impl NewSubscriptions {
    /// A request for one subscription of an endpoint to all events, as JSON for programs.
    pub fn to(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            message: None,
            contracts: Vec::new(),
            project: None,
            filter: Filter::default(),
            address: None,
            condition: None,
            trigger: Trigger::Event,
            secret: None,
            include_backfill: false,
        }
    }
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
    /// Where replays of subscriptions have stopped within a ledger.
    pub(super) stopped: Mutex<BTreeMap<u32, Stopped>>,
    sender: Sender,
}

impl Webhooks {
    /// Creates the webhooks of a service; `deps.registry` must have been read.
    pub fn new(deps: WebhookDeps) -> Self {
        let WebhookDeps { store, registry, sender, clock } = deps;
        let (changing_secrets, unsure_secrets) = (Mutex::default(), Mutex::default());
        let stopped = Mutex::default();
        Self { store, registry, sender, clock, changing_secrets, unsure_secrets, stopped }
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
            Box::pin(async move {
                let format = subscription.definition.format;
                match &subscription.endpoint {
                    Some(endpoint) => sender.send(endpoint, format, &headers, body).await,
                    None => AttemptResult::failed(Duration::ZERO, VOID_ENDPOINT.to_owned()),
                }
            })
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
        let wanted = self.of_project(owner, wanted)?;
        self.check_condition(&wanted)?;
        self.check_message(&wanted)?;
        self.check_storage(&wanted)?;
        let secret = wanted.secret.clone().unwrap_or_else(Secret::generate);
        let definitions = self.definitions(owner, &wanted)?;
        let secrets = Secrets { present: secret.clone(), previous: Vec::new() };
        let (registry, store) = (Arc::clone(&self.registry), Arc::clone(&self.store));
        let inserted: Arc<Mutex<Vec<Arc<Subscription>>>> = Arc::default();
        let (seen, owner) = (Arc::clone(&inserted), owner.clone());
        let made = self.store.change_consumer_rows(CONSUMER, move |effects| {
            let made = subscription_rows::insert(
                &registry,
                &store,
                effects,
                &owner,
                (definitions, &secrets),
            )?;
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

    pub(super) fn definitions(
        &self,
        owner: &Owner,
        wanted: &NewSubscriptions,
    ) -> Result<Vec<Definition>, WebhookError> {
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
            let format = wanted.message.as_ref().map_or(Format::Service, Message::format);
            let (endpoint, url) = (&wanted.endpoint, wanted.endpoint.as_str());
            let (shown, sealed_endpoint, endpoint_digest) = match format.is_chat() {
                false => (url.to_owned(), None, None),
                true => {
                    let sealed = self.registry.sealer()?.seal_endpoint(&tag, url)?;
                    (endpoint.hidden(), Some(sealed), Some(hex::encode(Sha256::digest(url))))
                }
            };
            Ok(Definition {
                owner: owner.clone(),
                endpoint: shown,
                sealed_endpoint,
                endpoint_digest,
                format,
                message: wanted.message.as_ref().map(|it| it.template().text().to_owned()),
                contract: contract.map(|contract| contract.to_string()),
                project: wanted.project.clone(),
                topics: wanted.filter.topics.each_ref().map(|it| it.as_deref().map(encode_topic)),
                address: wanted.address.clone(),
                condition: wanted.condition.as_ref().map(|it| it.text().to_owned()),
                include_backfill: wanted.include_backfill,
                trigger: wanted.trigger.clone(),
                tag,
                made: now,
            })
        };
        contracts.into_iter().map(define).collect()
    }

    /// Checks that what contracts hold is recorded where wanted subscriptions are about that.
    ///
    /// # Errors
    /// [`WebhookError::StorageOff`]
    pub(super) fn check_storage(&self, wanted: &NewSubscriptions) -> Result<(), WebhookError> {
        let is_needed = wanted.trigger.keys().is_some();
        match is_needed && self.store.consumer(CONTRACT_DATA).is_none() {
            true => Err(WebhookError::StorageOff(wanted.trigger.name())),
            false => Ok(()),
        }
    }

    /// Deletes a subscription with all its deliveries. Nothing is sent for it after this returns.
    pub fn delete(&self, owner: &Owner, id: u32) -> Result<(), WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let (own, registry) = (Arc::clone(&subscription), Arc::clone(&self.registry));
        let deleted = self.store.change_consumer_rows(CONSUMER, move |effects| {
            let row = Row::of(effects, id)?.ok_or(WebhookError::Unknown(id))?;
            let keeps_lives = registry.with(|known| {
                known.of_ledgers().values().any(|it| it.id != id && watches_like(it, &own))
            });
            subscription_rows::remove(effects, id, &row.definition, keeps_lives)?;
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
        self.check_project(&subscription)?;
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

    /// Returns what a subscription's condition could not be asked of so far.
    pub fn unmet(&self, subscription: &Subscription) -> Result<Unmet, WebhookError> {
        if subscription.condition.is_none() && subscription.contracts.project().is_none() {
            return Ok(Unmet::default());
        }
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        Ok(UNMET.get(&view, &(Mark, subscription.id))?.unwrap_or_default())
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
            None => Number::LAST,
            Some(cursor) => self.number(&subscription, cursor)?,
        };
        let mut page = Page { deliveries: Vec::new(), ended_at: None };
        let mut rows_read = 0;
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        ENCODED_DELIVERIES.scan_back(&view, &id, &(id, last), |(_, number), row| {
            // The cursor is a delivery of the page before.
            if number == last {
                return Ok(ControlFlow::Continue(()));
            }
            let Some(delivery) = Delivery::decode(&row) else {
                tracing::error!(subscription = id, ?number, "a delivery is damaged");
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
        let trigger = subscription.definition.trigger.clone();
        let contract = self.invented(&subscription);
        let bodies = subscription.bodies();
        let number = self.store.change_consumer_rows(CONSUMER, move |effects| {
            if Row::of(effects, id)?.is_none() {
                return Err(WebhookError::Unknown(id));
            }
            let (number, body) = match &trigger {
                Trigger::Event => {
                    let event = ends.last_event_id;
                    let body = payload::of_test(contract.as_ref(), event.0, ledger, closed);
                    (put_next_test(effects, id, event)?, body)
                }
                other => {
                    let number = put_next_trigger_test(effects, id, LedgerSeq(ledger))?;
                    (number, triggers::body::of_test(other, contract.as_ref(), ledger, &closed))
                }
            };
            let delivery = Delivery { due: Some(now.due), ..Delivery::new(ledger, now) };
            PAYLOADS.put(effects, &bodies.key(delivery.day, number), &body)?;
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
        let subscription = self.registry.of_owner(owner, id)?;
        let view = self.store.consumer_view(CONSUMER, RowBounds::none())?;
        let (mut bodies, mut bytes) = (Vec::new(), 0);
        for (number, delivery) in deliveries {
            let stored = PAYLOADS.get(&view, &subscription.bodies().key(delivery.day, *number))?;
            bytes += stored.as_ref().map_or(0, Vec::len);
            if bytes > most && !bodies.is_empty() {
                break;
            }
            let public_url = self.registry.public_url();
            let written = |body: Vec<u8>| {
                subscription.written(body.into(), &delivery.decimals, public_url.as_deref())
            };
            bodies.push(stored.and_then(|it| String::from_utf8(written(it).into()).ok()));
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
