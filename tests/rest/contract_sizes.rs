//! Disk usage per contract: the estimate compared with a sum over all records, and how it is
//! reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orrery::domain::{ContractId, Direction, Page};
use orrery::store::{
    ContractSizes, EventQuery, Retention, Sample, Store, TopicFilter, TransactionQuery,
};
use serde_json::json;
use tokio::sync::watch;

use orrery_testkit::pubnet;
use orrery_testkit::server::{Server, TempStore};

const ALL: Sample = Sample { ledgers: 256, bytes: u64::MAX, contracts: usize::MAX };

fn estimate(store: &Store, sample: Sample) -> ContractSizes {
    store.contract_sizes(sample, usize::MAX, || true).unwrap().unwrap()
}

fn page<C>() -> Page<C> {
    Page { direction: Direction::OldestFirst, cursor: None, offset: 0, limit: usize::MAX }
}

/// Length in bytes of a varint with seven bits per byte.
fn varint(number: usize) -> usize {
    (number.max(1).ilog2() / 7 + 1) as usize
}

type Parts = BTreeMap<ContractId, f64>;

/// Sums the bytes of all events and of all transactions over all records, in total and per
/// contract.
fn summed(store: &Store) -> [(f64, Parts); 2] {
    let mut events = (0.0, Parts::new());
    let query = EventQuery {
        ledgers: None,
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: page(),
    };
    let read = store.events(&query, |event| {
        let topics = event.topics.iter().map(|topic| varint(topic.len()) + topic.len());
        let size = varint(event.topics.len()) + topics.sum::<usize>() + event.data.len();
        events.0 += size as f64;
        if let Some(contract) = event.contract {
            *events.1.entry(ContractId(*contract)).or_default() += size as f64;
        }
    });
    read.unwrap();
    let mut transactions = (0.0, Parts::new());
    let query = TransactionQuery { ledgers: None, contracts: Vec::new(), page: page() };
    let read = store.transactions(&query, |transaction| {
        let parts = [transaction.envelope, transaction.result, transaction.meta];
        let size = parts.iter().map(|part| part.len()).sum::<usize>() as f64;
        transactions.0 += size;
        for contract in transaction.contracts {
            let part = size / transaction.contracts.len() as f64;
            *transactions.1.entry(*contract).or_default() += part;
        }
    });
    read.unwrap();
    [events, transactions]
}

/// Bytes on disk of the column families of events and transactions, and each contract's share of
/// them.
fn shares(store: &Store) -> (u64, Parts) {
    let sizes = store.sizes().unwrap();
    let of = |names: &[&str]| names.iter().map(|name| sizes[*name]).sum::<u64>();
    let on_disk = [
        of(&["events", "events_by_contract", "events_by_topic", "events_by_address"]),
        of(&["transactions", "tx_by_contract", "tx_by_hash", "entries"]),
    ];
    let whole = on_disk[0] + on_disk[1];
    assert!(on_disk.iter().all(|size| *size > 0), "{sizes:?}");
    let mut shares = Parts::new();
    for (on_disk, (all, parts)) in on_disk.into_iter().zip(summed(store)) {
        for (contract, part) in parts {
            *shares.entry(contract).or_default() += on_disk as f64 * part / all / whole as f64;
        }
    }
    (whole, shares)
}

/// Repeats `look` until no file changed meanwhile: RocksDB may compact files at any time.
fn with_stable_files<T>(store: &Store, look: impl Fn() -> T) -> T {
    loop {
        let before = store.sizes().unwrap();
        let seen = look();
        if store.sizes().unwrap() == before {
            return seen;
        }
    }
}

fn made() -> TempStore {
    let (network, ledgers) = pubnet::made();
    pubnet::store_of(&network, &ledgers)
}

