//! Backfill of older ledgers, beside live ingestion or alone. Missing ranges of an order are
//! fetched in pieces, the newest piece first, so that coverage grows downwards from the stored
//! ledgers; within a piece, ledgers are fetched in ascending order. The order is kept in a file
//! until it has ended, so that an interrupted backfill resumes.

mod job;
mod progress;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::sleep;

use super::Node;
use super::tasks::stopped;
use crate::control::{BackfillOrder, BackfillReport, BackfillState};
use crate::domain::LedgerRange;
use crate::source::follow::Candidate;

pub use job::{BackfillError, ORDER_FILE, OrderFile};
use progress::Progress;

/// Time after which an interrupted order that could not resume is tried again.
const RETRY: Duration = Duration::from_secs(60);

/// Opens the sources of an order for a range of ledgers: the named ones, or the configured ones
/// when no names are given. The error is one sentence.
pub type OpenSources = Arc<
    dyn Fn(Vec<String>, LedgerRange) -> BoxFuture<'static, Result<BackfillSources, String>>
        + Send
        + Sync,
>;

/// Sources of older ledgers.
pub struct BackfillSources {
    /// The sources, in the order in which they are asked.
    pub sources: Vec<Candidate>,
    /// Whether all missing ledgers of a gap are fetched as one piece, in ascending order.
    pub in_one_piece: bool,
}

/// Backfill of one data directory; runs one order at a time.
pub struct Backfills {
    node: Arc<Node>,
    open_sources: OpenSources,
    file: OrderFile,
    current: Mutex<Current>,
    orders: mpsc::Sender<BackfillOrder>,
    receiver: AsyncMutex<mpsc::Receiver<BackfillOrder>>,
}

struct Current {
    state: BackfillState,
    progress: Arc<Progress>,
    cancel: watch::Sender<bool>,
    reason: Option<String>,
}

impl Backfills {
    /// Creates the backfill for an open data directory.
    pub fn new(node: Arc<Node>, open_sources: OpenSources) -> Self {
        let file = OrderFile::of(node.store().directory());
        let (orders, receiver) = mpsc::channel(1);
        let current = Mutex::new(Current {
            state: BackfillState::None,
            progress: Arc::default(),
            cancel: watch::channel(false).0,
            reason: None,
        });
        Self { node, open_sources, file, current, orders, receiver: AsyncMutex::new(receiver) }
    }

    /// Runs orders until `stop` turns true, beginning with one that was interrupted: by the end of
    /// the process, or by a panic of an earlier call.
    pub async fn serve(&self, stop: watch::Receiver<bool>) {
        let mut orders = self.receiver.lock().await;
        self.interrupt();
        // Every order is in the file before it is in the channel.
        while orders.try_recv().is_ok() {}
        let mut is_interrupted = self.file.exists();
        loop {
            if is_interrupted {
                is_interrupted = self.resume(&stop).await;
            }
            tokio::select! {
                Some(order) = orders.recv() => {
                    is_interrupted = false;
                    if let Err(error) = self.work(&order, &stop).await {
                        tracing::error!("the backfill failed: {error}");
                        self.ended(BackfillState::Failed, Some(error.to_string()));
                    }
                }
                () = sleep(RETRY), if is_interrupted => {}
                () = stopped(stop.clone()) => return,
            }
        }
    }

    /// Resumes the interrupted order. Returns true if it cannot resume now, and may later: an order
    /// whose source is not there, such as a disk that is not mounted yet, is as good as before.
    async fn resume(&self, stop: &watch::Receiver<bool>) -> bool {
        let before = self.current.lock().reason.clone();
        let order = match self.file.load() {
            Ok(None) => return false,
            Ok(Some(order)) => order,
            Err(error) => {
                self.report_unresumable(None, &error, before.as_deref());
                return true;
            }
        };
        if before.is_none() {
            tracing::info!(from = order.from, to = order.to, "the interrupted backfill resumes");
        }
        let resumed = match self.begin(&order) {
            Ok(()) => self.work(&order, stop).await,
            // Another order has just been accepted in its place.
            Err(BackfillError::Running(_)) => return false,
            Err(error) => Err(error),
        };
        let Err(error) = resumed else { return false };
        self.report_unresumable(Some(&order), &error, before.as_deref());
        true
    }

    /// Makes an order that counts as running one that was interrupted, unless it was cancelled.
    fn interrupt(&self) {
        let was_cancelled = {
            let mut current = self.current.lock();
            let is_running = current.state == BackfillState::Running;
            if is_running {
                current.state = BackfillState::None;
            }
            is_running && *current.cancel.borrow()
        };
        if was_cancelled {
            self.ended(BackfillState::Cancelled, None);
        }
    }

