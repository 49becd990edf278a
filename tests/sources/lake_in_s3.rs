//! A lake in an S3-compatible store: followed with and without credentials, with and without the
//! right to list, through resets of its network, and through the error responses of such stores.
//! Also a lake in stores of Google and Azure.

use std::sync::atomic::{AtomicU32, Ordering};

use orrery::domain::LedgerSeq;
use orrery::net::buckets::BucketSettings;
use orrery::net::http::Timeouts;
use orrery::service::Ended;
use orrery::source::follow::Timing;
use orrery::source::lake::{Lake, LakeSettings, LakeSource};
use orrery::store::Store;
use tempfile::TempDir;

use orrery_testkit::azure::{self, AzureServer};
use orrery_testkit::chain::{self, Chain, FORK, MAIN};
use orrery_testkit::contents::Contents;
use orrery_testkit::following::{Following, RECOVERY, SOURCE, open_store, timing};
use orrery_testkit::lake_server::{file, key, manifest};
use orrery_testkit::provider::{Reply, Request};
use orrery_testkit::s3::{KEY_ID, Rights, S3Server, SECRET};
use orrery_testkit::wait::LIMIT;

use crate::scene::assert_holds;

const PREFIX: &str = "v1.1/it";

struct Scene {
    s3: S3Server,
    store: std::sync::Arc<Store>,
    directory: TempDir,
}

impl Scene {
    /// Creates a bucket with a lake of ledgers up to `latest`, and an empty store.
    fn new(rights: Rights, latest: u32) -> Self {
        let scene = Self::empty(rights, &MAIN);
        scene.s3.put_manifest(PREFIX, &MAIN);
        scene.s3.close_ledgers(PREFIX, &MAIN, 2, latest);
        scene
    }

    fn empty(rights: Rights, chain: &Chain) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = open_store(directory.path(), &chain.network);
        Self { s3: S3Server::start(rights), store, directory }
    }

    fn follow(&self, settings: &BucketSettings, first: u32) -> Following {
        let next = self.store.status().latest().and_then(LedgerSeq::next);
        let network = self.store.network();
        let near = next.unwrap_or(LedgerSeq(first));
        let source = LakeSource::connect(&settings.clone().into(), network, Some(near)).unwrap();
        Following::start(&self.store, source, Some(first))
    }

    /// Follows with timeouts that no machine exceeds, so that no request is repeated because of a
    /// timeout.
    fn follow_patiently(&self, first: u32) -> Following {
        let timeouts = Timeouts { connect: LIMIT, idle: LIMIT };
        let settings = BucketSettings { timeouts, ..self.s3.anonymous(PREFIX) };
        let near = Some(LedgerSeq(first));
        let source = LakeSource::connect(&settings.into(), self.store.network(), near).unwrap();
        let timing = Timing { call: LIMIT, probe: LIMIT, ..timing() };
        Following::start_with(&self.store, source, Some(first), timing)
    }

    /// Asserts that the bucket was listed once, while the lake was opened, and not while it was
    /// followed.
    fn assert_listed_once(&self) {
        let requests = self.s3.requests();
        let listings: Vec<_> = requests.iter().filter(|request| lists(request)).collect();
        assert_eq!(listings.len(), 1, "{listings:#?}");
    }

    /// Waits until the whole chain is stored, stops following and checks the store.
    #[track_caller]
    fn completes(&self, following: Following, chain: &Chain) {
        following.wait_until_stored(chain.last());
        following.stop();
        assert_holds(&self.store, chain);
    }

    /// Asserts that settings, health and requests contain no secret: secrets are only used to
    /// compute signatures.
    fn assert_nothing_leaked(&self, settings: &BucketSettings, following: &Following) {
        let shown = format!("{settings:?} {:?}", following.health.components());
        for secret in [SECRET, KEY_ID, "Signature="] {
            assert!(!shown.contains(secret), "{shown}");
        }
        for request in self.s3.requests() {
            assert!(!format!("{request:?}").contains(SECRET));
        }
    }
}

fn lists(request: &Request) -> bool {
    request.target.contains("list-type=2")
}

/// An error response in S3's format.
fn error(status: u16, code: &str, more: &str) -> Reply {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>Because.\
         </Message>{more}<RequestId>1</RequestId></Error>"
    );
    Reply::new(status, "application/xml", body)
}

