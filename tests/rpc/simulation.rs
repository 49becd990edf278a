//! `simulateTransaction` on the state at the end of stored ledgers: calls of made and of recorded networks,
//! each on the state of the ledger before the one that applied it, beside what that ledger recorded; and
//! what is not known, which is named.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orrery::contract_data::{CONSUMER, ContractData};
use orrery::decode::{EntryChange, LedgerView, TransactionView, decode, ledger_changes};
use orrery::domain::{LedgerSeq, LiveEntry, Network};
use orrery::programs::engine::EntryState;
use orrery::programs::state::States;
use orrery::rpc::{CallLimits, Otherwise, Params, Rpc, RpcError, Settings};
use orrery::service::PastNetwork;
use orrery::store::{Bounds, Durability, Extensions, IndexOptions, Retention, Store};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use stellar_xdr::{
    ConfigSettingId, ContractEventType, DiagnosticEvent, LedgerEntry, LedgerKey,
    LedgerKeyContractCode, Limits, OperationBody, ReadXdr, ScVal, SorobanTransactionData,
    TransactionEnvelope, TransactionExt, TransactionV1Envelope, WriteXdr,
};
use tempfile::TempDir;

use crate::transport::upstream;
use crate::world;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::sandbox::{local, sandbox, settings};
use orrery_testkit::wait::wait_until;
use orrery_testkit::{data, fixtures, size};

/// The passphrase of the network `local`.
const PASSPHRASE: &str = "Standalone Network ; February 2017";
/// Ledgers with their raw form, from which accounts are known.
const RAW_KEPT: IndexOptions =
    IndexOptions { classic_events: false, fee_events: false, raw_ledgers: true, contracts: None };

/// A store with the index of what contracts hold, and the methods on it.
struct Past {
    rpc: Rpc,
    store: Arc<Store>,
    network: Network,
    _directory: TempDir,
}

impl Past {
    fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let extensions = Extensions::for_consumers(&[Arc::new(ContractData)]);
        let store = Store::open_with(directory.path(), Some(network), extensions).unwrap();
        let store = Arc::new(store);
        let rpc = Rpc::new(Arc::clone(&store), Settings::default(), Arc::new(|| 0));
        let rpc = rpc.with_past(Arc::new(PastNetwork::new(Arc::clone(&store))));
        Self { rpc, store, network: network.clone(), _directory: directory }
    }

    fn of(network: &Network, ledgers: &[Vec<u8>]) -> Self {
        let past = Self::new(network);
        ledgers.iter().for_each(|raw| past.add(raw));
        past.index();
        past
    }

    fn add(&self, raw: &[u8]) {
        let view = decode(raw, self.network.id()).unwrap();
        let prepared = self.store.prepare(&view, None, &RAW_KEPT).unwrap();
        self.store.commit(prepared, Durability::Synced).unwrap();
    }

    fn index(&self) {
        while self.store.step(&ContractData).unwrap() {}
    }

    /// Records the settings of a sandbox as those of this network, except for those that are known.
    fn with_settings(self, at: LedgerSeq) -> Self {
        let is_unknown = |entry: &&LedgerEntry| {
            let LedgerKey::ConfigSetting(key) = entry.to_key() else { panic!("{entry:?}") };
            self.store.setting(key.config_setting_id as u32, at).unwrap().is_none()
        };
        let found: Vec<_> = settings().iter().filter(is_unknown).map(xdr).collect();
        self.store.put_found_settings(at, &found).unwrap();
        self
    }

    fn call(&self, params: &Value, limits: CallLimits<'_>) -> Result<Value, RpcError> {
        let params = to_raw_value(params).unwrap();
        let answer = self.rpc.call("simulateTransaction", Params(Some(&params)), limits)?;
        Ok(serde_json::from_str(answer.get()).unwrap())
    }

    fn simulate(&self, params: &Value) -> Result<Value, RpcError> {
        self.call(params, CallLimits::UNLIMITED)
    }

    /// The code and message of an error.
    fn refused(&self, params: &Value) -> (i64, String) {
        let error = self.simulate(params).unwrap_err();
        let told = serde_json::to_value(&error).unwrap();
        (told["code"].as_i64().unwrap(), error.message)
    }
}

fn xdr(value: &impl WriteXdr) -> Vec<u8> {
    value.to_xdr(Limits::none()).unwrap()
}

