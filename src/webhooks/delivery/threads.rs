//! The threads that send deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use super::deps::DeliveryDeps;
use super::dispatcher::Dispatcher;
use super::mailbox::{Mailbox, Message};
use super::new_deliveries::Unhandled;
use super::outcome_writer::Writer;
use crate::budget::{Budget, Limits};
use crate::priority::{Priority, PromptRuntime};
use crate::webhooks::WebhookError;

/// Maximum number of concurrent attempts.
const MAX_CONCURRENT_ATTEMPTS: u64 = 256;

/// Maximum number of concurrent attempts for the subscriptions of one owner.
const MAX_CONCURRENT_PER_OWNER: u64 = 128;

/// Number of runtime threads for attempts.
const ATTEMPT_THREADS: usize = 2;

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
        let writer = Writer {
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
