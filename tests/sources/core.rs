//! The captive stellar-core, replaced by a stand-in with the same command line: following ledgers,
//! and every fault that the process can have.

mod faults;
mod fetching;
mod kills;
mod queries;
mod stand_in;
mod standalone;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use orrery::domain::{LedgerRange, LedgerSeq, LedgerSource, Network, SourceError};
use orrery::source::captive_core::{CoreSource, Limits, Mode};
use toml::Table;

use fetching::Fetching;
use orrery_testkit::wait::wait_in_task;
use stand_in::{CHAIN, OfChain, StandIn, cores};

/// The command that starts core and streams ledger metadata to descriptor 3.
const RUN: &str = "run --metadata-output-stream fd:3";

/// Descriptors that every child process inherits: the standard ones, and those without
/// close-on-exec that this process was started with.
fn inherited() -> BTreeSet<u32> {
    let passed_on = |number: &u32| {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("02000000");
        // open(2): O_CLOEXEC.
        u32::from_str_radix(flags.trim(), 8).unwrap() & 0o2_000_000 == 0
    };
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    open.filter(passed_on).chain(0..3).collect()
}

fn config(storage: &Path) -> Table {
    let text = fs::read_to_string(storage.join("core/stellar-core.conf")).unwrap();
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn follows_the_network_from_the_given_ledger() {
    let stand_in = StandIn::new().with("early", true);
    let storage = tempfile::tempdir().unwrap();
    let settings = stand_in.settings(storage.path(), Mode::Online, 70);
    let mut fetching = Fetching::open(settings).await;
    let passphrase = fetching.source.passphrase().await.unwrap().unwrap();
    assert_eq!(passphrase, CHAIN.network.passphrase());
    let range = fetching.source.range().await.unwrap().unwrap();
    assert_eq!(range, LedgerRange::new(70, 69), "the next ledger is offered");
    fetching.poll_until(CHAIN.last()).await;
    assert_eq!(fetching.errors, [""; 0]);
    let range = fetching.source.range().await.unwrap().unwrap();
    assert_eq!(range, LedgerRange::new(70, CHAIN.last()));

    assert_eq!(stand_in.commands(), ["offline-info", "new-db", "catchup 69/0", RUN]);
    for call in stand_in.calls() {
        let mut expected = inherited();
        if call.arguments.ends_with("fd:3") {
            expected.insert(3);
        }
        assert_eq!(call.descriptors, expected, "{}", call.arguments);
    }
    let config = config(storage.path());
    assert_eq!(config["NETWORK_PASSPHRASE"].as_str(), Some(CHAIN.network.passphrase()));
    assert_eq!(config["BACKFILL_RESTORE_META"].as_bool(), Some(true));
    assert!(!config.contains_key("CATCHUP_COMPLETE"));

    assert_eq!(cores(storage.path()).len(), 1);
    drop(fetching);
    assert_eq!(cores(storage.path()), [0; 0], "stopped with its source");
}

#[tokio::test]
async fn resumes_from_its_storage_or_recreates_it() {
    let stand_in = StandIn::new().with("pause_us", 2_000);
    let storage = tempfile::tempdir().unwrap();
    let open = |first| Fetching::open(stand_in.settings(storage.path(), Mode::Online, first));
    assert_eq!(open(3).await.poll_until(100).await.errors, [""; 0]);
    let began = stand_in.commands();
    assert_eq!(began, ["offline-info", "new-db", "catchup 2/0", RUN]);

    // Core's storage is at this ledger, whatever was streamed and not fetched.
    let closed: u32 = closed(storage.path()).parse().unwrap();
    assert!((100..CHAIN.last()).contains(&closed));
    assert_eq!(open(closed + 1).await.poll_until(closed + 20).await.errors, [""; 0]);
    let again = &stand_in.commands()[began.len()..];
    assert_eq!(again, ["offline-info", RUN]);

    // The storage is ahead of the requested ledger, so it is recreated.
    let before = stand_in.commands().len();
    let mut fetching = open(100).await;
    fetching.poll_until(130).await;
    assert_eq!(stand_in.commands()[before..], ["offline-info", "new-db", "catchup 99/0", RUN]);

    // For an older ledger, core starts again from before it.
    fetching.next = 90;
    fetching.poll_until(CHAIN.last()).await;
    assert_eq!(fetching.errors, [""; 0]);
    assert_eq!(stand_in.commands()[before + 4..], ["offline-info", "new-db", "catchup 89/0", RUN]);
}

/// The newest ledger that the core in this storage has closed.
fn closed(storage: &Path) -> String {
    fs::read_to_string(storage.join("core/stellar.db")).unwrap()
}

#[tokio::test]
async fn starting_at_ledger_2_replays_the_whole_history() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    for asked in [1, 2] {
        let mut settings = stand_in.settings(storage.path(), Mode::Online, 2);
        settings.first = Some(LedgerSeq(asked));
        let mut fetching = Fetching::open(settings).await;
        fetching.next = 2;
        fetching.poll_until(80).await;
        assert_eq!(fetching.errors, [""; 0]);
        assert_eq!(config(storage.path())["CATCHUP_COMPLETE"].as_bool(), Some(true));
    }
    let commands = stand_in.commands();
    assert_eq!(commands[..3], ["offline-info", "new-db", RUN]);
}

