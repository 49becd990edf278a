use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;
use crate::domain::{Digest, LedgerHash};

/// Records stored ledgers, and refuses the ledger `bad`.
#[derive(Default)]
struct Recording(Arc<Mutex<Vec<Vec<u8>>>>);

struct Recorded(Arc<Mutex<Vec<Vec<u8>>>>);

impl Import for Recorded {
    fn store(&mut self, ledgers: Vec<Vec<u8>>, _: bool) -> Result<Stored, NotStored> {
        let mut before = Stored::default();
        for ledger in ledgers {
            if ledger == b"bad" {
                return Err(NotStored { before, reason: "that is bad".to_owned(), at: None });
            }
            before.new += 1;
            self.0.lock().push(ledger);
        }
        Ok(before)
    }
}

impl Service for Recording {
    fn import(&self) -> Box<dyn Import> {
        Box::new(Recorded(Arc::clone(&self.0)))
    }

    fn status(&self) -> Result<StatusReport, String> {
        Ok(StatusReport { events: self.0.lock().len() as u64, ..StatusReport::default() })
    }

    fn backfill(&self, request: BackfillRequest) -> Result<BackfillReport, String> {
        match request {
            BackfillRequest::Start(BackfillOrder { from, to, .. }) if from > to => {
                Err(format!("{from} comes after {to}"))
            }
            BackfillRequest::Start(BackfillOrder { from, to, .. }) => {
                Ok(BackfillReport { from, to, ..BackfillReport::default() })
            }
            BackfillRequest::Status | BackfillRequest::Cancel => Ok(BackfillReport::default()),
        }
    }

    fn rebuild(&self, request: RebuildRequest) -> Result<RebuildReport, String> {
        match request.name.as_str() {
            "export" => Ok(RebuildReport { running: request.begin, ..RebuildReport::default() }),
            name => Err(format!("there is no consumer '{name}'")),
        }
    }

    fn raw_ledger(&self, ledger: u32) -> Result<Option<Vec<u8>>, String> {
        Ok((ledger == 7).then(|| b"seven".to_vec()))
    }

    fn checkpoint(&self) -> Result<HeldCheckpoint, String> {
        Err("not now".to_owned())
    }
}

/// Runs `client` against a served socket in a directory whose path is longer than the maximum for a
/// socket.
fn with_service(client: impl FnOnce(&Path) + Send + 'static) -> Vec<Vec<u8>> {
    let root = tempfile::tempdir().unwrap();
    let data_dir = root.path().join("d".repeat(200));
    std::fs::create_dir(&data_dir).unwrap();
    let service = Arc::new(Recording::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let listener = Arc::new(Listener::bind(&data_dir).unwrap());
        let served = tokio::spawn(listener.serve(service.clone(), stopped));
        let dir = data_dir.clone();
        tokio::task::spawn_blocking(move || client(&dir)).await.unwrap();
        stop.send(true).unwrap();
        served.await.unwrap();
    });
    assert!(!data_dir.join(SocketPath::NAME).exists());
    std::mem::take(&mut service.0.lock())
}

