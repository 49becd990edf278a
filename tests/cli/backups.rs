//! Backups: made while ledgers are stored, damaged, sharing files, and killed halfway.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::control::{Client, Ledgers, STORE};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use orrery_testkit::binary::{Service, orrery_in, run};
use orrery_testkit::data::ledgers;
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::signal::{self, Signal};
use orrery_testkit::wait::wait_until;

/// Returns all paths below a directory, each with whether it is a directory.
fn tree(root: &Path) -> BTreeMap<PathBuf, bool> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let is_directory = path.is_dir();
            if is_directory {
                directories.push(path.clone());
            }
            found.insert(path.strip_prefix(root).unwrap().to_owned(), is_directory);
        }
    }
    found
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for (path, is_directory) in tree(from) {
        match is_directory {
            true => fs::create_dir_all(to.join(path)).unwrap(),
            false => drop(fs::copy(from.join(&path), to.join(&path)).unwrap()),
        }
    }
}

fn is_private(root: &Path) {
    for (path, is_directory) in tree(root) {
        let mode = fs::metadata(root.join(&path)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if is_directory { 0o700 } else { 0o600 }, "{}", path.display());
    }
}

fn covered(at: &Path, data_dir: &str) -> Value {
    run(at, &["status", "--json", "--data-dir", data_dir]).json()["covered"].clone()
}

fn import(at: &Path, chain: &Chain, last: u32, data_dir: &str) {
    let lake = LakeFiles::with(chain, 2..=last);
    run(at, &["import", "--json", "--data-dir", data_dir, &lake.text()]).json();
}

#[test]
fn a_backup_under_load_is_a_consistent_state() {
    const LAST: u32 = 500;
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let chain = Chain::made(7, LAST);
    let token = ["token", "issue", "--sub", "alice", "--data-dir", "d", "--network", "local"];
    assert_eq!(run(at, &token).code, 0);
    // These ledgers are in SST files after the start; the following ones are in the WAL.
    import(at, &chain, 60, "d");
    let service = Service::start_in(at, &["--data-dir", "d"]);
    let (stored, ended) = (AtomicU32::new(60), AtomicBool::new(false));
    let data_dir = at.join("d");
    let (times, backups) = thread::scope(|scope| {
        let storing = scope.spawn(|| {
            let mut client = Client::connect(&data_dir).unwrap().unwrap();
            let mut times = Vec::new();
            for sequence in 61..=LAST {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                let begun = Instant::now();
                let ledgers = Ledgers(vec![chain.xdr(sequence).to_vec()]);
                client.ask(STORE, &ledgers).unwrap().unwrap();
                times.push((begun, begun.elapsed()));
                stored.store(sequence, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(2));
            }
            times
        });
        wait_until("some ledgers are stored", || stored.load(Ordering::Relaxed) > 80);
        let backups: Vec<_> = (0..3)
            .map(|_| {
                let (before, begun) = (stored.load(Ordering::Relaxed), Instant::now());
                let made = run(at, &["backup", "--data-dir", "d", "backups"]).json();
                (before, begun, begun.elapsed(), made)
            })
            .collect();
        assert!(stored.load(Ordering::Relaxed) < LAST, "ledgers are stored until the end");
        ended.store(true, Ordering::Relaxed);
        (storing.join().unwrap(), backups)
    });
    let during = |at: &Instant| {
        backups.iter().any(|(_, begun, took, _)| *at >= *begun && *at <= *begun + *took)
    };
    let longest = |with: bool| {
        let of = times.iter().filter(|(at, _)| during(at) == with).map(|(_, took)| *took);
        of.max().unwrap_or_default()
    };
    println!(
        "storing a ledger took at most {:?} while backups were made, and {:?} else; checkpoints took {:?} ms",
        longest(true),
        longest(false),
        backups
            .iter()
            .map(|(.., made)| made["checkpoint_ms"].as_u64().unwrap())
            .collect::<Vec<_>>(),
    );
    assert_eq!(fs::read_dir(at.join("d/checkpoints")).unwrap().count(), 0, "nothing is left");
    service.stop();

    let checked = run(at, &["backup", "--verify", "backups", "--json"]);
    assert_eq!((checked.code, checked.stdout.lines().count()), (0, 3), "{}", checked.stderr);
    is_private(&at.join("backups"));
    let tokens = run(at, &["token", "list", "--data-dir", "d"]).stdout;
    for (number, (before, .., made)) in backups.iter().enumerate() {
        let (name, restored) = (made["backup"].as_str().unwrap(), format!("restored-{number}"));
        assert_eq!(run(at, &["restore", name, "--data-dir", &restored]).code, 0);
        is_private(&at.join(&restored));
        assert_eq!(run(at, &["verify", "--data-dir", &restored]).code, 0);
        assert_eq!(run(at, &["token", "list", "--data-dir", &restored]).stdout, tokens);
        let found = covered(at, &restored);
        let last = found[0]["last_ledger"].as_u64().unwrap() as u32;
        assert!(last >= *before, "{before} was acknowledged before, and {last} is there");
        assert_eq!(found[0]["digest"], made["digest"]);
        let again = format!("again-{number}");
        import(at, &chain, last, &again);
        assert_eq!(found, covered(at, &again), "the same as without all that");
    }
    // The second backup shares SST files with the first as hard links.
    let (first, second) = (&backups[0].3, &backups[1].3);
    assert!(second["shared_files"].as_u64().unwrap() > 0, "{second}");
    let (first, second) =
        (Path::new(first["backup"].as_str().unwrap()), second["backup"].as_str().unwrap());
    let inode = |path: PathBuf| fs::metadata(path).unwrap().ino();
    let tables: Vec<_> = tree(&at.join(first))
        .into_keys()
        .filter(|path| path.extension().is_some_and(|e| e == "sst"))
        .collect();
    let same = tables.iter().filter(|table| {
        let (one, other) = (at.join(first).join(table), at.join(second).join(table));
        other.exists() && inode(one) == inode(other)
    });
    assert!(same.count() > 0, "{tables:?}");
}

