//! Replays on request: sends one delivery again, or all events in a range of ledgers that match a
//! subscription, including ledgers from before it was created.

use std::sync::Arc;

use super::found::FoundEvent;
use super::manage::Webhooks;
use super::replaying::Replaying;
use super::rows::{Bodies, Class, DELIVERIES, Delivery, FINISHED, Number, PAYLOADS, QUEUE, State};
use super::subscription::{Row, Subscription};
use super::time::Moment;
use super::{CONSUMER, WebhookError};
use orrery_ledger::domain::{LedgerRange, LedgerSeq, LedgerSet, Owner};
use orrery_store::{ConsumerEffects, Needs};

/// Result of a replay of ledgers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Number of deliveries that are sent again, or for the first time.
    pub deliveries: u64,
    /// Ledger to continue from; `None` when the whole range was replayed.
    pub next: Option<LedgerSeq>,
    /// Ledgers of the replayed part whose events are not stored.
    pub missing: LedgerSet,
    /// Number of events that the subscription's condition could not be asked of, because it is not known
    /// what their contracts declare.
    pub unjudged: u64,
}

impl Webhooks {
    /// Queues a delivery again, under its own id, as if it had not been attempted.
    pub fn replay_one(&self, owner: &Owner, id: u32, delivery: &str) -> Result<(), WebhookError> {
        let subscription = self.registry.of_owner(owner, id)?;
        let number = self.number(&subscription, delivery)?;
        let now = self.registry.now();
        let given = orrery_ledger::domain::excerpt(delivery);
        let bodies = subscription.bodies();
        let more = self.store.change_consumer_rows(CONSUMER, move |effects| {
            check_enabled(effects, id)?;
            let unknown = || WebhookError::UnknownDelivery { subscription: id, delivery: given };
            let found = DELIVERIES.get(effects, &(id, number))?.ok_or_else(unknown)?;
            requeue(effects, bodies, number, found, now)
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
        self.check_project(&subscription)?;
        if !subscription.is_enabled() {
            return Err(WebhookError::Disabled(id));
        }
        let trigger = &subscription.definition.trigger;
        let needs = if trigger.is_of_transactions() { Needs::TRANSACTIONS } else { Needs::EVENTS };
        let mut stored = self.store.status().ledgers_with(needs).within(range);
        if !trigger.may_be_backfilled() {
            // Before the subscription was made, nothing was due.
            let made = LedgerSeq(subscription.state().after_ledger);
            stored.remove(LedgerRange { first: LedgerSeq(0), last: made });
        }
        let first = stored.ranges().first().map_or(range.first, |stored| stored.first);
        let mut replaying = Replaying::begin(self, &subscription, first, is_abandoned);
        let mut next = None;
        let ledgers = stored.ranges().iter().flat_map(|range| range.first.0..=range.last.0);
        for ledger in ledgers.map(LedgerSeq) {
            if !replaying.pass(ledger)? {
                next = Some(ledger);
                break;
            }
        }
        replaying.write()?;
        if let Some(ledger) = next.filter(|_| !trigger.is_event()) {
            self.stop_replay(id, ledger, &replaying.replay);
        }
        let done_up_to = next.and_then(LedgerSeq::previous).unwrap_or(range.last);
        let done = LedgerRange { first: range.first, last: done_up_to };
        let missing = self.unread(done, stored, needs)?;
        let (deliveries, unjudged) = (replaying.count as u64, replaying.unjudged);
        Ok(Replayed { deliveries, next, missing, unjudged })
    }

    /// Returns the ledgers of a range whose events were not all read, of those that were stored before.
    fn unread(
        &self,
        done: LedgerRange,
        stored: LedgerSet,
        needs: Needs,
    ) -> Result<LedgerSet, WebhookError> {
        let mut unread = LedgerSet::default();
        if !done.is_empty() {
            // Ledgers that are not removed by now were complete when they were read.
            let mut complete = stored;
            complete.remove_all(&self.store.removed(needs)?);
            unread.insert(done);
            unread.remove_all(&complete);
        }
        Ok(unread)
    }

    /// Queues the collected events.
    pub(super) fn write(
        &self,
        subscription: &Arc<Subscription>,
        found: &mut Vec<FoundEvent>,
        now: Moment,
    ) -> Result<(), WebhookError> {
        if found.is_empty() {
            return Ok(());
        }
        let (id, found) = (subscription.id, std::mem::take(found));
        let bodies = subscription.bodies();
        let more = self.store.change_consumer_rows(CONSUMER, move |effects| {
            check_enabled(effects, id)?;
            let mut more = 0;
            for FoundEvent { number, ledger, body, decimals } in found {
                PAYLOADS.put(effects, &bodies.key(now.day(), number), &body)?;
                more += match DELIVERIES.get(effects, &(id, number))? {
                    Some(delivery) => {
                        let delivery = Delivery { decimals, ..delivery };
                        requeue(effects, bodies, number, delivery, now)?
                    }
                    None => {
                        let new = Delivery::new(ledger, now);
                        let delivery = Delivery { due: Some(now.due), round: 1, decimals, ..new };
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
    bodies: Bodies,
    number: Number,
    before: Delivery,
    now: Moment,
) -> Result<i64, WebhookError> {
    let id = bodies.subscription;
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
        && let Some(body) = PAYLOADS.get(effects, &bodies.key(before.day, number))?
    {
        PAYLOADS.put(effects, &bodies.key(today, number), &body)?;
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
