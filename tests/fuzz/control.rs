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
    BackfillReport, BackfillRequest, Client, HeldCheckpoint, Import, Listener, NotStored,
    RebuildReport, RebuildRequest, Service, StatusReport, Stored,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Time after which a missing response counts as a hang.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Number of inputs between two checks that other clients are served.
const CHECK_STATUS_EVERY: u64 = 200;

struct Echo;

impl Import for Echo {
    fn store(&mut self, ledgers: Vec<Vec<u8>>, _: bool) -> Result<Stored, NotStored> {
        assert!(ledgers.len() <= 256, "{} ledgers at once", ledgers.len());
        Ok(Stored { new: ledgers.len() as u64, ..Stored::default() })
    }
}

impl Service for Echo {
    fn import(&self) -> Box<dyn Import> {
        Box::new(Echo)
    }

    fn status(&self) -> Result<StatusReport, String> {
        Ok(StatusReport { events: 7, ..StatusReport::default() })
    }

    fn backfill(&self, _: BackfillRequest) -> Result<BackfillReport, String> {
        Err("not now".to_owned())
    }

    fn rebuild(&self, _: RebuildRequest) -> Result<RebuildReport, String> {
        Err("not now".to_owned())
    }

    fn raw_ledger(&self, ledger: u32) -> Result<Option<Vec<u8>>, String> {
        Ok((ledger == 7).then(|| b"seven".to_vec()))
    }

    fn checkpoint(&self) -> Result<HeldCheckpoint, String> {
        Err("not now".to_owned())
    }
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
    runtime.spawn(Arc::new(listener).serve(Arc::new(Echo), stopped));
    Bench { directory, inputs: AtomicU64::new(0), _stop: stop, _runtime: runtime }
});

fn socket() -> PathBuf {
    BENCH.directory.path().join("control.sock")
}

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&[kind][..], &(payload.len() as u32).to_be_bytes(), payload].concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let greeting = frame(b'G', br#"{"protocol":1,"release":"0.1.0"}"#);
    let start = br#"{"start":{"from":2,"to":9,"sources":["rpc:https://a.example"]}}"#;
    let frames = [
        frame(b'?', b""),
        frame(b'B', start),
        frame(b'B', br#""status""#),
        frame(b'C', b""),
        frame(b'R', br#"{"name":"export","begin":true}"#),
        [frame(b'L', b"one"), frame(b'L', b""), frame(b'S', b"")].concat(),
    ];
    frames.iter().map(|frames| [&greeting[..], frames].concat()).collect()
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
        assert_eq!(client.status().unwrap().events, 7);
    }
}
