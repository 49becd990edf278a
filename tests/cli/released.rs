//! Scripts that come with released files: `install.sh`, and what the Debian package does when it is purged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name)
}

/// Where the project is published, of which the packages tell.
fn address() -> String {
    let text = fs::read_to_string(packaging("publication")).unwrap();
    let address = text.lines().find_map(|line| line.strip_prefix("ADDRESS=")).unwrap();
    address.trim_matches('"').to_owned()
}

fn shell(script: &str, environment: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).envs(environment.iter().copied());
    command.output().unwrap()
}

fn has(program: &str) -> bool {
    shell(&format!("command -v {program}"), &[]).status.success()
}

/// Makes the released files of a version whose program only tells it.
fn release(at: &Path, version: &str, key: &Path) -> PathBuf {
    let files = at.join(version);
    let name = format!("orrery-{version}-linux-{}", std::env::consts::ARCH);
    let tree = files.join(&name);
    for directory in ["bin", "share/man", "share/bash-completion", "share/zsh", "share/fish"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    let program = tree.join("bin/orrery");
    fs::write(&program, format!("#!/bin/sh\necho orrery {version}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(packaging("install.sh"), files.join("install.sh")).unwrap();
    let script = format!(
        "cd {0}; tar -czf {name}.tar.gz {name}; rm -r {name}; {1} {0}",
        files.display(),
        packaging("sums").display()
    );
    let made = shell(&script, &[("SIGNING_KEY", key)]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    files
}

#[test]
fn an_older_release_is_not_installed_over_a_newer_one() {
    if !has("gpg") {
        eprintln!("skipped: gpg is missing");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (at, key) = (directory.path(), directory.path().join("key"));
    let home = at.join("gpg");
    let script = "mkdir -m 700 \"$GNUPGHOME\"
        gpg --batch --quiet --passphrase '' --quick-gen-key 'test <test@localhost>' ed25519 sign never
        gpg --batch --export-secret-keys >\"$KEY\"
        gpgconf --kill gpg-agent";
    let made = shell(script, &[("GNUPGHOME", &home), ("KEY", &key)]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let prefix = at.join("prefix");
    let install = |version: &str, more: &str| {
        let files = at.join(version);
        let files = if files.exists() { files } else { release(at, version, &key) };
        let install = format!("sh {}/install.sh --prefix \"$PREFIX\" {more}", files.display());
        let ran = shell(&install, &[("PREFIX", &prefix)]);
        (ran.status.success(), text(&ran.stderr))
    };
    let installed =
        || text(&shell("\"$PREFIX/bin/orrery\" version", &[("PREFIX", &prefix)]).stdout);
    for (version, is_taken) in [
        ("0.2.0-rc.1", true),
        ("0.2.0", true),
        ("0.2.0-rc.1", false),
        ("0.2.0", true),
        ("0.1.0", false),
        ("0.10.0", true),
        ("0.9.9", false),
    ] {
        let before = if prefix.exists() { installed() } else { String::new() };
        let (is_installed, sentence) = install(version, "");
        assert_eq!(is_installed, is_taken, "{version} over {before}: {sentence}");
        if is_taken {
            assert_eq!(installed(), format!("orrery {version}\n"));
        } else {
            assert_eq!(installed(), before, "{version}");
            let names_both = sentence.contains(before.trim()) && sentence.contains(version);
            assert!(names_both && sentence.contains("add --downgrade"), "{sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }
    assert!(install("0.1.0", "--downgrade").0);
    assert_eq!(installed(), "orrery 0.1.0\n");
}

/// In the registry, both names are those of other projects: whoever follows the package's own words runs the
/// file, and nothing else.
#[test]
fn the_npm_package_never_tells_to_run_another_one() {
    if !has("python3") {
        eprintln!("skipped: python3 is missing");
        return;
    }
    for architecture in ["x86_64", "aarch64"] {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let script =
            format!("{} {architecture} 1.2.3 {}", packaging("npm.py").display(), at.display());
        // No compiled Python in the sources.
        let made = shell(&script, &[("PYTHONDONTWRITEBYTECODE", Path::new("1"))]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
        let package: serde_json::Value = serde_json::from_str(&read("package.json")).unwrap();
        assert_eq!(package["homepage"], address());
        let file = format!("./{}-1.2.3.tgz", package["name"].as_str().unwrap());
        let readme = read("README.md");
        let run: Vec<_> = readme.split("npx ").skip(1).collect();
        assert!(run.len() > 1 && run.iter().all(|it| it.starts_with(&file)), "{readme}");
        assert!(
            !["npm install", "npm i ", "npm exec"].iter().any(|it| readme.contains(it)),
            "{readme}"
        );
    }
}

#[test]
fn a_purge_empties_disks_of_their_own_and_keeps_accounts_that_were_there_before() {
    // In mounts of its own, in which /var/lib and /etc are the test's, and without the programs that change accounts.
    let script = "mount -t tmpfs tmpfs /var/lib
        mount -t tmpfs tmpfs /etc
        echo it >/etc/passwd
        mkdir -p /var/lib/orrery/testnet/raw /var/lib/orrery/mainnet/raw \"$AT/bin\"
        case $DISK in '') ;; *) mount -t tmpfs tmpfs \"/var/lib/orrery$DISK\" ;; esac
        mkdir -p /var/lib/orrery/testnet/raw /var/lib/orrery/mainnet/raw
        for file in a testnet/b testnet/raw/.c mainnet/raw/d; do echo it >\"/var/lib/orrery/$file\"; done
        ln -s /etc/passwd /var/lib/orrery/link
        printf '#!/bin/sh\\necho \"$PASSWD\"\\n' >\"$AT/bin/getent\"
        for name in userdel groupdel; do printf '#!/bin/sh\\necho %s >>\"$AT/done\"\\n' $name >\"$AT/bin/$name\"; done
        chmod 755 \"$AT\"/bin/*
        PATH=\"$AT/bin:$PATH\" sh -e \"$POSTRM\" purge
        find /var/lib/orrery -mindepth 1 >\"$AT/left\" 2>/dev/null || true
        [ -s /etc/passwd ]";
    let ours =
        "orrery:x:998:998:Orrery, indexer of Stellar events:/var/lib/orrery:/usr/sbin/nologin";
    let other = "orrery:x:1001:1001:Olga Rrery:/home/orrery:/bin/sh";
    for (disk, left) in [
        ("", ""),
        ("/.", ""),
        ("/testnet", "/var/lib/orrery/testnet\n"),
        ("/testnet/raw", "/var/lib/orrery/testnet\n/var/lib/orrery/testnet/raw\n"),
    ] {
        for account in [ours, other] {
            let directory = tempfile::tempdir().unwrap();
            let run = Command::new("unshare")
                .args(["--mount", "sh", "-euc", script])
                .env("AT", directory.path())
                .env("POSTRM", packaging("debian/orrery.postrm"))
                .env("PASSWD", account)
                .env("DISK", disk)
                .output();
            let may_mount =
                shell("unshare --mount mount -t tmpfs tmpfs /mnt", &[]).status.success();
            let Some(ran) = run.ok().filter(|_| may_mount) else {
                eprintln!("skipped: this account may not mount");
                return;
            };
            let said = text(&ran.stderr);
            assert!(ran.status.success() && said.is_empty(), "{disk}: {said}");
            assert_eq!(fs::read_to_string(directory.path().join("left")).unwrap(), left, "{disk}");
            let done = fs::read_to_string(directory.path().join("done")).unwrap_or_default();
            let expected = if account == ours { "userdel\ngroupdel\n" } else { "" };
            assert_eq!(done, expected, "{account}");
        }
    }
}
