//! Repeatedly kills a process that stores ledgers in every way while it feeds a consumer.
//!
//! Small: 8 kills; full: 200.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery_store::{Consumed, Durability, Store, audit};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use orrery_testkit::kills::{kill_repeatedly, test_process};
use orrery_testkit::size;
use orrery_testkit::witness::{
    CHAIN, FIRST, LEDGERS, WITNESS, assert_all_once, open, prepared, witness,
};

const DIRECTORY: &str = "ORRERY_TEST_FEED_DIRECTORY";
const SEED: &str = "ORRERY_TEST_FEED_SEED";
/// The test that the child process runs.
const PROCESS: &str = "feed::kills::child_process_that_stores_and_feeds";

/// Stores the missing ledgers: as live ledgers, as backfills in reverse order, and as imports that
/// become durable later.
fn store_all(store: &Store, rng: &mut ChaCha8Rng) {
    loop {
        let last = FIRST + LEDGERS - 1;
        let is_stored = |ledger: &u32| store.range_of((*ledger).into()).is_some();
        let missing: Vec<u32> = (FIRST..=last).filter(|ledger| !is_stored(ledger)).collect();
        let Some(any) = missing.choose(rng).copied() else { return };
        let newest = store.status().latest().map_or(FIRST + 20, |latest| latest.0 + 1);
        let (ledgers, durability): (Vec<u32>, _) = match rng.random_range(0..3) {
            0 => ((newest..=last.min(newest + 1)).collect(), Durability::Synced),
            1 => ((any.saturating_sub(3).max(FIRST)..=any).rev().collect(), Durability::Synced),
            _ => ((any..=last.min(any + 5)).collect(), Durability::Deferred),
        };
        for ledger in ledgers {
            store.commit(prepared(&CHAIN[(ledger - FIRST) as usize]), durability).unwrap();
        }
        if rng.random_bool(0.3) {
            store.flush().unwrap();
        }
    }
}

fn feed_all(store: &Store, done: &AtomicBool) {
    loop {
        let was_done = done.load(Ordering::SeqCst);
        match store.consume(WITNESS.name, 3, witness).unwrap() {
            Consumed::CaughtUp if was_done => return,
            Consumed::CaughtUp => std::thread::yield_now(),
            Consumed::Ledgers(_) | Consumed::Retry => {}
        }
    }
}

/// Does nothing unless it is started by the test below.
#[test]
fn child_process_that_stores_and_feeds() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let store = Arc::new(open(Path::new(&directory), &[WITNESS]));
    let done = AtomicBool::new(false);
    println!("begins");
    std::thread::scope(|scope| {
        scope.spawn(|| feed_all(&store, &done));
        store_all(&store, &mut rng);
        store.flush().unwrap();
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_consumer_sees_every_ledger_once_through_kills() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let process = |directory: &Path, seed: u64| {
        let mut process = test_process(PROCESS);
        process.env(DIRECTORY, directory).env(SEED, seed.to_string());
        process
    };
    let killed = |directory: &Path| {
        let store = open(directory, &[WITNESS]);
        let cursor = store.cursor(WITNESS.name).unwrap().unwrap();
        assert!(cursor <= store.last_place(), "nothing that was seen is gone");
    };
    kill_repeatedly(size::choose(8, 200), &mut rng, process, killed, |directory, _| {
        let store = open(directory, &[WITNESS]);
        assert_eq!(store.last_place(), u64::from(LEDGERS));
        assert_eq!(store.consumer(WITNESS.name).unwrap().lag, 0);
        assert_all_once(&store);
        drop(store);
        let audit = audit(directory, None, &|_| {}).unwrap();
        assert_eq!(audit.problems, []);
    });
}
