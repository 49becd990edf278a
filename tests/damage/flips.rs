//! One flipped bit or changed byte anywhere in a data directory: `orrery verify` reports it, or it
//! changes nothing that is stored.
//!
//! Small: 60 flips; full: 1,000.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use orrery::auth::{self, Revocation, Tokens};
use orrery::domain::Network;
use orrery::programs::storage;
use orrery::store::{Audit, Store, StoreError, StoredLedgers, audit_with};
use orrery::verify::Policy;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use crate::{ALONE, import, millis, serve};
use orrery_testkit::contents::Contents;
use orrery_testkit::material::Material;
use orrery_testkit::process::{KillPoint, copy, run};
use orrery_testkit::size;

/// Number of flips for each one on which the binary is run as well.
const RUN_VERIFY_EVERY: u64 = 10;

/// Opens a store as a service does.
fn open(directory: &Path, network: &Network) -> Result<Store, StoreError> {
    Store::open_with(directory, Some(network), storage::extensions())
}

/// Audits a directory as `orrery verify` does.
fn audited(directory: &Path) -> Result<Audit, StoreError> {
    audit_with(directory, &storage::extensions(), None, Policy::default(), &|_| {})
}

/// A data directory that no process has open, and its content.
struct Specimen {
    _parent: TempDir,
    directory: PathBuf,
    network: Network,
    contents: Contents,
    covered: Vec<StoredLedgers>,
    token: String,
}

impl Specimen {
    /// Takes a directory with ledgers and one token, inside `parent`, where a copy is made.
    fn new(parent: TempDir, directory: PathBuf, network: &Network, token: String) -> Self {
        let sound = audited(&directory).unwrap();
        assert_eq!(sound.problems, [], "it is sound before anything is flipped");
        // Opening moves the content of the WAL into tables, so a copy is opened.
        let opened = parent.path().join("opened");
        copy(&directory, &opened);
        let store = open(&opened, network).unwrap();
        let (contents, covered) = (Contents::of(&store), store.completeness().unwrap());
        let ranges: Vec<_> =
            covered.iter().map(|range| (range.covered.ledgers, range.covered.digest)).collect();
        let audited: Vec<_> =
            sound.ranges.iter().map(|range| (range.ledgers, range.digest)).collect();
        assert_eq!(audited, ranges);
        drop(store);
        fs::remove_dir_all(opened).unwrap();
        let network = network.clone();
        Self { _parent: parent, directory, network, contents, covered, token }
    }

    /// All ledgers in tables, as a finished import leaves them.
    fn imported(material: &Material) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("imported");
        let ended = import(&directory, material, material.files.len()).end();
        assert!(ended.code == 0, "{}", ended.stderr);
        let token = token(&directory);
        Self::new(parent, directory, &material.network, token)
    }

    /// Some ledgers in tables, the rest in the WAL of a service that was killed.
    fn killed(material: &Material) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("killed");
        let ended = import(&directory, material, material.files.len() / 2).end();
        assert!(ended.code == 0, "{}", ended.stderr);
        let mut service = serve(&directory, &material.network, &[]);
        service.time_to_health();
        let token = token(&directory);
        let ended = import(&directory, material, material.files.len()).end();
        assert!(ended.code == 0, "{}", ended.stderr);
        service.kill_at(KillPoint::Up(millis(0))).expect("the service does not end by itself");
        let in_log =
            |path: &PathBuf| kind(path) == "log" && fs::metadata(path).unwrap().len() > 50_000;
        assert!(files(&directory).iter().any(in_log), "something is in the log");
        Self::new(parent, directory, &material.network, token)
    }

    /// Whether a copy, opened as a service opens it, has the expected content.
    fn is_unharmed(&self, directory: &Path) -> bool {
        let unharmed = || {
            let store = open(directory, &self.network).ok()?;
            let contents = Contents::of(&store);
            let same = contents == self.contents && store.completeness().ok()? == self.covered;
            let tokens = Tokens::open(&directory.join("secrets"), &self.network).ok()?;
            let revoked = tokens.verify(&self.token).is_ok()
                && tokens.list().ok()?.len() == 1
                && tokens.revoke("somebody-elses").ok()? == Revocation::AlreadyRevoked;
            Some(same && revoked)
        };
        catch_unwind(AssertUnwindSafe(unharmed)).ok().flatten().unwrap_or(false)
    }
}

/// Issues a token of a directory, whose list of tokens also revokes another one.
fn token(directory: &Path) -> String {
    let issued = run(directory, ["token", "issue", "--sub", "someone"]);
    assert!(issued.code == 0, "{}", issued.stderr);
    let revoked = run(directory, ["token", "revoke", "somebody-elses"]);
    // The id is refused, and the answer says that it was not issued here.
    assert!(revoked.code == 1, "{}", revoked.stderr);
    issued.stdout.trim().to_owned()
}

/// All non-empty files, in a fixed order.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && entry.metadata().unwrap().len() > 0 {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Kind of a file, by its name.
fn kind(path: &Path) -> &'static str {
    let name = path.file_name().unwrap().to_str().unwrap();
    match name {
        "CURRENT" => "CURRENT",
        "IDENTITY" => "IDENTITY",
        "acknowledged" => "acknowledged",
        "token-signing-key" | "tokens.jsonl" => "secret",
        "compiled-code-key" => "key of compiled code",
        "webhook-secrets-key" => "key of webhook secrets",
        _ if name.ends_with(".sst") => "table",
        _ if name.ends_with(".log") => "log",
        _ if name.starts_with("MANIFEST-") => "MANIFEST",
        _ if name.starts_with("OPTIONS-") => "OPTIONS",
        _ if name.starts_with("LOG") => "LOG",
        _ => panic!("what is {name}?"),
    }
}

