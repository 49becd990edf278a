//! A source that is followed into a store as the service does it, with shorter waits: seconds become
//! milliseconds.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use orrery::config::Config;
use orrery::domain::{LedgerSeq, Network, StartPoint};
use orrery::observe::health::{Component, Health};
use orrery::service::{Ended, Ingestion, Ledgers};
use orrery::source::follow::{Candidate, Follower, LedgerSource, Reports, Task, Timing};
use orrery::store::{Durability, Store};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Name under which storing reports to health.
pub const INGESTION: &str = "ingestion";
/// Name under which the source reports to health.
pub const SOURCE: &str = orrery::source::follow::COMPONENT;
/// A source that was healed must be noticed within this time.
pub const RECOVERY: Duration = Duration::from_secs(10);

/// What has not come true by then never will.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(1);

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
    Arc::new(Store::open(directory, Some(network)).unwrap())
}

/// Something that is followed. Stops when dropped.
pub struct Following {
    pub store: Arc<Store>,
    pub health: Arc<Health>,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    following: JoinHandle<Ended>,
}

impl Following {
    /// Follows `source` into `store`, from what is stored on or from `first`.
    pub fn start(
        store: &Arc<Store>,
        source: impl LedgerSource + 'static,
        first: Option<u32>,
    ) -> Self {
        Self::start_with(store, source, first, timing())
    }

    /// As [`Self::start`], with a timing of one's own.
    pub fn start_with(
        store: &Arc<Store>,
        source: impl LedgerSource + 'static,
        first: Option<u32>,
        timing: Timing,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let ledgers = ledgers(store);
        let follower = follower(&ledgers, Box::new(source), first, timing);
        let (stop, stopping) = watch::channel(false);
        let health = Arc::clone(ledgers.health());
        let following = runtime.spawn(store_all(ledgers, follower, stopping));
        Self { store: Arc::clone(store), health, runtime, stop, following }
    }

    /// The newest ledger stored, 0 without any.
    pub fn latest(&self) -> u32 {
        self.store.status().latest().map_or(0, |latest| latest.0)
    }

    /// Why a component is down, when it is.
    pub fn down(&self, component: &'static str) -> Option<String> {
        match self.health.components().remove(component) {
            Some(Component::Down(reason)) => Some(reason),
            _ => None,
        }
    }

    /// Waits until `condition` holds, which must be within `limit`.
    pub fn wait(&self, what: &str, limit: Duration, condition: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(
                start.elapsed() < limit,
                "waited {limit:?} until {what}; stored up to {}, {:?}",
                self.latest(),
                self.health.components()
            );
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until a component is down for a reason that holds `words`.
    pub fn wait_until_down(&self, component: &'static str, words: &str) {
        self.wait(&format!("{component} is down: {words}"), LONGEST_WAIT, |following| {
            following.down(component).is_some_and(|reason| reason.contains(words))
        });
    }

    /// Waits until everything up to `ledger` is stored and the source works.
    pub fn wait_until_stored(&self, ledger: u32, limit: Duration) {
        self.wait(&format!("ledger {ledger} is stored"), limit, |following| {
            following.latest() >= ledger && following.health.first_down().is_none()
        });
    }

    /// Waits until following has ended by itself, and says how.
    pub fn end(self) -> Ended {
        self.runtime.block_on(self.following).unwrap()
    }

    /// Stops following and waits until what was fetched is stored.
    pub fn stop(self) {
        self.stop.send_replace(true);
        let ended = self.runtime.block_on(self.following).unwrap();
        assert!(!matches!(ended, Ended::GivenUp(_)), "{ended:?}");
    }
}

/// A pipeline into a store that indexes everything.
pub fn ledgers(store: &Arc<Store>) -> Arc<Ledgers> {
    let mut config = Config::default();
    (config.index.classic_events, config.index.fee_events) = (true, true);
    Arc::new(Ledgers::over(Arc::clone(store), &config).unwrap())
}

/// A follower from what is stored on or from `first`.
pub fn follower(
    ledgers: &Ledgers,
    source: Box<dyn LedgerSource>,
    first: Option<u32>,
    timing: Timing,
) -> Follower {
    let store = ledgers.store();
    let next = store.status().latest().and_then(LedgerSeq::next).or(first.map(LedgerSeq));
    let reports = Reports {
        health: Arc::clone(ledgers.health()),
        metrics: Arc::clone(ledgers.metrics()),
        component: SOURCE,
    };
    Follower::new(
        vec![Candidate::new("source", source)],
        Task { next, start: StartPoint::Oldest, last: None },
        store.network().clone(),
        Arc::clone(store) as _,
        reports,
        timing,
        StdRng::seed_from_u64(11),
    )
}

/// Stores what is followed until it ends or `stop` turns true.
pub async fn store_all(
    ledgers: Arc<Ledgers>,
    mut follower: Follower,
    stop: watch::Receiver<bool>,
) -> Ended {
    let ingestion = Ingestion {
        ledgers: &ledgers,
        durability: Durability::Deferred,
        older_up_to: None,
        component: INGESTION,
        stored: Arc::new(|_| {}),
    };
    ingestion.run(&mut follower, stop).await
}