fn base64(value: &impl WriteXdr) -> String {
    value.to_xdr_base64(Limits::none()).unwrap()
}

/// A successful call, and what its ledger recorded of it.
#[derive(Clone)]
struct Call {
    envelope: TransactionV1Envelope,
    /// Base64 of the XDR.
    value: String,
    events: Vec<String>,
    read_only: Vec<LedgerKey>,
    read_write: Vec<LedgerKey>,
}

impl Call {
    /// The call of a transaction; `None` for other transactions.
    fn of(view: &LedgerView<'_>, transaction: &TransactionView<'_>) -> Option<Self> {
        let value = STANDARD.encode(transaction.return_value.filter(|_| transaction.successful)?);
        let envelope = TransactionEnvelope::from_xdr(transaction.envelope, Limits::none()).unwrap();
        let envelope = match envelope {
            TransactionEnvelope::Tx(envelope) => envelope,
            TransactionEnvelope::TxFeeBump(bump) => {
                let stellar_xdr::FeeBumpTransactionInnerTx::Tx(inner) = bump.tx.inner_tx;
                inner
            }
            TransactionEnvelope::TxV0(_) => return None,
        };
        let [operation] = envelope.tx.operations.as_slice() else { return None };
        let (OperationBody::InvokeHostFunction(_), TransactionExt::V1(data)) =
            (&operation.body, &envelope.tx.ext)
        else {
            return None;
        };
        let footprint = &data.resources.footprint;
        let events = &view.events[transaction.operation_events.clone()];
        Some(Self {
            value,
            events: events.iter().map(|event| STANDARD.encode(event.xdr)).collect(),
            read_only: footprint.read_only.to_vec(),
            read_write: footprint.read_write.to_vec(),
            envelope,
        })
    }

    fn params(&self, ledger: LedgerSeq) -> Value {
        let transaction = base64(&TransactionEnvelope::Tx(self.envelope.clone()));
        json!({ "transaction": transaction, "ledger": ledger.0 })
    }

    /// How an answer differs from what the ledger recorded; `None` when it does not.
    fn difference(&self, answer: &Value) -> Option<String> {
        if let Some(error) = answer.get("error") {
            return Some(format!("it fails: {error}"));
        }
        if answer["results"][0]["xdr"] != self.value {
            return Some(format!("another result: {}", answer["results"][0]["xdr"]));
        }
        let events: Vec<DiagnosticEvent> = answer["events"]
            .as_array()
            .map(|events| events.iter().map(|event| read(event.as_str().unwrap())).collect())
            .unwrap_or_default();
        let events = events.iter().filter(|event| {
            event.in_successful_contract_call && event.event.type_ != ContractEventType::Diagnostic
        });
        let events: Vec<_> = events.map(|event| base64(&event.event)).collect();
        if events != self.events {
            return Some(format!("other events: {} for {}", events.len(), self.events.len()));
        }
        let data: SorobanTransactionData = read(answer["transactionData"].as_str().unwrap());
        let footprint = data.resources.footprint;
        let is_written = |key: &LedgerKey| self.read_write.contains(key);
        let beyond = footprint.read_write.iter().find(|key| !is_written(key)).or_else(|| {
            let mut read = footprint.read_only.iter();
            read.find(|key| !is_written(key) && !self.read_only.contains(key))
        });
        beyond.map(|key| format!("beyond the footprint: {key:?}"))
    }
}

fn read<T: ReadXdr>(base64: &str) -> T {
    T::from_xdr_base64(base64, Limits::none()).unwrap()
}

/// The calls of a ledger that are alone on their keys in it: no other transaction changes one of them.
fn calls_alone(raw: &[u8], network: &Network) -> Vec<Call> {
    let (view, changes) = (decode(raw, network.id()).unwrap(), ledger_changes(raw).unwrap());
    let mut changed: BTreeMap<Vec<u8>, BTreeSet<usize>> = BTreeMap::new();
    let mut add = |index: usize, changes: &[EntryChange<'_>]| {
        for change in changes {
            changed.entry(change.key.to_ledger_key()).or_default().insert(index);
        }
    };
    for (index, transaction) in changes.transactions.iter().enumerate() {
        for changes in [&transaction.before, &transaction.operations, &transaction.after] {
            add(index, changes);
        }
    }
    for changes in [&changes.fees, &changes.refunds] {
        changes.iter().enumerate().for_each(|(index, changes)| add(index, changes));
    }
    let alone = |index: usize, call: &Call| {
        let mut keys = call.read_only.iter().chain(&call.read_write).map(xdr);
        keys.all(|key| changed.get(&key).is_none_or(|by| by.iter().all(|it| *it == index)))
    };
    let calls = view.transactions.iter().enumerate();
    let calls = calls.filter_map(|(index, one)| Some((index, Call::of(&view, one)?)));
    calls.filter(|(index, call)| alone(*index, call)).map(|(_, call)| call).collect()
}

