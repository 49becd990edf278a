//! The server's HTTP behaviour: methods, bodies, headers, limits, slow and broken clients, and
//! shutdown.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flate2::read::GzDecoder;
use orrery::api::{LARGEST_BODY, LONGEST_URI};
use orrery::settings::{MetricsReaders, nonzero};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use orrery_testkit::http::{Answer, Connection};
use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};
use orrery_testkit::size;

const PROTECTED: &str = "/rest/events/by-ledger";

fn server() -> (Server, TempStore) {
    let store = TempStore::new(&pubnet::network());
    (Server::start(&store), store)
}

/// Asserts that the connection can serve another request.
fn assert_alive(connection: &mut Connection) {
    assert_eq!(connection.request("GET", "/rest/health/live", &[]).status, 200);
}

#[test]
fn unknown_routes_return_404_with_or_without_a_token() {
    let store = TempStore::new(&pubnet::network());
    let server =
        Server::start_with(&store, |deps| deps.settings.http.metrics = MetricsReaders::Off);
    for path in [
        "/index.html",
        "/site",
        "/status/index.html",
        "/rest",
        "/rest/",
        "/health",
        "/rest/healthy",
        "/rest/health/x",
        "//rest/health",
        "/rest/events",
        "/rest/events/",
        "/rest/events/by-tx",
        "/rest/events/by-tx/",
        "/rest/events/by-ledger/contracts/x",
        "/rest/txs/by-tx/x",
        "/rest/events/by-hash/x",
        "/REST/health",
        "/rest/../rest/health",
        "/rest/%2e%2e/%00",
        "/rest/\u{fc}",
    ] {
        for answer in [server.get_public(path), server.get(path)] {
            answer.error(404, "not_found");
        }
        server.connect().request("POST", path, &[("content-length", "0")]).error(404, "not_found");
    }
    server.get_public("/metrics").error(404, "not_found");
}

#[test]
fn unknown_routes_name_the_nearest_ones() {
    let (server, _store) = server();
    for (path, nearest) in [
        (
            "/rest/events",
            "did you mean /rest/events/by-ledger, /rest/events/by-contract/{contract_id} or ",
        ),
        ("/rest/tables", "did you mean /rest/retroshade/tables?"),
        ("/rest/events/by-legder", "did you mean /rest/events/by-ledger?"),
        ("/health", "did you mean /rest/health?"),
        ("/nonsense", "see /rest/openapi.json for those that exist"),
    ] {
        let sentence = server.get_public(path).error(404, "not_found");
        assert!(sentence.contains(nearest), "{path}: {sentence}");
    }
}

#[test]
fn other_methods_return_405_with_an_allow_header() {
    let (server, _store) = server();
    let mut connection = server.connect();
    for path in [PROTECTED, "/rest/health", "/rest/openapi.json", "/rest/txs/by-hash/x/"] {
        for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "PURGE", "get"] {
            let answer = connection.request(method, path, &[]);
            answer.error(405, "method_not_allowed");
            assert_eq!(answer.header("allow"), Some("GET, HEAD, OPTIONS"), "{method} {path}");
        }
    }
    let long = "M".repeat(3000);
    connection.request(&long, PROTECTED, &[]).error(405, "method_not_allowed");
}

#[test]
fn head_is_get_without_a_body() {
    let (server, _store) = server();
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str()), ("x-request-id", "same")];
    let mut connection = server.connect();
    for path in
        [PROTECTED, "/rest/health", "/rest/openapi.json", "/rest/nothing", "/rest/txs/by-hash/x"]
    {
        let (head, get) =
            (connection.request("HEAD", path, &headers), connection.request("GET", path, &headers));
        let but_date = |answer: &Answer| -> Vec<_> {
            answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
        };
        assert_eq!((head.status, but_date(&head)), (get.status, but_date(&get)), "{path}");
        assert!(head.body.is_empty() && !get.body.is_empty());
    }
}

