//! Panics in the tasks and threads of a whole service in this process, one after the other. Health
//! names the part meanwhile, and the part does its work again afterwards.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use orrery::auth::IssueRequest;
use orrery::config::Config;
use orrery::control::{BACKFILL, BackfillOrder, BackfillRequest, BackfillState, Client};
use orrery::domain::{LedgerSeq, StartPoint};
use orrery::service::{self, Node, sources};
use orrery::settings::{SecretUrl, SourceKind, Start};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::messages::Reader;
use crate::receiver::{Receiver, answer};
use crate::service::{Owner, all_events, busiest, events_of};
use orrery_testkit::client::HTTP;
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::wait::wait_until;

/// Timeout of every wait: long enough that only a hang exceeds it.
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// First ledger that is stored, and the last one that is there at the start.
const FIRST: u32 = 10;
const BEGUN: u32 = 30;
/// Ledgers for all disturbances: each takes some until its part panics, and some afterwards.
const LAST: u32 = 400;
/// Interval at which ledgers are added until a part that works on them panics.
const LEDGER_INTERVAL: Duration = Duration::from_millis(250);

static CHAIN: LazyLock<Chain> = LazyLock::new(|| Chain::made(37, LAST));

/// Consumers of the feed with a thread of their own; each reports under its name.
const CONSUMERS: usize = 9;

/// Tasks and threads by name, with the component of health that is down while they do not run.
const PARTS: [(&str, &str); 15] = [
    ("ingestion", "ingestion"),
    ("retention", "retention"),
    ("lag_history", "lag_history"),
    ("control", "control"),
    ("backfill", "backfill"),
    ("export", "export"),
    ("contract_sizes", "contract_sizes"),
    ("status_messages", "status_messages"),
    ("supervisor", "supervisor"),
    ("program_records", "program_records"),
    ("webhook_records", "webhook_records"),
    ("webhook-sends", "webhooks"),
    ("webhook-notes", "webhooks"),
    ("streams", "streams"),
    // Again, with the sources of the first time.
    ("ingestion", "ingestion"),
];

/// The ids of the events that a stream has sent.
type Streamed = Arc<Mutex<Vec<u64>>>;

/// Reads a stream on a thread of its own until it ends.
fn read(mut stream: Reader) -> Streamed {
    let streamed = Streamed::default();
    let own = Arc::clone(&streamed);
    thread::spawn(move || {
        while let Some((kind, _, data)) = stream.message() {
            assert_eq!(kind, "message", "{data}");
            own.lock().push(data["id"].as_u64().unwrap());
        }
    });
    streamed
}

/// A service that follows a lake, exports to a directory, and sends status messages.
struct Running {
    directory: TempDir,
    lake: LakeFiles,
    /// The newest ledger in the lake.
    newest: u32,
    address: SocketAddr,
    owner: Owner,
    node: Arc<Node>,
    stop: watch::Sender<bool>,
    served: JoinHandle<Result<(), String>>,
    runtime: Runtime,
}

