//! Limits on what a request may cost: how many rows it may scan, how many bytes and slots it may
//! hold, and the response when it exceeds them.
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use futures_util::FutureExt;
use orrery::api::LARGEST_BODY;
use orrery::auth::{IssueRequest, PublicKey, PublicKeyAlgorithm, Tokens};
use orrery::domain::NotFunded;
use orrery::settings::{Mib, Proxies, nonzero};
use ring::signature::Ed25519KeyPair;
use serde_json::{Value, json};

use orrery_testkit::http::Connection;
use orrery_testkit::pubnet;
use orrery_testkit::server::{BudgetUsage, Server, TempStore, now};

const UPLOAD: &str = "/rest/retroshade/deploy";

/// A request head with a token and further header lines.
fn head(token: &str, request: &str, lines: &str) -> String {
    format!("{request} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{lines}\r\n")
}

/// Reads all rows of a list, continuing at the last row of a page or at the cursor of a
/// `query_too_expensive` response; returns the rows and the number of such responses.
fn follow(server: &Server, list: &str, position: &str) -> (Vec<Value>, usize) {
    let (mut rows, mut cursor, mut refusals): (Vec<Value>, _, _) = (Vec::new(), String::new(), 0);
    loop {
        let answer = server.get(&format!("{list}{cursor}"));
        let next = match answer.status {
            200 => {
                let page: Vec<Value> = answer.json().as_array().unwrap().clone();
                let Some(last) = page.last() else { return (rows, refusals) };
                let next = last[position].clone();
                rows.extend(page);
                next
            }
            _ => {
                refusals += 1;
                let sentence = answer.error(422, "query_too_expensive");
                let next = answer.json()["cursor"].clone();
                assert!(sentence.contains(&text(&next)), "{sentence}");
                next
            }
        };
        let next = format!("&cursor={}", text(&next));
        assert_ne!(next, cursor, "{list} gets on");
        cursor = next;
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn an_expensive_query_returns_a_cursor_and_loses_no_rows() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let whole = Server::start(&store);
    let model = pubnet::Model::of(&ledgers);
    let bounded = Server::start_with(&store, |deps| {
        deps.settings.limits.scan_records = nonzero!(3);
        deps.settings.limits.scan_index_rows = nonzero!(20);
    });
    let [topic, elsewhere] = ["topic1", "topic4"].map(|name| {
        let value = model.events.iter().find_map(|event| event["topic1"].as_str()).unwrap();
        format!("{name}={}", value.replace('+', "%2B"))
    });
    let contract = model.events.iter().find_map(|event| event["contract_id"].as_str()).unwrap();
    let mut refused = 0;
    for order in ["asc", "desc"] {
        for (list, position) in [
            (format!("/rest/events/by-contract/{contract}?{elsewhere}&limit=5"), "id"),
            (format!("/rest/events/by-contract/{contract}?{topic}&limit=7"), "id"),
            (format!("/rest/events/by-contract/{contract}?{topic}&{elsewhere}"), "id"),
            (format!("/rest/events/by-contracts?contracts={contract}&limit=1000"), "id"),
            ("/rest/events/by-ledger?limit=1000".to_owned(), "id"),
            (format!("/rest/txs/by-contract/{contract}?limit=3"), "tx"),
            ("/rest/txs/by-ledger?limit=1000".to_owned(), "tx"),
        ] {
            let list = format!("{list}&order={order}");
            let (rows, refusals) = follow(&bounded, &list, position);
            assert!(rows == follow(&whole, &list, position).0, "{list}");
            refused += refusals;
        }
    }
    assert!(refused > 0, "some of them cost too much");
}

#[test]
fn rows_skipped_by_an_offset_are_reported_when_the_scan_limit_ends_it() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let server = Server::start_with(&store, |deps| deps.settings.limits.scan_records = nonzero!(5));
    let answer = server.get("/rest/txs/by-ledger?offset=9&limit=2");
    let sentence = answer.error(422, "query_too_expensive");
    let body = answer.json();
    assert_eq!(body["skipped"], 5);
    assert!(sentence.contains("5 of the 9 rows"), "{sentence}");
    let rest = server.get(&format!("/rest/txs/by-ledger?limit=5&cursor={}", text(&body["cursor"])));
    let plain = server.get("/rest/txs/by-ledger?limit=5");
    let last = plain.json()[4]["tx"].clone();
    assert_eq!(last, body["cursor"]);
    assert_eq!(
        rest.json()[4],
        Server::start(&store).get("/rest/txs/by-ledger?offset=9&limit=1").json()[0]
    );
}