#[test]
fn options_return_204_and_allow_any_origin_on_public_routes_only() {
    let (server, _store) = server();
    let mut connection = server.connect();
    let preflight = [("origin", "https://a.example"), ("access-control-request-method", "GET")];
    for (path, public) in [("/rest/health", true), ("/rest/openapi.json", true), (PROTECTED, false)]
    {
        let options = connection.request("OPTIONS", path, &preflight);
        assert_eq!((options.status, options.header("allow")), (204, Some("GET, HEAD, OPTIONS")));
        let origin = public.then_some("*");
        assert_eq!(options.header("access-control-allow-origin"), origin, "{path}");
        assert_eq!(options.header("access-control-allow-methods").is_some(), public);
        for answer in [
            connection.request("GET", path, &preflight),
            connection.request("POST", path, &preflight),
        ] {
            assert_eq!(answer.header("access-control-allow-origin"), origin, "{path} {answer:?}");
        }
    }
    server.health.down("source", "gone");
    let answer = connection.request("GET", "/rest/health/ready", &preflight);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (503, Some("*")));
    connection.request("OPTIONS", "/rest/nothing", &preflight).error(404, "not_found");
}

#[test]
fn configured_origins_may_read_protected_routes() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.http.cors_origins = vec!["https://a.example".to_owned().try_into().unwrap()];
    });
    let ask = |origin| server.connect().request("OPTIONS", PROTECTED, &[("origin", origin)]);
    let (good, bad) = (ask("https://a.example"), ask("https://b.example"));
    assert_eq!(good.header("access-control-allow-origin"), Some("https://a.example"));
    // What browsers, and the replacements of their EventSource, send.
    let headers = good.header("access-control-allow-headers").unwrap().to_ascii_lowercase();
    let allowed: Vec<&str> = headers.split(", ").collect();
    for name in ["accept", "authorization", "cache-control", "content-type", "last-event-id"] {
        assert!(allowed.contains(&name), "{name}: {headers}");
    }
    assert_eq!(good.header("vary"), Some("Origin"));
    assert_eq!(bad.header("access-control-allow-origin"), None);
}

#[test]
fn every_response_has_a_request_id() {
    let (server, _store) = server();
    let mut connection = server.connect();
    let mut ask = |given: &str| {
        let answer = connection.request("GET", "/rest/nothing", &[("x-request-id", given)]);
        answer.header("x-request-id").unwrap().to_owned()
    };
    for sane in ["a", "4bf92f35-77b3/4da6:a3ce.929d=_+@", &"x".repeat(128)] {
        assert_eq!(ask(sane), sane);
    }
    let mut seen = Vec::new();
    for other in ["", "a b", "\u{e9}", "\"", "<script>", &"x".repeat(129)] {
        let fresh = ask(other);
        assert!(fresh.len() == 16 && fresh != other && !seen.contains(&fresh), "{fresh}");
        seen.push(fresh);
    }
}

#[test]
fn long_responses_are_compressed_on_request() {
    let (server, _store) = server();
    let mut connection = server.connect();
    let plain = connection.request("GET", "/rest/openapi.json", &[]);
    assert_eq!(
        (plain.header("content-encoding"), plain.header("vary")),
        (None, Some("Accept-Encoding"))
    );
    let zipped =
        connection.request("GET", "/rest/openapi.json", &[("accept-encoding", "br, gzip;q=0.5")]);
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    GzDecoder::new(&zipped.body[..]).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain.body && zipped.body.len() < plain.body.len() / 2);
    for (path, accepted) in [("/rest/openapi.json", "gzip;q=0"), ("/rest/health/live", "gzip")] {
        let answer = connection.request("GET", path, &[("accept-encoding", accepted)]);
        assert_eq!(answer.header("content-encoding"), None, "{path} {accepted}");
    }
}

