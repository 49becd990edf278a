//! File modes: other accounts of the machine can read nothing of a service.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use orrery::domain::Network;
use orrery::store::Store;
use tempfile::TempDir;

use orrery_testkit::binary::{Ran, Service, command, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};
use orrery_testkit::program;
use orrery_testkit::wait::wait_until;

const NOT_OWNER: u32 = 0o077;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Paths under a directory that accounts other than the owner may read, write or enter, with their
/// modes.
fn open_to_others(directory: &Path) -> Vec<(PathBuf, u32)> {
    let mut open = Vec::new();
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if mode(&path) & NOT_OWNER != 0 && !kind.is_symlink() {
            open.push((path.clone(), mode(&path)));
        }
        if kind.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    open
}

#[test]
fn files_of_a_service_are_private() {
    let directory = tempfile::tempdir().unwrap();
    let (at, data) = (directory.path(), directory.path().join("d"));
    // Open to others, as an operator may have created it.
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let (demo, told) = Service::demo(at, &[]);
    let wallet = told["passkey_wallets"][0].as_str().unwrap();
    for path in ["events/by-ledger?limit=1", &format!("passkey-indexer/api/wallet/{wallet}")] {
        wait_until("the demo answers", || {
            let (status, _) = demo.ask(&format!("/rest/{path}"), told["token"].as_str());
            (status == 200).then_some(())
        });
    }
    let base = format!("{}/rest", demo.base);
    let token = told["token"].as_str().unwrap();
    wait_until("SQL is answered", || {
        let query = ["query", "select count(*) from market.trade", "--base", &base];
        run(at, &[&query[..], &["--jwt", token]].concat()).code == 0
    });
    wait_until("tables are filled", || {
        let files = fs::read_dir(data.join("tables")).ok()?.count();
        (files > 0 && data.join("compiled").exists()).then_some(())
    });

    let secret = "rpc:http://user:sekret-pw@127.0.0.1:9";
    let arguments = ["backfill", "--data-dir", "d", "--from", "5", "--to", "2000000000"];
    let order = [&arguments[..], &["--source", secret, "--detach", "--json"]].concat();
    let begun = run(at, &order);
    // The demo has fewer ledgers, so the order is refused; the refusal must not contain the
    // password either.
    assert!(
        !begun.stdout.contains("sekret") && !begun.stderr.contains("sekret"),
        "{}",
        begun.stderr
    );
    assert_eq!(open_to_others(&data), [], "while it runs");
    assert!(data.join("control.sock").exists());
    demo.stop();
    assert_eq!(open_to_others(&data), [], "after it has ended");
}

#[test]
fn a_backfill_with_a_password_is_private_and_resumes_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (at, file) = (directory.path(), directory.path().join("d/backfill.json"));
    let arguments = ["--data-dir", "d", "--network", "testnet"];
    let service = Service::start_in(at, &arguments);
    let source = ["--source", "rpc:http://user:sekret-pw@127.0.0.1:9"];
    let order = ["backfill", "--data-dir", "d", "--from", "5", "--to", "10", "--detach", "--json"];
    let status = ["backfill", "--data-dir", "d", "--status", "--json"];
    let shown = run(at, &[&order[..], &source].concat());
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert_eq!(mode(&file), 0o600);
    let output = wait_until("the status names the cause of the wait", || {
        let output = run(at, &status).stdout;
        output.contains("cannot be asked").then_some(output)
    });
    for text in [shown.stdout, output] {
        assert!(!text.contains("sekret") && !text.contains("user:"), "{text}");
    }
    service.stop();

    // As in a copy of the directory that was made without the modes of its files.
    assert!(fs::read_to_string(&file).unwrap().contains("sekret-pw"), "it is needed again");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let service = Service::start_in(at, &arguments);
    wait_until("the order goes on", || run(at, &status).stdout.contains("running"));
    assert_eq!(mode(&file), 0o600);
    assert_eq!(run(at, &["backfill", "--data-dir", "d", "--cancel"]).code, 0);
    wait_until("the order is forgotten", || !file.exists());
    drop(service);
    assert_eq!(open_to_others(&at.join("d")), []);
}

