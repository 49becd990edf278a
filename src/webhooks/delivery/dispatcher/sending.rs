//! Gives servers their turns: reads the next deliveries of a subscription, and starts a task that
//! sends them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::super::attempt;
use super::super::job::{Job, Note, Outcome, Ready};
use super::super::new_deliveries::Content;
use super::super::server::{Turn, Unit};
use super::super::subscription_queue::{LazyView, Next};
use super::Dispatcher;
use super::timers::Timer;
use crate::rows::{Class, DELIVERIES, Delivery, PAYLOADS, PayloadOf, Queued};
use crate::subscription::{Subscription, VOID_ENDPOINT};
use orrery_runtime::budget::Share;
use orrery_store::{ConsumerView, StoreError};

/// Delay before a failed store read is retried, in milliseconds.
const RETRY_DELAY_MS: u64 = 1000;
/// Maximum number of deliveries in a job, for the classes that are sent one after the other.
const MAX_DELIVERIES_PER_JOB: usize = 32;
/// Size of the bodies in a job, in bytes, from which no further delivery is added.
const MAX_BYTES_PER_JOB: usize = 64 << 10;

/// Result of trying to send.
enum SendOutcome {
    /// Deliveries were sent or finished, or there was nothing to send.
    Done,
    /// No slot of the attempt budget is free.
    NoSlot,
}

impl Dispatcher {
    /// Gives a server its turn.
    pub(super) fn serve(&mut self, name: Arc<str>, now: u64, view: &mut LazyView<'_>) {
        let most = self.deps.registry.settings().attempts_per_server.get() as usize;
        let Some(server) = self.servers.get_mut(&name) else { return };
        server.is_queued = false;
        match server.take(now, most) {
            Turn::Later if server.is_idle() => drop(self.servers.remove(&name)),
            Turn::Later => {}
            Turn::NotBefore(at) => self.timers.set(at, Timer::Server(name)),
            Turn::Now(owner, unit) => {
                if matches!(self.send(unit, now, view), SendOutcome::NoSlot)
                    && let Some(server) = self.servers.get_mut(&name)
                {
                    server.put_back(owner, unit);
                    self.waiting_for_slot.push(owner, Arc::clone(&name));
                }
                self.queue_server(name);
            }
        }
    }

    /// Sends the next deliveries of a subscription and class.
    fn send(&mut self, unit: Unit, now: u64, view: &mut LazyView<'_>) -> SendOutcome {
        let (id, class) = unit;
        let Some(queue) = self.queues.get_mut(&id) else { return SendOutcome::Done };
        queue.part(class).is_waiting = false;
        if queue.subscription.is_deleted() {
            return SendOutcome::Done;
        }
        let subscription = Arc::clone(&queue.subscription);
        self.send_next(&subscription, class, now, view).unwrap_or_else(|error| {
            tracing::error!(subscription = id, "the next delivery cannot be read: {error}");
            self.schedule(id, class, now.saturating_add(RETRY_DELAY_MS));
            SendOutcome::Done
        })
    }

