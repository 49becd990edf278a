//! The tables of an export as engines that know Iceberg find them: complete whenever the service is killed,
//! the same as long as somebody may read them, few files, and none that nothing names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use orrery::domain::{LedgerRange, LedgerSet};
use orrery::export::{Destination, Export, ExportError, ExporterIdentity, Interrupt, Spool};
use orrery::iceberg::SNAPSHOT_MS;
use orrery::net::buckets::{BucketSettings, Objects, PART, Patience};
use orrery::net::http::Timeouts;
use orrery::programs::storage;
use orrery_store::{Durability, Store};
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tempfile::TempDir;

use orrery_testkit::binary::{Service, configure};
use orrery_testkit::engines::{AskedTable, Engines};
use orrery_testkit::exported::{self, OF_EVENTS, OF_TRANSACTIONS};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::lake_tables::{LakeSnapshot, LakeTable};
use orrery_testkit::provider::{Reply, Request};
use orrery_testkit::s3::{BUCKET, KEY_ID, Rights, S3Server, SECRET};
use orrery_testkit::sandbox::{ledgers, local, sandbox};
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;
use orrery_testkit::witness::{FIRST, prepared};

/// Ledgers per portion.
const PORTION: u32 = 5;
/// Names of the two tables, with the columns of their rows that are compared, and one that is added up.
const TABLES: [(&str, &[&str], &str); 2] =
    [("events", &OF_EVENTS, "ledger"), ("transactions", &OF_TRANSACTIONS, "event_count")];

/// A service that follows a lake and exports.
struct Scene {
    directory: TempDir,
    chain: Chain,
    lake: LakeFiles,
    /// Where its export is on this machine.
    export: PathBuf,
    /// Where it is to engines.
    place: Value,
}

/// Rows of the newest snapshot of a table, as texts.
type Rows = BTreeSet<String>;

impl Scene {
    fn new(seed: u64, last: u32, settings: &str, export: Option<PathBuf>) -> Self {
        let chain = Chain::made(seed, last);
        let lake = LakeFiles::new(&chain.network);
        let directory = tempfile::tempdir().unwrap();
        let text = format!(
            "network = 'local'\n[source]\nkind = 'lake'\npath = '{}'\n[export]\nledgers_per_file = {PORTION}\n{settings}\n",
            lake.text()
        );
        configure(directory.path(), &text);
        let export = export.unwrap_or_else(|| directory.path().join("x"));
        let place = json!({ "ways": ["directory"], "root": export });
        Self { directory, chain, lake, export, place }
    }

    fn start(&self) -> Service {
        Service::local(self.directory.path(), &["--config", "orrery.toml"])
    }

    fn close(&self, ledgers: std::ops::RangeInclusive<u32>) {
        ledgers.for_each(|ledger| self.lake.add(&self.chain, ledger));
    }

    /// What a reader finds now in each of the two tables, all snapshots of which are complete. Engines find the
    /// same.
    fn read(&self, engines: Option<&mut Engines>) -> [Rows; 2] {
        let Some(manifest) = exported::manifest(&self.export) else { return Default::default() };
        let tables = LakeTable::of_chain(&self.export, &manifest);
        let mut rows: [Rows; 2] = Default::default();
        let (mut asked, mut answers) = (Vec::new(), Vec::new());
        for ((table, (name, columns, sum)), rows) in tables.into_iter().zip(TABLES).zip(&mut rows) {
            let Some(table) = table else { continue };
            let newest = table.snapshots().pop();
            let files = newest.into_iter().flat_map(|snapshot| snapshot.files);
            let read = |path: String| exported::rows_of_file(&self.export.join(path), columns);
            let found: Vec<Value> = files.flat_map(read).collect();
            for row in &found {
                assert!(rows.insert(row.to_string()), "a row is there twice: {row}");
            }
            let table = AskedTable::of(&table, ["chain", name], columns, sum);
            answers.push(table.answer(&found));
            asked.push(table);
        }
        if let Some(engines) = engines {
            engines.assert_read(self.place.clone(), &asked, &answers);
        }
        rows
    }

