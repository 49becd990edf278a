//! Arbitrary bytes on the control socket: the service answers or closes the connection, and goes on
//! serving other clients.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use orrery::control::{
    BACKFILL, CHECKPOINT, Client, Listener, RAW_LEDGER, REBUILD, RawXdr, STATUS, STORE, STORE_LAST,
    StatusReport, Stored, Verbs,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Time after which a missing response counts as a hang.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of inputs between two checks that other clients are served.
const CHECK_STATUS_EVERY: u64 = 200;

fn echo() -> Verbs<()> {
    Verbs::default()
        .on(STATUS, |(), ()| Ok(StatusReport { events: 7, ..StatusReport::default() }))
        .on(STORE, |(), ledgers| {
            assert!(ledgers.0.len() <= 256, "{} ledgers at once", ledgers.0.len());
            Ok(Ok(Stored { new: ledgers.0.len() as u64, ..Stored::default() }))
        })
        .on(STORE_LAST, |(), ()| Ok(Ok(Stored::default())))
        .on(RAW_LEDGER, |(), ledger| Ok(RawXdr((ledger == 7).then(|| b"seven".to_vec()))))
        .on(BACKFILL, |(), _| Err("not now".to_owned()))
        .on(REBUILD, |(), _| Err("not now".to_owned()))
        .on(CHECKPOINT, |(), ()| Err("not now".to_owned()))
}

struct Bench {
    directory: TempDir,
    inputs: AtomicU64,
    _stop: watch::Sender<bool>,
    _runtime: Runtime,
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let (stop, stopped) = watch::channel(false);
    let listener = runtime.block_on(async { Listener::bind(directory.path()) }).unwrap();
    runtime.spawn(Arc::new(listener).serve(Arc::new(echo()), stopped));
    Bench { directory, inputs: AtomicU64::new(0), _stop: stop, _runtime: runtime }
});

fn socket() -> PathBuf {
    BENCH.directory.path().join("control.sock")
}

fn post(name: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST /control/{name} HTTP/1.1\r\nhost: o\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let start = br#"{"start":{"from":2,"to":9,"sources":["rpc:https://a.example"]}}"#;
    vec![
        post("status", b""),
        post("backfill", start),
        post("backfill", br#""status""#),
        post("checkpoint", b""),
        post("raw-ledger", b"7"),
        post("rebuild", br#"{"name":"export","begin":true}"#),
        [post("ledgers", b"\x80\0\0\x03one\x80\0\0\0"), post("last-ledgers", b"")].concat(),
    ]
}

pub fn check(bytes: &[u8]) {
    let mut stream = UnixStream::connect(socket()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    // The service may have closed the connection in the middle.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("no end of an answer: {error}"),
    }
    assert!(answer.len() < 1 << 20, "{} bytes", answer.len());
    if BENCH.inputs.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECK_STATUS_EVERY) {
        let mut client = Client::connect(BENCH.directory.path()).unwrap().expect("it answers");
        assert_eq!(client.ask(STATUS, &()).unwrap().events, 7);
    }
}
