//! Reads new events once for all streams: a thread that every commit wakes, and the newest events
//! in memory, from which every stream takes those that match its filter.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::batch::{Batch, BatchBuilder};
use crate::ApiError;
use orrery_ledger::domain::{EventId, Page};
use orrery_runtime::budget::{Budget, Holder, Share};
use orrery_runtime::observe::health::Health;
use orrery_runtime::priority::Priority;
use orrery_runtime::supervision::Supervised;
use orrery_store::{Bounds, EventQuery, Store, StoreError, TopicFilter};

/// Name of the thread, and of the component of health that is down while it does not run.
const STREAMS: &str = "streams";

/// Maximum memory for the newest events, in bytes.
const MAX_CACHED_BYTES: usize = 16 << 20;

/// Size of the text in bytes at which a batch ends.
const BATCH_BYTES: usize = 512 << 10;

/// Number of new events above which the hub skips them and streams read the store: an import is
/// running, and streams with a filter find their events faster through the indexes.
const MAX_NEW_EVENTS: u64 = 50_000;

/// Reads new events while there are streams.
pub(super) struct Hub {
    shared: Arc<Shared>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<Store>,
    newest: Mutex<Newest>,
    state: watch::Sender<HubState>,
}

/// State that streams are notified of.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HubState {
    /// Id up to which events were read.
    pub last: u64,
    /// Whether streams must end.
    pub is_stopping: bool,
}

/// The newest events: all those after `after` up to `last`.
struct Newest {
    after: u64,
    last: u64,
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    /// Share of the byte budget for the events.
    share: Option<Share>,
    streams: usize,
}

/// Where a stream finds the events after its position.
pub(super) enum Next {
    /// In the store.
    Stored,
    /// In this batch.
    InMemory(Arc<Batch>),
    /// There are none yet.
    Nothing,
}

impl Hub {
    pub(super) fn start(
        store: &Arc<Store>,
        bytes: &Budget,
        health: &Arc<Health>,
    ) -> Result<Self, ApiError> {
        let newest = Newest {
            after: 0,
            last: 0,
            batches: VecDeque::new(),
            bytes: 0,
            // A share of zero bytes is never refused.
            share: bytes.take_now(Holder::of("the newest events"), 0).ok(),
            streams: 0,
        };
        let shared = Arc::new(Shared {
            store: Arc::clone(store),
            newest: Mutex::new(newest),
            state: watch::Sender::default(),
        });
        let (wake, woken) = sync_channel(1);
        let waker = wake.clone();
        // When the channel is full, the thread will check anyway.
        store.listen(move || !matches!(waker.try_send(()), Err(TrySendError::Disconnected(()))));
        let reads = Arc::clone(&shared);
        let supervised = Supervised::new(STREAMS, STREAMS, health);
        let thread = thread::Builder::new().name(STREAMS.into());
        let thread = thread.spawn(move || reads.run(&woken, &supervised));
        let thread = thread
            .map_err(|error| ApiError::Start(format!("its threads cannot be created ({error})")))?;
        Ok(Self { shared, wake, thread: Some(thread) })
    }

    /// Ends all streams and the thread.
    pub(super) fn stop(&self) {
        self.shared.state.send_modify(|state| state.is_stopping = true);
        let _ = self.wake.try_send(());
    }