/// What came of simulations.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    different: Vec<String>,
    /// How often a key, a setting or the protocol is named, by the beginning of the message.
    named: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, call: &Call, outcome: Result<Value, RpcError>, what: &str) {
        match outcome {
            Ok(answer) => match call.difference(&answer) {
                None => self.equal += 1,
                Some(how) => self.different.push(format!("{what}: {how}")),
            },
            Err(error) => {
                let told = serde_json::to_value(&error).unwrap();
                let kind = match (told["code"].as_i64(), error.message.split_once(" at ledger ")) {
                    (Some(-32602), Some(("unknown", rest))) => {
                        let (_, key) = rest.split_once(": ").unwrap();
                        format!("key {}", read::<LedgerKey>(key).name())
                    }
                    (Some(-32603), Some((what, _))) => what.to_owned(),
                    (Some(-32603), None) if error.message.contains("allowProtocol") => {
                        "protocol".to_owned()
                    }
                    (Some(-32603), None)
                        if error.message.starts_with("the settings of ledger ") =>
                    {
                        "settings".to_owned()
                    }
                    _ => panic!("{what}: {told}"),
                };
                *self.named.entry(kind).or_default() += 1;
            }
        }
    }

    /// All calls of consecutive ledgers, each on the state of the ledger before.
    fn of(past: &Past, ledgers: &[Vec<u8>], allow_protocol: bool, most: usize) -> Self {
        let mut tally = Self::default();
        let mut count = 0;
        for raw in &ledgers[1..] {
            let ledger = decode(raw, past.network.id()).unwrap().header.sequence;
            for call in calls_alone(raw, &past.network) {
                if count == most {
                    return tally;
                }
                count += 1;
                let mut params = call.params(ledger.previous().unwrap());
                params["allowProtocol"] = allow_protocol.into();
                tally.add(&call, past.simulate(&params), &format!("ledger {ledger}"));
            }
        }
        tally
    }

    fn add_all(&mut self, other: Self) {
        self.equal += other.equal;
        self.different.extend(other.different);
        for (what, count) in other.named {
            *self.named.entry(what).or_default() += count;
        }
    }

    fn count(&self) -> usize {
        self.equal + self.different.len() + self.named.values().sum::<usize>()
    }
}

#[test]
fn calls_of_a_network_do_on_the_ledger_before_what_they_did() {
    let most = size::choose(150, 1000) as usize;
    let mut sandbox = sandbox(5, 2..=6).with_market(LedgerSeq(3)).with_wallets(LedgerSeq(3));
    let (mut ledgers, mut calls) = (Vec::new(), 0);
    while calls < most {
        ledgers.push(sandbox.next_ledger().unwrap());
        calls += calls_alone(ledgers.last().unwrap(), &local()).len();
    }
    let past = Past::of(&local(), &ledgers);
    let tally = Tally::of(&past, &ledgers, false, most);
    println!("{tally:#?}");
    assert_eq!((tally.count(), tally.named.len()), (most, 0));
    assert!(100 * tally.equal >= 99 * most);
}

#[test]
fn calls_of_a_recorded_network_do_on_the_ledger_before_what_they_did() {
    if data::missing() {
        return;
    }
    let folder = data::location().join("local-network");
    let fixture = fixtures::load(&folder, "local-vault.xdr.zst");
    let (network, ledgers) = (&fixture.network, &fixture.ledgers);
    let first = decode(&ledgers[0], network.id()).unwrap().header.sequence;
    let past = Past::of(network, ledgers);
    let tally = Tally::of(&past, ledgers, false, usize::MAX);
    assert_eq!(tally.named.keys().collect::<Vec<_>>(), ["protocol"]);
    let tally = Tally::of(&past, ledgers, true, usize::MAX);
    assert_eq!(
        tally.named.keys().collect::<Vec<_>>(),
        ["the setting ContractComputeV0 is not known"]
    );
    let past = past.with_settings(first);
    let tally = Tally::of(&past, ledgers, true, usize::MAX);
    println!("{tally:#?}");
    assert!(tally.count() > 20 && tally.named.is_empty());
    assert!(100 * tally.equal >= 99 * tally.count());
}

