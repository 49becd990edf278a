//! Replays on request: sends one delivery again, or all events in a range of ledgers that match a
//! subscription, including ledgers from before it was created.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::manage::Webhooks;
use super::rows::{
    Class, DELIVERIES, Delivery, FINISHED, Number, PAYLOADS, QUEUE, State, payload_key,
};
use super::subscription::{Row, Subscription};
use super::time::Moment;
use super::{CONSUMER, WebhookError, payload};
use orrery_executables::Waited;
use orrery_ledger::domain::{ContractId, LedgerRange, LedgerSeq, LedgerSet, Owner};
use orrery_store::{Bounds, ConsumerEffects, EventQuery, Needs, TopicFilter, TransactionPosition};

/// Maximum number of deliveries per request, not counting those of its last ledger.
const MAX_DELIVERIES: usize = 10_000;
/// How long one request searches for deliveries.
const MAX_DURATION: Duration = Duration::from_secs(2);
/// Maximum number of deliveries, and of bytes of their bodies, in one write.
const MAX_BATCH_DELIVERIES: usize = 500;
const MAX_BATCH_BYTES: usize = 4 << 20;

/// Result of a replay of ledgers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// Number of deliveries that are sent again, or for the first time.
    pub deliveries: u64,
    /// Ledger to continue from; `None` when the whole range was replayed.
    pub next: Option<LedgerSeq>,
    /// Ledgers of the replayed part whose events are not stored.
    pub missing: LedgerSet,
}

/// An event to send.
struct FoundEvent {
    number: Number,
    ledger: u32,
    body: Vec<u8>,
}