#[test]
fn offsets_over_the_limit_are_refused_with_a_hint_to_use_cursors() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start(&store);
    for route in ["/rest/events/by-ledger", "/rest/txs/by-ledger"] {
        assert_eq!(server.get(&format!("{route}?offset=10000")).status, 200);
        for offset in ["10001", "18446744073709551615", "99999999999999999999"] {
            let answer = server.get(&format!("{route}?offset={offset}"));
            let sentence = answer.error(400, "bad_parameter");
            assert!(sentence.contains("'offset'") && sentence.contains("'cursor'"), "{sentence}");
        }
    }
}

#[test]
fn pages_are_limited_in_bytes_and_continue_by_cursor() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let server =
        Server::start_with(&store, |deps| deps.settings.limits.page_mib = Mib::exactly(64 << 10));
    let page = server.get("/rest/txs/by-ledger?limit=1000");
    let rows = page.json().as_array().unwrap().len();
    let largest = page.json().as_array().unwrap().iter().map(|row| row.to_string().len()).max();
    assert!((1..1000).contains(&rows));
    assert!(page.body.len() < (64 << 10) + largest.unwrap() + 2);
    let (rows, _) = follow(&server, "/rest/txs/by-ledger?limit=1000", "tx");
    assert!(rows == follow(&Server::start(&store), "/rest/txs/by-ledger?limit=1000", "tx").0);
}

#[test]
fn concurrent_requests_per_owner_are_limited() {
    let store = TempStore::new(&pubnet::network());
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.requests_in_flight = nonzero!(3);
        budgets.watch(deps);
    });
    let lines = "content-length: 100\r\n";
    let unfinished: Vec<Connection> = (0..3)
        .map(|_| {
            let mut connection = server.connect();
            let request = head(&server.token, "POST /rest/retroshade/query", lines);
            connection.send(request.as_bytes()).unwrap();
            connection
        })
        .collect();
    budgets.wait_for(&server, "requests", |usage| usage.taken == 3);
    let refused = server.get("/rest/events/by-ledger");
    assert!(refused.error(429, "too_many_requests").contains("too many requests at a time"));
    assert!(refused.header("retry-after").is_some());
    let other = server.tokens.issue(&IssueRequest::for_owner("other")).unwrap().token;
    assert_eq!(server.get_with("/rest/events/by-ledger", &other).status, 200);
    assert_eq!(server.get_public("/rest/health").status, 200);
    drop(unfinished);
    budgets.wait_for(&server, "requests", |usage| usage.taken == 0);
    assert_eq!(server.get("/rest/events/by-ledger").status, 200);
}

/// Requests that wait for an answer hold few of the bytes that their client may have.
#[test]
fn as_many_requests_may_wait_for_an_answer_as_a_client_may_send() {
    const AT_ONCE: usize = 200;
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.requests_in_flight = nonzero!(AT_ONCE as u32);
        deps.settings.limits.connections_per_address = nonzero!(AT_ONCE as u32);
        // It answers once so many requests wait for it.
        let barrier = Arc::new(tokio::sync::Barrier::new(AT_ONCE));
        deps.friendbot = Some(Arc::new(move |_| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                Err(NotFunded::Exists)
            }
            .boxed()
        }));
    });
    let account =
        stellar_xdr::AccountId(stellar_xdr::PublicKey::PublicKeyTypeEd25519([1; 32].into()));
    let request = format!("GET /friendbot?addr={account} HTTP/1.1\r\nhost: x\r\n\r\n");
    let asked = (0..AT_ONCE).map(|_| {
        let mut connection = server.connect();
        connection.send(request.as_bytes()).unwrap();
        connection
    });
    for mut connection in asked.collect::<Vec<_>>() {
        let answer = connection.answer(false);
        assert_eq!(answer.status, 400, "{}", String::from_utf8_lossy(&answer.body));
    }
}

