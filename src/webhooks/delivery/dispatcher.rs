//! Decides what is sent next. The dispatcher tracks which subscriptions have something to send,
//! which servers may receive something, and when something is due. It reads a delivery when it is
//! its turn, and never waits for an attempt.

mod outcomes;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::unsync::Cache;
use tokio::task::AbortHandle;

use super::attempt::{self, Job};
use super::created::{Content, Contents};
use super::lane::{Lane, LazyView, Next};
use super::notes::{Note, Outcome};
use super::server::{Server, Turn, Unit};
use super::{DeliveryDeps, Load, Mailbox, Message, STOP_TIMEOUT};
use crate::budget::{Budget, Holder, Share};
use crate::store::{ConsumerView, StoreError};
use crate::webhooks::rows::{
    Class, DELIVERIES, Delivery, PAYLOADS, QUEUE, Queued, delivery_key, payload_key,
};
use crate::webhooks::subscription::Subscription;
use crate::webhooks::{CONSUMER, Secret};

/// Maximum interval between two reads of the clock, which may be adjusted in between.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a failed store read is retried, in milliseconds.
const RETRY_DELAY_MS: u64 = 1000;
/// Number of unwritten outcomes at which nothing more is sent.
const MAX_UNWRITTEN: usize = 4096;
/// Maximum number of queued messages that are handled before something is sent.
const MAX_MESSAGES: usize = 1024;
/// Number of payloads that are cached for other subscriptions to the same event.
const MAX_CACHED_PAYLOADS: usize = 64;

/// What a timer is set for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A delivery of this subscription and class becomes due.
    Part(u32, Class),
    /// The pause of a server ends.
    Server(Arc<str>),
}

/// Result of trying to send.
enum SendOutcome {
    /// A delivery was sent or finished, or there was nothing to send.
    Done,
    /// No slot of the attempt budget is free.
    NoSlot,
}

pub struct Dispatcher {
    deps: DeliveryDeps,
    slots: Budget,
    mailbox: Mailbox,
    notes: Sender<Note>,
    lanes: HashMap<u32, Lane>,
    servers: HashMap<Arc<str>, Server>,
    /// Servers that may have a turn, in order.
    ready_servers: VecDeque<Arc<str>>,
    /// Servers that wait for a free slot of the budget.
    waiting_for_slot: VecDeque<Arc<str>>,
    timers: BTreeSet<(u64, Timer)>,
    in_flight: HashMap<u64, (AbortHandle, u32)>,
    last_attempt: u64,
    /// Number of attempts in progress for each deleted subscription, and the channel that is
    /// notified when they have ended.
    pending_deletions: HashMap<u32, (usize, SyncSender<()>)>,
    unwritten: usize,
    payloads: Cache<Vec<u8>, Bytes>,
    new_contents: Contents,
    stop_by: Option<Instant>,
}

impl Dispatcher {
    pub fn new(deps: DeliveryDeps, slots: Budget, mailbox: Mailbox, notes: Sender<Note>) -> Self {
        Self {
            deps,
            slots,
            mailbox,
            notes,
            lanes: HashMap::new(),
            servers: HashMap::new(),
            ready_servers: VecDeque::new(),
            waiting_for_slot: VecDeque::new(),
            timers: BTreeSet::new(),
            in_flight: HashMap::new(),
            last_attempt: 0,
            pending_deletions: HashMap::new(),
            unwritten: 0,
            payloads: Cache::new(MAX_CACHED_PAYLOADS),
            new_contents: Contents::default(),
            stop_by: None,
        }
    }

