//! The service exports what it stores, to a directory and to a bucket: each event exactly once,
//! whatever is killed, refused or unreachable meanwhile, and without delaying ingestion.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use orrery::domain::{LedgerRange, LedgerSet, Network};
use orrery::export::{Destination, Export, ExportError, ExporterIdentity, Interrupt, Spool};
use orrery::net::buckets::BucketSettings;
use orrery::programs::storage;
use orrery::store::Store;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tempfile::TempDir;

use orrery_testkit::binary::{Service, configure, run};
use orrery_testkit::exported::{self, OF_EVENTS, OF_TRANSACTIONS};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::provider::{Delivery, Reply, Request};
use orrery_testkit::s3::{BUCKET, KEY_ID, Rights, S3Server, SECRET};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;

/// Ledgers per portion (`export.ledgers_per_file`).
const PORTION: u32 = 5;

/// A data directory whose service follows a lake and exports to a directory or a bucket.
pub(crate) struct Scene {
    directory: TempDir,
    chain: Chain,
    lake: LakeFiles,
}

impl Scene {
    pub(crate) fn new(seed: u64, last: u32) -> Self {
        let chain = Chain::made(seed, last);
        let lake = LakeFiles::new(&chain.network);
        Self { directory: tempfile::tempdir().unwrap(), chain, lake }
    }

