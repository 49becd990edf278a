//! Follows the sources of a network: stores the ledgers that they yield.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::{Mutex, watch};

use super::network_node::RunningCore;
use super::tasks::Finished;
use super::{Ended, Ingestion, Node, ingest};
use crate::domain::{LedgerSeq, StartPoint};
use crate::pipeline::Ingested;
use crate::source::follow::{COMPONENT, Candidate, Follower, Reports, Task, Timing};
use crate::store::{Durability, Store, StoreError};

/// Name under which ingestion reports to health.
pub(super) const INGESTION: &str = "ingestion";

/// The sources of ledgers while the service runs.
pub struct Following {
    /// The usual source first, then the sources that fill its gaps.
    pub sources: Vec<Candidate>,
    /// Where an empty store begins.
    pub start: StartPoint,
    /// The stellar-core behind the usual source, if that is one.
    pub(super) running: Option<RunningCore>,
}

impl Following {
    /// Follows these sources, the usual one first; an empty store begins at `start`.
    pub fn new(sources: Vec<Candidate>, start: StartPoint) -> Self {
        Self { sources, start, running: None }
    }

    /// Returns the names of the sources.
    pub fn names(&self) -> Vec<String> {
        self.sources.iter().map(|candidate| candidate.source.name()).collect()
    }
}

/// The sources that a task follows. They outlive a panic of the task.
pub(super) struct Followed {
    start: StartPoint,
    held: Mutex<Held>,
}

/// Who has the sources: the follower, once there is one.
struct Held {
    sources: Vec<Candidate>,
    follower: Option<Follower>,
}

impl From<Following> for Followed {
    fn from(Following { sources, start, .. }: Following) -> Self {
        Self { start, held: Mutex::new(Held { sources, follower: None }) }
    }
}

/// Stores the ledgers of the sources, from the position of the live source on. Called again after a
/// failure, it begins with a new follower of the same sources.
///
/// # Errors
/// When the store cannot say where to begin, or record it.
pub(super) async fn follow(
    node: Arc<Node>,
    followed: Arc<Followed>,
    stop: watch::Receiver<bool>,
) -> Result<Finished, StoreError> {
    let store = node.store();
    let next = begin(store, followed.start)?;
    let task = Task { next, start: followed.start, last: None };
    let mut held = followed.held.lock().await;
    if let Some(earlier) = held.follower.take() {
        held.sources = earlier.into_sources();
    }
    let follower = Follower::new(
        std::mem::take(&mut held.sources),
        task,
        store.network().clone(),
        ingest::range_of(store),
        Reports {
            health: Arc::clone(node.health()),
            metrics: Arc::clone(node.metrics()),
            component: COMPONENT,
        },
        Timing::default(),
        StdRng::from_os_rng(),
    );
    let ingestion = Ingestion {
        node: &node,
        durability: Durability::Synced,
        older_up_to: None,
        component: INGESTION,
        stored: record_first(Arc::clone(store), next.is_some()),
    };
    match ingestion.run(held.follower.insert(follower), stop).await {
        Ended::Followed(end) => tracing::info!(?end, "the source ended"),
        Ended::Failed(error) => tracing::error!("following has ended: {error}"),
        Ended::Stopped => {}
    }
    Ok(Finished)
}

/// Returns the ledger at which following begins, and records it; `None` when the source decides.
fn begin(store: &Store, start: StartPoint) -> Result<Option<LedgerSeq>, StoreError> {
    let next = next_live_ledger(store, start)?;
    if let Some(next) = next {
        store.set_live_position(next)?;
    }
    for pair in store.status().ranges.windows(2) {
        let (from, to) = (pair[0].last.0.saturating_add(1), pair[1].first.0.saturating_sub(1));
        if next.is_none_or(|next| from < next.0) {
            tracing::info!(
                "ledgers {from} to {to} are missing between stored ones: `orrery backfill --from \
                 {from} --to {to}` fetches them"
            );
        } else {
            tracing::info!(
                "ledgers {from} to {to} are missing between stored ones, and are fetched now"
            );
        }
    }
    Ok(next)
}

/// Returns the next ledger that the live source has to yield; `None` when the store is empty, and
/// the source begins at `start`. Ledgers beyond it may be stored already, by an import beside the
/// service: what is missing before them is not passed over. A sequence number as `start` that lies in
/// the stored ledgers beyond a gap gives the ledgers of the gap up.
pub(super) fn next_live_ledger(
    store: &Store,
    start: StartPoint,
) -> Result<Option<LedgerSeq>, StoreError> {
    let Some(latest) = store.status().latest() else { return Ok(None) };
    let next = match store.live_position()? {
        Some(position) => first_missing(store, position),
        None => latest.next(),
    };
    Ok(match start {
        StartPoint::At(start) if Some(start) > next && store.range_of(start).is_some() => {
            first_missing(store, start)
        }
        _ => next,
    })
}

/// Returns the first ledger from `from` on that is not stored; `None` after the last sequence number.
fn first_missing(store: &Store, from: LedgerSeq) -> Option<LedgerSeq> {
    match store.range_of(from) {
        Some(range) => range.last.next(),
        None => Some(from),
    }
}

/// Returns a callback that records the position of the live source with the first ledger that it
/// yields, unless it is recorded already.
fn record_first(store: Arc<Store>, is_recorded: bool) -> Arc<dyn Fn(&Ingested) + Send + Sync> {
    let is_recorded = AtomicBool::new(is_recorded);
    Arc::new(move |ingested| {
        if is_recorded.load(Ordering::Relaxed) {
            return;
        }
        match store.set_live_position(ingested.sequence) {
            Ok(()) => is_recorded.store(true, Ordering::Relaxed),
            // With the next ledger then: until it is recorded, a start goes on after the newest one.
            Err(error) => {
                tracing::warn!("the position in the network is not recorded yet: {error}")
            }
        }
    })
}
