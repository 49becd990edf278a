//! Consumers of the store's feed in a running service: their list, their reports in metrics, in health
//! and on the control socket, and the threads that drive them. Indexing programs are consumers too, but
//! run on threads of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::ServiceError;
use crate::accounts::AccountConsumer;
use crate::accounts::evictions::Evictions;
use crate::accounts::passkey::PasskeyWallets;
use crate::accounts::smart::SmartAccounts;
use crate::contract_data::{self, ContractData};
use crate::control::ConsumerReport;
use crate::domain::LedgerRange;
use crate::executables::ExecutableIndex;
use crate::export;
use crate::membership::{Membership, code_events};
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::priority::Priority;
use crate::rpc::TransactionHashes;
use crate::settings::RecordedStorage;
use crate::store::{ConsumerStatus, LedgerConsumer, Store};
use crate::supervision::Supervised;
use crate::webhooks::WebhookConsumer;
use crate::webhooks::registry::Registry;

/// Name under which consumers report to health.
const FEED: &str = "feed";

/// Maximum number of ranges in a text.
const MAX_RANGES: usize = 5;

/// Delay before a failed step is retried, and maximum wait between two checks for a requested
/// rebuild.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between the beginnings of two steps of a consumer that has almost caught up. While
/// ledgers are stored one right after another, a step processes several of them: each step's write is
/// synced to the disk, and new ledgers are not stored meanwhile.
const STEP_INTERVAL: Duration = Duration::from_millis(5);

/// Number of unprocessed ledgers from which the next step begins at once.
const LARGE_LAG: u64 = 16;

/// Returns those of [`everything`] that a service with this setting runs.
pub(super) fn registered(
    webhooks: &Arc<Registry>,
    storage: RecordedStorage,
) -> Vec<Arc<dyn LedgerConsumer>> {
    let mut all = everything(webhooks);
    if storage == RecordedStorage::Off {
        all.retain(|consumer| consumer.spec().name != contract_data::CONSUMER);
    }
    all
}

/// Returns the consumers of this program other than its indexing programs.
pub(super) fn everything(webhooks: &Arc<Registry>) -> Vec<Arc<dyn LedgerConsumer>> {
    vec![
        Arc::new(WebhookConsumer::new(Arc::clone(webhooks))),
        Arc::new(AccountConsumer(SmartAccounts)),
        Arc::new(AccountConsumer(PasskeyWallets)),
        Arc::new(Evictions),
        Arc::new(TransactionHashes),
        Arc::new(ExecutableIndex),
        Arc::new(ContractData),
        Arc::new(Membership),
        Arc::new(code_events()),
    ]
}

/// Reports consumers in metrics and health by kind. The programs of an owner are reported
/// individually only in their own status.
pub(super) fn report(store: &Store, metrics: &Metrics, health: &Health) {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for consumer in store.consumers() {
        let (lag, lost) = kinds.entry(consumer.kind().to_owned()).or_default();
        if consumer.active {
            *lag = (*lag).max(consumer.lag);
        }
        *lost += consumer.lost.ledgers();
    }
    metrics.set_consumers(kinds.iter().map(|(kind, (lag, lost))| (kind.as_str(), *lag, *lost)));
    let mut details = Vec::new();
    for (kind, (lag, lost)) in &kinds {
        // The export lags until the ledgers of a file are complete, which is normal; it reports to
        // health itself.
        if *lag > 0 && kind != export::CONSUMER {
            details.push(format!("{kind}: {lag} ledgers behind"));
        }
        if *lost > 0 {
            details.push(format!("{kind}: {lost} ledgers lost, see `orrery status`"));
        }
    }
    match (kinds.is_empty(), details.is_empty()) {
        (true, _) => health.forget(FEED),
        (false, true) => health.up(FEED),
        (false, false) => health.up_with(FEED, details.join("; ")),
    }
}

/// Returns the status of a consumer for the control socket.
pub(super) fn describe(consumer: ConsumerStatus) -> ConsumerReport {
    ConsumerReport {
        lost: consumer.lost,
        rebuild: consumer.rebuild.map(|progress| (progress.done, progress.target)),
        name: consumer.name,
        active: consumer.active,
        lag: consumer.lag,
    }
}

/// Formats lost ranges as text: at most five of them, and the number of the others.
pub fn lost_ranges(lost: &[LedgerRange]) -> String {
    let shown = lost.iter().take(MAX_RANGES).map(|LedgerRange { first, last }| {
        if first == last { first.to_string() } else { format!("{first}–{last}") }
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = lost.len().checked_sub(MAX_RANGES) {
        text.push_str(&format!(" and {more} more ranges"));
    }
    text
}

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
pub(super) struct ConsumerThreads {
    notifier: Arc<Notifier>,
    threads: Vec<JoinHandle<()>>,
}

impl ConsumerThreads {
    /// Starts the threads. A failure of one is reported to health under the name of its consumer.
    pub fn start(
        store: &Arc<Store>,
        consumers: &[Arc<dyn LedgerConsumer>],
        health: &Arc<Health>,
    ) -> Result<Self, ServiceError> {
        let notifier = Arc::new(Notifier::default());
        let weak = Arc::downgrade(&notifier);
        store.listen(move || weak.upgrade().inspect(|notifier| notifier.notify(false)).is_some());
        let mut started = Self { notifier, threads: Vec::new() };
        for consumer in consumers {
            let name = consumer.spec().name;
            let supervised = Supervised::new(name, name, health);
            let (store, health) = (Arc::clone(store), Arc::clone(health));
            let consumer = Arc::clone(consumer);
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
                        work(&store, &health, &*consumer, &notifier);
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

fn work(store: &Store, health: &Health, consumer: &dyn LedgerConsumer, notifier: &Notifier) {
    let name = consumer.spec().name;
    while let Some(seen) = notifier.notifications() {
        health.injected().panic_if(name);
        let begun = Instant::now();
        let stop = || notifier.notifications().is_none();
        match store.step_until(consumer, &stop) {
            Ok(true) => recovered(health, name),
            Ok(false) => {
                recovered(health, name);
                notifier.wait(seen);
            }
            Err(error) => {
                tracing::error!(consumer = name, "a step failed and will be retried: {error}");
                health.down(name, "the store fails: the log says why");
                thread::sleep(RETRY_INTERVAL);
            }
        }
        if has_almost_caught_up(store, name) {
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
