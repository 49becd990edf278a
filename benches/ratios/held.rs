//! P32 and P33: what contracts hold. Pages of a contract with many keys, over HTTP from the built binary,
//! and what the index of keys costs while ledgers are stored.

use std::convert::Infallible;
use std::error::Error;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use orrery::contract_data::ContractData;
use orrery::decode::{HeaderView, LedgerView, TransactionView, changed_entries, decode};
use orrery::domain::{ContractId, Hash32, LedgerSeq, Network};
use orrery::pipeline::{Pipeline, StepObserver};
use orrery::store::{Durability, Extensions, Store};
use serde_json::Value;
use sha2::{Digest, Sha256};
use stellar_xdr::{
    AccountId, ContractDataDurability, ContractDataEntry, ContractExecutable, ExtensionPoint, Hash,
    Int128Parts, LedgerEntry, LedgerEntryChange, LedgerEntryChanges, LedgerEntryData,
    LedgerEntryExt, LedgerKey, LedgerKeyContractData, OperationMetaV2, PublicKey, ScAddress,
    ScContractInstance, ScVal, TransactionMeta, TransactionMetaV4, TtlEntry, Uint256,
};
use tempfile::TempDir;

use super::amplify;
use super::client::Client;
use super::indexing::raw;
use super::many;
use super::measure::{REPETITIONS, Sample, Sides, micros, quantile, sized, time};
use super::process::Service;
use super::recorded::{Recorded, xdr};
use super::report::{Goal, Report, Row};
use super::running::wait_until;
use super::variation::spread;

const P32: Goal = Goal::at_most(50.0, 10.0);
const P32_OTHER: Goal = Goal::at_most(1.3, 1.0);
const P33: Goal = Goal::at_least(0.9, 0.98);
const P33_SIZE: Goal = Goal::at_most(1.15, 1.05);

/// Keys of the contract with few of them.
const FEW: u64 = 100;
/// Keys that one transaction creates, and transactions of one ledger.
const KEYS_PER_TRANSACTION: u64 = 100;
const TRANSACTIONS: u64 = 50;
/// Pages that are requested in a row, of each size.
const PAGES: usize = sized(500, 3);
/// Minimum time between the beginnings of two steps of a consumer that has almost caught up.
const STEP_INTERVAL: Duration = Duration::from_millis(5);
/// Copies of the recorded ledgers that are stored with and without the index.
const COPIES: u64 = sized(40, 1);

/// Measures the selected goals. The large contract has about this many keys.
pub fn run(
    recorded: &Recorded,
    keys: u64,
    wanted: impl Fn(&str) -> bool,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    if wanted("P32") {
        pages(recorded, keys, directory, report)?;
    }
    if wanted("P33") {
        ingestion(recorded, directory, report)?;
    }
    Ok(())
}

/// A service whose store has one contract with few keys, and perhaps one with many.
struct Scene {
    _service: Service,
    client: Client,
    _data: TempDir,
}

impl Scene {
    fn new(recorded: &Recorded, keys: u64, directory: &Path) -> Result<Self, Box<dyn Error>> {
        let data = tempfile::tempdir_in(directory)?;
        let stored: PathBuf = data.path().join("data");
        fill(recorded, keys, &stored)?;
        let program = Path::new(env!("CARGO_BIN_EXE_orrery"));
        let service = Service::start_build(program, &stored, &recorded.network)?;
        let mut client = service.client(&stored, &recorded.network)?;
        wait_until("all keys are indexed", || {
            let metrics = client.get("/metrics").unwrap_or_default();
            let lag = "orrery_consumer_lag_ledgers{consumer=\"contract_data\"} 0";
            String::from_utf8_lossy(metrics).lines().any(|line| line == lag)
        })?;
        Ok(Self { _service: service, client, _data: data })
    }

    fn get(&mut self, path: &str) -> Result<Value, Box<dyn Error>> {
        Ok(serde_json::from_slice(self.client.get(path)?)?)
    }