#[test]
fn damaged_backups_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let chain = Chain::made(3, 60);
    import(at, &chain, 60, "d");
    assert_eq!(run(at, &["token", "issue", "--sub", "a", "--data-dir", "d"]).code, 0);
    let made = run(at, &["backup", "--data-dir", "d", "backups"]).json();
    let good = at.join(made["backup"].as_str().unwrap());
    let files: Vec<_> = tree(&good)
        .into_iter()
        .filter(|(_, is_directory)| !is_directory)
        .map(|(path, _)| path)
        .collect();
    let whole = |path: &PathBuf| fs::read(good.join(path)).unwrap();
    let filled: Vec<_> = files.iter().filter(|path| !whole(path).is_empty()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(16);
    for number in 0..20 {
        let bad = at.join(format!("bad-{number}"));
        copy_tree(&good, &bad);
        let file = *filled.choose(&mut random).unwrap();
        let path = bad.join(file);
        let mut bytes = whole(file);
        let what = match number % 5 {
            0 => {
                let position = random.random_range(0..bytes.len());
                bytes[position] ^= 1 << random.random_range(0..8);
                fs::write(&path, bytes).unwrap();
                format!("byte {position} of {}", file.display())
            }
            1 => {
                bytes.truncate(random.random_range(0..bytes.len()));
                fs::write(&path, bytes).unwrap();
                format!("the end of {}", file.display())
            }
            2 => {
                fs::remove_file(&path).unwrap();
                format!("all of {}", file.display())
            }
            3 => {
                let other = **filled
                    .iter()
                    .filter(|other| whole(other) != bytes)
                    .collect::<Vec<_>>()
                    .choose(&mut random)
                    .unwrap();
                fs::write(&path, whole(other)).unwrap();
                fs::write(bad.join(other), bytes).unwrap();
                format!("{} for {}", file.display(), other.display())
            }
            _ => {
                let manifest = bad.join("manifest.json");
                let text = fs::read_to_string(&manifest).unwrap();
                let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
                let digits: Vec<_> = (0..lines.len())
                    .filter(|at| lines[*at].contains(|c: char| c.is_ascii_digit()))
                    .collect();
                let line = *digits.choose(&mut random).unwrap();
                let digit = lines[line].rfind(|c: char| c.is_ascii_digit()).unwrap();
                let other = if &lines[line][digit..=digit] == "7" { "8" } else { "7" };
                lines[line].replace_range(digit..=digit, other);
                fs::write(&manifest, lines.join("\n") + "\n").unwrap();
                format!("the manifest's line {line}")
            }
        };
        let bad = bad.to_str().unwrap();
        let checked = run(at, &["backup", "--verify", bad]);
        assert_eq!(checked.code, 1, "{what}: {}", checked.stdout);
        let restored = run(at, &["restore", bad, "--data-dir", "new"]);
        assert_eq!(restored.code, 1, "{what}: {}", restored.stdout);
        assert!(!at.join("new").exists() && !at.join("new.restoring").exists(), "{what}");
    }
    // The undamaged backup can be restored.
    assert_eq!(run(at, &["restore", "backups", "--data-dir", "new"]).code, 0);
    run(at, &["restore", "backups", "--data-dir", "new"]).refuses(1, &["new", "is not empty"]);
    run(at, &["backup", "--data-dir", "d", "d/backups"])
        .refuses(1, &["is inside the data directory"]);
    run(at, &["backup", "--verify", "nothing"]).refuses(1, &["there is no directory nothing"]);
}

