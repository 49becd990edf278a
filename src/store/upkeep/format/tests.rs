//! Upgrades of made older formats by made migrations, through the mechanism with which a store is
//! opened: an upgraded store has the same bytes as one that this version fills, also when the
//! upgrade was interrupted. Other formats are refused.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use orrery_ledger::domain::{LedgerRange, LedgerSet};
use orrery_testkit::sandbox::{ledgers, sandbox};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::db::directory::RAW_DIRECTORY;
use crate::db::faults::{Fault, WriteKind};
use crate::encoding::columns::{Key, LedgerKey};
use crate::indexes::entries;
use crate::indexes::registry::Indexes;
use crate::ingest::prepare::IndexOptions;
use crate::sample_ledgers::{commit, everything, store_of};
use crate::state::store::Store;
use crate::state::unrecorded::Unrecorded;
use crate::upkeep::audit::audit;
use crate::upkeep::backup::read_contents;
use crate::upkeep::extensions::Extensions;
use crate::upkeep::index_fill;
use crate::upkeep::upgrade::UpgradeObserver;

/// Lacks the family of changed entries, and has the marks of [`OLDER`].
const OLDEST: FormatVersion = FormatVersion { major: 0, minor: 8 };
/// Has a mark before the value of every row of the families in [`MARKED`].
const OLDER: FormatVersion = FormatVersion { major: 0, minor: 9 };

/// The made migrations, not in the order of their versions.
const MADE: &[Migration] = &[
    Migration { from: OLDER, to: FORMAT, run: remove_marks },
    Migration { from: OLDEST, to: OLDER, run: fill_entries },
];

/// Families whose keys are ledgers.
const MARKED: [Family; 2] = [Family::Ledgers, Family::LedgerXdr];
const MARK: &[u8] = b"made 0.9";

/// The last ledger; the first is 2.
const LAST: u32 = 60;

thread_local! {
    /// What goes wrong with the writes of the next migration on this thread.
    static PLANNED: RefCell<Option<(u32, Fault)>> = const { RefCell::new(None) };
}

/// Plans the failure of all writes after the given number.
fn plan_failure(database: &Database) {
    if let Some((mut left, fault)) = PLANNED.take() {
        database.faults().plan(move |_: WriteKind| {
            let fails = left == 0;
            left = left.saturating_sub(1);
            fails.then_some(fault)
        });
    }
}

fn fill_entries(database: &Database, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    plan_failure(database);
    index_fill::fill(database, &Indexes::only(entries::INDEX), "entries", upgrade)
}

fn remove_marks(database: &Database, upgrade: &Upgrade<'_>) -> Result<(), StoreError> {
    plan_failure(database);
    for family in MARKED {
        let mut progress = upgrade.step(database, format!("marks of {}", family.name()))?;
        database.scan(family, |key, value| {
            progress.at(LedgerKey::decode(key).unwrap().0);
            let Some(value) = value.strip_prefix(MARK) else { return Ok(()) };
            let mut batch = database.batch();
            batch.put_raw(family, key, value)?;
            database.write_unlogged(batch)
        })?;
    }
    database.flush()
}

/// Fills a store with this version.
fn fill_store(directory: &Path) {
    drop(store_of(directory, &ledgers(sandbox(5, 0..=12), LAST - 1), &everything()));
}

fn database(directory: &Path) -> Database {
    Database::open(&directory.join(RAW_DIRECTORY)).unwrap()
}

fn record_format(directory: &Path, version: FormatVersion) {
    record(&database(directory), version).unwrap();
}

/// Converts a directory to the format [`OLDEST`]. With a share below 1, some rows stay as they are:
/// an upgrade that was interrupted has converted them already.
fn make_oldest(directory: &Path, share: f64, rng: &mut ChaCha8Rng) {
    let database = database(directory);
    let mut batch = database.batch();
    for family in MARKED {
        let marked = |value: &[u8]| [MARK, value].concat();
        database
            .scan(family, |key, value| match rng.random_bool(share) {
                true => batch.put_raw(family, key, &marked(value)),
                false => Ok(()),
            })
            .unwrap();
    }
    database.write_synced(batch).unwrap();
    record(&database, OLDEST).unwrap();
    drop(database);
    if share == 1.0 {
        let options = rocksdb::Options::default();
        let raw = directory.join(RAW_DIRECTORY);
        let names = rocksdb::DB::list_cf(&options, &raw).unwrap();
        let mut db = rocksdb::DB::open_cf(&options, &raw, names).unwrap();
        db.drop_cf(Family::Entries.name()).unwrap();
    }
}