    /// The rows of each portion, as the REST interface has them.
    fn served(&self, service: &Service) -> [BTreeMap<u32, Rows>; 2] {
        [("events", "id", TABLES[0]), ("txs", "tx", TABLES[1])].map(|(route, cursor, table)| {
            let columns = table.1;
            let path = format!("/rest/{route}/by-ledger?limit=1000");
            let mut portions = BTreeMap::<u32, Rows>::new();
            for row in service.rows(&path, cursor) {
                let portion = row["ledger"].as_u64().unwrap() as u32 / PORTION;
                let row = exported::comparable(&row, columns).to_string();
                portions.entry(portion).or_default().insert(row);
            }
            portions
        })
    }
}

fn ledger_of(row: &str) -> u32 {
    serde_json::from_str::<Value>(row).unwrap()["ledger"].as_u64().unwrap() as u32
}

/// Asserts that these rows are those of whole portions.
fn assert_whole(found: &Rows, served: &BTreeMap<u32, Rows>) {
    let portions: BTreeSet<u32> = found.iter().map(|row| ledger_of(row) / PORTION).collect();
    let expected: Rows = portions.iter().flat_map(|portion| served[portion].clone()).collect();
    assert_eq!(*found, expected, "{portions:?}");
}

/// `settled` returns when nothing of a killed process happens any more.
fn through_kills(scene: &Scene, kills: u32, settled: impl Fn()) {
    scene.close(2..=12);
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let mut engines = Engines::start();
    let mut found = Vec::new();
    for kill in 0..kills {
        let service = scene.start();
        scene.close(13 + kill..=13 + kill);
        // The process is killed at a random moment; there is no condition to wait for.
        std::thread::sleep(Duration::from_millis(rng.random_range(0..900)));
        drop(service);
        settled();
        found.push(scene.read(engines.as_mut()));
    }
    let last = 12 + kills;
    let service = scene.start();
    let complete = (last + 1) / PORTION * PORTION - 1;
    service.wait_for_health("all portions are exported", |health| {
        let detail = health["components"]["export"]["detail"].as_str();
        detail.is_some_and(|it| it.contains(&format!("the newest {complete};")))
    });
    let served = scene.served(&service);
    let all = |tables: &BTreeMap<u32, Rows>| -> usize {
        tables.range(..=complete / PORTION).map(|(_, rows)| rows.len()).sum()
    };
    let sizes = |tables: &[Rows; 2]| tables.each_ref().map(Rows::len);
    let expected = served.each_ref().map(all);
    wait_until("the tables have all portions", || sizes(&scene.read(None)) == expected);
    found.push(scene.read(engines.as_mut()));
    engines.iter().for_each(Engines::say);
    for tables in &found {
        tables.iter().zip(&served).for_each(|(rows, served)| assert_whole(rows, served));
    }
    for table in 0..2 {
        let sizes: Vec<_> = found.iter().map(|tables| tables[table].len()).collect();
        assert!(sizes.is_sorted(), "a reader never finds less than before: {sizes:?}");
    }
    exported::assert_no_strays(&scene.export);
    service.stop();
}

/// `ORRERY_TEST_PYTHON` names a Python with engines, each of which reads the tables after each kill. Small: 5 kills;
/// full: 200.
#[test]
fn tables_have_whole_portions_whenever_the_service_is_killed() {
    let kills = size::choose(5, 200) as u32;
    let scene = Scene::new(21, 12 + kills, "to = 'x'", None);
    through_kills(&scene, kills, || {});
}

