//! Random histories of a store that is served: ledgers in any order and with gaps, retention of each kind
//! of records, restarts, kills at any write, and rebuilds of the index of names. The same questions get
//! the same answers whatever has happened between, or a sentence that says what was removed; a list never
//! has a row that it had not, and lacks rows only of ledgers whose records retention has removed. Asked are
//! the REST interface, JSON-RPC, streams that resume, and exports.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};

use orrery::decode::decode;
use orrery::domain::{LedgerRange, LedgerSet};
use orrery::executables::{self, ExecutableIndex, Interfaces};
use orrery::export::{Destination, Export, ExportError, Interrupt};
use orrery::programs::storage;
use orrery::store::{
    Durability, Extensions, IndexOptions, LedgerConsumer, Losses, PreparedLedger, Retention, Store,
    StoreError,
};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use orrery_testkit::client::HTTP;
use orrery_testkit::crash::{Kill, copied};
use orrery_testkit::exported;
use orrery_testkit::histories;
use orrery_testkit::sandbox::local;
use orrery_testkit::scratch::scratch;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::upgraded::Upgraded;
use orrery_testkit::wait::wait_until;

use super::pruned::call_rpc;

/// What happens after the questions were asked for the first time.
const STEPS: u32 = 6;

/// Answers of all histories that had names.
static NAMED: AtomicUsize = AtomicUsize::new(0);

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

fn open(directory: &Path) -> Arc<Store> {
    let consumers: [Arc<dyn LedgerConsumer>; 1] = [Arc::new(ExecutableIndex)];
    let extensions = Extensions::for_consumers(&consumers).with_kind(storage::KIND);
    Arc::new(Store::open_with(directory, Some(&local()), extensions).unwrap())
}

/// A server with the thread that reads interfaces.
struct Served {
    server: Server,
    interfaces: Arc<Interfaces>,
    reader: Option<JoinHandle<()>>,
}

impl Served {
    fn start(store: &TempStore) -> Self {
        let interfaces = Interfaces::new(Arc::clone(&store.store), None);
        let own = Arc::clone(&interfaces);
        let server = Server::start_with(store, move |deps| deps.interfaces = own);
        let reading = Arc::clone(&interfaces);
        let reader = Some(thread::spawn(move || reading.work()));
        Self { server, interfaces, reader }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.interfaces.stop();
        self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
    }
}

/// How a question is asked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    /// A GET request, with a list or with one object.
    Rest(String),
    /// Parameters of a call.
    Rpc(&'static str, String),
    /// The first message of a stream after this id.
    Stream(u64),
    /// The exported events, with their names.
    Export,
}

/// A question, and the records on which its answer depends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    ask: Ask,
    ledgers: (u32, u32),
    /// Whether it is about events, or about transactions.
    of_events: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    fn rows(&self) -> Option<&Vec<Value>> {
        self.body.as_array().or_else(|| self.body["result"]["events"].as_array())
    }

    fn is_pending(&self) -> bool {
        self.body.to_string().contains("\"names_pending\":true")
    }
}

struct History {
    rng: ChaCha8Rng,
    store: Option<TempStore>,
    served: Option<Served>,
    answers: BTreeMap<Question, Answer>,
    steps: Vec<String>,
}

impl History {
    fn new(seed: u64) -> Self {
        let directory = scratch();
        let store = open(directory.path());
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let store = Some(TempStore { store, directory });
        Self { rng, store, served: None, answers: BTreeMap::new(), steps: Vec::new() }
    }

    fn store(&self) -> &Store {
        &self.store.as_ref().unwrap().store
    }

