//! The ingestion loop: source → decode → verify → prepare → store. Live ledgers, catch-up and
//! imports all go through [`Pipeline::run`]; only the iterator and the durability differ.
//!
//! Worker threads decode and prepare ledgers ahead; one thread stores them in the order of the
//! iterator. A [`Gate`] holds ledgers back until they are attested; a [`Contradiction`] between a
//! source and trusted validators ends the run. [`attestation`] says what is attested of the stored
//! ledgers, and by whom.

pub mod attestation;
mod attested;
mod contradiction;
mod error;
mod held;
mod queue;
mod suspicion;
mod waiting;

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use self::queue::{PendingLedgers, Prepared, Slot, Work, feed};
use self::suspicion::{Suspicion, clear_if_settled};
use orrery_ledger::decode::{HeaderView, decode, protocol_warning};
use orrery_ledger::domain::{LedgerSeq, RawLedger};
use orrery_ledger::verify::{Verified, verify};
use orrery_runtime::beside::beside;
use orrery_runtime::priority::Priority;
use orrery_store::{Committed, Durability, IndexOptions, LedgerCounts, PreparedLedger, Store};

pub use self::attested::Gate;
pub use self::contradiction::{Contradiction, Signer, Trust};
pub use self::error::PipelineError;
pub use self::held::HeldError;
pub use self::waiting::WaitingLedgers;

/// Capacity of the queues between the steps, in ledgers. A larger one would only take memory: the
/// slowest step determines the throughput.
const QUEUE_CAPACITY: usize = 16;
/// Size in bytes from which a ledger is checked and prepared at the same time, so that it is stored sooner
/// where a processor is idle.
const LARGE_LEDGER: usize = 2 << 20;
/// How background ingestion gives way to live ingestion: time after a synced write within which
/// another one is expected; longest wait for it; polling interval.
const LIVE_WRITE_WINDOW: Duration = Duration::from_millis(50);
const MAX_YIELD: Duration = Duration::from_millis(500);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A stored ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ingested {
    /// Sequence number of the ledger.
    pub sequence: LedgerSeq,
    /// Whether the ledger is new.
    pub committed: Committed,
    /// Counts of its transactions and events.
    pub counts: LedgerCounts,
    /// Whether retention has removed events or transactions of it, which are not stored again.
    pub lacks_records: bool,
}

/// Decodes, verifies, prepares and stores raw ledgers.
#[derive(Clone)]
pub struct Pipeline {
    store: Arc<Store>,
    options: Arc<IndexOptions>,
    trust: Trust,
    observer: Arc<dyn StepObserver>,
    workers: usize,
    background: bool,
    /// Newest protocol version for which a warning was logged.
    warned_protocol: Arc<AtomicU32>,
    /// Whether a warning was logged of a ledger that is not as its header says.
    warned_fault: Arc<AtomicBool>,
    /// Where stored ledgers were read.
    suspicion: Arc<Suspicion>,
    /// The ledgers that wait until they may be stored.
    waiting: Arc<WaitingLedgers>,
}

/// Observes the steps of the pipeline, which does not depend on metrics: benchmarks sum up the steps.
pub trait StepObserver: Send + Sync {
    /// Called after each step with the step's name and its duration in seconds.
    fn step(&self, name: &'static str, seconds: f64);

    /// Called for each ledger that has passed the checks, with what they have found.
    fn verified(&self, _verified: &Verified) {}
}

impl Pipeline {
    /// Creates a pipeline into a store, with as many workers as there are processors. It refuses
    /// every ledger that is not as its header says, and records no signatures.
    pub fn new(store: Arc<Store>, options: IndexOptions, observer: Arc<dyn StepObserver>) -> Self {
        let workers = thread::available_parallelism().map_or(2, usize::from);
        Self {
            store,
            options: Arc::new(options),
            trust: Trust::default(),
            observer,
            workers,
            background: false,
            warned_protocol: Arc::default(),
            warned_fault: Arc::default(),
            suspicion: Arc::default(),
            waiting: Arc::default(),
        }
    }

    /// Returns the pipeline with other checks and other trusted validators.
    pub fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Returns a copy of the pipeline for background ingestion, whose workers have low priority.
    /// Its storing thread has the usual priority, because live ingestion may have to wait for its
    /// writes.
    pub fn background(&self) -> Self {
        Self { background: true, suspicion: Arc::default(), ..self.clone() }
    }

