//! `orrery backfill --state`: what contracts hold is completed from a history archive of a sandbox network,
//! by a process of its own and by a running service; a wrong byte is refused, and a killed process goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::MultiGzDecoder;
use orrery::domain::{ContractId, Hash32};
use orrery_testkit::archive::{framed, naive, write};
use orrery_testkit::binary::{Service, orrery_in, run};
use orrery_testkit::client::HTTP;
use orrery_testkit::kills::kill_repeatedly;
use orrery_testkit::process::copy;
use orrery_testkit::sandbox::{local, sandbox};
use orrery_testkit::scratch::scratch;
use orrery_testkit::size;
use orrery_testkit::storage::{
    Because, CheckpointState, HeldThere, Present, StorageModel, Value as Held, contract_of,
    instance_key,
};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use stellar_xdr::{
    ExtendFootprintTtlOp, ExtensionPoint, LedgerEntryData, Limits, Operation, OperationBody,
    Transaction, TransactionEnvelope, TransactionV1Envelope, WriteXdr,
};

/// The first ledger that is stored, the checkpoint, and the last ledger. The first entries expire in ledger
/// 124.
const FIRST: u32 = 100;
const CHECKPOINT: u32 = 127;
const LAST: u32 = 136;

/// A network, of which an archive has the state at a checkpoint.
struct Made {
    /// From the first one that is stored on.
    ledgers: Vec<Vec<u8>>,
    files: BTreeMap<String, Vec<u8>>,
}

static MADE: LazyLock<Made> = LazyLock::new(|| {
    let mut sandbox = sandbox(5, 0..=6).with_buckets().unwrap();
    let (mut ledgers, mut files) = (Vec::new(), BTreeMap::new());
    while sandbox.latest_ledger().0 < LAST {
        let ledger = sandbox.next_ledger().unwrap();
        if sandbox.latest_ledger().0 >= FIRST {
            ledgers.push(ledger);
        }
        if sandbox.latest_ledger().0 == CHECKPOINT {
            files = sandbox.checkpoint().unwrap().files.into_iter().collect();
        }
    }
    Made { ledgers, files }
});

/// Stores the ledgers in the data directory `d`, and writes the archive into `archive`.
fn prepare(at: &Path) {
    let all: Vec<u8> = MADE.ledgers.iter().flat_map(|ledger| framed(ledger)).collect();
    fs::write(at.join("meta.xdr"), all).unwrap();
    let passphrase = local();
    let network = ["--network-passphrase", passphrase.passphrase()];
    let import = [&["import", "--json", "--data-dir", "d"][..], &network, &["meta.xdr"]].concat();
    run(at, &import).json();
    write(&at.join("archive"), MADE.files.clone());
}

/// The command, with more arguments.
fn complete<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let command = ["backfill", "--data-dir", "d", "--json", "--state", "--from-archive", "archive"];
    [&command, more].concat()
}

/// The state at the checkpoint, as a second reader of archives reads it.
fn state(archive: &Path, contracts: Option<BTreeSet<[u8; 32]>>) -> CheckpointState {
    let read = naive::read(archive, CHECKPOINT);
    let wanted = read.data.into_iter().filter(|((contract, _), _)| {
        contracts.as_ref().is_none_or(|contracts| contracts.contains(contract))
    });
    let held = |((_, hash), held): (([u8; 32], [u8; 32]), naive::Held<_>)| {
        let entry: stellar_xdr::LedgerEntry = held.value;
        let LedgerEntryData::ContractData(data) = &entry.data else { panic!("{entry:?}") };
        let there = HeldThere {
            key: entry.to_key(),
            value: Held::Data(data.val.clone()),
            modified: entry.last_modified_ledger_seq,
            live_until: held.live_until,
            is_evicted: held.is_evicted,
        };
        (hash, there)
    };
    CheckpointState { entries: wanted.map(held).collect(), contracts }
}

fn model() -> StorageModel {
    let mut model = StorageModel::new(local().passphrase());
    for ledger in &MADE.ledgers {
        model.add(ledger);
    }
    model
}