#[test]
fn bodies_on_get_are_read_and_ignored() {
    let (server, _store) = server();
    let authorization = format!("authorization: Bearer {}", server.token);
    let mut connection = server.connect();
    let whole = "x".repeat(LARGEST_BODY);
    for (framing, body) in [
        ("content-length: 0".to_owned(), String::new()),
        ("content-length: 5".into(), "{\"a\":".into()),
        (format!("content-length: {LARGEST_BODY}"), whole.clone()),
        ("transfer-encoding: chunked".into(), "3\r\nabc\r\n0\r\n\r\n".into()),
        ("transfer-encoding: chunked".into(), format!("{LARGEST_BODY:x}\r\n{whole}\r\n0\r\n\r\n")),
    ] {
        for (path, status) in [(PROTECTED, 200), ("/rest/nothing", 404)] {
            let head =
                format!("GET {path} HTTP/1.1\r\nhost: x\r\n{authorization}\r\n{framing}\r\n\r\n");
            connection.send(head.as_bytes()).unwrap();
            connection.send(body.as_bytes()).unwrap();
            assert_eq!(connection.answer(false).status, status, "{framing}");
        }
        assert_alive(&mut connection);
    }
}

#[test]
fn bodies_over_the_limit_return_413_before_they_are_complete() {
    let (server, _store) = server();
    let over = LARGEST_BODY + 1;
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    for (framing, body) in [
        (format!("content-length: {over}"), String::new()),
        (format!("content-length: {over}\r\nexpect: 100-continue"), String::new()),
        (format!("content-length: {}", u64::MAX / 2), "x".repeat(4 << 20)),
        (format!("content-length: {}", 8 << 20), "x".repeat(8 << 20)),
        ("transfer-encoding: chunked".into(), chunk.repeat(64)),
    ] {
        let mut connection = server.connect();
        let head = format!("POST /rest/health HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n");
        connection.send(head.replace("POST", "GET").as_bytes()).unwrap();
        connection.send(body.as_bytes()).unwrap();
        let answer = connection.answer(false);
        answer.error(413, "body_too_large");
        assert_eq!(answer.header("connection"), Some("close"));
    }
    let mut connection = server.connect();
    connection
        .send(
            format!("GET {PROTECTED} HTTP/1.1\r\nhost: x\r\ncontent-length: {over}\r\n\r\n")
                .as_bytes(),
        )
        .unwrap();
    connection.answer(false).error(401, "unauthorized");
}

#[test]
fn malformed_bodies_return_400() {
    let (server, _store) = server();
    let mut connection = server.connect();
    let head = "GET /rest/health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n";
    connection.send(head.as_bytes()).unwrap();
    connection.answer(false).error(400, "bad_request");
    let mut connection = server.connect();
    connection
        .send(b"GET /rest/health HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc")
        .unwrap();
    connection.finish_sending();
    connection.answer(false).error(400, "bad_request");
}

#[test]
fn malformed_http_requests_get_json_errors() {
    let (server, _store) = server();
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    for (request, status, code) in [
        (b"nonsense\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), 400, "bad_request"),
        (b"GET /rest/health HTTP/9.9\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"GET /rest/health HTTP/1.1\r\nno colon\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"GET /rest/health HTTP/1.1\r\nx: \x01\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"GET /rest/events/by-ledger?limit=\xff HTTP/1.1\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"GET /rest/\xc3\x28 HTTP/1.1\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), 505, "http_version"),
        (b"GE\xffT / HTTP/1.1\r\n\r\n".to_vec(), 400, "bad_request"),
        (b"GET /rest/health HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_vec(), 400, "bad_request"),
        (
            b"GET /rest/health HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_vec(),
            400,
            "bad_request",
        ),
        (format!("GET / HTTP/1.1\r\n{many}\r\n").into_bytes(), 431, "headers_too_large"),
        (
            format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)).into_bytes(),
            431,
            "headers_too_large",
        ),
        (
            format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(100_000)).into_bytes(),
            414,
            "uri_too_long",
        ),
        (
            format!("GET /{} HTTP/1.1\r\n\r\n", "y".repeat(LONGEST_URI)).into_bytes(),
            414,
            "uri_too_long",
        ),
    ] {
        let mut connection = server.connect();
        // The server may close the connection before the whole request is sent.
        let _ = connection.send(&request);
        let answer = connection.answer(false);
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]);
        assert_eq!(answer.status, status, "{shown:?}");
        answer.error(status, code);
    }
    assert_alive(&mut server.connect());
}

