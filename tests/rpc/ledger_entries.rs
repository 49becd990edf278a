//! `getLedgerEntries` from the store, beside what the network itself answers, and calls that only the
//! network can answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use orrery::contract_data::{CONSUMER, ContractData};
use orrery::decode::decode;
use orrery::domain::{AuthMode, LedgerSeq, LiveEntries, LiveEntry, Network, Simulation};
use orrery::rpc::{CallLimits, LiveNetwork, Otherwise, Params, Rpc, RpcError, Settings, Submitted};
use orrery::sandbox::network::Sandbox;
use orrery::store::{
    Bounds, Durability, Extensions, IndexOptions, PreparedLedger, Retention, Store,
};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use stellar_xdr::{
    AccountId, Hash, LedgerKey, LedgerKeyAccount, LedgerKeyTtl, Limits, PublicKey,
    TransactionEnvelope, TransactionV1Envelope, Uint256, WriteXdr,
};
use tempfile::TempDir;

use crate::transport::upstream;
use orrery_testkit::binary::Service;
use orrery_testkit::client::HTTP;
use orrery_testkit::sandbox::sandbox_of;
use orrery_testkit::storage::{StorageModel, contract_of, instance_key, is_recorded};
use orrery_testkit::wait::wait_until;

const PASSPHRASE: &str = "Standalone Network ; February 2017";
/// Ledgers of the network that is compared. Its contracts are archived after 120 ledgers.
const LEDGERS: u32 = 260;
/// After so many ledgers each, all entries are recorded.
const RECORDED_EVERY: u32 = 13;
/// Keys of one call.
const MAX_KEYS: usize = 200;

fn network() -> Network {
    Network::from_passphrase(PASSPHRASE)
}

fn sandbox() -> Sandbox {
    sandbox_of(network(), 5, 1..=4).with_market(LedgerSeq(3)).with_wallets(LedgerSeq(3))
}

fn base64(value: &impl WriteXdr) -> String {
    value.to_xdr_base64(Limits::none()).unwrap()
}

fn account() -> LedgerKey {
    let account_id = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256([7; 32])));
    LedgerKey::Account(LedgerKeyAccount { account_id })
}

/// A store with the index of what contracts hold, and the methods on it.
struct Indexed {
    rpc: Rpc,
    store: Arc<Store>,
    _directory: TempDir,
}

impl Indexed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let extensions = Extensions::for_consumers(&[Arc::new(ContractData)]);
        let store = Store::open_with(directory.path(), Some(&network()), extensions).unwrap();
        let store = Arc::new(store);
        let rpc = Rpc::new(Arc::clone(&store), Settings::default(), Arc::new(|| 0));
        Self { rpc, store, _directory: directory }
    }

    fn add(&self, raw: &[u8]) {
        let view = decode(raw, network().id()).unwrap();
        let prepared = self.store.prepare(&view, None, &IndexOptions::default()).unwrap();
        self.store.commit(prepared, Durability::Synced).unwrap();
    }

    fn step(&self) {
        while self.store.step(&ContractData).unwrap() {}
    }

    fn entries(&self, params: &Value) -> Result<String, RpcError> {
        entries(&self.rpc, params, CallLimits::UNLIMITED)
    }

    /// The message of an error −32602.
    fn refused(&self, params: &Value) -> String {
        let error = self.entries(params).unwrap_err();
        let told = serde_json::to_value(&error).unwrap();
        assert_eq!(told["code"], -32602, "{told}");
        error.message
    }
}

fn entries(rpc: &Rpc, params: &Value, limits: CallLimits<'_>) -> Result<String, RpcError> {
    let params = to_raw_value(params).unwrap();
    rpc.call("getLedgerEntries", Params(Some(&params)), limits)
        .map(|answer| answer.get().to_owned())
}

/// All entries of a network after a ledger.
#[derive(Clone)]
struct Recorded {
    ledger: LedgerSeq,
    entries: BTreeMap<LedgerKey, LiveEntry>,
}

impl Recorded {
    fn of<'k>(sandbox: &Sandbox, keys: impl Iterator<Item = &'k LedgerKey>) -> Self {
        let entry = |key: &LedgerKey| Some((key.clone(), sandbox.entry(key).unwrap()?));
        Self { ledger: sandbox.latest_ledger(), entries: keys.filter_map(entry).collect() }
    }
}

impl LiveNetwork for Recorded {
    fn entries(&self, keys: &[LedgerKey]) -> Result<LiveEntries, String> {
        let entries = keys.iter().map(|key| self.entries.get(key).cloned()).collect();
        Ok(LiveEntries { as_of: self.ledger, entries })
    }