    /// Requests pages of a contract one after another. Returns the milliseconds that each took, and the
    /// hashes of some of the keys.
    fn walk(
        &mut self,
        contract: ContractId,
        limit: usize,
    ) -> Result<(Vec<f64>, Vec<String>), Box<dyn Error>> {
        let (mut took, mut hashes) = (Vec::new(), Vec::new());
        let first = format!("/rest/contracts/{contract}/storage?limit={limit}");
        let mut path = first.clone();
        for _ in 0..PAGES {
            let mut answer = Ok(Value::Null);
            took.push(time(|| answer = self.get(&path)).as_secs_f64() * 1e3);
            let answer = answer?;
            let entries = answer["entries"].as_array().ok_or("a page has entries")?;
            let entry = entries.last().ok_or("a page is not empty")?;
            hashes.push(entry["key_hash"].as_str().ok_or("an entry has a hash")?.to_owned());
            let Some(cursor) = answer["cursor"].as_str() else { break };
            path = format!("{first}&cursor={cursor}");
        }
        Ok((took, hashes))
    }
}

fn pages(
    recorded: &Recorded,
    keys: u64,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut alone = Scene::new(recorded, 0, directory)?;
    let mut scene = Scene::new(recorded, keys, directory)?;
    let mut add = |name: String, took: &[f64], share| {
        report.add(Row::absolute(name, "ms", Sample::exact(quantile(took, share)), P32));
    };
    let mut hashes = Vec::new();
    for limit in [100, 1_000] {
        let (took, last) = scene.walk(large(), limit)?;
        add(format!("P32 page of {limit} of a contract with many keys, p50"), &took, 0.5);
        add(format!("P32 page of {limit} of a contract with many keys, p99"), &took, 0.99);
        hashes.extend(last);
    }
    let path = |hash: &String| format!("/rest/contracts/{}/storage/{hash}", large());
    let paths: Vec<_> = hashes.iter().map(path).collect();
    let took = micros(&paths, |path| {
        scene.client.get(path).expect("the service answers");
    });
    let took: Vec<_> = took.iter().map(|micros| micros / 1e3).collect();
    add("P32 one key of a contract with many keys, p99".to_owned(), &took, 0.99);
    let median = |scene: &mut Scene| -> Result<f64, Box<dyn Error>> {
        let mut took = Vec::new();
        for _ in 0..PAGES {
            took.extend(scene.walk(few(), FEW as usize)?.0);
        }
        Ok(quantile(&took, 0.5))
    };
    let mut sides = Vec::new();
    for _ in 0..REPETITIONS {
        sides.push((median(&mut scene)?, median(&mut alone)?));
    }
    let name = "P32 page of a contract with few keys, beside one with many / without it";
    report.add(Row::new(name, "ms", sides.into_iter().collect::<Sides>(), P32_OTHER));
    report.note(format!(
        "P32: {keys} keys of the large contract, each created once by transactions of {KEYS_PER_TRANSACTION}; {FEW} of \
         the small one. {PAGES} pages one after another, none asked before."
    ));
    Ok(())
}

fn large() -> ContractId {
    ContractId(spread(1 << 52))
}

fn few() -> ContractId {
    ContractId(spread((1 << 52) + 1))
}

/// Stores ledgers that create the keys of both contracts.
fn fill(recorded: &Recorded, keys: u64, stored: &Path) -> Result<(), Box<dyn Error>> {
    let ledgers = amplify::chain(recorded, 1);
    let template = decode(&ledgers[0], recorded.network.id())?;
    let extensions = Extensions::for_consumers(&[Arc::new(ContractData)]);
    let store = Store::open_with(stored, Some(&recorded.network), extensions)?;
    let per_ledger = KEYS_PER_TRANSACTION * TRANSACTIONS;
    for number in 0..=keys.div_ceil(per_ledger) {
        let (contract, first, count) = match number {
            0 => (few(), 0, FEW),
            _ => (large(), (number - 1) * per_ledger, per_ledger),
        };
        store_ledger(&store, &template, number, &Keys { contract, first, count })?;
    }
    while store.step(&ContractData)? {}
    store.compact()?;
    Ok(())
}