/// One changed byte.
#[derive(Debug)]
struct Flip {
    file: PathBuf,
    at: u64,
    mask: u8,
}

impl Flip {
    /// Picks uniformly among all bytes of all files, among all files, or among all kinds of files.
    fn random(rng: &mut ChaCha8Rng, directory: &Path) -> Self {
        let mut files = files(directory);
        let size = |file: &PathBuf| fs::metadata(file).unwrap().len();
        let file = match rng.random_range(0..3) {
            0 => files.choose_weighted(rng, size).unwrap(),
            1 => files.choose(rng).unwrap(),
            _ => {
                let kinds: BTreeSet<_> = files.iter().map(|file| kind(file)).collect();
                let kinds: Vec<_> = kinds.into_iter().collect();
                let chosen = *kinds.choose(rng).unwrap();
                files.retain(|file| kind(file) == chosen);
                files.choose(rng).unwrap()
            }
        };
        let mask = if rng.random_bool(0.5) {
            1 << rng.random_range(0..8)
        } else {
            rng.random_range(1..=255)
        };
        Self { file: file.clone(), at: rng.random_range(0..size(file)), mask }
    }

    fn apply(&self, from: &Path, to: &Path) {
        let file = to.join(self.file.strip_prefix(from).unwrap());
        let mut bytes = fs::read(&file).unwrap();
        bytes[self.at as usize] ^= self.mask;
        // The copy may be a hard link to the original.
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
    }
}

/// The check that detected a flip; `None` when none did.
fn detected_by(audited: &Result<Audit, StoreError>, secrets: &[String]) -> Option<&'static str> {
    match audited {
        Err(error) => {
            let sentence = error.to_string();
            let by = [
                (" is damaged at byte ", "the walk through log files"),
                (" is missing: restore a backup", "the walk through log files"),
                (" had been stored and was acknowledged, ", "the note of what was acknowledged"),
                (" cannot be read (", "RocksDB at opening"),
            ];
            let by = by.iter().find(|(part, _)| sentence.contains(part));
            Some(by.unwrap_or_else(|| panic!("{sentence}")).1)
        }
        Ok(audit) => match audit.problems.first() {
            Some(first) if first.place == "acknowledged" => Some("the checksum of the note"),
            Some(_) if audit.problems.iter().any(|it| it.what.contains("checksum")) => {
                Some("the checksum of a table's block")
            }
            Some(first) if first.what.contains("the database failed") => Some("RocksDB at reading"),
            Some(_) => Some("the audit of contents"),
            None if !secrets.is_empty() => Some("the checksum of a secret"),
            None => None,
        },
    }
}

/// Asserts that `orrery verify` reports what the library found.
fn check_verify_command(directory: &Path, detected: bool) {
    let ended = run(directory, ["verify"]);
    assert_eq!(ended.code, i32::from(detected), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stdout.is_empty(), detected, "{}", ended.stdout);
    if detected {
        let last = ended.stderr.lines().last().unwrap();
        assert!(last.starts_with("orrery: "), "{}", ended.stderr);
    }
}

#[test]
fn a_changed_byte_is_reported_or_has_no_effect() {
    let _alone = ALONE.lock();
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let made = Material::made_in_files(size::choose(150, 400) as u32, 25);
    let mut specimens = vec![Specimen::killed(&made)];
    specimens.extend(Material::public().as_ref().map(Specimen::imported));
    let mut found = BTreeMap::<(&str, &str), u64>::new();
    let mut opened_anyway = 0;
    for number in 0..size::choose(60, 1000) {
        let specimen = &specimens[number as usize % specimens.len()];
        let flip = Flip::random(&mut rng, &specimen.directory);
        let parent = tempfile::tempdir().unwrap();
        let flipped = parent.path().join("flipped");
        copy(&specimen.directory, &flipped);
        flip.apply(&specimen.directory, &flipped);
        let audited = audited(&flipped);
        let secrets = auth::problems(&flipped.join("secrets")).unwrap();
        let detected_by = detected_by(&audited, &secrets);
        if number % RUN_VERIFY_EVERY == 0 {
            check_verify_command(&flipped, detected_by.is_some());
        }
        match detected_by {
            Some(detected_by) => {
                // A directory that the audit fails to open must not be opened by a service with
                // less in it.
                if audited.is_err() && open(&flipped, &specimen.network).is_ok() {
                    assert!(specimen.is_unharmed(&flipped), "{flip:?}: it opened with less");
                    opened_anyway += 1;
                }
                *found.entry((kind(&flip.file), detected_by)).or_default() += 1;
            }
            None => {
                assert!(specimen.is_unharmed(&flipped), "{flip:?} was not reported");
                *found
                    .entry((kind(&flip.file), "harmless: everything is as before"))
                    .or_default() += 1;
            }
        }
    }
    for ((kind, detected_by), count) in &found {
        println!("{count:5} × {kind:12} {detected_by}");
    }
    println!(
        "{opened_anyway} of those that verify refuses to open are opened by a service, unharmed"
    );
    for kind in ["table", "log", "MANIFEST"] {
        assert!(found.keys().any(|(found, _)| *found == kind), "no {kind} was hit");
    }
}
