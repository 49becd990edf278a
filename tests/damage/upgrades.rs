//! Content on disk by column family: the same whichever build wrote it, and the same after a new
//! index was filled, even by processes that were killed meanwhile.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use orrery::store::{EventRecord, Extensions, Index, Indexes, Store, Tags};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::{import_all, millis};
use orrery_testkit::families::{families, open};
use orrery_testkit::material::Material;
use orrery_testkit::process::copy;
use orrery_testkit::size;

/// Variable that names another build of the same format, with which this one is compared.
const OTHER_BUILD: &str = "ORRERY_OTHER_BUILD";

/// Families that are derived from others, after an import of [`made`]: number of rows, and the
/// first 8 bytes of the SHA-256 of their content.
const INDEXES: [(&str, &str); 6] = [
    ("entries", "1145 13384049fb4e31f2"),
    ("events_by_address", "2203 a196997e7633090d"),
    ("events_by_contract", "277 2e2f2bd5db27289a"),
    ("events_by_topic", "3556 e64916efc38d609f"),
    ("tx_by_contract", "661 23f8311e4c7f3ab7"),
    ("tx_by_hash", "1533 982e4daf6a927d65"),
];

fn made() -> Material {
    Material::made_in_files(120, 40)
}

fn imported(material: &Material) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    import_all(directory.path(), material);
    directory
}

#[test]
fn index_contents_match_their_recorded_hashes() {
    let found = families(imported(&made()).path());
    let indexes: Vec<_> = INDEXES.iter().map(|(name, _)| (*name, found[*name].as_str())).collect();
    assert_eq!(indexes, INDEXES);
}

/// Runs only with `ORRERY_OTHER_BUILD=/path/to/orrery`.
#[test]
fn another_build_writes_the_same_content() {
    let Some(other) = std::env::var_os(OTHER_BUILD) else {
        return println!("skipped: {OTHER_BUILD} names no other build");
    };
    for material in [Some(made()), Material::public()].into_iter().flatten() {
        let ours = families(imported(&material).path());
        let directory = tempfile::tempdir().unwrap();
        let output = Command::new(&other)
            .args(["import", "--network", material.network.passphrase()])
            .args(&material.files)
            .arg("--data-dir")
            .arg(directory.path())
            .env_remove(OTHER_BUILD)
            .env("ORRERY_INDEX_CLASSIC_EVENTS", "true")
            .env("ORRERY_INDEX_FEE_EVENTS", "true")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        println!("{ours:#?}");
        assert_eq!(families(directory.path()), ours);
    }
}

/// An index that the directories do not have at first: events by the length of their data.
const NEW_INDEX: Index = Index::of_events("events_by_size", 4, by_size);

fn by_size(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
    tags.add(&(event.data.len() as u32).to_be_bytes());
}

fn open_with_new_index(directory: &Path) -> Store {
    let indexes = Indexes::default().with(NEW_INDEX);
    Store::open_with(directory, None, Extensions { indexes, ..Extensions::default() }).unwrap()
}

/// Environment variable with the directory whose new index the child process fills.
const TO_FILL: &str = "ORRERY_TEST_FILLED_DIRECTORY";

/// Not a test of its own: the child process that the next test kills.
#[test]
#[ignore = "is run in a process that is killed"]
fn fills_until_it_is_killed() {
    let Some(directory) = std::env::var_os(TO_FILL) else { return };
    drop(open_with_new_index(Path::new(&directory)));
}

/// Progress of the filling, as stored on disk.
fn phase(directory: &Path) -> &'static str {
    let db = open(directory);
    let is_complete = db.get_cf(db.cf_handle("meta").unwrap(), "index events_by_size").unwrap();
    match (is_complete, db.cf_handle("events_by_size")) {
        (None, None) => "before the filling",
        (None, Some(_)) => "amid the filling",
        (Some(_), _) => "after the filling",
    }
}

/// Small: 8 kills; full: 60; continues beyond that until one hit the filling, up to 200.
#[test]
fn a_new_index_is_filled_whoever_is_killed_meanwhile() {
    let material = Material::made_in_files(size::choose(400, 1_500) as u32, 100);
    let whole = imported(&material);
    let parent = tempfile::tempdir().unwrap();
    let old = parent.path().join("old");
    copy(whole.path(), &old);
    drop(open_with_new_index(whole.path()));
    let expected = families(whole.path());
    assert_ne!(families(&old), expected);

    let name = std::any::type_name_of_val(&fills_until_it_is_killed);
    let (_, path) = name.split_once("::").expect("the crate, and the path in it");
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut phases = BTreeMap::<_, u64>::new();
    let mut longest = millis(200);
    let mut directory = parent.path().join("0");
    copy(&old, &directory);
    let amid = "amid the filling";
    for kill in 1.. {
        if kill > size::choose(8, 60) && (phases.contains_key(amid) || kill > 200) {
            break;
        }
        let mut filling = Command::new(std::env::current_exe().unwrap())
            .args([path, "--exact", "--ignored"])
            .env(TO_FILL, &directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(longest.mul_f64(rng.random()));
        filling.kill().unwrap();
        let status = filling.wait().unwrap();
        let killed = status.signal() == Some(9);
        assert!(killed || status.success(), "it failed by itself");
        let reached = phase(&directory);
        *phases.entry(reached).or_default() += 1;
        // Most kills should hit the filling itself.
        match reached {
            "before the filling" => longest = longest.mul_f64(1.3),
            "after the filling" => longest = longest.mul_f64(0.8),
            _ => {}
        }
        if reached == "after the filling" || !killed {
            drop(open_with_new_index(&directory));
            assert_eq!(families(&directory), expected, "after {kill} kills");
            directory = parent.path().join(kill.to_string());
            copy(&old, &directory);
        }
    }
    drop(open_with_new_index(&directory));
    assert_eq!(families(&directory), expected);
    println!("{phases:?}");
    assert!(phases.contains_key(amid), "{phases:?}");
}