#[test]
fn damaged_shared_files_are_copied_again_and_old_backups_removed() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import(at, &Chain::made(4, 40), 40, "d");
    let backup = || run(at, &["backup", "--data-dir", "d", "backups", "--keep", "2"]).json();
    let (first, second) = (backup(), backup());
    let files = second["files"].as_u64().unwrap();
    let table = tree(&at.join(second["backup"].as_str().unwrap()))
        .into_keys()
        .find(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .unwrap();
    let table = at.join(second["backup"].as_str().unwrap()).join(table);
    let mut bytes = fs::read(&table).unwrap();
    bytes[100] ^= 1;
    fs::write(&table, bytes).unwrap();
    let third = backup();
    let shared = |made: &Value| made["shared_files"].as_u64().unwrap();
    assert!(shared(&first) == 0 && shared(&third) > 0 && shared(&third) < files, "{third}");
    assert_eq!(third["removed"], 1);
    assert!(!at.join(first["backup"].as_str().unwrap()).exists());
    let third = third["backup"].as_str().unwrap();
    assert_eq!(run(at, &["backup", "--verify", third]).code, 0);
    // Verifying the whole directory also covers the second backup, which is damaged.
    let both = run(at, &["backup", "--verify", "backups", "--json"]);
    assert_eq!((both.code, both.stdout.lines().count()), (1, 1), "{}", both.stderr);
}

