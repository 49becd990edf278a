//! Archives on servers that redirect, break off, inflate, and lie about sizes.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use orrery_checkpoint::{Bounds, CheckpointError, Step, Work};
use orrery_testkit::archive::{RawState, bucket_file, made, naive};
use orrery_testkit::provider::{Delivery, Reply, Request};
use orrery_testkit::scratch::scratch;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::server::ArchiveServer;
use super::world::{archive, collected, commitment, read, read_with, small};

fn state() -> RawState {
    made::state(&mut ChaCha8Rng::seed_from_u64(3), 25, 40)
}

fn is_bucket(request: &Request) -> bool {
    request.target.contains("/bucket/") && request.method == "GET"
}

#[test]
fn a_state_is_downloaded_once() {
    let raw = state();
    let directory = archive(&raw);
    let expected = naive::read(directory.path(), raw.ledger);
    let server = ArchiveServer::start(raw.files(), |_, honest| honest);
    let work_directory = scratch();
    let steps = Mutex::new(Vec::new());
    let observe = |step| {
        steps.lock().unwrap().push(step);
        true
    };
    let work = Work {
        directory: work_directory.path(),
        contracts: None,
        bounds: small(),
        observe: &observe,
    };
    assert_eq!(server.archive().newest().unwrap().0, raw.ledger);
    for _ in 0..2 {
        let found = read_with(&server.archive(), commitment(&raw), &work).unwrap();
        assert_eq!(collected(found), expected);
    }
    let buckets = server.requested("GET").into_iter().filter(|path| path.starts_with("bucket/"));
    assert_eq!(buckets.count(), raw.buckets().count(), "each bucket once");
    let steps = steps.lock().unwrap().clone();
    let stored = raw.files().into_iter().filter(|(path, _)| path.starts_with("bucket/"));
    let bytes = stored.map(|(_, content)| content.len() as u64).sum();
    assert!(steps.contains(&Step::Download { bytes }), "{bytes}");
    let first_sort = steps.iter().position(|step| matches!(step, Step::Sort { disk } if *disk > 0));
    let first_sorting = steps.iter().position(|step| matches!(step, Step::Sorting { .. }));
    assert!(first_sort.is_some() && first_sorting.is_none_or(|at| Some(at) > first_sort));

    // A damaged copy is downloaded again, another state's is removed.
    let kept = std::fs::read_dir(work_directory.path()).unwrap().next().unwrap().unwrap().path();
    let mut content = std::fs::read(&kept).unwrap();
    let middle = content.len() / 2;
    content[middle] ^= 1;
    std::fs::write(&kept, content).unwrap();
    let stranger = work_directory.path().join(format!("bucket-{}.xdr.gz", "0a".repeat(32)));
    std::fs::write(&stranger, "of another state").unwrap();
    let found = read_with(&server.archive(), commitment(&raw), &work).unwrap();
    assert_eq!(collected(found), expected);
    assert!(!stranger.exists());
}

#[test]
fn redirects_elsewhere_are_refused() {
    let raw = state();
    let elsewhere = ArchiveServer::start(raw.files(), |_, honest| honest);
    let target = elsewhere.provider.url("");
    for status in [301, 302, 303, 307, 308] {
        let target = target.clone();
        let server = ArchiveServer::start(raw.files(), move |request, honest| {
            if is_bucket(request) {
                Reply::status(status).header("location", format!("{target}{}", request.target))
            } else {
                honest
            }
        });
        let refused = read(&server.archive(), commitment(&raw), None, small()).unwrap_err();
        let CheckpointError::Refused(sentence) = refused else { panic!("{refused:?}") };
        assert!(sentence.contains("redirects to http://127.0.0.1"), "{sentence}");
        assert!(sentence.contains("/bucket/"), "{sentence}");
    }
    assert!(elsewhere.provider.requests().is_empty(), "nobody went there");
}

