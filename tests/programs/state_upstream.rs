//! A server that returns current entries, asked about past ones: its response is used where it
//! proves the past state, is requested once, and does not override what stored transactions
//! determine. Also over real HTTP.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use orrery::domain::{LedgerSeq, LiveEntries, LiveEntry, LiveState};
use orrery::programs::engine::{PreState, UpstreamError};
use orrery::programs::state::{States, Upstream};
use orrery::service::UpstreamEntries;
use orrery::source::rpc::{RpcEntries, RpcSettings};
use orrery::store::IndexOptions;
use serde_json::{Value, json};
use stellar_xdr::{
    ContractDataDurability, ContractId, Hash, LedgerEntryData, LedgerKey, LedgerKeyContractCode,
    LedgerKeyContractData, Limits, ReadXdr, ScAddress, ScVal, WriteXdr,
};
use tokio::sync::watch;

use crate::state::{Answers, check, timeline};
use crate::state_sections::{Section, core_tests, local_network, public};
use crate::state_timeline::{Timeline, Truth};
use orrery_testkit::data;
use orrery_testkit::provider::{Delivery, Provider, Reply, Request};
use orrery_testkit::wait::wait_until;

/// Answers from the model as of the end of a ledger.
struct ModelUpstream<'a> {
    timeline: &'a Timeline,
    as_of: u32,
    lookups: Cell<u64>,
    asked: RefCell<BTreeSet<LedgerKey>>,
    /// Whether it claims that every entry was last modified long ago.
    lies: bool,
}

impl<'a> ModelUpstream<'a> {
    fn new(timeline: &'a Timeline, as_of: u32) -> Self {
        let (lookups, asked) = (Cell::default(), RefCell::default());
        Self { timeline, as_of, lookups, asked, lies: false }
    }
}

pub fn entry_as_of(timeline: &Timeline, as_of: u32, key: &LedgerKey) -> Option<LiveEntry> {
    let end = (as_of + 1, 0, 0, 0);
    match timeline.truth(key, end) {
        Truth::Present(entry) => {
            let live_until = timeline.live_until(key, end);
            Some(LiveEntry { entry, live_until })
        }
        Truth::Archived(entry) => Some(LiveEntry { entry, live_until: Some(0) }),
        Truth::Absent | Truth::Unknown => None,
    }
}

impl Upstream for ModelUpstream<'_> {
    fn look_up(&self, keys: &[LedgerKey], _: Duration) -> Result<LiveEntries, UpstreamError> {
        self.lookups.set(self.lookups.get() + 1);
        assert!(!keys.is_empty() && keys.len() <= 200);
        let distinct: BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len(), "each key once");
        let mut asked = self.asked.borrow_mut();
        let entry = |key| {
            let mut found = entry_as_of(self.timeline, self.as_of, key)?;
            if self.lies {
                found.entry.last_modified_ledger_seq = 1;
            }
            Some(found)
        };
        let entries = keys.iter().map(entry).collect();
        asked.extend(keys.iter().cloned());
        Ok(LiveEntries { as_of: LedgerSeq(self.as_of), entries })
    }
}

fn sections() -> impl Iterator<Item = Section> {
    core_tests().into_iter().chain(local_network()).chain(public())
}

/// The second half of a section: entries from before must be requested.
fn second_half(section: &Section) -> std::ops::RangeInclusive<u32> {
    (section.first() + section.last()) / 2..=section.last()
}

#[test]
fn current_entries_prove_past_ones_and_are_requested_once() {
    let mut sums = [Answers::default(), Answers::default()];
    for section in sections() {
        let timeline = timeline(&section);
        let stored = section.store(second_half(&section), &IndexOptions::default());
        let without = check(&section, &timeline, &stored.store, None);
        let model_upstream = ModelUpstream::new(&timeline, section.last());
        let with = check(&section, &timeline, &stored.store, Some(&model_upstream));
        assert!(with.unknown() <= without.unknown());
        let asked = model_upstream.lookups.get();
        assert_eq!(asked > 0, without.unknown() > 0, "{}", section.name);
        let again = check(&section, &timeline, &stored.store, Some(&model_upstream));
        assert_eq!(model_upstream.lookups.get(), asked, "{}: asked again", section.name);
        assert_eq!(again.unknown(), with.unknown());
        let nobody = check(&section, &timeline, &stored.store, None);
        assert_eq!(nobody.unknown(), with.unknown(), "the responses are stored");
        sums[0].add(&without);
        sums[1].add(&with);
    }
    eprintln!("second halves: {}\nwith an upstream: {}", sums[0], sums[1]);
}