#[test]
fn shares_are_exact_when_all_ledgers_are_sampled() {
    let public = pubnet::ledgers().map(|ledgers| pubnet::store(&ledgers));
    for store in [Some(made()), public].into_iter().flatten().map(TempStore::reopened) {
        let store = &store.store;
        let (sizes, most, (bytes, shares)) = with_stable_files(store, || {
            let most = store.contract_sizes(ALL, 2, || true).unwrap().unwrap();
            (estimate(store, ALL), most, shares(store))
        });
        assert_eq!((sizes.sampled, sizes.bytes, sizes.others), (sizes.stored, bytes, 0));
        assert_eq!(sizes.largest.len(), shares.len());
        for size in &sizes.largest {
            let expected = shares[&size.contract];
            assert!((size.share - expected).abs() < 1e-9, "{size:?}, not {expected}");
            assert!((size.bytes as f64 - expected * bytes as f64).abs() < 2.0, "{size:?}");
        }
        assert!(sizes.largest.is_sorted_by(|a, b| a.share >= b.share));
        assert_eq!(
            (&most.largest[..], most.others),
            (&sizes.largest[..2], shares.len() as u64 - 2)
        );
    }
}

#[test]
fn a_sample_of_the_ledgers_gives_similar_shares() {
    let store = made();
    let exact: Parts =
        estimate(&store.store, ALL).largest.iter().map(|it| (it.contract, it.share)).collect();
    let sizes = estimate(&store.store, Sample { ledgers: 15, ..ALL });
    assert_eq!((sizes.sampled, sizes.stored), (15, 60));
    for size in &sizes.largest {
        assert!((size.share - exact[&size.contract]).abs() < 0.1, "{size:?}");
    }
    let whole: f64 = sizes.largest.iter().map(|size| size.share).sum();
    assert!((0.9..=1.0 + 1e-9).contains(&whole), "{whole}");
}

#[test]
fn an_estimate_stops_at_its_limits() {
    let store = made();
    let one = estimate(&store.store, Sample { bytes: 1, ..ALL });
    assert!((1..10).contains(&one.sampled) && !one.largest.is_empty(), "{one:?}");
    let few = estimate(&store.store, Sample { contracts: 1, ..ALL });
    assert!((1..10).contains(&few.sampled) && !few.largest.is_empty(), "{few:?}");
    assert_eq!(store.store.contract_sizes(ALL, 1, || false).unwrap(), None);

    let retention = Retention { events: Some(9), transactions: Some(20), ..Retention::default() };
    while !store.store.prune(&retention).unwrap().is_nothing() {}
    let sizes = estimate(&store.store, ALL);
    assert_eq!((sizes.sampled, sizes.stored), (20, 20));
    // Compaction may not have separated the remaining rows from pruned ones yet; the estimate
    // covers the remaining ones.
    let [events, transactions] = summed(&store.store);
    let left: BTreeSet<_> = events.1.into_keys().chain(transactions.1.into_keys()).collect();
    assert_eq!(sizes.largest.iter().map(|it| it.contract).collect::<BTreeSet<_>>(), left);
}

#[test]
fn the_status_contains_the_contract_size_estimate() {
    let store = made();
    let (estimates, receiver) = watch::channel(None);
    let server = Server::start_with(&store, |deps| deps.contract_sizes = receiver);
    let contracts = || server.get_public("/rest/status").json()["contracts"].clone();
    assert!(contracts().is_null());
    let sizes = store.store.contract_sizes(ALL, 3, || true).unwrap().unwrap();
    estimates.send_replace(Some(Arc::new(sizes.clone())));
    let answer = contracts();
    let expected: Vec<_> = sizes
        .largest
        .iter()
        .map(|size| {
            json!({
                "contract_id": size.contract.to_string(),
                "share": (size.share * 1e4).round() / 1e4,
                "bytes": size.bytes,
            })
        })
        .collect();
    let expected = json!({
        "sampled_ledgers": 60,
        "of_ledgers": 60,
        "bytes": sizes.bytes,
        "largest": expected,
        "others": sizes.others,
    });
    assert_eq!(answer, expected);
    assert_eq!(answer["largest"].as_array().unwrap().len(), 3);
}
