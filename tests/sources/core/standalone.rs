//! A core that runs a standalone network: it never closes a ledger a second time, so no ledger may
//! get lost.

use std::fs;

use orrery::domain::{LedgerSeq, LedgerSource, SourceError};
use orrery::source::captive_core::{CoreSource, Mode};

use super::fetching::Fetching;
use super::stand_in::{CHAIN, OfChain, StandIn, cores};
use super::{RUN, free_port};

/// Returns the protocol upgrades that core received over HTTP.
fn upgrades(stand_in: &StandIn) -> Vec<String> {
    let calls = stand_in.calls().into_iter().map(|call| call.arguments);
    calls.filter(|path| path.starts_with("/upgrades")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standalone_network_is_created_once_and_resumed() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let open = |first| {
        let mut settings = stand_in.settings(storage.path(), Mode::Standalone, first);
        settings.http_port = free_port();
        Fetching::open(settings)
    };
    let mut next = 2;
    for until in [40, 41, 150, CHAIN.last()] {
        let mut fetching = open(next).await;
        fetching.poll_until(until).await;
        while upgrades(&stand_in).is_empty() {
            fetching.poll().await;
        }
        assert_eq!(fetching.errors, [""; 0]);
        // Ledgers that were streamed but not fetched are offered again.
        next = until.min(fetching.next - 1) + 1;
        drop(fetching);
        assert_eq!(cores(storage.path()), [0; 0]);
    }
    let commands = stand_in.commands();
    assert_eq!(commands[..3], ["new-db", RUN, "offline-info"]);
    assert_eq!(commands.iter().filter(|command| *command == "new-db").count(), 1);
    assert!(!commands.iter().any(|command| command.starts_with("catchup")), "{commands:?}");
    let upgrades = upgrades(&stand_in);
    assert_eq!(
        upgrades[0],
        "/upgrades?mode=set&protocolversion=26&upgradetime=1970-01-01T00:00:00Z"
    );
    assert_eq!(upgrades.len(), 1, "a network that has begun has its protocol");
}

#[tokio::test]
async fn crashes_lose_no_ledgers() {
    let faults = [("crash", 30), ("tear", 60), ("exit", 90), ("end", 120), ("crash", 150)];
    let faults =
        faults.map(|(what, at)| serde_json::json!({ "command": "run", "at": at, "what": what }));
    let stand_in = StandIn::new().with("faults", faults.to_vec());
    let storage = tempfile::tempdir().unwrap();
    let mut settings = stand_in.settings(storage.path(), Mode::Standalone, 2);
    settings.http_port = free_port();
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(CHAIN.last()).await;
    assert_eq!(fetching.errors.len(), faults.len(), "{:?}", fetching.errors);
    let begun = stand_in.commands().iter().filter(|command| *command == "new-db").count();
    assert_eq!(begun, 1, "its storage is the only copy of that network");
}

#[tokio::test]
async fn the_ledger_file_is_truncated_when_it_is_large() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let mut settings = stand_in.settings(storage.path(), Mode::Standalone, 2);
    settings.http_port = free_port();
    let whole: usize = (2..=CHAIN.last()).map(|sequence| CHAIN.ledger(sequence).len() + 4).sum();
    settings.limits.bytes_on_disk = whole as u64 / 2;
    let mut fetching = Fetching::open(settings.clone()).await;
    fetching.poll_until(CHAIN.last()).await;
    assert_eq!(fetching.errors, [""; 0]);
    assert!(stand_in.commands().iter().filter(|command| *command == RUN).count() > 1);
    drop(fetching);
    let file = storage.path().join("standalone-ledgers.xdr");
    let length = fs::metadata(&file).unwrap().len();
    assert!(length < whole as u64, "{length} of {whole}");

    // Without a first ledger in the settings, the source begins at the oldest one in the file.
    settings.first = None;
    let mut source = CoreSource::open(settings).await.unwrap();
    let first = source.range().await.unwrap().unwrap().first;
    assert!(first > LedgerSeq(2) && first.0 <= CHAIN.last() - 64, "{first}");
}

#[tokio::test]
async fn lost_ledgers_are_reported() {
    let stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let settings = |first| {
        let mut settings = stand_in.settings(storage.path(), Mode::Standalone, first);
        settings.http_port = free_port();
        settings
    };
    let lost = async |first: u32| {
        let mut source = CoreSource::open(settings(first)).await.unwrap();
        let error = source.fetch(LedgerSeq(first)).await.unwrap_err();
        assert!(matches!(error, SourceError::Gone(_)), "{error}");
        error.to_string()
    };
    let error = lost(7).await;
    assert!(error.contains("has not begun, so ledger 7 will never come"), "{error}");
    Fetching::open(settings(2)).await.poll_until(CHAIN.last()).await;
    let error = lost(CHAIN.last() + 2).await;
    assert!(error.contains(&format!("has reached ledger {} only", CHAIN.last())), "{error}");
    fs::remove_file(storage.path().join("standalone-ledgers.xdr")).unwrap();
    let error = lost(200).await;
    assert!(error.contains("these ledgers only: none, so ledger 200 will never come"), "{error}");
    assert!(stand_in.commands().iter().filter(|command| *command == "new-db").count() == 1);
}