    /// Shows that the interrupted order cannot resume. Its file stays until it is cancelled or another
    /// one begins: what is in the way, such as a setting, may be gone later. It is logged unless it was
    /// reported `before`.
    fn report_unresumable(
        &self,
        order: Option<&BackfillOrder>,
        error: &BackfillError,
        before: Option<&str>,
    ) {
        let reason = format!("the interrupted backfill cannot resume: {error}");
        if before != Some(&*reason) {
            tracing::error!("{reason}");
        }
        job::forget(&self.node);
        let advice = format!("{reason}; `orrery backfill --cancel` discards it");
        self.node.health().up_with(job::STORING, advice);
        let progress = order.map_or_else(Progress::default, |order| {
            let range = job::range_of(order);
            let missing = job::missing(range, &self.node).iter().map(LedgerRange::len).sum();
            Progress::new(range, missing, 0)
        });
        *self.current.lock() = Current {
            state: BackfillState::Failed,
            progress: Arc::new(progress),
            cancel: watch::channel(false).0,
            reason: Some(reason),
        };
    }

    /// Accepts an order, which [`Self::serve`] then runs.
    ///
    /// # Errors
    /// When another order is running, the order is invalid, or its file cannot be written.
    pub fn start(&self, order: BackfillOrder) -> Result<BackfillReport, BackfillError> {
        self.begin(&order)?;
        // The channel has a free slot, because only one order runs at a time.
        let stopping = |_| BackfillError::Other("the service is stopping".to_owned());
        self.orders.try_send(order).map_err(stopping)?;
        Ok(self.report())
    }

    /// Runs one order until it is done. When `stop` turns true, the order is cancelled.
    ///
    /// # Errors
    /// When another order is running, the order is invalid, or its file cannot be written.
    pub async fn run(
        &self,
        order: BackfillOrder,
        stop: watch::Receiver<bool>,
    ) -> Result<BackfillReport, BackfillError> {
        let was_interrupted = self.file.load().is_ok_and(|found| found.as_ref() == Some(&order));
        self.begin(&order)?;
        let (_goes_on, never) = watch::channel(false);
        let mut working = std::pin::pin!(self.work(&order, &never));
        let worked = tokio::select! {
            worked = &mut working => worked,
            () = stopped(stop) => {
                self.cancel();
                working.await
            }
        };
        match worked {
            Ok(()) => {}
            Err(error) if was_interrupted => self.report_unresumable(Some(&order), &error, None),
            Err(error) => {
                tracing::error!("the backfill failed: {error}");
                self.ended(BackfillState::Failed, Some(error.to_string()));
            }
        }
        Ok(self.report())
    }

    /// Cancels the running order, or discards one that cannot resume.
    pub fn cancel(&self) {
        let is_running = {
            let current = self.current.lock();
            current.cancel.send_replace(true);
            current.state == BackfillState::Running
        };
        if !is_running && self.file.exists() {
            self.ended(BackfillState::Cancelled, None);
        }
    }

    /// Returns the progress of the current or last order.
    pub fn report(&self) -> BackfillReport {
        let current = self.current.lock();
        let mut report = current.progress.report();
        report.state = current.state;
        report.reason = match current.state {
            BackfillState::Running => job::stall_reason(self.node.health()),
            _ => current.reason.clone(),
        };
        report
    }

    fn begin(&self, order: &BackfillOrder) -> Result<(), BackfillError> {
        let range = job::check(order, &self.node)?;
        let mut current = self.current.lock();
        if current.state == BackfillState::Running {
            let BackfillReport { from, to, .. } = current.progress.report();
            return Err(BackfillError::Running(LedgerRange::new(from, to)));
        }
        let without_records = self.node.store().ledgers_without_records(range)?;
        self.file.save(order)?;
        let missing = job::missing(range, &self.node).iter().map(LedgerRange::len).sum();
        *current = Current {
            state: BackfillState::Running,
            progress: Arc::new(Progress::new(range, missing, without_records)),
            cancel: watch::channel(false).0,
            reason: None,
        };
        Ok(())
    }

    /// Runs an order that has begun, until it has ended or is interrupted.
    ///
    /// # Errors
    /// Why it has failed. It then still counts as running.
    async fn work(
        &self,
        order: &BackfillOrder,
        stop: &watch::Receiver<bool>,
    ) -> Result<(), BackfillError> {
        let (progress, cancelled) = {
            let current = self.current.lock();
            (Arc::clone(&current.progress), current.cancel.subscribe())
        };
        let (halt, halted) = watch::channel(false);
        let filling = job::fill(&self.node, &self.open_sources, order, &progress, halted);
        let mut filling = std::pin::pin!(filling);
        let filled = tokio::select! {
            filled = &mut filling => filled,
            () = stopped(stop.clone()) => {
                halt.send_replace(true);
                filling.await
            }
            () = stopped(cancelled.clone()) => {
                halt.send_replace(true);
                filling.await
            }
        };
        match filled? {
            true => self.ended(BackfillState::Done, None),
            // The order's file stays, so that the backfill resumes when the service starts again.
            false if *stop.borrow() && !*cancelled.borrow() => {}
            false => self.ended(BackfillState::Cancelled, None),
        }
        Ok(())
    }

    fn ended(&self, state: BackfillState, reason: Option<String>) {
        if let Err(error) = self.file.remove() {
            tracing::error!("{error}");
        }
        let report = {
            let mut current = self.current.lock();
            (current.state, current.reason) = (state, reason);
            current.progress.report()
        };
        job::forget(&self.node);
        tracing::info!(
            from = report.from,
            to = report.to,
            stored = report.stored,
            ?state,
            "the backfill has ended"
        );
    }
}