/// What these ledgers say of their own network is enough for equal results, or what is missing is named.
/// With what is made up, settings and rules of another protocol, results may differ; what is missing is
/// named all the same.
#[test]
fn other_recorded_calls_are_equal_or_what_is_not_known_is_named() {
    let (mut own, mut made_up) = (Tally::default(), Tally::default());
    world::each_recorded(|chain| {
        let ledgers = &chain.ledgers;
        let first = decode(&ledgers[0], chain.network.id()).unwrap().header.sequence;
        let past = Past::of(&chain.network, ledgers);
        own.add_all(Tally::of(&past, ledgers, false, usize::MAX));
        let past = past.with_settings(first);
        made_up.add_all(Tally::of(&past, ledgers, true, usize::MAX));
    });
    println!("{own:#?}\nwith what is made up: {made_up:#?}");
    assert_eq!(own.count(), made_up.count());
    assert!(100 * own.different.len() <= own.equal, "{:#?}", own.different);
}

/// Ledgers of a network, and a call of the last one that is alone on its keys and changes data.
fn some() -> (Vec<Vec<u8>>, Call) {
    let mut sandbox = sandbox(5, 3..=6).with_market(LedgerSeq(3));
    let mut ledgers: Vec<_> = (0..24).map(|_| sandbox.next_ledger().unwrap()).collect();
    loop {
        ledgers.push(sandbox.next_ledger().unwrap());
        let calls = calls_alone(ledgers.last().unwrap(), &local());
        if let Some(call) = calls.into_iter().find(|call| !call.events.is_empty()) {
            return (ledgers, call);
        }
    }
}

#[test]
fn what_is_not_known_is_named_and_what_is_known_stays() {
    let (ledgers, call) = some();
    let newest = ledgers.len() as u32 + 1;
    let before = LedgerSeq(newest - 1);
    let past = Past::new(&local());
    ledgers.iter().for_each(|raw| past.add(raw));
    let params = call.params(before);
    // The index lacks all ledgers: it is waited for.
    let error = past.simulate(&params).unwrap_err();
    assert_eq!(error.otherwise, Some(Otherwise::Consumer(CONSUMER)), "{error}");
    past.index();
    let answer = past.simulate(&params).unwrap();
    assert_eq!(call.difference(&answer), None);
    assert_eq!(
        (&answer["latestLedger"], &answer["newestLedger"]),
        (&json!(before.0), &json!(newest))
    );
    let nearest = format!("the nearest stored ledgers are 2 - {newest}");
    for ledger in [0, 1, newest + 1] {
        let refused = past.refused(&call.params(LedgerSeq(ledger)));
        assert_eq!(refused, (-32602, format!("ledger {ledger} is not stored: {nearest}")));
    }
    for ledger in [json!("11"), json!(-1), json!(1.5), json!([11])] {
        let mut params = params.clone();
        params["ledger"] = ledger;
        assert_eq!(past.refused(&params), (-32602, "invalid parameters".to_owned()));
    }
    let unreadable = past.simulate(&json!({ "transaction": "AAAA", "ledger": newest })).unwrap();
    assert_eq!(unreadable["error"], "Could not unmarshal transaction");
    assert_eq!(unreadable["latestLedger"], newest);
    // The present state is the network's to tell.
    for ledger in [Value::Null, json!(newest)] {
        let mut params = params.clone();
        params["ledger"] = ledger.clone();
        match past.simulate(&params) {
            Err(error) => assert_eq!(error.otherwise, Some(Otherwise::Forwarding), "{error}"),
            Ok(answer) => assert_eq!(answer["latestLedger"], ledger),
        }
    }
    let over = Bounds { interrupted: &|| true, ..Bounds::NONE };
    let over = CallLimits { bounds: over, ..CallLimits::UNLIMITED };
    let error = past.call(&params, over).unwrap_err();
    assert_eq!(serde_json::to_value(&error).unwrap()["code"], -32001);
    let full = CallLimits {
        reserve_one: &|bytes| Err(RpcError::internal(format!("no room for {}", bytes > 1000))),
        ..CallLimits::UNLIMITED
    };
    assert_eq!(past.call(&params, full).unwrap_err().message, "no room for true");
    // Retention changes nothing of what is still stored.
    let retention =
        Retention { transactions: Some(2), raw_ledgers: Some(20), ..Retention::default() };
    while !past.store.prune(&retention).unwrap().is_nothing() {}
    let again = past.simulate(&params);
    if let Ok(again) = &again {
        assert_eq!(*again, answer);
    } else {
        // What is not contract data is known from transactions that are gone.
        let (code, message) = past.refused(&params);
        assert!(code == -32602 && message.starts_with("unknown at ledger "), "{message}");
    }
    let (code, message) = past.refused(&call.params(LedgerSeq(5)));
    assert_eq!(code, -32602);
    assert!(message.starts_with("ledger 5 is not stored: the nearest"), "{message}");
}