impl Webhooks {
    /// Queues a delivery again, under its own id, as if it had not been attempted.
    pub fn replay_one(&self, owner: &Owner, id: u32, delivery: &str) -> Result<(), WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let number = self.number(&subscription, delivery)?;
        let now = self.registry.now();
        let given = orrery_ledger::domain::excerpt(delivery);
        let more = self.store.change_consumer_rows(CONSUMER, move |effects| {
            check_enabled(effects, id)?;
            let unknown = || WebhookError::UnknownDelivery { subscription: id, delivery: given };
            let found = DELIVERIES.get(effects, &(id, number))?.ok_or_else(unknown)?;
            requeue(effects, id, number, found, now)
        })?;
        subscription.add_waiting(more);
        self.notify_dispatcher(id, Class::of_request(number), now.due);
        Ok(())
    }

    /// Queues all events in a range of ledgers that match a subscription, in the order of ledgers.
    /// Stops at the limits of one request; [`Replayed::next`] then says where to continue.
    /// `is_abandoned` returns true when the client no longer waits.
    pub fn replay_ledgers(
        &self,
        owner: &Owner,
        id: u32,
        range: LedgerRange,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<Replayed, WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        if !subscription.is_enabled() {
            return Err(WebhookError::Disabled(id));
        }
        let (begun, now) = (Instant::now(), self.registry.now());
        let stored = self.store.status().ledgers_with(Needs::EVENTS).within(range);
        let mut replayed = Replayed { deliveries: 0, next: None, missing: LedgerSet::default() };
        let mut found: Vec<FoundEvent> = Vec::new();
        let mut count = 0usize;
        let ledgers = stored.ranges().iter().flat_map(|range| range.first.0..=range.last.0);
        let most = u64::from(self.registry.settings().backlog.get());
        let (mut has_passed, mut may_lack_names) = (false, false);
        for ledger in ledgers.map(LedgerSeq) {
            let has_room = subscription.waiting().saturating_add(found.len() as u64) < most;
            if count >= MAX_DELIVERIES || begun.elapsed() >= MAX_DURATION || !has_room {
                replayed.next = Some(ledger);
                break;
            }
            if is_abandoned() {
                return Err(WebhookError::Interrupted);
            }
            if !may_lack_names {
                let left = MAX_DURATION.saturating_sub(begun.elapsed());
                match self.wait_for_names(&subscription, ledger, left)? {
                    Waited::Indexed => {}
                    Waited::Stuck => may_lack_names = true,
                    Waited::NotYet if has_passed => {
                        replayed.next = Some(ledger);
                        break;
                    }
                    Waited::NotYet => return Err(WebhookError::NotNamedYet(ledger)),
                }
            }
            count += self.collect(&subscription, ledger, now, &mut found, is_abandoned)?;
            has_passed = true;
        }
        self.write(&subscription, &mut found, now)?;
        replayed.deliveries = count as u64;
        let done_up_to = replayed.next.and_then(LedgerSeq::previous).unwrap_or(range.last);
        let done = LedgerRange { first: range.first, last: done_up_to };
        replayed.missing = self.unread(done, stored)?;
        Ok(replayed)
    }

    /// Returns the ledgers of a range whose events were not all read, of those that were stored before.
    fn unread(&self, done: LedgerRange, stored: LedgerSet) -> Result<LedgerSet, WebhookError> {
        let mut unread = LedgerSet::default();
        if !done.is_empty() {
            // Ledgers that are not removed by now were complete when they were read.
            let mut complete = stored;
            complete.remove_all(&self.store.removed(Needs::EVENTS)?);
            unread.insert(done);
            unread.remove_all(&complete);
        }
        Ok(unread)
    }

    /// Waits until the matching events of a stored ledger can be named. A body is sent once, so it is not
    /// made while the index is about to process the ledger. The interfaces are read by the thread that
    /// reads all of them, not by that of the request.
    fn wait_for_names(
        &self,
        subscription: &Subscription,
        ledger: LedgerSeq,
        most: Duration,
    ) -> Result<Waited, WebhookError> {
        let (until, naming) = (Instant::now() + most, &self.registry.naming);
        let place = self.store.place_of(ledger);
        let waited = place.map_or(Waited::Indexed, |place| naming.wait(place, most));
        let Some(names) = naming.reader_of_memory()?.filter(|_| waited == Waited::Indexed) else {
            return Ok(waited);
        };
        self.store.events_within(&query(subscription, ledger), Bounds::NONE, |event| {
            if let Some(contract) = event.contract
                && subscription.filter.matches(event.contract, event.topics)
            {
                let application_order = event.application_order;
                names.tried(
                    &ContractId(*contract),
                    TransactionPosition { ledger, application_order },
                );
            }
            match Instant::now() >= until {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        let left = until.saturating_duration_since(Instant::now());
        let lacking = names.lacking().without_ledgers();
        names.finish()?;
        Ok(match naming.wait_until_read(&lacking, left) {
            true => Waited::Indexed,
            false => Waited::NotYet,
        })
    }

    /// Collects the matching events of a ledger, and writes those collected so far whenever there
    /// are many. Returns how many matched.
    fn collect(
        &self,
        subscription: &Arc<Subscription>,
        ledger: LedgerSeq,
        now: Moment,
        found: &mut Vec<FoundEvent>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<usize, WebhookError> {
        let (filter, query) = (&subscription.filter, query(subscription, ledger));
        let (network, names) = (self.store.network().id(), self.registry.naming.reader()?);
        let (mut count, mut bytes) = (0, 0);
        let walked = self.store.events_within(&query, Bounds::NONE, |event| {
            if !filter.matches(event.contract, event.topics) {
                return ControlFlow::Continue(());
            }
            if is_abandoned() {
                return ControlFlow::Break(WebhookError::Interrupted);
            }
            let body = payload::of_event(event, network, names.as_ref());
            count += 1;
            bytes += body.len();
            let number = Number::of_event(event.id);
            found.push(FoundEvent { number, ledger: event.ledger.0, body });
            if found.len() >= MAX_BATCH_DELIVERIES || bytes >= MAX_BATCH_BYTES {
                bytes = 0;
                if let Err(error) = self.write(subscription, found, now) {
                    return ControlFlow::Break(error);
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(names) = &names {
            names.finish()?;
        }
        walked.broken_off.map_or(Ok(count), Err)
    }

    /// Queues the collected events.
    fn write(
        &self,
        subscription: &Arc<Subscription>,
        found: &mut Vec<FoundEvent>,
        now: Moment,
    ) -> Result<(), WebhookError> {
        if found.is_empty() {
            return Ok(());
        }
        let (id, found) = (subscription.id, std::mem::take(found));
        let more = self.store.change_consumer_rows(CONSUMER, move |effects| {
            check_enabled(effects, id)?;
            let mut more = 0;
            for FoundEvent { number, ledger, body } in found {
                PAYLOADS.put(effects, &payload_key(now.day(), id, number), &body)?;
                more += match DELIVERIES.get(effects, &(id, number))? {
                    Some(delivery) => requeue(effects, id, number, delivery, now)?,
                    None => {
                        let delivery =
                            Delivery { due: Some(now.due), round: 1, ..Delivery::new(ledger, now) };
                        enqueue(effects, id, number, &delivery)?;
                        1
                    }
                };
            }
            Ok::<_, WebhookError>(more)
        })?;
        subscription.add_waiting(more);
        self.notify_dispatcher(id, Class::Requested, now.due);
        Ok(())
    }

    fn notify_dispatcher(&self, id: u32, class: Class, due: u64) {
        if let Some(mailbox) = self.mailbox() {
            mailbox.delivery_requested(id, class, due);
        }
    }
}

/// Finds the events of a ledger that may match a subscription.
fn query(subscription: &Subscription, ledger: LedgerSeq) -> EventQuery {
    let filter = &subscription.filter;
    let (positional, address) = (filter.topics.clone(), filter.address.clone());
    EventQuery {
        contracts: subscription.definition.contract().into_iter().collect(),
        topics: TopicFilter { positional, address, ..TopicFilter::default() },
        ..EventQuery::of_ledgers(LedgerRange::only(ledger))
    }
}

fn check_enabled(effects: &ConsumerEffects<'_>, id: u32) -> Result<(), WebhookError> {
    match Row::of(effects, id)? {
        None => Err(WebhookError::Unknown(id)),
        Some(row) if !row.state.enabled => Err(WebhookError::Disabled(id)),
        Some(_) => Ok(()),
    }
}

/// Queues a delivery again, and returns by how many the queue has grown. A delivery that has not
/// been attempted yet is queued already.
fn requeue(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    number: Number,
    before: Delivery,
    now: Moment,
) -> Result<i64, WebhookError> {
    let queued = before.queued(id, number);
    if before.state == State::Pending {
        return Ok(0);
    }
    if let Some(queued) = queued {
        QUEUE.delete(effects, &queued)?;
    }
    if let Some(finished) = before.finished(id, number) {
        FINISHED.delete(effects, &finished)?;
    }
    // The payload is kept as long as that of a delivery created today.
    let today = now.day();
    if before.day != today
        && let Some(body) = PAYLOADS.get(effects, &payload_key(before.day, id, number))?
    {
        PAYLOADS.put(effects, &payload_key(today, id, number), &body)?;
    }
    let delivery = Delivery {
        state: State::Pending,
        day: today,
        round: before.round.saturating_add(1),
        tries: 0,
        due: Some(now.due),
        ended: None,
        ended_day: None,
        reason: None,
        ..before
    };
    enqueue(effects, id, number, &delivery)?;
    Ok(i64::from(queued.is_none()))
}

fn enqueue(
    effects: &mut ConsumerEffects<'_>,
    id: u32,
    number: Number,
    delivery: &Delivery,
) -> Result<(), WebhookError> {
    if let Some(queued) = delivery.queued(id, number) {
        QUEUE.put(effects, &queued, &())?;
    }
    Ok(DELIVERIES.put(effects, &(id, number), delivery)?)
}
