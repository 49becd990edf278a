//! One wrong byte anywhere is noticed, and named.

use std::fs;

use orrery_testkit::size;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::world::{PASSPHRASE_FILE, PLACE, World, content};

/// Objects that a restoration does not read.
const UNREAD: [&str; 2] = ["claim.json", "doomed.json"];

#[test]
fn one_wrong_byte_is_refused_by_name() {
    let world = World::new(5, 60);
    world.backup(&["--keep", "3"]);
    let objects: Vec<_> =
        world.objects().into_iter().filter(|(key, _)| !UNREAD.contains(&&**key)).collect();
    assert!(objects.len() > 2, "{}", objects.len());
    let mut random = ChaCha8Rng::seed_from_u64(58);
    for number in 0..size::choose(12, 200) {
        // Each object in turn, then any.
        let (key, whole) = match objects.get(number as usize) {
            Some(object) => object,
            None => objects.choose(&mut random).unwrap(),
        };
        let mut bytes = whole.clone();
        let what = match number % 4 {
            0..=2 => {
                let at = random.random_range(0..bytes.len());
                bytes[at] ^= 1 << random.random_range(0..8);
                format!("byte {at} of {key}")
            }
            _ => {
                bytes.truncate(random.random_range(0..bytes.len()));
                format!("the end of {key}")
            }
        };
        world.put(key, &bytes);
        // An earlier attempt has fetched what this one is to fetch.
        let _ = fs::remove_dir_all(world.at().join("new.restoring"));
        let restored = world.restore("new", &[]);
        assert_eq!(restored.code, 1, "{what}: {}", restored.stdout);
        assert!(!world.at().join("new").exists(), "{what}");
        let sentence = restored.stderr.lines().last().unwrap();
        assert!(sentence.contains(&**key), "{what}: {sentence}");
        if key.starts_with("objects/") {
            let names_a_file = ["raw/", "acknowledged"].iter().any(|it| sentence.contains(it));
            assert!(names_a_file, "{what}: {sentence}");
        }
        let verified = world.run(&["backup", "--verify", PLACE]);
        assert_eq!(verified.code, 1, "{what}: {}", verified.stdout);
        world.put(key, whole);
    }
    let missing = objects.iter().find(|(key, _)| key.starts_with("objects/")).unwrap();
    fs::remove_file(world.object(&missing.0)).unwrap();
    world.restore("new", &[]).refuses(1, &["is missing", &missing.0]);
    world.put(&missing.0, &missing.1);
    // What the failed attempts have fetched is used.
    world.restore("new", &[]).succeeded();
    assert!(!world.at().join("new.restoring").exists());
}

/// An object is not written again while it is there: whoever removes a damaged one gets it back.
#[test]
fn a_damaged_object_is_written_again_once_it_is_removed() {
    let world = World::new(25, 40);
    world.backup(&[]);
    let objects = world.objects().into_iter().filter(|(key, _)| key.starts_with("objects/"));
    for (key, whole) in objects.collect::<Vec<_>>() {
        let mut bytes = whole.clone();
        bytes[whole.len() / 2] ^= 1;
        world.put(&key, &bytes);
    }
    let verified = world.run(&["backup", "--verify", PLACE]);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    let note = verified.stderr.lines().find(|line| line.contains("cannot be restored")).unwrap();
    assert!(
        note.contains("remove that object, and the next backup writes the object again"),
        "{note}"
    );
    fs::remove_dir_all(world.object("objects")).unwrap();
    world.backup(&[]);
    world.restore("new", &[]).succeeded();
    assert_eq!(content(world.at(), "new"), content(world.at(), "d"));
}

/// Whoever can write to the bucket can make other snapshots, but not sign them.
#[test]
fn a_snapshot_of_another_writer_is_refused_where_one_is_trusted() {
    let (world, other) = (World::new(6, 20), World::new(7, 20));
    let (made, forged) = (world.backup(&[]), other.backup(&[]));
    for (key, bytes) in other.objects() {
        world.put(&key, &bytes);
    }
    let old = format!("snapshots/{}.json", made["snapshot"].as_str().unwrap());
    let trusted = ["--trusted", made["key"].as_str().unwrap()];
    world.restore("new", &trusted).refuses(1, &["are signed by", forged["key"].as_str().unwrap()]);
    // The older snapshot is not signed by the key of the place any more.
    let name = ["--snapshot", made["snapshot"].as_str().unwrap()];
    world.restore("new", &name).refuses(1, &[&old, "differs from what was written"]);
    // Who gives a passphrase gets nothing that anybody could have put there.
    let passphrase = ["--passphrase-file", PASSPHRASE_FILE];
    world.restore("new", &passphrase).refuses(1, &["are not encrypted, and a passphrase is given"]);
    let words = world.restore("new", &[]);
    words.succeeded();
    assert!(words.stderr.contains("detect accidents"), "{}", words.stderr);
    assert_eq!(world.restore("x", &["--trusted", "5b"]).code, 2);
}