#[tokio::test]
async fn starts_after_the_newest_checkpoint_by_default() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let mut settings = stand_in.settings(storage.path(), Mode::Online, 2);
    settings.first = None;
    stand_in.archive(127, Some(CHAIN.network.passphrase()));
    let mut source = CoreSource::open(settings.clone()).await.unwrap();
    let range = source.range().await.unwrap().unwrap();
    assert_eq!(range.first, LedgerSeq(128));
    drop(source);

    fs::write(stand_in.own_config(), "[QUORUM_SET]\n[HISTORY.gone]\nget = 'false'").unwrap();
    let mut source = CoreSource::open(settings).await.unwrap();
    let error = source.range().await.unwrap_err().to_string();
    assert!(error.contains("give source.start"), "{error}");
}

#[tokio::test]
async fn replays_a_closed_range() {
    let stand_in = StandIn::new().with("early", true);
    let storage = tempfile::tempdir().unwrap();
    let to = LedgerSeq(200);
    let settings = stand_in.settings(storage.path(), Mode::Bounded { to }, 70);
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(CHAIN.last()).await;
    assert!(fetching.ended);
    assert_eq!((fetching.next, &fetching.errors[..]), (201, &[][..]));
    let range = "catchup 200/131 --metadata-output-stream fd:3";
    assert_eq!(stand_in.commands(), ["new-db", range]);
    let left: Vec<_> = fs::read_dir(storage.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "only the locks: {left:?}");
}

#[tokio::test]
async fn an_interrupted_replay_resumes() {
    let storage = tempfile::tempdir().unwrap();
    let mode = Mode::Bounded { to: LedgerSeq(120) };
    for (what, sentence) in [
        ("crash", "stellar-core ended after ledger 89 with signal 6"),
        ("tear", "it is cut off: it ends inside the ledger"),
        ("end", "stellar-core ended after ledger 89 with exit status 0"),
    ] {
        let stand_in = StandIn::new().fault("catchup", 90, what);
        let settings = stand_in.settings(storage.path(), mode.clone(), 40);
        let mut fetching = Fetching::open(settings).await;
        fetching.poll_until(CHAIN.last()).await;
        assert!(fetching.ended && fetching.next == 121);
        assert!(fetching.only_error().contains(sentence), "{}", fetching.errors[0]);
        assert_eq!(stand_in.commands()[3], "catchup 120/31 --metadata-output-stream fd:3");
    }
}

#[tokio::test]
async fn ledgers_missing_from_the_archive_are_an_error() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    stand_in.archive(63, None);
    let mode = Mode::Bounded { to: LedgerSeq(64) };
    let mut fetching = Fetching::open(stand_in.settings(storage.path(), mode, 2)).await;
    fetching.poll().await;
    assert_eq!(
        fetching.only_error(),
        "stellar-core cannot replay to ledger 64: the newest checkpoint of the history archive is \
         63; choose an earlier last ledger, or wait for the next checkpoint"
    );
    drop(fetching);
    let mut fetching = Fetching::open(stand_in.settings(storage.path(), Mode::Online, 192)).await;
    fetching.poll().await;
    assert!(
        fetching.only_error().starts_with(
            "stellar-core cannot begin at ledger 192: the newest checkpoint of the history \
             archive is 63, more than two checkpoints before it"
        ),
        "{}",
        fetching.errors[0]
    );
    assert_eq!(stand_in.commands(), [""; 0], "core was not started");

    // The archive publishes a newer checkpoint.
    stand_in.archive(127, None);
    fetching.poll_until(200).await;
    assert_eq!(fetching.errors.len(), 1);
    drop(fetching);

    // A distance of two checkpoints is allowed, and an archive that does not answer is left to
    // core.
    stand_in.archive(63, None);
    let settings = stand_in.settings(storage.path(), Mode::Online, 191);
    Fetching::open(settings).await.poll_until(195).await.errors.is_empty().then_some(()).unwrap();
    fs::write(stand_in.own_config(), "[QUORUM_SET]\n[HISTORY.gone]\nget = 'false'").unwrap();
    let settings = stand_in.settings(storage.path(), Mode::Online, 250);
    assert_eq!(Fetching::open(settings).await.poll_until(260).await.errors, [""; 0]);
}

