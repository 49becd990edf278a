//! Decides what is sent next. The dispatcher tracks which subscriptions have something to send,
//! which servers may receive something, and when something is due. It reads a delivery when it is
//! its turn, and never waits for an attempt. Handles attempts that have ended, outcomes that were written,
//! and subscriptions that were deleted; and begins anew after a panic.

mod chats;
mod sending;
mod slot_queue;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quick_cache::unsync::Cache;
use rand::{Rng, RngCore};
use tokio::task::AbortHandle;

use slot_queue::SlotQueue;

use super::attempt::Post;
use super::job::{Attempted, Ended, Job, Note, Outcome, Progress, Written};
use super::mailbox::{Load, Mailbox, Message};
use super::new_deliveries::Contents;
use super::outcome_writer::COMPONENT;
use super::pace::Paces;
use super::server::Server;
use super::subscription_queue::{LazyView, SubscriptionQueue};
use crate::registry::Registry;
use crate::rows::{Attempt, Class, Delivery, PayloadOf, QUEUE, Queued};
use crate::schedule::{self, is_prompt, retry_delay};
use crate::target::AttemptResult;
use crate::{CONSUMER, Clock};
use orrery_runtime::budget::{Budget, Holder};
use orrery_runtime::observe::health::Health;
use orrery_runtime::observe::metrics::Metrics;
use orrery_runtime::priority::PromptRuntime;
use orrery_store::{RowBounds, Store, StoreError};

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
/// Response time from which an unsuccessful response counts as no answer: it says as little about
/// the server.
const SLOW_RESPONSE: Duration = Duration::from_secs(5);
/// Number of servers without a subscription whose state may be kept.
const MAX_UNUSED_SERVERS: usize = 1000;
/// Interval at which the end of the earlier attempts is checked.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Delay before the queue is read again after a failure.
const REREAD_DELAY: Duration = Duration::from_secs(1);

