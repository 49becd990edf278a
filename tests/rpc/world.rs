//! Chains of recorded and generated ledgers, stores of them, and calls on these stores.

use std::sync::Arc;

use orrery::decode::decode;
use orrery::domain::Network;
use orrery::rpc::{CallLimits, Params, Rpc, Settings, TransactionHashes};
use orrery::store::{Durability, Extensions, IndexOptions, PreparedLedger, Store};
use serde_json::Value;
use serde_json::value::to_raw_value;
use tempfile::TempDir;

use orrery_testkit::fixtures;
use orrery_testkit::pubnet;

/// Of the recorded chains that are not public, one file in this many is used unless the tests run
/// in full size.
const SAMPLED: usize = 9;

/// Default index options: raw ledgers are stored.
pub const RAW_KEPT: IndexOptions =
    IndexOptions { classic_events: false, fee_events: false, raw_ledgers: true, contracts: None };

/// Consecutive ledgers.
pub struct Chain {
    pub name: String,
    pub network: Network,
    /// XDR of the `LedgerCloseMeta`s.
    pub ledgers: Vec<Vec<u8>>,
}

impl Chain {
    /// Generated ledgers.
    pub fn made() -> Self {
        let (network, ledgers) = pubnet::made();
        Self { name: "made".to_owned(), network, ledgers }
    }

    /// Recorded ledgers of the public network, where they are available.
    pub fn public() -> Option<Self> {
        let ledgers = pubnet::ledgers()?;
        Some(Self { name: "public".to_owned(), network: pubnet::network(), ledgers })
    }
}

/// Calls `look` with every recorded chain: those of the public networks, and some from
/// stellar-core's unit tests.
pub fn each_recorded(mut look: impl FnMut(&Chain)) {
    let Some(folder) = fixtures::folder() else { return };
    let mut chain: Option<Chain> = None;
    let mut last = None;
    for (number, name) in fixtures::files(&folder).iter().enumerate() {
        let is_public = name.starts_with("pubnet") || name.starts_with("testnet");
        // The lake contains the public ledgers a second time.
        let is_wanted = fixtures::full_size() || is_public || number % SAMPLED == 0;
        if name.starts_with("lake") || name.starts_with("synthetic/galexie") || !is_wanted {
            continue;
        }
        let fixture = fixtures::load(&folder, name);
        for raw in fixture.ledgers {
            let header = orrery::decode::header(&raw).unwrap();
            let (hash, before) = (header.hash, header.previous_hash);
            match &mut chain {
                Some(chain) if last == Some(before) => chain.ledgers.push(raw),
                _ => {
                    let (name, network) = (fixture.name.clone(), fixture.network.clone());
                    let begun = Chain { name, network, ledgers: vec![raw] };
                    if let Some(done) = chain.replace(begun) {
                        look(&done);
                    }
                }
            }
            last = Some(hash);
        }
    }
    if let Some(done) = chain {
        look(&done);
    }
}

/// A store and the RPC methods on it.
pub struct World {
    pub rpc: Rpc,
    pub store: Arc<Store>,
    network: Network,
    options: IndexOptions,
    _directory: TempDir,
}

impl World {
    /// Creates a store without ledgers.
    pub fn empty(network: &Network) -> Self {
        Self::with(network, RAW_KEPT, Settings::default(), 0)
    }

    /// Creates a store without ledgers, with these options and settings and a clock fixed at `now`.
    pub fn with(network: &Network, options: IndexOptions, settings: Settings, now: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(directory.path(), Some(network)).unwrap());
        let rpc = Rpc::new(Arc::clone(&store), settings, Arc::new(move || now));
        Self { rpc, store, network: network.clone(), options, _directory: directory }
    }

    /// Creates a store with the ledgers of a chain, whose transactions are all indexed by their hashes.
    pub fn indexed(chain: &Chain) -> Self {
        let network = chain.network.clone();
        let directory = tempfile::tempdir().unwrap();
        let extensions = Extensions::for_consumers(&[Arc::new(TransactionHashes)]);
        let store = Store::open_with(directory.path(), Some(&network), extensions).unwrap();
        let store = Arc::new(store);
        let rpc = Rpc::new(Arc::clone(&store), Settings::default(), Arc::new(|| 0));
        let world = Self { rpc, store, network, options: RAW_KEPT, _directory: directory };
        world.add(&chain.ledgers);
        while world.store.step(&TransactionHashes).unwrap() {}
        world
    }

    /// Creates a store with the ledgers of a chain.
    pub fn of(chain: &Chain) -> Self {
        let world = Self::empty(&chain.network);
        world.add(&chain.ledgers);
        world
    }

    pub fn add(&self, ledgers: &[Vec<u8>]) {
        for raw in ledgers {
            let view = decode(raw, self.network.id()).unwrap();
            let prepared = PreparedLedger::new(&view, &self.options).unwrap();
            self.store.commit(prepared, Durability::Deferred).unwrap();
        }
        self.store.flush().unwrap();
    }

    pub fn call(&self, method: &str, params: &Value) -> Result<Value, Value> {
        self.call_within(method, params, CallLimits::UNLIMITED)
    }

    /// Returns the result, or the error object.
    pub fn call_within(
        &self,
        method: &str,
        params: &Value,
        allowed: CallLimits<'_>,
    ) -> Result<Value, Value> {
        let params = to_raw_value(params).unwrap();
        match self.rpc.call(method, Params(Some(&params)), allowed) {
            Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Err(error) => Err(serde_json::to_value(&error).unwrap()),
        }
    }
}