#[test]
fn an_upstream_that_contradicts_stored_ledgers_is_ignored() {
    let mut lookups = 0;
    for section in sections() {
        let timeline = timeline(&section);
        let (first, last) = (section.first(), section.last());
        // A gap, so that the transactions after it do not determine entries before it.
        let middle = (first + last) / 2;
        let order = (first..=last).filter(|sequence| *sequence != middle);
        let stored = section.store(order, &IndexOptions::default());
        let liar = ModelUpstream { lies: true, ..ModelUpstream::new(&timeline, last) };
        // The liar is wrong only about entries that changed since, and those are determined by
        // stored transactions.
        let wrong = check_untruths(&section, &timeline, &stored.store, &liar);
        assert_eq!(wrong, 0, "{}", section.name);
        lookups += liar.lookups.get();
    }
    assert!(lookups > 0 || data::missing());
}

/// Number of wrong results where a stored transaction determines the entry.
fn check_untruths(
    section: &Section,
    timeline: &Timeline,
    store: &orrery::store::Store,
    liar: &ModelUpstream<'_>,
) -> u64 {
    use orrery::programs::engine::EntryState;

    let states = States::new(store, Some(liar));
    let mut wrong = 0;
    for checked in &timeline.checked {
        let Some(call) = crate::state::host_call(store, checked, section) else { continue };
        let of_ledger = states.at(LedgerSeq(checked.ledger)).unwrap();
        let state = of_ledger.before(checked.order, &[]);
        for key in call.footprint_keys() {
            let EntryState::Present(entry, _) = state.entry(key).unwrap() else { continue };
            let Truth::Present(true_entry) = timeline.truth(key, checked.when) else { continue };
            let determined = timeline.is_changed_by_stored(key, checked, |ledger| {
                store.ledger(LedgerSeq(ledger)).unwrap().is_some()
            });
            wrong += u64::from(entry.data != true_entry.data && determined);
        }
    }
    wrong
}

/// Response of an RPC server whose latest ledger is `as_of`.
pub fn rpc_answer(timeline: &Timeline, as_of: u32, request: &Request) -> Reply {
    let asked: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(asked["method"], "getLedgerEntries");
    assert!(asked["params"].get("xdrFormat").is_none(), "base64 is the default");
    let mut entries = Vec::new();
    for key in asked["params"]["keys"].as_array().unwrap() {
        let key = key.as_str().unwrap();
        let xdr = STANDARD.decode(key).unwrap();
        let ledger_key = LedgerKey::from_xdr(&xdr, Limits::none()).unwrap();
        let Some(found) = entry_as_of(timeline, as_of, &ledger_key) else { continue };
        let data: &LedgerEntryData = &found.entry.data;
        let mut entry = json!({
            "key": key,
            "xdr": data.to_xdr_base64(Limits::none()).unwrap(),
            "lastModifiedLedgerSeq": found.entry.last_modified_ledger_seq,
            "extXdr": found.entry.ext.to_xdr_base64(Limits::none()).unwrap(),
        });
        if let Some(until) = found.live_until {
            entry["liveUntilLedgerSeq"] = json!(until);
        }
        entries.push(entry);
    }
    let result = json!({ "entries": entries, "latestLedger": as_of });
    Reply::json(&json!({ "jsonrpc": "2.0", "id": asked["id"], "result": result }))
}

fn asked(server: &Provider) -> Box<dyn LiveState> {
    let settings = RpcSettings::new(format!("http://{}/", server.address()));
    Box::new(RpcEntries::new(&settings).unwrap())
}

#[test]
fn an_rpc_server_gives_the_same_entries_over_http() {
    let Some(section) = local_network() else { return };
    let model = timeline(&section);
    let last = section.last();
    let stored = section.store(second_half(&section), &IndexOptions::default());
    let model_upstream = ModelUpstream::new(&model, last);
    let expected = check(&section, &model, &stored.store, Some(&model_upstream));

    let of_server = timeline(&section);
    let server = Provider::start(move |request| rpc_answer(&of_server, last, request));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_running, stop) = watch::channel(false);
    let upstream = UpstreamEntries::new(asked(&server), runtime.handle().clone(), stop);
    let fresh = section.store(second_half(&section), &IndexOptions::default());
    let answers = check(&section, &model, &fresh.store, Some(&upstream));
    assert_eq!(answers.to_string(), expected.to_string());
    assert!(!server.requests().is_empty());
}

#[test]
fn a_server_that_lags_is_retried_later() {
    let Some(section) = local_network() else { return };
    let model = timeline(&section);
    let stored = section.store(second_half(&section), &IndexOptions::default());
    let behind = ModelUpstream::new(&model, section.first());
    let states = States::new(&stored.store, Some(&behind));
    let of_ledger = states.at(LedgerSeq(section.last())).unwrap();
    let key = model.keys().find(|key| matches!(key, LedgerKey::ContractCode(_))).unwrap();
    let refused = of_ledger.before(1, &[]).entry(key).unwrap_err().to_string();
    let (first, last) = (section.first(), section.last());
    let sentence = format!("has reached ledger {first} only, and ledger {last} is being run");
    assert!(refused.contains(&sentence), "{refused}");
}

