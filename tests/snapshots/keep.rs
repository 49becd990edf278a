//! Old snapshots are removed in two steps, and other writers and networks are refused.

use std::collections::BTreeSet;
use std::fs;

use orrery_testkit::binary::run;
use serde_json::{Value, json};

use super::world::{PASSPHRASE_FILE, PLACE, World};

fn keys(world: &World, begin: &str) -> BTreeSet<String> {
    let keys = world.objects().into_iter().map(|(key, _)| key);
    keys.filter(|key| key.starts_with(begin)).collect()
}

fn doomed(world: &World) -> serde_json::Map<String, Value> {
    let text = fs::read(world.object("doomed.json")).unwrap();
    serde_json::from_slice::<Value>(&text).unwrap()["objects"].as_object().unwrap().clone()
}

/// Makes it a day since the objects were listed.
fn a_day_later(world: &World) {
    let listed: serde_json::Map<_, _> = doomed(world)
        .into_iter()
        .map(|(object, at)| (object, json!(at.as_u64().unwrap() - 24 * 3600)))
        .collect();
    world.put("doomed.json", json!({ "objects": listed }).to_string().as_bytes());
}

#[test]
fn objects_are_listed_and_removed_a_day_later() {
    let world = World::new(8, 30);
    let first = world.backup(&["--keep", "1"]);
    assert_eq!((first["removed"].as_u64(), first["listed_objects"].as_u64()), (Some(0), Some(0)));
    // What an upload has left that was never finished.
    let stray = format!("objects/ab/{}", "ab".repeat(32));
    world.put(&stray, b"half of a snapshot");
    let of_first = keys(&world, "objects/");
    world.import("d", 45);
    let second = world.backup(&["--keep", "1"]);
    assert_eq!(second["removed"], 1);
    let listed = second["listed_objects"].as_u64().unwrap();
    assert!(listed > 0 && second["removed_objects"] == 0, "{second}");
    assert!(doomed(&world).contains_key(&stray));
    assert_eq!(doomed(&world).len() as u64, listed);
    assert!(of_first.is_subset(&keys(&world, "objects/")), "nothing is gone yet");
    assert_eq!(keys(&world, "snapshots/").len(), 1);
    // Nothing is listed twice, and nothing goes before its time.
    let third = world.backup(&["--keep", "2"]);
    assert_eq!((third["removed"].as_u64(), third["removed_objects"].as_u64()), (Some(0), Some(0)));
    assert!(of_first.is_subset(&keys(&world, "objects/")));
    a_day_later(&world);
    let fourth = world.backup(&["--keep", "2"]);
    assert!(fourth["removed_objects"].as_u64() >= Some(listed), "{fourth}");
    assert!(!keys(&world, "objects/").contains(&stray) && !doomed(&world).contains_key(&stray));
    world.restore("new", &[]).succeeded();
    let verified = world.run(&["backup", "--verify", PLACE, "--json"]);
    assert_eq!((verified.code, verified.stdout.lines().count()), (0, 2), "{}", verified.stderr);
}

/// A snapshot that needs a listed object writes it again, and takes it off the list.
#[test]
fn a_listed_object_is_written_again() {
    let world = World::new(9, 30);
    // An object of its own, which is the same in each snapshot.
    fs::create_dir_all(world.at().join("d/sandbox")).unwrap();
    fs::write(world.at().join("d/sandbox/journal"), vec![7; 3 << 20]).unwrap();
    let encrypt = ["--encrypt", "--passphrase-file", PASSPHRASE_FILE];
    let first = world.backup(&encrypt);
    let of_first = keys(&world, "objects/");
    // As if no snapshot had needed them, a day ago.
    let listed: serde_json::Map<_, _> = of_first.iter().map(|it| (it.clone(), json!(7))).collect();
    world.put("doomed.json", json!({ "objects": listed }).to_string().as_bytes());
    let name = format!("snapshots/{}.json.age", first["snapshot"].as_str().unwrap());
    let before = world.server.requests().len();
    let second = world.backup(&[&encrypt[..], &["--keep", "5"]].concat());
    let written: BTreeSet<String> = world.server.requests()[before..]
        .iter()
        .filter(|request| request.method == "PUT" && request.target.contains("/objects/"))
        .map(|request| request.target.split_once("/some/snapshots/").unwrap().1.to_owned())
        .map(|key| key.split('?').next().unwrap().to_owned())
        .collect();
    assert_eq!(second["new_objects"], written.len() as u64);
    let again = of_first.intersection(&written).count();
    // Those of the first snapshot, which is still there, are not removed either.
    assert!(again > 0 && doomed(&world).is_empty(), "{again}");
    assert!(world.object(&name).exists() && of_first.is_subset(&keys(&world, "objects/")));
    let verify = ["backup", "--verify", PLACE, "--json", "--passphrase-file", PASSPHRASE_FILE];
    let verified = world.run(&verify);
    assert_eq!((verified.code, verified.stdout.lines().count()), (0, 2), "{}", verified.stderr);
    world.put("doomed.json", b"{");
    let backup = [&["backup", "--data-dir", "d", "--to", PLACE], &encrypt[..]].concat();
    let refused = world.run(&backup);
    refused.refuses(1, &["doomed.json is damaged", "remove it"]);
}

