//! Indexes that are registered by a user of the store: they are written, pruned, audited and filled
//! like built-in ones, and are compared with the stored records.

use std::collections::BTreeMap;
use std::path::Path;

use orrery_ledger::domain::{ContractId, Direction, EventId, LedgerSeq, Page};
use orrery_ledger::verify::Policy;
use orrery_store::{
    Audit, Durability, EventQuery, EventRecord, Extensions, Index, IndexOptions, Indexed,
    IndexedTransaction, Indexes, Retention, Store, Tags, TopicFilter, TransactionQuery, Values,
    audit_with,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rocksdb::{DB, Options};

use crate::{any_order, chain, everything, network};
use orrery_testkit::model::{Ledger, Universe};

/// Events by the length of their data, in two tags: one with the last byte of the contract, one
/// with the number of topics.
const BY_SIZE: Index = Index::of_events("events_by_size", 4, by_size);
/// Transactions by success and number of contracts; the value is the number of changed entries.
const BY_OUTCOME: Index = Index::of_transactions("tx_by_outcome", 2, by_outcome);

fn by_size(event: &EventRecord<'_>, tags: &mut Tags<'_>) {
    sizes(event).iter().for_each(|tag| tags.add(tag));
}

fn sizes(event: &EventRecord<'_>) -> [[u8; 4]; 2] {
    let contract = event.contract.map_or(0, |contract| contract[31]);
    let size = (event.data.len() as u16).to_be_bytes();
    [[0, contract, size[0], size[1]], [1, event.topics.len() as u8, size[0], size[1]]]
}

fn by_outcome(transaction: &IndexedTransaction<'_>, rows: &mut Values<'_>) {
    let tag = [u8::from(transaction.successful), transaction.contracts.len() as u8];
    rows.add(&tag, &(transaction.changed_entries.len() as u32).to_be_bytes());
}

/// Without raw ledgers, because the model's cannot be decoded.
fn options() -> IndexOptions {
    IndexOptions { raw_ledgers: false, ..everything() }
}

fn indexes() -> Indexes {
    Indexes::default().with(BY_SIZE).with(BY_OUTCOME)
}

fn extensions() -> Extensions {
    Extensions { indexes: indexes(), ..Extensions::default() }
}

fn open(directory: &Path) -> Store {
    Store::open_with(directory, Some(&network()), extensions()).unwrap()
}

fn commit(store: &Store, ledgers: &[Ledger]) {
    for ledger in ledgers {
        let prepared = store.prepare(&ledger.view(), None, &options()).unwrap();
        store.commit(prepared, Durability::Deferred).unwrap();
    }
    store.flush().unwrap();
}

type Rows<T> = BTreeMap<(Vec<u8>, T), Vec<u8>>;

/// Returns the rows of the indexes: events by tag, and transactions by tag with their value.
fn indexed(store: &Store) -> (Rows<EventId>, Rows<(LedgerSeq, u32)>) {
    let (mut events, mut transactions) = (Rows::new(), Rows::new());
    for index in [BY_SIZE, BY_OUTCOME] {
        let visit = |tag: &[u8], found: Indexed, value: &[u8]| {
            let before = match found {
                Indexed::Event(id) => events.insert((tag.to_vec(), id), value.to_vec()),
                Indexed::Transaction(at) => {
                    let at = (at.ledger, at.application_order);
                    transactions.insert((tag.to_vec(), at), value.to_vec())
                }
            };
            assert_eq!(before, None, "each once");
        };
        store.index_rows(&index, &[], visit).unwrap();
    }
    (events, transactions)
}

/// Computes the same rows from the stored records.
fn expected(store: &Store) -> (Rows<EventId>, Rows<(LedgerSeq, u32)>) {
    let (mut events, mut transactions) = (Rows::new(), Rows::new());
    let query = EventQuery {
        ledgers: None,
        contracts: Vec::new(),
        topics: TopicFilter::default(),
        page: Page { direction: Direction::OldestFirst, cursor: None, offset: 0, limit: 1 << 30 },
    };
    let add = |event: &EventRecord<'_>| {
        events.extend(sizes(event).map(|tag| ((tag.to_vec(), event.id), Vec::new())));
    };
    store.events(&query, add).unwrap();
    let page = Page { direction: Direction::OldestFirst, cursor: None, offset: 0, limit: 1 << 30 };
    let query = TransactionQuery { ledgers: None, contracts: Vec::<ContractId>::new(), page };
    store
        .transactions(&query, |record| {
            let changed = match record.successful {
                true => orrery_ledger::decode::changed_entries(record.meta).unwrap().len() as u32,
                false => 0,
            };
            let tag = vec![u8::from(record.successful), record.contracts.len() as u8];
            let at = (record.position.ledger, record.position.application_order);
            transactions.insert((tag, at), changed.to_be_bytes().to_vec());
        })
        .unwrap();
    (events, transactions)
}

#[track_caller]
fn assert_complete(store: &Store) {
    let (events, transactions) = expected(store);
    assert!(events.len() > 50 && transactions.len() > 5, "{} {}", events.len(), transactions.len());
    assert_eq!(indexed(store), (events, transactions));
}