/// A directory that is shared with other accounts keeps its mode: restricting it would lock them
/// out.
#[test]
fn a_shared_directory_keeps_its_mode() {
    let network = Network::from_name_or_passphrase("testnet");
    let opened = |mode: u32, owner: Option<u32>| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        // Only root may change the owner.
        let given = owner.map(|owner| std::os::unix::fs::chown(path, Some(owner), None));
        drop(Store::open(path, Some(&network)).unwrap());
        given.is_none_or(|given| given.is_ok()).then(|| self::mode(path))
    };
    assert_eq!(opened(0o755, None), Some(0o700));
    assert_eq!(opened(0o2770, None), Some(0o2700), "other bits stay");
    assert_eq!(opened(0o1777, None), Some(0o1777));
    assert!(matches!(opened(0o775, Some(12_345)), None | Some(0o775)));
}

/// An account other than root.
const OTHER: u32 = 65_534;

/// A working directory for commands of [`OTHER`], with a copy of the program: that account may not
/// enter the directory in which it was built. `None` when this process is not root's, which alone may
/// run commands as another account.
fn shared_with_other() -> Option<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    if fs::metadata(at).unwrap().uid() != 0 {
        println!("skipped: only root may run commands as another account");
        return None;
    }
    fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
    let program = at.join("orrery");
    fs::copy(program::orrery(), &program).unwrap();
    Some((directory, program))
}

/// Runs a command on the data directory `d` of a working directory, as another account.
fn run_as_other(program: &Path, arguments: &[&str]) -> Ran {
    let mut command = command(program);
    command.current_dir(program.parent().unwrap()).uid(OTHER).gid(OTHER);
    command.args(arguments).args(["--data-dir", "d"]).output().unwrap().into()
}

#[test]
fn a_directory_of_another_account_is_not_called_empty() {
    let Some((directory, program)) = shared_with_other() else { return };
    let network = Network::from_name_or_passphrase("testnet");
    drop(Store::open(&directory.path().join("d"), Some(&network)).unwrap());
    for arguments in [
        &["status"][..],
        &["verify"],
        &["token", "list"],
        &["serve", "--network", "testnet"],
        &["backfill", "--status"],
        &["export", "--into", "e"],
    ] {
        run_as_other(&program, arguments).refuses(
            1,
            &["belongs to root and cannot be read", "sudo -u root", "chown -R ", " d`"],
        );
    }
    let doctor = run_as_other(&program, &["doctor"]);
    assert_eq!(doctor.stdout.matches("broken  secrets").count(), 1, "{}", doctor.stdout);
}

/// Paths below a directory that do not belong to [`OTHER`].
fn not_of_other(directory: &Path) -> Vec<PathBuf> {
    let paths = entries(directory).into_iter().map(|(path, _)| path);
    paths.filter(|path| fs::symlink_metadata(path).unwrap().uid() != OTHER).collect()
}

/// What changes when an entry of a directory is written to: its inode, mode, time of change in
/// seconds and nanoseconds, and length.
type Entry = (u64, u32, i64, i64, u64);

/// Returns all paths of a directory.
fn entries(directory: &Path) -> Vec<(PathBuf, Entry)> {
    let mut found = Vec::new();
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let it = fs::symlink_metadata(&path).unwrap();
        if it.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push((path, (it.ino(), it.mode(), it.ctime(), it.ctime_nsec(), it.len())));
    }
    found.sort();
    found
}

