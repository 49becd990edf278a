//! Follows the sources of a network: stores the ledgers that they yield.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::watch;

use super::running_core::RunningCore;
use super::{Ended, Ingestion, Node, ingest};
use crate::domain::StartPoint;
use crate::source::follow::{COMPONENT, Candidate, Follower, Reports, Task, Timing};
use crate::store::Durability;

/// Name under which ingestion reports to health.
const INGESTION: &str = "ingestion";

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

/// Stores the ledgers of the sources, from the one after the newest stored ledger on.
pub(super) async fn follow(node: Arc<Node>, following: Following, stop: watch::Receiver<bool>) {
    let store = node.store();
    let status = store.status();
    for pair in status.ranges.windows(2) {
        let (from, to) = (pair[0].last.0.saturating_add(1), pair[1].first.0.saturating_sub(1));
        tracing::info!(
            "ledgers {from} to {to} are missing between stored ones: `orrery backfill --from {from} \
             --to {to}` fetches them"
        );
    }
    let next = status.latest().and_then(|latest| latest.next());
    let task = Task { next, start: following.start, last: None };
    let mut follower = Follower::new(
        following.sources,
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
        stored: Arc::new(|_| {}),
    };
    match ingestion.run(&mut follower, stop).await {
        Ended::Followed(end) => tracing::info!(?end, "the source ended"),
        Ended::Failed(error) => tracing::error!("following has ended: {error}"),
        Ended::Stopped => {}
    }
}
