//! Follows a source into a store as the service does, with waits of milliseconds instead of
//! seconds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use orrery::config::Config;
use orrery::programs::storage;
use orrery::service::{Ended, Ingestion, Node};
use orrery_ledger::domain::{LedgerSeq, LedgerSource, Network, StartPoint};
use orrery_runtime::observe::health::{Component, Health};
use orrery_source::follow::{Candidate, Follower, Reports, Task, Timing};
use orrery_store::{Durability, Store};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::wait::{self, wait_within};

/// Name under which ingestion reports to health.
pub const INGESTION: &str = "ingestion";
/// Name under which the source reports to health.
pub const SOURCE: &str = orrery_source::follow::COMPONENT;
/// Maximum time until a source that recovered is noticed.
pub const RECOVERY: Duration = Duration::from_secs(10);

/// A follower's timing for tests.
pub fn timing() -> Timing {
    Timing {
        poll: Duration::from_millis(5),
        call: Duration::from_secs(1),
        first_retry: Duration::from_millis(5),
        longest_retry: Duration::from_millis(40),
        survey: Duration::from_millis(50),
        silence: Duration::from_secs(1),
        probe: Duration::from_millis(500),
        give_up: None,
    }
}

/// A store that keeps everything of a network.
pub fn open_store(directory: &Path, network: &Network) -> Arc<Store> {
    Arc::new(Store::open_with(directory, Some(network), storage::extensions()).unwrap())
}

/// A source that is being followed into a store. Stops when dropped.
pub struct Following {
    pub store: Arc<Store>,
    pub health: Arc<Health>,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    following: JoinHandle<Ended>,
}

impl Following {
    /// Follows `source` into `store`, from the ledger after the newest stored one, or from `first`
    /// when there is none.
    pub fn start(
        store: &Arc<Store>,
        source: impl LedgerSource + 'static,
        first: Option<u32>,
    ) -> Self {
        Self::start_with(store, source, first, timing())
    }

    /// As [`Self::start`], with another timing.
    pub fn start_with(
        store: &Arc<Store>,
        source: impl LedgerSource + 'static,
        first: Option<u32>,
        timing: Timing,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let node = node(store);
        let follower = follower(&node, Box::new(source), first, timing);
        let (stop, stopping) = watch::channel(false);
        let health = Arc::clone(node.health());
        let following = runtime.spawn(store_all(node, follower, stopping));
        Self { store: Arc::clone(store), health, runtime, stop, following }
    }

    /// Sequence of the newest stored ledger; 0 when there is none.
    pub fn latest(&self) -> u32 {
        self.store.status().latest().map_or(0, |latest| latest.0)
    }

    /// Reason why a component is down; `None` when it is not.
    pub fn down(&self, component: &'static str) -> Option<String> {
        match self.health.components().remove(component) {
            Some(Component::Down { reason }) => Some(reason),
            _ => None,
        }
    }

    /// Waits until `condition` holds.
    #[track_caller]
    pub fn wait_until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        self.wait_within(wait::LIMIT, what, condition);
    }

    /// As [`Self::wait_until`], with another limit.
    #[track_caller]
    pub fn wait_within(&self, limit: Duration, what: &str, condition: impl Fn(&Self) -> bool) {
        wait_within(limit, what, || match condition(self) {
            true => Ok(()),
            false => Err((self.latest(), self.health.components())),
        });
    }

    /// Waits until a component is down for a reason that contains `words`.
    #[track_caller]
    pub fn wait_until_down(&self, component: &'static str, words: &str) {
        self.wait_until(&format!("{component} is down: {words}"), |following| {
            following.down(component).is_some_and(|reason| reason.contains(words))
        });
    }

    /// Waits until everything up to `ledger` is stored and no component is down.
    #[track_caller]
    pub fn wait_until_stored(&self, ledger: u32) {
        self.stored_within(wait::LIMIT, ledger);
    }

    /// As [`Self::wait_until_stored`], within the time that a recovery may take.
    #[track_caller]
    pub fn wait_until_recovered(&self, ledger: u32) {
        self.stored_within(RECOVERY, ledger);
    }

    #[track_caller]
    fn stored_within(&self, limit: Duration, ledger: u32) {
        self.wait_within(limit, &format!("ledger {ledger} is stored"), |following| {
            following.latest() >= ledger && following.health.first_down().is_none()
        });
    }

    /// Waits until following ends by itself, and returns how it ended.
    pub fn end(self) -> Ended {
        self.runtime.block_on(self.following).unwrap()
    }

    /// Stops following and waits until the fetched ledgers are stored.
    pub fn stop(self) {
        self.stop.send_replace(true);
        let ended = self.runtime.block_on(self.following).unwrap();
        assert!(!matches!(ended, Ended::Failed(_)), "{ended:?}");
    }
}

/// Ingestion into a store, with all kinds of events indexed.
pub fn node(store: &Arc<Store>) -> Arc<Node> {
    let mut config = Config::default();
    (config.index.classic_events, config.index.fee_events) = (true, true);
    Arc::new(Node::over(Arc::clone(store), &config).unwrap())
}

/// A follower from the ledger after the newest stored one, or from `first` when there is none.
pub fn follower(
    node: &Node,
    source: Box<dyn LedgerSource>,
    first: Option<u32>,
    timing: Timing,
) -> Follower {
    let store = node.store();
    let next = store.status().latest().and_then(LedgerSeq::next).or(first.map(LedgerSeq));
    let reports = Reports {
        health: Arc::clone(node.health()),
        metrics: Arc::clone(node.metrics()),
        component: SOURCE,
    };
    Follower::new(
        vec![Candidate::new("source", source)],
        Task { next, start: StartPoint::Oldest, last: None },
        store.network().clone(),
        {
            let store = Arc::clone(store);
            Arc::new(move |ledger| store.range_of(ledger))
        },
        reports,
        timing,
        StdRng::seed_from_u64(11),
    )
}

/// Stores the followed ledgers until the follower ends or `stop` becomes true.
pub async fn store_all(
    node: Arc<Node>,
    mut follower: Follower,
    stop: watch::Receiver<bool>,
) -> Ended {
    let ingestion = Ingestion {
        node: &node,
        durability: Durability::Deferred,
        older_up_to: None,
        component: INGESTION,
        stored: Arc::new(|_| {}),
    };
    ingestion.run(&mut follower, stop).await
}
