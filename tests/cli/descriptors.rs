//! Commands that may open only few files: the message says so, and never that data is damaged.

use std::process::Command;

use orrery_testkit::binary::{Ran, run};
use orrery_testkit::lake_files::{Chain, LakeFiles};

#[test]
fn too_few_descriptors_are_not_taken_for_damage() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lake = LakeFiles::with(&Chain::made(1, 40), 2..=40);
    run(at, &["import", "--data-dir", "d", "--network", "local", &lake.text()]).succeeded();
    let binary = env!("CARGO_BIN_EXE_orrery");
    let mut advised = 0;
    // The database of a few ledgers needs few files, in some runs fewer than 16.
    for limit in (6..16).chain((16..=120).step_by(8)) {
        let issue = "token issue --data-dir d --sub a";
        let script = format!("ulimit -n {limit} && exec {binary} {issue}");
        let ran: Ran =
            Command::new("sh").args(["-c", &script]).current_dir(at).output().unwrap().into();
        assert!(!ran.stderr.contains("backup"), "{limit}: {}", ran.stderr);
        if ran.code != 0 {
            assert_eq!(ran.code, 1, "{limit}: {}", ran.stderr);
            advised += usize::from(ran.stderr.contains("raise `ulimit -n`"));
        }
    }
    assert!(advised > 0, "no limit was too low for the database");
    // What was not read is not damaged.
    let mut advised = 0;
    for limit in (6..40).step_by(2) {
        let script = format!("ulimit -n {limit} && exec {binary} verify --data-dir d");
        let ran: Ran =
            Command::new("sh").args(["-c", &script]).current_dir(at).output().unwrap().into();
        let text = format!("{limit}: {}{}", ran.stdout, ran.stderr);
        assert!(!text.contains("backup") && !text.contains("problem was found"), "{text}");
        assert!(!text.contains("problems were found") && !text.contains("panicked"), "{text}");
        assert!([0, 1].contains(&ran.code), "{text}");
        advised += usize::from(ran.stderr.contains("raise `ulimit -n`"));
    }
    assert!(advised > 0, "no limit was too low for verify");
    // A service that cannot get what it needs says so.
    for limit in [40, 52, 56, 60, 64, 68, 72, 80] {
        let script = format!(
            "ulimit -n {limit} && exec timeout -s INT 20 {binary} demo --listen 127.0.0.1:0 --data-dir demo{limit}"
        );
        let ran: Ran =
            Command::new("sh").args(["-c", &script]).current_dir(at).output().unwrap().into();
        let text = format!("{limit}: {}{}", ran.stdout, ran.stderr);
        assert!(!text.contains("panicked") && !text.contains("backup"), "{text}");
        assert!([0, 1, 124].contains(&ran.code), "{text}");
        if ran.code != 1 {
            break;
        }
    }
    run(at, &["status", "--data-dir", "d"]).succeeded();
    run(at, &["verify", "--data-dir", "d"]).succeeded();
}