/// Keys that a ledger creates.
struct Keys {
    contract: ContractId,
    first: u64,
    count: u64,
}

fn store_ledger(
    store: &Store,
    template: &LedgerView<'_>,
    number: u64,
    keys: &Keys,
) -> Result<(), Box<dyn Error>> {
    let sequence = LedgerSeq(template.header.sequence.0 + number as u32);
    let starts = (keys.first..keys.first + keys.count).step_by(KEYS_PER_TRANSACTION as usize);
    let metas: Vec<_> = starts.map(|start| meta(keys, start, sequence)).collect();
    let one = template.transactions.iter().find(|it| it.smart_contract && it.successful);
    let one = one.ok_or("a recorded ledger has a transaction of a smart contract")?;
    let mut transactions = Vec::new();
    for (order, meta) in (1..).zip(&metas) {
        transactions.push(TransactionView {
            application_order: order,
            hash: Hash32(spread((number << 20 | u64::from(order)) + (1 << 53))),
            inner_hash: None,
            meta,
            contracts: vec![keys.contract],
            changed_entries: changed_entries(meta).map_err(|error| error.to_string())?,
            restored_entries: Vec::new(),
            has_new_contract: order == 1 && keys.first == 0,
            operation_events: 0..0,
            listed_events: 0,
            return_value: None,
            ..one.clone()
        });
    }
    let header = HeaderView {
        xdr: &[],
        hash: Hash32(spread(u64::from(sequence.0))),
        previous_hash: Hash32(spread(u64::from(sequence.0 - 1))),
        sequence,
        close_time: template.header.close_time + number * amplify::CLOSE_INTERVAL,
        ..template.header.clone()
    };
    let view = LedgerView {
        raw: &[],
        header,
        transactions,
        events: Vec::new(),
        topics: Vec::new(),
        evicted: Vec::new(),
        ..template.clone()
    };
    let prepared = store.prepare(&view, None, &many::options(false))?;
    store.commit(prepared, Durability::Deferred)?;
    Ok(())
}

/// Returns the metadata of a transaction that creates keys from a number on, the first one with the
/// instance of their contract.
fn meta(keys: &Keys, start: u64, ledger: LedgerSeq) -> Vec<u8> {
    let end = (keys.first + keys.count).min(start + KEYS_PER_TRANSACTION);
    let mut changes = Vec::new();
    if start == 0 {
        let instance = ScVal::ContractInstance(ScContractInstance {
            executable: ContractExecutable::StellarAsset,
            storage: None,
        });
        changes.extend(created(keys.contract, ScVal::LedgerKeyContractInstance, instance, ledger));
    }
    for number in start..end {
        let account = AccountId(PublicKey::PublicKeyTypeEd25519(Uint256(spread(number))));
        let name = ScVal::Symbol("Balance".try_into().expect("a symbol"));
        let owner = ScVal::Address(ScAddress::Account(account));
        let key = ScVal::Vec(Some(vec![name, owner].try_into().expect("two values")));
        let value = ScVal::I128(Int128Parts { hi: 0, lo: number });
        changes.extend(created(keys.contract, key, value, ledger));
    }
    let operation = OperationMetaV2 {
        ext: ExtensionPoint::V0,
        changes: LedgerEntryChanges(changes.try_into().expect("few changes")),
        events: Default::default(),
    };
    xdr(&TransactionMeta::V4(TransactionMetaV4 {
        operations: vec![operation].try_into().expect("one operation"),
        ..TransactionMetaV4::default()
    }))
}