/// Opens a store with the made migrations.
fn open(directory: &Path, extensions: Extensions) -> Result<Store, StoreError> {
    Store::open_migrated(directory, None, extensions, MADE)
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

fn assert_sound(directory: &Path) {
    assert_eq!(audit(directory, None, &|_| {}).unwrap().problems, []);
}

#[test]
fn the_version_survives_a_round_trip() {
    let version = FormatVersion { major: 1, minor: 513 };
    assert_eq!(FormatVersion::decode(&version.encode()), Some(version));
    assert_eq!(FormatVersion::decode(&[1]), None);
}

#[test]
fn an_older_store_becomes_the_one_that_this_version_makes() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill_store(directory);
    let expected = contents(directory);
    make_oldest(directory, 1.0, &mut ChaCha8Rng::seed_from_u64(0));
    assert_ne!(contents(directory), expected);
    let opened = Database::open_read_only(&directory.join(RAW_DIRECTORY), &[]).unwrap();
    let refused = check(&opened, MADE).unwrap_err();
    drop(opened);
    assert_eq!(
        refused.to_string(),
        "the data directory has format 0.8, which the next start of orrery upgrades to 1.4: start \
         the service with it once, then try again"
    );
    let told = Arc::new(Mutex::new(Vec::new()));
    let steps = Arc::clone(&told);
    let extensions = Extensions {
        upgrade_observer: Some(Box::new(move |step| {
            steps.lock().push((step.what.to_owned(), step.ledger.0, step.last.0));
        })),
        ..Extensions::default()
    };
    drop(open(directory, extensions).unwrap());
    assert!(contents(directory) == expected, "every row is that of a new store");
    assert_sound(directory);
    let told = std::mem::take(&mut *told.lock());
    let what: Vec<&str> = told.iter().map(|(what, ..)| what.as_str()).collect();
    let steps = ["index entries from transactions", "marks of ledgers", "marks of ledger_xdr"];
    assert_eq!(what, steps);
    assert!(told.iter().all(|(_, at, last)| (2..=LAST).contains(at) && *last == LAST), "{told:?}");

    let told = Arc::new(Mutex::new(0));
    let steps = Arc::clone(&told);
    let observer: UpgradeObserver = Box::new(move |_| *steps.lock() += 1);
    let extensions = Extensions { upgrade_observer: Some(observer), ..Extensions::default() };
    drop(open(directory, extensions).unwrap());
    assert_eq!(*told.lock(), 0, "a store is upgraded once");
}

#[test]
fn an_upgrade_that_failed_goes_on_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill_store(directory);
    let expected = contents(directory);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut failed = std::collections::BTreeMap::<_, u32>::new();
    for round in 0..12 {
        let share = if rng.random_bool(0.5) { 1.0 } else { rng.random_range(0.3..1.0) };
        make_oldest(directory, share, &mut rng);
        loop {
            let fault = if rng.random_bool(0.5) { Fault::NotWritten } else { Fault::Written };
            // The first migration makes three writes, the second two for each ledger.
            let writes = if rng.random_bool(0.5) { 4 } else { 2 * LAST + 20 };
            PLANNED.set(Some((rng.random_range(0..writes), fault)));
            if open(directory, Extensions::default()).is_ok() {
                break;
            }
            let at = database(directory).get(Family::Meta, FORMAT_ROW).unwrap().unwrap().to_vec();
            *failed.entry(FormatVersion::decode(&at).unwrap().to_string()).or_default() += 1;
        }
        PLANNED.set(None);
        assert!(contents(directory) == expected, "round {round}");
    }
    assert!(["0.8", "0.9"].iter().all(|at| failed.contains_key(*at)), "{failed:?}");
    assert_sound(directory);
}

/// Environment variable with the directory that the child process upgrades until it is killed.
const TO_UPGRADE: &str = "ORRERY_TEST_UPGRADED_DIRECTORY";

