//! Cached responses: they equal computed ones, cost the caller as much, and no client that learnt
//! of a ledger receives a page from before it.

use std::io::Read;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;
use orrery::domain::{ContractId, LedgerRange, Network, Page, TxHash};
use orrery::store::{
    Durability, EventQuery, IndexOptions, Retention, Store, TopicFilter, TransactionQuery,
};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use orrery_testkit::http::{Answer, Connection};
use orrery_testkit::model::{Ledger, Model, Universe};
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

const FIRST: u32 = 100;
/// Ledgers that are stored before the first request.
const AT_START: usize = 30;
/// Ledgers whose events and transactions are not pruned.
const RETAINED: u32 = 20;
const READERS: u64 = 4;
/// A route without parameters other than those of pages.
const LIST: &str = "/rest/events/by-ledger";

fn options() -> IndexOptions {
    IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: true }
}

fn chain(universe: &Universe, rng: &mut ChaCha8Rng, length: u64) -> Vec<Ledger> {
    let mut previous = [0; 32];
    let close = |sequence| {
        let ledger = universe.ledger(rng, sequence, previous);
        previous = ledger.hash;
        ledger
    };
    (FIRST..FIRST + length as u32).map(close).collect()
}

fn commit(store: &Store, ledger: &Ledger, durability: Durability) {
    store.commit(ledger.prepare(&options()), durability).unwrap();
}

/// Starts a server that records for each response whether it came from the cache.
fn serve(store: &TempStore) -> (Server, Arc<Mutex<Vec<Option<bool>>>>) {
    let cache_hits = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&cache_hits);
    let server = Server::start_with(store, |deps| {
        deps.on_request = Arc::new(move |summary| report.lock().unwrap().push(summary.from_cache));
    });
    (server, cache_hits)
}

/// A store of eleven ledgers, and the ledger after them.
fn some_ledgers() -> (TempStore, Ledger) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let universe = Universe::random(&mut rng);
    let mut ledgers = chain(&universe, &mut rng, 12);
    let next = ledgers.pop().unwrap();
    let store = TempStore::new(&Network::from_passphrase("kept answers"));
    ledgers.iter().for_each(|ledger| commit(&store.store, ledger, Durability::Synced));
    (store, next)
}

/// The decompressed body of a response.
fn plain(answer: &Answer) -> Vec<u8> {
    let Some(encoding) = answer.header("content-encoding") else { return answer.body.clone() };
    assert_eq!(encoding, "gzip");
    let mut body = Vec::new();
    GzDecoder::new(&answer.body[..]).read_to_end(&mut body).unwrap();
    body
}

#[test]
fn cached_responses_equal_computed_ones_in_every_encoding() {
    let (store, next) = some_ledgers();
    let (server, cache_hits) = serve(&store);
    let authorization = format!("Bearer {}", server.token);
    let ask = |method: &str, encoding: &str| {
        let headers = [
            ("authorization", authorization.as_str()),
            ("accept-encoding", encoding),
            ("x-request-id", "same"),
        ];
        let mut answer = server.connect().request(method, LIST, &headers);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.headers.retain(|(name, _)| name != "date");
        answer
    };
    for round in 0..2 {
        let forms = ["identity", "gzip"].map(|encoding| {
            let (computed, cached) = (ask("GET", encoding), ask("GET", encoding));
            assert_eq!((&computed.headers, &computed.body), (&cached.headers, &cached.body));
            let head = ask("HEAD", encoding);
            assert_eq!((&head.headers, head.body.len()), (&cached.headers, 0));
            assert_eq!(cached.header("content-encoding"), (encoding == "gzip").then_some("gzip"));
            cached
        });
        assert_eq!(forms[0].body, plain(&forms[1]));
        let newest = forms[0].json()[0]["ledger"].as_u64().unwrap();
        assert_eq!(newest == u64::from(next.sequence), round == 1);
        let both = [Some(false), Some(true), Some(true)].repeat(2);
        assert_eq!(std::mem::take(&mut *cache_hits.lock().unwrap()), both);
        if round == 0 {
            commit(&store.store, &next, Durability::Synced);
        }
    }
}

#[test]
fn errors_and_responses_other_than_lists_are_not_cached() {
    let (store, next) = some_ledgers();
    let (server, cache_hits) = serve(&store);
    let later = &next.transactions.iter().find(|t| t.smart_contract).unwrap().hash;
    let cursor = format!("/rest/txs/by-ledger?cursor={}", TxHash::from(*later));
    for path in ["/rest/health", "/rest/completeness", "/rest/openapi.json"] {
        assert_eq!([(); 2].map(|()| server.get(path).status), [200; 2]);
    }
    for path in [cursor.as_str(), "/rest/events/by-tx/x", "/rest/events/by-ledger?limit=0"] {
        assert_eq!([(); 2].map(|()| server.get(path).status / 100), [4; 2]);
    }
    assert_eq!(*cache_hits.lock().unwrap(), [None; 12]);
    commit(&store.store, &next, Durability::Deferred);
    assert_eq!(server.get(&cursor).status, 200);
}

