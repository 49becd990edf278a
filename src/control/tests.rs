use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::domain::{Digest, LedgerHash};

/// Ledgers that were stored.
type Log = Arc<Mutex<Vec<Vec<u8>>>>;

/// Records stored ledgers, and refuses the ledger `bad`.
fn recording(log: &Log) -> Verbs<()> {
    let (stored, counted) = (Arc::clone(log), Arc::clone(log));
    Verbs::default()
        .on(STORE, move |(), ledgers| {
            let mut before = Stored::default();
            for ledger in ledgers.0 {
                if ledger == b"bad" {
                    let reason = "that is bad".to_owned();
                    return Ok(Err(NotStored { before, reason, at: None }));
                }
                before.new += 1;
                stored.lock().push(ledger);
            }
            Ok(Ok(before))
        })
        .on(STATUS, move |(), ()| {
            Ok(StatusReport { events: counted.lock().len() as u64, ..StatusReport::default() })
        })
        .on(BACKFILL, |(), request| match request {
            BackfillRequest::Start(BackfillOrder { from, to, .. }) if from > to => {
                Err(format!("{from} comes after {to}"))
            }
            BackfillRequest::Start(BackfillOrder { from, to, .. }) => {
                Ok(BackfillReport { from, to, ..BackfillReport::default() })
            }
            BackfillRequest::Status | BackfillRequest::Cancel => Ok(BackfillReport::default()),
        })
        .on(REBUILD, |(), request| match request.name.as_str() {
            "export" => Ok(RebuildReport { running: request.begin, ..RebuildReport::default() }),
            name => Err(format!("there is no consumer '{name}'")),
        })
        .on(RAW_LEDGER, |(), ledger| Ok(RawXdr((ledger == 7).then(|| b"seven".to_vec()))))
}

/// Runs `client` against a served socket in a directory whose path is longer than the maximum for a
/// socket.
fn with_verbs<C: Default + Send + 'static>(
    verbs: Verbs<C>,
    client: impl FnOnce(&Path) + Send + 'static,
) {
    let root = tempfile::tempdir().unwrap();
    let data_dir = root.path().join("d".repeat(200));
    std::fs::create_dir(&data_dir).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let listener = Arc::new(Listener::bind(&data_dir).unwrap());
        let served = tokio::spawn(listener.serve(Arc::new(verbs), stopped));
        let dir = data_dir.clone();
        tokio::task::spawn_blocking(move || client(&dir)).await.unwrap();
        stop.send(true).unwrap();
        served.await.unwrap();
    });
    assert!(!data_dir.join(SocketPath::NAME).exists());
}

/// Returns the ledgers that `client` has stored.
fn with_service(client: impl FnOnce(&Path) + Send + 'static) -> Vec<Vec<u8>> {
    let log = Log::default();
    with_verbs(recording(&log), client);
    std::mem::take(&mut log.lock())
}

/// What a panic has half changed is forgotten, and the connection goes on.
#[test]
fn nothing_is_kept_of_a_connection_after_a_panic() {
    let verbs = Verbs::<u64>::default()
        .on(STATUS, |kept, ()| {
            *kept += 1;
            Ok(StatusReport { events: *kept, ..StatusReport::default() })
        })
        .on(RAW_LEDGER, |kept, _| {
            *kept = 7;
            panic!("injected")
        });
    with_verbs(verbs, |data_dir| {
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let counted = |client: &mut Client| client.ask(STATUS, &()).unwrap().events;
        assert_eq!([counted(&mut client), counted(&mut client)], [1, 2]);
        let failed = client.ask(RAW_LEDGER, &1).err().unwrap().to_string();
        assert!(failed.starts_with("the service failed"), "{failed}");
        assert_eq!(counted(&mut client), 1);
    });
}

