//! Limits on the number of connections, the size of request heads, and the time that a connection
//! may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orrery::api::LONGEST_URI;
use orrery::budget::Usage;
use orrery::settings::{Kib, MetricsReaders, Proxies, Seconds, nonzero};

use orrery_testkit::http::Connection;
use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::wait::wait_until;

const TIMEOUT: Duration = Duration::from_secs(20);

fn live(connection: &mut Connection) -> u16 {
    connection.request("GET", "/rest/health/live", &[]).status
}

#[test]
fn connections_per_address_are_limited() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.connections_per_address = nonzero!(2)
    });
    let (mut first, mut second) = (server.connect(), server.connect());
    assert_eq!((live(&mut first), live(&mut second)), (200, 200));
    let mut third = server.connect();
    let answer = third.answer(false);
    assert!(answer.error(429, "too_many_requests").contains("2 connections"));
    assert!(answer.header("retry-after").is_some());
    assert!(third.is_closed_by_server());
    drop(first);
    // The slot of a closed connection is freed soon.
    wait_until("the slot is free", || {
        let mut next = server.connect();
        let _ = next.send(b"GET /rest/health/live HTTP/1.1\r\nhost: x\r\n\r\n");
        next.answer(false).status == 200
    });
}

#[test]
fn trusted_proxies_are_exempt_from_the_connection_limit() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.connections_per_address = nonzero!(1);
        deps.settings.http.trusted_proxies = vec![Proxies("::ffff:127.0.0.1/128".parse().unwrap())];
    });
    let mut connections: Vec<_> = (0..8).map(|_| server.connect()).collect();
    assert!(connections.iter_mut().all(|connection| live(connection) == 200));
}

#[test]
fn the_longest_idle_connection_is_closed_at_the_limit() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.connections = nonzero!(3);
        // No timeout closes a connection while the test waits.
        deps.settings.tunables.first_request_timeout = 10 * TIMEOUT;
        deps.settings.tunables.idle_timeout = 10 * TIMEOUT;
    });
    let mut silent = server.connect();
    let mut asked = server.connect();
    assert_eq!(live(&mut asked), 200);
    // All connections stay open, so only the server can make room.
    let mut newcomers = Vec::new();
    for number in 0..10 {
        let mut newcomer = server.connect();
        assert_eq!(live(&mut newcomer), 200, "newcomer {number} is served");
        newcomers.push(newcomer);
        if number == 1 {
            // This is the fourth connection: the one that is idle longest was closed for it.
            assert!(silent.is_closed_by_server());
            assert_eq!(live(&mut asked), 200, "one is enough");
        }
    }
}

#[test]
fn a_connection_without_a_request_is_closed_early() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.first_request_timeout = Duration::from_millis(100);
    });
    let mut silent = server.connect();
    let mut slow = server.connect();
    slow.send(b"GET /rest/health HTTP/1.1\r\nhost").unwrap();
    let mut quick = server.connect();
    assert_eq!(live(&mut quick), 200);
    slow.answer(false).error(408, "request_timeout");
    assert!(silent.is_closed_by_server());
    assert_eq!(live(&mut quick), 200, "after a request, a longer idle time is allowed");
}

#[test]
fn request_heads_fit_the_longest_uri_and_little_more() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start(&store);
    let route = "/rest/health/live";
    let query = "x".repeat(LONGEST_URI - route.len());
    let filler = "y".repeat(8 << 10);
    let answer =
        server.connect().request("GET", &format!("{route}?{query}"), &[("x-filler", &filler)]);
    assert_eq!(answer.status, 200);
    for headers in [vec!["x"; 70].join(": y\r\n"), format!("x: {}", "y".repeat(49 << 10))] {
        let mut connection = server.connect();
        let _ = connection.send(format!("GET {route} HTTP/1.1\r\n{headers}: z\r\n\r\n").as_bytes());
        connection.answer(false).error(431, "headers_too_large");
    }
}