fn checked(directory: &Path) -> Audit {
    audit_with(directory, &extensions(), None, Policy::default(), &|_| {}).unwrap()
}

/// Writes directly to the RocksDB database.
fn change(directory: &Path, change: impl Fn(&DB)) {
    let (options, raw) = (Options::default(), directory.join("raw"));
    let families = DB::list_cf(&options, &raw).unwrap();
    change(&DB::open_cf(&options, raw, families).unwrap());
}

#[test]
fn a_registered_index_is_maintained_like_a_built_in_one() {
    for seed in 0..6 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let universe = Universe::random(&mut rng);
        let ledgers = chain(&mut rng, &universe, 60);
        let latest = ledgers.iter().map(|ledger| ledger.sequence).max().unwrap();
        let ledgers = any_order(&mut rng, ledgers);
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        let (first, rest) = ledgers.split_at(rng.random_range(0..ledgers.len()));
        // Covers an index that is added to a directory which already has ledgers.
        if rng.random_bool(0.5) {
            let without = Store::open(at, Some(&network())).unwrap();
            let prepared = first.iter().map(|ledger| ledger.prepare(&options()));
            let (_, done) = without.commit_all(prepared.collect(), Durability::Synced);
            done.unwrap();
        } else {
            commit(&open(at), first);
        }
        let store = open(at);
        commit(&store, rest);
        assert_complete(&store);
        drop(store);
        assert_eq!(checked(at).problems, []);
        let store = open(at);
        let mut kept = || rng.random_bool(0.7).then(|| rng.random_range(10..50u32));
        let retention = Retention {
            raw_ledgers: None,
            events: kept(),
            transactions: kept(),
            wait_for_consumers: 0,
        };
        while !store.prune(&retention).unwrap().is_nothing() {}
        assert_complete(&store);
        drop(store);
        assert_eq!(checked(at).problems, [], "up to {latest}");
    }
}

#[test]
fn an_index_that_was_temporarily_unregistered_is_refilled() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let universe = Universe::random(&mut rng);
    let ledgers = chain(&mut rng, &universe, 60);
    let (first, rest) = ledgers.split_at(30);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    commit(&open(at), first);
    let without = Store::open(at, None).unwrap();
    commit(&without, rest);
    while !without
        .prune(&Retention { events: Some(40), transactions: Some(20), ..Retention::default() })
        .unwrap()
        .is_nothing()
    {}
    drop(without);
    // The outdated index rows are not used, and are not reported as damage.
    assert_eq!(checked(at).problems, []);
    assert_complete(&open(at));
    assert_eq!(checked(at).problems, []);
}

#[test]
fn damage_to_a_registered_index_is_reported() {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let universe = Universe::random(&mut rng);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    commit(&open(at), &chain(&mut rng, &universe, 30));
    type Damage = fn(&DB);
    let damages: [(Damage, &str); 3] = [
        (
            |db| {
                let family = db.cf_handle("events_by_size").unwrap();
                let (key, _) =
                    db.iterator_cf(&family, rocksdb::IteratorMode::Start).next().unwrap().unwrap();
                db.delete_cf(&family, key).unwrap();
            },
            "events_by_size",
        ),
        (
            |db| {
                let family = db.cf_handle("tx_by_outcome").unwrap();
                let (key, _) =
                    db.iterator_cf(&family, rocksdb::IteratorMode::End).next().unwrap().unwrap();
                db.put_cf(&family, key, [9; 4]).unwrap();
            },
            "it points to the wrong record",
        ),
        (
            |db| {
                let family = db.cf_handle("tx_by_outcome").unwrap();
                db.put_cf(&family, [7; 9], [0, 0, 0, 9]).unwrap();
            },
            "it points to a record that is not stored",
        ),
    ];
    for (number, (damage, sentence)) in damages.into_iter().enumerate() {
        change(at, damage);
        let problems: Vec<String> = checked(at).problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), number + 1, "{problems:?}");
        assert!(problems.iter().any(|problem| problem.contains(sentence)), "{problems:?}");
    }
    // An audit without the registered indexes checks the other ones only.
    assert_eq!(orrery_store::audit(at, None, &|_| {}).unwrap().problems, []);
}

#[test]
fn conflicting_indexes_and_mismatched_ledgers_are_refused() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let universe = Universe::random(&mut rng);
    let ledger = universe.ledger(&mut rng, 100, [0; 32]);
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    for taken in [indexes().with(BY_SIZE), indexes().with(Index::of_events("events", 4, by_size))] {
        let extensions = Extensions { indexes: taken, ..Extensions::default() };
        let refused = Store::open_with(at, Some(&network()), extensions).unwrap_err();
        let sentence = refused.to_string();
        assert!(sentence.ends_with("which is already in use"), "{sentence}");
    }
    let store = open(at);
    let refused = store.commit(ledger.prepare(&options()), Durability::Synced).unwrap_err();
    let sentence = refused.to_string();
    assert_eq!(sentence, "the ledger was prepared for other indexes than this store has");
    assert_eq!(store.status().ranges, []);
    commit(&store, &[ledger]);
    assert_eq!(store.status().ranges.len(), 1);
}