#[test]
fn ledgers_arrive_in_order_and_are_acknowledged() {
    let received = with_service(|data_dir| {
        let mode = std::fs::metadata(data_dir.join(SocketPath::NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let long = vec![7; 3 << 20];
        let mut store = |ledgers: &[&[u8]]| {
            let ledgers = Ledgers(ledgers.iter().map(|ledger| ledger.to_vec()).collect());
            client.ask(STORE, &ledgers).unwrap()
        };
        let stored = store(&[b"one", &long]).unwrap();
        assert_eq!(stored.new, 2);
        let refused = store(&[b"two", b"bad", b"three"]).unwrap_err();
        assert_eq!(refused.before.new, 1);
        assert_eq!(refused.reason, "that is bad");
        assert_eq!(client.ask(STATUS, &()).unwrap().events, 3);
        assert_eq!(client.ask(RAW_LEDGER, &7).unwrap().0.unwrap(), b"seven");
        assert!(client.ask(RAW_LEDGER, &8).unwrap().0.is_none());
    });
    assert_eq!(received, [b"one".to_vec(), vec![7; 3 << 20], b"two".to_vec()]);
}

#[test]
fn backfills_can_be_started_and_refused() {
    with_service(|data_dir| {
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let order = |from, to| BackfillOrder { from, to, sources: vec!["/srv/lake".to_owned()] };
        let report = client.ask(BACKFILL, &BackfillRequest::Start(order(2, 9))).unwrap();
        assert_eq!((report.from, report.to, report.percent()), (2, 9, 100));
        let report = client.ask(BACKFILL, &BackfillRequest::Status).unwrap();
        assert_eq!(report.state, BackfillState::None);
        let error = client.ask(BACKFILL, &BackfillRequest::Start(order(9, 2))).unwrap_err();
        assert_eq!(error.to_string(), "9 comes after 2");
    });
}

#[test]
fn connecting_without_a_service_finds_none() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Client::connect(directory.path()).unwrap().is_none());
    // A socket file that is left over from a crash, without a listener.
    drop(std::os::unix::net::UnixListener::bind(directory.path().join(SocketPath::NAME)).unwrap());
    assert!(Client::connect(directory.path()).unwrap().is_none());
}

/// What a client gets for bytes that it sends.
fn answer_to(data_dir: &Path, bytes: &[u8]) -> String {
    let path = SocketPath::new(data_dir).unwrap();
    let mut stream = UnixStream::connect(path.short(SocketPath::NAME)).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    std::io::read_to_string(stream).unwrap_or_default()
}