#[test]
fn uploads_per_owner_are_limited_to_one_at_a_time_and_in_size() {
    let store = TempStore::new(&pubnet::network());
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| budgets.watch(deps));
    let request = format!("POST {UPLOAD}");
    let mut first = server.connect();
    let announced = 9 << 20;
    let lines = format!("content-length: {announced}\r\n");
    first.send(head(&server.token, &request, &lines).as_bytes()).unwrap();
    budgets.wait_for(&server, "uploads", |usage| usage.taken == 1);
    assert_eq!(budgets.of(&server, "bytes").taken, 0, "bytes are taken as they come");
    first.send(&vec![b'1'; 1 << 20]).unwrap();
    let usage = budgets.wait_for(&server, "bytes", |usage| usage.taken >= 1 << 20);
    assert!(usage.taken <= 4 << 20, "{}", usage.taken);
    let mut second = server.connect();
    second.send(head(&server.token, &request, &lines).as_bytes()).unwrap();
    let refused = second.answer(false);
    assert!(refused.error(429, "too_many_requests").contains("too many uploads"));
    assert_eq!(refused.header("connection"), Some("close"));
    drop(first);
    budgets.wait_for(&server, "uploads", |usage| usage.taken == 0);
    budgets.wait_for(&server, "bytes", |usage| usage.taken == 0);
    for (length, kind) in
        [((9 << 20) + 1, "application/json"), ((3 << 20) + 1, "multipart/form-data; boundary=x")]
    {
        let lines = format!("content-length: {length}\r\ncontent-type: {kind}\r\n");
        let mut connection = server.connect();
        connection.send(head(&server.token, &request, &lines).as_bytes()).unwrap();
        connection.answer(false).error(413, "body_too_large");
    }
}

#[test]
fn bodies_of_unauthenticated_requests_are_not_buffered() {
    let store = TempStore::new(&pubnet::network());
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| budgets.watch(deps));
    let lines = format!("content-length: {LARGEST_BODY}\r\n");
    let unauthenticated: Vec<_> = ["/rest/retroshade/query", UPLOAD, "/nothing", "/rest/health"]
        .iter()
        .map(|route| {
            let mut connection = server.connect();
            let request = format!("POST {route} HTTP/1.1\r\nhost: x\r\n{lines}\r\n");
            connection.send(request.as_bytes()).unwrap();
            connection.send(&vec![b'x'; LARGEST_BODY - 1]).unwrap();
            connection
        })
        .collect();
    let usage = budgets.wait_for(&server, "connections", |usage| usage.taken >= 4);
    assert_eq!((usage.refused_all, usage.refused_one), (0, 0));
    assert_eq!(budgets.wait_for(&server, "bytes", |_| true).taken, 0);
    drop(unauthenticated);
}

#[test]
fn unread_responses_count_against_their_byte_budget() {
    let Some(ledgers) = pubnet::ledgers() else { return };
    let store = pubnet::store(&ledgers);
    let budgets = BudgetUsage::default();
    const SHARE: u64 = 6 << 20;
    let server = Server::start_with(&store, |deps| {
        deps.settings.limits.bytes_in_flight_mib = Mib::exactly(2 * SHARE);
        deps.settings.limits.bytes_in_flight_per_token_mib = Mib::exactly(SHARE);
        budgets.watch(deps);
    });
    let mut unread = Vec::new();
    for number in 0..40 {
        let mut connection = server.connect();
        let page = format!("GET /rest/txs/by-ledger?limit=1000&to=9999999999{number}");
        connection.send(head(&server.token, &page, "").as_bytes()).unwrap();
        unread.push(connection);
    }
    let usage = budgets.wait_for(&server, "bytes", |usage| usage.refused_one > 0);
    // A page may exceed the share by its last row.
    assert!(usage.taken <= SHARE + (1 << 20), "{usage:?}");
    let other = server.tokens.issue(&IssueRequest::for_owner("other")).unwrap().token;
    assert_eq!(server.get_with("/rest/events/by-ledger?limit=10", &other).status, 200);
    drop(unread);
    budgets.wait_for(&server, "bytes", |usage| usage.taken == 0);
    budgets.wait_for(&server, "requests", |usage| usage.taken == 0);
}

#[test]
fn unmatched_requests_count_against_the_rate_limit_of_their_address() {
    let store = TempStore::new(&pubnet::network());
    for (method, target) in [
        ("GET", "/nothing"),
        ("POST", "/rest/health"),
        ("OPTIONS", "/rest/health"),
        ("GET", "/rest/openapi.json"),
    ] {
        let server = Server::start_with(&store, |deps| {
            (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, 3);
        });
        let mut connection = server.connect();
        for _ in 0..3 {
            assert_ne!(connection.request(method, target, &[]).status, 429, "{method} {target}");
        }
        let answer = connection.request(method, target, &[]);
        answer.error(429, "too_many_requests");
        assert_eq!(server.get_public("/rest/health/ready").status, 200, "probes are exempt");
    }
}

// A key pair made for these tests: Ed25519 (RFC 8410).
const ED_PRIVATE: &str = "MC4CAQAwBQYDK2VwBCIEIMm3u8izDURTwdCJscEBwFRiikyChcnCu/Sak8a9DcLW";
const ED_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAzdZStLGmpmK9Ad0MfprMy20g8pnh/P3/08H14SUrdRE=
-----END PUBLIC KEY-----";

