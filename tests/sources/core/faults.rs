//! Every fault of a core process, and what remains of it.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use orrery::source::captive_core::{CoreSource, Limits, Mode};

use super::fetching::Fetching;
use super::stand_in::{CHAIN, OfChain, StandIn, cores};
use orrery_testkit::wait::wait_in_task;

/// Core's fault before ledger 90, part of the error message, and whether the storage is wiped.
const FAULTS: &[(&str, &str, bool)] = &[
    ("crash", "stellar-core ended after ledger 89 with signal 6 (its last lines: ", true),
    ("tear", "it is cut off: it ends inside the ledger", true),
    ("exit", "with exit status 1 (its last lines: ", true),
    ("end", "stellar-core ended after ledger 89 with exit status 0", false),
    ("skip", "stellar-core streams ledger 91 where ledger 90 should come", true),
    ("no_mark", "0x7f000001 is not the mark of a whole record", true),
    ("huge", "longer than 256 MiB", true),
    ("garbage", "LedgerCloseMeta version 151587081 is not known", true),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_is_reported_and_core_restarted() {
    for (what, sentence, wiped) in FAULTS {
        let stand_in = StandIn::new().fault("run", 90, what);
        let storage = tempfile::tempdir().unwrap();
        let settings = stand_in.settings(storage.path(), Mode::Online, 70);
        let mut fetching = Fetching::open(settings).await;
        fetching.poll_until(CHAIN.last()).await;
        let error = fetching.only_error();
        assert!(error.contains(sentence), "{what}: {error}");
        assert!(!error.contains('\n') && error.len() < 2500, "{what}: {error}");
        let after = &stand_in.commands()[4..];
        assert_eq!(after.contains(&"catchup 89/0".to_owned()), *wiped, "{what}: {after:?}");
        assert_eq!(cores(storage.path()).len(), 1, "{what}");
    }
}

#[tokio::test]
async fn errors_contain_the_last_log_lines_of_core() {
    let stand_in = StandIn::new().fault("run", 90, "exit");
    let storage = tempfile::tempdir().unwrap();
    let settings = stand_in.settings(storage.path(), Mode::Online, 70);
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(100).await;
    let error = fetching.only_error();
    assert!(error.contains("[Ledger ERROR] it was told to fail"), "{error}");
    assert!(error.contains("closed ledger 89 | "), "{error}");
    assert!(!error.contains("closed ledger 80"), "only the last lines: {error}");
}

#[tokio::test]
async fn unusual_but_valid_behaviour_is_tolerated() {
    for what in ["repeat", "dribble"] {
        let stand_in = StandIn::new().fault("run", 90, what).with("leaves_child", true);
        let storage = tempfile::tempdir().unwrap();
        let settings = stand_in.settings(storage.path(), Mode::Online, 70);
        let mut fetching = Fetching::open(settings).await;
        fetching.poll_until(CHAIN.last()).await;
        assert_eq!(fetching.errors, [""; 0], "{what}");
        let start = Instant::now();
        drop(fetching);
        assert!(start.elapsed() < Duration::from_secs(5), "a child holds the pipe for longer");
    }
}

#[tokio::test]
async fn failed_commands_before_the_stream_are_retried() {
    for (command, error) in [
        ("new-db", "stellar-core new-db ended with exit status 1 (its last lines: "),
        ("catchup", "stellar-core catchup 69/0 ended with exit status 1"),
    ] {
        let stand_in = StandIn::new().fault(command, 0, "exit");
        let storage = tempfile::tempdir().unwrap();
        let settings = stand_in.settings(storage.path(), Mode::Online, 70);
        let mut fetching = Fetching::open(settings).await;
        fetching.poll_until(CHAIN.last()).await;
        assert!(fetching.only_error().starts_with(error), "{}", fetching.errors[0]);
    }
    // A storage that core itself cannot read is recreated without an error.
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let open = |first| Fetching::open(stand_in.settings(storage.path(), Mode::Online, first));
    open(70).await.poll_until(80).await;
    fs::write(storage.path().join("core/stellar.db"), "torn").unwrap();
    assert_eq!(open(81).await.poll_until(90).await.errors, [""; 0]);
    assert!(stand_in.commands().contains(&"catchup 80/0".to_owned()));
}

#[tokio::test]
async fn a_restarted_core_counts_as_failing_until_it_streams() {
    let hangs = serde_json::json!([{ "command": "catchup", "what": "hang", "times": 9 }]);
    let storage = tempfile::tempdir().unwrap();
    let mut stand_in = StandIn::new().with("faults", hangs.clone());
    let mut settings = stand_in.settings(storage.path(), Mode::Online, 70);
    settings.limits.answer = Duration::from_millis(50);
    let mut fetching = Fetching::open(settings.clone()).await;
    while !stand_in.commands().contains(&"catchup 69/0".to_owned()) {
        assert!(!fetching.poll().await);
    }
    assert_eq!(fetching.errors, [""; 0], "a catch-up may take long");
    drop(fetching);

    stand_in.change(
        "faults",
        serde_json::json!([{ "command": "run", "at": 90, "what": "crash", "times": 9 }]),
    );
    let mut fetching = Fetching::open(settings).await;
    while fetching.errors.is_empty() {
        fetching.poll().await;
    }
    stand_in.change("faults", hangs);
    while fetching.errors.len() < 3 {
        fetching.poll().await;
    }
    assert!(fetching.errors[0].contains("signal 6"), "{:?}", fetching.errors);
    assert!(
        fetching.errors[2]
            .ends_with("it was started again and has not come to the next ledger yet"),
        "{:?}",
        fetching.errors
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_core_that_does_not_stop_is_killed() {
    let stand_in = StandIn::new().with("ignores_interrupt", true);
    for mode in [Mode::Online, Mode::Standalone] {
        let storage = tempfile::tempdir().unwrap();
        let first = if mode == Mode::Online { 70 } else { 2 };
        let mut settings = stand_in.settings(storage.path(), mode, first);
        settings.limits.stop = Duration::from_millis(300);
        settings.http_port = super::free_port();
        let mut fetching = Fetching::open(settings).await;
        fetching.poll_until(100).await;
        let start = Instant::now();
        drop(fetching);
        let took = start.elapsed();
        let expected = Duration::from_millis(300)..Duration::from_secs(5);
        assert!(expected.contains(&took), "{took:?}");
        assert_eq!(cores(storage.path()), [0; 0]);
    }
}

#[tokio::test]
async fn core_can_be_stopped_at_any_moment() {
    let storage = tempfile::tempdir().unwrap();
    for command in ["offline-info", "new-db", "catchup", "run"] {
        let stand_in = StandIn::new().fault(command, 0, "hang");
        let settings = stand_in.settings(storage.path(), Mode::Online, 70);
        let mut fetching = Fetching::open(settings).await;
        while !stand_in.commands().iter().any(|called| called.starts_with(command)) {
            fetching.poll().await;
        }
        let start = Instant::now();
        drop(fetching);
        assert!(start.elapsed() < Limits::default().stop, "{command} had to be killed");
        assert_eq!(cores(storage.path()), [0; 0], "{command}");
        // Each command begins with empty storage.
        let _ = fs::remove_dir_all(storage.path().join("core"));
    }
    // Ledgers are not fetched, so core blocks on its output.
    let mode = Mode::Bounded { to: orrery::domain::LedgerSeq(CHAIN.last()) };
    let stand_in = StandIn::new();
    stand_in.archive(383, None);
    let mut settings = stand_in.settings(storage.path(), mode, 2);
    settings.limits.ledgers_in_memory = 1;
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(2).await;
    let start = Instant::now();
    drop(fetching);
    assert!(start.elapsed() < Limits::default().stop, "it was not read from");
    assert_eq!(cores(storage.path()), [0; 0]);
}

#[tokio::test]
async fn a_leftover_core_is_stopped_first() {
    for ignores in [false, true] {
        let stand_in = StandIn::new().with("ignores_interrupt", ignores);
        let storage = tempfile::tempdir().unwrap();
        let mut settings = stand_in.settings(storage.path(), Mode::Online, 70);
        settings.limits.stop = Duration::from_millis(500);
        drop(CoreSource::open(settings.clone()).await.unwrap());
        // As a killed process leaves it: core still runs, because something else holds its pipes,
        // here /dev/null.
        let work = storage.path().canonicalize().unwrap().join("core");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("stellar-core.conf"), "CATCHUP_COMPLETE = true").unwrap();
        fs::write(work.join("stellar.db"), "1").unwrap();
        let mut left = Command::new(stand_in.program());
        left.arg("--conf").arg(work.join("stellar-core.conf")).arg("--console").arg("run");
        left.args(["--metadata-output-stream", "fd:3"]).current_dir(&work);
        let mut left = with_descriptor_3(left).spawn().unwrap();
        let last = CHAIN.last().to_string();
        let closed = || fs::read_to_string(work.join("stellar.db")).unwrap();
        wait_in_task("core has closed all ledgers", || closed() == last).await;
        assert_eq!(cores(storage.path()), [left.id() as i32]);
        let mut fetching = Fetching::open(settings).await;
        let waits = std::thread::spawn(move || left.wait().unwrap());
        fetching.poll_until(80).await;
        assert_eq!(fetching.errors, [""; 0]);
        assert_eq!(waits.join().unwrap().success(), !ignores, "cleanly, when it lets itself");
        assert_eq!(cores(storage.path()).len(), 1);
    }
}

/// Runs a command through a shell that opens /dev/null as descriptor 3.
fn with_descriptor_3(command: Command) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg("exec \"$0\" \"$@\" 3>>/dev/null").arg(command.get_program());
    shell.args(command.get_args()).process_group(0);
    shell.current_dir(command.get_current_dir().unwrap());
    shell.stdin(Stdio::null()).stdout(Stdio::null());
    shell
}