    fn send(&self, _: TransactionEnvelope) -> Result<Submitted, String> {
        Err("not here".to_owned())
    }

    fn simulate(
        &self,
        _: &TransactionV1Envelope,
        _: AuthMode,
        _: u32,
    ) -> Result<Simulation, String> {
        Err("not here".to_owned())
    }
}

/// A server without a ledger of its own, whose network answers.
fn answering(network: Recorded) -> (Rpc, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path(), Some(&self::network())).unwrap());
    let rpc = Rpc::new(store, Settings::default(), Arc::new(|| 0));
    (rpc.with_live(Arc::new(network)), directory)
}

/// Keys of contract data in the metadata of all ledgers that were added.
fn data_keys(model: &StorageModel) -> impl Iterator<Item = &LedgerKey> {
    model.keys().map(|(_, key)| key).filter(|key| is_recorded(key) && contract_of(key).is_some())
}

/// Compares what the store answers with what the network does, byte by byte. Returns how many of its
/// entries are archived, and how many keys have none.
fn compare(
    indexed: &Indexed,
    network: &Recorded,
    keys: &[&LedgerKey],
    at: Option<u32>,
) -> [usize; 2] {
    let (direct, _directory) = answering(network.clone());
    let (mut archived, mut entries_of_all) = (0, 0);
    for (number, keys) in keys.chunks(MAX_KEYS).enumerate() {
        let format = if number % 2 == 0 { "base64" } else { "json" };
        let encoded: Vec<_> = keys.iter().map(|key| base64(*key)).collect();
        let params = json!({ "keys": encoded, "xdrFormat": format });
        let expected = entries(&direct, &params, CallLimits::UNLIMITED).unwrap();
        let told: Value = serde_json::from_str(&expected).unwrap();
        let told = told["entries"].as_array().unwrap();
        archived += told.iter().filter(|entry| entry["liveUntilLedgerSeq"] == 0).count();
        entries_of_all += told.len();
        let (params, expected) = match at {
            None => (params, expected),
            Some(newest) => {
                let ledger = network.ledger.0;
                let params = json!({ "keys": encoded, "xdrFormat": format, "ledger": ledger });
                let members = expected.strip_suffix('}').unwrap();
                (params, format!("{members},\"newestLedger\":{newest}}}"))
            }
        };
        let answer = indexed.entries(&params).unwrap();
        assert_eq!(answer, expected, "ledger {}", network.ledger);
    }
    [archived, keys.len() - entries_of_all]
}

