//! The query port of a core: it is on when the settings ask for entries, the client gets its
//! number, and the client sends requests only while core runs.

use std::fs;
use std::time::{Duration, Instant};

use orrery::domain::LedgerSeq;
use orrery::net::http::Timeouts;
use orrery::source::captive_core::{CoreEntries, CoreSettings, Mode, QueryPort};
use serde_json::json;
use stellar_xdr::{
    AccountEntry, AccountEntryExt, AccountId, LedgerEntry, LedgerEntryData, LedgerEntryExt,
    LedgerKey, Limits, PublicKey, SequenceNumber, String32, Thresholds, Uint256, WriteXdr,
};

use super::fetching::Fetching;
use super::stand_in::{CHAIN, OfChain, StandIn};
use super::{config, free_port};

fn account(byte: u8, last_modified_ledger_seq: u32) -> LedgerEntry {
    let data = LedgerEntryData::Account(AccountEntry {
        account_id: AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([byte; 32]))),
        balance: 5,
        seq_num: SequenceNumber(6),
        num_sub_entries: 0,
        inflation_dest: None,
        flags: 0,
        home_domain: String32::default(),
        thresholds: Thresholds([1, 0, 0, 0]),
        signers: Vec::new().try_into().unwrap(),
        ext: AccountEntryExt::V0,
    });
    LedgerEntry { last_modified_ledger_seq, data, ext: LedgerEntryExt::V0 }
}

fn base64(value: &impl WriteXdr) -> String {
    value.to_xdr_base64(Limits::none()).unwrap()
}

/// Gives the stand-in one account from ledger 100 on. Returns settings with a query port, and a
/// client for it.
fn asked(stand_in: &mut StandIn, storage: &std::path::Path) -> (CoreSettings, CoreEntries) {
    let entry = account(1, 100);
    let item = json!({ "state": "live", "entry": base64(&entry) });
    stand_in.answer_queries(&json!({ base64(&entry.to_key()): [[100, item]] }), None);
    let query = QueryPort::default();
    let entries = CoreEntries::new(query.clone(), Timeouts::default()).unwrap();
    let settings = stand_in.settings(storage, Mode::Online, 70);
    (CoreSettings { query: Some(query), ..settings }, entries)
}

fn keys() -> [LedgerKey; 2] {
    [account(2, 0).to_key(), account(1, 0).to_key()]
}

async fn refusal(entries: &CoreEntries) -> String {
    entries.look_up(&keys()).await.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_core_is_queried_at_a_free_port() {
    for version in [22, 26] {
        let version = format!("v{version}.1.0\nledger protocol version: {version}\n");
        let mut stand_in = StandIn::new().with("version", version);
        let storage = tempfile::tempdir().unwrap();
        let (settings, entries) = asked(&mut stand_in, storage.path());
        let mut fetching = Fetching::open(settings).await;
        assert!(refusal(&entries).await.contains("does not run"));
        fetching.poll_until(CHAIN.last()).await;
        let held = entries.look_up(&keys()).await.unwrap();
        assert_eq!(held.as_of, LedgerSeq(CHAIN.last()), "the newest streamed ledger");
        let found: Vec<_> = held.entries.into_iter().map(|one| one.map(|one| one.entry)).collect();
        assert_eq!(found, [None, Some(account(1, 100))]);
        let config = config(storage.path());
        assert!(config["HTTP_QUERY_PORT"].as_integer() > Some(0), "{config}");

        // A request for an older ledger restarts core, with a new query port.
        fetching.next = 70;
        fetching.poll_until(90).await;
        assert!(entries.look_up(&keys()).await.unwrap().as_of >= LedgerSeq(90));
        drop(fetching);
        assert!(refusal(&entries).await.contains("does not run"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_core_is_queried_again_after_its_restart() {
    let mut stand_in = StandIn::new().fault("run", 90, "crash");
    let storage = tempfile::tempdir().unwrap();
    let (settings, entries) = asked(&mut stand_in, storage.path());
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(89).await;
    while fetching.errors.is_empty() {
        fetching.poll().await;
    }
    assert!(refusal(&entries).await.contains("does not run"));
    fetching.poll_until(120).await;
    assert!(entries.look_up(&keys()).await.unwrap().as_of >= LedgerSeq(120));
}

#[tokio::test(flavor = "multi_thread")]
async fn core_settings_and_version_decide_whether_it_can_be_queried() {
    let own_port = free_port();
    let old = "v21.0.0\nledger protocol version: 21\n";
    let new = "v26.0.0\nledger protocol version: 26\n";
    for (version, own, port, sentence) in [
        (new, format!("HTTP_QUERY_PORT = {own_port}\n"), Some(own_port.into()), ""),
        (new, "HTTP_QUERY_PORT = 0\n".to_owned(), Some(0), "remove HTTP_QUERY_PORT"),
        (old, String::new(), None, "a stellar-core of protocol 21 cannot be asked"),
    ] {
        let mut stand_in = StandIn::new().with("version", version);
        let path = stand_in.own_config();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, own + &text).unwrap();
        let storage = tempfile::tempdir().unwrap();
        let (settings, entries) = asked(&mut stand_in, storage.path());
        let mut fetching = Fetching::open(settings).await;
        fetching.poll_until(80).await;
        let config = config(storage.path());
        let written = config.get("HTTP_QUERY_PORT").and_then(toml::Value::as_integer);
        assert_eq!(written, port);
        match entries.look_up(&keys()).await {
            Ok(held) => assert!(sentence.is_empty() && held.as_of >= LedgerSeq(80)),
            Err(error) => {
                assert!(!sentence.is_empty() && error.to_string().contains(sentence), "{error}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unresponsive_query_port_times_out() {
    let mut stand_in = StandIn::new();
    let storage = tempfile::tempdir().unwrap();
    let (settings, _) = asked(&mut stand_in, storage.path());
    let timeouts = Timeouts { idle: Duration::from_millis(300), ..Timeouts::default() };
    let entries = CoreEntries::new(settings.query.clone().unwrap(), timeouts).unwrap();
    let mut fetching = Fetching::open(settings).await;
    fetching.poll_until(CHAIN.last()).await;
    for (fault, sentence) in [
        ("silent", "no answer in time"),
        ("booting", "Core is booting"),
        ("unavailable", "HTTP 503"),
    ] {
        stand_in.answer_queries(&json!({}), Some(fault));
        let begun = Instant::now();
        let error = refusal(&entries).await;
        assert!(error.contains(sentence), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{fault}");
    }
    // A core whose query port stays behind its stream: after two seconds, its older entries are
    // returned.
    stand_in.answer_queries(&json!({}), Some("behind"));
    assert_eq!(entries.look_up(&keys()).await.unwrap().as_of, LedgerSeq(1));
}