#[test]
fn refused_requests_are_distinguished_from_an_unreachable_server() {
    #[derive(Clone, Copy, PartialEq)]
    enum Mode {
        RefusesBytes,
        NeverAnswersBytes,
        IsDown,
    }
    let mode = Arc::new(Mutex::new(Mode::RefusesBytes));
    let shared = Arc::clone(&mode);
    let bytes = LedgerKey::ContractData(LedgerKeyContractData {
        contract: ScAddress::Contract(ContractId(Hash([7; 32]))),
        key: ScVal::Bytes(vec![1; 100].try_into().unwrap()),
        durability: ContractDataDurability::Persistent,
    });
    let asked_for = bytes.to_xdr_base64(Limits::none()).unwrap();
    let server = Provider::start(move |request| {
        let asked_now: Value = serde_json::from_slice(&request.body).unwrap();
        let has_bytes = request.body.windows(asked_for.len()).any(|it| it == asked_for.as_bytes());
        let mode = *shared.lock().unwrap();
        match mode {
            Mode::IsDown => Reply::status(503),
            Mode::RefusesBytes if has_bytes => Reply::status(413),
            Mode::NeverAnswersBytes if has_bytes => Reply::status(200).delivered(Delivery::Never),
            _ => Reply::json(&json!({
                "jsonrpc": "2.0",
                "id": asked_now["id"],
                "result": { "entries": [], "latestLedger": 9 },
            })),
        }
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_running, stop) = watch::channel(false);
    let upstream = UpstreamEntries::new(asked(&server), runtime.handle().clone(), stop);
    let ask = |within| upstream.look_up(std::slice::from_ref(&bytes), within);
    let other = LedgerKey::ContractCode(LedgerKeyContractCode { hash: Hash([8; 32]) });
    let others = || upstream.look_up(std::slice::from_ref(&other), Duration::from_secs(60)).is_ok();
    assert!(matches!(ask(Duration::from_secs(60)), Err(UpstreamError::Refused(_))));
    assert!(others());
    *mode.lock().unwrap() = Mode::NeverAnswersBytes;
    assert!(matches!(ask(Duration::from_millis(200)), Err(UpstreamError::Refused(_))));
    assert!(others());
    *mode.lock().unwrap() = Mode::IsDown;
    assert!(matches!(ask(Duration::from_secs(60)), Err(UpstreamError::Unreachable(_))));
    // Lookups now fail at once instead of waiting for the server.
    let requests = server.requests().len();
    for _ in 0..100 {
        assert!(matches!(ask(Duration::from_secs(60)), Err(UpstreamError::Unreachable(_))));
    }
    assert!(server.requests().len() <= requests + 2);
    *mode.lock().unwrap() = Mode::RefusesBytes;
    wait_until("other entries are looked up", others);
}

#[test]
fn implausible_rpc_responses_are_refused() {
    let Some(section) = local_network() else { return };
    let model = timeline(&section);
    let key = model.keys().find(|key| matches!(key, LedgerKey::Account(_))).unwrap().clone();
    let other = model.keys().filter(|key| matches!(key, LedgerKey::Account(_))).nth(1).unwrap();
    let base64 = |key: &LedgerKey| key.to_xdr_base64(Limits::none()).unwrap();
    let entry = entry_as_of(&model, section.last(), &key).unwrap().entry;
    let data = entry.data.to_xdr_base64(Limits::none()).unwrap();
    let item = |key: &str, xdr: &str| json!({"key": key, "xdr": xdr, "lastModifiedLedgerSeq": 5});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (_running, stop) = watch::channel(false);
    for (result, sentence) in [
        (json!({"entries": [item(&base64(other), &data)], "latestLedger": 9}), "not asked for"),
        (json!({"entries": [item(&base64(&key), "AAAA")], "latestLedger": 9}), "that is not XDR"),
        (json!({"entries": [item(&base64(&key), "%")], "latestLedger": 9}), "that is not XDR"),
        (json!({"entries": []}), "a result of another form"),
        (json!({"entries": null, "latestLedger": 9}), ""),
    ] {
        let server = Provider::start(move |request| {
            let asked: Value = serde_json::from_slice(&request.body).unwrap();
            Reply::json(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}))
        });
        let upstream = UpstreamEntries::new(asked(&server), runtime.handle().clone(), stop.clone());
        match upstream.look_up(std::slice::from_ref(&key), Duration::from_secs(60)) {
            Ok(answer) => {
                assert!(sentence.is_empty(), "{sentence}");
                assert_eq!((answer.as_of, answer.entries), (LedgerSeq(9), vec![None]));
            }
            Err(error) => {
                assert!(!sentence.is_empty() && error.to_string().contains(sentence), "{error}");
            }
        }
    }
}
