//! Finding transactions by hash: classic ones too, those of ledgers that the index has not
//! processed yet, and none whose ledger is pruned.

use std::sync::Arc;

use orrery::decode::decode;
use orrery::domain::{LedgerSeq, Network};
use orrery::programs::storage;
use orrery::rpc::{CallLimits, Params, Rpc, Settings, TransactionHashes};
use orrery::store::{
    Consumed, Durability, Extensions, LedgerConsumer, PreparedLedger, Retention, RowBounds, Store,
};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::naive;
use crate::world::{Chain, RAW_KEPT};

struct Found {
    rpc: Rpc,
    store: Arc<Store>,
    network: Network,
    _directory: TempDir,
}

impl Found {
    fn new(network: &Network) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let extensions =
            Extensions::for_consumers(&[Arc::new(TransactionHashes)]).with_kind(storage::KIND);
        let store = Store::open_with(directory.path(), Some(network), extensions).unwrap();
        let store = Arc::new(store);
        let rpc = Rpc::new(Arc::clone(&store), Settings::default(), Arc::new(|| 0));
        Self { rpc, store, network: network.clone(), _directory: directory }
    }

    fn add(&self, raw: &[u8]) {
        let view = decode(raw, self.network.id()).unwrap();
        // Nothing is gathered for the index while every second ledger is prepared.
        let prepared = match view.header.sequence.0 % 2 {
            0 => self.store.prepare(&view, None, &RAW_KEPT),
            _ => PreparedLedger::new(&view, &RAW_KEPT),
        };
        let prepared = prepared.unwrap();
        self.store.commit(prepared, Durability::Synced).unwrap();
    }

    /// Lets the index process this many more ledgers.
    fn index_next(&self, ledgers: usize) -> Consumed {
        let name = TransactionHashes.spec().name;
        let seen = self.store.consume(name, ledgers, |ledger, effects| {
            TransactionHashes.process_ledger(&self.store, ledger, effects)
        });
        seen.unwrap()
    }

    fn ledger_of(&self, hash: &str) -> Option<u64> {
        let params = to_raw_value(&json!({ "hash": hash })).unwrap();
        let found = self.rpc.call("getTransaction", Params(Some(&params)), CallLimits::UNLIMITED);
        let found: Value = serde_json::from_str(found.unwrap().get()).unwrap();
        let ledger = found["ledger"].as_u64().unwrap();
        assert!(found["latestLedger"].as_u64() >= Some(ledger));
        (found["status"] != "NOT_FOUND").then_some(ledger)
    }
}

fn hashes(chain: &Chain) -> Vec<(u32, Vec<String>)> {
    let decoded = chain.ledgers.iter().map(|raw| naive::ledger(raw, &chain.network));
    decoded
        .map(|ledger| {
            let of = |it: &naive::Transaction| [Some(it.hash.clone()), it.inner_hash.clone()];
            let hashes = ledger.transactions.iter().flat_map(of).flatten();
            (ledger.sequence, hashes.collect())
        })
        .collect()
}

/// Looks up every `every`-th transaction of a ledger: each lookup decodes whole ledgers.
fn check(chain: &Chain, every: usize) {
    let found = Found::new(&chain.network);
    let all = hashes(chain);
    for (stored, raw) in chain.ledgers.iter().enumerate() {
        found.add(raw);
        // The index falls behind, but not by more ledgers than a lookup searches.
        if stored % 7 == 6 {
            found.index_next(7);
        }
        for (sequence, hashes) in all.iter().skip(stored.saturating_sub(9)).take(12) {
            let is_stored = *sequence <= all[stored].0;
            for hash in hashes.iter().step_by(every) {
                let expected = is_stored.then_some(u64::from(*sequence));
                assert_eq!(found.ledger_of(hash), expected, "{hash}");
            }
        }
    }
    while found.index_next(64) != Consumed::CaughtUp {}
    for (sequence, hashes) in &all {
        for hash in hashes.iter().step_by(every.div_ceil(5)) {
            assert_eq!(found.ledger_of(hash), Some(u64::from(*sequence)));
        }
    }
    assert_eq!(found.ledger_of(&"ab".repeat(32)), None);
}

#[test]
fn every_transaction_is_found_once_its_ledger_is_stored() {
    check(&Chain::made(), 5);
    if let Some(chain) = Chain::public() {
        let ledgers = chain.ledgers[..5].to_vec();
        check(&Chain { ledgers, ..chain }, 300);
    }
}

#[test]
fn index_rows_are_pruned_with_their_ledgers() {
    let chain = Chain::made();
    let found = Found::new(&chain.network);
    let all = hashes(&chain);
    let rows = |family: &str| {
        let view =
            found.store.consumer_view(TransactionHashes.spec().name, RowBounds::none()).unwrap();
        let mut rows = 0;
        view.scan(family, |_, _| rows += 1).unwrap();
        rows
    };
    for raw in &chain.ledgers {
        found.add(raw);
        found.index_next(1);
        let retention = Retention { raw_ledgers: Some(10), ..Retention::default() };
        while !found.store.prune(&retention).unwrap().is_nothing() {}
    }
    let first = found.store.first_raw().unwrap().unwrap();
    assert_eq!(first, LedgerSeq(all[all.len() - 10].0));
    // Retention keeps ten, and the rows of a pruned ledger are removed when the index processes the
    // next one.
    assert!((10..=11).contains(&rows("ledgers")), "{}", rows("ledgers"));
    let kept: usize = all[all.len() - 11..].iter().map(|(_, hashes)| hashes.len()).sum();
    assert!(rows("hashes") <= kept);
    for (sequence, hashes) in &all {
        for hash in hashes {
            let is_kept = *sequence >= first.0;
            assert_eq!(found.ledger_of(hash), is_kept.then_some(u64::from(*sequence)));
        }
    }
}