    pub(crate) fn at(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn close_ledgers(&self, ledgers: std::ops::RangeInclusive<u32>) {
        ledgers.for_each(|sequence| self.lake.add(&self.chain, sequence));
    }

    /// Writes the settings file, with `export` as lines of its `[export]` section.
    pub(crate) fn settings(&self, export: &str) {
        let text = format!(
            "network = 'local'\n[source]\nkind = 'lake'\npath = '{}'\n[export]\nledgers_per_file = {PORTION}\n{export}\n",
            self.lake.text()
        );
        configure(self.at(), &text);
    }

    pub(crate) fn start(&self) -> Service {
        Service::local(self.at(), &["--config", "orrery.toml"])
    }

    /// Asserts that the export contains everything that is served of ledgers `first` to `last`,
    /// exactly once, and nothing else.
    pub(crate) fn assert_exported(
        &self,
        service: &Service,
        directory: &Path,
        first: u32,
        last: u32,
    ) {
        let rows = |route: &str, cursor: &str, columns: &[&str]| -> Vec<Value> {
            let path = format!("/rest/{route}/by-ledger?limit=1000");
            let rows = service.rows(&path, cursor);
            let inside = |row: &&Value| {
                (u64::from(first)..=u64::from(last)).contains(&row["ledger"].as_u64().unwrap())
            };
            rows.iter().filter(inside).map(|row| exported::comparable(row, columns)).collect()
        };
        let mut events = rows("events", "id", &OF_EVENTS);
        events.sort_by_key(|row| row["id"].as_u64());
        let mut transactions = rows("txs", "tx", &OF_TRANSACTIONS);
        transactions.sort_by_key(|row| (row["ledger"].as_u64(), row["application_order"].as_u64()));
        assert!(events.len() > 10 && transactions.len() > 10);
        let manifest = exported::manifest(directory).unwrap();
        assert_eq!(manifest.ledgers, LedgerRange::new(first, last).into());
        assert!(exported::events(directory) == events, "events of {first} to {last}");
        assert!(exported::transactions(directory) == transactions);
        exported::assert_no_strays(directory);
    }
}

/// Waits until health reports this number of exported ledgers.
fn wait_until_exported(service: &Service, ledgers: u32) -> Value {
    let wanted = format!("{ledgers} ledgers exported");
    service.wait_for_health(&format!("{ledgers} ledgers are exported"), |health| {
        let export = &health["components"]["export"];
        export["status"] == "up"
            && export["detail"].as_str().is_some_and(|it| it.starts_with(&wanted))
    })
}

/// Waits until health reports that the export has stalled, for a reason with this part, while the service
/// stays up. Returns the reported detail.
fn wait_until_failing(service: &Service, part: &str) -> String {
    let failed = service.wait_for_health("the failure is reported", |health| {
        let detail = &health["components"]["export"]["detail"];
        let is_it = |it: &str| it.starts_with("the export is stalled") && it.contains(part);
        detail.as_str().is_some_and(is_it)
    });
    assert_eq!(failed["service"], "up", "{failed}");
    failed["components"]["export"]["detail"].to_string()
}

/// Small: 5 kills; full: 50.
#[test]
fn live_ledgers_are_exported_once_through_kills() {
    let kills = size::choose(5, 50);
    let last = 30 + kills as u32;
    let scene = Scene::new(1, last);
    scene.settings("to = 'x'");
    scene.close_ledgers(2..=12);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for kill in 0..kills as u32 {
        let service = scene.start();
        scene.close_ledgers(13 + kill..=13 + kill);
        // The process is killed at a random moment; there is no condition to wait for.
        std::thread::sleep(Duration::from_millis(rng.random_range(0..600)));
        drop(service);
        if let Some(manifest) = exported::manifest(&scene.at().join("x")) {
            // Every file that the manifest names must be complete at any moment.
            let events = exported::events(&scene.at().join("x"));
            assert!(events.windows(2).all(|pair| pair[0]["id"] != pair[1]["id"]));
            assert!(manifest.ledgers.ranges().len() <= 1, "{:?}", manifest.ledgers);
        }
    }
    let service = scene.start();
    scene.close_ledgers(2..=last);
    let complete = last / PORTION * PORTION - 1;
    let health = wait_until_exported(&service, complete - 1);
    let detail = health["components"]["export"]["detail"].as_str().unwrap();
    assert!(detail.contains(&format!("the newest {complete}")), "{detail}");
    service.wait_until_stored(last);
    wait_until("the number of waiting ledgers is reported", || {
        let metrics = service.metrics();
        let waits =
            format!("\norrery_consumer_lag_ledgers{{consumer=\"export\"}} {}\n", last - complete);
        metrics.contains(&waits)
    });
    let metrics = service.metrics();
    assert!(metrics.contains(&format!("\norrery_export_ledgers {}\n", complete - 1)), "{metrics}");
    assert!(metrics.contains("\norrery_component_up{component=\"export\"} 1\n"), "{metrics}");
    let feed = service.health()["components"]["feed"].to_string();
    assert!(!feed.contains("export"), "{feed}");
    scene.assert_exported(&service, &scene.at().join("x"), 2, complete);

    // A manual export beside the running service adds the remaining ledgers.
    let by_hand =
        run(scene.at(), &["export", "--config", "orrery.toml", "--data-dir", "d", "--json"]).json();
    assert_eq!(by_hand["new_ledgers"].as_u64(), Some(u64::from(last - complete)), "{by_hand}");
    service.stop();
}

#[test]
fn older_ledgers_are_exported_as_well() {
    let scene = Scene::new(2, 60);
    scene.settings("to = 'x'");
    scene.close_ledgers(2..=60);
    let service = Service::local(scene.at(), &["--config", "orrery.toml", "--start", "38"]);
    // The first file begins with the oldest stored ledger.
    wait_until_exported(&service, 22);
    let lake = scene.lake.text();
    let filled = ["--from", "2", "--to", "37", "--source", &lake];
    let report =
        run(scene.at(), &[&["backfill", "--data-dir", "d", "--json"][..], &filled].concat()).json();
    assert_eq!(report["state"], "done", "{report}");
    wait_until_exported(&service, 58);
    scene.assert_exported(&service, &scene.at().join("x"), 2, 59);
    service.stop();
}

#[test]
fn an_unavailable_directory_does_not_delay_ingestion() {
    let scene = Scene::new(3, 60);
    scene.settings("to = 'disk/x'");
    scene.close_ledgers(2..=20);
    // A file in place of the directory, as with a broken mount.
    fs::write(scene.at().join("disk"), "").unwrap();
    let service = scene.start();
    let reason = wait_until_failing(&service, "its destination cannot be read or written");
    assert!(!reason.contains("disk"), "{reason}");
    scene.close_ledgers(21..=40);
    service.wait_for_health("ingestion goes on", |health| health["service_latest_ledger"] == 40);
    let metrics = service.metrics();
    assert!(!metrics.contains("\norrery_export_failures_total 0\n"), "{metrics}");
    let warned = service.log().iter().any(|line| line["message"].to_string().contains("disk/x"));
    assert!(warned, "the log names the place");
    fs::remove_file(scene.at().join("disk")).unwrap();
    wait_until_exported(&service, 38);
    scene.close_ledgers(41..=50);
    wait_until_exported(&service, 48);
    scene.assert_exported(&service, &scene.at().join("disk/x"), 2, 49);

    // A disk that is no longer mounted looks empty: the export must not begin anew there.
    fs::rename(scene.at().join("disk"), scene.at().join("unmounted")).unwrap();
    fs::create_dir(scene.at().join("disk")).unwrap();
    scene.close_ledgers(51..=60);
    wait_until_failing(&service, "its manifest cannot be used");
    assert_eq!(fs::read_dir(scene.at().join("disk")).unwrap().count(), 0);
    fs::remove_dir(scene.at().join("disk")).unwrap();
    fs::rename(scene.at().join("unmounted"), scene.at().join("disk")).unwrap();
    wait_until_exported(&service, 58);
    scene.assert_exported(&service, &scene.at().join("disk/x"), 2, 59);
    service.stop();
}

#[test]
fn invalid_export_settings_are_refused_at_start() {
    let scene = Scene::new(4, 5);
    scene.close_ledgers(2..=5);
    let other = scene.at().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("letter.txt"), "dear").unwrap();
    for (settings, parts) in [
        ("to = 'ftp://host/x'", &["give a directory or s3://bucket/prefix"][..]),
        ("to = 's3://'", &["s3://", "it names no bucket"]),
        ("to = 'other'", &["other is neither empty nor an export"]),
        ("to = 's3://b/x'\ns3_endpoint = 'nothing'", &["its endpoint nothing is not valid"]),
        ("to = 's3://b/x'\ns3_access_key_id = 'AKID'", &["belong together"]),
        (
            "to = 'x'\n[retention]\nevents = 2\nwait_for_consumers = 2",
            &["export.ledgers_per_file is 5", "no file would ever be complete"],
        ),
    ] {
        scene.settings(settings);
        let serve =
            ["serve", "--config", "orrery.toml", "--data-dir", "d", "--listen", "127.0.0.1:0"];
        let ran = run(scene.at(), &serve);
        ran.refuses(1, parts);
    }
    let text = "[export]\nledgers_per_file = 0\n";
    configure(scene.at(), text);
    let ran = run(scene.at(), &["config", "check", "--config", "orrery.toml"]);
    let stderr = ran.stderr;
    assert!(stderr.contains("line 2: export.ledgers_per_file cannot be 0"), "{stderr}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
}

pub(crate) fn s3_settings(server: &S3Server) -> String {
    format!(
        "to = 's3://{BUCKET}/some/lake'\ns3_endpoint = '{}'\ns3_access_key_id = '{KEY_ID}'\n\
         s3_secret_access_key = '{SECRET}'",
        server.endpoint()
    )
}

fn open(directory: &Path, network: Option<&Network>) -> Store {
    Store::open_with(directory, network, storage::extensions()).unwrap()
}

pub(crate) fn lake_of(server: &S3Server) -> PathBuf {
    server.directory("some/lake")
}

pub(crate) fn writes(request: &Request, what: &str) -> bool {
    request.method == "PUT" && request.target.contains(what)
}

/// Lets some requests fail, and counts those that write transactions, that remove something, and that add a portion to
/// the manifest.
fn some_failures(
    counts: Arc<[AtomicU32; 3]>,
) -> impl Fn(&Request, &dyn Fn() -> Reply) -> Reply + Send + Sync {
    let is_written = AtomicBool::new(false);
    move |request, honest| {
        let nth = |which: usize| counts[which].fetch_add(1, Ordering::SeqCst) + 1;
        if writes(request, "/transactions/") {
            is_written.store(true, Ordering::SeqCst);
            // The events of this portion are already written.
            return if nth(0) == 2 { Reply::status(503) } else { honest() };
        }
        if request.method == "DELETE" && nth(1) == 1 {
            return Reply::status(500);
        }
        let adds_portion =
            writes(request, "manifest.json") && is_written.swap(false, Ordering::SeqCst);
        match if adds_portion { nth(2) } else { 0 } {
            2 => {
                // The manifest is written, but the response is lost.
                honest();
                Reply::status(200).delivered(Delivery::Refused)
            }
            4 => Reply::status(200).delivered(Delivery::Refused),
            _ => honest(),
        }
    }
}

#[test]
fn a_bucket_gets_each_event_once_despite_failed_requests() {
    let server = S3Server::start(Rights::Closed);
    let scene = Scene::new(5, 60);
    scene.settings(&s3_settings(&server));
    scene.close_ledgers(2..=22);
    let failed: Arc<[AtomicU32; 3]> = Arc::default();
    server.set_fault(some_failures(Arc::clone(&failed)));
    let service = scene.start();
    wait_until_exported(&service, 18);
    scene.close_ledgers(23..=60);
    wait_until_exported(&service, 58);
    let counts: Vec<u32> = failed.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    assert!(counts[0] >= 2 && counts[1] >= 1 && counts[2] >= 4, "{counts:?}");
    scene.assert_exported(&service, &lake_of(&server), 2, 59);
    let writer = || exported::manifest(&lake_of(&server)).unwrap().writer;
    wait_until("others may write", || writer().is_none());
    assert!(!service.metrics().contains("\norrery_export_failures_total 0\n"));
    for line in service.log() {
        assert!(!line.to_string().contains(SECRET), "{line}");
    }

    // A manual export with the settings of the service adds the remaining ledger.
    let by_hand = ["export", "--config", "orrery.toml", "--data-dir", "d", "--json"];
    let summary = run(scene.at(), &by_hand).json();
    assert_eq!(summary["new_ledgers"], 1, "{summary}");
    assert_eq!(run(scene.at(), &by_hand).json()["new_ledgers"], 0);
    scene.assert_exported(&service, &lake_of(&server), 2, 60);
    service.stop();
}

#[test]
fn an_unavailable_bucket_does_not_delay_ingestion() {
    let server = S3Server::start(Rights::Closed);
    let scene = Scene::new(6, 40);
    scene.settings(&s3_settings(&server));
    scene.close_ledgers(2..=20);
    server.set_fault(|_, _| Reply::status(200).delivered(Delivery::Refused));
    let service = scene.start();
    wait_until_failing(&service, "");
    scene.close_ledgers(21..=30);
    service.wait_for_health("ingestion goes on", |health| health["service_latest_ledger"] == 30);
    server.clear_fault();
    wait_until_exported(&service, 28);
    // Writes are refused in the middle of an export, and the service is killed.
    server.set_fault(|request, honest| match request.method.as_str() {
        "PUT" => Reply::status(403),
        _ => honest(),
    });
    scene.close_ledgers(31..=40);
    wait_until_failing(&service, "");
    drop(service);
    server.clear_fault();
    let service = scene.start();
    wait_until_exported(&service, 38);
    scene.assert_exported(&service, &lake_of(&server), 2, 39);
    service.stop();
}

#[test]
fn two_exports_into_a_bucket_exclude_each_other() {
    let server = S3Server::start(Rights::Open);
    let scene = Scene::new(7, 30);
    scene.settings("");
    scene.close_ledgers(2..=30);
    let service = scene.start();
    service.wait_until_stored(30);
    service.stop();

    let settings = BucketSettings { region: None, ..server.anonymous("some/lake") };
    let place = |clock: fn() -> u64| {
        let who = ExporterIdentity { id: "somebody".to_owned(), clock, random: || 7 };
        let spool = Spool::new(scene.at());
        Destination::of(&settings, who, spool, Interrupt::default()).unwrap()
    };
    let first: LedgerSet = orrery::domain::LedgerRange::new(2, 9).into();
    let export = ["export", "--data-dir", "d", "--config", "orrery.toml", "--into"];
    let to = format!("s3://{BUCKET}/some/lake");
    let config = format!("[export]\ns3_endpoint = '{}'\n", server.endpoint());
    configure(scene.at(), &config);
    {
        let store = open(&scene.at().join("copy"), Some(&scene.chain.network));
        let _held = Export::open(&place(orrery::steady::unix_now), &store, Interrupt::default());
        assert!(_held.is_ok());
        let ran = run(scene.at(), &[&export[..], &[&to]].concat());
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("another export is writing to {to}")),
            "{}",
            ran.stderr
        );
    }
    // An exporter that has not renewed its claim for long counts as gone; if it was only slow, its
    // next write fails.
    let store = open(&scene.at().join("d"), None);
    let mut slow = Export::open(&place(|| 0), &store, Interrupt::default()).unwrap();
    slow.add(&store, &first, PORTION, |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    let before = exported::manifest(&lake_of(&server)).unwrap();
    assert_eq!(before.ledgers, LedgerRange::new(2, 9).into());
    drop(store);
    let summary = run(scene.at(), &[&export[..], &[&to, "--json"]].concat()).json();
    assert_eq!(summary["new_ledgers"], 21, "{summary}");
    let store = open(&scene.at().join("d"), None);
    let all: LedgerSet = orrery::domain::LedgerRange::new(2, 30).into();
    let error = slow.add(&store, &all, PORTION, |_, _| std::ops::ControlFlow::Continue(()));
    assert!(matches!(error, Err(ExportError::TakenOver(_))), "{error:?}");
    drop((slow, store));
    // Objects that the slow exporter wrote meanwhile are not part of the export.
    let service = Service::local(scene.at(), &["--no-source"]);
    let ids: Vec<_> =
        exported::events(&lake_of(&server)).iter().map(|row| row["id"].clone()).collect();
    let served = service.rows("/rest/events/by-ledger?limit=1000", "id");
    assert_eq!(ids.len(), served.len());
    assert_eq!(
        exported::manifest(&lake_of(&server)).unwrap().ledgers,
        LedgerRange::new(2, 30).into()
    );
    service.stop();
}

