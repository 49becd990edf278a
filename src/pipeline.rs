//! The main loop: source → decode → verify → prepare → store. Live ledgers, catch-up and imports all
//! go through [`Pipeline::run`]; only the iterator and the durability differ.
//!
//! Ledgers are decoded and prepared ahead on worker threads, and stored one after the other in the
//! order in which they came.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::decode::{DecodeError, HeaderView, decode, protocol_warning};
use crate::domain::LedgerSeq;
use crate::priority::Priority;
use crate::source::{Origin, RawLedger};
use crate::store::{
    Committed, Durability, IndexOptions, LedgerCounts, PreparedLedger, Store, StoreError,
};
use crate::verify::{VerifyError, verify_header};

/// Ledgers that wait between two steps. More would only take memory: the slowest step decides.
const LEDGERS_AHEAD: usize = 16;
/// Ledgers that are stored with one write, at the most, when they come faster than they are stored.
const LEDGERS_AT_ONCE: usize = 16;
/// How soon after a ledger that had to be durable at once another one may come, when they come one after
/// the other; how long ledgers that nobody waits for give way to them at the most; and how often they look.
const OTHERS_COME: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_millis(500);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Bytes from which on no more ledgers are added to a write.
const BYTES_AT_ONCE: usize = 8 << 20;

/// Why ingestion stopped. What was stored before stays stored.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The source failed.
    #[error("{0}")]
    Source(#[source] Box<dyn Error + Send + Sync>),
    /// A ledger is not understood; it is never skipped.
    #[error("{origin}: {source}")]
    Decode {
        /// Where it was read.
        origin: Origin,
        /// Why it is not understood.
        source: DecodeError,
    },
    /// A ledger is not what it says.
    #[error("{origin}: {source}")]
    Verify {
        /// Where it was read.
        origin: Origin,
        /// What does not fit.
        source: VerifyError,
    },
    /// A ledger does not belong to the stored chain, or could not be stored.
    #[error("{origin}: {source}")]
    Store {
        /// Where it was read.
        origin: Origin,
        /// What the store says.
        source: StoreError,
    },
    /// What was stored could not be made durable.
    #[error(transparent)]
    Flush(StoreError),
    /// A thread of the pipeline died.
    #[error("a worker of the pipeline stopped unexpectedly: see the log")]
    Worker,
}

/// A ledger that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ingested {
    /// Its sequence number.
    pub sequence: LedgerSeq,
    /// Whether it is new.
    pub committed: Committed,
    /// What it holds.
    pub counts: LedgerCounts,
}

/// Turns raw ledgers into stored ones.
#[derive(Clone)]
pub struct Pipeline {
    store: Arc<Store>,
    options: Arc<IndexOptions>,
    observer: Arc<dyn StepObserver>,
    workers: usize,
    background: bool,
    /// Newest protocol that was warned about.
    warned_of: Arc<AtomicU32>,
}

/// Learns how long each step of the pipeline took.
pub trait StepObserver: Send + Sync {
    /// One step of one ledger is done.
    fn step(&self, name: &'static str, seconds: f64);
}

struct Slot {
    origin: Origin,
    prepared: Receiver<Result<PreparedLedger, PipelineError>>,
}

struct Work {
    ledger: RawLedger,
    done: SyncSender<Result<PreparedLedger, PipelineError>>,
}

impl Pipeline {
    /// A pipeline into a store, with as many workers as there are processors.
    pub fn new(store: Arc<Store>, options: IndexOptions, observer: Arc<dyn StepObserver>) -> Self {
        let workers = thread::available_parallelism().map_or(2, usize::from);
        Self {
            store,
            options: Arc::new(options),
            observer,
            workers,
            background: false,
            warned_of: Arc::default(),
        }
    }

    /// The same for ledgers that nobody waits for: they are prepared with low priority. They are stored
    /// with the usual one, because others wait for their turn to store.
    pub fn background(&self) -> Self {
        Self { background: true, ..self.clone() }
    }