#[test]
fn contract_data_is_answered_as_the_network_itself_does_at_every_ledger() {
    let (mut sandbox, indexed) = (sandbox(), Indexed::new());
    let mut model = StorageModel::new(PASSPHRASE);
    let mut recorded: Vec<Recorded> = Vec::new();
    let mut seen = [0, 0];
    for number in 1..=LEDGERS {
        let raw = sandbox.next_ledger().unwrap();
        model.add(&raw);
        indexed.add(&raw);
        indexed.step();
        if number % RECORDED_EVERY == 0 {
            let keys: Vec<_> = data_keys(&model).collect();
            let now = Recorded::of(&sandbox, keys.iter().copied());
            let here = compare(&indexed, &now, &keys, None);
            seen = [seen[0] + here[0], seen[1] + here[1]];
            recorded.push(now);
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "archived and absent: {seen:?}");
    let newest = sandbox.latest_ledger().0;
    let keys: Vec<_> = data_keys(&model).collect();
    assert!(keys.len() > MAX_KEYS, "{}", keys.len());
    for then in &recorded {
        compare(&indexed, then, &keys, Some(newest));
    }
    // What retention removes changes nothing from the first kept ledger on.
    let retention = Retention { transactions: Some(100), ..Retention::default() };
    while !indexed.store.prune(&retention).unwrap().is_nothing() {}
    let (removed, kept): (Vec<_>, Vec<_>) =
        recorded.iter().partition(|then| then.ledger.0 <= newest - 100);
    assert!(!removed.is_empty() && !kept.is_empty());
    for then in kept {
        compare(&indexed, then, &keys, Some(newest));
    }
    for Recorded { ledger, .. } in removed {
        let first = newest - 99;
        assert_eq!(
            indexed.refused(&json!({ "keys": [base64(keys[0])], "ledger": ledger.0 })),
            format!(
                "ledger {ledger} is not stored: the nearest stored ledgers are {first} - {newest}"
            )
        );
    }
}

/// The ledgers 2 to 11 and 15 to 31 of a network, and the key of the instance of one of its contracts.
fn with_gap() -> (Indexed, String) {
    let (mut sandbox, indexed) = (sandbox(), Indexed::new());
    let mut model = StorageModel::new(PASSPHRASE);
    while sandbox.latest_ledger() < LedgerSeq(31) {
        let raw = sandbox.next_ledger().unwrap();
        if !(12..15).contains(&sandbox.latest_ledger().0) {
            model.add(&raw);
            indexed.add(&raw);
        }
    }
    // Created in the first range.
    let created = model
        .contracts()
        .into_iter()
        .map(|contract| instance_key(&contract))
        .find(|key| matches!(model.at(key, 11), orrery_testkit::storage::Answer::Present(_)));
    (indexed, base64(&created.unwrap()))
}

#[test]
fn what_is_not_known_is_never_guessed() {
    let (indexed, instance) = with_gap();
    let at = |ledger: Value, key: &str| json!({ "keys": [key], "ledger": ledger });
    // The index lacks all ledgers: it is waited for where no network answers instead.
    for params in [json!({ "keys": [instance] }), at(json!(11), &instance)] {
        let error = indexed.entries(&params).unwrap_err();
        assert_eq!(error.otherwise, Some(Otherwise::Consumer(CONSUMER)), "{error}");
    }
    indexed.step();
    // What is known does not wait for older ledgers that are stored later, and nothing else is told.
    let (mut sandbox, unknown) = (sandbox(), account());
    let late: Vec<_> = (2..=12).map(|_| sandbox.next_ledger().unwrap()).collect();
    indexed.add(late.last().unwrap());
    let error = indexed.entries(&at(json!(11), &base64(&unknown))).unwrap_err();
    assert_eq!(error.otherwise, Some(Otherwise::Consumer(CONSUMER)), "{error}");
    let early = indexed.entries(&at(json!(11), &instance)).unwrap();
    indexed.step();
    assert_eq!(indexed.entries(&at(json!(11), &instance)).unwrap(), early);
    let told: Value =
        serde_json::from_str(&indexed.entries(&at(json!(11), &instance)).unwrap()).unwrap();
    assert_eq!(told["entries"][0]["key"], instance);
    assert_eq!((&told["latestLedger"], &told["newestLedger"]), (&json!(11), &json!(31)));
    for (ledger, nearest) in [(0, "2 - 12"), (13, "2 - 12"), (14, "15 - 31"), (32, "15 - 31")] {
        assert_eq!(
            indexed.refused(&at(json!(ledger), &instance)),
            format!("ledger {ledger} is not stored: the nearest stored ledgers are {nearest}")
        );
    }
    let ttl = LedgerKey::Ttl(LedgerKeyTtl { key_hash: Hash([1; 32]) });
    for key in [account(), ttl.clone()].iter().map(base64) {
        let keys = json!([instance, key, base64(&account())]);
        assert_eq!(
            indexed.refused(&json!({ "keys": keys, "ledger": 11 })),
            format!("unknown at ledger 11: {key}")
        );
    }
    let message = indexed.refused(&json!({ "keys": [base64(&ttl)] }));
    assert_eq!(message, "ledger ttl entries cannot be queried directly");
    let message = indexed.refused(&json!({ "keys": vec![&instance; 201], "ledger": 11 }));
    assert_eq!(message, "key count (201) exceeds maximum supported (200)");
    for ledger in [json!("11"), json!(-1), json!(1.5), json!([11])] {
        assert_eq!(indexed.refused(&at(ledger, &instance)), "invalid parameters");
    }
    let empty: Value =
        serde_json::from_str(&indexed.entries(&json!({ "keys": [], "ledger": 3 })).unwrap())
            .unwrap();
    assert_eq!(empty, json!({ "entries": [], "latestLedger": 3, "newestLedger": 31 }));
    // Other entries are the network's to tell.
    for keys in [json!([base64(&account())]), json!([instance, base64(&account())]), json!([])] {
        let error = indexed.entries(&json!({ "keys": keys, "ledger": null })).unwrap_err();
        assert_eq!(error.otherwise, Some(Otherwise::Forwarding), "{error}");
        assert!(error.message.contains("[rpc] upstream"), "{error}");
    }
    let over = Bounds { interrupted: &|| true, ..Bounds::NONE };
    let over = CallLimits { bounds: over, ..CallLimits::UNLIMITED };
    let error = entries(&indexed.rpc, &at(json!(11), &instance), over).unwrap_err();
    assert_eq!(serde_json::to_value(&error).unwrap()["code"], -32001);
    let full =
        CallLimits { reserve: &|_| Err(RpcError::internal("no room")), ..CallLimits::UNLIMITED };
    let error = entries(&indexed.rpc, &at(json!(11), &instance), full).unwrap_err();
    assert_eq!(error.message, "no room");
}

#[test]
fn a_network_that_is_ahead_of_the_store_answers_itself() {
    let (mut sandbox, indexed) = (sandbox(), Indexed::new());
    let mut model = StorageModel::new(PASSPHRASE);
    for _ in 0..10 {
        let raw = sandbox.next_ledger().unwrap();
        model.add(&raw);
        indexed.add(&raw);
    }
    indexed.step();
    let is_held = |key: &&LedgerKey| sandbox.entry(key).unwrap().is_some();
    let keys: Vec<_> = data_keys(&model).filter(is_held).take(3).collect();
    let params = json!({ "keys": keys.iter().map(|key| base64(*key)).collect::<Vec<_>>() });
    // Told apart by what the network says of the entries: nothing.
    for (ahead, count) in [(0, 3), (1, 0)] {
        let ledger = LedgerSeq(sandbox.latest_ledger().0 + ahead);
        let live = Recorded { ledger, entries: BTreeMap::new() };
        let rpc = Rpc::new(Arc::clone(&indexed.store), Settings::default(), Arc::new(|| 0));
        let rpc = rpc.with_live(Arc::new(live));
        let answer = entries(&rpc, &params, CallLimits::UNLIMITED).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["latestLedger"], ledger.0);
        assert_eq!(answer["entries"].as_array().unwrap().len(), count);
    }
}