#[test]
fn a_killed_backup_or_restore_leaves_no_partial_result() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import(at, &Chain::made(5, 40), 40, "d");
    // Large enough for a kill in the middle of the copy.
    fs::create_dir_all(at.join("d/sandbox")).unwrap();
    fs::write(at.join("d/sandbox/journal"), vec![7; 96 << 20]).unwrap();
    let service = Service::start_in(at, &["--data-dir", "d"]);
    let killed = |arguments: &[&str], begun: &dyn Fn() -> bool| {
        let mut child = orrery_in(at)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("it has begun", begun);
        assert!(signal::send(child.id(), Signal::KILL));
        assert_eq!(child.wait().unwrap().code(), None, "it was in the middle");
    };
    let copied = |root: &str| {
        let found =
            fs::read_dir(at.join(root)).into_iter().flatten().map(|entry| entry.unwrap().path());
        let unfinished = found.filter(|path| path.to_string_lossy().contains(".unfinished"));
        unfinished.map(|path| path.join("sandbox/journal")).any(|path| path.exists())
    };
    killed(&["backup", "--data-dir", "d", "backups"], &|| copied("backups"));
    assert!(copied("backups"), "something is left");
    run(at, &["restore", "backups", "--data-dir", "new"]).refuses(1, &["there is no backup"]);
    wait_until("the service removes the checkpoint", || {
        fs::read_dir(at.join("d/checkpoints")).unwrap().count() == 0
    });
    run(at, &["backup", "--data-dir", "d", "backups"]).json();
    assert!(!copied("backups"), "leftover files are removed");
    service.stop();

    let begun = || {
        at.join("new.restoring/unfinished/sandbox/journal").exists()
            || at.join("new.restoring/unfinished/raw.unfinished").exists()
    };
    killed(&["restore", "backups", "--data-dir", "new"], &begun);
    assert!(!at.join("new").exists());
    let is_refused = |left, why| run(at, &["status", "--data-dir", left]).refuses(1, &[why]);
    is_refused("new", "there is no data directory new");
    is_refused("new.restoring", "holds nothing yet");
    assert_eq!(run(at, &["restore", "backups", "--data-dir", "new"]).code, 0);
    assert_eq!(covered(at, "new"), covered(at, "d"));
    assert!(!at.join("new.restoring").exists() && !at.join("new.restoring.lock").exists());
}

#[test]
fn a_backup_tells_what_is_attested() {
    let Some(data) = ledgers() else { return };
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = data.join("lake-pubnet");
    run(at, &["import", "--json", "--data-dir", "d", lake.to_str().unwrap()]).json();
    let attested = |made: &Value| made["ranges"][0]["attested_ledger"].clone();
    let made = run(at, &["backup", "--data-dir", "d", "b"]).json();
    assert_eq!(attested(&made), 63_092_986);
    let service = Service::start_in(at, &["--data-dir", "d"]);
    assert_eq!(attested(&run(at, &["backup", "--data-dir", "d", "b"]).json()), 63_092_986);
    service.stop();
    let checked = run(at, &["backup", "--verify", "b", "--json"]);
    assert_eq!((checked.code, checked.stdout.lines().count()), (0, 2), "{}", checked.stderr);
    // What a restored data directory has is read from the signatures in it, whoever is trusted then.
    let name = made["backup"].as_str().unwrap();
    assert_eq!(run(at, &["restore", name, "--data-dir", "restored"]).code, 0);
    assert_eq!(covered(at, "restored"), covered(at, "d"));
    assert_eq!(covered(at, "restored")[0]["attested_ledger"], 63_092_986);
}

/// The service goes on with a backfill from sources that whoever could write the backup has named.
#[test]
fn a_restoration_tells_of_the_backfill_that_it_brings_along() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    import(at, &Chain::made(5, 10), 10, "d");
    let order = at.join("d/backfill.json");
    for (text, told) in [
        (None, None),
        (
            Some(r#"{"from":3,"to":9,"sources":["rpc:http://me:word@192.0.2.1"]}"#),
            Some(
                "a backfill of ledgers 3 to 9 that was not done: the service goes on with it from the source",
            ),
        ),
        (Some("{"), Some("it does not contain a backfill order")),
    ] {
        match text {
            Some(text) => fs::write(&order, text).unwrap(),
            None => assert!(!order.exists()),
        }
        let made = run(at, &["backup", "--data-dir", "d", "b"]).json();
        let restored = run(at, &["restore", made["backup"].as_str().unwrap(), "--data-dir", "r"]);
        restored.succeeded();
        let said = &restored.stderr;
        assert_eq!(said.contains("backfill"), told.is_some(), "{said}");
        assert!(said.contains(told.unwrap_or_default()) && !said.contains("word"), "{said}");
        fs::remove_dir_all(at.join("r")).unwrap();
    }
}
