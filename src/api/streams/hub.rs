//! One reading of new events for all streams: a thread that is woken by each commit, and the newest events
//! in memory, where every stream finds those that it wants.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::batch::{Batch, Making};
use crate::api::ApiError;
use crate::budget::{Budget, Holder, Share};
use crate::domain::{Direction, EventId, Page};
use crate::priority::Priority;
use crate::store::{Bounds, EventQuery, Store, StoreError, TopicFilter};

/// Bytes of memory for the newest events.
const KEPT: usize = 16 << 20;

/// Bytes of text after which a batch ends.
const BATCH: usize = 512 << 10;

/// Events that are not read here because they are too many: an import is under way, and streams with a
/// filter find theirs sooner through the indexes.
const TOO_MANY: u64 = 50_000;

/// Reads new events while there are streams.
pub(super) struct Hub {
    shared: Arc<Shared>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    store: Arc<Store>,
    newest: Mutex<Newest>,
    told: watch::Sender<Told>,
}

/// What streams are told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    /// Up to which id events were read.
    pub last: u64,
    /// Whether they are to end.
    pub stops: bool,
}

/// The newest events: all those after `after` up to `last`.
struct Newest {
    after: u64,
    last: u64,
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    /// Room for them.
    share: Option<Share>,
    streams: usize,
}

/// Where a stream finds what follows the id that it has got to.
pub(super) enum Next {
    /// In the store.
    Stored,
    /// In memory.
    InMemory(Arc<Batch>),
    /// Nowhere yet.
    Nothing,
}

impl Hub {
    pub(super) fn start(store: &Arc<Store>, bytes: &Budget) -> Result<Self, ApiError> {
        let newest = Newest {
            after: 0,
            last: 0,
            batches: VecDeque::new(),
            bytes: 0,
            // Nothing is taken yet, which is never refused.
            share: bytes.take_now(Holder::of("the newest events"), 0).ok(),
            streams: 0,
        };
        let shared = Arc::new(Shared {
            store: Arc::clone(store),
            newest: Mutex::new(newest),
            told: watch::Sender::default(),
        });
        let (wake, woken) = sync_channel(1);
        let told = wake.clone();
        // One that is full will be looked at anyway.
        store.listen(move || !matches!(told.try_send(()), Err(TrySendError::Disconnected(()))));
        let reads = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("streams".into()).spawn(move || reads.keep(&woken));
        let thread = thread
            .map_err(|error| ApiError::Start(format!("its threads cannot be created ({error})")))?;
        Ok(Self { shared, wake, thread: Some(thread) })
    }

    /// Ends all streams and the thread.
    pub(super) fn stop(&self) {
        self.shared.told.send_modify(|told| told.stops = true);
        let _ = self.wake.try_send(());
    }

    /// What a new stream hears from.
    pub(super) fn subscribe(&self) -> News {
        let mut newest = self.shared.newest.lock();
        newest.streams += 1;
        if newest.streams == 1 {
            newest.restart(self.shared.store.last_durable_event().0);
        }
        News { shared: Arc::clone(&self.shared), told: self.shared.told.subscribe() }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say but that it panicked, which was logged.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// The thread.
    fn keep(&self, woken: &Receiver<()>) {
        Priority::Prompt.take();
        while woken.recv().is_ok() {
            while self.reads_on() {}
            if self.told.borrow().stops {
                return;
            }
        }
    }

    /// Reads what is new; says whether there may be more.
    fn reads_on(&self) -> bool {
        let newest = self.store.last_durable_event().0;
        let after = {
            let known = self.newest.lock();
            if known.streams == 0 || newest <= known.last || self.told.borrow().stops {
                return false;
            }
            known.last
        };
        let read = match newest - after {
            count if count > TOO_MANY => None,
            _ => self.read(after, newest).unwrap_or_else(|error| {
                // Streams will ask the store themselves, and tell their clients.
                tracing::error!(%error, "new events could not be read for streams");
                None
            }),
        };
        let mut known = self.newest.lock();
        // Otherwise all streams ended meanwhile, and others came.
        if known.last == after {
            match read {
                Some(batch) => known.push(batch),
                None => known.restart(newest),
            }
        }
        let last = known.last;
        drop(known);
        self.told.send_modify(|told| told.last = last);
        true
    }

    /// The events after an id, up to `newest` or as many as a batch holds; none when retention has removed
    /// some of them already.
    fn read(&self, after: u64, newest: u64) -> Result<Option<Batch>, StoreError> {
        let page = Page {
            direction: Direction::OldestFirst,
            cursor: Some(EventId(after)),
            offset: 0,
            limit: usize::MAX,
        };
        let query = EventQuery {
            ledgers: None,
            contracts: Vec::new(),
            topics: TopicFilter::default(),
            page,
        };
        let mut making = Making::after(after);
        let mut is_full = false;
        self.store.events_within(&query, Bounds::NONE, |event| {
            if event.id.0 > newest {
                return ControlFlow::Break(());
            }
            is_full = making.push(event) >= BATCH;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let last = if is_full { making.last() } else { newest };
        let lost = self.store.lost_events(EventId(after))?;
        let is_whole = lost.is_none_or(|lost| lost.first.0 > last);
        Ok(is_whole.then(|| making.up_to(last)))
    }
}

impl Newest {
    /// Forgets all events, and goes on after this one.
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
        while self.bytes > KEPT
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

/// What one stream hears of new events, for as long as it lasts.
pub(super) struct News {
    shared: Arc<Shared>,
    told: watch::Receiver<Told>,
}

impl News {
    /// Where the events after an id are.
    pub(super) fn after(&self, position: u64) -> Next {
        self.shared.newest.lock().next(position)
    }

    /// Whether the stream is to end.
    pub(super) fn stops(&self) -> bool {
        self.told.borrow().stops
    }

    /// Returns when there is something new to hear since this was called last.
    pub(super) async fn changed(&mut self) {
        // Who tells lives as long as this.
        let _ = self.told.changed().await;
    }
}

impl Drop for News {
    fn drop(&mut self) {
        let mut newest = self.shared.newest.lock();
        newest.streams -= 1;
        if newest.streams == 0 {
            let last = newest.last;
            newest.restart(last);
        }
    }
}
