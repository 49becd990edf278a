//! What a place that somebody else can write to makes a restoration do: nothing but fail.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::description::{Description, Piece, key_of};
use super::marker::MARKER;
use super::*;
use crate::auth::DirectoryKey;
use crate::backup::manifest::File;
use crate::domain::{LedgerSet, Network};
use crate::net::buckets::{BucketSettings, MAX_DOWNLOADED};
use crate::service::{DiskSpace, secrets};
use crate::store::Store;

struct World {
    directory: tempfile::TempDir,
}

impl World {
    /// A data directory, and a place with a snapshot of it.
    fn new() -> Self {
        let world = Self { directory: tempfile::tempdir().unwrap() };
        let network = Network::from_name_or_passphrase("local");
        let store = Store::open(&world.at("d"), Some(&network)).unwrap();
        let mut held = None;
        let checkpoint = || {
            let directory = held.insert(store.checkpoint()?).directory().to_owned();
            Ok((directory, LedgerSet::default()))
        };
        let options = Options {
            data_dir: &world.at("d"),
            network,
            encrypt: false,
            keep: None,
            dry_run: false,
            id: "this one".to_owned(),
        };
        make(&options, world.place(), &mut never_asked, checkpoint, &mut |_| Ok(())).unwrap();
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn place(&self) -> Place {
        Place::of(&BucketSettings::at(self.at("place").to_str().unwrap())).unwrap()
    }

    fn open(&self) -> Result<Snapshots, BackupError> {
        Snapshots::open(self.place(), &Expected::default(), &mut never_asked)
    }

    fn restore(&self) -> Result<(), BackupError> {
        let snapshots = self.open()?;
        let snapshot = snapshots.find(None)?;
        snapshots.restore(&snapshot, &self.at("new"), &|_| Ok(()), &mut |_| Ok(()))
    }

    /// Puts a changed description in place of the snapshot's, and signs it as whoever has made the place can.
    fn forge(&self, change: impl FnOnce(&mut Description)) {
        let snapshots = self.open().unwrap();
        let Snapshot { name, mut description } = snapshots.find(None).unwrap();
        change(&mut description);
        let key = DirectoryKey::open(&secrets(&self.at("d"))).unwrap();
        let path = self.at("place").join(key_of(&name, &snapshots.marker));
        fs::write(path, description.signed(&key).unwrap()).unwrap();
    }

    /// All files and directories beside the data directory and the place, but those of a restoration.
    fn others(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "d" && name != "place" && name != "new.restoring").collect()
    }
}

fn never_asked(_: bool) -> Result<Passphrase, BackupError> {
    panic!("nothing is encrypted")
}

/// Adds a file that consists of these pieces of one object.
fn add(description: &mut Description, path: &str, pieces: &[(u64, u64)]) {
    let object = description.pieces.iter().flatten().next().unwrap().object.clone();
    let of = |&(at, size): &(u64, u64)| Piece {
        object: object.clone(),
        at,
        size,
        sha256: "ab".repeat(32),
    };
    let pieces: Vec<Piece> = pieces.iter().map(of).collect();
    let size = pieces.iter().fold(0u64, |sum, piece| sum.wrapping_add(piece.size));
    let file = File { path: path.to_owned(), size, sha256: "ab".repeat(32) };
    let files = &mut description.manifest.files;
    let position = files.partition_point(|other| other.path < file.path);
    files.insert(position, file);
    description.pieces.insert(position, pieces);
}

/// A change of a description.
type Change = Box<dyn FnOnce(&mut Description)>;

fn by(change: impl FnOnce(&mut Description) + 'static) -> Change {
    Box::new(change)
}