/// Compares lists and histories of all contracts with the model.
fn compare(service: &Service, model: &StorageModel) {
    for contract in model.contracts() {
        let path = format!("/rest/contracts/{}/storage", ContractId(contract));
        for ledger in [FIRST, CHECKPOINT - 1, CHECKPOINT, CHECKPOINT + 1, LAST] {
            let list = service.get(&format!("{path}?at={ledger}&limit=1000"));
            let expected = model.list(&contract, ledger).unwrap();
            let case = format!("{path} at {ledger}: {list}");
            assert_eq!(list["complete"], expected.complete, "{case}");
            assert_eq!(list["known_since"], expected.known_since, "{case}");
            let instance = instance_key(&contract);
            let (of_instance, others): (Vec<_>, Vec<_>) =
                expected.entries.iter().partition(|entry| entry.present.key == instance);
            assert_eq!(list["instance"].is_null(), of_instance.is_empty(), "{case}");
            let told = list["entries"].as_array().unwrap();
            assert_eq!(told.len(), others.len(), "{case}");
            for (told, expected) in told.iter().zip(others) {
                assert_eq!(told["key_hash"], Hash32(expected.key_hash).to_string(), "{case}");
                assert_eq!(facts(told), facts_of(&expected.present), "{case}");
            }
        }
    }
    for (hash, key) in model.keys().filter(|(_, key)| contract_of(key).is_some()) {
        let contract = ContractId(contract_of(key).unwrap());
        let hash_text = Hash32(*hash);
        let path = format!("/rest/contracts/{contract}/storage/{hash_text}/history?limit=1000");
        let told = service.get(&path);
        let told: Vec<_> = told["changes"].as_array().unwrap().iter().map(change).collect();
        let expected: Vec<_> = model.history(hash).changes;
        let expected: Vec<_> = expected.iter().map(|row| (row.kind.name(), row.ledger)).collect();
        let told: Vec<_> = told.iter().map(|(kind, ledger)| (kind.as_str(), *ledger)).collect();
        assert_eq!(told, expected, "{path}");
    }
}

fn change(row: &Value) -> (String, u32) {
    (row["kind"].as_str().unwrap().to_owned(), row["ledger"].as_u64().unwrap() as u32)
}

fn facts(told: &Value) -> Value {
    let members =
        ["value", "live_until_ledger", "archived", "updated_ledger", "modified_ledger", "tx"];
    members.iter().map(|member| told[*member].clone()).collect()
}

fn facts_of(present: &Present) -> Value {
    let value = present.value.data().unwrap().to_xdr(Limits::none()).unwrap();
    json!([
        STANDARD.encode(value),
        present.live_until,
        present.archived,
        present.updated_ledger,
        present.modified_ledger,
        present.updated_tx.map(|tx| Hash32(tx.hash).to_string()),
    ])
}

/// What a simulation of a transaction that changes nothing says at a ledger.
fn simulated(service: &Service, ledger: u32) -> Value {
    let op = ExtendFootprintTtlOp { ext: ExtensionPoint::V0, extend_to: 1 };
    let body = OperationBody::ExtendFootprintTtl(op);
    let operations = vec![Operation { source_account: None, body }].try_into().unwrap();
    let tx = Transaction { operations, ..Transaction::default() };
    let envelope = TransactionV1Envelope { tx, ..TransactionV1Envelope::default() };
    let transaction = TransactionEnvelope::Tx(envelope).to_xdr_base64(Limits::none()).unwrap();
    let params = json!({ "transaction": transaction, "ledger": ledger });
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "simulateTransaction", "params": params });
    HTTP.post(format!("{}/rpc", service.base)).json(&call).send().unwrap().json().unwrap()
}

#[test]
fn what_contracts_hold_is_completed_by_a_process_and_by_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    prepare(at);
    let archive = at.join("archive");
    let mut model = model();
    // One with an entry that no stored ledger names up to the checkpoint.
    let whole = state(&archive, None);
    let is_unknown = |held: &&HeldThere| model.at(&held.key, CHECKPOINT).present().is_none();
    let unknown = whole.entries.values().find(is_unknown).unwrap();
    let contract = contract_of(&unknown.key).unwrap();

    run(at, &complete(&[])).refuses(1, &["stored and attested", "--unattested"]);
    run(at, &complete(&["--at", "20"])).refuses(1, &["ledger 20 is not stored", "orrery backfill"]);
    let attested = complete(&["--at", "127"]);
    run(at, &attested).refuses(1, &["ledger 127 is not attested", "--unattested"]);
    let absent = complete(&["--at", "130", "--unattested"]);
    run(at, &absent).refuses(1, &["no checkpoint at ledger 130", "history-00000082.json"]);
    run(at, &["backfill", "--data-dir", "d", "--state"]).refuses(2, &["--from-archive"]);

    // One contract, by this process.
    let id = ContractId(contract).to_string();
    let report = run(at, &complete(&["--unattested", "--contract", &id])).json();
    assert_eq!((&report["state"], &report["checkpoint"]), (&json!("done"), &json!(CHECKPOINT)));
    assert_eq!((&report["attested"], &report["skipped"]), (&json!(false), &json!(0)));
    assert!(report["found"].as_u64().unwrap() > 0, "{report}");
    assert!(!at.join("d/state-archive").exists());
    model.add_checkpoint(CHECKPOINT, state(&archive, Some(BTreeSet::from([contract]))));
    let service = Service::start_in(at, &["--data-dir", "d"]);
    compare(&service, &model);
    let range = &service.get("/rest/completeness")["ranges"][0];
    assert_eq!(range["storage"], "unbound");
    let checkpoint = json!({"ledger": CHECKPOINT, "attested": false, "contracts": "listed"});
    assert_eq!(range["checkpoints"], json!([checkpoint]));

    // All of them, by the service.
    let report = run(at, &complete(&["--unattested"])).json();
    assert_eq!(report["state"], "done", "{report}");
    assert_eq!(report["entries"], whole.entries.len());
    model.add_checkpoint(CHECKPOINT, whole);
    compare(&service, &model);
    let range = &service.get("/rest/completeness")["ranges"][0];
    assert_eq!(range["storage"], format!("checked at {CHECKPOINT}, unattested"));
    let is_found = |present: &Present| present.because == Because::Checkpoint;
    // The settings of the network as well, which no stored ledger has changed.
    for ledger in [FIRST, CHECKPOINT, LAST] {
        assert_eq!(simulated(&service, ledger)["result"]["latestLedger"], ledger);
    }
    let known = model.keys().map(|(_, key)| model.at(key, LAST));
    let found = known.filter(|answer| answer.present().is_some_and(is_found)).count();
    assert!(found > 0, "{found} entries are known from the checkpoint alone");
    let status = run(at, &["backfill", "--data-dir", "d", "--json", "--state", "--status"]).json();
    assert_eq!(status["state"], "done");
    service.stop();

    // Once more: everything is there.
    let report = run(at, &complete(&["--unattested"])).json();
    assert_eq!((&report["state"], &report["found"]), (&json!("done"), &json!(0)));
}