/// Small: 3 kills; full: 50.
#[test]
fn tables_in_a_bucket_have_whole_portions_whenever_the_service_is_killed() {
    let kills = size::choose(3, 50) as u32;
    let server = S3Server::start(Rights::Closed);
    let settings = format!(
        "to = 's3://{BUCKET}/some/lake'\ns3_endpoint = '{}'\ns3_access_key_id = '{KEY_ID}'\n\
         s3_secret_access_key = '{SECRET}'",
        server.endpoint()
    );
    let directory = server.directory("some/lake");
    let mut scene = Scene::new(22, 12 + kills, &settings, Some(directory));
    scene.place = json!({ "ways": ["bucket"], "s3": {
        "s3.endpoint": server.endpoint().trim_end_matches('/'), "s3.region": "us-east-1",
        "s3.access-key-id": KEY_ID, "s3.secret-access-key": SECRET,
    } });
    // A bucket finishes a request of a process that is killed meanwhile.
    let busy = Arc::new(AtomicU64::new(0));
    server.set_fault({
        let busy = Arc::clone(&busy);
        move |_, honest| {
            busy.fetch_add(1, Ordering::SeqCst);
            let reply = honest();
            busy.fetch_sub(1, Ordering::SeqCst);
            reply
        }
    });
    through_kills(&scene, kills, || {
        wait_until("the bucket is idle", || busy.load(Ordering::SeqCst) == 0);
    });
    // New objects are written on condition that they are not there.
    let is_new = |request: &&Request| {
        let path = request.target.split('?').next().unwrap_or_default();
        request.method == "PUT" && path.ends_with(".avro") || path.ends_with(".metadata.json")
    };
    let requests = server.requests();
    let written: Vec<_> =
        requests.iter().filter(is_new).filter(|request| request.method == "PUT").collect();
    assert!(written.len() > 10);
    let has_condition = |request: &&Request| {
        request
            .headers
            .iter()
            .any(|(name, value)| name.eq_ignore_ascii_case("if-none-match") && value == "*")
    };
    assert!(written.iter().all(has_condition));
}

/// Ledgers of a sandbox, the first of which is [`FIRST`].
static LEDGERS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| ledgers(sandbox(11, 1..=2), 80));

/// A store with these ledgers, and a clock that stands still.
struct Made {
    directory: TempDir,
    store: Store,
    now_ms: Arc<AtomicU64>,
}

impl Made {
    fn new() -> Self {
        let directory = orrery_testkit::scratch::scratch();
        let store = directory.path().join("d");
        let store = Store::open_with(&store, Some(&local()), storage::extensions()).unwrap();
        for ledger in &*LEDGERS {
            store.commit(prepared(ledger), Durability::Synced).unwrap();
        }
        Self { directory, store, now_ms: Arc::new(AtomicU64::new(1_800_000_000_000)) }
    }

    fn place(&self) -> PathBuf {
        self.directory.path().join("x")
    }

    fn open(&self, place: &Path) -> Result<Export, ExportError> {
        let now_ms = Arc::clone(&self.now_ms);
        let destination = Destination::directory(place);
        let export = Export::open(&destination, &self.store, Interrupt::default())?;
        Ok(export.timed_by(Arc::new(move || now_ms.load(Ordering::SeqCst))))
    }

    /// Exports these ledgers, in one portion each.
    fn export(&self, first: u32, last: u32) {
        let mut export = self.open(&self.place()).unwrap();
        let ledgers: LedgerSet = LedgerRange::new(first, last).into();
        export.add(&self.store, &ledgers, 1, |_, _| ControlFlow::Continue(())).unwrap();
        export.finish().unwrap();
    }

    fn pass(&self, milliseconds: i64) {
        self.now_ms.fetch_add(milliseconds.cast_unsigned(), Ordering::SeqCst);
    }

    fn events(&self) -> LakeTable {
        let manifest = exported::manifest(&self.place()).unwrap();
        let [events, _] = LakeTable::of_chain(&self.place(), &manifest);
        events.unwrap()
    }

    fn rows(&self, snapshot: &LakeSnapshot) -> BTreeSet<String> {
        let files = snapshot.files.iter();
        let rows = files
            .flat_map(|path| exported::rows_of_file(&self.place().join(path), &OF_EVENTS))
            .map(|row| row.to_string());
        rows.collect()
    }
}