    /// The store that it fills.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Stores ledgers in the order in which they come until the iterator ends, fails, or `stored`
    /// says to stop. `stored` is called for each ledger once it is stored; with
    /// [`Durability::Deferred`] all are durable when the call returns.
    ///
    /// # Errors
    /// The first [`PipelineError`]; ledgers before it are stored.
    pub fn run<E>(
        &self,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        stored: impl FnMut(&Ingested) -> ControlFlow<()> + Send,
    ) -> Result<(), PipelineError>
    where
        E: Error + Send + Sync + 'static,
    {
        let (work_in, work_out) = sync_channel::<Work>(LEDGERS_AHEAD);
        let (slots_in, slots_out) = sync_channel::<Result<Slot, PipelineError>>(LEDGERS_AHEAD);
        let work_out = Mutex::new(work_out);
        let ended = thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.workers).map(|_| scope.spawn(|| self.work(&work_out))).collect();
            let committer = scope.spawn(|| self.commit_all(slots_out, durability, stored));
            feed(ledgers, &work_in, &slots_in);
            drop((work_in, slots_in));
            let ended = committer.join().unwrap_or(Err(PipelineError::Worker));
            let died = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if died == 0 { ended } else { ended.and(Err(PipelineError::Worker)) }
        });
        if durability == Durability::Deferred {
            self.observe("commit", || self.store.flush()).map_err(PipelineError::Flush)?;
        }
        ended
    }

    fn work(&self, queue: &Mutex<Receiver<Work>>) {
        if self.background {
            Priority::Background.take();
        }
        loop {
            let next = queue.lock().recv();
            let Ok(Work { ledger, done }) = next else { return };
            // Nobody waits any more when storing has stopped.
            let _ = done.send(self.prepare(&ledger));
        }
    }

    /// Everything that can be done for a ledger without knowing the others.
    fn prepare(&self, ledger: &RawLedger) -> Result<PreparedLedger, PipelineError> {
        let origin = || ledger.origin.clone();
        let network = self.store.network().id();
        let view = self
            .observe("decode", || decode(&ledger.xdr, network))
            .map_err(|source| PipelineError::Decode { origin: origin(), source })?;
        self.warn_of_new_protocol(&view.header);
        self.observe("verify", || verify_header(&view.header))
            .map_err(|source| PipelineError::Verify { origin: origin(), source })?;
        self.observe("prepare", || {
            self.store.prepare(&view, ledger.compressed.as_ref(), &self.options)
        })
        .map_err(|source| PipelineError::Store { origin: origin(), source })
    }

    /// Says once for each protocol that it is newer than this version.
    fn warn_of_new_protocol(&self, header: &HeaderView<'_>) {
        if let Some(warning) = protocol_warning(header)
            && self.warned_of.fetch_max(header.protocol, Ordering::Relaxed) < header.protocol
        {
            tracing::warn!("{warning}");
        }
    }

    fn commit_all(
        &self,
        slots: Receiver<Result<Slot, PipelineError>>,
        durability: Durability,
        mut stored: impl FnMut(&Ingested) -> ControlFlow<()>,
    ) -> Result<(), PipelineError> {
        let mut ahead = Ahead { slots, held: None };
        while let Some((ledgers, ended)) = ahead.next(durability) {
            if self.background {
                self.give_way();
            }
            let (origins, ledgers): (Vec<_>, Vec<_>) = ledgers.into_iter().unzip();
            let facts: Vec<_> =
                ledgers.iter().map(|ledger| (ledger.sequence(), *ledger.counts())).collect();
            let (outcomes, done) =
                self.observe("commit", || self.store.commit_all(ledgers, durability));
            let failed_at = origins.into_iter().nth(outcomes.len());
            for ((sequence, counts), committed) in facts.into_iter().zip(outcomes) {
                if stored(&Ingested { sequence, committed, counts }).is_break() {
                    return Ok(());
                }
            }
            done.map_err(|source| match failed_at {
                Some(origin) => PipelineError::Store { origin, source },
                None => PipelineError::Flush(source),
            })?;
            ended?;
        }
        Ok(())
    }

    /// Waits while ledgers are stored that somebody waits for, but not for long.
    fn give_way(&self) {
        let begun = Instant::now();
        while begun.elapsed() < LONGEST_WAIT
            && self.store.since_synced().is_some_and(|since| since < OTHERS_COME)
        {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn observe<T>(&self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let start = std::time::Instant::now();
        let result = work();
        self.observer.step(step, start.elapsed().as_secs_f64());
        result
    }
}

/// Ledgers on their way to being stored, in the order in which they came.
struct Ahead {
    slots: Receiver<Result<Slot, PipelineError>>,
    /// The next one, when it was taken out of `slots` before it was prepared.
    held: Option<Slot>,
}

/// A prepared ledger, and where it comes from.
type Prepared = (Origin, PreparedLedger);

impl Ahead {
    /// Those that are stored next, with one write; and why there are no more, if one failed. None when no
    /// more come.
    fn next(
        &mut self,
        durability: Durability,
    ) -> Option<(Vec<Prepared>, Result<(), PipelineError>)> {
        let first = match self.held.take() {
            Some(slot) => Ok(slot),
            None => self.slots.recv().ok()?,
        };
        let (mut ledgers, mut bytes) = (Vec::new(), 0);
        let mut next = Some(first.and_then(Slot::wait));
        while let Some(prepared) = next {
            match prepared {
                Ok((origin, ledger)) => {
                    bytes += ledger.bytes();
                    ledgers.push((origin, ledger));
                }
                Err(error) => return Some((ledgers, Err(error))),
            }
            if ledgers.len() == LEDGERS_AT_ONCE || bytes >= BYTES_AT_ONCE {
                break;
            }
            next = self.more(durability);
        }
        Some((ledgers, Ok(())))
    }

    /// Another one, if one is on its way; where those before it are to be durable at once, only if it is
    /// prepared already, so that they need not wait for it.
    fn more(&mut self, durability: Durability) -> Option<Result<Prepared, PipelineError>> {
        let slot = match self.slots.try_recv().ok()? {
            Ok(slot) => slot,
            Err(error) => return Some(Err(error)),
        };
        if durability == Durability::Deferred {
            return Some(slot.wait());
        }
        match slot.prepared.try_recv() {
            Ok(prepared) => Some(prepared.map(|ledger| (slot.origin, ledger))),
            Err(TryRecvError::Disconnected) => Some(Err(PipelineError::Worker)),
            Err(TryRecvError::Empty) => {
                self.held = Some(slot);
                None
            }
        }
    }
}

impl Slot {
    /// Waits until the ledger is prepared.
    fn wait(self) -> Result<Prepared, PipelineError> {
        let ledger = self.prepared.recv().map_err(|_| PipelineError::Worker)??;
        Ok((self.origin, ledger))
    }
}

/// Hands ledgers to the workers, and to the committer the places where they will be ready.
fn feed<E: Error + Send + Sync + 'static>(
    ledgers: impl Iterator<Item = Result<RawLedger, E>>,
    work: &SyncSender<Work>,
    slots: &SyncSender<Result<Slot, PipelineError>>,
) {
    for ledger in ledgers {
        let ledger = match ledger {
            Ok(ledger) => ledger,
            Err(error) => {
                // The committer reports it after the ledgers before it.
                let _ = slots.send(Err(PipelineError::Source(Box::new(error))));
                return;
            }
        };
        let (done, prepared) = sync_channel(1);
        let slot = Slot { origin: ledger.origin.clone(), prepared };
        let handed_over = slots.send(Ok(slot)).is_ok() && work.send(Work { ledger, done }).is_ok();
        if !handed_over {
            // The committer has stopped and says why.
            return;
        }
    }
}
