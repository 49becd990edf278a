//! Names in first answers: a page waits for interfaces that are stored, for a bounded time, and says where
//! a name may still come; a stream holds events back until their names are at hand.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use orrery::executables::{ExecutableIndex, Interfaces};
use orrery_testkit::client::HTTP;
use orrery_testkit::pubnet::{commit, store_of};
use orrery_testkit::sandbox::local;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::upgraded::Upgraded;
use orrery_testkit::wait::wait_until;
use serde_json::Value;

static UPGRADED: LazyLock<Upgraded> = LazyLock::new(Upgraded::made);

/// A server with the thread that reads interfaces.
struct Named {
    server: Server,
    interfaces: Arc<Interfaces>,
    reader: Option<JoinHandle<()>>,
}

impl Named {
    /// Serves a store with nothing in memory.
    fn start(store: &TempStore) -> Self {
        let mut named = Self::without_reader(store);
        let interfaces = Arc::clone(&named.interfaces);
        named.reader = Some(thread::spawn(move || interfaces.work()));
        named
    }

    /// As [`Self::start`], without a thread that reads interfaces.
    fn without_reader(store: &TempStore) -> Self {
        let interfaces = Interfaces::new(Arc::clone(&store.store), None);
        let own = Arc::clone(&interfaces);
        let server = Server::start_with(store, move |deps| deps.interfaces = own);
        Self { server, interfaces, reader: None }
    }

    fn stop_reader(&mut self) {
        self.interfaces.stop();
        self.reader.take().into_iter().for_each(|reader| reader.join().unwrap());
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.stop_reader();
    }
}

/// Lists with the events and transactions of the contracts.
fn lists() -> Vec<String> {
    let one = UPGRADED.contracts[0];
    let all = UPGRADED.contracts.map(|it| it.to_string()).join(",");
    [
        "events/by-ledger?limit=500".to_owned(),
        format!("events/by-contract/{one}?limit=500"),
        format!("events/by-contracts?contracts={all}&limit=500"),
        "txs/by-ledger?limit=200".to_owned(),
        format!("txs/by-contract/{one}?limit=200"),
    ]
    .into_iter()
    .map(|path| format!("/rest/{path}&decoded=true"))
    .collect()
}

/// Number of services that are asked for each list.
const STARTS: usize = 4;

fn is_pending(row: &Value) -> bool {
    row["decoded"]["names_pending"] == true
}

/// A list whose names are all there, as it is asked for until it is.
fn settled(named: &Named, path: &str) -> Vec<Value> {
    wait_until("the list has its names", || {
        let rows = named.server.get(path).json();
        let rows = rows.as_array().unwrap();
        (!rows.iter().any(is_pending)).then(|| rows.clone())
    })
}

#[test]
fn the_first_answer_has_the_names_that_are_stored() {
    let store = store_of(&local(), &UPGRADED.ledgers);
    for path in lists() {
        let expected = settled(&Named::start(&store), &path);
        let names = expected.iter().filter(|row| row["decoded"]["name"].is_string()).count();
        assert!(names > 0 || path.contains("/txs/"), "{path}");
        // On a busy machine a service may be too late for some names, which it says.
        let mut late = 0;
        for _ in 0..STARTS {
            let first = Named::start(&store).server.get(&path).json().as_array().unwrap().clone();
            assert_eq!(first.len(), expected.len(), "{path}");
            for (row, expected) in first.iter().zip(&expected).filter(|it| !is_pending(it.0)) {
                assert_eq!(row, expected, "{path}");
            }
            late += usize::from(first.iter().any(is_pending));
        }
        assert!(late * 2 <= STARTS, "{path}: {late} of {STARTS} services had not all names");
    }
}

#[test]
fn an_answer_without_a_stored_name_comes_in_time_and_says_so() {
    let store = store_of(&local(), &UPGRADED.ledgers);
    let mut named = Named::start(&store);
    // It fulfils no wish any more.
    named.stop_reader();
    for path in lists() {
        let begun = Instant::now();
        let rows = named.server.get(&path).json();
        assert!(begun.elapsed() < Duration::from_secs(30), "{path}: {:?}", begun.elapsed());
        let rows = rows.as_array().unwrap();
        assert!(rows.iter().any(is_pending), "{path}");
        for row in rows.iter().filter(|row| row["decoded"].get("name").is_some()) {
            assert!(row["decoded"]["name"].is_null() || !is_pending(row), "{path}: {row}");
        }
    }
    // Without a thread that could read them, nothing is waited for.
    let named = Named::without_reader(&store);
    assert!(named.server.get(&lists()[0]).json().as_array().unwrap().iter().any(is_pending));
}

/// What a contract declares is read by the thread that reads interfaces; a request waits for it.
#[test]
fn the_interface_of_a_contract_is_listed_once_it_has_been_read() {
    let store = store_of(&local(), &UPGRADED.ledgers);
    let paths = UPGRADED.contracts.map(|it| format!("/rest/contracts/{it}"));
    let because = |named: &Named, path: &str| {
        let answer = named.server.get(path).json();
        assert!(answer["executable"]["wasm"].is_string(), "{answer}");
        answer["interface_unknown_because"].as_str().map(str::to_owned)
    };
    let first: Vec<_> = {
        let named = Named::start(&store);
        paths.iter().map(|path| because(&named, path)).collect()
    };
    let is_read = |because: &Option<String>| {
        because.as_ref().is_none_or(|because| !because.contains("is being read"))
    };
    assert!(first.iter().all(is_read) && first.contains(&None), "{first:?}");
    let mut named = Named::start(&store);
    // It fulfils no wish any more.
    named.stop_reader();
    for path in &paths {
        let begun = Instant::now();
        let because = because(&named, path).unwrap();
        assert!(because.ends_with("is being read: ask again in a second"), "{because}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{path}: {:?}", begun.elapsed());
    }
    // Without such a thread, the request reads it.
    let named = Named::without_reader(&store);
    let read: Vec<_> = paths.iter().map(|path| because(&named, path)).collect();
    assert_eq!(read, first);
}

#[test]
fn a_stream_holds_events_back_until_the_index_has_their_ledgers() {
    let all = store_of(&local(), &UPGRADED.ledgers);
    let named = Named::start(&all);
    let by_id = "/rest/events/by-ledger?limit=500&order=asc&decoded=true";
    let expected = settled(&named, by_id);
    drop(named);
    let store = TempStore::with_names(&local());
    // The server drives the index once, before it starts.
    let named = Named::start(&store);
    let url = format!("http://{}/rest/events/stream?decoded=true", named.server.address);
    let request = HTTP.get(url).bearer_auth(&named.server.token).header("Last-Event-ID", "0");
    let mut lines = BufReader::new(request.send().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "id: 0"));
    commit(&store.store, &UPGRADED.ledgers);
    let indexing = {
        let store = Arc::clone(&store.store);
        thread::spawn(move || {
            // A slow index.
            thread::sleep(Duration::from_millis(500));
            while store.step(&ExecutableIndex).unwrap() {}
        })
    };
    let events = lines.filter_map(|line| {
        line.strip_prefix("data: ").map(|data| serde_json::from_str::<Value>(data).unwrap())
    });
    let streamed: Vec<Value> = events.take(expected.len()).collect();
    indexing.join().unwrap();
    assert_eq!(streamed, expected);
}