#[test]
fn a_service_forwards_what_it_does_not_know() {
    let directory = tempfile::tempdir().unwrap();
    let (mut sandbox, network) = (sandbox(), network());
    let mut model = StorageModel::new(PASSPHRASE);
    {
        let store = Store::open(directory.path(), Some(&network)).unwrap();
        for _ in 0..20 {
            let raw = sandbox.next_ledger().unwrap();
            model.add(&raw);
            let view = decode(&raw, network.id()).unwrap();
            let prepared = PreparedLedger::new(&view, &IndexOptions::default()).unwrap();
            store.commit(prepared, Durability::Deferred).unwrap();
        }
        store.flush().unwrap();
    }
    let is_held = |key: &&LedgerKey| sandbox.entry(key).unwrap().is_some();
    let key = base64(data_keys(&model).find(is_held).unwrap());
    let other = upstream(PASSPHRASE);
    let service =
        Service::start_with(directory.path(), &[("ORRERY_RPC_UPSTREAM", &other.url("/"))]);
    let call = |method: &str, params: &Value| -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        HTTP.post(format!("{}/rpc", service.base)).json(&call).send().unwrap().json().unwrap()
    };
    let newest = sandbox.latest_ledger().0;
    let params = json!({ "keys": [key], "ledger": newest });
    let at = &wait_until("all ledgers are indexed", || {
        let answer = call("getLedgerEntries", &params);
        answer.get("result").cloned().ok_or(answer)
    });
    assert_eq!(at["entries"][0]["key"], key);
    assert_eq!((&at["latestLedger"], &at["newestLedger"]), (&json!(newest), &json!(newest)));
    let params = json!({ "keys": [key], "more": [1, null] });
    let now = wait_until("it is answered from the store", || {
        let answer = call("getLedgerEntries", &params);
        answer["result"].get("entries").is_some().then(|| answer["result"].clone())
    });
    assert_eq!(now, json!({ "entries": at["entries"], "latestLedger": newest }));
    let account = base64(&account());
    for params in [
        json!({ "keys": [account] }),
        json!({ "keys": [key, account], "ledger": null, "xdrFormat": "json" }),
        json!({ "keys": ["AAAA"] }),
        json!({ "keys": [] }),
        json!({}),
        Value::Null,
    ] {
        let answer = call("getLedgerEntries", &params);
        assert_eq!(answer["result"]["method"], "getLedgerEntries", "{answer}");
        assert_eq!(answer["result"]["params"], params);
    }
    let refused = call("getLedgerEntries", &json!({ "keys": [key, account], "ledger": newest }));
    let message = format!("unknown at ledger {newest}: {account}");
    assert_eq!(refused["error"], json!({ "code": -32602, "message": message }));
    let refused = call("getLedgerEntries", &json!({ "keys": [key], "ledger": "newest" }));
    assert_eq!(refused["error"]["message"], "invalid parameters");
    let version = call("getVersionInfo", &Value::Null);
    assert_eq!(version["result"]["atLedger"], json!(["getLedgerEntries", "simulateTransaction"]));
}