#[test]
fn responses_read_too_slowly_for_their_length_are_aborted() {
    let store = TempStore::new(&pubnet::network());
    let text = "x".repeat(64 << 20);
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.answer_seconds = Seconds::exactly(Duration::from_millis(300));
        deps.settings.limits.answer_kib_per_second = Kib::new(nonzero!(1 << 20));
        deps.settings.http.connections = nonzero!(1);
        deps.settings.tunables.idle_timeout = TIMEOUT;
        deps.metrics = Arc::new(move |_: &[Usage]| text.clone());
    });
    let mut slow = server.connect();
    slow.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    // The client reads continuously, but far too slowly; the next connection is served once this
    // one is closed.
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_closed.load(Ordering::Relaxed) && slow.read_some() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(live(&mut server.connect()), 200);
        is_closed.store(true, Ordering::Relaxed);
    });
}

/// Starts a server that serves metrics; the counter counts how often they were rendered.
fn with_metrics(readers: MetricsReaders) -> (Server, TempStore, Arc<Mutex<u32>>) {
    let store = TempStore::new(&pubnet::network());
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.metrics = readers;
        deps.settings.http.trusted_proxies = vec![Proxies("127.0.0.1/32".parse().unwrap())];
        deps.metrics = Arc::new(move |usages: &[Usage]| {
            *count.lock().unwrap() += 1;
            usages.iter().map(|usage| format!("{} {}\n", usage.name, usage.taken)).collect()
        });
    });
    (server, store, made)
}

#[test]
fn metrics_are_served_only_to_configured_clients() {
    let forwarded = |server: &Server, address: &str| {
        let headers = [("x-forwarded-for", address)];
        server.connect().request("GET", "/metrics", &headers).status
    };
    let (server, _store, _) = with_metrics(MetricsReaders::Loopback);
    assert_eq!(server.get_public("/metrics").status, 200);
    assert_eq!(forwarded(&server, "192.0.2.1"), 403);
    assert_eq!(forwarded(&server, "127.0.0.2:4711"), 200);
    // Other headers of proxies, and names that lead to this machine by chance.
    for (name, value) in
        [("via", "1.1 proxy"), ("forwarded", "for=192.0.2.1"), ("x-real-ip", "192.0.2.1")]
    {
        let asked = server.connect().request("GET", "/metrics", &[(name, value)]);
        assert!(asked.error(403, "forbidden").contains("as localhost"), "{name}");
    }
    let by_host = |server: &Server, host: &str| {
        let mut connection = server.connect();
        let head = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\n\r\n");
        connection.send(head.as_bytes()).unwrap();
        connection.answer(false).status
    };
    for (host, status) in [
        ("evil.example", 403),
        ("127.0.0.1.evil.example:1", 403),
        ("127.0.0.1:80", 200),
        ("[::1]", 200),
    ] {
        assert_eq!(by_host(&server, host), status, "{host}");
    }
    let (server, _store, _) = with_metrics(MetricsReaders::All);
    assert_eq!(by_host(&server, "any.example"), 200);
    assert_eq!(forwarded(&server, "192.0.2.1"), 200);
    let (server, _store, _) = with_metrics(MetricsReaders::Off);
    server.get_public("/metrics").error(404, "not_found");
}

#[test]
fn metrics_are_rendered_at_most_once_per_second() {
    let (server, _store, made) = with_metrics(MetricsReaders::Loopback);
    let began = Instant::now();
    let answers: Vec<_> = (0..50).map(|_| server.get_public("/metrics").body).collect();
    let most = began.elapsed().as_secs() as u32 + 1;
    assert!(*made.lock().unwrap() <= most);
    let text = String::from_utf8(answers[0].clone()).unwrap();
    let queues = ["connections", "requests", "bytes", "readers", "queries", "changes"];
    for name in queues.into_iter().chain(["uploads", "streams"]) {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is not in {text}");
    }
}
