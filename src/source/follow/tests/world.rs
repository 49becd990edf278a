//! Simulation on the virtual clock: a network that closes ledgers, providers whose faults can be
//! switched on and off, and a store that accepts only ledgers that link.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use orrery_ledger::domain::{
    Fetched, LedgerRange, LedgerSeq, Network, Origin, RawLedger, SourceError, StartPoint,
};
use orrery_runtime::observe::health::{Component, Health};
use orrery_runtime::observe::metrics::Metrics;
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::follow::*;

/// Time between two ledgers.
const CLOSE_INTERVAL: Duration = Duration::from_secs(5);
/// Number of ledgers that a provider yields per request.
const PAGE: u32 = 20;

/// State of a provider; every field can be changed while the provider is followed.
pub struct Provider {
    /// Newest ledger when the clock started.
    pub tip: u32,
    /// Number of newest ledgers that the provider keeps; `None` keeps all.
    pub window: Option<u32>,
    /// Whether its network goes on closing ledgers.
    pub closing: bool,
    /// Time between two ledgers.
    pub close_interval: Duration,
    pub mode: Mode,
    /// Chain that its ledgers belong to.
    pub chain: u8,
    pub passphrase: &'static str,
    /// Ledgers that it does not have.
    pub missing: BTreeSet<u32>,
    /// Ledgers whose bytes are damaged.
    pub damaged: BTreeSet<u32>,
    /// Ledgers that do not link to the one before.
    pub unlinked: BTreeSet<u32>,
    /// Requested ledgers, with the time of each request.
    pub asked: Vec<(Duration, u32)>,
    since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Good,
    /// Yields ledgers in reverse order, each twice.
    Shuffles,
    Fails,
    Hangs,
    /// Answers every request for ledgers with [`Fetched::NotYet`].
    Silent,
    /// Reports its range, but does not yield ledgers of it.
    RangeOnly,
}

pub type Shared = Arc<Mutex<Provider>>;

pub fn provider(tip: u32) -> Shared {
    Arc::new(Mutex::new(Provider {
        tip,
        window: None,
        closing: true,
        close_interval: CLOSE_INTERVAL,
        mode: Mode::Good,
        chain: 0,
        passphrase: "Apply Load",
        missing: BTreeSet::new(),
        damaged: BTreeSet::new(),
        unlinked: BTreeSet::new(),
        asked: Vec::new(),
        since: Instant::now(),
    }))
}

impl Provider {
    pub fn range(&self) -> LedgerRange {
        let closed = self.since.elapsed().as_millis() / self.close_interval.as_millis();
        let last = self.tip + if self.closing { closed as u32 } else { 0 };
        let first = self.window.map_or(2, |window| (last + 1).saturating_sub(window).max(2));
        LedgerRange::new(first, last)
    }

    fn yields(&mut self, from: u32) -> Result<Fetched, SourceError> {
        self.asked.push((self.since.elapsed(), from));
        let range = self.range();
        if self.mode == Mode::Silent || range.last.0 < from {
            return Ok(Fetched::NotYet);
        }
        if self.mode == Mode::RangeOnly {
            return Err(SourceError::Retryable("it has no time".to_owned()));
        }
        if range.first.0 > from {
            return Err(SourceError::Gone(format!("ledger {from} is gone")));
        }
        let last = range.last.0.min(from + PAGE - 1);
        let there = (from..=last).filter(|sequence| !self.missing.contains(sequence));
        let mut ledgers: Vec<RawLedger> = there.map(|sequence| self.ledger(sequence)).collect();
        if self.mode == Mode::Shuffles {
            ledgers.extend(ledgers.clone());
            ledgers.reverse();
        }
        Ok(Fetched::Ledgers(ledgers))
    }

    fn ledger(&self, sequence: u32) -> RawLedger {
        let parent = if self.unlinked.contains(&sequence) { 99 } else { self.chain };
        let xdr =
            if self.damaged.contains(&sequence) { Vec::new() } else { vec![self.chain, parent] };
        let origin = Origin { name: "world".into(), position: None };
        RawLedger { sequence: LedgerSeq(sequence), xdr, compressed: None, origin }
    }
}