/// What a timer is set for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A delivery of this subscription and class becomes due.
    Part(u32, Class),
    /// The pause of a server ends.
    Server(Arc<str>),
}

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
    timers: BTreeSet<(u64, Timer)>,
    paces: Paces,
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
            paces: Paces::default(),
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
        self.deps.health.down(COMPONENT, reason);
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

    fn ended(&mut self, Ended { job, attempts }: Ended) {
        let Job { id: job_id, class, subscription, server: name, owner, deliveries, slot } = job;
        drop(slot);
        self.in_flight.remove(&job_id);
        self.deps.metrics.set_webhooks_in_flight(self.in_flight.len());
        let now = self.now();
        if let Some(server) = self.servers.get_mut(&name) {
            server.job_ended(owner, class);
        }
        self.record_answers(&name, owner, &attempts, now);
        self.queue_server(name);
        self.requeue_for_slot();
        let id = subscription.id;
        if let Some((running, _)) = self.pending_deletions.get_mut(&id) {
            *running -= 1;
            if *running == 0
                && let Some((_, done)) = self.pending_deletions.remove(&id)
            {
                // The caller may have given up.
                let _ = done.send(());
            }
        }
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.job_ended(class);
        for unsent in deliveries.into_iter().rev() {
            queue.put_back(unsent.queued);
        }
        for attempt in attempts {
            self.attempted(attempt, now);
        }
        self.wake(id, class);
    }

    /// Handles what is done of a job that waits for its last attempt.
    fn progressed(&mut self, progress: Progress) {
        let Progress { subscription, server, owner, attempts, unsent } = progress;
        let now = self.now();
        self.record_answers(&server, owner, &attempts, now);
        let Some(queue) = self.queues.get_mut(&subscription) else { return };
        for unsent in unsent.into_iter().rev() {
            queue.put_back(unsent.queued);
        }
        for attempt in attempts {
            self.attempted(attempt, now);
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

    /// Records which attempts of an owner a server has answered.
    fn record_answers(
        &mut self,
        server: &Arc<str>,
        owner: Holder,
        attempts: &[Attempted],
        now: u64,
    ) {
        let Some(server) = self.servers.get_mut(server) else { return };
        for result in attempts.iter().filter_map(|it| it.result.as_ref()) {
            let has_answered =
                result.succeeded() || (result.status.is_some() && result.duration < SLOW_RESPONSE);
            server.answered(owner, has_answered, result.duration, now);
        }
    }

    /// Notes the outcome of an attempt.
    fn attempted(&mut self, attempt: Attempted, now: u64) {
        let Attempted { queued, delivery, began, result } = attempt;
        // An attempt that the shutdown aborts is made again after the next start.
        if result.is_none() && self.stop_by.is_some() {
            return;
        }
        let result = result.unwrap_or_else(|| AttemptResult {
            status: None,
            duration: Duration::from_millis(now.saturating_sub(began)),
            excerpt: String::new(),
            retry_after: None,
            error: Some("the attempt was aborted".to_owned()),
        });
        let subscription = self.deps.registry.get(queued.subscription);
        let chat = subscription.filter(|it| it.chat().is_some());
        if result.status == Some(429)
            && let Some(chat) = &chat
        {
            self.limited(chat, queued, result.retry_after, now);
            return;
        }
        let outcome = self.determine_outcome(&result, &delivery, queued, chat.is_some(), now);
        if matches!(outcome, Outcome::Gone(_))
            && queued.number.test().is_none()
            && let Some(queue) = self.queues.get_mut(&queued.subscription)
        {
            queue.stop_after(queued);
        }
        self.note(Note {
            queued,
            round: delivery.round,
            attempt: Some(Attempt::of(began, &result)),
            outcome,
            ended: now,
        });
    }

    /// Determines the outcome of an attempt that has ended.
    fn determine_outcome(
        &mut self,
        result: &AttemptResult,
        delivery: &Delivery,
        queued: Queued,
        is_chat: bool,
        now: u64,
    ) -> Outcome {
        let outcome = if result.succeeded() {
            Outcome::Delivered
        } else if let Some(status @ (410 | 404)) = result.status
            && (status == 410 || is_chat)
        {
            Outcome::Gone(status)
        } else if queued.number.test().is_some() {
            Outcome::Failed(None)
        } else {
            let tries = delivery.tries.saturating_add(1);
            let wait = retry_delay(tries, self.deps.rng.random(), result.retry_after);
            let class = if is_prompt(tries) { Class::Soon } else { Class::Later };
            let ms = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            Outcome::Failed(wait.map(|wait| (class, now.saturating_add(ms(wait)))))
        };
        self.deps.metrics.webhook_attempted(match &outcome {
            Outcome::Delivered => "delivered",
            Outcome::Gone(_) => "gone",
            Outcome::Failed(None) => "given_up",
            _ if result.status.is_some() => "refused",
            _ => "unreachable",
        });
        outcome
    }

    fn note(&mut self, note: Note) {
        self.unwritten += 1;
        // If the writer has ended, the delivery is sent again after the next start.
        let _ = self.notes.send(note);
    }

    /// Counts outcomes that were written, before anything else is done about them: the counts must
    /// stay right through a panic.
    fn count_written(&mut self, written: &[Written]) {
        self.unwritten = self.unwritten.saturating_sub(written.len());
        for finished in written.iter().filter(|it| it.is_finished) {
            if let Some(subscription) = self.deps.registry.get(finished.queued.subscription) {
                subscription.add_waiting(-1);
            }
        }
    }

    fn written(&mut self, written: &Written) {
        let id = written.queued.subscription;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let resumes = queue.outcome_written(&written.queued);
        if let Some(next) = written.next {
            queue.add(next.class, next.due);
            self.schedule(id, next.class, next.due);
        }
        if written.is_disabled || resumes {
            Class::ALL.into_iter().for_each(|class| self.wake(id, class));
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
        let mut running = 0;
        for (task, _) in self.in_flight.values().filter(|(_, of)| *of == id) {
            task.abort();
            running += 1;
        }
        match running {
            // The caller may have given up.
            0 => drop(done.send(())),
            _ => drop(self.pending_deletions.insert(id, (running, done))),
        }
    }

    /// Discards the state, which a panic may have left half changed. Attempts in progress are
    /// aborted, and their deliveries are sent again; what ended before is noted. Messages that the
    /// new state is to see are handled last. Returns false when the service stops meanwhile.
    pub fn begin_again(&mut self, messages: &Receiver<Message>, stopping: &AtomicBool) -> bool {
        self.queues.clear();
        self.servers.clear();
        self.ready_servers.clear();
        self.waiting_for_slot.clear();
        self.timers.clear();
        self.paces.clear();
        self.payloads = Cache::new(MAX_CACHED_PAYLOADS);
        self.new_contents = Contents::default();
        self.in_flight.values().for_each(|(task, _)| task.abort());
        let mut later = Vec::new();
        // Outcomes must be in the queue before it is read.
        while !self.is_settled(messages, &mut later) {
            if stopping.load(Ordering::SeqCst) {
                return false;
            }
            match messages.recv_timeout(END_CHECK_INTERVAL) {
                Ok(message) => later.extend(self.settle(message)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        self.in_flight = HashMap::new();
        self.deps.metrics.set_webhooks_in_flight(0);
        for (_, done) in std::mem::take(&mut self.pending_deletions).into_values() {
            // The caller may have given up.
            let _ = done.send(());
        }
        let mut found = Vec::new();
        while let Err(error) = self.read_queue(&mut found) {
            self.report_unread(&error);
            found.clear();
            thread::sleep(REREAD_DELAY);
            if stopping.load(Ordering::SeqCst) {
                return false;
            }
        }
        if self.deps.health.is_down(COMPONENT) {
            self.deps.health.up(COMPONENT);
        }
        self.schedule_all(&found);
        later.into_iter().for_each(|message| self.handle_message(message));
        true
    }

    /// Returns whether all earlier attempts have ended and all outcomes are written. Handles the
    /// messages that are there.
    fn is_settled(&mut self, messages: &Receiver<Message>, later: &mut Vec<Message>) -> bool {
        // A task sends its last message before it counts as finished.
        let have_ended = self.in_flight.values().all(|(task, _)| task.is_finished());
        for message in messages.try_iter() {
            later.extend(self.settle(message));
        }
        have_ended && self.unwritten == 0
    }

    /// Handles a message about what was under way; returns any other.
    fn settle(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Progress(progress) => self.note_results(progress.attempts),
            Message::Ended(ended) => self.note_results(ended.attempts),
            Message::Written(written) => self.count_written(&written),
            other => return Some(other),
        }
        None
    }

    /// Notes the outcomes of the attempts that have a result.
    fn note_results(&mut self, attempts: Vec<Attempted>) {
        let now = self.now();
        for attempt in attempts.into_iter().filter(|it| it.result.is_some()) {
            self.attempted(attempt, now);
        }
    }
}