impl Running {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let lake = LakeFiles::with(&CHAIN, 2..=BEGUN);
        let mut config = Config { data_dir: directory.path().join("d"), ..Config::default() };
        (config.index.classic_events, config.index.fee_events) = (true, true);
        (config.limits.requests_per_second, config.limits.burst) = (0, 0);
        (config.source.kind, config.source.path) = (SourceKind::Lake, lake.text());
        config.source.start = Start(Some(StartPoint::At(LedgerSeq(FIRST))));
        config.webhooks.allow_subnets = vec!["127.0.0.1/32".parse().unwrap()];
        config.export.to = directory.path().join("exported").to_str().unwrap().to_owned();
        config.export.ledgers_per_file = 4.try_into().unwrap();
        // Nobody listens there.
        let nobody = "http://127.0.0.1:9/".to_owned();
        config.status.generic_url = SecretUrl::try_from(nobody).unwrap();
        let node = Arc::new(Node::open(&config, Some(&CHAIN.network)).unwrap());
        let (stop, stopped) = watch::channel(false);
        let runtime = Runtime::new().unwrap();
        let (sockets, following) = runtime.block_on(async {
            let sockets = service::listen(([127, 0, 0, 1], 0).into(), &config.data_dir).await;
            (sockets.unwrap(), sources::following(&config, &node).await.unwrap())
        });
        let address = sockets.address;
        let tokens = service::open_tokens(&config.data_dir, &CHAIN.network, &config.auth).unwrap();
        let tokens = Arc::new(tokens);
        let token = tokens.issue(&IssueRequest::for_owner("ana")).unwrap().token;
        let served = runtime.spawn({
            let node = Arc::clone(&node);
            async move {
                let opener = sources::opener(&config, &node);
                let ran = service::run(node, tokens, &config, sockets, following, opener, stopped);
                ran.await.map_err(|error| error.to_string())
            }
        });
        let owner = Owner { base: format!("http://{address}"), token };
        let running =
            Self { directory, lake, newest: BEGUN, address, owner, node, stop, served, runtime };
        running.wait_until_stored();
        running
    }

    /// Adds a ledger to the lake.
    fn add(&mut self) {
        self.newest += 1;
        self.lake.add(&CHAIN, self.newest);
    }

    fn health(&self) -> Value {
        HTTP.get(format!("{}/rest/health", self.owner.base)).send().unwrap().json().unwrap()
    }

    /// Waits until all ledgers of the lake are stored and all consumers have processed them.
    fn wait_until_stored(&self) {
        let newest = LedgerSeq(self.newest);
        wait_until(&format!("ledger {newest} is stored"), || {
            self.node.store().status().latest() == Some(newest)
        });
        wait_until("the consumers have processed them", || {
            let consumers = self.node.store().consumers();
            // The export waits until a file is complete.
            consumers.iter().all(|it| it.lag < if it.name == "export" { 8 } else { 1 })
        });
    }

    /// Makes a part panic, and waits until health has shown that and the part runs again.
    fn disturb(&mut self, name: &str, component: &str) {
        self.node.health().injected().plan(name);
        let begun = Instant::now();
        let mut added = Instant::now();
        let down = loop {
            let state = &self.health()["components"][component];
            if state["status"] == "down" {
                break state.clone();
            }
            assert!(begun.elapsed() < TIMEOUT, "'{name}' does not panic: {}", self.health());
            if self.node.health().injected().is_planned(name) && added.elapsed() > LEDGER_INTERVAL {
                self.add();
                added = Instant::now();
            }
            thread::sleep(POLL_INTERVAL);
        };
        let reason = "it has panicked and is started again: the log says why";
        assert_eq!(down["reason"], reason, "{name}");
        wait_until(&format!("'{name}' runs again"), || self.health()["service"] == "up");
    }

    /// Waits until `receiver` has every event of a contract after the id `after`, and the stream has
    /// every event once.
    fn wait_until_sent(
        &self,
        receiver: &Receiver,
        contract: &str,
        after: u64,
        streamed: &Streamed,
    ) {
        let mut all = all_events(&self.owner);
        let mut expected: Vec<u64> = all.values().flatten().copied().collect();
        expected.sort_unstable();
        wait_until("all events are in the stream", || streamed.lock().len() >= expected.len());
        assert_eq!(*streamed.lock(), expected);
        let mut expected: BTreeSet<u64> = all.remove(contract).unwrap().into_iter().collect();
        expected.retain(|id| *id > after);
        wait_until("all events are delivered", || {
            let received = receiver.received();
            // Attempts that a panic has interrupted are made again.
            let ids: BTreeSet<u64> =
                received.iter().map(|it| it.json()["event"]["id"].as_u64().unwrap()).collect();
            ids == expected
        });
    }

    /// Backfills a ledger before the first one.
    fn backfill(&self, ledger: u32) {
        let mut client = Client::connect(&self.directory.path().join("d")).unwrap().unwrap();
        let order = BackfillOrder { from: ledger, to: ledger, sources: Vec::new() };
        client.ask(BACKFILL, &BackfillRequest::Start(order)).unwrap();
        wait_until("the backfill is done", || {
            client.ask(BACKFILL, &BackfillRequest::Status).unwrap().state == BackfillState::Done
        });
        assert!(self.node.store().range_of(LedgerSeq(ledger)).is_some());
    }
}

/// The parts of one service are disturbed one after the other, so that each panic is seen alone.
#[test]
fn a_part_that_panics_is_down_and_works_again() {
    let mut running = Running::start();
    let receiver = Receiver::start(|_| answer(200));
    let contract = busiest(&running.owner);
    let before = *events_of(&running.owner, &contract).last().unwrap();
    let new = json!({ "webhook_endpoint": receiver.url("/"), "contract_ids": [contract] });
    running.owner.post("webhooks/new", &new);
    let stream = Reader::open(running.address, &running.owner.token, "", Some("0")).unwrap();
    let streamed = read(stream);
    let consumers = running.node.store().consumers().into_iter().map(|it| it.name);
    let consumers: Vec<String> = consumers.filter(|name| name != "export").collect();
    assert_eq!(consumers.len(), CONSUMERS, "{consumers:?}");
    let consumers = consumers.iter().map(|name| (&**name, &**name));
    for (name, component) in PARTS.into_iter().chain(consumers) {
        running.disturb(name, component);
        for _ in 0..3 {
            running.add();
        }
        running.wait_until_stored();
        running.wait_until_sent(&receiver, &contract, before, &streamed);
    }
    // Deliveries have the names that answers have.
    let page = format!("events/by-contract/{contract}?order=asc&limit=1000&decoded=true");
    let page = running.owner.get(&page);
    let by_id = |id: &Value| page.as_array().unwrap().iter().find(|event| event["id"] == *id);
    let mut named = 0;
    for delivery in receiver.received() {
        let event = &delivery.json()["event"];
        let Some(answered) = by_id(&event["id"]) else { continue };
        let decoded = &answered["decoded"];
        assert_eq!((&event["name"], &event["params"]), (&decoded["name"], &decoded["params"]));
        named += usize::from(event["name"].is_string());
    }
    assert!(named > 0, "the contract of an asset emits the most");
    // Every delivery is noted, and none counts as waiting.
    wait_until("all outcomes are written", || {
        let text = HTTP.get(format!("{}/metrics", running.owner.base)).send().unwrap().text();
        text.unwrap().contains("\norrery_webhook_deliveries_waiting 0\n")
    });
    // Through the control socket, whose task was started again as well.
    running.backfill(FIRST - 1);
    running.stop.send_replace(true);
    running.runtime.block_on(running.served).unwrap().unwrap();
}

#[test]
fn a_service_that_accepts_no_more_connections_ends_with_an_error() {
    let running = Running::start();
    running.node.health().injected().plan("accepting");
    let ended = running.runtime.block_on(running.served).unwrap();
    let reason = ended.unwrap_err();
    assert!(reason.contains("accept loop"), "{reason}");
    assert!(!*running.stop.borrow(), "nobody has asked for the stop");
}