#[test]
fn a_snapshot_is_the_same_after_a_hundred_commits() {
    let made = Made::new();
    for ledger in FIRST..FIRST + 8 {
        made.pass(600_000);
        made.export(ledger, ledger);
    }
    let seventh = made.events().snapshots().swap_remove(6);
    let before = made.rows(&seventh);
    assert!(before.len() > 10);
    for ledger in FIRST + 8..FIRST + LEDGERS.len() as u32 {
        made.pass(600_000);
        made.export(ledger, ledger);
    }
    let snapshots = made.events().snapshots();
    let at = snapshots.iter().position(|it| it.id == seventh.id).unwrap();
    assert!(snapshots.len() > at + 100, "{}", snapshots.len());
    let found = &snapshots[at];
    assert_eq!((found, made.rows(found)), (&seventh, before));
    // All operations but appends leave the rows as they were.
    for pair in snapshots.windows(2) {
        let is_same = made.rows(&pair[0]) == made.rows(&pair[1]);
        assert_eq!(is_same, pair[1].operation == "replace", "{:?}", pair[1]);
    }
    let live = &snapshots.last().unwrap().files;
    assert!(live.len() <= 2, "small files are merged: {live:?}");
    let manifest = exported::manifest(&made.place()).unwrap();
    assert!(manifest.tables.events.iter().all(|file| file.sorted && file.bounds.is_some()));

    // A day later the newest one alone is left, and the files of the others are gone.
    let count = || fs::read_dir(made.place().join("data/events")).unwrap().count();
    let files = count();
    // The last one, of a merge, is a millisecond later than the clock.
    made.pass(SNAPSHOT_MS + 1_000);
    made.export(FIRST, FIRST);
    let left = made.events().snapshots();
    assert_eq!((left.len(), &left[0].files), (1, live));
    assert!(files > 50 && count() == live.len(), "{files} {}", count());
    exported::assert_no_strays(&made.place());
}

#[test]
fn a_damaged_file_is_not_merged() {
    let made = Made::new();
    for ledger in FIRST..FIRST + 2 {
        made.pass(600_000);
        made.export(ledger, ledger);
    }
    let events = exported::manifest(&made.place()).unwrap().tables.events;
    assert_eq!(events.len(), 2);
    for file in &events {
        let path = made.place().join(&file.path);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).unwrap();
    }
    made.pass(600_000);
    made.export(FIRST + 2, FIRST + 2);
    let manifest = exported::manifest(&made.place()).unwrap();
    // The export goes on, and the other table is merged.
    assert_eq!(manifest.ledgers, LedgerRange::new(FIRST, FIRST + 2).into());
    assert_eq!(manifest.tables.events[..2], events[..]);
    assert_eq!((manifest.tables.events.len(), manifest.tables.transactions.len()), (3, 2));
}

#[test]
fn a_moved_export_is_rebased() {
    let made = Made::new();
    made.export(FIRST, FIRST + 9);
    let moved = made.directory.path().join("moved");
    fs::rename(made.place(), &moved).unwrap();
    let refused = made.open(&moved).err().unwrap().to_string();
    assert!(refused.contains("orrery export --rebase"), "{refused}");
    let destination = Destination::directory(&moved);
    let export = Export::rebase(&destination, &made.store, Interrupt::default()).unwrap();
    export.finish().unwrap();
    let manifest = exported::manifest(&moved).unwrap();
    for table in LakeTable::of_chain(&moved, &manifest) {
        let table = table.unwrap();
        assert_eq!(table.root, moved.to_str().unwrap());
        assert_eq!(table.snapshots().len(), 1);
    }
    assert!(!exported::views(&moved)["views.sql"].contains(made.place().to_str().unwrap()));
    exported::assert_no_strays(&moved);
    // It goes on there.
    let mut export = made.open(&moved).unwrap();
    let ledgers: LedgerSet = LedgerRange::new(FIRST, FIRST + 12).into();
    export.add(&made.store, &ledgers, 1, |_, _| ControlFlow::Continue(())).unwrap();
    export.finish().unwrap();
    assert_eq!(exported::manifest(&moved).unwrap().ledgers, ledgers);
    exported::assert_no_strays(&moved);
}