    /// Stores most of the ledgers, in parts, in any order or in that of the chain.
    fn store_ledgers(&mut self) {
        let mut ledgers: Vec<&Vec<u8>> = UPGRADED.ledgers.iter().collect();
        if self.rng.random_bool(0.5) {
            ledgers.shuffle(&mut self.rng);
        }
        let left_out = self.rng.random_range(0..6) * self.rng.random_range(0..2);
        ledgers.truncate(ledgers.len() - left_out);
        for raw in ledgers {
            let options = IndexOptions {
                classic_events: true,
                fee_events: true,
                raw_ledgers: self.rng.random_bool(0.8),
                ..IndexOptions::default()
            };
            let view = decode(raw, local().id()).unwrap();
            let prepared = PreparedLedger::new(&view, &options).unwrap();
            self.store().commit(prepared, Durability::Deferred).unwrap();
            if self.rng.random_bool(0.1) {
                self.index();
            }
        }
        self.store().flush().unwrap();
        self.index();
    }

    fn index(&self) {
        while self.store().step(&ExecutableIndex).unwrap() {}
    }

    fn begin_serving(&mut self) {
        self.served = Some(Served::start(self.store.as_ref().unwrap()));
    }

    /// Ends the server, and opens the files again, or those that a kill has left.
    fn open_again(&mut self, files: Option<tempfile::TempDir>) {
        self.served = None;
        let TempStore { store, directory } = self.store.take().unwrap();
        drop(store);
        let directory = files.unwrap_or(directory);
        self.store = Some(TempStore { store: open(directory.path()), directory });
        self.begin_serving();
    }

    /// Chooses questions from what the lists show.
    fn choose_questions(&mut self) -> Vec<Question> {
        let list = |path: &str| {
            let answer = self.ask(&Ask::Rest(path.to_owned()));
            answer.body.as_array().unwrap().clone()
        };
        let events = list("/rest/events/by-ledger?limit=1000&order=asc");
        let transactions = list("/rest/txs/by-ledger?limit=1000&order=asc");
        let ledger = |row: &Value| row["ledger"].as_u64().unwrap() as u32;
        let (first, last) = (2, 1 + UPGRADED.ledgers.len() as u32);
        let mut asked = Vec::new();
        let mut add = |ask: Ask, ledgers, of_events| {
            asked.push(Question { ask, ledgers, of_events });
        };
        let mut rest = |path: String, ledgers, of_events| add(Ask::Rest(path), ledgers, of_events);
        rest("/rest/events/by-ledger?limit=1000&decoded=true".to_owned(), (first, last), true);
        for row in transactions.choose_multiple(&mut self.rng, 3) {
            let (at, hash) = (ledger(row), row["tx"].as_str().unwrap());
            rest(format!("/rest/txs/by-hash/{hash}?decoded=true"), (at, at), false);
            rest(format!("/rest/txs/by-hash/{hash}/changes"), (at, at), false);
            rest(format!("/rest/events/by-tx/{hash}?decoded=true"), (at, at), true);
            rest(format!("/rest/txs/by-ledger?from={at}&to={at}&decoded=true"), (at, at), false);
        }
        for row in events.choose_multiple(&mut self.rng, 4) {
            let (at, id) = (ledger(row), &row["id"]);
            rest(format!("/rest/events/by-id/{id}?decoded=true"), (at, at), true);
            let within = format!("from={at}&to={}&limit=1000&decoded=true", at + 3);
            rest(format!("/rest/events/by-ledger?{within}"), (at, at + 3), true);
        }
        let contract = UPGRADED.contracts.choose(&mut self.rng).unwrap();
        let path = format!("/rest/events/by-contract/{contract}?limit=300&decoded=true&order=asc");
        rest(path, (first, last), true);
        rest(
            format!("/rest/txs/by-contract/{contract}?limit=300&decoded=true"),
            (first, last),
            false,
        );
        for row in events.choose_multiple(&mut self.rng, 2) {
            let (at, id) = (ledger(row), row["id"].as_u64().unwrap());
            let params = json!({
                "startLedger": at, "endLedger": at + 2, "pagination": { "limit": 10_000 },
            });
            add(Ask::Rpc("getEvents", params.to_string()), (at, at + 1), true);
            add(Ask::Stream(id - 1), (at, at), true);
        }
        let all = [&events, &transactions];
        if self.rng.random_bool(0.3) && all.iter().all(|rows| !rows.is_empty()) {
            add(Ask::Export, (first, last), true);
        }
        asked
    }