#[test]
fn malformed_requests_get_an_error_and_affect_no_one_else() {
    let received = with_service(|data_dir| {
        let post = |path: &str, headers: &str, body: &str| {
            let length = body.len();
            format!(
                "POST {path} HTTP/1.1\r\nhost: o\r\n{headers}content-length: {length}\r\n\r\n{body}"
            )
        };
        for (request, status, sentence) in [
            (
                post("/control/status", "orrery-protocol: 9\r\norrery-release: 99.0.0\r\n", ""),
                409,
                "release 99.0.0 and release",
            ),
            (
                post("/control/status", "orrery-protocol: 2\r\n", ""),
                409,
                "another release and release",
            ),
            (post("/control/stop", "", ""), 404, "/control/backfill, /control/ledgers, "),
            (post("/", "", ""), 200, "/control/status"),
            (post("/contorl/status", "", ""), 404, "/control/status"),
            (post("/control/backfill", "", "[]"), 400, "invalid message on the control socket"),
            (post("/control/backfill", "", &"x".repeat(64 << 10 | 1)), 413, "longer than 65536"),
            (post("/control/ledgers", "", "\0\0\0\u{3}bad"), 400, "several fragments"),
            (post("/control/ledgers", "", "ba"), 400, "header is cut off"),
            ("X\0\0\0\0".to_owned(), 400, "HTTP"),
            // By hand, without a number.
            ("GET /control/status HTTP/1.1\r\nhost: o\r\n\r\n".to_owned(), 200, "\"events\":0"),
        ] {
            let answer = answer_to(data_dir, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert!(answer.contains(sentence), "{answer}");
        }
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let many = Ledgers(vec![b"x".to_vec(); verb::MAX_LEDGERS + 1]);
        let error = client.ask(STORE, &many).unwrap_err().to_string();
        assert!(error.contains("more than 256 ledgers"), "{error}");
        client.ask(STORE, &Ledgers(vec![b"one".to_vec()])).unwrap().unwrap();
    });
    assert_eq!(received, [b"one".to_vec()]);
}

/// A service of another release is recognised, whether it speaks HTTP or frames as earlier ones did.
#[test]
fn another_release_is_told_from_a_service_that_has_ended() {
    for (answer, sentence) in [
        (
            "HTTP/1.1 200 OK\r\norrery-protocol: 4\r\norrery-release: 99.0.0\r\ncontent-length: 2\r\n\r\n{}",
            "release 99.0.0 and release",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "another release and release"),
        ("E\0\0\0\u{4}what", "another release and release"),
        ("", "the running service ended the connection"),
        (
            "HTTP/1.1 200 OK\r\norrery-protocol: 3\r\ncontent-length: 9\r\n\r\nhalf",
            "the running service ended the connection",
        ),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let listener =
            std::os::unix::net::UnixListener::bind(directory.path().join(SocketPath::NAME))
                .unwrap();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let error = Client::connect(directory.path()).err().unwrap().to_string();
        assert!(error.contains(sentence), "{answer:?}: {error}");
        served.join().unwrap();
    }
}

/// A service in the directory, with what stops it and what waits for that.
fn served(data_dir: &Path) -> (Runtime, watch::Sender<bool>, JoinHandle<()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (stop, stopped) = watch::channel(false);
    let listener = runtime.block_on(async { Listener::bind(data_dir).unwrap() });
    let verbs = Arc::new(recording(&Log::default()));
    let served = runtime.spawn(Arc::new(listener).serve(verbs, stopped));
    (runtime, stop, served)
}

#[test]
fn a_client_learns_that_the_service_has_stopped_since_its_last_request() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, stop, served) = served(directory.path());
    let mut client = Client::connect(directory.path()).unwrap().unwrap();
    assert_eq!(client.ask(STATUS, &()).unwrap().events, 0);
    stop.send(true).unwrap();
    runtime.block_on(served).unwrap();
    for _ in 0..2 {
        let error = client.ask(STATUS, &()).unwrap_err().to_string();
        let end = error.strip_prefix("the running service ended the connection: ");
        assert!(end.is_some_and(|end| end.starts_with("it is stopping or has stopped")), "{error}");
    }
}

/// The first request of a connection is answered during a stop if its head has begun to arrive, which
/// differs each time.
#[test]
fn a_request_during_a_stop_is_told_of_it() {
    let told = (0..50).any(|_| {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, stop, served) = served(directory.path());
        let path = SocketPath::new(directory.path()).unwrap();
        let mut stream = UnixStream::connect(path.short(SocketPath::NAME)).unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nhost: o\r\n").unwrap();
        // Accepted after it.
        assert!(Client::connect(directory.path()).unwrap().is_some());
        stop.send(true).unwrap();
        // The service may have closed the connection.
        let _ = stream.write_all(b"content-length: 0\r\n\r\n");
        let answer = std::io::read_to_string(stream).unwrap_or_default();
        runtime.block_on(served).unwrap();
        let is_told = answer.starts_with("HTTP/1.1 503 ");
        assert!(is_told || answer.is_empty(), "{answer}");
        is_told && answer.contains("the service is stopping")
    });
    assert!(told);
}

/// A service that accepts connections and answers a request, and no other.
#[test]
fn a_silent_service_is_named_with_its_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(SocketPath::NAME);
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let silent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
        let answer = "HTTP/1.1 200 OK\r\norrery-protocol: 3\r\ncontent-length: 2\r\n\r\n{}";
        stream.write_all(answer.as_bytes()).unwrap();
        let _ = ended.recv();
    });
    let mut client = Client::connect(directory.path()).unwrap().unwrap();
    let second = std::time::Duration::from_secs(1);
    let error = client.request("status", Vec::new(), second).unwrap_err().to_string();
    assert!(error.contains(&*socket.to_string_lossy()), "{error}");
    assert!(error.ends_with("the running service has not answered for 1 s"), "{error}");
    drop(end);
    silent.join().unwrap();
}

