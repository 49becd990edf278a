//! Webhooks in the test's own process: a store with the consumer, a clock that the test moves, and
//! attempts whose outcome the test decides.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use orrery::domain::{ContractId, Network, Owner};
use orrery::executables::{ExecutableIndex, Interfaces};
use orrery::observe::health::Health;
use orrery::observe::metrics::Metrics;
use orrery::programs::storage;
use orrery::settings;
use orrery::store::{
    Consumed, ConsumerSpec, Durability, Extensions, IndexOptions, LedgerConsumer, Retention, Store,
    StoreError,
};
use orrery::webhooks::delivery::{self, DeliveryDeps, DeliveryThreads, Headers, Load, Post};
use orrery::webhooks::manage::{NewSubscriptions, WebhookDeps, Webhooks};
use orrery::webhooks::registry::Registry;
use orrery::webhooks::rows::{Delivery, Number};
use orrery::webhooks::subscription::Subscription;
use orrery::webhooks::target::{AttemptResult, Policy, Sender, Timeouts, system_lookup};
use orrery::webhooks::time::Clocks;
use orrery::webhooks::{Clock, Sealer, WebhookConsumer};
use parking_lot::Mutex;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stellar_xdr::{Limits, ScSymbol, ScVal, WriteXdr};
use tokio::runtime::Handle;

use orrery_testkit::model::{Ledger, Universe};
use orrery_testkit::wait::wait_until;

/// Initial time of the clock, in UNIX milliseconds.
pub const BEGINNING: u64 = 1_800_000_000_000;

pub fn owner(name: &str) -> Owner {
    Owner(name.to_owned())
}

/// The XDR of a symbol.
pub fn symbol(text: &str) -> Vec<u8> {
    ScVal::Symbol(ScSymbol(text.try_into().unwrap())).to_xdr(Limits::none()).unwrap()
}

/// An attempt as the dispatcher made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    pub at: u64,
    pub id: String,
    pub endpoint: String,
    pub headers: Headers,
    pub body: Vec<u8>,
}

impl Sent {
    fn of(time: &AtomicU64, subscription: &Subscription, headers: &Headers, body: &[u8]) -> Self {
        let header = |name: &str| headers.iter().find(|(it, _)| *it == name).unwrap().1.clone();
        Self {
            at: time.load(Ordering::SeqCst),
            id: header("x-service-delivery"),
            endpoint: subscription.endpoint.as_ref().map_or("", |it| it.as_str()).to_owned(),
            headers: headers.clone(),
            body: body.to_vec(),
        }
    }
}

/// Decides the outcome of an attempt.
pub type Answers = Arc<dyn Fn(&Sent) -> AttemptResult + Send + Sync>;

/// Returns the outcome of an attempt that was answered with this status.
pub fn status(status: u16) -> AttemptResult {
    AttemptResult {
        status: Some(status),
        duration: Duration::from_millis(3),
        excerpt: String::new(),
        retry_after: None,
        error: None,
    }
}

/// Returns the outcome of an attempt without a response.
pub fn unreachable() -> AttemptResult {
    AttemptResult { status: None, error: Some("no connection".to_owned()), ..status(0) }
}

/// A random number generator that always returns the same number.
struct Always(u64);

impl RngCore for Always {
    fn next_u32(&mut self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn next_u64(&mut self) -> u64 {
        self.0
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        bytes.fill(self.0 as u8);
    }
}

/// The running dispatcher, and the runtime of its attempts.
struct Running {
    delivering: DeliveryThreads,
    runtime: Handle,
}

pub struct World {
    pub store: Arc<Store>,
    pub webhooks: Arc<Webhooks>,
    pub registry: Arc<Registry>,
    pub sent: Arc<Mutex<Vec<Sent>>>,
    consumer: WebhookConsumer,
    time: Arc<AtomicU64>,
    /// Milliseconds by which each reading of the clock moves it.
    pace: Arc<AtomicU64>,
    /// Milliseconds by which the machine's clock is wrong.
    wrong_by: Arc<AtomicI64>,
    running: Option<Running>,
}

impl World {
    /// Opens a world whose owners may have any number of subscriptions and deliveries.
    pub fn open(directory: &Path) -> Self {
        let settings = settings::Webhooks {
            owner_subscriptions: NonZeroU32::MAX,
            owner_backlog: NonZeroU32::MAX,
            owner_ledger_deliveries: NonZeroU32::MAX,
            ..Default::default()
        };
        Self::open_with(directory, settings)
    }

