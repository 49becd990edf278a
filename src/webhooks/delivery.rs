//! Sending deliveries. One thread knows what is to be sent, and decides what is sent next ([`dispatcher`]);
//! attempts are made on a runtime of their own ([`attempt`]); another thread notes what came of them, many with one
//! write ([`notes`]). Deliveries lie in the store and are read when it is their turn.

mod attempt;
mod dispatcher;
mod lane;
mod notes;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use rand::RngCore;

use self::attempt::Ended;
use self::dispatcher::Dispatcher;
use self::notes::Written;
use super::registry::Registry;
use super::subscription::Subscription;
use super::target::Attempted;
use super::{Clock, WebhookError};
use crate::budget::{Budget, Limits};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::priority::{Priority, PromptRuntime};
use crate::store::Store;

/// Attempts at a time.
const PLACES: u64 = 256;
/// Attempts at a time for subscriptions of one owner.
const PLACES_OF_ONE: u64 = 128;
/// Threads on which attempts are made.
const ATTEMPTING: usize = 2;
/// How long attempts may go on once the service stops.
const LAST_ATTEMPTS: Duration = Duration::from_secs(5);
/// How long a deletion waits until the subscription's attempts have ended, which is at once.
const LEAVING: Duration = Duration::from_secs(10);

/// Makes one attempt: the subscription, the headers, and the body.
pub type Post =
    Arc<dyn Fn(Arc<Subscription>, Headers, Bytes) -> BoxFuture<'static, Attempted> + Send + Sync>;

/// Names and values of headers.
pub type Headers = [(&'static str, String); 6];

/// What deliveries need.
pub struct DeliveryDeps {
    /// Where they lie.
    pub store: Arc<Store>,
    /// Whose they are.
    pub registry: Arc<Registry>,
    /// Makes attempts.
    pub post: Post,
    /// The time.
    pub clock: Clock,
    /// Where attempts are made.
    pub runtime: PromptRuntime,
    /// Told when deliveries cannot be noted.
    pub health: Arc<Health>,
    /// Told of attempts.
    pub metrics: Arc<Metrics>,
    /// Draws by how much waits are longer.
    pub chance: Box<dyn RngCore + Send>,
}

/// What whoever decides is told.
enum Message {
    /// Deliveries were made for these subscriptions.
    Made(Vec<u32>),
    /// Deliveries of a subscription were asked for, which are due at that time.
    Asked(u32, u64),
    /// A subscription was disabled or enabled.
    Changed(u32),
    /// A subscription was deleted; the sender is told when nothing is sent for it any more.
    Forget(u32, SyncSender<()>),
    /// An attempt has ended.
    Ended(Box<Ended>),
    /// Attempts were noted.
    Written(Vec<Written>),
    /// The clock has moved.
    Tick,
    /// How busy are you?
    Look(SyncSender<Busy>),
    /// Begin nothing any more.
    Stop,
}

/// How busy it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Busy {
    /// Attempts that are being made.
    pub in_flight: usize,
    /// Attempts that are not noted yet.
    pub unwritten: usize,
    /// When there is something to do next, in UNIX milliseconds; none when nothing is known of.
    pub next: Option<u64>,
}

/// Where those are told who send deliveries.
#[derive(Clone)]
pub struct Mailbox(Sender<Message>);

impl Mailbox {
    /// Deliveries were made for these subscriptions.
    pub fn deliveries_made(&self, subscriptions: Vec<u32>) {
        self.tell(Message::Made(subscriptions));
    }

    /// Deliveries of a subscription were asked for, which are due at that time.
    pub fn asked(&self, subscription: u32, due: u64) {
        self.tell(Message::Asked(subscription, due));
    }

    /// A subscription was disabled or enabled.
    pub fn changed(&self, subscription: u32) {
        self.tell(Message::Changed(subscription));
    }

    /// Ends all that is being sent for a subscription, and returns when that is so.
    pub fn forget(&self, subscription: u32) {
        let (left, leaving) = sync_channel(1);
        self.tell(Message::Forget(subscription, left));
        // An error says that nobody sends anything any more.
        if leaving.recv_timeout(LEAVING) == Err(RecvTimeoutError::Timeout) {
            tracing::error!(subscription, "attempts for a deleted subscription do not end");
        }
    }

    /// The clock has moved.
    pub fn tick(&self) {
        self.tell(Message::Tick);
    }

    /// How busy those are who send; nothing when they have ended.
    pub fn look(&self) -> Option<Busy> {
        let (tell, told) = sync_channel(1);
        self.tell(Message::Look(tell));
        told.recv().ok()
    }

    fn tell(&self, message: Message) {
        // When nobody listens any more, the service stops, and what is to be sent lies in the store.
        let _ = self.0.send(message);
    }
}

/// Those who send deliveries, until this is dropped.
pub struct Delivering {
    mailbox: Mailbox,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Delivering {
    /// Begins to send.
    ///
    /// # Errors
    /// [`WebhookError::Damaged`] when no thread can be started.
    pub fn start(deps: DeliveryDeps) -> Result<Self, WebhookError> {
        let (tell, told) = channel();
        let mailbox = Mailbox(tell);
        deps.registry.tell(mailbox.clone());
        let (note, notes) = channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let writer = notes::Writer {
            store: Arc::clone(&deps.store),
            registry: Arc::clone(&deps.registry),
            health: Arc::clone(&deps.health),
            mailbox: mailbox.clone(),
            stopping: Arc::clone(&stopping),
        };
        let limits = Limits::without_waiting(PLACES, PLACES_OF_ONE);
        let places = Budget::new("webhook attempts", limits);
        let mut dispatcher = Dispatcher::new(deps, places, mailbox.clone(), note);
        // Before ledgers are taken from the feed, so that nothing is counted twice.
        dispatcher.begin();
        let threads = vec![
            spawn("webhook-notes", move || writer.run(&notes))?,
            spawn("webhooks", move || dispatcher.run(&told))?,
        ];
        Ok(Self { mailbox, stopping, threads })
    }

    /// Where those are told who send deliveries.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Begins no attempt any more, and returns when those that are being made are noted, or given up.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.mailbox.tell(Message::Stop);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of webhooks had panicked");
            }
        }
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.stop();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, WebhookError> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        Priority::Prompt.take();
        work();
    });
    spawned.map_err(refused)
}

/// Threads to make attempts on.
///
/// # Errors
/// [`WebhookError::Damaged`] when none can be started.
pub fn runtime() -> Result<PromptRuntime, WebhookError> {
    PromptRuntime::start("webhooks-attempts", ATTEMPTING).map_err(refused)
}

fn refused(error: std::io::Error) -> WebhookError {
    WebhookError::Damaged(format!("a thread cannot be started: {error}"))
}