#[test]
fn recorded_ledgers_are_stored_with_and_without_credentials() {
    let Some(public) = chain::public() else { return };
    for rights in [Rights::Open, Rights::Closed] {
        let scene = Scene::empty(rights, public);
        scene.s3.put_manifest(PREFIX, public);
        let signed = rights == Rights::Closed;
        let settings =
            if signed { scene.s3.signed(PREFIX, SECRET) } else { scene.s3.anonymous(PREFIX) };
        let following = scene.follow(&settings, public.first());
        for sequence in public.first()..=public.last() {
            scene.s3.close_ledgers(PREFIX, public, sequence, sequence);
            following.wait_until_stored(sequence);
        }
        scene.assert_nothing_leaked(&settings, &following);
        following.stop();
        assert_holds(&scene.store, public);
        let requests = scene.s3.requests();
        assert!(requests.len() > 24 && requests.iter().any(lists));
        for request in requests {
            let signature = request.header("authorization");
            let by = format!("AWS4-HMAC-SHA256 Credential={KEY_ID}/");
            assert_eq!(signature.map(|text| text.starts_with(&by)), signed.then_some(true));
        }
    }
}

#[test]
fn without_listing_rights_the_end_is_found_by_probing() {
    let scene = Scene::new(Rights::NoListing, 20);
    // AWS answers 403 for a missing object when the client may not list the bucket.
    scene.s3.set_fault(|_, honest| match honest() {
        Reply { status: 404, .. } => error(403, "AccessDenied", ""),
        reply => reply,
    });
    let following = scene.follow_patiently(2);
    following.wait_until_stored(20);
    scene.s3.close_ledgers(PREFIX, &MAIN, 21, 40);
    scene.completes(following, &MAIN);
    scene.assert_listed_once();
}

#[test]
fn every_s3_error_is_reported_and_recovered_from() {
    type Fault = fn(&Request, &dyn Fn() -> Reply) -> Reply;
    let troubles: [(&str, Fault); 9] = [
        (
            "may not be read: the server answers 403 Forbidden (AccessDenied); check bucket",
            |_, _| error(403, "AccessDenied", ""),
        ),
        ("(RequestTimeTooSkewed)", |_, _| error(403, "RequestTimeTooSkewed", "")),
        ("(ExpiredToken)", |_, _| error(403, "ExpiredToken", "")),
        ("there is no such bucket", |_, _| error(404, "NoSuchBucket", "")),
        ("is not in the region us-east-1 but in eu-north-1: set that region", |_, _| {
            error(301, "PermanentRedirect", "").header("x-amz-bucket-region", "eu-north-1")
        }),
        ("is not in the region us-east-1: set the region", |_, _| {
            error(301, "PermanentRedirect", "")
        }),
        ("is not in the region us-east-1 but in eu-north-1: set that region", |_, _| {
            error(400, "AuthorizationHeaderMalformed", "<Region>eu-north-1</Region>")
        }),
        ("503 Service Unavailable (SlowDown)", |_, _| error(503, "SlowDown", "")),
        ("the listing is not understood", |request, honest| match lists(request) {
            true => Reply::new(200, "application/xml", "<html>It works!</html>"),
            false => honest(),
        }),
    ];
    for (words, fault) in troubles {
        let scene = Scene::new(Rights::Closed, 20);
        let settings = scene.s3.signed(PREFIX, SECRET);
        let following = scene.follow(&settings, 2);
        following.wait_until_stored(20);
        scene.s3.set_fault(fault);
        scene.s3.close_ledgers(PREFIX, &MAIN, 21, 40);
        following.wait_until_down(SOURCE, words);
        scene.assert_nothing_leaked(&settings, &following);
        scene.s3.clear_fault();
        following.wait_until_recovered(40);
        scene.completes(following, &MAIN);
    }
}