    /// Registers a new stream and returns its subscription.
    pub(super) fn subscribe(&self) -> Subscription {
        let mut newest = self.shared.newest.lock();
        newest.streams += 1;
        if newest.streams == 1 {
            newest.restart(self.shared.store.last_durable_event().0);
        }
        Subscription { shared: Arc::clone(&self.shared), state: self.shared.state.subscribe() }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // Every panic has been logged.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Runs the thread until the stop, and again after a panic.
    fn run(&self, woken: &Receiver<()>, supervised: &Supervised) {
        Priority::Prompt.apply_to_current_thread();
        let mut is_restart = false;
        supervised.run(
            || self.state.borrow().is_stopping,
            || {
                if std::mem::replace(&mut is_restart, true) {
                    self.begin_again();
                }
                self.read_when_woken(woken, supervised.health());
            },
        );
    }

    /// Discards the events in memory, of which it is unknown whether they are whole: streams read
    /// theirs from the store.
    fn begin_again(&self) {
        let newest = self.store.last_durable_event().0;
        self.newest.lock().restart(newest);
        self.state.send_modify(|state| state.last = newest);
    }

    /// Reads new events whenever the thread is woken, until the stop.
    fn read_when_woken(&self, woken: &Receiver<()>, health: &Health) {
        while woken.recv().is_ok() {
            health.injected().panic_if(STREAMS);
            while self.read_next_batch() {}
            if self.state.borrow().is_stopping {
                return;
            }
        }
    }

    /// Reads new events; returns whether there may be more.
    fn read_next_batch(&self) -> bool {
        let newest = self.store.last_durable_event().0;
        let after = {
            let known = self.newest.lock();
            if known.streams == 0 || newest <= known.last || self.state.borrow().is_stopping {
                return false;
            }
            known.last
        };
        let read = match newest - after {
            count if count > MAX_NEW_EVENTS => None,
            _ => self.read(after, newest).unwrap_or_else(|error| {
                // Streams query the store themselves and report the failure to their clients.
                tracing::error!(%error, "new events could not be read for streams");
                None
            }),
        };
        let mut known = self.newest.lock();
        // Differs when all streams ended meanwhile and others were opened.
        if known.last == after {
            match read {
                Some(batch) => known.push(batch),
                None => known.restart(newest),
            }
        }
        let last = known.last;
        drop(known);
        self.state.send_modify(|state| state.last = last);
        true
    }

    /// Reads the events after an id, up to `newest` or until the batch is full; `None` when
    /// retention has already removed some of them.
    fn read(&self, after: u64, newest: u64) -> Result<Option<Batch>, StoreError> {
        let query = EventQuery {
            ledgers: None,
            contracts: Vec::new(),
            topics: TopicFilter::default(),
            page: Page { cursor: Some(EventId(after)), ..Page::all() },
        };
        let mut builder = BatchBuilder::after(after);
        let walked = self.store.events_within(&query, Bounds::NONE, |event| {
            if event.id.0 > newest {
                return ControlFlow::Break(newest);
            }
            match builder.push(event) < BATCH_BYTES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(event.id.0),
            }
        })?;
        let last = walked.broken_off.unwrap_or(newest);
        let lost = self.store.lost_events(EventId(after))?;
        let is_whole = lost.is_none_or(|lost| lost.first.0 > last);
        Ok(is_whole.then(|| builder.up_to(last)))
    }
}

impl Newest {
    /// Discards all events and continues after this id.
    fn restart(&mut self, last: u64) {
        (self.after, self.last) = (last, last);
        self.batches = VecDeque::new();
        self.bytes = 0;
        self.account();
    }

    fn push(&mut self, batch: Batch) {
        self.last = batch.last;
        self.bytes += batch.bytes();
        self.batches.push_back(Arc::new(batch));
        while self.bytes > MAX_CACHED_BYTES
            && let Some(oldest) = self.batches.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.after = oldest.last;
        }
        self.account();
    }

    fn account(&mut self) {
        if let Some(share) = &mut self.share {
            share.set(self.bytes as u64);
        }
    }

    fn next(&self, position: u64) -> Next {
        if position < self.after {
            return Next::Stored;
        }
        let at = self.batches.partition_point(|batch| batch.last <= position);
        match self.batches.get(at) {
            Some(batch) => Next::InMemory(Arc::clone(batch)),
            None => Next::Nothing,
        }
    }
}

/// Subscription of one stream to new events, for as long as the stream lasts.
pub(super) struct Subscription {
    shared: Arc<Shared>,
    state: watch::Receiver<HubState>,
}

impl Subscription {
    /// Returns where the events after an id are.
    pub(super) fn after(&self, position: u64) -> Next {
        self.shared.newest.lock().next(position)
    }

    /// Returns whether the stream must end.
    pub(super) fn is_stopping(&self) -> bool {
        self.state.borrow().is_stopping
    }

    /// Waits until the stream must end.
    pub(super) async fn stopping(&self) {
        // Never fails: `shared` keeps the sender alive.
        let _ = self.state.clone().wait_for(|state| state.is_stopping).await;
    }

    /// Waits until the state has changed since the last call.
    pub(super) async fn changed(&mut self) {
        // Never fails: `shared` keeps the sender alive.
        let _ = self.state.changed().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut newest = self.shared.newest.lock();
        newest.streams -= 1;
        if newest.streams == 0 {
            let last = newest.last;
            newest.restart(last);
        }
    }
}