#[test]
fn a_hostile_description_restores_nothing() {
    let with = |path: &'static str, pieces: &'static [(u64, u64)]| {
        by(move |description| add(description, path, pieces))
    };
    let object = |object: &'static str| {
        by(move |it| it.pieces.iter_mut().flatten().for_each(|piece| piece.object = object.into()))
    };
    let elsewhere = "objects/../../d/secrets/directory-key";
    let changes: Vec<(&str, Change)> = vec![
        ("above", with("../escaped", &[(0, 1)])),
        ("absolute", with("/tmp/escaped", &[(0, 1)])),
        ("above below", with("raw/../../escaped", &[(0, 1)])),
        ("compiled code", with("compiled/abab.compiled", &[(0, 1)])),
        ("its key", with("secrets/compiled-code-key", &[(0, 1)])),
        ("a lock", with("raw/LOCK", &[])),
        ("twice", with("raw/CURRENT", &[(0, 1)])),
        ("beyond the object", with("raw/000999.sst", &[(8 << 20, 1 << 20)])),
        ("more than an object has", with("raw/000999.sst", &[(0, 1 << 40)])),
        ("more than a file has", with("raw/000999.sst", &[(0, u64::MAX)])),
        ("a sum that overflows", with("raw/000999.sst", &[(0, u64::MAX), (0, 9)])),
        ("an end that overflows", with("raw/000999.sst", &[(u64::MAX, 9)])),
        ("an empty piece", with("raw/000999.sst", &[(0, 0)])),
        ("other content", with("raw/000999.sst", &[(0, 1)])),
        ("another object", object(elsewhere)),
        ("no object", object("")),
        ("a missing object", object("objects/ab/")),
        ("another length", by(|it| it.manifest.files[0].size += 1)),
        ("another network", by(|it| it.manifest.network_passphrase = "other".to_owned())),
        ("another name", by(|it| it.manifest.taken = "2020-01-01T00-00-00.000Z".to_owned())),
        ("a later format", by(|it| it.manifest.format += 1)),
        (
            "fewer pieces",
            by(|it| {
                it.pieces.pop();
            }),
        ),
        ("a file less", by(|it| it.manifest.files.retain(|it| it.path != "raw/CURRENT"))),
        (
            "a token that cannot be revoked",
            by(|it| {
                it.revoked.insert("\n".into(), 1);
            }),
        ),
    ];
    for (what, change) in changes {
        let world = World::new();
        world.forge(change);
        let error = world.restore().expect_err(what).to_string();
        assert!(!error.is_empty() && !world.at("new").exists(), "{what}: {error}");
        assert_eq!(world.others(), BTreeSet::new(), "{what}: {error}");
    }
    let honest = World::new();
    honest.forge(|_| {});
    honest.restore().unwrap();
}

/// A small object may be named often, so that little is fetched and much written.
#[test]
fn a_snapshot_that_the_disk_cannot_hold_is_refused_at_once() {
    const PIECE: u64 = PART_BYTES as u64;
    let world = World::new();
    let free = DiskSpace::of(world.directory.path()).unwrap().free;
    let count = 2 * free / PIECE + 64;
    if count > 200_000 {
        eprintln!("skipped: the disk is too large");
        return;
    }
    let pieces = vec![(0, PIECE); count as usize];
    world.forge(|description| add(description, "raw/000999.sst", &pieces));
    let error = world.restore().unwrap_err().to_string();
    assert!(error.contains(" MiB more, and the disk of "), "{error}");
    assert!(!world.at("new").exists());
    let fetched = fs::read_dir(world.at("new.restoring/unfinished")).unwrap().count();
    assert_eq!(fetched, 0);
}

#[test]
fn what_is_no_object_is_not_read() {
    let world = World::new();
    let marker = world.at("place").join(MARKER);
    let good = fs::read(&marker).unwrap();
    fs::remove_file(&marker).unwrap();
    // Whoever opens it waits for somebody who writes.
    mknodat(CWD, &marker, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = world.restore().unwrap_err().to_string();
    assert!(error.contains("orrery.json is not a file"), "{error}");
    fs::remove_file(&marker).unwrap();
    let long = fs::File::create(&marker).unwrap();
    long.set_len(MAX_DOWNLOADED + 1).unwrap();
    let error = world.restore().unwrap_err().to_string();
    assert!(error.contains("orrery.json has more than 128 MiB"), "{error}");
    fs::write(&marker, good).unwrap();
    world.restore().unwrap();
}

/// Somebody else can prepare a directory beside the one to restore, where both may write.
#[test]
fn a_restoration_does_not_go_on_elsewhere() {
    let world = World::new();
    fs::create_dir(world.at("elsewhere")).unwrap();
    symlink(world.at("elsewhere"), world.at("new.restoring")).unwrap();
    let error = world.restore().unwrap_err().to_string();
    assert!(error.contains("new.restoring is not a directory of this account"), "{error}");
    assert_eq!(fs::read_dir(world.at("elsewhere")).unwrap().count(), 0);
    fs::remove_file(world.at("new.restoring")).unwrap();
    world.restore().unwrap();
    assert!(world.at("new/raw/CURRENT").exists());
}

/// Whoever can write to a place of encrypted snapshots cannot put others there for whoever has the passphrase.
#[test]
fn what_is_not_as_expected_is_refused_before_a_passphrase_is_asked_for() {
    let world = World::new();
    let other = Network::from_name_or_passphrase("testnet");
    let (stranger, own) = ("ab".repeat(32), world.open().unwrap().writer().to_owned());
    for (expected, reason) in [
        (
            Expected { encrypted: true, ..Expected::default() },
            "are not encrypted, and a passphrase",
        ),
        (Expected { writer: Some(&stranger), ..Expected::default() }, "are signed by "),
        (Expected { network: Some(&other), ..Expected::default() }, "has snapshots of "),
    ] {
        let opened = Snapshots::open(world.place(), &expected, &mut never_asked);
        let error = opened.err().unwrap().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let expected = Expected { writer: Some(&own), ..Expected::default() };
    Snapshots::open(world.place(), &expected, &mut never_asked).unwrap();
}
