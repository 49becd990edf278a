//! The threads that drive the consumers.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::observe::health::Health;
use crate::priority::Priority;
use crate::service::{Node, ServiceError};
use crate::store::{LedgerConsumer, Store};
use crate::supervision::Supervised;

/// Delay before a failed step is retried, and maximum wait between two checks for a requested
/// rebuild.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between the beginnings of two steps of a consumer that has almost caught up. While
/// ledgers are stored one right after another, a step processes several of them: each step's write is
/// synced to the disk, and new ledgers are not stored meanwhile.
const STEP_INTERVAL: Duration = Duration::from_millis(5);

/// Number of unprocessed ledgers from which the next step begins at once.
const LARGE_LAG: u64 = 16;

/// Notifies the consumers' threads of new ledgers and of the stop.
#[derive(Default)]
struct Notifier {
    state: Mutex<NotifierState>,
    changed: Condvar,
}

#[derive(Default)]
struct NotifierState {
    /// Number of notifications so far.
    count: u64,
    stopped: bool,
}

impl Notifier {
    fn notify(&self, stop: bool) {
        let mut state = self.state.lock();
        state.count += 1;
        state.stopped |= stop;
        self.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Returns the number of notifications so far; `None` when the thread is to stop.
    fn notifications(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.stopped).then_some(state.count)
    }

    /// Waits until there are more than `after` notifications, for at most [`RETRY_INTERVAL`].
    fn wait(&self, after: u64) {
        let mut state = self.state.lock();
        if state.count == after && !state.stopped {
            self.changed.wait_for(&mut state, RETRY_INTERVAL);
        }
    }
}

/// The threads that drive the registered consumers, one for each; dropping this stops them.
pub(in crate::service) struct ConsumerThreads {
    notifier: Arc<Notifier>,
    threads: Vec<JoinHandle<()>>,
}

impl ConsumerThreads {
    /// Starts the threads. A failure of one is reported to health under the name of its consumer.
    pub fn start(node: &Arc<Node>) -> Result<Self, ServiceError> {
        let notifier = Arc::new(Notifier::default());
        let weak = Arc::downgrade(&notifier);
        node.store()
            .listen(move || weak.upgrade().inspect(|notifier| notifier.notify(false)).is_some());
        let mut started = Self { notifier, threads: Vec::new() };
        for consumer in node.consumers() {
            let name = consumer.spec().name;
            let supervised = Supervised::new(name, name, node.health());
            let (node, consumer) = (Arc::clone(node), Arc::clone(consumer));
            let notifier = Arc::clone(&started.notifier);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
                Priority::Prompt.apply_to_current_thread();
                let mut is_restart = false;
                supervised.run(
                    || notifier.is_stopped(),
                    || {
                        if std::mem::replace(&mut is_restart, true) {
                            // It is unknown how far the step came that has panicked.
                            consumer.on_step_failed();
                        }
                        work(&node, &*consumer, &notifier);
                    },
                );
            });
            started.threads.push(thread.map_err(ServiceError::thread)?);
        }
        Ok(started)
    }

    /// Stops the threads after their current steps.
    pub fn stop(&mut self) {
        self.notifier.notify(true);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("the thread of a consumer did not stop cleanly");
            }
        }
    }
}

impl Drop for ConsumerThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn work(node: &Node, consumer: &dyn LedgerConsumer, notifier: &Notifier) {
    let name = consumer.spec().name;
    while let Some(seen) = notifier.notifications() {
        node.health().injected().panic_if(name);
        let begun = Instant::now();
        let stop = || notifier.notifications().is_none();
        match node.store().step_until(consumer, &stop) {
            Ok(true) => recovered(node.health(), name),
            Ok(false) => {
                recovered(node.health(), name);
                notifier.wait(seen);
            }
            Err(error) => {
                tracing::error!(consumer = name, "a step failed and will be retried: {error}");
                node.health().down(name, "the store fails: the log says why");
                thread::sleep(RETRY_INTERVAL);
            }
        }
        if has_almost_caught_up(node.store(), name) {
            thread::sleep(STEP_INTERVAL.saturating_sub(begun.elapsed()));
        }
    }
}

fn has_almost_caught_up(store: &Store, name: &str) -> bool {
    store.consumer(name).is_none_or(|it| it.lag < LARGE_LAG && it.rebuild.is_none())
}

fn recovered(health: &Health, name: &'static str) {
    if health.is_down(name) {
        health.up(name);
    }
}
