//! A client follows all events of the real service, through kills of the service (SIGKILL) and of
//! its own connection: no event is lost or repeated, and the order holds.
//!
//! Small: 20 resumptions; full: 1,000.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::messages::Reader;
use orrery_testkit::binary::orrery;
use orrery_testkit::client::HTTP;
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::size;

const NETWORK: [&str; 2] = ["--network", "local"];

/// A running `orrery serve` that follows a lake.
struct Service {
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(directory: &Path, lake: &LakeFiles) -> Self {
        let mut child = orrery()
            .env("ORRERY_LIMITS_REQUESTS_PER_SECOND", "0")
            .env("ORRERY_INDEX_CLASSIC_EVENTS", "true")
            .env("ORRERY_INDEX_FEE_EVENTS", "true")
            .env("ORRERY_SOURCE_KIND", "lake")
            .env("ORRERY_SOURCE_PATH", lake.path())
            .env("ORRERY_SOURCE_START", "2")
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"])
            .args(NETWORK)
            .arg("--data-dir")
            .arg(directory)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it says where it listens").unwrap();
            let line: Value = serde_json::from_str(&line).expect(&line);
            if line["message"] == "listening" {
                break line["address"].as_str().unwrap().parse().unwrap();
            }
        };
        // Keeps the pipe from filling up.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(directory: &Path) -> String {
    let mut issue = orrery();
    issue
        .args(["token", "issue", "--sub", "reader"])
        .args(NETWORK)
        .arg("--data-dir")
        .arg(directory);
    let issued = issue.output().unwrap();
    assert!(issued.status.success(), "{}", String::from_utf8_lossy(&issued.stderr));
    String::from_utf8(issued.stdout).unwrap().trim().to_owned()
}

/// Returns all stored events as the event routes return them.
fn stored(address: SocketAddr, token: &str) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let cursor = all.last().map_or(0, |last| last["id"].as_u64().unwrap());
        let url =
            format!("http://{address}/rest/events/by-ledger?order=asc&limit=1000&cursor={cursor}");
        let page: Vec<Value> = HTTP.get(url).bearer_auth(token).send().unwrap().json().unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

#[test]
fn a_stream_resumes_after_kills_of_either_side() {
    let resumptions = size::choose(20, 1000);
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let last = if resumptions > 100 { 1500 } else { 120 };
    let chain = Chain::made(41, last);
    let lake = LakeFiles::with(&chain, 2..=10);
    let directory = tempfile::tempdir().unwrap();
    let token = token(directory.path());
    let done = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    let (mut seen, mut last_id, mut kills, mut began) =
        (Vec::<Value>::new(), "0".to_owned(), 0, None);
    std::thread::scope(|scope| {
        let (resumed, over) = (Arc::clone(&done), Arc::clone(&ended));
        let (chain, lake) = (&chain, &lake);
        // Ledgers are added in step with the resumptions; once those are over, the rest is added.
        scope.spawn(move || {
            for ledger in 11..=last {
                let turn = u64::from(ledger - 10) * resumptions / u64::from(last - 10);
                while resumed.load(Ordering::SeqCst) + 1 < turn && !over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                lake.add(chain, ledger);
            }
        });
        let end = Ends(&ended);
        let mut service = Service::start(directory.path(), lake);
        while done.load(Ordering::SeqCst) < resumptions {
            done.fetch_add(1, Ordering::SeqCst);
            let mut reader = Reader::open(service.address, &token, "", Some(&last_id)).unwrap();
            assert_eq!(reader.position().to_string(), last_id);
            let wanted = rng.random_range(0..60);
            if rng.random_bool(0.5) {
                // The client disconnects in the middle of the stream.
                take(&mut reader, wanted, &mut seen);
                last_id = reader.last_id;
                continue;
            }
            // The service is killed while it sends, and the client reads what still arrives.
            take(&mut reader, wanted, &mut seen);
            drop(service);
            kills += 1;
            while let Some(message) = reader.message() {
                push(message, &mut seen);
            }
            last_id = reader.last_id;
            service = Service::start(directory.path(), lake);
        }
        ended.store(true, Ordering::SeqCst);
        drop(end);
        let newest = || {
            let health =
                HTTP.get(format!("http://{}/rest/health", service.address)).send().unwrap();
            health.json::<Value>().unwrap()["service_latest_ledger"].as_u64()
        };
        let waits = *began.insert(Instant::now());
        while newest() != Some(u64::from(last)) {
            assert!(waits.elapsed() < Duration::from_secs(120), "{:?}", newest());
            std::thread::sleep(Duration::from_millis(20));
        }
        let all = stored(service.address, &token);
        let mut reader = Reader::open(service.address, &token, "", Some(&last_id)).unwrap();
        take(&mut reader, all.len() - seen.len(), &mut seen);
        assert!(seen == all, "{} events were sent, {} are stored", seen.len(), all.len());
        println!("{resumptions} resumptions, {kills} of them after SIGKILL: {} events", all.len());
    });
}

/// Sets the flag when dropped, so that the other thread ends even when this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Reads `wanted` events, or fewer when none arrives for a moment.
fn take(reader: &mut Reader, wanted: usize, seen: &mut Vec<Value>) {
    for _ in 0..wanted {
        match reader.message_within(Duration::from_millis(400)) {
            Some(message) => push(message, seen),
            None => return,
        }
    }
}

fn push((kind, id, data): (String, String, Value), seen: &mut Vec<Value>) {
    assert_eq!((kind.as_str(), id), ("message", data["id"].to_string()));
    assert_eq!(data["id"], seen.len() + 1, "ids have no gaps, and nothing comes twice");
    seen.push(data);
}
