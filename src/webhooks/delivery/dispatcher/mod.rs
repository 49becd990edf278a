//! Decides what is sent next. The dispatcher tracks which subscriptions have something to send,
//! which servers may receive something, and when something is due. It reads a delivery when it is
//! its turn, and never waits for an attempt. What comes of attempts is in `outcomes`; how it begins, and begins
//! anew after a panic, in `restart`.

mod chats;
mod outcomes;
mod restart;
mod sending;
mod slot_queue;
mod tasks;
mod timers;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::unsync::Cache;
use rand::RngCore;

use slot_queue::SlotQueue;
use tasks::Tasks;
use timers::{Timer, Timers};

use super::attempt::Post;
use super::job::Note;
use super::mailbox::{Load, Mailbox, Message};
use super::new_deliveries::Contents;
use super::pace::Paces;
use super::server::Server;
use super::subscription_queue::{LazyView, SubscriptionQueue};
use crate::Clock;
use crate::registry::Registry;
use crate::rows::{Class, PayloadOf};
use crate::schedule;
use orrery_runtime::budget::Budget;
use orrery_runtime::observe::health::Health;
use orrery_runtime::observe::metrics::Metrics;
use orrery_runtime::priority::PromptRuntime;
use orrery_store::Store;

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

/// Maximum number of owners in `waiting_for_slot` that get another turn when a slot becomes free.
const MAX_REQUEUED_OWNERS: usize = 16;
/// Number of servers without a subscription whose state may be kept.
const MAX_UNUSED_SERVERS: usize = 1000;

/// Dependencies of the delivery threads.
pub struct DeliveryDeps {
    /// Store that holds the deliveries.
    pub store: Arc<Store>,
    /// Subscriptions that the deliveries belong to.
    pub registry: Arc<Registry>,
    /// Makes an attempt.
    pub post: Post,
    /// Current UNIX time in milliseconds, which attempts are signed with.
    pub clock: Clock,
    /// Runtime on which attempts run.
    pub runtime: PromptRuntime,
    /// Set to down when the queue cannot be read or outcomes cannot be written.
    pub health: Arc<Health>,
    /// Receives outcomes and the number of attempts in progress.
    pub metrics: Arc<Metrics>,
    /// Random source of the retry jitter.
    pub rng: Box<dyn RngCore + Send>,
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
    timers: Timers,
    paces: Paces,
    tasks: Tasks,
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
            timers: Timers::default(),
            paces: Paces::default(),
            tasks: Tasks::default(),
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

    pub fn run(&mut self, messages: &Receiver<Message>) {
        loop {
            self.deps.health.injected().panic_if(DISPATCHER);
            let now = self.now();
            self.fire_timers(now);
            if self.tasks.count() == 0 {
                // No job ends that would do this.
                self.requeue_for_slot();
            }
            self.send_all(now);
            if let Some(stop_by) = self.stop_by {
                if self.tasks.count() == 0 {
                    return;
                }
                if Instant::now() >= stop_by {
                    self.tasks.abort_all();
                }
            }
            let next = self.timers.next().map(|at| at.saturating_sub(now));
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
                    self.give_up_oldest(id);
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
                let ended = written.iter().filter(|it| it.is_finished);
                let ended: BTreeSet<u32> = ended.map(|it| it.queued.subscription).collect();
                ended.into_iter().for_each(|id| self.give_up_oldest(id));
            }
            Message::Tick => {}
            Message::ReportLoad(reply) => {
                let now = self.now();
                // Whatever can be sent is sent first, so that the reply describes what remains.
                self.fire_timers(now);
                self.send_all(now);
                let (in_flight, next) = (self.tasks.count(), self.timers.next());
                let load = Load { in_flight, unwritten: self.unwritten, next };
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
            self.timers.remove(later, Timer::Part(id, class));
        }
        self.timers.set(due, Timer::Part(id, class));
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
        while let Some(timer) = self.timers.take_due(now) {
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

    /// Gives owners that wait for a slot another turn, because one is free: each of them, because the
    /// slot may be one that only some may have.
    fn requeue_for_slot(&mut self) {
        let most = self.waiting_for_slot.owners().clamp(1, MAX_REQUEUED_OWNERS);
        for _ in 0..most {
            let Some((owner, name)) = self.waiting_for_slot.pop() else { return };
            if let Some(server) = self.servers.get_mut(&name) {
                server.retry(owner);
            }
            self.queue_server(name);
        }
    }

    /// Aborts all attempts of a subscription, and notifies `done` when they have ended.
    fn forget(&mut self, id: u32, done: SyncSender<()>) {
        if let Some(queue) = self.queues.remove(&id)
            && let Some(server) = self.servers.get_mut(&queue.server)
        {
            server.unsubscribed(queue.owner);
        }
        // The state kept of failed servers must not outgrow the subscriptions.
        if self.servers.len() > 2 * self.queues.len() + MAX_UNUSED_SERVERS {
            self.servers.retain(|_, server| !server.is_unused());
        }
        self.tasks.abort_of(id, done);
    }
}
