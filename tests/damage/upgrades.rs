//! Content on disk by column family: the same whichever build wrote it, and the same after an older
//! directory was upgraded, even by processes that were killed during the upgrade.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::{import, import_all, millis};
use orrery_testkit::families::{families, open};
use orrery_testkit::material::Material;
use orrery_testkit::older::make_format_2_0;
use orrery_testkit::process::{KillPoint, copy};
use orrery_testkit::size;

/// Variable that names another build of the same format, with which this one is compared.
const OTHER_BUILD: &str = "ORRERY_OTHER_BUILD";

/// Families that are derived from others, after an import of [`made`]: number of rows, and the
/// first 8 bytes of the SHA-256 of their content.
const INDEXES: [(&str, &str); 5] = [
    ("entries", "1145 11cfef326872941b"),
    ("events_by_contract", "277 d9bf50894280cc44"),
    ("events_by_topic", "3556 4297f866ae56a8cd"),
    ("tx_by_contract", "661 24a0f0cf68c6ea36"),
    ("tx_by_hash", "1533 84c20439af4f1795"),
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
fn indexes_are_byte_for_byte_what_they_were() {
    let found = families(imported(&made()).path());
    let indexes: Vec<_> = INDEXES.iter().map(|(name, _)| (*name, found[*name].as_str())).collect();
    assert_eq!(indexes, INDEXES);
}

/// Runs only with `ORRERY_OTHER_BUILD=/path/to/orrery`.
#[test]
fn another_build_writes_the_same() {
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
        // `meta` records which repairs were made, which does not follow from the ledgers.
        let but_meta = |mut families: BTreeMap<String, String>| {
            families.remove("meta");
            families
        };
        assert_eq!(but_meta(families(directory.path())), but_meta(ours));
    }
}

/// Progress of an upgrade, as stored on disk.
fn phase(directory: &Path) -> &'static str {
    let db = open(directory);
    let format = db.get_cf(db.cf_handle("meta").unwrap(), "format").unwrap().unwrap();
    match (format == [0, 2, 0, 0], db.cf_handle("entries").is_some()) {
        (true, false) => "before the upgrade",
        (true, true) => "amid the upgrade",
        (false, _) => "after the upgrade",
    }
}

/// Small: 8 kills; full: 60; continues beyond that until one hit the upgrade, up to 200.
#[test]
fn an_older_directory_is_upgraded_whoever_is_killed_meanwhile() {
    let material = Material::made_in_files(size::choose(400, 1_500) as u32, 100);
    let whole = imported(&material);
    let expected = families(whole.path());
    let parent = tempfile::tempdir().unwrap();
    let old = parent.path().join("old");
    copy(whole.path(), &old);
    make_format_2_0(&old);
    assert_ne!(families(&old), expected);

    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut phases = BTreeMap::<_, u64>::new();
    let mut longest = millis(200);
    let mut directory = parent.path().join("0");
    copy(&old, &directory);
    let amid = "amid the upgrade";
    for kill in 1.. {
        if kill > size::choose(8, 60) && (phases.contains_key(amid) || kill > 200) {
            break;
        }
        let mut upgrading = import(&directory, &material, 1);
        let point = KillPoint::Start(longest.mul_f64(rng.random()));
        let killed = upgrading.kill_at(point).is_some();
        let reached = phase(&directory);
        *phases.entry(reached).or_default() += 1;
        // Most kills should hit the upgrade itself.
        match reached {
            "before the upgrade" => longest = longest.mul_f64(1.3),
            "after the upgrade" => longest = longest.mul_f64(0.8),
            _ => {}
        }
        if reached == "after the upgrade" || !killed {
            import_all(&directory, &material);
            assert_eq!(families(&directory), expected, "after {kill} kills");
            directory = parent.path().join(kill.to_string());
            copy(&old, &directory);
        }
    }
    import_all(&directory, &material);
    assert_eq!(families(&directory), expected);
    println!("{phases:?}");
    assert!(phases.contains_key(amid), "{phases:?}");
}
