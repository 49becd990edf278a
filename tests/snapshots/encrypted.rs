//! Encrypted snapshots have keys and tokens, and are opened by nobody without the passphrase, but by `age`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use orrery_testkit::binary::{run, token};
use orrery_testkit::terminal::on_terminal_typing;

use super::world::{PASSPHRASE, PASSPHRASE_FILE, PLACE, World, content};

const ENCRYPT: [&str; 3] = ["--encrypt", "--passphrase-file", PASSPHRASE_FILE];

#[test]
fn an_encrypted_snapshot_has_everything_and_shows_nothing() {
    let world = World::new(14, 40);
    let alice = token(&world.at().join("d"), "alice");
    let dry = world.backup(&[&ENCRYPT[..], &["--dry-run"]].concat());
    assert!(world.objects().is_empty());
    let made = world.backup(&ENCRYPT);
    assert_eq!(made["encrypted"], true);
    for number in ["new_objects", "requests"] {
        assert_eq!(dry[number], made[number], "{number}");
    }
    let key = fs::read_to_string(world.at().join("d/secrets/token-signing-key")).unwrap();
    for (name, bytes) in world.objects() {
        for word in ["token-signing-key", "CURRENT", "sst", &key[..64], &alice] {
            let found = bytes.windows(word.len()).any(|window| window == word.as_bytes());
            assert!(!found, "{word} is in {name}");
        }
        let is_open = ["orrery.json", "claim.json"].contains(&&*name);
        assert_eq!(bytes.starts_with(b"age-encryption.org/v1\n"), !is_open, "{name}");
    }
    let read = ["--passphrase-file", PASSPHRASE_FILE];
    let restored = world.restore("r", &read);
    restored.succeeded();
    assert!(!restored.stderr.contains("are void here"), "{}", restored.stderr);
    assert_eq!(content(world.at(), "r"), content(world.at(), "d"));
    let list = |data_dir: &str| run(world.at(), &["token", "list", "--data-dir", data_dir]).stdout;
    assert_eq!(list("r"), list("d"));
    let reader = world.serve("r", &["--no-source"], &[]);
    assert_eq!(reader.ask("/rest/events/by-ledger?limit=3", Some(&alice)).0, 200);
    reader.stop();
    // The reader has its writer's key, and must not write in its place.
    let to = ["backup", "--data-dir", "r", "--to", PLACE];
    world.run(&[&to[..], &ENCRYPT].concat()).refuses(1, &["is a reader of", "orrery promote"]);
    run(world.at(), &["promote", "--data-dir", "r"]).succeeded();
    world.run(&[&to[..], &ENCRYPT].concat()).succeeded();
    // Only what is new was uploaded, under the same names.
    let verified = [&["backup", "--verify", PLACE, "--json"], &read[..]].concat();
    let verified = world.run(&verified);
    assert_eq!((verified.code, verified.stdout.lines().count()), (0, 2), "{}", verified.stderr);
}

#[test]
fn a_wrong_passphrase_opens_nothing() {
    let world = World::new(15, 20);
    let write = |text: &str| fs::write(world.at().join("other"), text).unwrap();
    let to =
        ["backup", "--data-dir", "d", "--to", PLACE, "--encrypt", "--passphrase-file", "other"];
    write("eleven char\n");
    world.run(&to).refuses(1, &["give at least 12 characters"]);
    write("");
    world.run(&to).refuses(1, &["its first line is empty"]);
    assert_eq!(world.objects().len(), 1, "the claim");
    world.backup(&ENCRYPT);
    write("another horse battery\n");
    world.run(&to).refuses(1, &["key.age is not opened by this passphrase"]);
    let other = ["--passphrase-file", "other"];
    world.restore("r", &other).refuses(1, &["key.age is not opened by this passphrase"]);
    world.restore("r", &[]).refuses(1, &["are encrypted: give the file with their passphrase"]);
    world
        .run(&["backup", "--data-dir", "d", "--to", PLACE])
        .refuses(1, &["are encrypted: add --encrypt"]);
    let missing = ["--passphrase-file", "nothing"];
    world.restore("r", &missing).refuses(1, &["cannot read the passphrase in nothing"]);
    assert!(!world.at().join("r").exists());
}

#[test]
fn a_passphrase_is_typed_twice_and_never_shown() {
    let world = World::new(16, 10);
    let access = world.access();
    let settings: Vec<_> = access.iter().map(|(name, value)| (*name, &**value)).collect();
    let to = ["backup", "--data-dir", "d", "--to", PLACE, "--encrypt"];
    let typed = format!("{PASSPHRASE}\n{PASSPHRASE}\n");
    let Some((shown, code)) = on_terminal_typing(world.at(), &to, &settings, &typed) else {
        return;
    };
    assert_eq!(code, 0, "{shown}");
    // What is typed before the question is echoed by the terminal itself, not by the command.
    assert!(shown.contains("passphrase: ") && shown.contains("the same again: "), "{shown}");
    assert!(shown.contains("signed by"), "{shown}");
    let from = ["restore", "--from", PLACE, "--data-dir", "r"];
    let typed = format!("{PASSPHRASE}\n");
    let (shown, code) = on_terminal_typing(world.at(), &from, &settings, &typed).unwrap();
    assert_eq!(code, 0, "{shown}");
    assert_eq!(content(world.at(), "r"), content(world.at(), "d"));
    let (shown, code) = on_terminal_typing(
        world.at(),
        &["backup", "--data-dir", "d", "--to", "s3://ledgers/x", "--encrypt"],
        &settings,
        "one long passphrase\nanother long one\n",
    )
    .unwrap();
    assert!(code == 1 && shown.contains("the two passphrases differ"), "{shown}");
}

/// Decrypts a file with `age`, which asks on a terminal. Returns `None` when this machine has no `age`.
fn by_age(sealed: &Path, to: &Path) -> Option<Vec<u8>> {
    if Command::new("age").arg("--version").output().is_err() {
        eprintln!("skipped: there is no age");
        return None;
    }
    let line = format!("age --decrypt -o {} {}", to.display(), sealed.display());
    let mut child = Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{PASSPHRASE}").unwrap();
    assert!(child.wait().unwrap().success());
    drop(input);
    Some(fs::read(to).unwrap())
}

/// Whoever has the objects, the passphrase and `age` has the files.
#[test]
fn age_opens_every_object() {
    let world = World::new(17, 30);
    world.backup(&ENCRYPT);
    let mut opened = std::collections::BTreeMap::new();
    for (number, (key, _)) in world.objects().into_iter().enumerate() {
        if !key.ends_with(".age") {
            continue;
        }
        let to = world.at().join(format!("opened-{number}"));
        let Some(content) = by_age(&world.object(&key), &to) else { return };
        opened.insert(key, content);
    }
    let (_, text) = opened.iter().find(|(key, _)| key.starts_with("snapshots/")).unwrap();
    let description: serde_json::Value = serde_json::from_slice(text).unwrap();
    let description = &description["description"];
    let files = description["manifest"]["files"].as_array().unwrap();
    assert!(files.len() > 4, "{files:?}");
    for (file, pieces) in files.iter().zip(description["pieces"].as_array().unwrap()) {
        let mut whole = Vec::new();
        for piece in pieces.as_array().unwrap() {
            let number = |name: &str| piece[name].as_u64().unwrap() as usize;
            let object = &opened[piece["object"].as_str().unwrap()];
            whole.extend_from_slice(&object[number("at")..number("at") + number("size")]);
        }
        use sha2::Digest;
        let sha256 = hex::encode(sha2::Sha256::digest(&whole));
        assert_eq!(file["sha256"], sha256, "{file}");
    }
}