    pub fn open_with(directory: &Path, settings: settings::Webhooks) -> Self {
        let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
        Self::open_sending(directory, settings, sender)
    }

    /// As [`Self::open_with`], with the sender of attempts over sockets.
    pub fn open_sending(directory: &Path, settings: settings::Webhooks, sender: Sender) -> Self {
        Self::open_at((BEGINNING, 0), directory, settings, sender, &[])
    }

    /// As [`Self::open`], with an index of names, which the test advances.
    pub fn open_with_names(directory: &Path) -> Self {
        let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
        let index = [ExecutableIndex.spec()];
        let world =
            Self::open_at((BEGINNING, 0), directory, settings::Webhooks::default(), sender, &index);
        world.registry.name_events_by(Interfaces::new(Arc::clone(&world.store), None));
        world
    }

    /// As [`Self::open`], at this time, with a machine's clock that is wrong by so many milliseconds.
    pub fn open_with_clock(directory: &Path, now: u64, wrong_by: i64) -> Self {
        let sender = Sender::new(Policy::default(), system_lookup(), Timeouts::default());
        Self::open_at((now, wrong_by), directory, settings::Webhooks::default(), sender, &[])
    }

    fn open_at(
        (now, wrong_by): (u64, i64),
        directory: &Path,
        settings: settings::Webhooks,
        sender: Sender,
        others: &[ConsumerSpec],
    ) -> Self {
        let time = Arc::new(AtomicU64::new(now));
        let pace = Arc::<AtomicU64>::default();
        let wrong_by = Arc::new(AtomicI64::new(wrong_by));
        let clock = clock(&time, &pace, &wrong_by);
        let registry: Arc<Registry> = Arc::default();
        let consumer = WebhookConsumer::new(Arc::clone(&registry));
        let consumers = [&[consumer.spec()], others].concat();
        let extensions = Extensions { consumers, ..storage::extensions() };
        let network = Network::from_passphrase("webhook tests");
        let store = Arc::new(Store::open_with(directory, Some(&network), extensions).unwrap());
        let passed = Arc::clone(&time);
        let elapsed: Clock = Arc::new(move || passed.load(Ordering::SeqCst) - now);
        let clocks = Clocks { machine: Arc::clone(&clock), elapsed };
        registry.open(&store, Sealer::new(&[7; 32]).unwrap(), settings, &clocks).unwrap();
        let webhooks = Webhooks::new(WebhookDeps {
            store: Arc::clone(&store),
            registry: Arc::clone(&registry),
            sender,
            clock,
        });
        let sent = Arc::default();
        let webhooks = Arc::new(webhooks);
        Self { store, webhooks, registry, sent, consumer, time, pace, wrong_by, running: None }
    }

    /// Starts the dispatcher. `chance` is the value of every random draw; `answers` decides
    /// outcomes.
    pub fn deliver(&mut self, chance: u64, answers: Answers) {
        let (sent, time) = (Arc::clone(&self.sent), Arc::clone(&self.time));
        self.deliver_with(chance, |_| {
            Arc::new(move |subscription, headers, body| {
                let attempt = Sent::of(&time, &subscription, &headers, &body);
                sent.lock().push(attempt.clone());
                let answer = answers(&attempt);
                async move { answer }.boxed()
            })
        });
    }