struct Source(&'static str, Shared);

impl Source {
    fn answer<'a, T: Send + 'a>(
        &'a self,
        work: impl FnOnce(&mut Provider) -> Result<T, SourceError> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, SourceError>> {
        async move {
            // Each request takes a little time.
            sleep(Duration::from_millis(20)).await;
            if self.1.lock().mode == Mode::Hangs {
                std::future::pending::<()>().await;
            }
            let mut provider = self.1.lock();
            match provider.mode {
                Mode::Fails => Err(SourceError::Retryable(format!("{} fails", self.0))),
                _ => work(&mut provider),
            }
        }
        .boxed()
    }
}

impl LedgerSource for Source {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn passphrase(&mut self) -> BoxFuture<'_, Result<Option<String>, SourceError>> {
        self.answer(|provider| Ok(Some(provider.passphrase.to_owned())))
    }

    fn range(&mut self) -> BoxFuture<'_, Result<Option<LedgerRange>, SourceError>> {
        self.answer(|provider| Ok(Some(provider.range())))
    }

    fn fetch(&mut self, from: LedgerSeq) -> BoxFuture<'_, Result<Fetched, SourceError>> {
        self.answer(move |provider| provider.yields(from.0))
    }
}

/// Stored ledgers and the chain that each belongs to.
#[derive(Default)]
pub struct Stored(Mutex<BTreeMap<u32, u8>>);

impl Stored {
    fn store(&self, ledger: &RawLedger) -> Result<(), Refusal> {
        let sequence = ledger.sequence.0;
        let &[chain, parent] = ledger.xdr.as_slice() else {
            return Err(Refusal::Data(format!("ledger {sequence} is damaged")));
        };
        let mut stored = self.0.lock();
        match stored.get(&sequence) {
            Some(known) if *known == chain => return Ok(()),
            Some(_) => return Err(Refusal::Conflict(format!("ledger {sequence} is another"))),
            None => {}
        }
        if stored.get(&(sequence - 1)).is_some_and(|before| *before != parent) {
            return Err(Refusal::Link(format!("ledger {sequence} does not link")));
        }
        stored.insert(sequence, chain);
        Ok(())
    }

    pub fn latest(&self) -> Option<u32> {
        self.0.lock().last_key_value().map(|(sequence, _)| *sequence)
    }

    pub fn oldest(&self) -> Option<u32> {
        self.0.lock().first_key_value().map(|(sequence, _)| *sequence)
    }

    pub fn insert(&self, range: std::ops::RangeInclusive<u32>) {
        self.0.lock().extend(range.map(|sequence| (sequence, 0)));
    }

    /// Asserts that the stored ledgers form the original chain without gaps.
    pub fn assert_whole(&self) {
        let stored = self.0.lock();
        let (first, last) =
            (*stored.first_key_value().unwrap().0, *stored.last_key_value().unwrap().0);
        assert_eq!(stored.len() as u32, last - first + 1, "no gap");
        assert!(stored.values().all(|chain| *chain == 0), "nothing wrong is stored");
    }
}

impl Stored {
    fn range_of(&self, ledger: LedgerSeq) -> Option<LedgerRange> {
        let stored = self.0.lock();
        stored.get(&ledger.0)?;
        let end = (ledger.0..).find(|sequence| !stored.contains_key(sequence)).unwrap();
        Some(LedgerRange::new(ledger, end - 1))
    }
}

/// A running follower, and the state that it changes.
pub struct World {
    pub stored: Arc<Stored>,
    pub health: Arc<Health>,
    pub metrics: Arc<Metrics>,
    /// While true, the store takes nothing from the follower.
    pub stalled: Arc<Mutex<bool>>,
    pub following: JoinHandle<Result<Followed, FollowError>>,
}