#[test]
fn a_prefix_with_other_objects_is_refused() {
    let server = S3Server::start(Rights::Open);
    let scene = Scene::new(8, 10);
    scene.settings("");
    scene.close_ledgers(2..=10);
    let service = scene.start();
    service.wait_until_stored(10);
    service.stop();
    server.put("some/lake/letter.txt", b"dear");
    let config = format!("[export]\ns3_endpoint = '{}'\n", server.endpoint());
    configure(scene.at(), &config);
    let export = |to: &str| {
        let ran = run(
            scene.at(),
            &["export", "--data-dir", "d", "--config", "orrery.toml", "--into", to],
        );
        (ran.code, ran.stderr)
    };
    let (code, stderr) = export(&format!("s3://{BUCKET}/some/lake"));
    assert_eq!(code, 1);
    assert!(stderr.contains("some/lake is neither empty nor an export"), "{stderr}");
    server.put("broken/manifest.json", b"{}");
    let (code, stderr) = export(&format!("s3://{BUCKET}/broken"));
    assert_eq!(code, 1);
    assert!(stderr.contains("is not a manifest that this version can continue from"), "{stderr}");
    let (code, stderr) = export("s3://nowhere/x");
    assert_eq!(code, 1);
    assert!(stderr.contains("there is no such bucket"), "{stderr}");
    let ran = run(scene.at(), &["export", "--data-dir", "d", "--to", "s3://a/b"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("give the destination with --into"));
    assert_eq!(run(scene.at(), &["export", "--data-dir", "d"]).code, 2);
}