    /// As [`Self::deliver`], but attempts use real connections.
    pub fn deliver_over_sockets(&mut self, chance: u64) {
        let (sent, time) = (Arc::clone(&self.sent), Arc::clone(&self.time));
        self.deliver_with(chance, |post| {
            Arc::new(move |subscription, headers, body| {
                sent.lock().push(Sent::of(&time, &subscription, &headers, &body));
                post(subscription, headers, body)
            })
        });
    }

    /// As [`Self::deliver`], but attempts to endpoints that contain `part` never end, and the others
    /// succeed.
    pub fn deliver_to_all_but(&mut self, part: &'static str) {
        let (sent, time) = (Arc::clone(&self.sent), Arc::clone(&self.time));
        self.deliver_with(0, |_| {
            Arc::new(move |subscription, headers, body| {
                let attempt = Sent::of(&time, &subscription, &headers, &body);
                let ends = !attempt.endpoint.contains(part);
                sent.lock().push(attempt);
                if ends { async { status(200) }.boxed() } else { std::future::pending().boxed() }
            })
        });
    }

    /// As [`Self::deliver`], but attempts never end.
    pub fn deliver_to_nobody(&mut self) {
        self.deliver_with(0, |_| Arc::new(|_, _, _| std::future::pending().boxed()));
    }

    /// Blocks all threads of the attempts' runtime until the returned senders are dropped.
    pub fn keep_runtime_busy(&self) -> Vec<std::sync::mpsc::Sender<()>> {
        let runtime = &self.running.as_ref().unwrap().runtime;
        let (began, begun) = std::sync::mpsc::channel();
        let workers = runtime.metrics().num_workers();
        let hold = |_| {
            let (free, freed) = std::sync::mpsc::channel::<()>();
            let began = began.clone();
            runtime.spawn(async move {
                began.send(()).unwrap();
                // Ends when the sender is dropped.
                freed.recv().unwrap_err();
            });
            free
        };
        let held: Vec<_> = (0..workers).map(hold).collect();
        (0..workers).for_each(|_| begun.recv().unwrap());
        held
    }

    fn deliver_with(&mut self, chance: u64, make: impl FnOnce(Post) -> Post) {
        let runtime = delivery::runtime().unwrap();
        let handle = runtime.handle().clone();
        let delivering = self
            .webhooks
            .deliver(|post| DeliveryDeps {
                store: Arc::clone(&self.store),
                registry: Arc::clone(&self.registry),
                post: make(post),
                clock: clock(&self.time, &self.pace, &self.wrong_by),
                runtime,
                health: Arc::new(Health::default()),
                metrics: Arc::new(Metrics::new().unwrap()),
                rng: Box::new(Always(chance)),
            })
            .unwrap();
        self.running = Some(Running { delivering, runtime: handle });
    }

    pub fn now(&self) -> u64 {
        self.time.load(Ordering::SeqCst)
    }

    /// From now on, each reading of the clock moves it by a millisecond.
    pub fn let_time_pass(&self) {
        self.pace.store(1, Ordering::SeqCst);
    }

    /// Sets the machine's clock wrong by so many milliseconds, or right with 0.
    pub fn set_clock_wrong(&self, by: i64) {
        self.wrong_by.store(by, Ordering::SeqCst);
        self.set_time(self.now());
    }

    pub fn set_time(&self, to: u64) {
        self.time.fetch_max(to, Ordering::SeqCst);
        if let Some(running) = &self.running {
            running.delivering.mailbox().tick();
        }
    }

    /// Runs one step of the consumer.
    pub fn step(&self) -> Result<bool, StoreError> {
        self.store.step(&self.consumer)
    }

    /// Runs one step of the consumer on one ledger. Returns whether there was one.
    pub fn step_of_one_ledger(&self) -> bool {
        let done = self.store.consume(self.consumer.spec().name, 1, |ledger, effects| {
            self.consumer.process_ledger(&self.store, ledger, effects)
        });
        let is_done = matches!(done.unwrap(), Consumed::Ledgers(_));
        if is_done {
            self.consumer.on_step_written(&self.store);
        }
        is_done
    }

