//! Snapshots at Google, in Azure and in a directory.

use std::os::unix::fs::PermissionsExt;

use orrery_testkit::azure::{ACCOUNT, AzureServer, KEY};
use orrery_testkit::binary::{Ran, orrery_in, run};
use orrery_testkit::google::GoogleServer;

use super::world::{World, content};

/// Makes two snapshots of `d`, restores the newest, and removes the other.
fn round(world: &World, place: &str, access: &[(&str, &str)]) {
    let run = |arguments: &[&str]| -> Ran {
        let mut command = orrery_in(world.at());
        command.args(arguments).envs(access.iter().copied()).output().unwrap().into()
    };
    let backup = ["backup", "--data-dir", "d", "--to", place, "--keep", "1"];
    let first = run(&backup).json();
    assert!(first["new_objects"].as_u64() > Some(0), "{first}");
    world.import("d", 40);
    let second = run(&backup).json();
    assert_eq!(second["removed"], 1, "{second}");
    run(&["restore", "--from", place, "--data-dir", "r"]).succeeded();
    assert_eq!(content(world.at(), "r"), content(world.at(), "d"));
    let verified = run(&["backup", "--verify", place, "--json"]);
    assert_eq!((verified.code, verified.stdout.lines().count()), (0, 1), "{}", verified.stderr);
    world.import("other", 10);
    let other = ["backup", "--data-dir", "other", "--to", place];
    run(&other).refuses(1, &["are of another data directory"]);
}

#[test]
fn snapshots_go_to_azure() {
    let (world, server) = (World::new(18, 20), AzureServer::start());
    let url = server.url();
    let access = [
        ("ORRERY_BACKUP_ENDPOINT", &*url),
        ("AZURE_STORAGE_ACCOUNT", ACCOUNT),
        ("AZURE_STORAGE_KEY", KEY),
    ];
    round(&world, "az://ledgers/some/snapshots", &access);
    assert!(server.names().iter().all(|name| name.starts_with("some/snapshots/")));
}

#[test]
fn snapshots_go_to_google() {
    let (world, server) = (World::new(19, 20), GoogleServer::start());
    let url = server.url();
    round(&world, "gs://ledgers/some/snapshots", &[("ORRERY_BACKUP_ENDPOINT", &*url)]);
    assert!(server.names().iter().all(|name| name.starts_with("some/snapshots/")));
}

/// A directory has the same objects; a backup directory of the usual kind stays what it was.
#[test]
fn snapshots_go_to_a_directory() {
    let world = World::new(20, 20);
    let at = world.at();
    round(&world, "snapshots", &[]);
    // What a command that was killed has begun to write.
    let draft = at.join("snapshots/objects/ab/half.new");
    std::fs::create_dir_all(draft.parent().unwrap()).unwrap();
    std::fs::write(&draft, "half").unwrap();
    run(at, &["backup", "--data-dir", "d", "--to", "snapshots"]).succeeded();
    assert!(!draft.exists());
    let mode = |path: &str| std::fs::metadata(at.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("snapshots"), mode("snapshots/orrery.json")), (0o700, 0o600));
    run(at, &["backup", "--data-dir", "d", "backups"]).json();
    assert_eq!(run(at, &["backup", "--verify", "backups"]).code, 0);
    run(at, &["restore", "--from", "backups", "--data-dir", "x"])
        .refuses(1, &["there is no snapshot in backups"]);
    run(at, &["restore", "snapshots", "--data-dir", "x"]).refuses(1, &["there is no backup"]);
    run(at, &["backup", "--data-dir", "d", "--to", "backups"])
        .refuses(1, &["which is not a snapshot's"]);
}