#[test]
fn wrong_credentials_are_reported_without_revealing_them() {
    let scene = Scene::new(Rights::Closed, 40);
    for (settings, words) in [
        (scene.s3.signed(PREFIX, "another-secret"), "that the credentials are right"),
        (scene.s3.anonymous(PREFIX), "it was asked without credentials"),
    ] {
        let following = scene.follow(&settings, 2);
        following.wait_until_down(SOURCE, words);
        let reason = following.down(SOURCE).unwrap();
        assert!(!reason.contains("another-secret") && !reason.contains("AWS4"), "{reason}");
        scene.assert_nothing_leaked(&settings, &following);
        following.stop();
    }
    assert_eq!(scene.store.status().latest(), None);
    let following = scene.follow(&scene.s3.signed(PREFIX, SECRET), 2);
    scene.completes(following, &MAIN);
}

#[test]
fn the_newest_directory_is_followed_until_a_reset_adds_another() {
    let scene = Scene::empty(Rights::Open, &MAIN);
    let directory = |date: &str| format!("{PREFIX}/{date}");
    scene.s3.put_manifest(&directory("2024-12-31"), &FORK);
    scene.s3.close_ledgers(&directory("2024-12-31"), &FORK, 2, 40);
    scene.s3.put_manifest(&directory("2025-08-14"), &MAIN);
    scene.s3.close_ledgers(&directory("2025-08-14"), &MAIN, 2, 20);
    // This directory is not in use yet: it has no manifest.
    scene.s3.close_ledgers(&directory("2026-01-01"), &FORK, 2, 3);
    let settings = scene.s3.anonymous(PREFIX);
    let following = scene.follow(&settings, 2);
    following.wait_until_stored(20);
    scene.s3.close_ledgers(&directory("2025-08-14"), &MAIN, 21, 40);
    following.wait_until_stored(40);

    scene.s3.put_manifest(&directory("2026-01-01"), &FORK);
    following.wait_until_down(SOURCE, "was reset: its ledgers now come from");
    let reason = following.down(SOURCE).unwrap();
    assert!(reason.contains("/2026-01-01") && reason.contains("empty data directory"), "{reason}");
    assert!(matches!(following.end(), Ended::Failed(_)));
    assert_holds(&scene.store, &MAIN);

    // With an empty data directory, the newer lake directory is followed.
    let fresh =
        Scene { store: open_store(&scene.directory.path().join("new"), &FORK.network), ..scene };
    fresh.s3.close_ledgers(&directory("2026-01-01"), &FORK, 4, 40);
    let following = fresh.follow(&settings, 2);
    fresh.completes(following, &FORK);
}

#[test]
fn a_bucket_without_a_lake_is_reported() {
    let scene = Scene::empty(Rights::Open, &MAIN);
    let settings = scene.s3.anonymous(PREFIX);
    let following = scene.follow(&settings, 2);
    following
        .wait_until_down(SOURCE, "is not a ledger lake: it has no .config.json, nor a directory");
    scene.s3.put_manifest(PREFIX, &MAIN);
    following
        .wait_within(RECOVERY, "the source works", |following| following.down(SOURCE).is_none());
    scene.s3.close_ledgers(PREFIX, &MAIN, 2, 40);
    following.wait_until_recovered(40);
    scene.completes(following, &MAIN);
}

#[test]
fn a_google_bucket_is_followed() {
    let scene = Scene::empty(Rights::Open, &MAIN);
    let directory = format!("{PREFIX}/2025-08-14");
    scene.s3.put_manifest(&directory, &MAIN);
    scene.s3.close_ledgers(&directory, &MAIN, 2, 20);
    let following = scene.follow(&scene.s3.google(PREFIX), 2);
    following.wait_until_stored(20);
    scene.s3.close_ledgers(&directory, &MAIN, 21, 40);
    scene.completes(following, &MAIN);
    let requests = scene.s3.requests();
    assert!(requests.iter().any(lists));
    assert!(requests.iter().all(|request| request.header("authorization").is_none()));
}

