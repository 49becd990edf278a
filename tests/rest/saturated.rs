//! Two owners who send as much as they are served, one of them with many tokens: how much of what a
//! resource does falls to the other one. Work is counted, not timed: alone, an owner has all of it.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use orrery::settings::nonzero;
use orrery::store::{Durability, IndexOptions};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use orrery_testkit::http::{Answer, Connection};
use orrery_testkit::model::Universe;
use orrery_testkit::sandbox::local;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::wait::wait_until;

use super::owners::{TOKENS, tokens};

/// Number of clients of the owner with many tokens, and of the other one.
const CLIENTS: [usize; 2] = [56, 8];
/// Number of ledgers with 2,000 events each, so that those who read all have something to do.
const LEDGERS: u32 = 30;

/// What a client does: it receives a server and a token, reports how much it was served, and stops
/// when that returns false.
type Client = fn(&Server, &str, &dyn Fn(u64) -> bool);

/// Stores so many ledgers with many events.
pub fn store(ledgers: u32) -> TempStore {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (universe, store) = (Universe::random(&mut rng), TempStore::new(&local()));
    let mut previous = [0; 32];
    for sequence in 2..2 + ledgers {
        let ledger = universe.dense_ledger(&mut rng, sequence, previous);
        previous = ledger.hash;
        let options = IndexOptions { classic_events: true, ..IndexOptions::default() };
        store.store.commit(ledger.prepare(&options), Durability::Deferred).unwrap();
    }
    store.store.flush().unwrap();
    store
}

/// Lets both owners' clients work until they have been served `all` together, and returns how much of
/// it was the second owner's.
fn share(server: &Server, client: Client, owners: [&[String]; 2], all: u64) -> u64 {
    let (served, others) = (AtomicU64::new(0), AtomicU64::new(0));
    let begin = Barrier::new(CLIENTS.iter().sum());
    thread::scope(|scope| {
        for (owner, (tokens, clients)) in owners.iter().zip(CLIENTS).enumerate() {
            for token in tokens.iter().cycle().take(clients) {
                let (served, others, begin) = (&served, &others, &begin);
                scope.spawn(move || {
                    begin.wait();
                    client(server, token, &|more| {
                        let before = served.fetch_add(more, Ordering::SeqCst);
                        if owner == 1 && before < all {
                            others.fetch_add(more, Ordering::SeqCst);
                        }
                        before + more < all
                    });
                });
            }
        }
    });
    others.into_inner()
}

/// Asserts that the other owner has nearly half of what it has when it is alone, whatever number of
/// tokens the first one has. Alone, it has half of the resource: one of two readers, or of two workers.
/// So while both together are served `all`, it would be served half of that.
fn assert_fair(server: &Server, what: &str, client: Client, all: u64) {
    let greedy = tokens(server, "greedy", TOKENS);
    let other = tokens(server, "other", 1);
    for greedy in [&greedy[..1], &greedy] {
        let others = share(server, client, [greedy, &other], all);
        let case = format!("{others} of {all} {what} beside {} tokens", greedy.len());
        println!("{case}");
        assert!(20 * others >= 9 * (all / 2), "{case}");
    }
}

/// Requests pages that are not cached and skip many rows.
fn pages(server: &Server, token: &str, go_on: &dyn Fn(u64) -> bool) {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (mut connection, token) = (server.connect(), format!("Bearer {token}"));
    loop {
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let target = format!("/rest/events/by-ledger?offset=10000&limit=10&to=9999999999{number}");
        let answer = connection.request("GET", &target, &[("authorization", &token)]);
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        if !go_on(1) {
            return;
        }
    }
}

/// Reads streams of all events, from the first one.
fn streams(server: &Server, token: &str, go_on: &dyn Fn(u64) -> bool) {
    loop {
        let mut connection = server.connect();
        let head = format!(
            "GET /rest/events/stream HTTP/1.1\r\nhost: x\r\nlast-event-id: 0\r\n\
             authorization: Bearer {token}\r\n\r\n"
        );
        connection.send(head.as_bytes()).unwrap();
        assert_eq!(connection.answer(true).status, 200);
        let mut bytes = 0;
        while bytes < 4 << 20 {
            let more = connection.read_bytes();
            assert!(more > 0, "the stream goes on");
            bytes += more;
            if !go_on(more) {
                return;
            }
        }
    }
}

/// A query that takes some time.
const LONG_QUERY: &str = "SELECT sum(range) FROM range(3000000)";

fn query(connection: &mut Connection, token: &str, query: &str) -> Answer {
    let body = format!(r#"{{"query":"{query}"}}"#);
    let request = format!(
        "POST /rest/retroshade/query HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.send(request.as_bytes()).unwrap();
    connection.answer(false)
}

/// Runs queries that take some time. One above the limit is refused, and sent again.
fn queries(server: &Server, token: &str, go_on: &dyn Fn(u64) -> bool) {
    let mut connection = server.connect();
    loop {
        let answer = query(&mut connection, token, LONG_QUERY);
        if answer.status == 429 {
            thread::sleep(Duration::from_millis(5));
        } else {
            assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        }
        if !go_on(u64::from(answer.status == 200)) {
            return;
        }
    }
}

#[test]
fn pages_and_streams_of_another_owner_are_read_beside_one_with_many_tokens() {
    let store = store(LEDGERS);
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.readers = 2;
        deps.settings.limits.requests_in_flight = nonzero!(100);
        deps.settings.limits.connections_per_address = nonzero!(200);
        // Those that are closed count until the server writes to them again.
        (deps.settings.limits.streams, deps.settings.limits.streams_per_token) =
            (nonzero!(1000), nonzero!(500));
    });
    assert_fair(&server, "pages", pages, 400);
    assert_fair(&server, "bytes", streams, 24 << 20);
}

#[test]
fn queries_of_another_owner_are_answered_beside_one_with_many_tokens() {
    let store = TempStore::new(&local());
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.requests_in_flight = nonzero!(100);
        deps.settings.limits.connections_per_address = nonzero!(200);
    });
    // The file of an owner is made when it is asked for first.
    for owner in ["greedy", "other"] {
        let token = &tokens(&server, owner, 1)[0];
        wait_until(owner, || match query(&mut server.connect(), token, "SELECT 1").status {
            200 => Ok(()),
            status => Err(status),
        });
    }
    assert_fair(&server, "queries", queries, 200);
}