/// Hashes of the buckets that are part of the state: not those that the next ledgers need.
fn hashed() -> Vec<String> {
    let state = &MADE.files[".well-known/stellar-history.json"];
    let state: Value = serde_json::from_slice(state).unwrap();
    let lists = ["currentBuckets", "hotArchiveBuckets"].map(|list| state[list].as_array().unwrap());
    let levels = lists.into_iter().flatten();
    let hashes = levels.flat_map(|level| [&level["curr"], &level["snap"]]);
    hashes.map(|hash| hash.as_str().unwrap().to_owned()).collect()
}

fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut unpacked).ok()?;
    Some(unpacked)
}

/// One byte changed anywhere: the file is named, and nothing is recorded. Not where the changed bytes mean
/// the same, as unused bits of gzip do.
#[test]
fn one_wrong_byte_is_refused_and_nothing_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    prepare(at);
    let random = &mut ChaCha8Rng::seed_from_u64(3);
    let checkpoint = ["--unattested", "--at", "127"];
    let (mut refused, wanted) = (0, size::choose(12, 200));
    let hashed = hashed();
    while refused < wanted {
        let is_bucket = |(name, bytes): &(&String, &Vec<u8>)| {
            hashed.iter().any(|hash| name.contains(hash.as_str())) && bytes.len() > 20
        };
        let (name, bytes) = MADE.files.iter().filter(is_bucket).choose(random).unwrap();
        let mut wrong = bytes.clone();
        // After the header of gzip.
        let place = random.random_range(10..wrong.len());
        wrong[place] ^= random.random_range(1..=255_u8);
        if unpacked(&wrong).is_some_and(|same| Some(same) == unpacked(bytes)) {
            continue;
        }
        fs::write(at.join("archive").join(name), wrong).unwrap();
        run(at, &complete(&checkpoint)).refuses(1, &[name, "refused"]);
        refused += 1;
        fs::write(at.join("archive").join(name), bytes).unwrap();
    }
    let service = Service::start_in(at, &["--data-dir", "d"]);
    compare(&service, &model());
    assert_eq!(service.get("/rest/completeness")["ranges"][0].get("checkpoints"), None);
    let refused = simulated(&service, CHECKPOINT)["error"]["message"].to_string();
    assert!(refused.contains("the setting ContractComputeV0 is not known"), "{refused}");
    service.stop();
}

#[test]
fn a_killed_process_goes_on() {
    let random = &mut ChaCha8Rng::seed_from_u64(4);
    // On the file system of the copies, which have links to its files.
    let prepared = scratch();
    prepare(prepared.path());
    let process = |at: &Path, _| {
        if !at.join("archive").exists() {
            for part in ["d", "archive"] {
                copy(&prepared.path().join(part), &at.join(part));
            }
        }
        let mut process = orrery_in(at);
        process.args(complete(&["--unattested"])).stdout(std::process::Stdio::null());
        process.stderr(std::process::Stdio::null());
        process
    };
    let ended = |at: &Path, _| {
        let mut model = model();
        model.add_checkpoint(CHECKPOINT, state(&at.join("archive"), None));
        let service = Service::start_in(at, &["--data-dir", "d"]);
        compare(&service, &model);
        service.stop();
    };
    kill_repeatedly(size::choose(6, 100), random, process, |_| {}, ended);
}