#[test]
fn broken_connections_are_continued_a_few_times() {
    let raw = state();
    let directory = archive(&raw);
    let expected = naive::read(directory.path(), raw.ledger);
    let cuts = Arc::new(AtomicU32::new(0));
    let server = ArchiveServer::start(raw.files(), {
        let cuts = Arc::clone(&cuts);
        move |request, honest| {
            let is_cut = is_bucket(request) && cuts.fetch_add(1, Ordering::SeqCst) < 3;
            if is_cut { honest.delivered(Delivery::CutAfter(40)) } else { honest }
        }
    });
    let found = read(&server.archive(), commitment(&raw), None, small()).unwrap();
    assert_eq!(collected(found), expected);
    let continued = server.provider.requests();
    assert!(continued.iter().any(|request| request.header("range").is_some()));

    let server = ArchiveServer::start(raw.files(), |request, honest| {
        if is_bucket(request) { honest.delivered(Delivery::CutAfter(0)) } else { honest }
    });
    let failed = read(&server.archive(), commitment(&raw), None, small()).unwrap_err();
    let CheckpointError::Failed(sentence) = failed else { panic!("{failed:?}") };
    assert!(sentence.contains("/bucket/") && sentence.contains("connection"), "{sentence}");
}

/// Servers that declare their files to be encoded with gzip, which they are not beyond being `.gz`.
#[test]
fn declared_encodings_change_nothing() {
    let raw = state();
    let server = ArchiveServer::start(raw.files(), |request, honest| {
        if is_bucket(request) { honest.header("content-encoding", "gzip") } else { honest }
    });
    assert!(read(&server.archive(), commitment(&raw), None, small()).is_ok());
}

#[test]
fn errors_of_servers_name_the_file() {
    let raw = state();
    for (status, words) in [(500, "answers 500"), (403, "answers 403"), (404, "does not have it")] {
        let server = ArchiveServer::start(raw.files(), move |request, honest| {
            if is_bucket(request) { Reply::status(status) } else { honest }
        });
        let failed = read(&server.archive(), commitment(&raw), None, small()).unwrap_err();
        let sentence = failed.to_string();
        assert!(sentence.contains("/bucket/") && sentence.contains(words), "{sentence}");
    }
}

#[test]
fn what_is_larger_than_its_bound_is_refused() {
    let raw = state();
    let largest = raw.buckets().max_by_key(|bucket| bucket.len()).unwrap();
    let (file, length) = (bucket_file(largest), largest.len() as u64);
    let total: u64 = raw.buckets().map(|bucket| bucket.len() as u64).sum();
    let directory = archive(&raw);
    let archive = orrery_checkpoint::Archive::directory(directory.path());
    let exact = Bounds { bucket: length, total, ..small() };
    assert!(read(&archive, commitment(&raw), None, exact).is_ok());
    let cases = [
        (Bounds { bucket: length - 1, ..exact }, &*file, "inflates to more than"),
        (Bounds { total: total - 1, ..exact }, "", "inflates to more than"),
        (Bounds { stored: 20, ..exact }, "", "is longer than 20 bytes"),
    ];
    for (bounds, file, words) in cases {
        let refused = read(&archive, commitment(&raw), None, bounds).unwrap_err();
        let CheckpointError::Refused(sentence) = refused else { panic!("{refused:?}") };
        assert!(sentence.contains(file) && sentence.contains(words), "{sentence}");
    }
}

#[test]
fn disk_is_checked_before_it_is_taken() {
    let raw = state();
    let server = ArchiveServer::start(raw.files(), |_, honest| honest);
    let bounds = Bounds { spare: u64::MAX / 2, ..small() };
    let full = read(&server.archive(), commitment(&raw), None, bounds).unwrap_err();
    let CheckpointError::Failed(sentence) = full else { panic!("{full:?}") };
    assert!(sentence.contains("downloading the state takes"), "{sentence}");
    assert!(!server.provider.requests().iter().any(is_bucket), "nothing was downloaded");

    let directory = archive(&raw);
    let archive = orrery_checkpoint::Archive::directory(directory.path());
    let full = read(&archive, commitment(&raw), None, bounds).unwrap_err();
    assert!(full.to_string().contains("sorting the state takes"), "{full}");
    assert!(full.to_string().contains("give another directory"), "{full}");
}

#[test]
fn an_archive_needs_an_address_of_a_kind_that_can_be_read() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let open = |address: &str| {
        orrery_checkpoint::Archive::open(address, runtime.handle(), Default::default())
    };
    for (address, words) in [("s3://bucket/prefix", "s3 address"), ("http://", "cannot be used")] {
        let error = open(address).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    for address in ["/srv/archive", "file:///srv/archive", "https://archive.example/prd/"] {
        assert!(open(address).is_ok(), "{address}");
    }
}
