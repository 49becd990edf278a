//! A client follows all events of the real service, through kills of the service (SIGKILL) and of
//! its own connection: no event is lost or repeated, and the order holds.
//!
//! Small: 20 resumptions; full: 1,000.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::messages::Reader;
use orrery_testkit::binary::{Service, token_with};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

/// Starts a service that follows a lake.
fn start(directory: &Path, lake: &LakeFiles) -> Service {
    let path = lake.text();
    Service::follow(
        directory,
        &[
            ("ORRERY_INDEX_CLASSIC_EVENTS", "true"),
            ("ORRERY_INDEX_FEE_EVENTS", "true"),
            ("ORRERY_SOURCE_KIND", "lake"),
            ("ORRERY_SOURCE_PATH", &path),
            ("ORRERY_SOURCE_START", "2"),
        ],
    )
}

#[test]
fn a_stream_resumes_after_kills_of_either_side() {
    let resumptions = size::choose(20, 1000);
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let last = if resumptions > 100 { 1500 } else { 120 };
    let chain = Chain::made(41, last);
    let lake = LakeFiles::with(&chain, 2..=10);
    let directory = tempfile::tempdir().unwrap();
    let token = token_with(directory.path(), "reader", &["--network", "local"]);
    let done = Arc::new(AtomicU64::new(0));
    let ended = Arc::new(AtomicBool::new(false));
    let (mut seen, mut last_id, mut kills) = (Vec::<Value>::new(), "0".to_owned(), 0);
    std::thread::scope(|scope| {
        let (resumed, over) = (Arc::clone(&done), Arc::clone(&ended));
        let (chain, lake) = (&chain, &lake);
        // Ledgers are added in step with the resumptions; once those are over, the rest is added.
        scope.spawn(move || {
            for ledger in 11..=last {
                let turn = u64::from(ledger - 10) * resumptions / u64::from(last - 10);
                wait_until("the ledger's turn comes, or the resumptions are over", || {
                    resumed.load(Ordering::SeqCst) + 1 >= turn || over.load(Ordering::SeqCst)
                });
                lake.add(chain, ledger);
            }
        });
        let end = Ends(&ended);
        let mut service = start(directory.path(), lake);
        while done.load(Ordering::SeqCst) < resumptions {
            done.fetch_add(1, Ordering::SeqCst);
            let mut reader =
                Reader::open(service.address.parse().unwrap(), &token, "", Some(&last_id)).unwrap();
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
            service = start(directory.path(), lake);
        }
        ended.store(true, Ordering::SeqCst);
        drop(end);
        service.wait_until_stored(last);
        let all = service.rows("/rest/events/by-ledger?order=asc&limit=1000", "id");
        let mut reader =
            Reader::open(service.address.parse().unwrap(), &token, "", Some(&last_id)).unwrap();
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