#[test]
fn ledgers_arrive_in_order_and_are_acknowledged() {
    let received = with_service(|data_dir| {
        let mode = std::fs::metadata(data_dir.join(SocketPath::NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let long = vec![7; 3 << 20];
        let stored = client.store([b"one".as_slice(), &long]).unwrap().unwrap();
        assert_eq!(stored.new, 2);
        let refused = client.store([b"two".as_slice(), b"bad", b"three"]).unwrap().unwrap_err();
        assert_eq!(refused.before.new, 1);
        assert_eq!(refused.reason, "that is bad");
        assert_eq!(client.status().unwrap().events, 3);
    });
    assert_eq!(received, [b"one".to_vec(), vec![7; 3 << 20], b"two".to_vec()]);
}

#[test]
fn backfills_can_be_started_and_refused() {
    with_service(|data_dir| {
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let order = |from, to| BackfillOrder { from, to, sources: vec!["/srv/lake".to_owned()] };
        let report = client.backfill(&BackfillRequest::Start(order(2, 9))).unwrap();
        assert_eq!((report.from, report.to, report.percent()), (2, 9, 100));
        let report = client.backfill(&BackfillRequest::Status).unwrap();
        assert_eq!(report.state, BackfillState::None);
        let error = client.backfill(&BackfillRequest::Start(order(9, 2))).unwrap_err();
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

#[test]
fn malformed_requests_get_an_error_and_affect_no_one_else() {
    let received = with_service(|data_dir| {
        for (bytes, sentence) in [
            (b"G\0\0\0\x22{\"protocol\":9,\"release\":\"99.0.0\"}  ".to_vec(), "cannot talk"),
            (b"X\0\0\0\0".to_vec(), "there is no frame of kind 0x58"),
            (b"S\xff\xff\xff\xff".to_vec(), "is longer than"),
            (b"A\0\0\0\0".to_vec(), "is not a request"),
            (b"B\0\x01\0\x01".to_vec(), "is longer than 65536"),
            (b"?\0\0\0\0".to_vec(), "the first frame must be a greeting"),
            (b"L\0\0\0\x03bad".to_vec(), "the first frame must be a greeting"),
            (b"G\0\0\0\x02[]".to_vec(), "invalid message on the control socket"),
        ] {
            let path = SocketPath::new(data_dir).unwrap();
            let mut stream = UnixStream::connect(path.short(SocketPath::NAME)).unwrap();
            stream.write_all(&bytes).unwrap();
            let answer = std::io::read_to_string(stream).unwrap_or_default();
            assert!(answer.contains(sentence), "{answer:?}");
        }
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let many: Vec<&[u8]> = vec![b"x"; protocol::MAX_LEDGERS + 1];
        let error = client.store(many).unwrap_err().to_string();
        assert!(error.contains("too many ledgers"), "{error}");
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        client.store([b"one".as_slice()]).unwrap().unwrap();
    });
    assert_eq!(received, [b"one".to_vec()]);
}

/// Clients that occupy all connection slots and send nothing, stop in the middle of a frame, or do
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
        listener.timeouts = server::Timeouts { greeting: soon, idle: 5 * soon, stall: soon };
        let served = tokio::spawn(Arc::new(listener).serve(Arc::new(Unread), stopped));
        let work = tokio::task::spawn_blocking(move || {
            let connect = |bytes: &[u8]| {
                let path = SocketPath::new(&data_dir).unwrap();
                let mut stream = UnixStream::connect(path.short(SocketPath::NAME)).unwrap();
                stream.write_all(bytes).unwrap();
                stream
            };
            let own = protocol::encode(&protocol::Greeting::own()).unwrap();
            let header = protocol::header(protocol::Kind::Greeting, &own).unwrap();
            let greeted = [header.as_slice(), &own].concat();
            let begun = [&greeted[..], b"L\0\x10\0\0half"].concat();
            let asked = [&greeted[..], b"?\0\0\0\0"].concat();
            for bytes in [b"".as_slice(), b"G\0", &begun, &asked, &greeted] {
                // More clients than connection slots; none of them closes its connection.
                let peers: Vec<_> = (0..6).map(|_| connect(bytes)).collect();
                let status = (0..50).find_map(|_| Client::connect(&data_dir).ok().flatten());
                assert!(status.is_some(), "after {:?}", bytes.escape_ascii().to_string());
                drop(peers);
            }
            // Connections that stay open while the service stops.
            (0..3).map(|_| connect(&asked)).collect::<Vec<_>>()
        });
        let peers = work.await.unwrap();
        stop.send(true).unwrap();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), served);
        ended.await.expect("it stops").unwrap();
        drop(peers);
    });
}

/// Service whose status does not fit into a socket's buffer.
struct Unread;

impl Service for Unread {
    fn import(&self) -> Box<dyn Import> {
        Box::new(Recorded(Arc::default()))
    }

    fn status(&self) -> Result<StatusReport, String> {
        Ok(StatusReport {
            ranges: vec![LedgerRange::new(1, 2); 500_000],
            ..StatusReport::default()
        })
    }

    fn backfill(&self, _: BackfillRequest) -> Result<BackfillReport, String> {
        Ok(BackfillReport::default())
    }

    fn rebuild(&self, _: RebuildRequest) -> Result<RebuildReport, String> {
        Ok(RebuildReport::default())
    }

    fn raw_ledger(&self, ledger: u32) -> Result<Option<Vec<u8>>, String> {
        Ok((ledger == 7).then(|| b"seven".to_vec()))
    }

    fn checkpoint(&self) -> Result<HeldCheckpoint, String> {
        Err("not now".to_owned())
    }
}

#[test]
fn a_rebuild_can_be_started_and_queried() {
    with_service(|data_dir| {
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let request =
            |name: &str, begin| RebuildRequest { name: name.to_owned(), begin, allow_loss: false };
        assert!(client.rebuild(&request("export", true)).unwrap().running);
        assert!(!client.rebuild(&request("export", false)).unwrap().running);
        let refused = client.rebuild(&request("others", true)).unwrap_err();
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
