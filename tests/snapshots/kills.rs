//! Commands that are killed at any moment go on where they were, and leave nothing that counts.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orrery_testkit::provider::Reply;
use orrery_testkit::s3::KEY_ID;
use orrery_testkit::size;
use orrery_testkit::wait::wait_until;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::world::{PASSPHRASE_FILE, PLACE, World, content};

/// Runs a command again and again until it ends, or has done its work, and kills it at most that many times at any
/// moment. Returns how often.
fn killed(
    world: &World,
    arguments: &[&str],
    kills: u64,
    is_done: &dyn Fn() -> bool,
    random: &mut ChaCha8Rng,
) -> u64 {
    let mut count = 0;
    // About as long as a command takes that nobody kills.
    let whole = Duration::from_secs(3);
    loop {
        let mut command = world.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let begun = Instant::now();
        let mut child = command.spawn().unwrap();
        let until = begun + whole.mul_f64(random.random_range(0.05..1.0));
        let is_left_alone = count == kills;
        let ended = wait_until("the command ends, or is to be killed", || {
            let ended = child.try_wait().unwrap();
            let is_over = ended.is_some() || (!is_left_alone && Instant::now() > until);
            is_over.then_some(ended)
        });
        match ended {
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                count += 1;
                if is_done() {
                    return count;
                }
            }
            Some(status) => {
                let output = child.wait_with_output().unwrap();
                assert!(status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                return count;
            }
        }
    }
}

/// A backup and a restoration that are killed again and again end with the same data; what the backup has uploaded is
/// not uploaded again.
#[test]
fn killed_commands_go_on() {
    let world = World::new(12, 50);
    // Enough for kills in the middle; of an encrypted snapshot it is a part.
    fs::create_dir_all(world.at().join("d/sandbox")).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(12);
    let mut journal = vec![0u8; 40 << 20];
    random.fill(&mut journal[..]);
    fs::write(world.at().join("d/sandbox/journal"), &journal).unwrap();
    let encrypt = ["--encrypt", "--passphrase-file", PASSPHRASE_FILE];
    let backup = [&["backup", "--data-dir", "d", "--to", PLACE], &encrypt[..]].concat();
    let restore =
        ["restore", "--from", PLACE, "--data-dir", "r", "--passphrase-file", PASSPHRASE_FILE];
    let most = size::choose(6, 100);
    let mut done = 0;
    while done < most {
        let kills = (most / 2).clamp(1, 10);
        done += killed(&world, &backup, kills, &|| false, &mut random);
        for left in ["r", "r.restoring"] {
            // Of the round before, in which the last moment of a restoration may have been hit.
            let _ = fs::remove_dir_all(world.at().join(left));
        }
        let is_there = || world.at().join("r").exists();
        done += killed(&world, &restore, kills, &is_there, &mut random).max(1);
        assert!(fs::read(world.at().join("r/sandbox/journal")).unwrap() == journal);
        assert_eq!(content(world.at(), "r")["covered"], content(world.at(), "d")["covered"]);
    }
    // All objects with content of the journal were uploaded once, whatever was killed.
    let parts = world.server.requests().into_iter().filter(|request| {
        request.method == "PUT"
            && request.target.contains("/objects/")
            && request.body.len() > 15 << 20
    });
    let mut seen: Vec<String> = parts.map(|it| it.target).collect();
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2, "two parts of 16 MiB");
    // One that was killed while its upload was on its way is sent again.
    assert!(all as u64 <= 2 + 4 * most, "{all}");
}

/// A restoration fetches only what an interrupted one has not.
#[test]
fn a_restoration_uses_what_is_there() {
    let world = World::new(13, 60);
    fs::create_dir_all(world.at().join("d/sandbox")).unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(13);
    let mut journal = vec![0u8; 40 << 20];
    random.fill(&mut journal[..]);
    fs::write(world.at().join("d/sandbox/journal"), &journal).unwrap();
    world.backup(&["--encrypt", "--passphrase-file", PASSPHRASE_FILE]);
    let objects = world.objects().into_iter().filter(|(key, _)| key.starts_with("objects/"));
    let objects: Vec<_> = objects.map(|(key, bytes)| (key, bytes.len())).collect();
    assert!(objects.len() > 3, "{objects:?}");
    let lacking = objects.iter().find(|(_, bytes)| *bytes > 15 << 20).unwrap().0.clone();
    let failed = AtomicU32::new(0);
    world.server.set_fault({
        let lacking = lacking.clone();
        move |request, honest| {
            if request.method != "GET" || !request.target.contains(&lacking) {
                return honest();
            }
            // The first answers make it wait, until all others are there.
            match failed.fetch_add(1, Ordering::SeqCst) {
                0..4 => Reply::status(503),
                _ => Reply::status(403),
            }
        }
    });
    let passphrase = ["--passphrase-file", PASSPHRASE_FILE];
    let refused = world.restore("r", &passphrase);
    refused.refuses(1, &["may not be used", "is kept in r.restoring"]);
    assert!(!refused.stderr.contains(KEY_ID) && !world.at().join("r").exists());
    world.server.clear_fault();
    let before = world.server.requests().len();
    world.restore("r", &passphrase).succeeded();
    let fetched: Vec<String> = world.server.requests()[before..]
        .iter()
        .filter(|request| request.method == "GET" && request.target.contains("/objects/"))
        .map(|request| request.target.clone())
        .collect();
    assert_eq!(fetched.len(), 1, "{fetched:?}");
    assert!(fetched[0].contains(&lacking), "{fetched:?}");
    assert!(fs::read(world.at().join("r/sandbox/journal")).unwrap() == journal);
    assert_eq!(content(world.at(), "r"), content(world.at(), "d"));
}