#[test]
fn what_no_stored_ledger_mentions_is_named() {
    let (ledgers, call) = some();
    // From the middle of the network on: nothing says what was before.
    let (from, ledgers) = (2 + 12, &ledgers[12..]);
    let past = Past::of(&local(), ledgers).with_settings(LedgerSeq(from));
    let mut unknown = BTreeSet::new();
    let mut known = 0;
    for raw in &ledgers[1..] {
        let ledger = decode(raw, local().id()).unwrap().header.sequence.previous().unwrap();
        for call in calls_alone(raw, &local()) {
            match past.simulate(&call.params(ledger)) {
                Ok(answer) => {
                    assert_eq!(call.difference(&answer), None, "{ledger}");
                    known += 1;
                }
                Err(error) => {
                    let key = error.message.strip_prefix(&format!("unknown at ledger {ledger}: "));
                    let key = key.unwrap_or_else(|| panic!("{error}"));
                    unknown.insert(read::<LedgerKey>(key).name());
                }
            }
        }
    }
    println!("{known} known; {unknown:?}");
    assert!(!unknown.is_empty());
    let never = |key: LedgerKey| {
        let mut envelope = call.envelope.clone();
        let TransactionExt::V1(data) = &mut envelope.tx.ext else { panic!("a call has resources") };
        data.resources.footprint.read_only = vec![key].try_into().unwrap();
        data.resources.footprint.read_write = Default::default();
        let op = stellar_xdr::ExtendFootprintTtlOp {
            ext: stellar_xdr::ExtensionPoint::V0,
            extend_to: 1,
        };
        let body = OperationBody::ExtendFootprintTtl(op);
        let operation = stellar_xdr::Operation { source_account: None, body };
        envelope.tx.operations = vec![operation].try_into().unwrap();
        Call { envelope, ..call.clone() }
    };
    let code = LedgerKey::ContractCode(LedgerKeyContractCode { hash: [9; 32].into() });
    let refused = past.refused(&never(code.clone()).params(LedgerSeq(from + 2)));
    assert_eq!(refused, (-32602, format!("unknown at ledger {}: {}", from + 2, base64(&code))));
}

/// All entries of a network that are no contract data but nonces, after each of its ledgers.
type Truth = BTreeMap<LedgerSeq, BTreeMap<LedgerKey, Option<LiveEntry>>>;

/// Compares what is known of all entries after each ledger with the truth. Returns how many are known to be
/// there and not to be there, by kind.
fn compare_after(past: &Past, from: LedgerSeq, truth: &Truth) -> BTreeMap<String, usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (&ledger, entries) in truth.range(from..) {
        let states = States::new(&past.store, None);
        let states = states.at(ledger).unwrap();
        for (key, held) in entries {
            let (state, case) = (states.entry_after(key, false).unwrap(), (ledger, key));
            let kind = match (state, held) {
                (EntryState::Unknown, _) => "unknown",
                (EntryState::Absent, None) => "absent",
                (EntryState::Present(entry, live_until), Some(held)) => {
                    assert_eq!(*entry, held.entry, "{case:?}");
                    let is_live = |until: u32| until >= ledger.0;
                    let live_until = live_until.map(|it| if is_live(it) { it } else { 0 });
                    assert_eq!(live_until, held.live_until, "{case:?}");
                    "present"
                }
                (state, held) => panic!("{case:?}: {state:?}, and it is {held:?}"),
            };
            *seen.entry(format!("{} {kind}", key.name())).or_default() += 1;
        }
    }
    seen
}

