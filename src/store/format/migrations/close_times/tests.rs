//! A migrated store of format 2.1 has the same bytes as a store that this version fills.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::domain::Network;
use crate::faults::{Fault, WriteKind};
use crate::format::FORMAT_ROW;
use crate::{Durability, IndexOptions, PreparedLedger, RAW_DIRECTORY, Retention, Store, audit};
use orrery_sandbox::network::{Sandbox, SandboxConfig};

/// The last ledger; the first is 2.
const LAST: u32 = 60;
/// First ledger with a close time in milliseconds.
const MILLISECONDS_FROM: u32 = 20;

fn network() -> Network {
    Network::from_name_or_passphrase("local")
}

/// Fills a store with this version.
fn fill(directory: &Path) {
    let config = SandboxConfig {
        network: network(),
        seed: 5,
        start_time: 1_750_000_000,
        close_interval: 5,
        transactions_per_ledger: 0..=12,
    };
    let sandbox = Sandbox::new(config).unwrap();
    let mut sandbox = sandbox.with_milliseconds(LedgerSeq(MILLISECONDS_FROM), 3);
    let store = Store::open(directory, Some(&network())).unwrap();
    let options =
        IndexOptions { classic_events: true, fee_events: true, contracts: None, raw_ledgers: true };
    for _ in 2..=LAST {
        let xdr = sandbox.next_ledger().unwrap();
        let view = decode::decode(&xdr, network().id()).unwrap();
        let prepared = PreparedLedger::new(&view, &options).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.flush().unwrap();
}

fn database(directory: &Path) -> Database {
    Database::open(&directory.join(RAW_DIRECTORY)).unwrap()
}

/// Rewrites the ledgers that `older` selects to what format 2.1 stored of them.
fn make_old(directory: &Path, mut older: impl FnMut(LedgerSeq) -> bool) {
    let database = database(directory);
    let snapshot = database.snapshot();
    let mut batch = database.batch();
    database
        .scan(Family::Ledgers, |key, value| {
            let sequence = LedgerKey::decode(key).unwrap().0;
            let row = LedgerRow::decode(value).unwrap();
            if !older(sequence) {
                return Ok(());
            }
            let seconds = CloseTime::Seconds(row.close_time.seconds());
            set_close_time(&mut batch, &snapshot, sequence, row, seconds)
        })
        .unwrap();
    batch.put_raw(Family::Meta, FORMAT_ROW, &[0, 2, 0, 1]).unwrap();
    database.write_synced(batch).unwrap();
}

/// Returns all rows of all families.
fn contents(directory: &Path) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let database = database(directory);
    let mut rows = Vec::new();
    for family in Family::ALL {
        database
            .scan(family, |key, value| {
                rows.push((family.name(), key.to_vec(), value.to_vec()));
                Ok(())
            })
            .unwrap();
    }
    rows
}

fn times(directory: &Path) -> Vec<CloseTime> {
    let store = Store::open(directory, None).unwrap();
    (2..=LAST).map(|at| store.ledger(LedgerSeq(at)).unwrap().unwrap().close_time).collect()
}

fn assert_sound(directory: &Path) {
    assert_eq!(audit(directory, None, &|_| {}).unwrap().problems, []);
}

#[test]
fn an_older_store_becomes_the_one_that_this_version_makes() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill(directory);
    let (expected, expected_times) = (contents(directory), times(directory));
    let precise = expected_times.iter().filter(|time| time.milliseconds().is_some()).count();
    assert_eq!(precise as u32, LAST + 1 - MILLISECONDS_FROM);
    make_old(directory, |_| true);
    assert_ne!(contents(directory), expected);
    let refused = audit(directory, None, &|_| {}).unwrap_err();
    assert!(matches!(refused, StoreError::NotUpgraded { .. }), "{refused}");
    assert_eq!(times(directory), expected_times);
    assert!(contents(directory) == expected, "every row is that of a new store");
    assert_sound(directory);
}

#[test]
fn a_migration_that_was_broken_off_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill(directory);
    let expected = contents(directory);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..12 {
        // An attempt that did not finish may have migrated some ledgers already.
        let share = rng.random_range(0.3..1.0);
        make_old(directory, |_| rng.random_bool(share));
        for _ in 0..rng.random_range(0..4) {
            let database = database(directory);
            let (mut left, fault) = match rng.random_bool(0.5) {
                true => (rng.random_range(0..9), Fault::NotWritten),
                false => (rng.random_range(0..9), Fault::Written),
            };
            database.faults().plan(move |kind| {
                left -= 1;
                (left < 0 && kind == WriteKind::Unlogged).then_some(fault)
            });
            let _ = run(&database, 4, &Upgrade::with_observer(None));
        }
        drop(Store::open(directory, None).unwrap());
        assert!(contents(directory) == expected, "round {round}");
    }
    assert_sound(directory);
}

/// Environment variable with the directory that the child process migrates until it is killed.
const TO_MIGRATE: &str = "ORRERY_TEST_MIGRATED_DIRECTORY";

/// Not a test of its own: the child process that the next test kills.
#[test]
#[ignore = "is run in a process that is killed"]
fn migrates_until_it_is_killed() {
    let Some(directory) = std::env::var_os(TO_MIGRATE) else { return };
    let database = database(Path::new(&directory));
    println!("begins");
    run(&database, 1, &Upgrade::with_observer(None)).unwrap();
}

#[test]
fn a_killed_migration_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill(directory);
    let expected = contents(directory);
    let name = std::any::type_name_of_val(&migrates_until_it_is_killed);
    let (_, path) = name.split_once("::").expect("the crate, and the path in it");
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for round in 0..10 {
        make_old(directory, |_| true);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([path, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(TO_MIGRATE, directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("begins")), "it begins");
        std::thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        drop(Store::open(directory, None).unwrap());
        assert!(contents(directory) == expected, "round {round}");
    }
    assert_sound(directory);
}

#[test]
fn seconds_stay_where_the_raw_ledger_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill(directory);
    let expected = times(directory);
    make_old(directory, |_| true);
    let kept = LAST - 9;
    {
        let database = database(directory);
        let mut batch = database.batch();
        let (from, to) = (LedgerKey(LedgerSeq(0)).encode(), LedgerKey(LedgerSeq(kept)).encode());
        batch.delete_range(Family::LedgerXdr, from.as_ref(), to.as_ref()).unwrap();
        // A damaged raw ledger is treated like a missing one.
        batch.put(Family::LedgerXdr, &LedgerKey(LedgerSeq(LAST)), [0, 1, 2, 3]).unwrap();
        database.write_synced(batch).unwrap();
    }
    for (time, (expected, sequence)) in times(directory).into_iter().zip(expected.iter().zip(2..)) {
        let precise = (kept..LAST).contains(&sequence);
        let seconds = CloseTime::Seconds(expected.seconds());
        assert_eq!(time, if precise { *expected } else { seconds }, "{sequence}");
    }
}

#[test]
fn pruned_ledgers_are_brought_up_to_date_as_far_as_they_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill(directory);
    {
        let store = Store::open(directory, None).unwrap();
        let retention =
            Retention { events: Some(15), transactions: Some(25), ..Retention::default() };
        while !store.prune(&retention).unwrap().is_nothing() {}
    }
    let expected = contents(directory);
    make_old(directory, |_| true);
    drop(Store::open(directory, None).unwrap());
    assert!(contents(directory) == expected);
    assert_sound(directory);
}
