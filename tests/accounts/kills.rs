//! A service that indexes accounts is killed repeatedly without warning while live and older
//! ledgers are stored. Its final index equals one that is computed from the beginning.
//!
//! Small: 5 kills; full: 200.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use orrery::accounts::AccountIndex;
use orrery::accounts::passkey::PasskeyWallets;
use orrery::accounts::smart::SmartAccounts;
use orrery::store::{Durability, IndexOptions, Store};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::histories::{AccountKind, history};
use crate::world::{Events, consumers, ledger, open};
use orrery_testkit::kills::{kill_repeatedly, test_process};
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;

const DIRECTORY: &str = "ORRERY_TEST_ACCOUNTS_DIRECTORY";
const SEED: &str = "ORRERY_TEST_ACCOUNTS_SEED";
/// Name of the test that runs as the killed process.
const PROCESS: &str = "kills::child_process_that_indexes_accounts";
const LEDGERS: u32 = 80;
/// First live ledger.
const MIDDLE: u32 = 30;

fn ledgers() -> Vec<Events> {
    let mut rng = ChaCha8Rng::seed_from_u64(77);
    let of = [AccountKind::Smart, AccountKind::Passkey];
    let [mut all, more] = of.map(|of| history(&mut rng, of, LEDGERS, 20));
    all.iter_mut().zip(more).for_each(|(all, more)| all.extend(more));
    all
}

/// Stores the missing ledgers: live ones, and older ones backwards and forwards.
fn store_all(store: &Store, all: &[Events], rng: &mut ChaCha8Rng) {
    loop {
        let is_stored = |ledger: &u32| store.range_of((*ledger).into()).is_some();
        let missing: Vec<u32> = (1..=LEDGERS).filter(|ledger| !is_stored(ledger)).collect();
        let Some(any) = missing.choose(rng).copied() else { return };
        let newest = store.status().latest().map_or(MIDDLE, |latest| latest.0 + 1);
        let (chosen, durability): (Vec<u32>, _) = match rng.random_range(0..3) {
            0 => ((newest..=LEDGERS.min(newest + 1)).collect(), Durability::Synced),
            1 => ((any.saturating_sub(3).max(1)..=any).rev().collect(), Durability::Synced),
            _ => ((any..=LEDGERS.min(any + 5)).collect(), Durability::Deferred),
        };
        for sequence in chosen {
            let made = ledger(sequence, &all[sequence as usize - 1]);
            store.commit(made.prepare(&IndexOptions::default()), durability).unwrap();
        }
        if rng.random_bool(0.3) {
            store.flush().unwrap();
        }
    }
}

/// Does nothing unless it is started by the test below.
#[test]
fn child_process_that_indexes_accounts() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let mut rng = ChaCha8Rng::seed_from_u64(std::env::var(SEED).unwrap().parse().unwrap());
    let (store, done, all) = (open(Path::new(&directory)), AtomicBool::new(false), ledgers());
    std::thread::scope(|scope| {
        for consumer in consumers() {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                loop {
                    let was_done = done.load(Ordering::SeqCst);
                    if !store.step(&*consumer).unwrap() {
                        if was_done {
                            return;
                        }
                        std::thread::yield_now();
                    }
                }
            });
        }
        store_all(&store, &all, &mut rng);
        store.flush().unwrap();
        done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn after_kills_the_index_equals_one_built_without_kills() {
    // The expected index, computed in chain order without kills.
    let fresh = scratch();
    let expected = {
        let store = open(fresh.path());
        for (sequence, events) in (1..).zip(&ledgers()) {
            let made = ledger(sequence, events).prepare(&IndexOptions::default());
            store.commit(made, Durability::Deferred).unwrap();
        }
        for consumer in consumers() {
            while store.step(&*consumer).unwrap() {}
        }
        digests(&store)
    };
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let process = |directory: &Path, seed: u64| {
        let mut process = test_process(PROCESS);
        process.env(DIRECTORY, directory).env(SEED, seed.to_string());
        process
    };
    kill_repeatedly(
        size::choose(5, 200),
        &mut rng,
        process,
        |_| {},
        |directory, round| {
            let store = open(directory);
            assert_eq!(store.last_place(), u64::from(LEDGERS));
            assert_eq!(digests(&store), expected, "round {round}");
        },
    );
}

fn digests(store: &Store) -> [String; 2] {
    [SmartAccounts::CONSUMER, PasskeyWallets::CONSUMER]
        .map(|name| store.consumer_digest(name).unwrap())
}