    fn ask(&self, ask: &Ask) -> Answer {
        let server = &self.served.as_ref().unwrap().server;
        match ask {
            Ask::Rest(path) => {
                let answer = server.get(path);
                Answer { status: answer.status, body: answer.json() }
            }
            Ask::Rpc(method, params) => {
                let params = serde_json::from_str(params).unwrap();
                let mut body = call_rpc(&mut server.connect(), method, &params);
                // The range of what is stored, which follows retention.
                if let Some(result) = body["result"].as_object_mut() {
                    result.retain(|name, _| !name.starts_with("oldestLedger"));
                }
                Answer { status: 200, body }
            }
            Ask::Export => self.export(),
            Ask::Stream(after) => {
                let url = format!("http://{}/rest/events/stream?decoded=true", server.address);
                let request = HTTP.get(url).bearer_auth(&server.token);
                let answer = request.header("Last-Event-ID", after.to_string()).send().unwrap();
                let status = answer.status().as_u16();
                let mut lines = BufReader::new(answer).lines().map(Result::unwrap);
                let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
                Answer { status, body: serde_json::from_str(&data.unwrap()).unwrap() }
            }
        }
    }

    /// Exports everything into a new directory. What cannot be exported whole is said to be removed.
    fn export(&self) -> Answer {
        let place = scratch();
        let destination = Destination::directory(place.path());
        let interfaces = Arc::clone(&self.served.as_ref().unwrap().interfaces);
        let export = Export::open(&destination, self.store(), Interrupt::default()).unwrap();
        let mut export = export.naming(interfaces);
        let wanted: LedgerSet = self.store().status().ranges.into_iter().collect();
        match export.add(self.store(), &wanted, 16, |_, _| ControlFlow::Continue(())) {
            Ok(_) => {
                let rows = exported::columns_of_events(place.path(), &exported::DECODED);
                Answer { status: 200, body: Value::Array(rows) }
            }
            Err(error @ ExportError::Pruned(_)) => {
                Answer { status: 410, body: json!({ "error": error.to_string() }) }
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// The answer once all names that are stored have been read.
    fn settled(&self, ask: &Ask) -> Answer {
        wait_until("the answer has its names", || {
            let answer = self.ask(ask);
            (!answer.is_pending()).then_some(answer)
        })
    }

    fn ask_first(&mut self) {
        for question in self.choose_questions() {
            let answer = self.settled(&question.ask);
            assert_eq!(answer.status, 200, "{question:?}: {}", answer.body);
            self.answers.insert(question, answer);
        }
        let named = |answer: &&Answer| answer.body.to_string().contains("\"name\":\"said\"");
        NAMED.fetch_add(self.answers.values().filter(named).count(), Ordering::Relaxed);
    }

    fn step(&mut self) {
        let said = match self.rng.random_range(0..10) {
            0..5 => self.prune(),
            5 => self.restart(),
            6 => self.kill(),
            7 => self.kill_amid_prune(),
            8 => self.rebuild(),
            _ => self.begin_rebuild(),
        };
        self.steps.push(said);
        self.compare();
    }

    fn any_retention(&mut self) -> Retention {
        let most = UPGRADED.ledgers.len() as u32;
        let mut kept =
            |often: f64| self.rng.random_bool(often).then(|| self.rng.random_range(0..most));
        let (raw_ledgers, events, transactions) = (kept(0.8), kept(0.2), kept(0.4));
        Retention { raw_ledgers, events, transactions, wait_for_consumers: 0 }
    }

    fn prune(&mut self) -> String {
        let retention = self.any_retention();
        while !self.store().prune(&retention).unwrap().is_nothing() {}
        format!("pruned to {retention:?}")
    }

    fn restart(&mut self) -> String {
        self.open_again(None);
        "restarted".to_owned()
    }

    fn kill(&mut self) -> String {
        let files = copied(self.store.as_ref().unwrap().directory.path());
        self.open_again(Some(files));
        "killed".to_owned()
    }

    fn kill_amid_prune(&mut self) -> String {
        let at = (self.rng.random_range(0..4), self.rng.random());
        let directory = self.store.as_ref().unwrap().directory.path().to_owned();
        let kill = Kill::plan(self.store(), &directory, at, || ());
        let pruned = self.prune();
        let Some(files) = kill.files(self.store()) else { return pruned };
        self.open_again(Some(files));
        format!("killed at write {at:?}, {pruned}")
    }

    /// Rebuilds the index of names, unless that would lose something.
    fn rebuild(&mut self) -> String {
        let begun = self.begin_rebuild();
        self.index();
        format!("{begun}, and ended")
    }

    fn begin_rebuild(&mut self) -> String {
        match self.store().begin_rebuild(executables::CONSUMER, Losses::Refused) {
            Ok(_) => "a rebuild begun".to_owned(),
            Err(StoreError::RebuildLoses { .. }) => "a rebuild refused".to_owned(),
            Err(error) => panic!("{error}"),
        }
    }

    fn compare(&self) {
        let removed = self.store().status().removed;
        let (events, transactions) = (removed.events, removed.transactions);
        for (question, before) in &self.answers {
            let removed = if question.of_events { &events } else { &transactions };
            // An export has both, or nothing of a ledger.
            let removed = match question.ask {
                Ask::Export if events.is_empty() => &transactions,
                _ => removed,
            };
            let after = match &question.ask {
                Ask::Stream(_) if touches(removed, question.ledgers) => continue,
                ask => self.settled(ask),
            };
            if after == *before {
                continue;
            }
            let what = format!("{question:?} after {:?}", self.steps);
            assert!(
                touches(removed, question.ledgers),
                "{what}: {} {}, before {}",
                after.status,
                after.body,
                before.body
            );
            if after.status == 410 {
                let said = after.body["error"].as_str().unwrap();
                assert!(said.contains("retention has removed"), "{what}: {said}");
                continue;
            }
            // Where neither its events nor itself is left, nothing tells that a transaction existed.
            let is_unknown = touches(&events, question.ledgers)
                && touches(&transactions, question.ledgers)
                && matches!(&question.ask, Ask::Rest(path) if !path.contains("by-id"));
            if !after.body["error"].is_null() {
                // JSON-RPC has the words of the reference implementation.
                let said = after.body["error"].as_str().unwrap_or_default();
                let is_said = is_unknown && said.contains("or retention has removed it");
                assert!(is_said || matches!(question.ask, Ask::Rpc(..)), "{what}: {}", after.body);
                continue;
            }
            let (Some(rows), Some(had)) = (after.rows(), before.rows()) else {
                panic!("{what}: {}, before {}", after.body, before.body)
            };
            let is_single = matches!(&question.ask, Ask::Rest(path) if is_of_one(path));
            assert!(!is_single || is_unknown || !rows.is_empty(), "{what}: nothing is said");
            assert!(rows.iter().all(|row| had.contains(row)), "{what}: {rows:?}, before {had:?}");
            let gone = had.iter().filter(|row| !rows.contains(row));
            for row in gone {
                let at = row["ledger"].as_u64().unwrap() as u32;
                assert!(touches(removed, (at, at)), "{what}: lacks {row}");
            }
        }
    }
}

/// Whether a question is about one event or one transaction.
fn is_of_one(path: &str) -> bool {
    path.contains("by-id") || path.contains("by-tx") || path.contains("by-hash")
}

fn touches(removed: &LedgerSet, (first, last): (u32, u32)) -> bool {
    let asked = LedgerRange::new(first, last);
    removed.ranges().iter().any(|it| it.first <= asked.last && asked.first <= it.last)
}

/// Small: 12 histories; full: 20,000.
#[test]
fn the_same_question_has_the_same_answer_whatever_happened_between() {
    LazyLock::force(&UPGRADED);
    histories::run(12, 20_000, |seed| {
        let mut history = History::new(seed);
        history.store_ledgers();
        history.begin_serving();
        history.ask_first();
        (0..STEPS).for_each(|_| history.step());
        history.served = None;
    });
    if std::env::var_os("ORRERY_TEST_SEED").is_none() {
        assert!(NAMED.load(Ordering::Relaxed) > 0);
    }
}
