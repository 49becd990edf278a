use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;

/// Stores what comes, and refuses the ledger `bad`.
#[derive(Default)]
struct Recording(Mutex<Vec<Vec<u8>>>);

impl Service for Recording {
    fn store(&self, ledgers: Vec<Vec<u8>>) -> Result<Stored, NotStored> {
        let mut before = Stored::default();
        for ledger in ledgers {
            if ledger == b"bad" {
                return Err(NotStored { before, reason: "that is bad".to_owned() });
            }
            before.new += 1;
            self.0.lock().push(ledger);
        }
        Ok(before)
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
}

/// Runs `client` against a served socket in a directory whose path is longer than a socket's may be.
fn with_service(client: impl FnOnce(&Path) + Send + 'static) -> Vec<Vec<u8>> {
    let root = tempfile::tempdir().unwrap();
    let data_dir = root.path().join("d".repeat(200));
    std::fs::create_dir(&data_dir).unwrap();
    let service = Arc::new(Recording::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let listener = Listener::bind(&data_dir).unwrap();
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
fn backfills_are_asked_for_and_refused() {
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
fn nobody_answers_without_a_service() {
    let directory = tempfile::tempdir().unwrap();
    assert!(Client::connect(directory.path()).unwrap().is_none());
    // Left over from a crash: a socket that nobody listens on.
    drop(std::os::unix::net::UnixListener::bind(directory.path().join(SocketPath::NAME)).unwrap());
    assert!(Client::connect(directory.path()).unwrap().is_none());
}

#[test]
fn a_stranger_is_told_why_and_harms_nobody() {
    let received = with_service(|data_dir| {
        for (bytes, sentence) in [
            (b"G\0\0\0\x22{\"protocol\":9,\"release\":\"99.0.0\"}  ".to_vec(), "cannot talk"),
            (b"X\0\0\0\0".to_vec(), "there is no frame of kind 0x58"),
            (b"S\xff\xff\xff\xff".to_vec(), "is longer than"),
            (b"A\0\0\0\0".to_vec(), "is not a question"),
        ] {
            let path = SocketPath::new(data_dir).unwrap();
            let mut stream = UnixStream::connect(path.short(SocketPath::NAME)).unwrap();
            stream.write_all(&bytes).unwrap();
            let answer = std::io::read_to_string(stream).unwrap_or_default();
            assert!(answer.contains(sentence), "{answer:?}");
        }
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        let many: Vec<&[u8]> = vec![b"x"; protocol::MOST_LEDGERS + 1];
        let error = client.store(many).unwrap_err().to_string();
        assert!(error.contains("too many ledgers"), "{error}");
        let mut client = Client::connect(data_dir).unwrap().unwrap();
        client.store([b"one".as_slice()]).unwrap().unwrap();
    });
    assert_eq!(received, [b"one".to_vec()]);
}