#[tokio::test]
async fn another_network_is_refused() {
    let stand_in = StandIn::new().with("info_network", "Elsewhere");
    let storage = tempfile::tempdir().unwrap();
    stand_in.archive(255, Some("Elsewhere"));
    let settings = stand_in.settings(storage.path(), Mode::Online, 70);
    let mut source = CoreSource::open(settings.clone()).await.unwrap();
    let error = source.fetch(LedgerSeq(70)).await.unwrap_err();
    assert!(matches!(error, SourceError::Fatal(_)));
    assert_eq!(
        error.to_string(),
        "the history archive of stellar-core belongs to the network \"Elsewhere\", not to local"
    );
    drop(source);

    stand_in.archive(255, Some(CHAIN.network.passphrase()));
    let port = free_port();
    let mut fetching = Fetching::open(orrery::source::captive_core::CoreSettings {
        http_port: port,
        ..settings.clone()
    })
    .await;
    while !fetching.ended {
        fetching.poll().await;
    }
    let expected = format!(
        "the stellar-core at port {port} belongs to the network \"Elsewhere\", not to local"
    );
    assert_eq!(fetching.only_error(), expected);
    assert_eq!(cores(storage.path()), [0; 0]);
    drop(fetching);

    fs::write(stand_in.own_config(), "NETWORK_PASSPHRASE = 'Elsewhere'").unwrap();
    let error = CoreSource::open(settings).await.err().unwrap().to_string();
    assert!(
        error.contains("own.toml belongs to the network \"Elsewhere\", not to local"),
        "{error}"
    );
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn unsuitable_programs_are_refused() {
    let storage = tempfile::tempdir().unwrap();
    let stand_in = StandIn::new();
    let settings = stand_in.settings(storage.path(), Mode::Online, 70);
    for (version, sentence) in [
        (
            "v19.14.0\nledger protocol version: 19\n",
            "stellar-core v19.14.0 knows protocols up to 19 only",
        ),
        ("something else\n", "does not say its ledger protocol version (something else)"),
        ("", "does not say its ledger protocol version (it says nothing)"),
    ] {
        let stand_in = StandIn::new().with("version", version);
        let settings = stand_in.settings(storage.path(), Mode::Online, 70);
        let error = CoreSource::open(settings).await.err().unwrap().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    let mut missing = settings.clone();
    missing.binary = "no-such-stellar-core".into();
    let error = CoreSource::open(missing.clone()).await.err().unwrap().to_string();
    assert!(error.contains("install the package stellar-core"), "{error}");
    missing.binary = "./no-such/stellar-core".into();
    let error = CoreSource::open(missing).await.err().unwrap().to_string();
    assert!(error.contains("./no-such/stellar-core: install the package"), "{error}");

    let mut unknown = settings.clone();
    (unknown.network, unknown.own_config) = (Network::from_passphrase("Some Network"), None);
    let error = CoreSource::open(unknown).await.err().unwrap().to_string();
    assert!(error.contains("give its path as core.config"), "{error}");

    let _first = CoreSource::open(settings.clone()).await.unwrap();
    let error = CoreSource::open(settings).await.err().unwrap().to_string();
    assert!(error.starts_with("another process uses"), "{error}");
}

/// A core whose output is not read would fall behind its network.
#[tokio::test]
async fn a_slow_store_never_stalls_core() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let mut settings = stand_in.settings(storage.path(), Mode::Online, 2);
    settings.limits.ledgers_in_memory = 3;
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(2).await;
    let last = CHAIN.last().to_string();
    wait_in_task("core has closed all ledgers", || closed(storage.path()) == last).await;
    fetching.poll_until(CHAIN.last()).await;
    assert_eq!(fetching.errors, [""; 0]);
    assert_eq!(stand_in.commands().iter().filter(|command| *command == RUN).count(), 1);
}

#[tokio::test]
async fn core_is_stopped_and_restarted_when_the_queue_is_full() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let mut settings = stand_in.settings(storage.path(), Mode::Online, 70);
    (settings.limits.ledgers_in_memory, settings.limits.bytes_on_disk) = (3, 300_000);
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(70).await;
    wait_in_task("core is stopped", || cores(storage.path()).is_empty()).await;
    fetching.poll_until(CHAIN.last()).await;
    assert_eq!(fetching.errors, [""; 0], "nothing is wrong");
    let commands = stand_in.commands();
    let runs = commands.iter().filter(|command| *command == RUN).count();
    assert!(runs > 1, "{commands:?}");
    let catch_ups = commands.iter().filter(|command| command.starts_with("catchup")).count();
    assert_eq!(catch_ups, 1, "it continues from its storage: {commands:?}");
}

#[tokio::test]
async fn a_replay_waits_for_a_slow_store() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let mode = Mode::Bounded { to: LedgerSeq(250) };
    let mut settings = stand_in.settings(storage.path(), mode, 2);
    settings.limits = Limits { ledgers_in_memory: 2, bytes_on_disk: 0, ..settings.limits };
    let mut fetching = Fetching::open(settings).await;
    while !fetching.ended {
        let before = fetching.next;
        fetching.poll().await;
        assert!(fetching.next - before <= 2, "no more than fits into memory at a time");
    }
    assert_eq!((fetching.next, &fetching.errors[..]), (251, &[][..]));
    assert_eq!(stand_in.commands().len(), 2);
}