#[test]
fn other_writers_and_networks_are_refused() {
    let world = World::new(10, 20);
    world.backup(&[]);
    let before = world.objects();
    world.import("other", 20);
    let to = |data_dir: &str, more: &[&str]| {
        world.run(&[&["backup", "--data-dir", data_dir, "--to", PLACE], more].concat())
    };
    to("other", &[]).refuses(1, &["are of another data directory"]);
    to("d", &["--encrypt", "--passphrase-file", "passphrase"])
        .refuses(1, &["are not encrypted: give another place"]);
    let token = ["token", "issue", "--sub", "a", "--data-dir", "t", "--network", "testnet"];
    run(world.at(), &token).succeeded();
    to("t", &[]).refuses(1, &["has snapshots of", "local", "testnet"]);
    let restored = world.restore("new", &["--config", "orrery.toml"]);
    assert_eq!(restored.code, 1, "there is no such file");
    fs::write(world.at().join("orrery.toml"), "network = 'testnet'\n").unwrap();
    world.restore("new", &["--config", "orrery.toml"]).refuses(1, &["has snapshots of"]);
    assert_eq!(world.objects(), before, "nothing is written");

    // Somebody else's files are left alone.
    world.server.put("photos/1.jpg", b"a photo");
    let arguments = ["backup", "--data-dir", "d", "--to", "s3://ledgers/photos"];
    world.run(&arguments).refuses(1, &["holds 1.jpg, which is not a snapshot's"]);
    world
        .run(&["restore", "--from", "s3://ledgers/photos", "--data-dir", "new"])
        .refuses(1, &["there is no snapshot in s3://ledgers/photos"]);

    // While another command writes, this one waits.
    let claim = json!({ "id": "somebody-else", "until": 99_999_999_999u64 });
    world.put("claim.json", claim.to_string().as_bytes());
    let words = ["in use by another orrery backup, until 5138-11-16", "or remove", "claim.json"];
    to("d", &[]).refuses(75, &words);
    let claim = json!({ "id": "somebody-else", "until": 1_000u64 });
    world.put("claim.json", claim.to_string().as_bytes());
    to("d", &[]).succeeded();
    let claim: Value =
        serde_json::from_slice(&fs::read(world.object("claim.json")).unwrap()).unwrap();
    assert_eq!(claim["until"], 0, "it is released");
}

#[test]
fn wrong_usage_is_explained() {
    let world = World::new(11, 10);
    world
        .run(&["backup", "--data-dir", "d", "s3://ledgers/x"])
        .refuses(2, &["give a bucket with --to"]);
    for arguments in [
        &["backup"][..],
        &["restore"],
        &["backup", "b", "--to", "s3://a/b"],
        &["backup", "b", "--encrypt"],
        &["backup", "b", "--dry-run"],
        &["restore", "b", "--from", "s3://a/b"],
    ] {
        let ran = world.run(arguments);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{arguments:?}: {}", ran.stderr);
    }
    let ftp = ["backup", "--data-dir", "d", "--to", "ftp://host/x"];
    world.run(&ftp).refuses(1, &["write s3://bucket/prefix, gs://bucket/prefix or az://"]);
    world
        .run(&["backup", "--data-dir", "d", "--to", "d/inside"])
        .refuses(1, &["is inside the data directory"]);
}