    /// Reads what an earlier process left in the queue.
    pub fn load_queue(&mut self) {
        let mut found: Vec<(Queued, i64)> = Vec::new();
        let scanned = self.deps.store.consumer_view(CONSUMER).and_then(|view| {
            view.scan(QUEUE, |key, _| {
                let Some(queued) = Queued::read(key) else { return true };
                match found.last_mut() {
                    Some((last, count))
                        if (last.subscription, last.class)
                            == (queued.subscription, queued.class) =>
                    {
                        *count += 1;
                    }
                    _ => found.push((queued, 1)),
                }
                true
            })
        });
        if let Err(error) = scanned {
            tracing::error!("the queue of webhooks cannot be read: {error}");
            self.deps
                .health
                .down(super::notes::COMPONENT, "the queue cannot be read: the log says why");
        }
        let mut counts: HashMap<u32, i64> = HashMap::new();
        for (first, count) in found {
            *counts.entry(first.subscription).or_default() += count;
            self.schedule(first.subscription, first.class, first.due);
        }
        for subscription in
            self.deps.registry.with(|known| known.all().cloned().collect::<Vec<_>>())
        {
            subscription.set_waiting(counts.remove(&subscription.id).unwrap_or(0));
        }
    }

    pub fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            let now = (self.deps.clock)();
            self.fire_timers(now);
            self.send_all(now);
            if let Some(stop_by) = self.stop_by {
                if self.in_flight.is_empty() {
                    return;
                }
                if Instant::now() >= stop_by {
                    self.in_flight.values().for_each(|(task, _)| task.abort());
                }
            }
            let next = self.timers.first().map(|(at, _)| at.saturating_sub(now));
            let wait = next.map_or(CLOCK_CHECK_INTERVAL, |ms| {
                CLOCK_CHECK_INTERVAL.min(Duration::from_millis(ms))
            });
            match messages.recv_timeout(wait) {
                Ok(message) => self.handle_message(message),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            for message in messages.try_iter().take(MAX_MESSAGES) {
                self.handle_message(message);
            }
        }
    }

    fn handle_message(&mut self, message: Message) {
        match message {
            Message::Created(created, counted) => {
                self.new_contents.extend(created.contents);
                for (id, numbers) in created.by_subscription {
                    if let Some(lane) = self.lane(id) {
                        lane.add_first(&numbers);
                    }
                    self.wake(id, Class::First);
                }
                drop(counted);
            }
            Message::Requested(id, due) => {
                if let Some(lane) = self.lane(id) {
                    lane.add(Class::Requested, due);
                    lane.reread_first();
                }
                self.schedule(id, Class::Requested, due);
            }
            Message::Changed(id) => Class::ALL.into_iter().for_each(|class| self.wake(id, class)),
            Message::Forget(id, done) => self.forget(id, done),
            Message::Ended(ended) => self.ended(*ended),
            Message::Written(written) => written.into_iter().for_each(|it| self.written(&it)),
            Message::Tick => {}
            Message::ReportLoad(reply) => {
                let now = (self.deps.clock)();
                // Whatever can be sent is sent first, so that the reply describes what remains.
                self.fire_timers(now);
                self.send_all(now);
                let next = self.timers.first().map(|(at, _)| *at);
                let load =
                    Load { in_flight: self.in_flight.len(), unwritten: self.unwritten, next };
                // The caller may have given up.
                let _ = reply.send(load);
            }
            Message::Stop => self.stop_by = Some(Instant::now() + STOP_TIMEOUT),
        }
    }

    /// Returns the lane of a subscription; `None` when it is unknown or deleted.
    fn lane(&mut self, id: u32) -> Option<&mut Lane> {
        if !self.lanes.contains_key(&id) {
            let subscription = self.deps.registry.get(id).filter(|it| !it.is_deleted())?;
            self.lanes.insert(id, Lane::new(subscription));
        }
        self.lanes.get_mut(&id)
    }

    /// Schedules a class of a subscription that has a delivery due at `due`.
    fn schedule(&mut self, id: u32, class: Class, due: u64) {
        match due <= (self.deps.clock)() {
            true => self.wake(id, class),
            false => self.set_timer(id, class, due),
        }
    }

    /// Sets a timer for a subscription that has nothing to send before `due`. The clock is not read
    /// again here: it has moved since the caller's decision, and waking the lane at once could
    /// repeat that decision endlessly.
    fn set_timer(&mut self, id: u32, class: Class, due: u64) {
        let Some(part) = self.lane(id).map(|lane| lane.part(class)) else { return };
        if part.timer.is_some_and(|timer| timer <= due) {
            return;
        }
        if let Some(later) = part.timer.replace(due) {
            self.timers.remove(&(later, Timer::Part(id, class)));
        }
        self.timers.insert((due, Timer::Part(id, class)));
    }

    /// Queues a class of a subscription at its server, because it may have something to send.
    fn wake(&mut self, id: u32, class: Class) {
        let Some(lane) = self.lane(id) else { return };
        let server = Arc::clone(&lane.server);
        let part = lane.part(class);
        if !std::mem::replace(&mut part.is_waiting, true) {
            self.servers.entry(Arc::clone(&server)).or_default().push((id, class));
            self.queue_server(server);
        }
    }

    /// Queues a server for a turn, unless it is queued already.
    fn queue_server(&mut self, server: Arc<str>) {
        if let Some(state) = self.servers.get_mut(&server)
            && !std::mem::replace(&mut state.is_queued, true)
        {
            self.ready_servers.push_back(server);
        }
    }

    fn fire_timers(&mut self, now: u64) {
        while let Some((at, _)) = self.timers.first()
            && *at <= now
            && let Some((_, timer)) = self.timers.pop_first()
        {
            match timer {
                Timer::Part(id, class) => {
                    if let Some(lane) = self.lanes.get_mut(&id) {
                        lane.part(class).timer = None;
                        self.wake(id, class);
                    }
                }
                Timer::Server(server) => self.queue_server(server),
            }
        }
    }

    fn send_all(&mut self, now: u64) {
        let store = Arc::clone(&self.deps.store);
        // Opened after the messages were received: everything that they report was written before.
        let mut view = LazyView::new(&store);
        while self.stop_by.is_none()
            && self.unwritten < MAX_UNWRITTEN
            && let Some(name) = self.ready_servers.pop_front()
        {
            self.serve(name, now, &mut view);
        }
    }

    /// Gives a server its turn.
    fn serve(&mut self, name: Arc<str>, now: u64, view: &mut LazyView<'_>) {
        let most = self.deps.registry.settings().per_server;
        let Some(server) = self.servers.get_mut(&name) else { return };
        server.is_queued = false;
        match server.take(now, most) {
            Turn::Later if server.is_idle() => drop(self.servers.remove(&name)),
            Turn::Later => {}
            Turn::NotBefore(at) => drop(self.timers.insert((at, Timer::Server(name)))),
            Turn::Now(unit) => match self.send(unit, now, view) {
                SendOutcome::Done => self.queue_server(name),
                SendOutcome::NoSlot => {
                    if let Some(server) = self.servers.get_mut(&name) {
                        server.push(unit);
                        // It is in `waiting_for_slot` instead of `ready_servers` until a slot is free.
                        server.is_queued = true;
                        self.waiting_for_slot.push_back(name);
                    }
                }
            },
        }
    }

    /// Sends the next delivery of a subscription and class.
    fn send(&mut self, unit: Unit, now: u64, view: &mut LazyView<'_>) -> SendOutcome {
        let (id, class) = unit;
        let Some(lane) = self.lanes.get_mut(&id) else { return SendOutcome::Done };
        lane.part(class).is_waiting = false;
        if lane.subscription.is_deleted() {
            return SendOutcome::Done;
        }
        self.send_next(unit, now, view).unwrap_or_else(|error| {
            tracing::error!(subscription = id, "the next delivery cannot be read: {error}");
            self.schedule(id, class, now.saturating_add(RETRY_DELAY_MS));
            SendOutcome::Done
        })
    }

    fn send_next(
        &mut self,
        (id, class): Unit,
        now: u64,
        view: &mut LazyView<'_>,
    ) -> Result<SendOutcome, StoreError> {
        let Some(lane) = self.lanes.get_mut(&id) else { return Ok(SendOutcome::Done) };
        let subscription = Arc::clone(&lane.subscription);
        let ignore_limits = !subscription.is_enabled();
        let queued = match lane.next(class, now, ignore_limits, view)? {
            Next::Nothing => return Ok(SendOutcome::Done),
            Next::At(at) => {
                self.set_timer(id, class, at);
                return Ok(SendOutcome::Done);
            }
            Next::Now(queued) => queued,
        };
        let sent = self.send_queued(queued, &subscription, now, view);
        if sent.is_err()
            && let Some(lane) = self.lanes.get_mut(&id)
        {
            lane.put_back(queued);
        }
        sent
    }

    /// Sends a delivery that was taken from its lane.
    fn send_queued(
        &mut self,
        queued: Queued,
        subscription: &Subscription,
        now: u64,
        view: &mut LazyView<'_>,
    ) -> Result<SendOutcome, StoreError> {
        let (id, class) = (queued.subscription, queued.class);
        // A delivery that waits for its first attempt is as it was created.
        let new = match class {
            Class::First => self.new_contents.get(queued.number),
            _ => None,
        };
        let (delivery, body) = match new {
            Some(Content { delivery, body }) => (Some(delivery), Some(body)),
            None => {
                let row = view.get()?.get(DELIVERIES, &delivery_key(id, queued.number))?;
                (row.and_then(|row| Delivery::decode(&row)), None)
            }
        };
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
            return Ok(SendOutcome::Done);
        };
        let abandoned = |reason: &str, disables| Note {
            queued,
            round: delivery.round,
            attempt: None,
            outcome: Outcome::Abandoned(reason.to_owned(), disables),
            ended: now,
        };
        if !subscription.is_enabled() && queued.number.test().is_none() {
            self.note(abandoned("the subscription was disabled before it was sent", false));
            self.wake(id, class);
            return Ok(SendOutcome::Done);
        }
        let Some(secret) = subscription.secret.clone() else {
            let reason = "its secret cannot be read any more: delete the subscription, and create \
                          it again";
            self.note(abandoned(reason, true));
            return Ok(SendOutcome::Done);
        };
        let holder = Holder::of(&("webhooks", &subscription.definition.owner));
        let Ok(slot) = self.slots.try_take(holder, 1) else {
            if let Some(lane) = self.lanes.get_mut(&id) {
                lane.put_back(queued);
                lane.part(class).is_waiting = true;
            }
            return Ok(SendOutcome::NoSlot);
        };
        let body = match body {
            Some(body) => Some(body),
            None => self.payload(&delivery, queued, view.get()?)?,
        };
        let Some(body) = body else {
            self.note(abandoned("the events to send are no longer stored", false));
            self.wake(id, class);
            return Ok(SendOutcome::Done);
        };
        self.begin_attempt(queued, delivery, secret, body, slot, now);
        if matches!(class, Class::Soon | Class::Later) {
            // More deliveries of this class may be due.
            self.wake(id, class);
        }
        Ok(SendOutcome::Done)
    }

    /// Returns the body of a delivery; `None` when it is no longer stored.
    fn payload(
        &mut self,
        delivery: &Delivery,
        queued: Queued,
        view: &ConsumerView<'_>,
    ) -> Result<Option<Bytes>, StoreError> {
        let key = payload_key(delivery.day, queued.subscription, queued.number);
        if let Some(body) = self.payloads.get(&key) {
            return Ok(Some(body.clone()));
        }
        let body = view.get(PAYLOADS, &key)?.map(Bytes::from);
        if let Some(body) = &body {
            self.payloads.insert(key, body.clone());
        }
        Ok(body)
    }

    fn begin_attempt(
        &mut self,
        queued: Queued,
        delivery: Delivery,
        secret: Secret,
        body: Bytes,
        slot: Share,
        now: u64,
    ) {
        let Some(lane) = self.lanes.get_mut(&queued.subscription) else { return };
        lane.attempt_started(queued.class);
        if let Some(server) = self.servers.get_mut(&lane.server) {
            server.attempt_started(queued.class);
        }
        self.last_attempt += 1;
        let attempt_id = self.last_attempt;
        let server = Arc::clone(&lane.server);
        let job = Job { attempt_id, queued, delivery, server, began: now, slot };
        let task = attempt::make(
            job,
            Arc::clone(&lane.subscription),
            secret,
            body,
            Arc::clone(&self.deps.post),
            Arc::clone(&self.deps.clock),
            self.mailbox.messages.clone(),
        );
        let task = self.deps.runtime.handle().spawn(task);
        self.in_flight.insert(attempt_id, (task.abort_handle(), queued.subscription));
        self.deps.metrics.set_webhooks_in_flight(self.in_flight.len());
    }
}