    /// Returns the pipeline, which shows there the ledgers that wait until they may be stored.
    pub fn with_waiting(self, waiting: Arc<WaitingLedgers>) -> Self {
        Self { waiting, ..self }
    }

    /// Returns a gate for [`Self::run_through`], at which no ledger waits.
    pub fn gate(&self) -> Gate {
        Gate::new(&self.store, &self.trust, &self.suspicion, &self.waiting)
    }

    /// Returns the store that the pipeline writes to.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Stores ledgers in the order of the iterator until the iterator ends or fails, or `on_stored`
    /// returns `Break`. `on_stored` is called for each ledger after it is stored. With
    /// [`Durability::Deferred`], all are durable when this returns.
    ///
    /// # Errors
    /// The first [`PipelineError`]; the ledgers before it are stored.
    pub fn run<E>(
        &self,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        on_stored: impl FnMut(&Ingested) -> ControlFlow<()> + Send,
    ) -> Result<(), PipelineError>
    where
        E: Error + Send + Sync + 'static,
    {
        self.run_through(&mut self.gate(), ledgers, durability, true, on_stored)
    }

    /// Does the same with ledgers that go on from those of an earlier run: what still waited at the end
    /// of that one is in `gate`. What waits at the end of this run stays there, unless these are the last
    /// ledgers: then it is an error that nothing attests it.
    ///
    /// # Errors
    /// As [`Self::run`]; nothing waits in `gate` any more then.
    pub fn run_through<E>(
        &self,
        gate: &mut Gate,
        ledgers: impl Iterator<Item = Result<RawLedger, E>>,
        durability: Durability,
        are_last: bool,
        on_stored: impl FnMut(&Ingested) -> ControlFlow<()> + Send,
    ) -> Result<(), PipelineError>
    where
        E: Error + Send + Sync + 'static,
    {
        let (work_in, work_out) = sync_channel::<Work>(QUEUE_CAPACITY);
        let (slots_in, slots_out) = sync_channel::<Result<Slot, PipelineError>>(QUEUE_CAPACITY);
        let work_out = Mutex::new(work_out);
        let ended = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers)
                .map(|_| scope.spawn(|| self.work(&work_out, durability)))
                .collect();
            let committer =
                scope.spawn(|| self.commit_all(slots_out, gate, durability, are_last, on_stored));
            feed(ledgers, &work_in, &slots_in);
            drop((work_in, slots_in));
            let ended = committer.join().unwrap_or(Err(PipelineError::Worker));
            let died = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if died == 0 { ended } else { ended.and(Err(PipelineError::Worker)) }
        });
        if ended.is_err() {
            gate.forget();
        }
        if durability == Durability::Deferred {
            self.observe("commit", || self.store.flush()).map_err(PipelineError::Flush)?;
        }
        ended
    }

    fn work(&self, queue: &Mutex<Receiver<Work>>, durability: Durability) {
        if self.background {
            Priority::Background.apply_to_current_thread();
        }
        loop {
            let next = queue.lock().recv();
            let Ok(Work { ledger, done }) = next else { return };
            let mut prepared = self.prepare(&ledger);
            if durability == Durability::Deferred
                && let Ok(prepared) = &mut prepared
            {
                prepared.drop_decompressed();
            }
            // The receiver is gone when storing has stopped.
            let _ = done.send(prepared);
        }
    }

    /// Runs all steps that do not depend on other ledgers.
    fn prepare(&self, ledger: &RawLedger) -> Result<PreparedLedger, PipelineError> {
        let origin = || ledger.origin.clone();
        let network = self.store.network().id();
        let view = self
            .observe("decode", || decode(&ledger.xdr, network))
            .map_err(|source| PipelineError::Decode { origin: origin(), source })?;
        self.warn_of_new_protocol(&view.header);
        let checking = || self.observe("verify", || verify(&view, network, self.trust.policy));
        let unchecked = |source| PipelineError::Verify { origin: origin(), source };
        let preparing = || {
            self.observe("prepare", || {
                self.store.prepare(&view, ledger.compressed.as_ref(), &self.options)
            })
        };
        // What was prepared of a ledger that is refused is dropped.
        let (verified, prepared) = match ledger.xdr.len() >= LARGE_LEDGER {
            true => {
                let (verified, prepared) = beside(checking, preparing);
                (verified.map_err(unchecked)?, prepared)
            }
            false => (checking().map_err(unchecked)?, preparing()),
        };
        self.warn_of_fault(&verified);
        self.observer.verified(&verified);
        let validators = self.trust.validators.as_ref();
        let signer = verified.signer.filter(|signer| {
            validators.is_some_and(|trusted| trusted.organisation_of(signer).is_some())
        });
        let prepared =
            prepared.map_err(|source| PipelineError::Store { origin: origin(), source })?;
        let (reported, unproven) = (&verified.reported, verified.invocations.unproven);
        Ok(prepared.signed_by(signer).marked(reported.is_some(), unproven > 0))
    }

    /// Logs a warning once for each protocol version that is newer than this program supports.
    fn warn_of_new_protocol(&self, header: &HeaderView<'_>) {
        if let Some(warning) = protocol_warning(header)
            && self.warned_protocol.fetch_max(header.protocol, Ordering::Relaxed) < header.protocol
        {
            tracing::warn!("{warning}");
        }
    }

    /// Logs a warning of the first ledger that is stored although it is not as its header says:
    /// those of a load generator are all alike.
    fn warn_of_fault(&self, verified: &Verified) {
        if let Some(fault) = &verified.reported
            && !self.warned_fault.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                "{fault}; it is stored, as trust.events says, and further ones are not reported here"
            );
        }
    }

    fn commit_all(
        &self,
        slots: Receiver<Result<Slot, PipelineError>>,
        gate: &mut Gate,
        durability: Durability,
        are_last: bool,
        mut on_stored: impl FnMut(&Ingested) -> ControlFlow<()>,
    ) -> Result<(), PipelineError> {
        let mut pending = PendingLedgers { slots, peeked: None };
        while let Some((ledgers, ended)) = pending.next_batch(durability) {
            let (ledgers, held) = gate.admit(ledgers);
            if self.commit(ledgers, durability, &mut on_stored)?.is_break() {
                return Ok(());
            }
            held?;
            // Those that need not wait any more, because a contradiction has ended.
            let (released, _) = gate.admit(Vec::new());
            if self.commit(released, durability, &mut on_stored)?.is_break() {
                return Ok(());
            }
            ended?;
        }
        if !are_last {
            return Ok(());
        }
        let (ledgers, held) = gate.finish();
        if self.commit(ledgers, durability, &mut on_stored)?.is_break() {
            return Ok(());
        }
        held
    }

    /// Stores ledgers with one write.
    fn commit(
        &self,
        ledgers: Vec<Prepared>,
        durability: Durability,
        on_stored: &mut impl FnMut(&Ingested) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PipelineError> {
        if ledgers.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        if self.background {
            self.yield_to_live();
        }
        let (origins, ledgers): (Vec<_>, Vec<_>) = ledgers.into_iter().unzip();
        let facts: Vec<_> =
            ledgers.iter().map(|ledger| (ledger.sequence(), *ledger.counts())).collect();
        let (outcomes, done) =
            self.observe("commit", || self.store.commit_all(ledgers, durability));
        let failed_at = origins.get(outcomes.len()).cloned();
        for (((sequence, counts), committed), origin) in
            facts.into_iter().zip(outcomes).zip(origins)
        {
            if committed == Committed::New {
                self.suspicion.delivered(sequence, origin);
            }
            let lacks_records = committed == Committed::AlreadyStored
                && self.store.lacks_records(sequence, &counts);
            let ingested = Ingested { sequence, committed, counts, lacks_records };
            if on_stored(&ingested).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        clear_if_settled(&self.trust, &self.store).map_err(PipelineError::Flush)?;
        done.map_err(|source| match failed_at {
            Some(origin) => PipelineError::Store { origin, source },
            None => PipelineError::Flush(source),
        })?;
        Ok(ControlFlow::Continue(()))
    }

    /// Waits while live ingestion stores ledgers, for at most [`MAX_YIELD`].
    fn yield_to_live(&self) {
        let begun = Instant::now();
        while begun.elapsed() < MAX_YIELD
            && self.store.time_since_synced().is_some_and(|since| since < LIVE_WRITE_WINDOW)
        {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn observe<T>(&self, step: &'static str, work: impl FnOnce() -> T) -> T {
        let start = std::time::Instant::now();
        let result = work();
        self.observer.step(step, start.elapsed().as_secs_f64());
        result
    }
}