#[test]
fn an_azure_container_is_followed_with_and_without_credentials() {
    for signed in [false, true] {
        let server = AzureServer::start();
        let directory = format!("{PREFIX}/2025-08-14");
        let close_ledgers = |ledgers: std::ops::RangeInclusive<u32>| {
            for ledger in ledgers {
                let name = format!("{directory}/{}", key(ledger, "zst"));
                server.put(&name, file(ledger, &MAIN.ledger(ledger).xdr));
            }
        };
        let manifest = manifest(MAIN.network.passphrase());
        server.put(&format!("{directory}/.config.json"), manifest.into_bytes());
        close_ledgers(2..=20);
        let settings = LakeSettings::from(BucketSettings {
            endpoint: Some(server.url()),
            ..BucketSettings::at(format!("az://{}/{PREFIX}", azure::CONTAINER))
        });
        let files = settings.files_in(|name| match name {
            "AZURE_STORAGE_ACCOUNT" => Some(azure::ACCOUNT.to_owned()),
            "AZURE_STORAGE_KEY" => signed.then(|| azure::KEY.to_owned()),
            _ => None,
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let lake = runtime.block_on(Lake::open(files.unwrap(), &MAIN.network)).unwrap();
        drop(runtime);
        assert_eq!(lake.place(), format!("az://{}/{directory}", azure::CONTAINER));

        let data = tempfile::tempdir().unwrap();
        let store = open_store(data.path(), &MAIN.network);
        let source = LakeSource::new(lake, &MAIN.network);
        let following = Following::start(&store, source, Some(2));
        following.wait_until_stored(20);
        close_ledgers(21..=40);
        following.wait_until_stored(40);
        following.stop();
        Contents::of(&store).assert_beginning_of(&MAIN.whole, LedgerSeq(2));
        for request in server.requests() {
            let signature = request.header("authorization");
            let by = format!("SharedKey {}:", azure::ACCOUNT);
            assert_eq!(signature.map(|text| text.starts_with(&by)), signed.then_some(true));
            assert!(!format!("{request:?}").contains(azure::KEY));
        }
    }
}

/// The names of these objects sort before the ledgers and fill pages of the listing.
#[test]
fn other_objects_in_a_bucket_are_ignored() {
    let scene = Scene::new(Rights::Open, 20);
    for n in 0..40 {
        scene.s3.put(&format!("{PREFIX}/0-notes-{n}.txt"), b"not a ledger");
    }
    let following = scene.follow(&scene.s3.anonymous(PREFIX), 2);
    following.wait_until_stored(20);
    scene.s3.close_ledgers(PREFIX, &MAIN, 21, 40);
    scene.completes(following, &MAIN);
}

#[test]
fn with_an_invalid_key_in_the_listing_the_end_is_found_by_probing() {
    let scene = Scene::new(Rights::Open, 20);
    scene.s3.set_fault(|request, honest| match honest() {
        reply if lists(request) => {
            let text = String::from_utf8(reply.body.clone()).unwrap();
            let odd = text.replacen("<Key>v1.1/it/", "<Key>v1.1/it//", 1);
            assert_ne!(odd, text, "a listing names a key");
            Reply { body: odd.into_bytes(), ..reply }
        }
        reply => reply,
    });
    let following = scene.follow_patiently(2);
    following.wait_until_stored(20);
    scene.s3.close_ledgers(PREFIX, &MAIN, 21, 40);
    scene.completes(following, &MAIN);
    scene.assert_listed_once();
}

#[test]
fn a_server_that_refuses_every_second_request_is_read() {
    let scene = Scene::new(Rights::Closed, 20);
    let asked = AtomicU32::new(0);
    scene.s3.set_fault(move |_, honest| match asked.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => error(503, "SlowDown", ""),
        _ => honest(),
    });
    let following = scene.follow(&scene.s3.signed(PREFIX, SECRET), 2);
    following.wait_until_stored(20);
    scene.s3.close_ledgers(PREFIX, &MAIN, 21, 40);
    scene.completes(following, &MAIN);
}

#[test]
fn files_of_other_sizes_than_the_manifest_says_are_named() {
    let scene = Scene::new(Rights::Open, 20);
    let written = manifest(MAIN.network.passphrase());
    let other = written.replace("\"ledgersPerBatch\":1", "\"ledgersPerBatch\":4");
    assert_ne!(other, written);
    scene.s3.put(&format!("{PREFIX}/.config.json"), other.as_bytes());
    let following = scene.follow(&scene.s3.anonymous(PREFIX), 2);
    following.wait_until_down(SOURCE, "a file of 1 ledger in the directory");
    following.wait_until_down(SOURCE, "its .config.json says files of 4 ledgers");
    // The mend is noticed.
    scene.s3.put_manifest(PREFIX, &MAIN);
    scene.s3.close_ledgers(PREFIX, &MAIN, 21, 40);
    scene.completes(following, &MAIN);
}