/// Not a test of its own: the child process that the next test kills.
#[test]
#[ignore = "is run in a process that is killed"]
fn upgrades_until_it_is_killed() {
    let Some(directory) = std::env::var_os(TO_UPGRADE) else { return };
    let observer: UpgradeObserver = Box::new(|step| println!("\nat {}", step.what));
    let extensions = Extensions { upgrade_observer: Some(observer), ..Extensions::default() };
    drop(open(Path::new(&directory), extensions).unwrap());
}

#[test]
fn an_upgrade_that_was_killed_goes_on_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill_store(directory);
    let expected = contents(directory);
    let name = std::any::type_name_of_val(&upgrades_until_it_is_killed);
    let (_, path) = name.split_once("::").expect("the crate, and the path in it");
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for round in 0..10 {
        make_oldest(directory, 1.0, &mut rng);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([path, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(TO_UPGRADE, directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.starts_with("at ")), "it begins");
        std::thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        drop(open(directory, Extensions::default()).unwrap());
        assert!(contents(directory) == expected, "round {round}");
    }
    assert_sound(directory);
}

#[test]
fn a_store_of_the_first_release_is_upgraded() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill_store(directory);
    let expected = contents(directory);
    let made = database(directory);
    let mut batch = made.batch();
    // Before 1.3, rows did not say whether a value was another one.
    const CHANGED: u8 = 3;
    let mut before =
        |key: &[u8], value: &[u8]| batch.put_raw(Family::Entries, key, &[value[0] & CHANGED]);
    made.scan(Family::Entries, |key, value| before(key, value)).unwrap();
    // Before 1.4, there were no settings.
    for family in [Family::Settings, Family::Conditions] {
        made.scan(family, |key, _| batch.delete_raw(family, key)).unwrap();
    }
    made.write_synced(batch).unwrap();
    drop(made);
    record_format(directory, FormatVersion { major: 1, minor: 0 });
    assert!(contents(directory) != expected);
    let refused = audit(directory, None, &|_| {}).unwrap_err();
    assert!(matches!(refused, StoreError::NotUpgraded { .. }), "{refused}");
    drop(Store::open(directory, None).unwrap());
    assert!(contents(directory) == expected);
    assert_sound(directory);
}

/// Only those that an earlier version has stored are marked.
#[test]
fn ledgers_with_listed_contracts_are_marked_by_an_upgrade() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let all = ledgers(sandbox(5, 0..=12), LAST - 1);
    let (before, after) = all.split_at(20);
    let listed = IndexOptions { contracts: Some(BTreeSet::new()), ..everything() };
    drop(store_of(directory, before, &listed));
    let store = Store::open(directory, None).unwrap();
    assert_eq!(store.unrecorded(Unrecorded::Extensions).unwrap(), LedgerSet::default());
    drop(store);
    record_format(directory, FormatVersion { major: 1, minor: 3 });
    let store = Store::open(directory, None).unwrap();
    after.iter().for_each(|ledger| commit(&store, ledger, &listed));
    let marked = LedgerSet::from(LedgerRange::new(2, 21));
    assert_eq!(store.unrecorded(Unrecorded::Extensions).unwrap(), marked);
    store.flush().unwrap();
    drop(store);
    assert_sound(directory);
}

#[test]
fn other_formats_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fill_store(directory);
    // Newer ones, one between the made ones, and one that only the made migrations upgrade.
    for (major, minor) in [(1, 5), (2, 0), (2, 3), (0, 1), (0, 9)] {
        let version = FormatVersion { major, minor };
        record_format(directory, version);
        let before = contents(directory);
        let sentence = format!(
            "the data directory has format {version}, this version of orrery reads 1.4: use the \
             version that wrote it, or import or follow the ledgers again into a new directory"
        );
        let errors = [
            Store::open(directory, None).unwrap_err(),
            audit(directory, None, &|_| {}).unwrap_err(),
            read_contents(directory).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.to_string(), sentence);
        }
        if version != OLDER {
            assert_eq!(open(directory, Extensions::default()).unwrap_err().to_string(), sentence);
        }
        assert!(contents(directory) == before, "{version}");
    }
}