#[test]
fn cached_responses_still_require_a_token_and_count_as_requests() {
    let (store, _) = some_ledgers();
    let server = Server::start_with(&store, |deps| {
        (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, 3);
    });
    for _ in 0..3 {
        assert_eq!(server.get(LIST).status, 200);
    }
    server.get(LIST).error(429, "too_many_requests");
    server.get_public(LIST).error(401, "unauthorized");
}

/// State shared by the writer and the pollers.
#[derive(Default)]
struct SharedProgress {
    /// Newest ledger that any client has learnt of.
    newest: AtomicU32,
    /// Newest ledger whose write has begun.
    begun: AtomicU32,
    /// Ledgers before this one have been pruned.
    floor: AtomicU32,
    /// Ledgers before this one may have been pruned.
    floor_begun: AtomicU32,
    /// Number of pages requested so far.
    asked: AtomicU64,
    done: AtomicBool,
}

/// A page that is requested again and again.
struct Polled {
    path: String,
    /// The field that identifies its rows.
    key: &'static str,
    /// Keys and ledgers of the page's rows after each ledger, without pruning; index 0 is for
    /// ledger `FIRST`.
    rows: Vec<Vec<(String, u32)>>,
}

impl Polled {
    /// Asserts that a response is the page after one of the ledgers `states`: it has no rows from
    /// before the first floor, and only rows from before the second are missing.
    fn check(&self, answer: &Answer, states: RangeInclusive<u32>, floors: (u32, u32)) {
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&plain(answer)).unwrap();
        let text = |row: &serde_json::Value| row[self.key].to_string().replace('"', "");
        let keys: Vec<String> = rows.iter().map(text).collect();
        let is_page_of = |state: &u32| {
            let expected = &self.rows[(state - FIRST) as usize];
            let (there, gone) = expected.split_at(keys.len().min(expected.len()));
            there.iter().map(|(key, _)| key).eq(&keys)
                && there.iter().all(|(_, ledger)| *ledger >= floors.0)
                && gone.iter().all(|(_, ledger)| *ledger < floors.1)
        };
        let path = &self.path;
        let is_expected = states.clone().any(|state| is_page_of(&state));
        assert!(is_expected, "{path}, ledgers {states:?}, floors {floors:?}: {keys:?}");
    }
}

fn polled(model: &Model, universe: &Universe, last: u32) -> Vec<Polled> {
    let [busy, other, third] = [0, 1, 2].map(|index| universe.contracts[index]);
    let as_of = |state| Some(LedgerRange::new(0, state));
    let events = |path: String, contracts: &[ContractId], limit| {
        let rows = |state| {
            let query = EventQuery {
                ledgers: as_of(state),
                contracts: contracts.to_vec(),
                topics: TopicFilter::default(),
                page: Page::first(limit),
            };
            let rows = model.events(&query).into_iter();
            rows.map(|row| (row.id.to_string(), row.ledger)).collect()
        };
        Polled { path, key: "id", rows: (FIRST..=last).map(rows).collect() }
    };
    let transactions = |path: String, contracts: &[ContractId], limit| {
        let rows = |state| {
            let (contracts, page) = (contracts.to_vec(), Page::first(limit));
            let query = TransactionQuery { ledgers: as_of(state), contracts, page };
            let rows = model.transactions(&query).into_iter();
            rows.map(|row| (TxHash::from(row.tx).to_string(), row.position.ledger.0)).collect()
        };
        Polled { path, key: "tx", rows: (FIRST..=last).map(rows).collect() }
    };
    let both = format!("contracts={other},{third}&limit=9");
    vec![
        events(format!("{LIST}?limit=7"), &[], 7),
        events(format!("{LIST}?limit=100&from={FIRST}"), &[], 100),
        events(format!("/rest/events/by-contract/{busy}?limit=50"), &[busy], 50),
        events(format!("/rest/events/by-contracts?{both}"), &[other, third], 9),
        transactions("/rest/txs/by-ledger?limit=5".into(), &[], 5),
        transactions(format!("/rest/txs/by-contract/{busy}?limit=50"), &[busy], 50),
        transactions(format!("/rest/txs/by-contracts?{both}"), &[other, third], 9),
    ]
}