/// Returns the changes that create an entry and its time to live.
fn created(
    contract: ContractId,
    key: ScVal,
    val: ScVal,
    LedgerSeq(ledger): LedgerSeq,
) -> [LedgerEntryChange; 2] {
    let contract = ScAddress::Contract(stellar_xdr::ContractId(Hash(contract.0)));
    let durability = ContractDataDurability::Persistent;
    let of = LedgerKeyContractData { contract, key, durability };
    let key_hash = Hash(Sha256::digest(xdr(&LedgerKey::ContractData(of.clone()))).into());
    let LedgerKeyContractData { contract, key, durability } = of;
    let data = ContractDataEntry { ext: ExtensionPoint::V0, contract, key, durability, val };
    let ttl = TtlEntry { key_hash, live_until_ledger_seq: ledger + 1_000_000 };
    [LedgerEntryData::ContractData(data), LedgerEntryData::Ttl(ttl)].map(|data| {
        LedgerEntryChange::Created(LedgerEntry {
            last_modified_ledger_seq: ledger,
            data,
            ext: LedgerEntryExt::V0,
        })
    })
}

/// Stores public ledgers with and without the index of keys, in turn.
fn ingestion(
    recorded: &Recorded,
    directory: &Path,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let ledgers = amplify::chain(recorded, COPIES);
    let (mut rates, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let with = stored(&ledgers, &recorded.network, true, directory)?;
        let without = stored(&ledgers, &recorded.network, false, directory)?;
        rates.push((with.ledgers_per_second, without.ledgers_per_second));
        sizes.push((with.bytes_per_event, without.bytes_per_event));
    }
    let name = "P33 ingestion with / without the index of keys, public ledgers";
    report.add(Row::new(name, "ledgers/s", rates.into_iter().collect::<Sides>(), P33));
    let name = "P33 size with / without the index of keys, public ledgers";
    report.add(Row::new(name, "B/event", sizes.into_iter().collect::<Sides>(), P33_SIZE));
    report.note(format!(
        "P33: {} public ledgers, with all that is stored of them: events, transactions with their metadata, raw \
         ledgers. With the index, until it has all of them too. Sizes are those after the compaction.",
        ledgers.len()
    ));
    Ok(())
}

/// What it took to store ledgers.
struct Stored {
    ledgers_per_second: f64,
    bytes_per_event: f64,
}

struct Unobserved;

impl StepObserver for Unobserved {
    fn step(&self, _: &'static str, _: f64) {}
}

fn stored(
    ledgers: &[Vec<u8>],
    network: &Network,
    is_indexed: bool,
    directory: &Path,
) -> Result<Stored, Box<dyn Error>> {
    let directory = tempfile::tempdir_in(directory)?;
    let extensions = match is_indexed {
        true => Extensions::for_consumers(&[Arc::new(ContractData)]),
        false => Extensions::default(),
    };
    let store = Arc::new(Store::open_with(directory.path(), Some(network), extensions)?);
    let pipeline = Pipeline::new(Arc::clone(&store), many::options(true), Arc::new(Unobserved));
    let given: Vec<_> = ledgers.iter().map(|xdr| raw(xdr)).collect();
    let is_over = AtomicBool::new(!is_indexed);
    let took = time(|| {
        thread::scope(|scope| {
            if is_indexed {
                scope.spawn(|| index(&store, &is_over));
            }
            let given = given.into_iter().map(Ok::<_, Infallible>);
            let done = pipeline.run(given, Durability::Synced, |_| ControlFlow::Continue(()));
            done.expect("the load is a valid chain");
            is_over.store(true, Ordering::Release);
        });
    });
    store.compact()?;
    let bytes: u64 = store.sizes()?.values().sum();
    Ok(Stored {
        ledgers_per_second: ledgers.len() as f64 / took.as_secs_f64(),
        bytes_per_event: bytes as f64 / store.status().totals.events as f64,
    })
}

/// Maintains the index until all ledgers are stored and processed, in steps as a service takes them at its
/// newest ledgers.
fn index(store: &Store, is_over: &AtomicBool) {
    loop {
        let (begun, was_over) = (Instant::now(), is_over.load(Ordering::Acquire));
        if !store.step(&ContractData).expect("the ledgers can be read") && was_over {
            return;
        }
        if !was_over {
            thread::sleep(STEP_INTERVAL.saturating_sub(begun.elapsed()));
        }
    }
}