    fn send_next(
        &mut self,
        subscription: &Arc<Subscription>,
        class: Class,
        now: u64,
        view: &mut LazyView<'_>,
    ) -> Result<SendOutcome, StoreError> {
        let (id, mut slot, mut deliveries, mut bytes) = (subscription.id, None, VecDeque::new(), 0);
        let read = loop {
            if !has_room(class, subscription.chat().is_some(), deliveries.len(), bytes) {
                break Ok(());
            }
            let queued = match self.take_next(subscription, class, now, view) {
                Ok(Some(queued)) => queued,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let take = || self.queues.get(&id).and_then(|it| self.slots.try_take(it.owner, 1).ok());
            slot = slot.or_else(take);
            if slot.is_none() {
                self.put_back(queued);
                if let Some(queue) = self.queues.get_mut(&id) {
                    queue.part(class).is_waiting = true;
                }
                return Ok(SendOutcome::NoSlot);
            }
            match self.prepare(queued, subscription, now, view) {
                Ok(Some(ready)) => {
                    bytes += ready.body.len();
                    deliveries.push_back(ready);
                }
                Ok(None) => break Ok(()),
                Err(error) => {
                    self.put_back(queued);
                    break Err(error);
                }
            }
        };
        match slot {
            // After an error, what was read before it is sent; the next turn reads again.
            Some(slot) if !deliveries.is_empty() => {
                if let Some((endpoint, rate)) = subscription.chat() {
                    self.paces.sent(endpoint, rate, now);
                }
                self.begin_job(subscription, class, deliveries, slot);
            }
            _ => read?,
        }
        Ok(SendOutcome::Done)
    }

    /// Takes the next delivery from a queue. Sets a timer if it is not due yet, or if its chat takes none
    /// yet.
    fn take_next(
        &mut self,
        subscription: &Subscription,
        class: Class,
        now: u64,
        view: &mut LazyView<'_>,
    ) -> Result<Option<Queued>, StoreError> {
        let Some(queue) = self.queues.get_mut(&subscription.id) else { return Ok(None) };
        let ignore_limits = !subscription.is_enabled();
        Ok(match queue.next(class, now, ignore_limits, view)? {
            Next::Now(queued) => match self.must_wait(subscription, class, now) {
                None => Some(queued),
                Some(at) => {
                    self.put_back(queued);
                    self.set_timer(subscription.id, class, at);
                    None
                }
            },
            Next::Nothing => None,
            Next::At(at) => {
                self.set_timer(subscription.id, class, at);
                None
            }
        })
    }

    /// Reads a delivery that was taken from its queue. Returns `None` when it cannot be sent, which
    /// is noted as its outcome.
    fn prepare(
        &mut self,
        queued: Queued,
        subscription: &Subscription,
        now: u64,
        view: &mut LazyView<'_>,
    ) -> Result<Option<Ready>, StoreError> {
        let (id, class) = (queued.subscription, queued.class);
        let (delivery, body) = self.read(queued, subscription, view)?;
        let claimed = delivery.as_ref().and_then(|it| it.queued(id, queued.number));
        let Some(delivery) = delivery.filter(|_| claimed == Some(queued)) else {
            self.note(Note {
                queued,
                round: 0,
                attempt: None,
                outcome: Outcome::Stray,
                ended: now,
            });
            self.wake(id, class);
            return Ok(None);
        };
        let (reason, disables) = match obstacle(queued, subscription) {
            Some(obstacle) => obstacle,
            None => {
                let key = subscription.bodies().key(delivery.day, queued.number);
                let body = match body {
                    Some(body) => Some(body),
                    None => self.payload(key, view.get()?)?,
                };
                match body {
                    Some(body) => return Ok(Some(Ready { queued, delivery, body })),
                    None => ("the events to send are no longer stored", false),
                }
            }
        };
        self.note(Note {
            queued,
            round: delivery.round,
            attempt: None,
            outcome: Outcome::Abandoned(reason.to_owned(), disables),
            ended: now,
        });
        if !disables {
            self.wake(id, class);
        }
        Ok(None)
    }

    /// Puts a delivery that was taken back into its queue.
    pub(super) fn put_back(&mut self, queued: Queued) {
        if let Some(queue) = self.queues.get_mut(&queued.subscription) {
            queue.put_back(queued);
        }
    }

    /// Reads a delivery, if it exists, and its body, if that is in memory.
    fn read(
        &self,
        queued: Queued,
        subscription: &Subscription,
        view: &mut LazyView<'_>,
    ) -> Result<(Option<Delivery>, Option<Bytes>), StoreError> {
        let (id, class) = (queued.subscription, queued.class);
        // A delivery that waits for its first attempt is as it was created.
        let new = match class {
            Class::First if !subscription.bodies().are_own => self.new_contents.get(queued.number),
            _ => None,
        };
        Ok(match new {
            // What all subscriptions share lacks the decimals of one.
            Some(Content { body, .. }) if subscription.has_units() => {
                (DELIVERIES.get(view.get()?, &(id, queued.number))?, Some(body))
            }
            Some(Content { delivery, body }) => (Some(delivery), Some(body)),
            None => (DELIVERIES.get(view.get()?, &(id, queued.number))?, None),
        })
    }

    /// Returns the body of a delivery; `None` when it is no longer stored.
    fn payload(
        &mut self,
        key: (u16, PayloadOf),
        view: &ConsumerView<'_>,
    ) -> Result<Option<Bytes>, StoreError> {
        if let Some(body) = self.payloads.get(&key) {
            return Ok(Some(body.clone()));
        }
        let body = PAYLOADS.get(view, &key)?.map(Bytes::from);
        if let Some(body) = &body {
            self.payloads.insert(key, body.clone());
        }
        Ok(body)
    }

    /// Starts a task that sends deliveries.
    fn begin_job(
        &mut self,
        subscription: &Arc<Subscription>,
        class: Class,
        deliveries: VecDeque<Ready>,
        slot: Share,
    ) {
        let id = subscription.id;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.job_started(class);
        queue.part(class).place = None;
        let (server, owner) = (Arc::clone(&queue.server), queue.owner);
        if let Some(server) = self.servers.get_mut(&server) {
            server.job_started(owner, class);
        }
        let number = self.tasks.number();
        let subscription = Arc::clone(subscription);
        let job = Job { id: number, class, subscription, server, owner, deliveries, slot };
        let task = attempt::make(
            job,
            Arc::clone(&self.deps.post),
            Arc::clone(&self.deps.clock),
            self.deps.registry.public_url(),
            self.mailbox.messages.clone(),
        );
        let task = self.deps.runtime.handle().spawn(task);
        self.tasks.add(number, task.abort_handle(), id);
        self.deps.metrics.set_webhooks_in_flight(self.tasks.count());
        if matches!(class, Class::Soon | Class::Later) {
            // More deliveries of this class may be due.
            self.wake(id, class);
        }
    }
}

/// Returns why a subscription sends a delivery no more, if it does not, and whether it is disabled for that.
fn obstacle(queued: Queued, subscription: &Subscription) -> Option<(&'static str, bool)> {
    if !subscription.is_enabled() && queued.number.test().is_none() {
        return Some(("the subscription was disabled before it was sent", false));
    }
    if subscription.endpoint.is_none() {
        return Some((VOID_ENDPOINT, true));
    }
    let is_lost = subscription.secrets().is_none();
    is_lost
        .then_some(("its secret cannot be read any more: give it a new one, and enable it", true))
}

/// Whether a job takes another delivery in addition to `count`, whose bodies have `bytes` bytes in
/// all.
fn has_room(class: Class, is_chat: bool, count: usize, bytes: usize) -> bool {
    let most = match class {
        // Each message waits for its place.
        _ if is_chat => 1,
        Class::First | Class::Requested => MAX_DELIVERIES_PER_JOB,
        // Retries do not wait for each other.
        Class::Soon | Class::Later => 1,
    };
    count < most && bytes < MAX_BYTES_PER_JOB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_limited_in_deliveries_and_bytes() {
        for class in Class::ALL {
            for body in [0, 1, 500, 2 << 10, 5000, 40 << 10, 64 << 10, 1 << 20] {
                let (mut count, mut bytes) = (0, 0);
                while has_room(class, false, count, bytes) {
                    count += 1;
                    bytes += body;
                }
                let most = if matches!(class, Class::First | Class::Requested) { 32 } else { 1 };
                assert!((1..=most).contains(&count), "{count} of {body} bytes");
                assert!(bytes < (64 << 10) + body.max(1), "{bytes} bytes in bodies of {body}");
                assert!(count == most || bytes >= 64 << 10, "there was room");
                assert!(has_room(class, true, 0, 0) && !has_room(class, true, 1, body));
            }
        }
    }
}