/// Clients that occupy all connection slots and send nothing, stop in the middle of a request, or do
/// not read their responses are disconnected, and a service that stops does not wait for them.
#[test]
fn idle_and_stalled_peers_are_disconnected() {
    let root = tempfile::tempdir().unwrap();
    let data_dir = root.path().to_owned();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let mut listener = Listener::bind(&data_dir).unwrap();
        let soon = std::time::Duration::from_millis(200);
        listener.timeouts = server::Timeouts { first: soon, idle: 5 * soon, stall: soon };
        // A status that does not fit into a socket's buffer.
        let unread = Verbs::<()>::default()
            .on(STATUS, |(), ()| {
                Ok(StatusReport {
                    ranges: vec![LedgerRange::new(1, 2); 500_000],
                    ..StatusReport::default()
                })
            })
            .on(STORE, |(), _| Ok(Ok(Stored::default())));
        let served = tokio::spawn(Arc::new(listener).serve(Arc::new(unread), stopped));
        let work = tokio::task::spawn_blocking(move || {
            let connect = |bytes: &str| {
                let path = SocketPath::new(&data_dir).unwrap();
                let mut stream = UnixStream::connect(path.short(SocketPath::NAME)).unwrap();
                stream.write_all(bytes.as_bytes()).unwrap();
                stream
            };
            let begun =
                "POST /control/ledgers HTTP/1.1\r\nhost: o\r\ncontent-length: 9\r\n\r\nhalf";
            let asked = "POST /control/status HTTP/1.1\r\nhost: o\r\ncontent-length: 0\r\n\r\n";
            let greeted = "POST / HTTP/1.1\r\nhost: o\r\ncontent-length: 0\r\n\r\n";
            let late = "POST / HTTP/1.1\r\nho";
            for bytes in ["", "P", late, begun, asked, greeted] {
                // More clients than connection slots; none of them closes its connection.
                let peers: Vec<_> = (0..6).map(|_| connect(bytes)).collect();
                let status = (0..50).find_map(|_| Client::connect(&data_dir).ok().flatten());
                assert!(status.is_some(), "after {bytes:?}");
                drop(peers);
            }
            // Connections that stay open while the service stops.
            (0..3).map(|_| connect(asked)).collect::<Vec<_>>()
        });
        let peers = work.await.unwrap();
        stop.send(true).unwrap();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), served);
        ended.await.expect("it stops").unwrap();
        drop(peers);
    });
}

#[test]
fn a_rebuild_can_be_started_and_queried() {
    with_service(|data_dir| {
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let request =
            |name: &str, begin| RebuildRequest { name: name.to_owned(), begin, allow_loss: false };
        assert!(client.ask(REBUILD, &request("export", true)).unwrap().running);
        assert!(!client.ask(REBUILD, &request("export", false)).unwrap().running);
        let refused = client.ask(REBUILD, &request("others", true)).unwrap_err();
        assert_eq!(refused.to_string(), "there is no consumer 'others'");
    });
}

/// The bytes are those that every version has sent.
#[test]
fn a_covered_range_is_one_flat_object() {
    let hash = |byte| LedgerHash::from([byte; 32]);
    let range = CoveredRange {
        covered: CoveredLedgers {
            ledgers: LedgerRange::new(2, 9),
            first_hash: hash(0x1a),
            last_hash: hash(0x2b),
            previous_hash: hash(0x3c),
            events: 7,
            digest: Digest::from([0x4d; 32]),
        },
        attested_ledger: Some(LedgerSeq(8)),
        unattested_because: None,
        reported: MarkedLedgers::from(&LedgerSet::from(LedgerRange::new(3, 4))),
        unproven: MarkedLedgers::default(),
        from_backup: MarkedLedgers::default(),
    };
    let text = serde_json::to_string(&range).unwrap();
    let [first, last, previous, digest] = ["1a", "2b", "3c", "4d"].map(|byte| byte.repeat(32));
    let expected = format!(
        r#"{{"first_ledger":2,"last_ledger":9,"first_hash":"{first}","last_hash":"{last}",
        "previous_hash":"{previous}","events":7,"digest":"{digest}","attested_ledger":8,
        "reported":{{"ledgers":2,"ranges":[[3,4]]}}}}"#
    );
    assert_eq!(text, expected.replace(char::is_whitespace, ""));
    assert_eq!(serde_json::from_str::<CoveredRange>(&text).unwrap(), range);
}