/// Requests with bytes changed, inserted or removed at random: each is answered or its connection
/// is closed, and the next client is served.
#[test]
fn damaged_requests_do_not_affect_other_clients() {
    let (server, _store) = server();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let whole = format!(
        "GET {PROTECTED}?limit=5&topics=a%20b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 3\r\n\r\nabc",
        server.token
    );
    for _ in 0..size::choose(500, 20_000) {
        let mut request = whole.clone().into_bytes();
        for _ in 0..rng.random_range(1..6) {
            let at = rng.random_range(0..request.len());
            match rng.random_range(0..3) {
                0 => request[at] = rng.random(),
                1 => request.insert(at, *b"\r\n %&=:/\0\xff".choose(&mut rng).unwrap()),
                _ => drop(request.drain(at..(at + 3).min(request.len()))),
            }
        }
        let mut connection = server.connect();
        connection.send(&request).unwrap();
        connection.finish_sending();
        while !connection.is_closed_by_server() {
            let answer = connection.answer(false);
            if answer.status != 204 {
                answer.json();
            }
        }
    }
    assert_alive(&mut server.connect());
}

#[test]
fn http_1_0_pipelined_and_bytewise_requests_are_served() {
    let (server, _store) = server();
    let mut connection = server.connect();
    connection.send(b"GET /rest/health/live HTTP/1.0\r\n\r\n").unwrap();
    connection.finish_sending();
    assert_eq!(connection.answer(false).status, 200);
    assert!(connection.is_closed_by_server());

    let mut connection = server.connect();
    let one = "GET /rest/health/live HTTP/1.1\r\nhost: x\r\n\r\n";
    connection.send(one.repeat(20).as_bytes()).unwrap();
    for _ in 0..20 {
        assert_eq!(connection.answer(false).status, 200, "pipelined");
    }
    for byte in one.bytes() {
        connection.send(&[byte]).unwrap();
    }
    assert_eq!(connection.answer(false).status, 200, "byte by byte");
}

#[test]
fn slow_clients_are_timed_out() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.header_timeout = Duration::from_millis(200);
        deps.settings.tunables.idle_timeout = Duration::from_millis(400);
        deps.settings.tunables.body_timeout = Duration::from_millis(200);
    });
    let mut slow_head = server.connect();
    slow_head.send(b"GET /rest/health HTTP/1.1\r\nhost").unwrap();
    slow_head.answer(false).error(408, "request_timeout");
    let mut slow_body = server.connect();
    slow_body.send(b"GET /rest/health HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nab").unwrap();
    slow_body.answer(false).error(408, "request_timeout");
    let mut idle = server.connect();
    assert_alive(&mut idle);
    assert!(idle.is_closed_by_server());
}

#[test]
fn bodies_that_trickle_are_ended() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start(&store);
    let begun = std::time::Instant::now();
    let mut slow = server.connect();
    slow.send(b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n{").unwrap();
    let answer = slow.answer(false);
    assert_eq!(answer.status, 408);
    assert!(String::from_utf8_lossy(&answer.body).contains("8 KiB per second"));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    // One that arrives in pieces, but fast enough, is read.
    let mut steady = server.connect();
    let body =
        format!("{{{}\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"getNetwork\"}}", " ".repeat(80_000));
    let head = format!(
        "POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    steady.send(head.as_bytes()).unwrap();
    for piece in body.as_bytes().chunks(20_000) {
        steady.send(piece).unwrap();
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(steady.answer(false).status, 200);
}

#[test]
fn an_idle_connection_outlasts_slow_heads() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.header_timeout = Duration::from_millis(100);
    });
    let mut idle = server.connect();
    assert_alive(&mut idle);
    for _ in 0..3 {
        let mut slow = server.connect();
        slow.send(b"GET /rest/health HTTP/1.1\r\nhost").unwrap();
        slow.answer(false).error(408, "request_timeout");
    }
    assert_alive(&mut idle);
    idle.send(b"GET /rest/health HTTP/1.1\r\nhost").unwrap();
    idle.answer(false).error(408, "request_timeout");
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let store = TempStore::new(&pubnet::network());
    let text = "x".repeat(64 << 20);
    let (signal, answered) = channel();
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.write_timeout = Duration::from_millis(200);
        deps.settings.http.connections = nonzero!(1);
        deps.metrics = Arc::new(move |_| {
            signal.send(()).unwrap();
            text.clone()
        });
    });
    let mut stalled = server.connect();
    stalled.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    answered.recv().unwrap();
    // Only one connection is served at a time: this one is served when the other is dropped.
    assert_alive(&mut server.connect());
}