pub fn task(next: impl Into<Option<u32>>) -> Task {
    Task { next: next.into().map(LedgerSeq), start: StartPoint::Tip, last: None }
}

impl World {
    /// Follows providers under their names on the providers' usual network.
    pub fn follow(task: Task, sources: &[(&'static str, &Shared)], stored: Stored) -> Self {
        Self::on(Network::from_passphrase("Apply Load"), task, sources, stored)
    }

    pub fn on(
        network: Network,
        task: Task,
        sources: &[(&'static str, &Shared)],
        stored: Stored,
    ) -> Self {
        let (health, stored) = (Arc::new(Health::default()), Arc::new(stored));
        let (metrics, stalled) = (Arc::new(Metrics::new().unwrap()), Arc::default());
        let candidates = sources.iter().map(|(name, provider)| {
            Candidate::new(*name, Box::new(Source(name, Arc::clone(provider))))
        });
        let follower = Follower::new(
            candidates.collect(),
            task,
            network,
            {
                let stored = Arc::clone(&stored);
                Arc::new(move |ledger| stored.range_of(ledger))
            },
            Reports {
                health: Arc::clone(&health),
                metrics: Arc::clone(&metrics),
                component: COMPONENT,
            },
            Timing::default(),
            StdRng::seed_from_u64(7),
        );
        let following =
            tokio::spawn(store_all(follower, Arc::clone(&stored), Arc::clone(&stalled)));
        Self { stored, health, metrics, stalled, following }
    }

    pub fn source(&self) -> Option<Component> {
        self.health.components().remove(COMPONENT)
    }

    /// Returns why the source is down; `None` when it is up.
    pub fn down(&self) -> Option<String> {
        match self.source() {
            Some(Component::Down { reason }) => Some(reason),
            _ => None,
        }
    }

    /// Returns which source is in use, and why.
    pub fn detail(&self) -> String {
        match self.source() {
            Some(Component::Up { detail: Some(detail) }) => detail,
            other => panic!("the source is {other:?}"),
        }
    }

    /// Returns whether this source is in use according to the metrics.
    pub fn is_active(&self, label: &str) -> bool {
        let line = format!("orrery_source_active{{source=\"{label}\"}} 1");
        self.metrics.render().unwrap().lines().any(|found| found == line)
    }

    /// Waits until the store has everything that the provider has, and returns the virtual time
    /// that it took.
    pub async fn catches_up(&self, provider: &Shared) -> Duration {
        let start = Instant::now();
        loop {
            let tip = provider.lock().range().last.0;
            if self.stored.latest() >= Some(tip) {
                return start.elapsed();
            }
            assert!(start.elapsed() < Duration::from_secs(7200), "{:?}", self.source());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Stores ledgers as the service does: in sessions that end at a refused ledger.
async fn store_all(
    mut follower: Follower,
    stored: Arc<Stored>,
    stalled: Arc<Mutex<bool>>,
) -> Result<Followed, FollowError> {
    loop {
        let (out, mut received) = mpsc::channel(8);
        let in_flight = Arc::clone(follower.in_flight());
        let storing = async {
            while let Some(ledger) = received.recv().await {
                while *stalled.lock() {
                    sleep(Duration::from_millis(100)).await;
                }
                if let Err(refusal) = stored.store(&ledger) {
                    return Some(refusal);
                }
                in_flight.mark_stored();
            }
            None
        };
        let mut storing = Box::pin(storing);
        let refusal = {
            let mut running = Box::pin(follower.run(out));
            tokio::select! {
                followed = &mut running => {
                    drop(running);
                    match storing.await {
                        Some(refusal) => refusal,
                        None => return followed,
                    }
                }
                refusal = &mut storing => refusal.expect("the sender is there"),
            }
        };
        follower.refused(&refusal);
    }
}

pub async fn minutes(count: u64) {
    sleep(Duration::from_secs(60 * count)).await;
}

pub async fn seconds(count: u64) {
    sleep(Duration::from_secs(count)).await;
}
