//! Kills of a process that reads a state: the next one goes on with what was downloaded.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use orrery_checkpoint::{Archive, CheckpointError, Commitment, Work};
use orrery_ledger::domain::{Hash32, LedgerSeq};
use orrery_testkit::archive::{made, naive};
use orrery_testkit::kills::test_process;
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::server::ArchiveServer;
use super::world::{archive, assert_only_buckets, collected, commitment, read_with, small};

/// Address of the archive, its state, and the number of the step at which the process ends.
const ARCHIVE: &str = "ORRERY_TEST_ARCHIVE";
const STATE: &str = "ORRERY_TEST_STATE";
const KILLED_AT: &str = "ORRERY_TEST_KILLED_AT";
const DIRECTORY: &str = "ORRERY_TEST_DIRECTORY";

/// Reads a state in a process that ends without any notice at a step.
#[test]
fn reads_until_it_is_killed() {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(address) = variable(ARCHIVE) else { return };
    let state = variable(STATE).unwrap();
    let [ledger, protocol, hash] = state.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{state}")
    };
    let commitment = Commitment {
        ledger: LedgerSeq(ledger.parse().unwrap()),
        protocol: protocol.parse().unwrap(),
        bucket_list_hash: hash.parse::<Hash32>().unwrap(),
    };
    let killed_at: u64 = variable(KILLED_AT).unwrap().parse().unwrap();
    let steps = AtomicU64::new(0);
    let observe = |_| {
        if steps.fetch_add(1, Ordering::SeqCst) == killed_at {
            // As SIGKILL: nothing is cleaned up.
            std::process::abort();
        }
        true
    };
    let directory = variable(DIRECTORY).unwrap();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let archive = Archive::open(&address, runtime.handle(), Default::default()).unwrap();
    let (directory, bounds) = (Path::new(&directory), small());
    let work = Work { directory, contracts: None, bounds, observe: &observe };
    read_with(&archive, commitment, &work).unwrap();
}

/// Runs that process; returns whether it ended by itself.
fn process(
    server: &ArchiveServer,
    commitment: Commitment,
    killed_at: u64,
    directory: &Path,
) -> bool {
    let Commitment { ledger, protocol, bucket_list_hash } = commitment;
    let mut process = test_process("kills::reads_until_it_is_killed");
    process
        .env(ARCHIVE, server.provider.url("/archive"))
        .env(STATE, format!("{ledger} {protocol} {bucket_list_hash}"))
        .env(KILLED_AT, killed_at.to_string())
        .env(DIRECTORY, directory)
        .stderr(std::process::Stdio::null());
    process.status().unwrap().success()
}

#[test]
fn a_killed_reader_goes_on_with_the_buckets_that_it_has() {
    let mut random = ChaCha8Rng::seed_from_u64(9);
    let raw = made::state(&mut random, 25, 400);
    let commitment = commitment(&raw);
    let archive = archive(&raw);
    let expected = naive::read(archive.path(), raw.ledger);
    let mut kills = 0;
    let wanted = size::choose(12, 100);
    while kills < wanted {
        let server = ArchiveServer::start(raw.files(), |_, honest| honest);
        let directory = scratch();
        while !process(&server, commitment, random.random_range(0..140), directory.path()) {
            kills += 1;
            if kills >= wanted {
                break;
            }
        }
        let work = Work {
            directory: directory.path(),
            contracts: None,
            bounds: small(),
            observe: &|_| true,
        };
        let found = read_with(&server.archive(), commitment, &work).unwrap();
        assert_eq!(collected(found), expected);
        assert_only_buckets(directory.path());
        // What one process was downloading when it was killed is downloaded again.
        let mut times = BTreeMap::new();
        for path in server.requested("GET").into_iter().filter(|it| it.starts_with("bucket/")) {
            *times.entry(path).or_insert(0_u64) += 1;
        }
        let again: u64 = times.values().map(|count| count - 1).sum();
        assert_eq!(times.len(), raw.buckets().count());
        assert!(again <= kills, "{again} downloads again after {kills} kills");
    }
}

#[test]
fn a_cancelled_reader_stops_at_each_step() {
    let raw = made::state(&mut ChaCha8Rng::seed_from_u64(4), 25, 200);
    let server = ArchiveServer::start(raw.files(), |_, honest| honest);
    let directory = scratch();
    let mut stopped_at = 0;
    loop {
        let steps = AtomicU64::new(0);
        let observe = |_| steps.fetch_add(1, Ordering::SeqCst) < stopped_at;
        let work = Work {
            directory: directory.path(),
            contracts: None,
            bounds: small(),
            observe: &observe,
        };
        match read_with(&server.archive(), commitment(&raw), &work) {
            Err(CheckpointError::Stopped) => {}
            Ok(_) => break,
            Err(error) => panic!("{error}"),
        }
        assert_only_buckets(directory.path());
        stopped_at += 1;
    }
    assert!(stopped_at > 20, "{stopped_at}");
}