/// An export below another prefix of a bucket names the files there everywhere.
#[test]
fn an_export_that_was_moved_in_a_bucket_is_rebased() {
    let made = Made::new();
    let server = S3Server::start(Rights::Open);
    let spool = made.directory.path();
    let in_bucket = |prefix: &str| {
        let settings = BucketSettings { region: None, ..server.anonymous(prefix) };
        let (clock, random) = (orrery::steady::unix_now, || 7);
        let who = ExporterIdentity { id: "somebody".to_owned(), clock, random };
        Destination::of(&settings, who, Spool::new(spool), Interrupt::default()).unwrap()
    };
    let mut export = Export::open(&in_bucket("a/lake"), &made.store, Interrupt::default()).unwrap();
    let ledgers: LedgerSet = LedgerRange::new(FIRST, FIRST + 9).into();
    export.add(&made.store, &ledgers, 1, |_, _| ControlFlow::Continue(())).unwrap();
    export.finish().unwrap();
    let (from, to) = (server.directory("a/lake"), server.directory("b/lake"));
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(&from, &to).unwrap();
    let moved = in_bucket("b/lake");
    Export::rebase(&moved, &made.store, Interrupt::default()).unwrap().finish().unwrap();
    let views = exported::views(&to);
    assert!(views.len() > 1);
    for (path, text) in views {
        assert!(text.contains("/b/lake/") && !text.contains("/a/lake/"), "{path}: {text}");
    }
    exported::assert_no_strays(&to);
}

/// Large files reach a bucket in parts, whatever fails for a moment, and come back.
#[test]
fn large_objects_are_sent_in_parts() {
    let server = S3Server::start(Rights::Closed);
    let mut settings = server.signed("large", SECRET);
    // The server takes its time to put the parts together.
    settings.timeouts = Timeouts::default();
    settings.patience = Patience::LONG;
    let objects = Objects::open(&settings).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut content = vec![0; 2 * PART as usize + 12_345];
    ChaCha8Rng::seed_from_u64(4).fill_bytes(&mut content);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, &content).unwrap();
    let file = fs::File::open(&path).unwrap();
    let failed = Arc::new(AtomicU64::new(0));
    server.set_fault({
        let failed = Arc::clone(&failed);
        move |request, honest| {
            let is_part = request.target.contains("partNumber");
            let is_end = request.method == "POST" && request.target.contains("uploadId");
            let nth = if is_part || is_end { failed.fetch_add(1, Ordering::SeqCst) } else { 1 };
            match nth % 2 {
                0 if is_end => {
                    // It is made, and its answer is lost.
                    honest();
                    Reply::status(503)
                }
                0 => Reply::status(503),
                _ => honest(),
            }
        }
    });
    runtime.block_on(objects.upload("file", &file)).unwrap();
    assert!(failed.load(Ordering::SeqCst) >= 6);
    server.clear_fault();
    assert_eq!(fs::read(server.directory("large").join("file")).unwrap(), content);
    let back = directory.path().join("back");
    let mut copy = fs::File::create(&back).unwrap();
    let bytes = content.len() as u64;
    runtime.block_on(objects.download("file", bytes, &mut copy)).unwrap();
    assert_eq!(fs::read(&back).unwrap(), content);
    let longer = runtime.block_on(objects.download("file", bytes + 1, &mut copy)).unwrap_err();
    assert!(longer.to_string().contains("file"), "{longer}");
    // An upload that fails leaves nothing.
    server.set_fault(|request, honest| match request.target.contains("partNumber=2") {
        true => Reply::status(403),
        false => honest(),
    });
    assert!(runtime.block_on(objects.upload("other", &file)).is_err());
    let aborted = server
        .requests()
        .into_iter()
        .any(|request| request.method == "DELETE" && request.target.contains("uploadId"));
    assert!(aborted && !server.directory("large").join("other").exists());
}