/// A verified token is cached and no longer costly, so a token that stays costly was not verified.
#[test]
fn signatures_are_not_verified_for_addresses_over_their_limit() {
    const LIST: &str = "/rest/events/by-ledger";
    let store = TempStore::new(&pubnet::network());
    let partner = PublicKey {
        sub_prefix: String::new(),
        kid: "partner".into(),
        algorithm: PublicKeyAlgorithm::EdDsa,
        pem: ED_PUBLIC.into(),
    };
    let secrets = store.directory.path().join("secrets");
    let tokens = Tokens::open_with_keys(&secrets, &pubnet::network(), &[partner]).unwrap();
    let tokens = Arc::new(tokens);
    let server = Server::start_with(&store, |deps| {
        deps.tokens = Arc::clone(&tokens);
        (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, 3);
    });
    let key = STANDARD.decode(ED_PRIVATE).unwrap();
    let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).unwrap();
    let encoded = |json: Value| URL_SAFE_NO_PAD.encode(json.to_string());
    let header = encoded(json!({ "alg": "EdDSA", "typ": "JWT", "kid": "partner" }));
    let issue = |jti: &str| {
        let claims = json!({
            "sub": "ana", "exp": now() + 1000, "iat": now(), "iss": "orrery", "plan": "pro",
            "aud": pubnet::network().id().to_string(), "jti": jti,
        });
        let message = format!("{header}.{}", encoded(claims));
        let signature = key.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    };
    let (known, fresh) = (issue("known"), issue("fresh"));
    assert!(tokens.is_costly(&known));
    assert_eq!(server.get_with(LIST, &known).status, 200);
    assert!(!tokens.is_costly(&known));
    let (signed, _) = fresh.rsplit_once('.').unwrap();
    let (_, of_another) = known.rsplit_once('.').unwrap();
    let forged = format!("{signed}.{of_another}");
    for _ in 0..3 {
        server.get_with(LIST, &forged).error(401, "unauthorized");
    }
    for token in [&forged, &fresh] {
        server.get_with(LIST, token).error(429, "too_many_requests");
        assert!(tokens.is_costly(token));
    }
    for token in [&known, &server.token] {
        assert_eq!(server.get_with(LIST, token).status, 200, "known and own tokens are served");
    }
}

#[test]
fn forwarded_addresses_are_rate_limited_regardless_of_their_port() {
    let store = TempStore::new(&pubnet::network());
    let server = Server::start_with(&store, |deps| {
        (deps.settings.limits.requests_per_second, deps.settings.limits.burst) = (1, 2);
        let subnets = ["127.0.0.1/32", "10.0.0.0/24"];
        let proxies = subnets.map(|it| Proxies(it.parse().unwrap()));
        deps.settings.http.trusted_proxies = proxies.into();
    });
    let ask = |from: &str| {
        let headers = [("x-forwarded-for", from)];
        server.connect().request("GET", "/rest/openapi.json", &headers).status
    };
    for client in ["192.0.2.1:1000", "192.0.2.1:2000"] {
        assert_eq!(ask(&format!("203.0.113.9, {client}, ::ffff:10.0.0.1")), 200);
    }
    assert_eq!(ask("192.0.2.1:3000, [::ffff:10.0.0.1]:99"), 429, "whatever the port");
    assert_eq!(ask("192.0.2.2:1000, 10.0.0.1:80"), 200);
    assert_eq!(ask("[2001:db8::1]:1000"), 200);
    assert_eq!(ask("[2001:db8::2]:1000"), 200);
    assert_eq!(ask("2001:db8::3"), 429, "a /64 network is one client");
}

/// Connects from an address of this machine.
fn connect_from(server: &Server, from: [u8; 4]) -> std::net::TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((std::net::Ipv4Addr::from(from), 0).into()).unwrap();
        socket.connect(server.address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

#[test]
fn announced_bodies_take_nothing_from_others() {
    use std::io::Write;

    let store = TempStore::new(&pubnet::network());
    let budgets = BudgetUsage::default();
    let server = Server::start_with(&store, |deps| budgets.watch(deps));
    let request = b"POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: 524288\r\n\r\n{";
    let mut open = Vec::new();
    for host in 0..18 {
        for _ in 0..32 {
            let mut stream = connect_from(&server, [127, 0, 7, 2 + host]);
            stream.write_all(request).unwrap();
            open.push(stream);
        }
        // While they are held open, a tenant is answered.
        for _ in 0..12 {
            assert_eq!(server.get("/rest/events/by-ledger").status, 200);
        }
        assert!(budgets.of(&server, "bytes").taken < 8 << 20);
    }
}
