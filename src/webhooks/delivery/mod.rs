//! Sends deliveries. One thread tracks what is due and decides what is sent next ([`dispatcher`]);
//! attempts run on a runtime of their own ([`attempt`]); another thread writes their outcomes, many
//! in one write ([`outcome_writer`]). Deliveries stay in the store and are read when it is their turn, except
//! new ones, which are handed over in memory as far as they are few ([`new_deliveries`]).

mod attempt;
mod dispatcher;
pub mod new_deliveries;
mod outcome_writer;
mod server;
mod subscription_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rand::RngCore;

use self::attempt::{Ended, Progress};
use self::dispatcher::Dispatcher;
use self::new_deliveries::{Counted, Created, Unhandled};
use self::outcome_writer::Written;
use super::registry::Registry;
use super::subscription::Subscription;
use super::target::AttemptResult;
use super::{Clock, WebhookError};
use crate::budget::{Budget, Limits};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::priority::{Priority, PromptRuntime};
use crate::store::Store;

/// Maximum number of concurrent attempts.
const MAX_CONCURRENT_ATTEMPTS: u64 = 256;
/// Maximum number of concurrent attempts for the subscriptions of one owner.
const MAX_CONCURRENT_PER_OWNER: u64 = 128;
/// Number of runtime threads for attempts.
const ATTEMPT_THREADS: usize = 2;
/// How long running attempts may continue after the service begins to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a deletion waits for the subscription's attempts to end. They are aborted, so they
/// normally end at once.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes one attempt with the subscription, the headers and the body.
pub type Post = Arc<
    dyn Fn(Arc<Subscription>, Headers, Bytes) -> BoxFuture<'static, AttemptResult> + Send + Sync,
>;

/// Names and values of the headers that sign a delivery.
pub type Headers = [(&'static str, String); 6];

/// Dependencies of the delivery threads.
pub struct DeliveryDeps {
    /// Store that holds the deliveries.
    pub store: Arc<Store>,
    /// Subscriptions that the deliveries belong to.
    pub registry: Arc<Registry>,
    /// Makes an attempt.
    pub post: Post,
    /// Current UNIX time in milliseconds.
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

/// Message to the dispatcher.
enum Message {
    /// Deliveries were created.
    Created(Created, Counted),
    /// A replay or a test queued deliveries of a subscription that are due at this UNIX time in
    /// milliseconds.
    Requested(u32, u64),
    /// A subscription was disabled or enabled.
    Changed(u32),
    /// A subscription was deleted; the sender is notified when nothing is being sent for it any
    /// more.
    Forget(u32, SyncSender<()>),
    /// A job whose time is up waits for its last attempt.
    Progress(Box<Progress>),
    /// A job has ended.
    Ended(Box<Ended>),
    /// Outcomes of attempts were written.
    Written(Vec<Written>),
    /// Makes the dispatcher read the clock, which has moved.
    Tick,
    /// Requests the dispatcher's current load.
    ReportLoad(SyncSender<Load>),
    /// Starts no more attempts, and ends the dispatcher.
    Stop,
}

/// Load of the dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Number of attempts in progress.
    pub in_flight: usize,
    /// Number of outcomes that are not written yet.
    pub unwritten: usize,
    /// UNIX time in milliseconds of the next timer; `None` when no timer is set.
    pub next: Option<u64>,
}

/// Sends messages to the dispatcher.
#[derive(Clone)]
pub struct Mailbox {
    messages: Sender<Message>,
    unhandled: Unhandled,
}

impl Mailbox {
    /// Reports that deliveries were created. They must be on disk.
    pub fn deliveries_created(&self, mut created: Created) {
        let counted = self.unhandled.count(&mut created);
        self.send(Message::Created(created, counted));
    }

    /// Reports that a replay or a test queued deliveries of a subscription, due at that UNIX time
    /// in milliseconds.
    pub fn delivery_requested(&self, subscription: u32, due: u64) {
        self.send(Message::Requested(subscription, due));
    }

    /// Reports that a subscription was disabled or enabled.
    pub fn changed(&self, subscription: u32) {
        self.send(Message::Changed(subscription));
    }

    /// Aborts all attempts of a subscription, and returns when they have ended.
    pub fn forget(&self, subscription: u32) {
        let (done, wait) = sync_channel(1);
        self.send(Message::Forget(subscription, done));
        // A disconnected channel means that the dispatcher has ended and sends nothing more.
        if wait.recv_timeout(ABORT_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            tracing::error!(subscription, "attempts for a deleted subscription do not end");
        }
    }

    /// Makes the dispatcher read the clock, which has moved.
    pub fn tick(&self) {
        self.send(Message::Tick);
    }

    /// Returns the dispatcher's load; `None` when it has ended.
    pub fn load(&self) -> Option<Load> {
        let (reply, replies) = sync_channel(1);
        self.send(Message::ReportLoad(reply));
        replies.recv().ok()
    }

    fn send(&self, message: Message) {
        // If the dispatcher has ended, the service is stopping, and the deliveries are in the
        // store.
        let _ = self.messages.send(message);
    }
}

/// The running delivery threads; dropping this stops them.
pub struct DeliveryThreads {
    mailbox: Mailbox,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl DeliveryThreads {
    /// Starts the delivery threads.
    ///
    /// # Errors
    /// [`WebhookError::Thread`] when a thread cannot be started.
    pub fn start(deps: DeliveryDeps) -> Result<Self, WebhookError> {
        let (sender, messages) = channel();
        let mailbox = Mailbox { messages: sender, unhandled: Unhandled::default() };
        deps.registry.set_mailbox(mailbox.clone());
        let (note, notes) = channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let writer = outcome_writer::Writer {
            store: Arc::clone(&deps.store),
            registry: Arc::clone(&deps.registry),
            health: Arc::clone(&deps.health),
            mailbox: mailbox.clone(),
            stopping: Arc::clone(&stopping),
        };
        let limits = Limits::without_waiting(MAX_CONCURRENT_ATTEMPTS, MAX_CONCURRENT_PER_OWNER);
        let slots = Budget::new("webhook attempts", limits);
        let mut dispatcher = Dispatcher::new(deps, slots, mailbox.clone(), note);
        // Before ledgers are consumed from the feed, so that no delivery is counted twice.
        dispatcher.load_queue();
        let threads = vec![
            spawn("webhook-notes", move || writer.run(&notes))?,
            spawn("webhooks", move || dispatcher.run(&messages))?,
        ];
        Ok(Self { mailbox, stopping, threads })
    }

    /// Returns the mailbox of the dispatcher.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Starts no more attempts, and returns when the running ones have been written or given up.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.mailbox.send(Message::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of webhooks had panicked");
            }
        }
    }
}

impl Drop for DeliveryThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, WebhookError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        Priority::Prompt.apply_to_current_thread();
        work();
    });
    spawned.map_err(WebhookError::Thread)
}

/// Starts the runtime for attempts.
///
/// # Errors
/// [`WebhookError::Thread`] when a thread cannot be started.
pub fn runtime() -> Result<PromptRuntime, WebhookError> {
    PromptRuntime::start("webhooks-attempts", ATTEMPT_THREADS).map_err(WebhookError::Thread)
}
