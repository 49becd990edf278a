//! Decides what is sent next. The dispatcher tracks which subscriptions have something to send,
//! which servers may receive something, and when something is due. It reads a delivery when it is
//! its turn, and never waits for an attempt.

mod outcomes;
mod restart;
mod sending;
mod slot_queue;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::unsync::Cache;
use tokio::task::AbortHandle;

use slot_queue::SlotQueue;

use super::deps::DeliveryDeps;
use super::mailbox::{Load, Mailbox, Message};
use super::new_deliveries::Contents;
use super::outcome::Note;
use super::server::Server;
use super::subscription_queue::{LazyView, SubscriptionQueue};
use crate::CONSUMER;
use crate::rows::{Class, PayloadOf, QUEUE, Queued};
use crate::schedule;
use orrery_runtime::budget::Budget;
use orrery_store::{RowBounds, StoreError};

/// Maximum interval between two reads of the clock, which may be adjusted in between.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Number of unwritten outcomes at which nothing more is sent.
const MAX_UNWRITTEN: usize = 4096;
/// Maximum number of queued messages that are handled before something is sent.
const MAX_MESSAGES: usize = 1024;
/// Number of payloads that are cached for other subscriptions to the same event.
const MAX_CACHED_PAYLOADS: usize = 64;

/// Name of the thread of the dispatcher.
pub(super) const DISPATCHER: &str = "webhook-sends";

/// How long running attempts may continue after the service begins to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// What a timer is set for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A delivery of this subscription and class becomes due.
    Part(u32, Class),
    /// The pause of a server ends.
    Server(Arc<str>),
}

pub struct Dispatcher {
    deps: DeliveryDeps,
    slots: Budget,
    mailbox: Mailbox,
    notes: Sender<Note>,
    queues: HashMap<u32, SubscriptionQueue>,
    servers: HashMap<Arc<str>, Server>,
    /// Servers that may have a turn, in order.
    ready_servers: VecDeque<Arc<str>>,
    /// Owners that wait for a free slot of the budget.
    waiting_for_slot: SlotQueue,
    timers: BTreeSet<(u64, Timer)>,
    /// Tasks by the number of their job, with their subscription.
    in_flight: HashMap<u64, (AbortHandle, u32)>,
    last_job: u64,
    /// Number of tasks for each deleted subscription, and the channel that is notified when they
    /// have ended.
    pending_deletions: HashMap<u32, (usize, SyncSender<()>)>,
    unwritten: usize,
    payloads: Cache<(u16, PayloadOf), Bytes>,
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
            queues: HashMap::new(),
            servers: HashMap::new(),
            ready_servers: VecDeque::new(),
            waiting_for_slot: SlotQueue::default(),
            timers: BTreeSet::new(),
            in_flight: HashMap::new(),
            last_job: 0,
            pending_deletions: HashMap::new(),
            unwritten: 0,
            payloads: Cache::new(MAX_CACHED_PAYLOADS),
            new_contents: Contents::default(),
            stop_by: None,
        }
    }

    /// Returns the UNIX time in milliseconds by which deliveries are due.
    fn now(&self) -> u64 {
        self.deps.registry.now().due
    }

    /// Schedules what an earlier process left in the queue, and counts it.
    pub fn load_queue(&mut self) {
        let mut found = Vec::new();
        if let Err(error) = self.read_queue(&mut found) {
            self.report_unread(&error);
        }
        let mut counts: HashMap<u32, i64> = HashMap::new();
        for (first, count) in &found {
            *counts.entry(first.subscription).or_default() += count;
        }
        self.schedule_all(&found);
        for subscription in
            self.deps.registry.with(|known| known.all().cloned().collect::<Vec<_>>())
        {
            subscription.set_waiting(counts.remove(&subscription.id).unwrap_or(0));
        }
    }

    /// Adds to `found` the first delivery of each subscription and class in the queue, and their
    /// number.
    fn read_queue(&self, found: &mut Vec<(Queued, i64)>) -> Result<(), StoreError> {
        let view = self.deps.store.consumer_view(CONSUMER, RowBounds::none())?;
        QUEUE.scan_all(&view, None, |queued, ()| {
            match found.last_mut() {
                Some((last, count))
                    if (last.subscription, last.class) == (queued.subscription, queued.class) =>
                {
                    *count += 1;
                }
                _ => found.push((queued, 1)),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    fn report_unread(&self, error: &StoreError) {
        tracing::error!("the queue of webhooks cannot be read: {error}");
        let reason = "the queue cannot be read: the log says why";
        self.deps.health.down(super::outcome_writer::COMPONENT, reason);
    }

    fn schedule_all(&mut self, found: &[(Queued, i64)]) {
        for (first, _) in found {
            self.schedule(first.subscription, first.class, first.due);
        }
    }

    pub fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            self.deps.health.injected().panic_if(DISPATCHER);
            let now = self.now();
            self.fire_timers(now);
            if self.in_flight.is_empty() {
                // No job ends that would do this.
                self.requeue_for_slot();
            }
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
                    if let Some(queue) = self.queue(id) {
                        queue.add_first(&numbers);
                    }
                    self.wake(id, Class::First);
                }
                drop(counted);
            }
            Message::Requested(id, class, due) => {
                if let Some(queue) = self.queue(id) {
                    queue.add(class, due);
                    queue.reread_first();
                }
                self.schedule(id, class, due);
            }
            Message::Changed(id) => Class::ALL.into_iter().for_each(|class| self.wake(id, class)),
            Message::Forget(id, done) => self.forget(id, done),
            Message::Progress(progress) => self.progressed(*progress),
            Message::Ended(ended) => self.ended(*ended),
            Message::Written(written) => {
                self.count_written(&written);
                written.iter().for_each(|it| self.written(it));
            }
            Message::Tick => {}
            Message::ReportLoad(reply) => {
                let now = self.now();
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

    /// Returns the queue of a subscription; `None` when it is unknown or deleted.
    fn queue(&mut self, id: u32) -> Option<&mut SubscriptionQueue> {
        if !self.queues.contains_key(&id) {
            let subscription = self.deps.registry.get(id).filter(|it| !it.is_deleted())?;
            let queue = SubscriptionQueue::new(subscription);
            self.servers.entry(Arc::clone(&queue.server)).or_default().subscribed(queue.owner);
            self.queues.insert(id, queue);
        }
        self.queues.get_mut(&id)
    }

    /// Schedules a class of a subscription that has a delivery due at `due`.
    fn schedule(&mut self, id: u32, class: Class, due: u64) {
        if schedule::is_due(due, self.now()) {
            self.wake(id, class)
        } else {
            self.set_timer(id, class, due)
        }
    }

    /// Sets a timer for a subscription that has nothing to send before `due`. The clock is not read
    /// again here: it has moved since the caller's decision, and waking the queue at once could
    /// repeat that decision endlessly.
    fn set_timer(&mut self, id: u32, class: Class, due: u64) {
        let Some(part) = self.queue(id).map(|queue| queue.part(class)) else { return };
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
        let Some(queue) = self.queue(id) else { return };
        let (server, owner) = (Arc::clone(&queue.server), queue.owner);
        let part = queue.part(class);
        if !std::mem::replace(&mut part.is_waiting, true) {
            self.servers.entry(Arc::clone(&server)).or_default().push(owner, (id, class));
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
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.part(class).timer = None;
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
}