/// Requests pages while ledgers are stored and pruned, and learns of new ledgers from the store,
/// from `/rest/health` and from pages.
fn poll(server: &Server, store: &Store, progress: &SharedProgress, pages: &[Polled], seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let authorization = format!("Bearer {}", server.token);
    let mut connection = server.connect();
    let get = |connection: &mut Connection, path: &str, encoding: &str| {
        let headers = [("authorization", authorization.as_str()), ("accept-encoding", encoding)];
        let answer = connection.request("GET", path, &headers);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    };
    while !progress.done.load(Ordering::SeqCst) {
        let learnt = match rng.random_range(0..4) {
            0 => store.status().latest().map(|ledger| u64::from(ledger.0)),
            1 => get(&mut connection, "/rest/health", "").json()["service_latest_ledger"].as_u64(),
            2 => {
                // A page that was never requested before, and so is not cached.
                let path = format!("{LIST}?limit=1&to=9999999999{}", rng.random::<u64>());
                get(&mut connection, &path, "").json()[0]["ledger"].as_u64()
            }
            _ => None,
        };
        progress.newest.fetch_max(learnt.unwrap_or(0) as u32, Ordering::SeqCst);
        let known = progress.newest.load(Ordering::SeqCst);
        let floor = progress.floor.load(Ordering::SeqCst);
        let page = pages.choose(&mut rng).unwrap();
        let encoding = *["", "gzip"].choose(&mut rng).unwrap();
        let answer = get(&mut connection, &page.path, encoding);
        let begun = progress.begun.load(Ordering::SeqCst);
        page.check(&answer, known..=begun, (floor, progress.floor_begun.load(Ordering::SeqCst)));
        progress.asked.fetch_add(1, Ordering::SeqCst);
    }
}

/// Stores ledgers and prunes at random, at times waiting until the pollers have received some
/// pages.
fn write(store: &Store, progress: &SharedProgress, ledgers: &[Ledger]) {
    let mut rng = ChaCha8Rng::seed_from_u64(READERS);
    for ledger in ledgers {
        let deferred = rng.random_bool(0.3);
        let durability = if deferred { Durability::Deferred } else { Durability::Synced };
        progress.begun.store(ledger.sequence, Ordering::SeqCst);
        commit(store, ledger, durability);
        progress.newest.fetch_max(ledger.sequence, Ordering::SeqCst);
        if rng.random_bool(0.3) {
            let kept = Some(RETAINED);
            let retention = Retention {
                raw_ledgers: kept,
                events: kept,
                transactions: kept,
                ..Retention::default()
            };
            let floor = ledger.sequence + 1 - RETAINED;
            store.flush().unwrap();
            progress.floor_begun.store(floor, Ordering::SeqCst);
            while !store.prune(&retention).unwrap().is_nothing() {}
            progress.floor.store(floor, Ordering::SeqCst);
        }
        let pages = if rng.random_bool(0.5) { rng.random_range(0..60) } else { 0 };
        let enough = progress.asked.load(Ordering::SeqCst) + pages;
        wait_until("enough pages are asked for, or the askers have ended", || {
            progress.asked.load(Ordering::SeqCst) >= enough || progress.done.load(Ordering::SeqCst)
        });
    }
}

/// Ends the test when dropped, also when a thread panics, so that the other threads stop.
struct Done<'a>(&'a SharedProgress);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done.store(true, Ordering::SeqCst);
    }
}

/// Small: 150 ledgers; full: 600.
#[test]
fn clients_that_know_a_ledger_never_get_an_older_page() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let universe = Universe::random(&mut rng);
    let ledgers = chain(&universe, &mut rng, size::choose(150, 600));
    let mut model = Model::default();
    ledgers.iter().for_each(|ledger| model.add(ledger, &options()));
    let store = TempStore::new(&Network::from_passphrase("kept answers"));
    let (first, later) = ledgers.split_at(AT_START);
    first.iter().for_each(|ledger| commit(&store.store, ledger, Durability::Synced));
    let progress = SharedProgress::default();
    progress.newest.store(first.last().unwrap().sequence, Ordering::SeqCst);
    progress.begun.store(first.last().unwrap().sequence, Ordering::SeqCst);
    let pages = polled(&model, &universe, ledgers.last().unwrap().sequence);
    let (server, cache_hits) = serve(&store);
    std::thread::scope(|scope| {
        for seed in 0..READERS {
            let (server, store, progress, pages) = (&server, &store.store, &progress, &pages);
            scope.spawn(move || {
                let _done = Done(progress);
                poll(server, store, progress, pages, seed);
            });
        }
        let _done = Done(&progress);
        write(&store.store, &progress, later);
    });
    let cache_hits = cache_hits.lock().unwrap();
    let count = |is_hit| cache_hits.iter().filter(|was| **was == Some(is_hit)).count();
    println!("{} cached responses, {} computed ones", count(true), count(false));
    assert!(count(true) > ledgers.len() && count(false) > ledgers.len());
}