    /// Runs the consumer on all ledgers of the feed.
    pub fn feed(&self) {
        while self.store.step(&self.consumer).unwrap() {}
    }

    /// Waits until no attempt is in flight or unrecorded. Returns the load, with the time of the
    /// next due work.
    pub fn settle(&self) -> Load {
        wait_until("no attempt is in flight or unrecorded", || {
            let busy = self.load();
            if busy.in_flight == 0 && busy.unwritten == 0 { Ok(busy) } else { Err(busy) }
        })
    }

    /// Returns the dispatcher's current load.
    pub fn load(&self) -> Load {
        self.running.as_ref().unwrap().delivering.mailbox().load().unwrap()
    }

    /// Moves the clock to each time at which work is due, up to `end`, and then to `end`. What is due by
    /// the service's time, which may be another one where its clock was wrong when it started, is due
    /// when as much has passed.
    pub fn run_until(&self, end: u64) {
        while let Some(next) = self.settle().next {
            let left = next.saturating_sub(self.registry.now().due);
            let next = self.now().saturating_add(left);
            if next > end {
                break;
            }
            self.set_time(next);
        }
        self.set_time(end.max(self.now()));
        self.settle();
    }

    pub fn subscribe(&self, whose: &str, endpoint: &str, contract: ContractId) -> u32 {
        self.webhooks.create(&owner(whose), wanted(endpoint, contract)).unwrap().ids[0]
    }

    /// Returns all deliveries of a subscription, oldest first.
    pub fn deliveries(&self, whose: &str, id: u32) -> Vec<(Number, Delivery)> {
        let page = self.webhooks.deliveries(&owner(whose), id, None, None, usize::MAX).unwrap();
        let mut deliveries = page.deliveries;
        deliveries.reverse();
        deliveries
    }

    pub fn keep_events(&self, ledgers: u32) {
        let retention = Retention { events: Some(ledgers), ..Retention::default() };
        while !self.store.prune(&retention).unwrap().is_nothing() {}
    }
}

/// Returns a request for a subscription to all events of a contract.
pub fn wanted(endpoint: &str, contract: ContractId) -> NewSubscriptions {
    NewSubscriptions {
        contracts: vec![contract],
        ..NewSubscriptions::to(endpoint.parse().unwrap())
    }
}

/// The machine's clock.
fn clock(time: &Arc<AtomicU64>, pace: &Arc<AtomicU64>, wrong_by: &Arc<AtomicI64>) -> Clock {
    let (time, pace, wrong_by) = (Arc::clone(time), Arc::clone(pace), Arc::clone(wrong_by));
    Arc::new(move || {
        let now = time.fetch_add(pace.load(Ordering::SeqCst), Ordering::SeqCst);
        now.saturating_add_signed(wrong_by.load(Ordering::SeqCst))
    })
}

/// Consecutive random ledgers, whose topics are the ones given.
pub struct Chain {
    pub rng: ChaCha8Rng,
    pub universe: Universe,
    pub ledgers: Vec<Ledger>,
}

impl Chain {
    pub fn new(seed: u64, topics: Vec<Vec<u8>>) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let universe = Universe { topics, ..Universe::random(&mut rng) };
        Self { rng, universe, ledgers: Vec::new() }
    }

    /// Generates ledgers from 1 up to `last`.
    pub fn grow(&mut self, last: u32) {
        while self.ledgers.len() < last as usize {
            let previous = self.ledgers.last().map_or([0; 32], |ledger| ledger.hash);
            let sequence = self.ledgers.len() as u32 + 1;
            let ledger = self.universe.ledger(&mut self.rng, sequence, previous);
            self.ledgers.push(ledger);
        }
    }

    /// Stores a ledger, which is generated if necessary.
    pub fn commit(&mut self, store: &Store, sequence: u32) {
        self.grow(sequence);
        let ledger = self.ledgers[sequence as usize - 1].prepare(&options());
        store.commit(ledger, Durability::Synced).unwrap();
    }
}

pub fn options() -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: false }
}
