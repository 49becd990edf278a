//! The threads that send deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use super::dispatcher::{DISPATCHER, DeliveryDeps, Dispatcher};
use super::mailbox::{Mailbox, Message};
use super::new_deliveries::Unhandled;
use super::outcome_writer::{COMPONENT, WRITER, Writer};
use crate::WebhookError;
use orrery_runtime::budget::{Budget, Limits};
use orrery_runtime::observe::health::Health;
use orrery_runtime::priority::{Priority, PromptRuntime};
use orrery_runtime::supervision::Supervised;

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
        let health = Arc::clone(&deps.health);
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
        let mut started = Self { mailbox, stopping, threads: Vec::new() };
        let mut batch = Arc::default();
        started.spawn(WRITER, &health, move || writer.run(&notes, &mut batch))?;
        let (mut is_restart, stopping) = (false, Arc::clone(&started.stopping));
        started.spawn(DISPATCHER, &health, move || {
            if !std::mem::replace(&mut is_restart, true)
                || dispatcher.begin_again(&messages, &stopping)
            {
                dispatcher.run(&messages);
            }
        })?;
        Ok(started)
    }

    /// Starts a thread, which calls `work` again after a failure.
    fn spawn(
        &mut self,
        name: &'static str,
        health: &Arc<Health>,
        work: impl FnMut() + Send + 'static,
    ) -> Result<(), WebhookError> {
        let supervised = Supervised::new(name, COMPONENT, health);
        let stopping = Arc::clone(&self.stopping);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            Priority::Prompt.apply_to_current_thread();
            supervised.run(|| stopping.load(Ordering::SeqCst), work);
        });
        self.threads.push(thread.map_err(WebhookError::Thread)?);
        Ok(())
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
                tracing::error!("a thread of webhooks did not stop cleanly");
            }
        }
    }
}

impl Drop for DeliveryThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts the runtime for attempts.
///
/// # Errors
/// [`WebhookError::Thread`] when a thread cannot be started.
pub fn runtime() -> Result<PromptRuntime, WebhookError> {
    PromptRuntime::start("webhooks-attempts", ATTEMPT_THREADS).map_err(WebhookError::Thread)
}