#[test]
fn a_panic_returns_500_and_the_connection_survives() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.metrics = Arc::new(|_| panic!("this panic belongs to a test"));
    });
    let mut connection = server.connect();
    for _ in 0..3 {
        connection.request("GET", "/metrics", &[]).error(500, "internal");
        assert_alive(&mut connection);
    }
}

#[test]
fn metrics_are_served_and_requests_are_reported() {
    let store = TempStore::new(&pubnet::network());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&seen);
    let server = Server::start_with(&store, |deps| {
        deps.metrics = Arc::new(|_| "up 1\n".to_owned());
        deps.on_request = Arc::new(move |summary| {
            assert!(summary.seconds >= 0.0);
            report.lock().unwrap().push((summary.route, summary.status));
        });
    });
    let metrics = server.get_public("/metrics");
    assert_eq!((metrics.status, &metrics.body[..]), (200, &b"up 1\n"[..]));
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"));
    assert_eq!(metrics.header("access-control-allow-origin"), None);
    server.get("/rest/txs/by-hash/x/?y");
    server.get("/nothing");
    let expected = [("/metrics", 200), ("/rest/txs/by-hash/{tx_hex}", 400), ("unmatched", 404)];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_full_queue_returns_503_while_sockets_stay_responsive() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let server = Server::start_with(&store, |deps| {
        deps.settings.tunables.readers = 1;
        deps.settings.tunables.waiting_readers = 0;
    });
    let refused = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (server, refused) = (&server, &refused);
            scope.spawn(move || {
                for number in 0.. {
                    if refused.load(Ordering::Relaxed) {
                        break;
                    }
                    // Each page has a new URL, so that none comes from the cache.
                    let page =
                        format!("/rest/txs/by-ledger?limit=1000&to=9999999999{thread}{number}");
                    let answer = server.get(&page);
                    if answer.status != 200 {
                        answer.error(503, "busy");
                        assert!(answer.header("retry-after").is_some());
                        refused.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut probe = server.connect();
        while !refused.load(Ordering::Relaxed) {
            assert_alive(&mut probe);
        }
    });
    assert_eq!(server.get(PROTECTED).status, 200);
}

#[test]
fn shutdown_waits_for_requests_in_flight() {
    let store = TempStore::new(&pubnet::network());
    let (signal, started) = channel();
    let (release, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let mut server = Server::start_with(&store, |deps| {
        deps.metrics = Arc::new(move |_| {
            signal.send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            "done".into()
        });
    });
    let mut idle = server.connect();
    assert_alive(&mut idle);
    let mut busy = server.connect();
    busy.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    started.recv().unwrap();
    server.begin_stop();
    assert!(idle.is_closed_by_server(), "idle connections are closed at once");
    release.send(()).unwrap();
    let answer = busy.answer(false);
    assert_eq!((answer.status, &answer.body[..]), (200, &b"done"[..]));
    server.finish_stop();
    assert!(std::net::TcpStream::connect(server.address).is_err());
}

#[test]
fn shutdown_is_bounded_by_its_timeout() {
    let store = TempStore::new(&pubnet::network());
    let (signal, started) = channel();
    let mut server = Server::start_with(&store, |deps| {
        deps.settings.tunables.stop_timeout = Duration::from_millis(100);
        deps.settings.tunables.readers = 1;
        deps.metrics = Arc::new(move |_| {
            signal.send(()).unwrap();
            std::thread::park_timeout(Duration::from_secs(3));
            String::new()
        });
    });
    let mut busy = server.connect();
    busy.send(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    started.recv().unwrap();
    server.begin_stop();
    server.finish_stop();
}
