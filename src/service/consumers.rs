//! Consumers of the store's feed in a running service: their list, the threads that drive them, and
//! their report in metrics and health. Indexing programs are consumers too, but run on threads of
//! their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::{Ledgers, stopped, unix_now_ms};
use crate::accounts::AccountConsumer;
use crate::accounts::evictions::Evictions;
use crate::accounts::passkey::PasskeyWallets;
use crate::accounts::smart::SmartAccounts;
use crate::control::{ConsumerReport, RebuildReport};
use crate::export;
use crate::observe::health::Health;
use crate::observe::metrics::Metrics;
use crate::priority::Priority;
use crate::rpc::TransactionHashes;
use crate::store::{ConsumerStatus, LedgerConsumer, Store, StoreError};
use crate::webhooks::WebhookConsumer;
use crate::webhooks::registry::Registry;

/// Name under which consumers report to health.
const FEED: &str = "feed";
/// Delay before a failed step is retried, and maximum wait between two checks for a requested
/// rebuild.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between the beginnings of two steps of a consumer that has almost caught up. While
/// ledgers are stored one right after another, a step processes several of them: each step's write is
/// synced to the disk, and new ledgers are not stored meanwhile.
const STEP_INTERVAL: Duration = Duration::from_millis(5);
/// Number of unprocessed ledgers from which the next step begins at once.
const LARGE_LAG: u64 = 16;
/// Maximum number of ranges in a text.
const MAX_RANGES: usize = 5;

/// Why the export cannot be rebuilt, as text that follows its name.
const EXPORT_NOT_REBUILDABLE: &str =
    "its output is outside this store: set export.to to another destination";

/// Returns the consumers of this program other than its indexing programs.
pub(super) fn registered(webhooks: &Arc<Registry>) -> Vec<Arc<dyn LedgerConsumer>> {
    vec![
        Arc::new(WebhookConsumer::new(Arc::clone(webhooks), Arc::new(unix_now_ms))),
        Arc::new(AccountConsumer(SmartAccounts)),
        Arc::new(AccountConsumer(PasskeyWallets)),
        Arc::new(Evictions),
        Arc::new(TransactionHashes),
    ]
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

/// Drives the registered consumers until `stop` turns true, each on a thread of its own.
pub(super) async fn drive(ledgers: Arc<Ledgers>, stop: watch::Receiver<bool>) {
    let notifier = Arc::new(Notifier::default());
    let weak = Arc::downgrade(&notifier);
    ledgers
        .store()
        .listen(move || weak.upgrade().inspect(|notifier| notifier.notify(false)).is_some());
    let threads: Vec<_> = ledgers
        .consumers()
        .iter()
        .map(|consumer| {
            let (ledgers, notifier) = (Arc::clone(&ledgers), Arc::clone(&notifier));
            let consumer = Arc::clone(consumer);
            thread::spawn(move || {
                Priority::Prompt.apply_to_current_thread();
                work(&ledgers, &*consumer, &notifier);
            })
        })
        .collect();
    stopped(stop).await;
    notifier.notify(true);
    let ended = spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
    if !ended.await.unwrap_or(false) {
        tracing::error!("a consumer thread panicked");
    }
}

fn work(ledgers: &Ledgers, consumer: &dyn LedgerConsumer, notifier: &Notifier) {
    let name = consumer.spec().name;
    while let Some(seen) = notifier.notifications() {
        let begun = Instant::now();
        match ledgers.store().step(consumer) {
            Ok(true) => recovered(ledgers.health(), name),
            Ok(false) => {
                recovered(ledgers.health(), name);
                notifier.wait(seen);
            }
            Err(error) => {
                tracing::error!(consumer = name, "a step failed and will be retried: {error}");
                ledgers.health().down(name, "the store fails: the log says why");
                thread::sleep(RETRY_INTERVAL);
            }
        }
        if has_almost_caught_up(ledgers.store(), name) {
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
    let ranges = consumer.lost.ranges().iter();
    ConsumerReport {
        lost: ranges.map(|range| (range.first.0, range.last.0)).collect(),
        rebuild: consumer.rebuild.map(|progress| (progress.done, progress.target)),
        name: consumer.name,
        active: consumer.active,
        lag: consumer.lag,
    }
}

impl Ledgers {
    /// Begins to rebuild a consumer's rows if `begin` is set and no rebuild is under way. Returns
    /// the progress; when no rebuild runs and `begin` is not set, with the digest of a built-in
    /// consumer's rows.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when no consumer of this name is registered;
    /// [`StoreError::NotRebuilt`] when the consumer cannot be rebuilt; errors of the database.
    pub fn rebuild(&self, name: &str, begin: bool) -> Result<RebuildReport, StoreError> {
        if name == export::CONSUMER {
            return Err(StoreError::NotRebuilt(name.to_owned(), EXPORT_NOT_REBUILDABLE));
        }
        let known = self.consumers().iter().find(|it| it.spec().name == name);
        if let Some(reason) = known.and_then(|it| it.cannot_be_rebuilt()) {
            return Err(StoreError::NotRebuilt(name.to_owned(), reason));
        }
        if begin {
            self.store().begin_rebuild(name)?;
        }
        let consumer = self.store().consumer(name);
        let consumer = consumer.ok_or_else(|| StoreError::UnknownConsumer(name.to_owned()))?;
        let ranges = consumer.lost.ranges().iter();
        let running = consumer.rebuild.is_some();
        let digest = match known.is_some() && !begin && !running {
            true => Some(self.store().consumer_digest(name)?),
            false => None,
        };
        Ok(RebuildReport {
            running,
            digest,
            done: consumer.rebuild.map_or(consumer.place, |progress| progress.done),
            of: consumer.rebuild.map_or(consumer.place, |progress| progress.target),
            lost: ranges.map(|range| (range.first.0, range.last.0)).collect(),
        })
    }

    /// Runs one step of a consumer that is being rebuilt, for use without a running service.
    /// Returns whether the rebuild is still under way.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when it is not one of the built-in consumers; errors of the
    /// database.
    pub fn rebuild_step(&self, name: &str) -> Result<bool, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let consumer = self.consumers().iter().find(|it| it.spec().name == name);
        self.store().step(&**consumer.ok_or_else(unknown)?)?;
        Ok(self.store().consumer(name).is_some_and(|it| it.rebuild.is_some()))
    }
}

/// Formats lost ranges as text: at most five of them, and the number of the others.
pub fn lost_ranges(lost: &[(u32, u32)]) -> String {
    let shown = lost.iter().take(MAX_RANGES).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = lost.len().checked_sub(MAX_RANGES) {
        text.push_str(&format!(" and {more} more ranges"));
    }
    text
}