#[test]
fn commands_of_root_leave_nothing_that_the_owner_cannot_use() {
    let Some((directory, program)) = shared_with_other() else { return };
    let at = directory.path();
    let files = LakeFiles::with(&Chain::made(7, 40), 2..=40);
    let lake = files.text();
    // Only root can read what is imported, and write where the copies go.
    fs::create_dir(at.join("private")).unwrap();
    fs::set_permissions(at.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::create_dir(at.join("d")).unwrap();
    chown(at.join("d"), Some(OTHER), Some(OTHER)).unwrap();
    for arguments in [
        &["token", "issue", "--sub", "a", "--network", "local"][..],
        &["import", &lake],
        &["status"],
        &["doctor"],
        &["token", "list"],
        &["verify"],
        &["backfill", "--status"],
        &["export", "--into", "private/e"],
        &["backup", "private/b"],
        &["rebuild", "smart_accounts"],
        // Revoked, although this one was not issued here.
        &["token", "revoke", "x"],
    ] {
        let ran = run(at, &[arguments, &["--data-dir", "d"]].concat());
        let code = i32::from(arguments.contains(&"revoke"));
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
        assert_eq!(not_of_other(&at.join("d")), [] as [PathBuf; 0], "{arguments:?}");
    }
    for arguments in [&["token", "issue", "--sub", "b"][..], &["status"], &["verify"]] {
        let ran = run_as_other(&program, arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    }
    // As an earlier version left it.
    chown(at.join("d/raw/CURRENT"), Some(0), Some(0)).unwrap();
    for arguments in [&["serve", "--no-source"][..], &["status"], &["verify"]] {
        run_as_other(&program, arguments)
            .refuses(1, &["d/raw/CURRENT belongs to root", "sudo chown -R ", " d"]);
    }
    chown(at.join("d/raw/CURRENT"), Some(OTHER), None).unwrap();
    chown(at.join("d/secrets/tokens.jsonl"), Some(0), None).unwrap();
    run_as_other(&program, &["token", "list"]).refuses(1, &["d/secrets/tokens.jsonl belongs to"]);
    let doctor = run_as_other(&program, &["doctor"]);
    assert!(doctor.stdout.contains("d/secrets/tokens.jsonl belongs to root"), "{}", doctor.stdout);
}

#[test]
fn a_restored_directory_is_made_for_the_account_of_the_backup() {
    let Some((directory, program)) = shared_with_other() else { return };
    let at = directory.path();
    fs::create_dir(at.join("d")).unwrap();
    chown(at.join("d"), Some(OTHER), Some(OTHER)).unwrap();
    let issue = ["token", "issue", "--sub", "a", "--network", "local", "--data-dir", "d"];
    run(at, &issue).succeeded();
    run(at, &["backup", "b", "--data-dir", "d"]).succeeded();
    let restore = ["restore", "b", "--data-dir", "r"];
    let mut by_other = command(&program);
    by_other.current_dir(at).uid(OTHER).gid(OTHER).args(restore);
    let refused: Ran = by_other.output().unwrap().into();
    refused.refuses(1, &["cannot write in the directory", "place where this account may write"]);
    let restored = run(at, &restore);
    restored.succeeded();
    for part in ["r belongs to root, and the backup to ", "sudo chown -R ", " r`"] {
        assert!(restored.stderr.contains(part), "{}", restored.stderr);
    }
}

#[test]
fn commands_that_look_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let files = LakeFiles::with(&Chain::made(7, 40), 2..=40);
    let lake = files.text();
    let import = ["import", "--data-dir", "d", "--network", "local", &lake];
    run(at, &import).succeeded();
    run(at, &["token", "issue", "--data-dir", "d", "--sub", "a"]).succeeded();
    // The first export after an import brings the index of names to its end.
    run(at, &["export", "--into", "first", "--data-dir", "d"]).succeeded();
    let before = entries(&at.join("d"));
    for arguments in [
        &["status"][..],
        &["doctor"],
        &["token", "list"],
        &["verify"],
        &["backfill", "--status"],
        &["export", "--into", "e"],
    ] {
        let ran = run(at, &[arguments, &["--data-dir", "d"]].concat());
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert_eq!(entries(&at.join("d")), before, "{arguments:?}");
    }
}