#[test]
fn what_is_known_of_other_entries_after_a_ledger_is_what_the_network_has() {
    let mut sandbox = sandbox(8, 2..=6).with_market(LedgerSeq(3)).with_wallets(LedgerSeq(3));
    let (mut ledgers, mut truth) = (Vec::new(), Truth::new());
    let mut keys = BTreeSet::new();
    for _ in 0..size::choose(80, 300) {
        let raw = sandbox.next_ledger().unwrap();
        let changes = ledger_changes(&raw).unwrap();
        let of_transactions = changes.transactions.iter();
        let all = of_transactions.flat_map(|it| [&it.before, &it.operations, &it.after]);
        let all = all.chain(&changes.fees).chain(&changes.refunds).flatten();
        let key = |change: &EntryChange<'_>| {
            LedgerKey::from_xdr(change.key.to_ledger_key(), Limits::none()).unwrap()
        };
        keys.extend(all.map(key).filter(|key| match key {
            LedgerKey::ContractData(data) => matches!(data.key, ScVal::LedgerKeyNonce(_)),
            LedgerKey::Ttl(_) => false,
            _ => true,
        }));
        let held = |key: &LedgerKey| (key.clone(), sandbox.entry(key).unwrap());
        truth.insert(sandbox.latest_ledger(), keys.iter().map(held).collect());
        ledgers.push(raw);
    }
    let past = Past::of(&local(), &ledgers);
    let seen = compare_after(&past, LedgerSeq(2), &truth);
    println!("from genesis: {seen:?}");
    for kind in ["Account present", "Trustline present", "ContractCode present"] {
        assert!(seen.get(kind).is_some_and(|count| *count > 50), "{kind}");
    }
    assert_eq!(seen.get("ContractCode unknown"), None);
    assert_eq!(seen.get("ContractData unknown"), None);
    let past = Past::of(&local(), &ledgers[30..]);
    println!("from later on: {:?}", compare_after(&past, LedgerSeq(32), &truth));
}

#[test]
fn a_service_simulates_the_past_itself_and_forwards_the_present() {
    let directory = tempfile::tempdir().unwrap();
    let (ledgers, call) = some();
    {
        let store = Store::open(directory.path(), Some(&local())).unwrap();
        for raw in &ledgers {
            let view = decode(raw, local().id()).unwrap();
            let prepared = store.prepare(&view, None, &RAW_KEPT).unwrap();
            store.commit(prepared, Durability::Deferred).unwrap();
        }
        store.flush().unwrap();
    }
    let other = upstream(PASSPHRASE);
    let service =
        Service::start_with(directory.path(), &[("ORRERY_RPC_UPSTREAM", &other.url("/"))]);
    let send = |params: &Value| -> Value {
        let call =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "simulateTransaction", "params": params });
        HTTP.post(format!("{}/rpc", service.base)).json(&call).send().unwrap().json().unwrap()
    };
    let params = call.params(LedgerSeq(ledgers.len() as u32));
    let answer = wait_until("all ledgers are indexed", || {
        let answer = send(&params);
        answer.get("result").cloned().ok_or(answer)
    });
    assert_eq!(call.difference(&answer), None);
    for ledger in [Value::Null, json!(null)] {
        let mut present = params.clone();
        present["ledger"] = ledger;
        let answer = send(&present);
        assert_eq!(answer["result"], json!({ "method": "simulateTransaction", "params": present }));
    }
    let mut wrong = params.clone();
    wrong["ledger"] = json!("newest");
    assert_eq!(send(&wrong)["error"]["message"], "invalid parameters");
    wrong["ledger"] = json!(1);
    assert_eq!(send(&wrong)["error"]["code"], -32602);
}

/// An entry of a setting is what the store keeps of it.
#[test]
fn settings_of_a_network_are_those_that_its_first_ledger_brings() {
    let (ledgers, _) = some();
    let past = Past::of(&local(), &ledgers);
    let made = settings();
    assert_eq!(made.len(), 10);
    for entry in made {
        let LedgerKey::ConfigSetting(key) = entry.to_key() else { panic!("{entry:?}") };
        let id = key.config_setting_id as u32;
        let known = past.store.setting(id, LedgerSeq(9)).unwrap();
        if key.config_setting_id == ConfigSettingId::LiveSorobanStateSizeWindow {
            assert_eq!(known, None, "networks change it without an upgrade");
            continue;
        }
        let known = known.unwrap();
        assert_eq!(LedgerEntry::from_xdr(known, Limits::none()).unwrap(), entry);
    }
}
