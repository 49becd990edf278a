//! Consumers of the store's feed in a running service: which there are, the threads that drive them, and
//! how all of them are told in metrics and health. Programs are consumers, too, and drive themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::{Ledgers, stopped, unix_now_ms};
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
/// A wait before a step that failed is tried again, and between looks for a rebuild that was asked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Ranges that are shown in a sentence.
const MOST_RANGES: usize = 5;

/// Why the export cannot be built anew, to be read after its name.
const NOT_HERE: &str = "what it has written is not in this store: give export.to another place";

/// The consumers of this program, beside its indexing programs: one line for each.
pub(super) fn registered(webhooks: &Arc<Registry>) -> Vec<Arc<dyn LedgerConsumer>> {
    vec![
        Arc::new(WebhookConsumer::new(Arc::clone(webhooks), Arc::new(unix_now_ms))),
        Arc::new(SmartAccounts),
        Arc::new(PasskeyWallets),
        Arc::new(Evictions),
        Arc::new(TransactionHashes),
    ]
}

/// News for the threads of consumers.
#[derive(Default)]
struct Bell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Default)]
struct Rung {
    /// How often there was news.
    count: u64,
    stopped: bool,
}

impl Bell {
    fn ring(&self, stop: bool) {
        let mut rung = self.rung.lock();
        rung.count += 1;
        rung.stopped |= stop;
        self.changed.notify_all();
    }

    /// The news so far; none when it is time to stop.
    fn heard(&self) -> Option<u64> {
        let rung = self.rung.lock();
        (!rung.stopped).then_some(rung.count)
    }

    /// Waits for news after these, for a while.
    fn wait(&self, after: u64) {
        let mut rung = self.rung.lock();
        if rung.count == after && !rung.stopped {
            self.changed.wait_for(&mut rung, LOOK_EVERY);
        }
    }
}

/// Drives the registered consumers until `stop` turns true, each on a thread of its own.
pub(super) async fn drive(ledgers: Arc<Ledgers>, stop: watch::Receiver<bool>) {
    let bell = Arc::new(Bell::default());
    let told = Arc::downgrade(&bell);
    ledgers.store().listen(move || told.upgrade().inspect(|bell| bell.ring(false)).is_some());
    let threads: Vec<_> = ledgers
        .consumers()
        .iter()
        .map(|consumer| {
            let (ledgers, bell) = (Arc::clone(&ledgers), Arc::clone(&bell));
            let consumer = Arc::clone(consumer);
            thread::spawn(move || {
                Priority::Prompt.take();
                work(&ledgers, &*consumer, &bell);
            })
        })
        .collect();
    stopped(stop).await;
    bell.ring(true);
    let ended = spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
    if !ended.await.unwrap_or(false) {
        tracing::error!("a thread of a consumer had panicked");
    }
}

fn work(ledgers: &Ledgers, consumer: &dyn LedgerConsumer, bell: &Bell) {
    let name = consumer.spec().name;
    while let Some(heard) = bell.heard() {
        match ledgers.store().step(consumer) {
            Ok(true) => recovered(ledgers.health(), name),
            Ok(false) => {
                recovered(ledgers.health(), name);
                bell.wait(heard);
            }
            Err(error) => {
                tracing::error!(consumer = name, "a step failed and is tried again: {error}");
                ledgers.health().down(name, "the store fails: the log says why");
                thread::sleep(LOOK_EVERY);
            }
        }
    }
}

fn recovered(health: &Health, name: &'static str) {
    if health.is_down(name) {
        health.up(name);
    }
}

/// Says in metrics and health how consumers are, by kind: an owner's programs are told apart in their status
/// alone.
pub(super) fn report(store: &Store, metrics: &Metrics, health: &Health) {
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for consumer in store.consumers() {
        let (lag, lost) = kinds.entry(consumer.kind().to_owned()).or_default();
        if consumer.active {
            *lag = (*lag).max(consumer.lag);
        }
        *lost += consumer.lost.ledgers();
    }
    metrics.consumers_are(kinds.iter().map(|(kind, (lag, lost))| (kind.as_str(), *lag, *lost)));
    let mut details = Vec::new();
    for (kind, (lag, lost)) in &kinds {
        // What waits for its file to be complete is nothing to tell: the export has a word of its own.
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

/// How a consumer is, for the control socket.
pub(super) fn describe(consumer: ConsumerStatus) -> ConsumerReport {
    let ranges = consumer.lost.ranges().iter();
    ConsumerReport {
        lost: ranges.map(|range| (range.first.0, range.last.0)).collect(),
        rebuild: consumer.rebuild.map(|progress| (progress.done, progress.of)),
        name: consumer.name,
        active: consumer.active,
        lag: consumer.lag,
    }
}

impl Ledgers {
    /// Begins to build what a consumer keeps anew, unless that is under way, or says how far it is.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when it is none of the registered ones; [`StoreError::NotRebuilt`]
    /// when it is one for which that is nothing; what the database says.
    pub fn rebuild(&self, name: &str, begin: bool) -> Result<RebuildReport, StoreError> {
        if name == export::CONSUMER {
            return Err(StoreError::NotRebuilt(name.to_owned(), NOT_HERE));
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
            of: consumer.rebuild.map_or(consumer.place, |progress| progress.of),
            lost: ranges.map(|range| (range.first.0, range.last.0)).collect(),
        })
    }

    /// Does one step of the work of a consumer that is built anew, where no service does it. Says whether
    /// there is more to do.
    ///
    /// # Errors
    /// [`StoreError::UnknownConsumer`] when it is none of the registered ones; what the database says.
    pub fn rebuild_step(&self, name: &str) -> Result<bool, StoreError> {
        let unknown = || StoreError::UnknownConsumer(name.to_owned());
        let consumer = self.consumers().iter().find(|it| it.spec().name == name);
        self.store().step(&**consumer.ok_or_else(unknown)?)?;
        Ok(self.store().consumer(name).is_some_and(|it| it.rebuild.is_some()))
    }
}

/// What consumers have lost, as people read it.
pub fn lost_ranges(lost: &[(u32, u32)]) -> String {
    let shown = lost.iter().take(MOST_RANGES).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more @ 1..) = lost.len().checked_sub(MOST_RANGES) {
        text.push_str(&format!(" and {more} more ranges"));
    }
    text
}
